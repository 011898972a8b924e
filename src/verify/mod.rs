//! Whether a log of starts keeps to a rules file: slow, obvious, and nothing of the engine in it.

mod breach;
mod limit;
mod log;

use std::time::Duration;

pub use self::breach::Breach;
use self::limit::Limit;
use self::log::Counted;
use crate::rules::Rules;

/// One start in a log: an attempt of a request that began.
///
/// ```
/// use request_balancer::Start;
/// use std::time::Duration;
///
/// let start = Start::new(Duration::from_millis(1_500), "group", "chat 42")
///     .cost(3)
///     .end(Duration::from_millis(1_720));
/// assert_eq!(start.to_string(), "1.5s group chat 42 cost 3 until 1.72s");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Start {
    /// When it began, from any epoch that all starts of the log share; nanoseconds count.
    pub at: Duration,
    /// The rule's name in the file.
    pub rule: String,
    /// Its key as text: equal keys, equal text.
    pub key: String,
    /// What it took from limits that count requests. Zero counts as 1.
    pub cost: u32,
    /// When the attempt ended, from the same epoch. `None`: it still ran when the log ended.
    pub end: Option<Duration>,
}

impl Start {
    /// A start of cost 1 whose attempt still ran when the log ended.
    pub fn new(at: Duration, rule: impl Into<String>, key: impl ToString) -> Self {
        Self { at, rule: rule.into(), key: key.to_string(), cost: 1, end: None }
    }

    /// What it took from limits that count requests. Default: 1.
    pub fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// When the attempt ended. Default: it still ran when the log ended.
    ///
    /// Where nothing is known of ends, `end(at)` says that attempts take no time: concurrency caps are kept then, whatever
    /// happened.
    pub fn end(self, end: Duration) -> Self {
        Self { end: Some(end), ..self }
    }
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {}", self.at, self.rule, self.key)?;
        if self.cost > 1 {
            write!(f, " cost {}", self.cost)?;
        }
        self.end.map_or(Ok(()), |end| write!(f, " until {end:?}"))
    }
}

/// Finds every limit of the rules that a log of starts breaks, at the clock that wrote the log.
///
/// Windows are as long as the balancer makes them: with their `margin`. Those with `count_from = "response"` count an
/// attempt from its start until one period after its end. Concurrency caps count attempts, whatever they cost. The log
/// may be in any order, and of any program: the balancer takes no part in it.
///
/// One stretch of time in which a limit is exceeded is one breach, told at its worst instant. What is not checked: order,
/// fairness, priorities, how often something was retried.
///
/// ```
/// use request_balancer::{Rules, Start, verify};
/// use std::time::Duration;
///
/// let rules: Rules = "per_key = '2/1s'".parse()?;
/// let start = |millis| {
///     let at = Duration::from_millis(millis);
///     Start::new(at, "default", 42).end(at)
/// };
/// assert_eq!(verify(&rules, &[start(0), start(500), start(1_000)]), []);
///
/// let breaches = verify(&rules, &[start(0), start(500), start(999)]);
/// assert_eq!(breaches[0].to_string(), "`per_key` 2/1s, key 42: 3 in the 1s up to 999ms, 2 allowed");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[must_use]
pub fn verify(rules: &Rules, starts: &[Start]) -> Vec<Breach> {
    log::breaches(rules, starts, Clock::Own)
}

/// Finds every limit of the rules that a server saw broken: `at` of each start is when it arrived there.
///
/// Windows are as the file says, without their `margin`, and all of them count arrivals: that is what a margin and
/// `count_from = "response"` are for. Everything else is as in [`verify`].
///
/// ```
/// use request_balancer::{Rules, Start, verify, verify_arrivals};
/// use std::time::Duration;
///
/// let rules: Rules = "overall = '1/1s'\nmargin = '50ms'".parse()?;
/// let start = |millis| {
///     let at = Duration::from_millis(millis);
///     Start::new(at, "default", "").end(at)
/// };
/// // Sent 1,050 ms apart; the second was 50 ms faster on its way.
/// assert_eq!(verify(&rules, &[start(0), start(1_050)]), []);
/// assert_eq!(verify_arrivals(&rules, &[start(60), start(1_060)]), []);
/// assert_eq!(verify_arrivals(&rules, &[start(61), start(1_060)]).len(), 1);
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[must_use]
pub fn verify_arrivals(rules: &Rules, arrivals: &[Start]) -> Vec<Breach> {
    log::breaches(rules, arrivals, Clock::Server)
}

/// Whose clock wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Own,
    Server,
}
