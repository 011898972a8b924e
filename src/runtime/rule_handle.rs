//! The handle of one rule.

use std::sync::Arc;

use super::attempt::Attempt;
use super::explain::Explanation;
use super::request::Request;
use super::run::{Plain, Run, Told, Unclassified};
use super::shared::Shared;
use crate::engine::RuleId;
#[cfg(feature = "outbox")]
use crate::engine::{Explained, Instant};
use crate::error::{Classify, NextStart, Outcome};
use crate::key::Key;

/// A handle of one rule of a balancer: the same calls without a rule's name.
#[derive(Clone, Debug)]
pub struct RuleHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) rule: RuleId,
}

impl RuleHandle {
    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.shared.rule_name(self.rule)
    }

    /// As [`Balancer::run`](crate::Balancer::run).
    #[inline(always)]
    pub fn run<F, Fut, T, E>(&self, key: impl Into<Key>, f: F) -> Run<'_, F, Fut, E, Told<Unclassified>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Outcome<T, E>>,
    {
        self.request(key).run(f)
    }

    /// As [`Balancer::call`](crate::Balancer::call).
    #[inline(always)]
    pub fn call<F, Fut, T, E>(&self, key: impl Into<Key>, f: F) -> Run<'_, F, Fut, E, Plain<Unclassified>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Classify,
    {
        self.request(key).call(f)
    }

    /// As [`Balancer::request`](crate::Balancer::request).
    #[inline(always)]
    pub fn request(&self, key: impl Into<Key>) -> Request<'_> {
        Request::new(&self.shared, Ok(self.rule), key.into())
    }

    /// Starts nothing of the rule until it is [resumed](Self::resume). What runs goes on.
    pub fn pause(&self) {
        self.shared.with(|state, now| state.machine.pause(now, self.rule));
    }

    /// Ends the rule's pause.
    pub fn resume(&self) {
        self.shared.with(|state, now| state.machine.resume(now, self.rule));
    }

    /// As [`Balancer::explain`](crate::Balancer::explain).
    #[must_use]
    pub fn explain(&self, key: impl Into<Key>) -> Explanation {
        self.shared.explain(self.rule, key.into())
    }

    /// What is in the way of a new request, and as of when; not who is before it.
    #[cfg(feature = "outbox")]
    pub(crate) fn obstacles(&self, key: &Key) -> (Explained, Instant) {
        self.shared.obstacles(self.rule, key)
    }

    /// As [`Balancer::next_start`](crate::Balancer::next_start).
    #[must_use]
    pub fn next_start(&self, key: impl Into<Key>) -> NextStart {
        self.shared.ask_about(&key.into(), |state, now, record| {
            NextStart::since(now, state.machine.next_start(now, self.rule, record))
        })
    }
}
