//! A flush: until everything that was due when it was asked for is sent, dead, or told to wait.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

use super::finding::KNOWN;
use super::letter::End;
use super::record::Queue;

/// Somebody waits for what is due to be gone.
pub(super) struct Flush {
    reply: Option<oneshot::Sender<u64>>,
    /// Places from here on were not there yet; `None`: what is due is still entering the line.
    bound: Option<u64>,
    /// Queues with messages that are on their way.
    busy: BTreeSet<Queue>,
    /// With more of them, those that are busy no more are dropped.
    most: usize,
    /// Of each lane, how many passes through the store are to have ended for all such queues to be known.
    passes: BTreeMap<u32, u64>,
    sent: u64,
}

impl Flush {
    pub(super) fn new(reply: oneshot::Sender<u64>) -> Self {
        Self { reply: Some(reply), bound: None, busy: BTreeSet::new(), most: KNOWN, passes: BTreeMap::new(), sent: 0 }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.bound.is_some()
    }

    pub(super) fn begin<'a>(
        &mut self,
        bound: u64,
        queues: impl Iterator<Item = &'a Queue>,
        passes: BTreeMap<u32, u64>,
    ) {
        self.bound = Some(bound);
        self.busy = queues.cloned().collect();
        self.passes = passes;
    }

    /// A queue is found, whose first message stands there: it may have been there all the time.
    pub(super) fn add(&mut self, queue: &Queue, first: u64) {
        if self.bound.is_some_and(|bound| first < bound) {
            self.busy.insert(queue.clone());
        }
    }

    /// A queue has messages from that place on, and so many passes of its lane are to have ended for it to be found.
    pub(super) fn wait_for(&mut self, lane: u32, passes: u64, place: u64) {
        if self.bound.is_some_and(|bound| place < bound) {
            let needed = self.passes.entry(lane).or_default();
            *needed = passes.max(*needed);
        }
    }

    pub(super) fn count(&mut self, place: u64, end: End) {
        if end == End::Sent && self.bound.is_none_or(|bound| place < bound) {
            self.sent += 1;
        }
    }

    /// Answers if no queue is busy any more, after those passes. Returns whether it is over.
    pub(super) fn check(
        &mut self,
        is_busy: impl Fn(&Queue, u64) -> bool,
        have_passed: impl Fn(&BTreeMap<u32, u64>) -> bool,
    ) -> bool {
        let Some(bound) = self.bound else { return false };
        if self.busy.len() > self.most {
            self.busy.retain(|queue| is_busy(queue, bound));
            self.most = KNOWN.max(2 * self.busy.len());
        }
        // One that is busy is enough: the others are looked at when it is not.
        while let Some(queue) = self.busy.first() {
            if is_busy(queue, bound) {
                return false;
            }
            self.busy.pop_first();
        }
        have_passed(&self.passes) && self.give_up()
    }

    pub(super) fn give_up(&mut self) -> bool {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have gone away.
            let _ = reply.send(self.sent);
        }
        true
    }
}
