//! The short way out of the line: of a plain request that others of its queue stand beside, so that hardly anything is
//! different without it.
//!
//! Many may leave at once, each from a place in memory that nobody looked at for long. What takes a few hundred instructions
//! lets the processor fetch the records of the next one meanwhile. Whatever else there is goes the long way, which comes
//! to the same.

use super::answer::RequestId;
use super::list::Links;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Drops a request out of the line as [`withdraw`](Self::withdraw) does, if nothing hangs on it but itself: nobody
    /// starts, waits for less long or is looked at because of it. Else it changes nothing and returns false.
    pub(super) fn leave_quickly(&mut self, now: Instant, id: RequestId) -> bool {
        let now = self.tick_quietly(now);
        if !self.settled || self.pool.is_some() || !self.door.is_empty() || self.is_to_wake(now) {
            return false;
        }
        let Self { plan, requests, queues, rules, lanes, .. } = self;
        let Some(request) = requests.get(id.index, id.generation) else { return false };
        if !matches!(request.stage(), Stage::Queued { .. }) || !request.is_plain() {
            return false;
        }
        // The record itself decides, where it can: the others are far away, and are only written to.
        let Links { prev, next } = request.links;
        if prev == NIL && (next == NIL || !request.waits_like(&requests[next])) {
            return false;
        }
        let queue = &mut queues[request.queue];
        let position = usize::from(queue.rule);
        queue.unqueue(requests, id.index);
        queue.in_line -= 1;
        queue.requests -= 1;
        rules[position].in_line -= 1;
        lanes[plan.rules[position].lane].left();
        requests.discard(id.index);
        true
    }
}
