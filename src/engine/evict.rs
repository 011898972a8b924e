//! Keys that nobody needs any more.
//!
//! A key's record goes when it has no work, its windows are empty and its hold is over, if a row of "slow down" led to
//! it as long ago again. The sweep looks at each idle
//! key once after that, on a coarse grid so that many keys make one wake-up; the path of a request only reads a flag.

use super::answer::{Evicted, KeyId};
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::sweeps::GRID;
use super::time::Instant;

/// Records that a request looks at in passing.
const IN_PASSING: usize = 2;

impl<W> Scheduler<W> {
    /// A key may have become idle: the sweep will look at it.
    pub(super) fn note_idle(&mut self, now: Instant, index: u32) {
        if self.sweeps.has(index) || self.is_busy(index) {
            return;
        }
        let at = self.free_at(index).max(now);
        self.sweeps.push(at, index);
    }

    /// Whether a key has requests.
    pub(super) fn is_busy(&self, index: u32) -> bool {
        let first = self.keys[index].queues;
        let mut queue = first;
        while queue != NIL {
            let Queue { requests, sibling, .. } = self.queues[queue];
            if requests > 0 {
                return true;
            }
            queue = if sibling == first { NIL } else { sibling };
        }
        false
    }

    /// Evicts in passing, for owners whose timer does not run.
    pub(super) fn sweep_some(&mut self, now: Instant) {
        if self.sweeps.peek().is_some_and(|(at, _)| at <= now) {
            self.sweep(now, IN_PASSING);
        }
    }

    /// Looks at idle keys whose time has come. Returns false if there are more.
    pub(super) fn sweep(&mut self, now: Instant, at_most: usize) -> bool {
        for _ in 0..at_most {
            let Some((index, is_noted)) = self.sweeps.pop_due(now) else { return true };
            // Otherwise it was dissolved into another key meanwhile.
            if !is_noted || self.is_busy(index) {
                continue;
            }
            let id = KeyId { index, generation: self.keys.generation(index) };
            if self.free_at(index) > now {
                self.note_idle(now, index);
            } else if self.is_owed_to_store(id) {
                // Once it is told, nobody comes by.
                self.note_idle(now.saturating_add(GRID), index);
            } else {
                self.evict(id);
            }
        }
        self.sweeps.peek().is_none_or(|(at, _)| at > now)
    }

    /// When nothing is left of an idle key.
    fn free_at(&self, index: u32) -> Instant {
        let key = &self.keys[index];
        let rows = self.rows_last(KeyId { index, generation: self.keys.generation(index) });
        let mut latest =
            key.extras.hold().max(key.limits.free_at(&self.plan.key_limits, &self.days).unwrap_or(Instant::NEVER));
        let first = key.queues;
        let mut queue = first;
        while queue != NIL {
            let record = &self.queues[queue];
            let own = Queue::own(&record.extras, &self.plan.rules[usize::from(record.rule)]);
            let own = record.limits.free_at(own, &self.days);
            let learnt = record.extras.numbers().map_or(Instant::ZERO, |own| own.learnt_until());
            latest = latest.max(record.extras.hold()).max(learnt).max(own.unwrap_or(Instant::NEVER));
            queue = if record.sibling == first { NIL } else { record.sibling };
        }
        latest.max(rows).max(self.seat_free_at(index).unwrap_or(Instant::NEVER))
    }

    fn evict(&mut self, id: KeyId) {
        let record = self.keys.remove(id.index);
        self.streaks.forget(id);
        self.forget_in_store(id);
        let first = record.queues;
        let mut queue = first;
        while queue != NIL {
            self.wait_no_more(queue);
            let removed = self.queues.remove(queue);
            queue = if removed.sibling == first { NIL } else { removed.sibling };
        }
        self.evicted.push(Evicted { tag: record.tag, id });
    }
}
