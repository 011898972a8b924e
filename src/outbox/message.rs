//! What a handler gets to deliver.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::clock::wall;
use super::record::{MessageId, Record};
use crate::error::Failure;
use crate::key::Key;
use crate::runtime::Attempt;

/// A message that is to be delivered now, and which attempt that is.
pub struct Message<M> {
    pub(super) body: M,
    pub(super) envelope: Envelope,
}

/// What there is to know of a message beside what it says.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) record: Arc<Record>,
    pub(super) attempt: Attempt,
    pub(super) maybe_delivered: bool,
    pub(super) birth: u64,
}

impl<M> Message<M> {
    /// What was put.
    #[must_use]
    pub const fn body(&self) -> &M {
        &self.body
    }

    /// What was put, to keep.
    #[must_use]
    pub fn into_body(self) -> M {
        self.body
    }

    /// Its name: the same at each attempt and after each restart.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.envelope.record.id
    }

    /// A text that no other message of this or any other outbox has, the same at each attempt: for servers that recognise by
    /// it what they did already.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{:016x}-{}", self.envelope.birth, self.id())
    }

    /// Whether an earlier attempt may have had its effect: the program was killed while it ran, it ran for too long, it
    /// panicked, or it failed and [nobody knows](Failure::ambiguous).
    #[must_use]
    pub const fn maybe_delivered(&self) -> bool {
        self.envelope.maybe_delivered
    }

    /// When it was put, by the clock on the wall.
    #[must_use]
    pub fn put_at(&self) -> SystemTime {
        wall(self.envelope.record.put_at)
    }

    /// Which attempt this is, from 1, over all runs of the program.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.envelope.attempt.number()
    }

    /// Its rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.envelope.record.rule
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.envelope.record.key
    }

    /// The attempt: its endpoint, what its responses say.
    #[must_use]
    pub const fn attempt(&self) -> &Attempt {
        &self.envelope.attempt
    }

    /// The failure that puts the message back in line, as [`Attempt::retry`]. However long the wait is, the message stays.
    pub fn retry<E>(&self, after: impl Into<Option<Duration>>) -> Failure<E> {
        self.envelope.attempt.retry(after)
    }
}

impl<M: fmt::Debug> fmt::Debug for Message<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("body", &self.body)
            .field("number", &self.number())
            .field("maybe_delivered", &self.maybe_delivered())
            .finish_non_exhaustive()
    }
}
