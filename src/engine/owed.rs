//! What is owed among the queues of one key.
//!
//! A queue that is refused only because its siblings used up the key's room would be refused for ever beside one that is
//! always quicker. So each start of a sibling while it waits is counted, and once they are enough, the key's next room is
//! its own: the siblings that draw on the same limits leave it to it, and it goes to the front of its ring.

use std::cmp::Reverse;

use super::gate::{Gate, Refusal, Whose};
use super::limit::{Ask, Spec};
use super::plan::LimitSpec;
use super::queue::{Queue, QueueState};
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// A request of the queue was granted: its waiting siblings that draw on the same limits of the key were passed once
    /// more.
    pub(super) fn note_passed(&mut self, queue: u32) {
        let Self { plan, queues, .. } = self;
        queues[queue].extras.set_passed(0);
        let (mut sibling, rule) = (queues[queue].sibling, queues[queue].rule);
        while sibling != queue {
            let record = &mut queues[sibling];
            if !record.waiting.is_empty() && plan.common_key_limits(record.rule, rule).next().is_some() {
                record.extras.set_passed(record.extras.passed() + 1);
            }
            sibling = record.sibling;
        }
    }

    /// The key's next room is owed to a queue from now on.
    pub(super) fn owe(&mut self, queue: u32) {
        self.queues[queue].owed = true;
    }

    /// The key's next room is no longer that of a queue: it goes to the one that was refused for it and let most pass
    /// beyond its patience, if there is one. All decide anew.
    pub(super) fn clear_owed(&mut self, queue: u32) {
        let Self { queues, rings, .. } = self;
        let record = &mut queues[queue];
        record.owed = false;
        if record.state() == QueueState::Ready {
            rings[usize::from(record.rule)].owed -= 1;
        }
        if let Some(next) = self.next_owed(queue) {
            self.owe(next);
        }
        self.redecide(queue, |state| !matches!(state, QueueState::Ready | QueueState::Idle));
    }

    fn next_owed(&self, queue: u32) -> Option<u32> {
        let mut longest: Option<(u32, Reverse<i64>, u32)> = None;
        let mut sibling = self.queues[queue].sibling;
        while sibling != queue {
            let record = &self.queues[sibling];
            if record.state() == QueueState::Yielding
                && let Some(beyond) = self.patience(sibling).and_then(|need| record.extras.passed().checked_sub(need))
                && longest.is_none_or(|(most, first, _)| (beyond, Reverse(record.ticket)) > (most, first))
                && !self.has_owed_sibling(sibling)
            {
                longest = Some((beyond, Reverse(record.ticket), sibling));
            }
            sibling = record.sibling;
        }
        longest.map(|(.., sibling)| sibling)
    }

    /// Whether room of the key is owed to another queue that draws on the same limits.
    fn has_owed_sibling(&self, queue: u32) -> bool {
        let Queue { rule, mut sibling, .. } = self.queues[queue];
        while sibling != queue {
            let record = &self.queues[sibling];
            if record.owed && self.plan.common_key_limits(record.rule, rule).next().is_some() {
                return true;
            }
            sibling = record.sibling;
        }
        false
    }

    /// Refuses what would take the room that is owed to a sibling, unless that one is kept from using it for longer than
    /// a lease.
    #[inline]
    pub(super) fn leave_what_is_owed(&mut self, now: Instant, id: u32, whose: Whose<'_>) -> Result<(), Refusal> {
        let record = &self.queues[id];
        // Most keys have one queue.
        if record.sibling == id || record.owed {
            return Ok(());
        }
        let answer = self.is_left_what_is_owed(now, id, whose);
        let mut sibling = self.queues[id].sibling;
        while answer.is_err() && sibling != id {
            let record = &self.queues[sibling];
            let (rule, next) = (usize::from(record.rule), record.sibling);
            if record.owed && record.state() == QueueState::Ready {
                let gate = self.gate(now, rule, Whose::First(sibling), false);
                if let Gate::Closed(opens) | Gate::TooCostly(opens) = gate
                    && self.is_beyond_a_lease(now, opens)
                {
                    self.clear_owed(sibling);
                    return self.leave_what_is_owed(now, id, whose);
                }
            }
            sibling = next;
        }
        answer
    }

    fn is_left_what_is_owed(&mut self, now: Instant, id: u32, whose: Whose<'_>) -> Result<(), Refusal> {
        let Self { plan, requests, queues, keys, days, .. } = self;
        let queue = &queues[id];
        let costs = whose.costs(requests, queues);
        let states = keys[queue.key].limits.as_mut_slice();
        let mut both = Ask::Room;
        let mut sibling = queue.sibling;
        while sibling != id {
            let record = &queues[sibling];
            if record.owed {
                let owed = Whose::First(sibling).costs(requests, queues);
                // Parked for something else for longer than a lease, it will not use room that comes sooner.
                let in_vain = |room: Instant| match record.state() {
                    QueueState::Parked { until } => until > room.saturating_add(plan.lease),
                    QueueState::Idle | QueueState::Ready | QueueState::Blocked | QueueState::Yielding => false,
                };
                for limit in plan.common_key_limits(record.rule, queue.rule) {
                    let LimitSpec { kind, charge, .. } = plan.key_limits[limit];
                    let (own, owed) = (costs.of(charge), owed.of(charge));
                    if own == 0 || owed == 0 {
                        continue;
                    }
                    match states[limit].ask(Spec::new(kind, days), now, owed, 0) {
                        Ask::Room if in_vain(now) => continue,
                        Ask::At(at) | Ask::Unclaimed(at) if in_vain(at) => continue,
                        Ask::Room => {}
                        // It waits for this one, and the next room in it is its own.
                        Ask::At(_) | Ask::Unclaimed(_) | Ask::Busy => return Err(Refusal::Owed),
                    }
                    both = both.and(states[limit].ask(Spec::new(kind, days), now, own.saturating_add(owed), 0));
                }
            }
            sibling = record.sibling;
        }
        if both == Ask::Room { Ok(()) } else { Err(Refusal::from(both)) }
    }

    /// Whether siblings draw on every limit of the key that makes a queue wait until `decided`: then they may have used
    /// up its room, and their waiting helps.
    pub(super) fn waits_for_siblings(&mut self, now: Instant, id: u32, decided: Ask) -> bool {
        let Self { plan, requests, queues, keys, days, .. } = self;
        let queue = &queues[id];
        let costs = Whose::First(id).costs(requests, queues);
        let rule = &plan.rules[usize::from(queue.rule)];
        let states = &mut keys[queue.key].limits;
        rule.key.iter().all(|bound| {
            let answer = states.ask_refs(&plan.key_limits, std::slice::from_ref(bound), days, now, costs, queue.owed);
            if answer.and(decided) != answer {
                return true;
            }
            let mut sibling = queue.sibling;
            while sibling != id {
                let record = &queues[sibling];
                let other = &plan.rules[usize::from(record.rule)];
                if other.key.iter().any(|also| also.limit == bound.limit) {
                    return true;
                }
                sibling = record.sibling;
            }
            false
        })
    }

    /// How many starts of its siblings a queue lets pass before the key's next room is owed to it.
    pub(super) fn patience(&self, id: u32) -> Option<u32> {
        let lane_of = |queue: &Queue| self.plan.rules[usize::from(queue.rule)].lane;
        let queue = &self.queues[id];
        let lane = lane_of(queue);
        let mut sibling = queue.sibling;
        while sibling != id {
            let record = &self.queues[sibling];
            if !record.waiting.is_empty()
                && lane_of(record) < lane
                && self.plan.common_key_limits(record.rule, queue.rule).next().is_some()
            {
                return self.lanes[lane].patience();
            }
            sibling = record.sibling;
        }
        Some(1)
    }

    fn is_beyond_a_lease(&self, now: Instant, opens: Option<Instant>) -> bool {
        opens.is_none_or(|at| at > now.saturating_add(self.plan.lease))
    }

    /// Takes the key's room from a queue of a rule that something stops for longer than a lease, if a sibling waits for
    /// nothing but what is owed.
    pub(super) fn forfeit(&mut self, now: Instant, rule: usize, opens: Option<Instant>) -> bool {
        let mut left = self.rings[rule].owed;
        if left == 0 || !self.is_beyond_a_lease(now, opens) {
            return false;
        }
        // Those to whom something is owed went to the front.
        let mut id = self.rings[rule].head;
        while left > 0 && id != NIL {
            if self.queues[id].owed {
                left -= 1;
                if self.is_waited_for(now, id) {
                    self.clear_owed(id);
                    return true;
                }
            }
            id = self.queues[id].ring.next;
        }
        false
    }

    /// Whether a sibling waits for nothing but what is owed to a queue.
    fn is_waited_for(&mut self, now: Instant, id: u32) -> bool {
        let mut sibling = self.queues[id].sibling;
        while sibling != id {
            let record = &self.queues[sibling];
            let (rule, state, next) = (usize::from(record.rule), record.state(), record.sibling);
            let whose = Whose::First(sibling);
            let waits = match state {
                QueueState::Yielding => true,
                QueueState::Parked { .. } => self.check_all_but_owed(now, sibling, whose, false).is_ok(),
                QueueState::Idle | QueueState::Ready | QueueState::Blocked => false,
            };
            if waits && matches!(self.gate(now, rule, whose, false), Gate::Open) {
                return true;
            }
            sibling = next;
        }
        false
    }
}
