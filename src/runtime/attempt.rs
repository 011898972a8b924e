//! One run of a request's closure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::engine::{RequestId, RuleId};
use crate::error::{Failure, Refused};
use crate::key::Key;

/// One run of a request's closure.
///
/// The closure gets it by value and may drop it at once: it ends nothing and holds nothing.
pub struct Attempt {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Option<RequestId>,
    pub(super) rule: RuleId,
    pub(super) key: Key,
    pub(super) number: u32,
    pub(super) failures: u32,
    /// The request's own number; `None`: the rule's.
    pub(super) attempts: Option<u32>,
    pub(super) waited: Duration,
}

impl Attempt {
    /// Which attempt of its request this is, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The name of the request's rule.
    #[must_use]
    pub fn rule(&self) -> Arc<str> {
        self.shared.rule_name(self.rule)
    }

    /// The request's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// How long the request has stood in line so far, over all its attempts.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether a transient failure of this attempt would be final.
    #[must_use]
    pub fn is_last(&self) -> bool {
        let of_rule = || self.shared.live.load().rule(self.rule).retry.attempts;
        self.failures.saturating_add(1) >= self.attempts.unwrap_or_else(of_rule)
    }

    /// The attempt cost `actual` in this unit, not what was asked for: its limits count that from now on.
    ///
    /// Windows count the difference both ways, as of the attempt's start; spacing and buckets charge what is more and
    /// give nothing back. What is more may go over a limit, and later starts wait for it. A retry pays `actual` too, but
    /// no less than was asked for; and only that where there is never room for `actual`. Once the attempt has ended it
    /// changes nothing. `"requests"` is the default unit.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownUnit`] with the nearest name.
    pub fn settle(&self, unit: &str, actual: u32) -> Result<(), Refused> {
        self.shared.settle(self.id, unit, actual)
    }

    /// The failure that puts the request back in line, with nothing of its scope starting before `after` is over.
    ///
    /// `None`: the server did not say how long; the policy's `bare_wait` is used, doubled each time, and the attempt
    /// counts as failed. With a number the policy's `waits`, `ceiling` and `total_wait` apply instead. The scope is the
    /// policy's (by default the key) unless [`Failure::hold`] names another.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Error, Refused, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let rest = async |seconds| {
    ///     let rest = Duration::from_secs(seconds);
    ///     balancer
    ///         .run("send", 42, async |attempt| match attempt.number() {
    ///             1 => Err(attempt.retry::<()>(rest)),
    ///             number => Ok(number),
    ///         })
    ///         .await
    /// };
    /// assert_eq!(rest(30).await, Ok(2));
    /// // A day is more than the five minutes that the policy allows.
    /// let reason = Refused::WaitTooLong { wait: Duration::from_secs(86_400), ceiling: Duration::from_secs(300) };
    /// assert_eq!(rest(86_400).await, Err(Error::GaveUp { reason, attempts: 1, last: None }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry<E>(&self, after: impl Into<Option<Duration>>) -> Failure<E> {
        Failure::retry(after.into())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number)
            .field("rule", &self.rule())
            .field("key", &self.key)
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}
