//! Costly requests whose turn it was and that wait for an endpoint to have room for all they cost: it is kept for them. Or
//! whoever costs little would take its room bit by bit, for ever.

use super::EndpointId;
use crate::engine::queue::QueueState;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

/// An endpoint that is kept for the first request of a queue: nobody else of its lane gets it, nor of a lane below, and of
/// those above as many as may pass by a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Reservation {
    queue: u32,
    lane: usize,
    pub(super) endpoint: EndpointId,
    /// When there is room, if that is known.
    pub(super) until: Option<Instant>,
    /// Grants on it that went past the queue.
    passed: u32,
}

impl<W> Scheduler<W> {
    /// A queue's first request had its turn and waits for an endpoint, most likely for `nearest`: that is kept for it, unless
    /// one is for somebody else of its lane.
    pub(in crate::engine) fn reserve(&mut self, queue: u32, nearest: Option<EndpointId>, until: Option<Instant>) {
        let Self { plan, pool: Some(pool), requests, queues, .. } = self else { return };
        let record = &queues[queue];
        let is_costly = !requests[record.waiting.head].costs().is_plain();
        let Some(endpoint) = nearest.filter(|_| is_costly) else { return self.unreserve(queue) };
        let lane = plan.rules[usize::from(record.rule)].lane;
        match pool.reserved.iter_mut().find(|kept| kept.lane == lane) {
            Some(kept) if kept.queue == queue => (kept.endpoint, kept.until) = (endpoint, until),
            Some(_) => {}
            None => pool.reserved.push(Reservation { queue, lane, endpoint, until, passed: 0 }),
        }
    }

    /// A queue waits for nothing of the kind any more.
    pub(in crate::engine) fn unreserve(&mut self, queue: u32) {
        let Some(pool) = &mut self.pool else { return };
        let before = pool.reserved.len();
        pool.reserved.retain(|kept| kept.queue != queue);
        if pool.reserved.len() < before {
            self.pool_event();
        }
    }

    /// What is kept for others than this queue.
    pub(super) fn kept_from(&self, queue: u32) -> Vec<Reservation> {
        let reserved = self.pool.as_ref().map_or(&[][..], |pool| &pool.reserved);
        if reserved.is_empty() {
            return Vec::new();
        }
        let lane = self.plan.rules[usize::from(self.queues[queue].rule)].lane;
        let is_overdue = |kept: &Reservation| self.lanes[kept.lane].patience().is_some_and(|most| kept.passed >= most);
        let own = reserved.iter().find(|kept| kept.queue == queue).is_some_and(is_overdue);
        let is_kept = |kept: &&Reservation| {
            // In its ring it is asked itself, or something else stops it.
            let waits = matches!(self.queues[kept.queue].state(), QueueState::Parked { .. } | QueueState::Blocked);
            // Of any two that wait for the same one goes first.
            let is_before = match (is_overdue(kept), own) {
                (true, false) => true,
                (false, true) => false,
                (true, true) | (false, false) => kept.lane <= lane,
            };
            kept.queue != queue && waits && is_before
        };
        reserved.iter().filter(is_kept).copied().collect()
    }

    /// An endpoint was given to somebody, whoever it is kept for.
    pub(super) fn note_passed_at(&mut self, endpoint: EndpointId) {
        let Some(pool) = &mut self.pool else { return };
        for kept in pool.reserved.iter_mut().filter(|kept| kept.endpoint == endpoint) {
            kept.passed = kept.passed.saturating_add(1);
        }
    }
}
