//! What a file or a rule says of retries, field by field, and the presets.

use std::time::Duration;

use super::builder::At;
use crate::engine::{Nanos, RetryPolicy, Scope, WaitOrder};

/// What differs from a retry policy; what is not set stays as it is there.
///
/// ```
/// use request_balancer::{Retry, Rule, Rules};
/// use std::time::Duration;
///
/// let rules = Rules::builder()
///     .retry(Retry::patient())
///     .rule("chat", Rule::new().retry(Retry::new().attempts(2)))
///     .build()?;
/// let policy = rules.rule("chat").unwrap().retry();
/// assert_eq!(policy.attempts, 2);
/// assert_eq!(Duration::from(policy.backoff), Duration::from_secs(3));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Retry {
    pub(super) attempts: Option<At<u32>>,
    pub(super) backoff: Option<At<Nanos>>,
    pub(super) max_delay: Option<At<Nanos>>,
    pub(super) jitter: Option<At<f64>>,
    pub(super) min_wait: Option<At<Nanos>>,
    pub(super) bare_wait: Option<At<Nanos>>,
    pub(super) waits: Option<u32>,
    pub(super) ceiling: Option<At<Option<Nanos>>>,
    pub(super) total_wait: Option<At<Option<Nanos>>>,
    pub(super) hold: Option<Scope>,
    pub(super) order: Option<WaitOrder>,
}

impl Retry {
    /// Nothing differs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Preset `none`: one attempt. Waits that the server asks for are not failures and stay allowed.
    pub fn none() -> Self {
        Self::new().attempts(1)
    }

    /// Preset `aggressive`: 5 attempts, first delay 250 ms, longest 5 s.
    pub fn aggressive() -> Self {
        Self::new().attempts(5).backoff(Duration::from_millis(250)).max_delay(Duration::from_secs(5))
    }

    /// Preset `patient`: 4 attempts, first delay 3 s, longest 60 s.
    pub fn patient() -> Self {
        Self::new().attempts(4).backoff(Duration::from_secs(3)).max_delay(Duration::from_secs(60))
    }

    /// Starts that may be spent on failures, the first included; at least 1. Default: 3.
    pub fn attempts(mut self, most: u32) -> Self {
        self.attempts = Some(most.into());
        self
    }

    /// Delay after the first transient failure; doubles with each further one. Default: 1 s.
    pub fn backoff(mut self, first: Duration) -> Self {
        self.backoff = Some(Nanos::from(first).into());
        self
    }

    /// Longest delay after a transient failure. Default: 30 s.
    pub fn max_delay(mut self, longest: Duration) -> Self {
        self.max_delay = Some(Nanos::from(longest).into());
        self
    }

    /// Fraction of each delay that is drawn at random, from 0 to 1. Default: 0.5.
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = Some(fraction.into());
        self
    }

    /// Shortest wait of any kind. Default: 1 s.
    pub fn min_wait(mut self, shortest: Duration) -> Self {
        self.min_wait = Some(Nanos::from(shortest).into());
        self
    }

    /// Wait where the server says "slow down" without a number. Doubles with each further one in a row to the same scope,
    /// up to `max_delay`, whichever request it answers; a success of the scope ends the row. Default: 5 s.
    pub fn bare_wait(mut self, wait: Duration) -> Self {
        self.bare_wait = Some(Nanos::from(wait).into());
        self
    }

    /// How many server-directed waits one request may have. Default: 20.
    pub fn waits(mut self, most: u32) -> Self {
        self.waits = Some(most);
        self
    }

    /// The longest single server-directed wait; `None` for any. Default: 5 min.
    pub fn ceiling(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.ceiling = Some(longest.into().map(Nanos::from).into());
        self
    }

    /// Server-directed waits in sum; `None` for any. Default: 15 min.
    pub fn total_wait(mut self, most: impl Into<Option<Duration>>) -> Self {
        self.total_wait = Some(most.into().map(Nanos::from).into());
        self
    }

    /// Default scope of the hold that a retry sets. Default: the endpoint, which without a pool is the key.
    pub fn hold(mut self, scope: Scope) -> Self {
        self.hold = Some(scope);
        self
    }

    /// How the policy's own delay and the server's wait combine. Default: the longer one.
    pub fn order(mut self, order: WaitOrder) -> Self {
        self.order = Some(order);
        self
    }

    /// The policy that differs so from the default one, to try it out: [`decide`](RetryPolicy::decide) and
    /// [`delay`](RetryPolicy::delay) need neither a server nor a clock.
    ///
    /// Values that no policy can have are brought to the nearest that one can.
    ///
    /// ```
    /// use request_balancer::{Nanos, Retry};
    ///
    /// let policy = Retry::aggressive().jitter(0.0).policy();
    /// let delays = [1, 2, 3, 4].map(|attempt| policy.delay(attempt, 0));
    /// assert_eq!(delays, [250, 500, 1_000, 2_000].map(Nanos::from_millis));
    /// ```
    #[must_use]
    pub fn policy(&self) -> RetryPolicy {
        self.over(&RetryPolicy::default())
    }

    /// `base` with what differs. Values that no policy can have are brought to the nearest that one can.
    pub(crate) fn over(&self, base: &RetryPolicy) -> RetryPolicy {
        fn or<T: Copy>(own: Option<At<T>>, base: T) -> T {
            own.map_or(base, |at| at.value)
        }
        let jitter = or(self.jitter, base.jitter);
        RetryPolicy {
            attempts: or(self.attempts, base.attempts).max(1),
            backoff: or(self.backoff, base.backoff),
            max_delay: or(self.max_delay, base.max_delay),
            jitter: if jitter.is_nan() { base.jitter } else { jitter.clamp(0.0, 1.0) },
            min_wait: or(self.min_wait, base.min_wait),
            bare_wait: or(self.bare_wait, base.bare_wait),
            waits: self.waits.unwrap_or(base.waits),
            ceiling: or(self.ceiling, base.ceiling),
            total_wait: or(self.total_wait, base.total_wait),
            hold: self.hold.unwrap_or(base.hold),
            order: self.order.unwrap_or(base.order),
        }
    }
}

/// Makes what a preset stands for.
type Preset = fn() -> Retry;

/// The names of the presets in the rules file.
pub(super) const PRESETS: &[(&str, Preset)] =
    &[("none", Retry::none), ("aggressive", Retry::aggressive), ("patient", Retry::patient)];

pub(super) const HOLDS: &[(&str, Scope)] = &[
    ("request", Scope::Request),
    ("queue", Scope::Queue),
    ("key", Scope::Key),
    ("rule", Scope::Rule),
    ("overall", Scope::Overall),
    ("endpoint", Scope::Endpoint),
];

pub(super) const ORDERS: &[(&str, WaitOrder)] =
    &[("max", WaitOrder::Max), ("server", WaitOrder::Server), ("policy", WaitOrder::Policy)];

pub(super) const fn hold_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Request => "request",
        Scope::Queue => "queue",
        Scope::Key => "key",
        Scope::Rule => "rule",
        Scope::Overall => "overall",
        Scope::Endpoint => "endpoint",
    }
}

pub(super) const fn order_word(order: WaitOrder) -> &'static str {
    match order {
        WaitOrder::Max => "max",
        WaitOrder::Server => "server",
        WaitOrder::Policy => "policy",
    }
}
