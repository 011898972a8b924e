//! Taking back what is granted and not taken up: what keeps the next ones from starting keeps these from it, too.

use super::answer::{KeyId, Target, Why};
use super::queue::Queue;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Takes back the grants of a target that has a record, and puts their requests back in their places.
    ///
    /// Returns whether there were any: then others may have room, which a turn finds out.
    pub(super) fn revoke_of(&mut self, now: Instant, target: Target) -> bool {
        match target {
            Target::Request => false,
            Target::Overall => self.revoke_where(now, |_| true),
            // A grant may go to another endpoint: all are granted anew.
            Target::Endpoint(_) => self.revoke_where(now, |_| true) | self.review_homes(),
            Target::Rule(rule) => self.revoke_where(now, |queue| queue.rule == rule.0),
            Target::Key(KeyId { index, .. }) => self.revoke_of_key(now, index, |_| true),
            Target::Queue(rule, KeyId { index, .. }) => self.revoke_of_key(now, index, |queue| queue.rule == rule.0),
        }
    }

    /// Takes back all grants of the queues that are meant.
    pub(super) fn revoke_where(&mut self, now: Instant, is_meant: impl Fn(&Queue) -> bool) -> bool {
        let mut granted = Vec::new();
        // Only the first grant of a queue has a lease, and each of them has one.
        for &(lease, id) in &self.leases {
            if self.holds_lease(lease, id) && is_meant(&self.queues[self.requests[id.index].queue]) {
                self.list_grants(self.requests[id.index].queue, &mut granted);
            }
        }
        self.take_back(now, granted)
    }

    /// The same for the queues of a key.
    pub(super) fn revoke_of_key(&mut self, now: Instant, key: u32, is_meant: impl Fn(&Queue) -> bool) -> bool {
        let mut granted = Vec::new();
        let first = self.keys[key].queues;
        let mut queue = first;
        while queue != NIL {
            if is_meant(&self.queues[queue]) {
                self.list_grants(queue, &mut granted);
            }
            let next = self.queues[queue].sibling;
            queue = if next == first { NIL } else { next };
        }
        self.take_back(now, granted)
    }

    fn list_grants(&self, queue: u32, granted: &mut Vec<u32>) {
        granted.extend(self.queues[queue].granted.iter(&self.requests));
    }

    fn take_back(&mut self, now: Instant, granted: Vec<u32>) -> bool {
        let any = !granted.is_empty();
        // The last one first, so that none becomes the first one and gets a lease.
        for index in granted.into_iter().rev() {
            if !matches!(self.requests[index].stage(), Stage::Granted { .. }) {
                continue;
            }
            self.return_to_line(now, index);
        }
        any
    }

    /// Takes back a grant; its request goes to its place in line, or is refused if it has nothing to wait for there.
    pub(super) fn return_to_line(&mut self, now: Instant, index: u32) {
        self.give_back(now, self.requests[index].queue, index);
        // A grant outlives its deadline, which nothing waits for any more.
        if self.requests[index].deadline() <= now {
            self.refuse(now, index, Why::MaxWait);
        } else if !self.refuse_if_stranded(now, index) {
            self.requeue(index, Instant::ZERO);
        }
    }
}
