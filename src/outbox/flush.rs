//! A flush: until everything that was due when it was asked for is sent, dead, or told to wait.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use super::letter::End;
use super::record::Queue;

/// Somebody waits for what is due to be gone.
pub(super) struct Flush {
    reply: Option<oneshot::Sender<u64>>,
    /// Places from here on were not there yet; `None`: what is due is still entering the line.
    bound: Option<u64>,
    /// Queues with messages that are on their way.
    busy: BTreeSet<Queue>,
    sent: u64,
}

impl Flush {
    pub(super) const fn new(reply: oneshot::Sender<u64>) -> Self {
        Self { reply: Some(reply), bound: None, busy: BTreeSet::new(), sent: 0 }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.bound.is_some()
    }

    pub(super) fn begin<'a>(&mut self, bound: u64, queues: impl Iterator<Item = &'a Queue>) {
        self.bound = Some(bound);
        self.busy = queues.cloned().collect();
    }

    /// A queue that was there all the time is found only now.
    pub(super) fn add(&mut self, queue: &Queue) {
        if self.has_begun() {
            self.busy.insert(queue.clone());
        }
    }

    pub(super) fn count(&mut self, place: u64, end: End) {
        if end == End::Sent && self.bound.is_none_or(|bound| place < bound) {
            self.sent += 1;
        }
    }

    /// Answers if no queue is busy any more. `searching`: there may be others. Returns whether it is over.
    pub(super) fn check(&mut self, is_busy: impl Fn(&Queue, u64) -> bool, searching: bool) -> bool {
        let Some(bound) = self.bound else { return false };
        // One that is busy is enough: the others are looked at when it is not.
        while let Some(queue) = self.busy.first() {
            if is_busy(queue, bound) {
                return false;
            }
            self.busy.pop_first();
        }
        !searching && self.give_up()
    }

    pub(super) fn give_up(&mut self) -> bool {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have gone away.
            let _ = reply.send(self.sent);
        }
        true
    }
}
