//! Records: the queues that requests stand in, the keys that own the queues.

use std::ops::{Deref, DerefMut};

use super::extras::{KeyExtras, QueueExtras};
use super::limit::LimitStates;
use super::list::{Circle, Links, List};
use super::plan::{LimitSpec, Plan, RulePlan};
use super::request::Request;
use super::slab::{Entry, Generation, NIL, Slab};
use super::time::Instant;

/// The queue of one rule and one key: what stays of it while nothing waits. The rest of it is its [`Line`].
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) key: u32,
    pub(super) rule: u16,
    /// The key's next room in its limits is this queue's own.
    pub(super) owed: bool,
    /// Where it stands, without what belongs to that.
    place: Place,
    pub(super) running: u32,
    /// All that belong to it, in line, before it, running, or refused and not told yet.
    pub(super) requests: u32,
    pub(super) next_number: u32,
    /// The key's next queue, in a circle.
    pub(super) sibling: u32,
    pub(super) limits: LimitStates,
    pub(super) extras: QueueExtras,
    line: Option<Box<Line>>,
}

/// The part of a queue that there is only while somebody stands in it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) waiting: List,
    pub(super) granted: Circle,
    /// How many wait.
    pub(super) waits: u32,
    /// How many stand in line: those that are out of the queue for a while and those that are granted, too.
    pub(super) in_line: u32,
    /// Neighbours in its rule's ring. Of a queue that is parked, which stands in no ring: until when.
    pub(super) ring: Links,
    /// Its turn: the lane serves the smallest.
    pub(super) ticket: i64,
    /// Its [`Credit`], with [`BEGUN`] in the highest bit.
    credit: u32,
}

/// Its turn has begun.
const BEGUN: u32 = 1 << 31;

/// Where a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Nothing waits in it.
    Idle,
    /// In its rule's ring.
    Ready,
    /// In the timers.
    Parked { until: Instant },
    /// Until an event of its key re-decides it.
    Blocked,
    /// Until a sibling has had what is owed to it. It keeps its place: its ticket and what it may still start.
    Yielding,
}

/// What a queue may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// Its turn is to come, and was worth so much when it took its place.
    Due(u32),
    /// So much is left of its turn.
    Left(u32),
}

/// A [`QueueState`] without what belongs to it.
#[derive(Clone, Copy, Debug)]
enum Place {
    Idle,
    Ready,
    Parked,
    Blocked,
    Yielding,
}

impl Line {
    const EMPTY: Self = Self {
        waiting: List::EMPTY,
        granted: Circle::EMPTY,
        waits: 0,
        in_line: 0,
        ring: Links::NONE,
        ticket: 0,
        credit: 0,
    };

    pub(super) const fn credit(&self) -> Credit {
        let credit = self.credit & !BEGUN;
        if self.credit & BEGUN == 0 { Credit::Due(credit) } else { Credit::Left(credit) }
    }

    /// Beyond two thousand million it does not count in full.
    pub(super) const fn set_credit(&mut self, credit: Credit) {
        let (begun, worth) = match credit {
            Credit::Due(worth) => (0, worth),
            Credit::Left(left) => (BEGUN, left),
        };
        self.credit = begun | if worth < BEGUN { worth } else { !BEGUN };
    }
}

impl Queue {
    pub(super) fn new(key: u32, rule: u16, plan: &RulePlan) -> Self {
        Self {
            key,
            rule,
            owed: false,
            place: Place::Idle,
            running: 0,
            requests: 0,
            next_number: 0,
            sibling: NIL,
            limits: LimitStates::new(&plan.own),
            extras: QueueExtras::default(),
            line: None,
        }
    }

    /// The queue's own limits: the key's numbers, else the rule's.
    pub(super) fn own<'a>(extras: &'a QueueExtras, rule: &'a RulePlan) -> &'a [LimitSpec] {
        extras.numbers().map_or(&*rule.own, |own| &own.specs)
    }

    pub(super) fn state(&self) -> QueueState {
        match self.place {
            Place::Idle => QueueState::Idle,
            Place::Ready => QueueState::Ready,
            Place::Parked => QueueState::Parked { until: self.ring.instant() },
            Place::Blocked => QueueState::Blocked,
            Place::Yielding => QueueState::Yielding,
        }
    }

    pub(super) fn set_state(&mut self, state: QueueState) {
        self.place = match state {
            QueueState::Idle => Place::Idle,
            QueueState::Ready => Place::Ready,
            QueueState::Parked { until } => {
                self.ring = Links::instead(until);
                Place::Parked
            }
            QueueState::Blocked => Place::Blocked,
            QueueState::Yielding => Place::Yielding,
        };
    }

    /// Puts a request last among those that wait, or if its number is smaller, before the first with a larger one. That
    /// costs as many steps as it is away from the nearest of the two ends and the one that was put so before it.
    pub(super) fn queue_by_number<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let line = &mut **self;
        line.waits += 1;
        let List { head, tail } = line.waiting;
        // The common case, a new request.
        if tail == NIL || requests[tail].is_before(&requests[id]) {
            return line.waiting.push_back(requests, id);
        }
        let next = self.first_after(requests, id);
        self.waiting.insert_before(requests, id, next);
        if next != head {
            self.extras.set_finger(id);
        }
    }

    /// The first that waits and has a larger number than a request that doesn't.
    fn first_after<W>(&self, requests: &Slab<Request<W>>, id: u32) -> u32 {
        let is_before = |other: u32| requests[other].is_before(&requests[id]);
        let (mut front, mut back, mut finger) = (self.waiting.head, self.waiting.tail, self.extras.finger());
        loop {
            if front == NIL || !is_before(front) {
                return front;
            }
            front = requests[front].links.next;
            if back == NIL {
                return self.waiting.head;
            }
            if is_before(back) {
                return requests[back].links.next;
            }
            back = requests[back].links.prev;
            if finger == NIL {
                continue;
            }
            let Links { prev, next } = requests[finger].links;
            match is_before(finger) {
                true if next == NIL || !is_before(next) => return next,
                true => finger = next,
                false if prev == NIL || is_before(prev) => return finger,
                false => finger = prev,
            }
        }
    }

    /// A request waits no more.
    #[inline]
    pub(super) fn unqueue<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        if self.extras.finger() == id {
            let Links { prev, next } = requests[id].links;
            self.extras.set_finger(if next == NIL { prev } else { next });
        }
        let line = &mut **self;
        line.waiting.unlink(requests, id);
        line.waits -= 1;
    }

    /// Gives back what only a line needs, once nobody is left in it.
    pub(super) fn rest(&mut self) {
        if self.in_line == 0 {
            debug_assert_eq!(self.state(), QueueState::Idle, "an empty line stands somewhere");
            self.line = None;
            self.extras.rest();
        }
    }
}

impl Deref for Queue {
    type Target = Line;

    fn deref(&self) -> &Line {
        self.line.as_deref().unwrap_or(&Line::EMPTY)
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut Line {
        self.line.get_or_insert_with(|| Box::new(Line::EMPTY))
    }
}

/// A key.
#[derive(Debug)]
pub(super) struct KeyRecord {
    generation: Generation,
    /// The first of its queues, or [`NIL`].
    pub(super) queues: u32,
    pub(super) tag: u64,
    pub(super) limits: LimitStates,
    pub(super) extras: KeyExtras,
}

impl KeyRecord {
    pub(super) fn new(tag: u64, plan: &Plan, begin: Instant, generation: Generation) -> Self {
        Self {
            generation,
            queues: NIL,
            tag,
            limits: LimitStates::new(&plan.key_limits),
            extras: KeyExtras::new(plan.key_clocks, begin),
        }
    }

    /// What it is known by where keys stay with an endpoint.
    pub(super) fn mark(&self) -> u64 {
        self.extras.mark().unwrap_or(self.tag)
    }
}

/// Nobody outside the machine names a queue: none is ever stale.
impl Entry for Queue {
    fn generation(&self) -> Generation {
        Generation::MIN
    }
}

impl Entry for KeyRecord {
    fn generation(&self) -> Generation {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_small() {
        let sizes = (Slab::<Queue>::SLOT, size_of::<Line>(), Slab::<KeyRecord>::SLOT, size_of::<LimitStates>());
        assert_eq!(sizes, (56, 40, 40, 16));
    }
}
