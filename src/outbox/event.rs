//! What an outbox tells whoever wants to hear it.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::record::{Buried, MessageId, Record};
use super::store::StoreError;
use crate::key::Key;

/// How many events a receiver may be behind.
const KEPT: usize = 256;

/// What an outbox tells of its own accord.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutboxEvent {
    /// A message is tried no more: it is among the dead.
    Died {
        /// Which.
        id: MessageId,
        /// Its rule.
        rule: Arc<str>,
        /// Its key.
        key: Key,
        /// Why.
        reason: String,
    },
    /// A message is lost: there was no room for it among the dead.
    Lost {
        /// Which.
        id: MessageId,
        /// Its rule.
        rule: Arc<str>,
        /// Its key.
        key: Key,
        /// Why it was to be among them.
        reason: String,
    },
    /// A message is tried no more and stays in line until there is room among the dead.
    Blocked {
        /// Which.
        id: MessageId,
        /// Its rule.
        rule: Arc<str>,
        /// Its key.
        key: Key,
        /// Why.
        reason: String,
    },
    /// The store failed. What is to be written is written again every second until it works.
    StoreFailed {
        /// How.
        error: StoreError,
    },
    /// The receiver was too slow: so many events are lost to it.
    Missed {
        /// How many.
        events: u64,
    },
}

/// Receives what an outbox tells, from [`Outbox::events`](super::Outbox::events) on.
///
/// The outbox never waits for a receiver: one that is more than 256 events behind loses the oldest and gets
/// [`OutboxEvent::Missed`] in their place.
#[derive(Debug)]
pub struct OutboxEvents {
    receiver: broadcast::Receiver<OutboxEvent>,
}

impl OutboxEvents {
    /// The next event; `None` once the outbox is gone and everything was received.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, it loses nothing.
    pub async fn next(&mut self) -> Option<OutboxEvent> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(events)) => Some(OutboxEvent::Missed { events }),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next event if it is there already.
    pub fn try_next(&mut self) -> Option<OutboxEvent> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(events)) => Some(OutboxEvent::Missed { events }),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Where events go.
#[derive(Clone, Debug)]
pub(super) struct Announcer {
    sender: broadcast::Sender<OutboxEvent>,
}

impl Announcer {
    pub(super) fn new() -> Self {
        Self { sender: broadcast::Sender::new(KEPT) }
    }

    pub(super) fn subscribe(&self) -> OutboxEvents {
        OutboxEvents { receiver: self.sender.subscribe() }
    }

    pub(super) fn tell(&self, event: OutboxEvent) {
        match &event {
            OutboxEvent::Died { id, rule, key, reason } => {
                tracing::warn!(target: TARGET, %id, %rule, %key, %reason, "message died");
            }
            OutboxEvent::Lost { id, rule, key, reason } => {
                tracing::error!(target: TARGET, %id, %rule, %key, %reason, "message lost");
            }
            OutboxEvent::Blocked { id, rule, key, reason } => {
                tracing::warn!(target: TARGET, %id, %rule, %key, %reason, "message blocked");
            }
            OutboxEvent::StoreFailed { error } => tracing::error!(target: TARGET, %error, "outbox failed"),
            OutboxEvent::Missed { .. } => {}
        }
        // Nobody listens: nothing is lost.
        let _ = self.sender.send(event);
    }
}

const TARGET: &str = "request_balancer::outbox";

impl OutboxEvent {
    pub(super) fn died(buried: &Buried) -> Self {
        let Record { id, rule, key, .. } = &buried.record;
        Self::Died { id: *id, rule: Arc::clone(rule), key: key.clone(), reason: buried.reason.clone() }
    }

    pub(super) fn lost(buried: &Buried) -> Self {
        let Record { id, rule, key, .. } = &buried.record;
        Self::Lost { id: *id, rule: Arc::clone(rule), key: key.clone(), reason: buried.reason.clone() }
    }

    pub(super) fn blocked(buried: &Buried) -> Self {
        let Record { id, rule, key, .. } = &buried.record;
        Self::Blocked { id: *id, rule: Arc::clone(rule), key: key.clone(), reason: buried.reason.clone() }
    }
}
