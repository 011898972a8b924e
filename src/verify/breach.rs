//! What is said of a broken limit.

use std::fmt;
use std::time::Duration;

/// A limit that a log of starts breaks, or a start that no limit is known for.
///
/// ```
/// use request_balancer::{Rules, Start, verify};
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
/// assert_eq!(breaches[0].to_string(), "no rule `defautl`: its starts from 1s on are not checked");
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
        /// Length of the time that ends with `at`. Of a window the beginning does not belong to it; a token bucket was full
        /// at the beginning. Zero for a concurrency cap.
        within: Duration,
        /// What is counted there: sum of costs, or attempts.
        count: u64,
        /// What may be.
        allowed: u64,
    },
    /// Before the one before is paid for, where starts are evenly spaced.
    #[non_exhaustive]
    TooEarly {
        /// Where the file says so.
        limit: String,
        /// What it says there, such as `20/60s smooth`.
        quota: String,
        /// Whose limit, where each key has its own.
        key: Option<String>,
        /// When it started.
        at: Duration,
        /// When it was due.
        due: Duration,
    },
    /// The file has no rule of this name.
    #[non_exhaustive]
    UnknownRule {
        /// The name in the log.
        rule: String,
        /// When its first start was.
        at: Duration,
    },
    /// The file lists endpoints, and none of this name.
    #[non_exhaustive]
    UnknownEndpoint {
        /// The name in the log.
        endpoint: String,
        /// When its first start was.
        at: Duration,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |f: &mut fmt::Formatter<'_>, limit, quota, key: &Option<String>| {
            write!(f, "`{limit}` {quota}")?;
            key.as_ref().map_or(Ok(()), |key| write!(f, ", key {key}"))
        };
        match self {
            Self::TooMany { limit: name, quota, key, at, within, count, allowed } => {
                limit(f, name, quota, key)?;
                if within.is_zero() {
                    write!(f, ": {count} at once at {at:?}, {allowed} allowed")
                } else {
                    write!(f, ": {count} in the {within:?} up to {at:?}, {allowed} allowed")
                }
            }
            Self::TooEarly { limit: name, quota, key, at, due } => {
                limit(f, name, quota, key)?;
                write!(f, ": one at {at:?}, due at {due:?}")
            }
            Self::UnknownRule { rule, at } => {
                write!(f, "no rule `{rule}`: its starts from {at:?} on are not checked")
            }
            Self::UnknownEndpoint { endpoint, at } => {
                write!(f, "no endpoint `{endpoint}`: nothing is known of what its starts from {at:?} on keep to there")
            }
        }
    }
}
