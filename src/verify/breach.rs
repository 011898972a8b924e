//! What is said of a broken limit.

use std::fmt;
use std::time::Duration;

/// A limit that a log of starts breaks, or a start that no limit is known for.
///
/// ```
/// use request_balancer::{Breach, Rules, Start, verify};
/// use std::time::Duration;
///
/// let rules: Rules = "concurrency = 1".parse()?;
/// let second = Duration::from_secs(1);
/// let starts = [
///     Start::new(Duration::ZERO, "default", "a").end(second * 3),
///     Start::new(second, "default", "b").end(second * 2),
///     Start::new(second, "defautl", "c"),
/// ];
/// let breaches = verify(&rules, &starts);
/// assert_eq!(breaches[0].to_string(), "no rule `defautl`: its start at 1s is not checked");
/// assert_eq!(breaches[1].to_string(), "`concurrency` 1: 2 at once at 1s, 1 allowed");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// More than a limit allows.
    #[non_exhaustive]
    TooMany {
        /// Where the file says so, such as `rules.group.per_key`.
        limit: String,
        /// What it says there, such as `20/60s`.
        quota: String,
        /// Whose limit, where each key has its own.
        key: Option<String>,
        /// The worst instant of the stretch in which the limit is exceeded: that of the last start too many.
        at: Duration,
        /// Length of the window that ends at `at`, that instant included and its beginning not. Zero for a concurrency
        /// cap.
        within: Duration,
        /// What is counted there: sum of costs, or attempts.
        count: u64,
        /// What may be.
        allowed: u32,
    },
    /// The file has no rule of this name.
    #[non_exhaustive]
    UnknownRule {
        /// The name in the log.
        rule: String,
        /// When its first start was.
        at: Duration,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { limit, quota, key, at, within, count, allowed } => {
                write!(f, "`{limit}` {quota}")?;
                if let Some(key) = key {
                    write!(f, ", key {key}")?;
                }
                if within.is_zero() {
                    write!(f, ": {count} at once at {at:?}, {allowed} allowed")
                } else {
                    write!(f, ": {count} in the {within:?} up to {at:?}, {allowed} allowed")
                }
            }
            Self::UnknownRule { rule, at } => write!(f, "no rule `{rule}`: its start at {at:?} is not checked"),
        }
    }
}
