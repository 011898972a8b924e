//! A start for code that can't be a closure.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::attempt::Endpoint;
use super::place::Place;
use super::shared::Shared;
#[cfg(feature = "reqwest")]
use crate::engine::{Decision, Spent};
use crate::engine::{FailureKind, Nanos};
use crate::error::{Cause, EndpointFate, Failure, Refused};
use crate::key::Key;

/// A start that was granted and taken up: make the call, then drop the permit.
///
/// Its drop ends the attempt and gives back its concurrency slots. Whether the call succeeded it does not say: if the
/// server told others of the key to slow down without a number, only [`succeed`](Self::succeed) ends that row of longer
/// and longer waits. Nothing else ends a permit, as no future stands behind it that could be dropped: no `attempt_timeout` goes for it, and if the
/// balancer is closed, it stays [open](crate::Ended::open) until it is dropped.
#[must_use = "dropping a permit ends the attempt"]
#[derive(Debug)]
pub struct Permit {
    place: Place<Arc<Shared>>,
}

impl Permit {
    /// Which attempt of the request this is, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.place.starts()
    }

    /// The name of the request's rule.
    #[must_use]
    pub fn rule(&self) -> Arc<str> {
        self.place.rule_name()
    }

    /// The request's key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        self.place.key()
    }

    /// The endpoint that the call is to use; `None` if there is no pool.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.place.endpoint()
    }

    /// How long the request has stood in line so far, over all its attempts.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.place.waited()
    }

    /// The call cost `actual` in this unit, not what was asked for. As [`Attempt::settle`](crate::Attempt::settle).
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownUnit`] with the nearest name.
    pub fn settle(&self, unit: &str, actual: u32) -> Result<(), Refused> {
        self.place.settle(unit, actual)
    }

    /// Takes in what the response says of the server's own counters. As [`Attempt::observe`](crate::Attempt::observe).
    #[cfg(feature = "headers")]
    pub fn observe(&self, observation: &crate::headers::Observation) {
        self.place.shared().observe(self.place.running(), observation);
    }

    /// Takes in what a response says, and makes a failure of a refusal: for [`fail`](Self::fail). As
    /// [`Attempt::check`](crate::Attempt::check).
    ///
    /// # Errors
    ///
    /// The failure.
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
        self.place.shared().check(self.place.running(), self.whose(), status, fields, body)
    }

    /// The same for what was read of a response before, with its status.
    ///
    /// # Errors
    ///
    /// The failure.
    #[cfg(feature = "headers")]
    pub fn check_observation<E>(
        &self,
        status: u16,
        observation: &crate::headers::Observation,
    ) -> Result<(), Failure<E>> {
        self.place.shared().check_observation(self.place.running(), self.whose(), status, observation)
    }

    #[cfg(feature = "headers")]
    const fn whose(&self) -> (crate::engine::RuleId, &Key) {
        (self.place.rule(), self.place.key())
    }

    /// Whether the dialect of its rule looks into bodies of responses with this status.
    #[cfg(feature = "reqwest")]
    pub(crate) fn reads_body(&self, status: u16) -> bool {
        self.place.shared().live.load().dialect(self.place.rule()).reads_body(status)
    }

    /// Whether the rule's retry policy lets a first attempt that fails so be followed by another one.
    #[cfg(feature = "reqwest")]
    pub(crate) fn would_be_followed<E>(&self, failure: &Failure<E>) -> bool {
        let kind = match &failure.cause {
            Cause::Unsaid(_) | Cause::Permanent(_) => return false,
            Cause::Transient(_) => FailureKind::Transient,
            Cause::Ambiguous(_) => FailureKind::Ambiguous,
            Cause::Retry { after, last: _ } => FailureKind::Retry { after: after.map(Nanos::from) },
        };
        let live = self.place.shared().live.load();
        match live.rule(self.place.rule()).retry.decide(&mut Spent::default(), kind, false, 0) {
            Decision::GiveUp { .. } => false,
            Decision::BackOff(_) | Decision::Retry { .. } => true,
        }
    }

    /// The server took the call for an invalid one: counted against the rules' `ban_guard` when the attempt ends. As
    /// [`Failure::invalid`](crate::Failure::invalid).
    pub const fn invalid(&mut self) {
        self.place.set_invalid();
    }

    /// The call succeeded: ends the attempt, and with it the row of answers "slow down" without a number, if there was one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// balancer.request("send", 42).acquire().await?.succeed();
    /// assert_eq!(balancer.snapshot().in_flight, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn succeed(mut self) {
        self.place.succeed();
    }

    /// The call failed: what follows is what the retry policy makes of that, as for an attempt that returns the failure.
    /// Puts the same request back in line and waits for its next start.
    ///
    /// A permanent failure, and an error that came by `?`, end the attempt with [`Refused::RetryNotAllowed`].
    ///
    /// # Errors
    ///
    /// [`Refused`] if no further attempt follows, if `max_wait` is over, or if the balancer was closed.
    ///
    /// # Cancel safety
    ///
    /// As [`retry`](Self::retry).
    pub async fn fail<E>(mut self, failure: Failure<E>) -> Result<Self, Refused> {
        let Failure { cause, hold, invalid, endpoint, unreachable: _ } = failure;
        if invalid {
            self.place.set_invalid();
        }
        if endpoint != EndpointFate::Stays && self.place.endpoint().is_some() {
            self.place.turn_away(endpoint)?;
            poll_fn(|context| self.place.poll_start(context)).await?;
            return Ok(self);
        }
        let kind = match cause {
            Cause::Unsaid(_) | Cause::Permanent(_) => {
                self.place.finish("failed");
                return Err(Refused::RetryNotAllowed);
            }
            Cause::Transient(_) => FailureKind::Transient,
            Cause::Ambiguous(_) => FailureKind::Ambiguous,
            Cause::Retry { after, last: _ } => FailureKind::Retry { after: after.map(Nanos::from) },
        };
        self.place.fail(kind, hold)?;
        poll_fn(|context| self.place.poll_start(context)).await?;
        Ok(self)
    }

    /// The server asked to come again later: puts the same request back in line, in its old place, and waits for its
    /// next start. As [`Attempt::retry`](crate::Attempt::retry).
    ///
    /// # Errors
    ///
    /// [`Refused`] if the retry policy allows no further attempt, if `max_wait` is over, or if the balancer was closed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its first poll, it ends the attempt as if the permit were dropped. Dropped later, the hold stays
    /// and the request leaves the line.
    pub async fn retry(mut self, after: impl Into<Option<Duration>>) -> Result<Self, Refused> {
        let after = after.into().map(Nanos::from);
        self.place.fail(FailureKind::Retry { after }, None)?;
        poll_fn(|context| self.place.poll_start(context)).await?;
        Ok(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.place.finish("done");
    }
}

/// The future of [`Request::acquire`](crate::Request::acquire).
///
/// It takes its place in line when it is first polled.
///
/// # Cancel safety
///
/// Dropped before it is ready, it leaves the line without a trace.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Acquire {
    place: Option<Place<Arc<Shared>>>,
}

impl Acquire {
    pub(super) const fn new(place: Place<Arc<Shared>>) -> Self {
        Self { place: Some(place) }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = &mut self.place else { return Poll::Ready(Err(Refused::Aborted)) };
        ready!(place.poll_start(context))?;
        match self.place.take() {
            Some(place) => Poll::Ready(Ok(Permit { place })),
            None => Poll::Ready(Err(Refused::Aborted)),
        }
    }
}
