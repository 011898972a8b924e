//! Whether a log of starts keeps to a rules file, and what it makes the next one wait for: slow, obvious, and nothing of the engine in it.

mod breach;
#[cfg(feature = "sim")]
mod fill;
mod limit;
mod log;
mod next;
mod rates;
mod start;
mod stretches;

pub use self::breach::Breach;
#[cfg(feature = "sim")]
pub use self::fill::Fill;
#[cfg(feature = "sim")]
pub(crate) use self::fill::fills;
use self::log::Clock;
pub use self::next::{EndpointOutlook, Headroom, LogHold, Opens, Outlook};
pub use self::start::Start;
use crate::rules::Rules;

/// Finds every limit of the rules that a log of starts breaks, at the clock that wrote the log.
///
/// Windows are as long as the balancer makes them: with their `margin`. Those with `count_from = "response"` count an
/// attempt from its start until one period after its end. A `smooth` quota is checked as a window and for its spacing, of
/// which 2 ms are let off: so much lateness of timers is caught up. Concurrency caps count attempts, whatever they cost.
/// The log may be in any order, and of any program: the balancer takes no part in it.
///
/// Limits of endpoints count the starts that name one. Where the endpoints of a pool come from code, those are taken that the
/// log names.
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
/// `count_from = "response"` are for. Token buckets and the spacing of `smooth` are not checked, since nothing is promised
/// of them there. Everything else is as in [`verify`].
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

/// Says what makes the start `next` wait at its instant `at`, as far as the log of starts before it tells: every limit that
/// binds it, and holds after refusals.
///
/// Each limit speaks for itself: the start that all of them and the holds let go is the earliest possible one of a request
/// that is alone. What waits beside it is not in a log, so turns, lanes and pace are not looked at. Starts after `next.at`
/// are not known yet; ends and refusals in the log are. Nothing is said of a rule that there is not.
///
/// In a pool each endpoint says what the start would meet there, and the start goes where it may first; one that names an
/// [`endpoint`](Start::endpoint) asks about that alone. Breakers, and what sticks to which endpoint, are not in a log.
///
/// ```
/// use request_balancer::{Opens, Rules, Start, explain_log};
/// use std::time::Duration;
///
/// let rules: Rules = "per_key = '2/1s'\noverall = '30/1s'".parse()?;
/// let at = Duration::from_millis;
/// let log = [0, 250].map(|millis| Start::new(at(millis), "default", 42).end(at(millis)));
/// let outlook = explain_log(&rules, &log, &Start::new(at(600), "default", 42));
/// assert_eq!(outlook.opens(), Opens::At(at(1_000)));
/// let said: Vec<String> = outlook.limits.iter().map(ToString::to_string).collect();
/// assert_eq!(said[0], "`overall` 30/1s: 2 of 30 used, room now");
/// assert_eq!(said[1], "`per_key` 2/1s, key 42: 2 of 2 used, room at 1s");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[must_use]
pub fn explain_log(rules: &Rules, starts: &[Start], next: &Start) -> Outlook {
    Outlook::new(&log::with_endpoints_of(rules, starts), starts, next)
}
