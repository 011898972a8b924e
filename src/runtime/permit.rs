//! A start for code that can't be a closure.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::place::Place;
use super::shared::Shared;
use crate::engine::{FailureKind, Nanos};
use crate::error::Refused;
use crate::key::Key;

/// A start that was granted and taken up: make the call, then drop the permit.
///
/// Its drop ends the attempt and gives back its concurrency slots. Closing the balancer can't end a permit: it stays
/// [open](crate::Ended::open) until it is dropped.
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

    /// The server took the call for an invalid one: counted against the rules' `ban_guard` when the attempt ends. As
    /// [`Failure::invalid`](crate::Failure::invalid).
    pub const fn invalid(&mut self) {
        self.place.set_invalid();
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
