//! Lanes and the rings of ready queues in them.
//!
//! One ring per rule. Every insertion takes a ticket from the lane's counter and the lane serves the smallest head
//! ticket among its open rules: one round robin over all queues of the lane while nothing binds, and a closed rule is
//! passed over in one step, whatever stands in its ring. Inside a ring it is deficit round robin (Shreedhar & Varghese,
//! "Efficient Fair Queuing Using Deficit Round-Robin", 1995) with tail insertion: idleness earns nothing.
//!
//! A turn is worth weight × C, the largest cost that waited in the lane, so that each turn starts something. What a queue
//! saves for its next turn is less than its own largest cost c. So while two queues are ready, what they get per weight
//! differs by at most C + (c − 1)/w + (c' − 1)/w': by 1 where every request costs 1.

use super::list::Links;
use super::plan::{LanePlan, Plan};
use super::queue::{Credit, Queue, QueueState};
use super::slab::{NIL, Slab};

/// All queues of one priority.
#[derive(Debug)]
pub(super) struct Lane {
    /// Positions of its rules.
    pub(super) rules: Box<[usize]>,
    /// Grants that may go past it while it is ready.
    allowance: Option<u32>,
    /// Grants that went past it while it was ready, since it was last served.
    pub(super) bypassed: u32,
    /// Rings that are not empty.
    pub(super) ready: usize,
    pub(super) in_line: usize,
    /// The largest cost that waited since the lane was last empty.
    largest_cost: u32,
    back: i64,
    front: i64,
}

/// The ready queues of one rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Queues in it to which their key's next room is owed.
    pub(super) owed: u32,
}

impl Lane {
    pub(super) fn all(plan: &Plan) -> Box<[Self]> {
        let new = |(position, lane): (usize, &LanePlan)| Self {
            rules: (0..plan.rules.len()).filter(|&rule| plan.rules[rule].lane == position).collect(),
            // A lane that may not be passed at all would never let another be served.
            allowance: lane.bypass.map(|bypass| bypass.max(1)),
            bypassed: 0,
            ready: 0,
            in_line: 0,
            largest_cost: 1,
            back: 0,
            front: 0,
        };
        plan.lanes.iter().enumerate().map(new).collect()
    }

    /// By how many grants it is overdue; `None` if it is not.
    pub(super) fn overdue(&self) -> Option<u32> {
        let allowance = self.allowance?;
        (self.ready > 0 && self.bypassed >= allowance).then(|| self.bypassed - allowance)
    }

    /// How many starts of a more urgent sibling a queue of this lane lets pass before the key's next room is owed to it.
    pub(super) const fn patience(&self) -> Option<u32> {
        self.allowance
    }

    /// A request of this cost joined the line.
    pub(super) fn joined(&mut self, cost: u32) {
        self.in_line += 1;
        self.largest_cost = self.largest_cost.max(cost);
    }

    /// A request left the line.
    pub(super) fn left(&mut self) {
        self.in_line -= 1;
        if self.in_line == 0 {
            self.bypassed = 0;
            self.largest_cost = 1;
        }
    }

    /// What a queue of this weight may start per turn; beyond four thousand million weights do not count in full.
    pub(super) fn quantum(&self, weight: u32) -> u32 {
        weight.max(1).saturating_mul(self.largest_cost)
    }

    /// What a queue of this weight may start if its turn is now and its first request takes `cost` of it.
    pub(super) fn worth(&self, credit: Credit, weight: u32, cost: u32) -> u32 {
        match credit {
            // One that came meanwhile and is costlier than all by then starts in this turn all the same: the turn is worth
            // what one is that begins now, and what was saved for it is part of that. This is more than the turn was worth,
            // and no more than those get that take their place from now on.
            Credit::Due(worth) if worth < cost => worth.max(self.quantum(weight)),
            Credit::Due(worth) | Credit::Left(worth) => worth,
        }
    }

    /// Puts a queue last in its ring and in its lane, with what its turn is worth.
    pub(super) fn push_back(&mut self, ring: &mut Ring, queues: &mut Slab<Queue>, id: u32, worth: u32) {
        self.back += 1;
        let prev = ring.tail;
        self.ready += usize::from(prev == NIL);
        let queue = &mut queues[id];
        queue.set_state(QueueState::Ready);
        queue.ticket = self.back;
        queue.set_credit(Credit::Due(worth));
        queue.ring = Links { prev, next: NIL };
        ring.owed += u32::from(queue.owed);
        if prev == NIL {
            ring.head = id
        } else {
            queues[prev].ring.next = id
        }
        ring.tail = id;
    }

    /// Puts a queue first in its ring and in its lane.
    pub(super) fn push_front(&mut self, ring: &mut Ring, queues: &mut Slab<Queue>, id: u32, credit: Credit) {
        self.front -= 1;
        let next = ring.head;
        self.ready += usize::from(next == NIL);
        let queue = &mut queues[id];
        queue.set_state(QueueState::Ready);
        queue.ticket = self.front;
        queue.set_credit(credit);
        queue.ring = Links { prev: NIL, next };
        ring.owed += u32::from(queue.owed);
        if next == NIL {
            ring.tail = id
        } else {
            queues[next].ring.prev = id
        }
        ring.head = id;
    }

    /// Puts a queue that kept its ticket where that belongs. It was first in the lane when it left: only those that were
    /// put in front since are before it.
    pub(super) fn push_back_in(&mut self, ring: &mut Ring, queues: &mut Slab<Queue>, id: u32) {
        let ticket = queues[id].ticket;
        let (mut prev, mut next) = (NIL, ring.head);
        while next != NIL && queues[next].ticket < ticket {
            (prev, next) = (next, queues[next].ring.next);
        }
        self.ready += usize::from(ring.head == NIL);
        let queue = &mut queues[id];
        queue.set_state(QueueState::Ready);
        queue.ring = Links { prev, next };
        ring.owed += u32::from(queue.owed);
        if prev == NIL {
            ring.head = id
        } else {
            queues[prev].ring.next = id
        }
        if next == NIL { ring.tail = id } else { queues[next].ring.prev = id }
    }

    /// Takes a queue out of its ring; the caller says where it stands now.
    pub(super) fn unlink(&mut self, ring: &mut Ring, queues: &mut Slab<Queue>, id: u32) {
        let Links { prev, next } = std::mem::replace(&mut queues[id].ring, Links::NONE);
        ring.owed -= u32::from(queues[id].owed);
        if prev == NIL {
            ring.head = next
        } else {
            queues[prev].ring.next = next
        }
        if next == NIL {
            ring.tail = prev
        } else {
            queues[next].ring.prev = prev
        }
        self.ready -= usize::from(ring.head == NIL);
    }
}

impl Ring {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL, owed: 0 };
}
