//! One run of a request's closure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::engine::{Nanos, RequestId, RuleId};
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
    pub(super) waited: Nanos,
    pub(super) endpoint: Option<Endpoint>,
}

/// The endpoint of an attempt; in a typed [`Pool`](crate::Pool) with its value.
#[derive(Debug)]
pub struct Endpoint<T = ()> {
    name: Arc<str>,
    value: Arc<T>,
}

impl Endpoint {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, value: Arc::new(()) }
    }
}

impl<T> Endpoint<T> {
    pub(super) const fn with(name: Arc<str>, value: Arc<T>) -> Self {
        Self { name, value }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is to the program: a client, a token, a base URL.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The same, to keep.
    #[must_use]
    pub fn shared(&self) -> Arc<T> {
        Arc::clone(&self.value)
    }
}

impl<T> Clone for Endpoint<T> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), value: Arc::clone(&self.value) }
    }
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

    /// The key that its own one is an alias of, or that itself.
    #[cfg(feature = "testing")]
    pub(crate) fn stands_for(&self) -> Key {
        self.shared.aliases.resolve(&self.key).into_owned()
    }

    /// The endpoint that the attempt is to use; `None` if there is no pool.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// How long the request has stood in line so far, over all its attempts.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.get())
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

    /// Takes in what the response says of the server's own counters, before anything else starts.
    ///
    /// It only ever narrows: until its reset, each window of the server's lets no more start than it has left, less what
    /// is under way and what ended without a word about it. No reset is believed beyond an hour or the limit's own period,
    /// whichever is longer: after that one request tries again, and the others wait for what it is told, for up to 31 days.
    /// Nor is one waited for longer than it was told: of a server that rounds down, the last second is asked for too early.
    /// A window that
    /// does not tell its reset counts for its length, or for the limit's. Which limit it narrows says
    /// [`Rule::observe`](crate::Rule::observe); one that counts what no limit does, such as tokens, narrows one of requests
    /// while nothing is left of it. A refusal is not taken for one: [`check`](Self::check) does both. Once the attempt has
    /// ended it changes nothing. It never fails.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, SystemTime};
    /// use request_balancer::headers::{self, Dialect};
    /// use request_balancer::{Balancer, Failure, NextStart, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nread = '10/60s'".parse::<Rules>()?);
    /// let fields = [("RateLimit-Remaining", "0"), ("RateLimit-Reset", "30")];
    /// balancer
    ///     .run("read", 42, async |attempt| {
    ///         attempt.observe(&headers::read(200, fields, None, SystemTime::now(), Dialect::auto()));
    ///         Ok::<_, Failure<()>>(())
    ///     })
    ///     .await
    ///     .unwrap();
    /// assert_eq!(balancer.next_start("read", 42)?, NextStart::After(Duration::from_secs(30)));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "headers")]
    pub fn observe(&self, observation: &crate::headers::Observation) {
        self.shared.observe(self.id, observation);
    }

    /// Reads a response in the dialect of the attempt's rule and [takes in](Self::observe) what it says of the server's
    /// counters. A refusal because of too many is a failure that puts the request back in line, for as long as the server
    /// says and with the scope that it names held; a wait that goes with another error is, too.
    ///
    /// Anything else is `Ok`, other errors included, and a refusal that the server says no wait will help against. A wait
    /// that goes with what was asked for, as a dialect may know it, holds the scope and no more than that.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Failure, Rules};
    /// use tokio::time::Instant;
    ///
    /// let balancer = Balancer::new("[rules]\nread = '10/60s'".parse::<Rules>()?);
    /// let began = Instant::now();
    /// let answer = balancer
    ///     .run("read", 42, async |attempt| {
    ///         if attempt.number() == 1 {
    ///             attempt.check(429, [("Retry-After", "30")], None)?;
    ///         }
    ///         attempt.check(200, [("RateLimit-Remaining", "9")], None)?;
    ///         Ok::<_, Failure<()>>("answer")
    ///     })
    ///     .await;
    /// assert_eq!((answer, began.elapsed()), (Ok("answer"), Duration::from_secs(30)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The failure that the attempt is to return.
    #[cfg(feature = "headers")]
    pub fn check<'h, N, V, E>(
        &self,
        status: u16,
        fields: impl IntoIterator<Item = (&'h N, &'h V)>,
        body: Option<&[u8]>,
    ) -> Result<(), Failure<E>>
    where
        N: AsRef<[u8]> + ?Sized + 'h,
        V: AsRef<[u8]> + ?Sized + 'h,
    {
        self.shared.check(self.id, (self.rule, &self.key), status, fields, body)
    }

    /// The same for what was read of a response before, with its status.
    ///
    /// # Errors
    ///
    /// The failure that the attempt is to return.
    #[cfg(feature = "headers")]
    pub fn check_observation<E>(
        &self,
        status: u16,
        observation: &crate::headers::Observation,
    ) -> Result<(), Failure<E>> {
        self.shared.check_observation(self.id, (self.rule, &self.key), status, observation)
    }

    /// The same for a response of the `http` crate, whose body is not touched.
    ///
    /// # Errors
    ///
    /// The failure that the attempt is to return.
    #[cfg(feature = "http")]
    pub fn check_response<B, E>(&self, response: &http::Response<B>) -> Result<(), Failure<E>> {
        self.check(response.status().as_u16(), response.headers(), None)
    }

    /// The failure that puts the request back in line, with nothing of its scope starting before `after` is over.
    ///
    /// `None`: the server did not say how long; the policy's `bare_wait` is used, doubled each time, and the attempt
    /// counts as failed. With a number the policy's `waits`, `ceiling` and `total_wait` apply instead. The scope is the
    /// policy's (by default the endpoint, and without a pool the key) unless [`Failure::hold`] names another.
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
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
