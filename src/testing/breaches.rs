//! The assertion that a log of starts keeps to the rules.

use std::fmt::Write;

use crate::rules::Rules;
use crate::verify::{Start, verify};

/// Breaches that a panic tells of; the rest is counted.
const SHOWN: usize = 20;

/// Panics if a log of starts breaks a limit of the rules, with a line for each [`Breach`](crate::Breach).
///
/// It is [`verify`](crate::verify) that judges, without a line of the balancer's own code: the log may be anybody's.
///
/// # Panics
///
/// If there is a breach.
///
/// ```should_panic
/// use request_balancer::testing::assert_no_breach;
/// use request_balancer::{Rules, Start};
/// use std::time::Duration;
///
/// let rules: Rules = "per_key = '1/1s'".parse().expect("rules that load");
/// let start = |millis| Start::new(Duration::from_millis(millis), "default", 42);
/// // 1 breach of the rules in 2 starts:
/// //   `per_key` 1/1s, key 42: 2 in the 1s up to 999ms, 1 allowed
/// assert_no_breach(&rules, &[start(0), start(999)]);
/// ```
#[track_caller]
pub fn assert_no_breach(rules: &Rules, starts: &[Start]) {
    let breaches = verify(rules, starts);
    if breaches.is_empty() {
        return;
    }
    let plural = if breaches.len() == 1 { "breach" } else { "breaches" };
    let mut text = format!("{} {plural} of the rules in {} starts:", breaches.len(), starts.len());
    for breach in breaches.iter().take(SHOWN) {
        // Writing into a string never fails.
        let _ = write!(text, "\n  {breach}");
    }
    if let Some(more @ 1..) = breaches.len().checked_sub(SHOWN) {
        let _ = write!(text, "\n  and {more} more");
    }
    panic!("{text}");
}
