//! Why a request was not started, or not again.

use std::fmt;
use std::time::Duration;

use super::next_start::NextStart;

/// Why the balancer did not start a request, or not again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No rule has this name.
    #[error("there is no rule `{name}`{}", DidYouMean(nearest.as_deref()))]
    UnknownRule {
        /// The name that was asked for.
        name: String,
        /// The rule whose name looks most like it.
        nearest: Option<String>,
    },
    /// The rules declare no such unit.
    #[error("there is no unit `{name}`{}", DidYouMean(nearest.as_deref()))]
    UnknownUnit {
        /// The name that was asked for.
        name: String,
        /// The declared unit whose name looks most like it.
        nearest: Option<String>,
    },
    /// Its queue is full, or the line as a whole.
    #[error("there is no room in line, where {waiting} requests wait")]
    QueueFull {
        /// How many wait in its queue if that is full, else in the whole line.
        waiting: u32,
    },
    /// The keys would stand for each other in a circle.
    #[error("key `{old}` can't be an alias of `{new}`: `{new}` stands for `{old}` already")]
    AliasCycle {
        /// The key that was to become an alias.
        old: String,
        /// The key that it was to stand for.
        new: String,
    },
    /// Its rule is no longer among the rules.
    #[error("its rule was removed from the rules")]
    RuleRemoved,
    /// A newer request took its place in a full queue.
    #[error("a newer request took its place in a full queue")]
    Displaced,
    /// It costs more than one of its limits ever has room for.
    #[error("it costs {cost}, but one of its limits has room for {capacity} at most")]
    CostTooHigh {
        /// What it costs.
        cost: u32,
        /// The most that fits.
        capacity: u32,
    },
    /// It was not to wait, and could not start at once.
    #[error("it can't start at once: {next_start}")]
    NotNow {
        /// When it could start at the earliest.
        next_start: NextStart,
    },
    /// It stood in line for as long as it may; or it is an [eager](crate::Request::eager) request, and would.
    #[error("it stood in line for {waited:?} and can't start within the time it may: {next_start}")]
    MaxWait {
        /// Time in line, over all attempts.
        waited: Duration,
        /// When it could have started at the earliest.
        next_start: NextStart,
    },
    /// All its attempts failed.
    #[error("all its attempts failed")]
    Attempts,
    /// The server sent it away more often, or for longer in sum, than the policy allows.
    #[error("the server sent it away more often, or for longer in sum, than its retry policy allows")]
    Waits,
    /// The server told it to wait for longer than the policy allows.
    #[error("it should wait for {wait:?}, but its retry policy allows {ceiling:?} at most")]
    WaitTooLong {
        /// How long it should have waited.
        wait: Duration,
        /// The longest wait that the policy allows.
        ceiling: Duration,
    },
    /// An attempt ran for as long as it may, and the request is not marked idempotent or has no further attempt.
    #[error("its attempt ran for as long as it may")]
    TimedOut,
    /// Retries are a larger share of all starts than the rules allow.
    #[error("retries are a larger share of all starts than the rules allow")]
    RetryBudget,
    /// The attempt may have had its effect and the request is not marked idempotent.
    #[error("the attempt may have had its effect, and the request is not marked idempotent")]
    RetryNotAllowed,
    /// No endpoint that it may use can be used: they are disabled, or their breakers are open.
    #[error("no endpoint that it may use can be used: {}", Returns(*next_start))]
    NoEndpoint {
        /// When one may be tried again.
        next_start: NextStart,
    },
    /// The pool has no such endpoint.
    #[error("there is no endpoint `{name}`{}", DidYouMean(nearest.as_deref()))]
    UnknownEndpoint {
        /// The name that was asked for.
        name: String,
        /// The endpoint whose name looks most like it.
        nearest: Option<String>,
    },
    /// It would wait for a slot that the attempt waiting for it occupies.
    #[error("it would wait for a slot that is taken by the very attempt that waits for it")]
    WouldDeadlock,
    /// It was cut off: the balancer was closed and the deadline passed, or the runtime went away on which it ran or waited.
    #[error("it was cut off, or the runtime is gone on which it ran or waited")]
    Aborted,
    /// The balancer is closed.
    #[error("the balancer is closed")]
    Closed,
    /// It must wait, and there is no tokio runtime with timers to wait on.
    #[error("it must wait, but no tokio runtime with timers enabled is current here")]
    NoRuntime,
    /// The closure or its future panicked; only from [`Error::flatten`](super::Error::flatten).
    #[error("the attempt panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl Refused {
    /// The reason in one word, without values: what metrics and logs say.
    ///
    /// ```
    /// use request_balancer::Refused;
    ///
    /// assert_eq!(Refused::QueueFull { waiting: 10 }.cause(), "queue-full");
    /// ```
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::UnknownRule { .. } => "unknown-rule",
            Self::UnknownUnit { .. } => "unknown-unit",
            Self::QueueFull { .. } => "queue-full",
            Self::AliasCycle { .. } => "alias-cycle",
            Self::RuleRemoved => "rule-removed",
            Self::Displaced => "displaced",
            Self::CostTooHigh { .. } => "cost-too-high",
            Self::NotNow { .. } => "not-now",
            Self::MaxWait { .. } => "max-wait",
            Self::Attempts => "attempts",
            Self::Waits => "waits",
            Self::WaitTooLong { .. } => "wait-too-long",
            Self::RetryNotAllowed => "retry-not-allowed",
            Self::TimedOut => "timed-out",
            Self::RetryBudget => "retry-budget",
            Self::NoEndpoint { .. } => "no-endpoint",
            Self::UnknownEndpoint { .. } => "unknown-endpoint",
            Self::WouldDeadlock => "would-deadlock",
            Self::Aborted => "aborted",
            Self::Closed => "closed",
            Self::NoRuntime => "no-runtime",
            Self::Panicked { .. } => "panicked",
        }
    }
}

/// When an endpoint comes back.
struct Returns(NextStart);

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NextStart::Never => f.write_str("all are disabled"),
            NextStart::After(span) => write!(f, "one may be tried again in {span:?}"),
            NextStart::Now | NextStart::WhenOneEnds => f.write_str("one may be tried again soon"),
        }
    }
}

/// The half sentence with which an unknown name's error ends.
struct DidYouMean<'a>(Option<&'a str>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}
