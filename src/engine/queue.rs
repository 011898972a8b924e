//! Records: the queues that requests stand in, the keys that own the queues.

use std::ops::{Deref, DerefMut};

use super::hold::HoldCause;
use super::learn::Own;
use super::limit::{LimitStates, PaceClock};
use super::plan::{LimitSpec, Plan, RulePlan};
use super::pool::KeySeat;
use super::request::Request;
use super::slab::{Entry, Generation, NIL, Slab};
use super::time::Instant;

/// Neighbours in a doubly linked list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { prev: NIL, next: NIL };
}

/// A list of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL };

    pub(super) const fn is_empty(self) -> bool {
        self.head == NIL
    }

    pub(super) fn push_back<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        self.insert_before(requests, id, NIL);
    }

    /// Inserts `id` before `next`, or last if that is [`NIL`].
    pub(super) fn insert_before<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32, next: u32) {
        let prev = if next == NIL { self.tail } else { requests[next].links.prev };
        requests[id].links = Links { prev, next };
        if prev == NIL {
            self.head = id
        } else {
            requests[prev].links.next = id
        }
        if next == NIL { self.tail = id } else { requests[next].links.prev = id }
    }

    /// Puts another list before this one.
    pub(super) fn prepend<W>(&mut self, requests: &mut Slab<Request<W>>, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        requests[other.tail].links.next = self.head;
        requests[self.head].links.prev = other.tail;
        self.head = other.head;
    }

    #[inline]
    pub(super) fn unlink<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let Links { prev, next } = std::mem::replace(&mut requests[id].links, Links::NONE);
        if prev == NIL {
            self.head = next
        } else {
            requests[prev].links.next = next
        }
        if next == NIL { self.tail = prev } else { requests[next].links.prev = prev }
    }
}

/// The queue of one rule and one key: what stays of it while nothing waits. The rest of it is its [`Line`].
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) key: u32,
    pub(super) rule: u16,
    pub(super) hold_cause: HoldCause,
    /// The key's next room in its limits is this queue's own.
    pub(super) owed: bool,
    pub(super) hold: Instant,
    pub(super) running: u32,
    /// All that belong to it, in line, before it, running, or refused and not told yet.
    pub(super) requests: u32,
    pub(super) next_number: u32,
    /// The key's next queue, in a circle.
    pub(super) sibling: u32,
    pub(super) limits: LimitStates,
    /// The key's own numbers, where it has other ones than its rule.
    pub(super) numbers: Option<Box<Own>>,
    line: Option<Box<Line>>,
}

/// The part of a queue that there is only while somebody stands in it.
#[derive(Debug)]
pub(super) struct Line {
    /// Of a queue that is parked: until when.
    until: Instant,
    pub(super) waiting: List,
    pub(super) granted: List,
    /// How many wait.
    pub(super) waits: u32,
    /// How many stand in line: those that are out of the queue for a while and those that are granted, too.
    pub(super) in_line: u32,
    /// Neighbours in its rule's ring.
    pub(super) ring: Links,
    /// Its turn: the lane serves the smallest.
    pub(super) ticket: i64,
    /// Its [`Credit`], without whether its turn has begun.
    credit: u32,
    /// Starts of sibling queues that draw on the same limits since its own last start, while it waited.
    pub(super) passed: u32,
    /// Whether it left its ring for want of an endpoint: it goes back to its old place.
    pub(super) awaits_pool: bool,
    /// Whether its turn has begun.
    has_begun: bool,
    /// Where it stands, without what belongs to that.
    place: Place,
    /// Where it stands among those that are told when something happens at an endpoint: its lane and its turn.
    pub(super) pool_place: Option<Box<(usize, i64)>>,
    /// The last one that was put back by its number, or a neighbour of it: the next one often belongs beside it.
    finger: u32,
}

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
        until: Instant::ZERO,
        waiting: List::EMPTY,
        granted: List::EMPTY,
        waits: 0,
        in_line: 0,
        ring: Links::NONE,
        ticket: 0,
        credit: 0,
        passed: 0,
        awaits_pool: false,
        has_begun: false,
        place: Place::Idle,
        pool_place: None,
        finger: NIL,
    };

    pub(super) const fn state(&self) -> QueueState {
        match self.place {
            Place::Idle => QueueState::Idle,
            Place::Ready => QueueState::Ready,
            Place::Parked => QueueState::Parked { until: self.until },
            Place::Blocked => QueueState::Blocked,
            Place::Yielding => QueueState::Yielding,
        }
    }

    pub(super) const fn set_state(&mut self, state: QueueState) {
        self.place = match state {
            QueueState::Idle => Place::Idle,
            QueueState::Ready => Place::Ready,
            QueueState::Parked { until } => {
                self.until = until;
                Place::Parked
            }
            QueueState::Blocked => Place::Blocked,
            QueueState::Yielding => Place::Yielding,
        };
    }

    pub(super) const fn credit(&self) -> Credit {
        if self.has_begun { Credit::Left(self.credit) } else { Credit::Due(self.credit) }
    }

    pub(super) const fn set_credit(&mut self, credit: Credit) {
        (self.has_begun, self.credit) = match credit {
            Credit::Due(worth) => (false, worth),
            Credit::Left(left) => (true, left),
        };
    }

    /// Puts a request before the first that waits and has a larger number. Costs as many steps as it is away from the nearest of the
    /// two ends and the one that was inserted before it.
    pub(super) fn queue_by_number<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let is_before = |other: u32| requests[other].is_before(&requests[id]);
        let (mut front, mut back, mut finger) = (self.waiting.head, self.waiting.tail, self.finger);
        let next = loop {
            if front == NIL || !is_before(front) {
                break front;
            }
            front = requests[front].links.next;
            if back == NIL {
                break self.waiting.head;
            }
            if is_before(back) {
                break requests[back].links.next;
            }
            back = requests[back].links.prev;
            if finger == NIL {
                continue;
            }
            let Links { prev, next } = requests[finger].links;
            match is_before(finger) {
                true if next == NIL || !is_before(next) => break next,
                true => finger = next,
                false if prev == NIL || is_before(prev) => break finger,
                false => finger = prev,
            }
        };
        self.waiting.insert_before(requests, id, next);
        self.finger = id;
    }

    /// A request waits no more.
    #[inline]
    pub(super) fn unqueue<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        if self.finger == id {
            let Links { prev, next } = requests[id].links;
            self.finger = if next == NIL { prev } else { next };
        }
        self.waiting.unlink(requests, id);
        self.waits -= 1;
    }
}

impl Queue {
    pub(super) fn new(key: u32, rule: u16, plan: &RulePlan) -> Self {
        Self {
            key,
            rule,
            hold_cause: HoldCause::default(),
            owed: false,
            hold: Instant::ZERO,
            running: 0,
            requests: 0,
            next_number: 0,
            sibling: NIL,
            limits: LimitStates::new(&plan.own),
            numbers: None,
            line: None,
        }
    }

    /// The queue's own limits: the key's numbers, else the rule's.
    pub(super) fn own<'a>(numbers: &'a Option<Box<Own>>, rule: &'a RulePlan) -> &'a [LimitSpec] {
        numbers.as_ref().map_or(&*rule.own, |own| &own.specs)
    }

    /// What somebody stands in, if somebody does. To write through the queue itself makes one.
    pub(super) fn line_mut(&mut self) -> Option<&mut Line> {
        self.line.as_deref_mut()
    }

    /// Gives back what only a line needs, once nobody is left in it.
    pub(super) fn rest(&mut self) {
        if self.in_line == 0 {
            debug_assert_eq!(self.state(), QueueState::Idle, "an empty line stands somewhere");
            self.line = None;
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
    pub(super) tag: u64,
    pub(super) hold: Instant,
    pub(super) hold_cause: HoldCause,
    /// The first of its queues, or [`NIL`].
    pub(super) queues: u32,
    /// How many of its queues the next room is owed to. Those draw on different limits.
    pub(super) owed: u16,
    /// How many of its queues have requests: who comes beside others or leaves them need not look at the key for that.
    pub(super) busy: u32,
    /// Whether the sweep will look at it.
    pub(super) swept: bool,
    pub(super) limits: LimitStates,
    pub(super) sides: Sides,
}

impl KeyRecord {
    pub(super) fn new(tag: u64, plan: &Plan, begin: Instant) -> Self {
        Self {
            generation: Generation::MIN,
            tag,
            hold: Instant::ZERO,
            hold_cause: HoldCause::default(),
            queues: NIL,
            owed: 0,
            busy: 0,
            swept: false,
            limits: LimitStates::new(&plan.key_limits),
            sides: Sides::new(plan.key_clocks, begin),
        }
    }

    /// What it is known by where keys stay with an endpoint.
    pub(super) fn mark(&self) -> u64 {
        self.sides.0.as_ref().and_then(|side| side.mark).unwrap_or(self.tag)
    }
}

/// What few plans have of a key: in most of them it is a word in the record.
#[derive(Debug)]
pub(super) struct Sides(Option<Box<Side>>);

#[derive(Debug, Default)]
struct Side {
    /// What paces it.
    clocks: Box<[PaceClock]>,
    /// What it knows of endpoints, if there is a pool and it was there.
    seat: Option<KeySeat>,
    /// What endpoints are chosen by that it stays with, if that is not its tag.
    mark: Option<u64>,
}

impl Sides {
    fn new(count: usize, begin: Instant) -> Self {
        let side = || Side { clocks: vec![PaceClock::from(begin); count].into(), seat: None, mark: None };
        Self((count > 0).then(|| Box::new(side())))
    }

    pub(super) fn clocks(&self) -> &[PaceClock] {
        self.0.as_ref().map_or(&[], |side| &side.clocks)
    }

    pub(super) fn clocks_mut(&mut self) -> &mut [PaceClock] {
        self.0.as_mut().map_or(&mut [], |side| &mut side.clocks)
    }

    /// So many clocks, which know of nothing.
    pub(super) fn renew_clocks(&mut self, count: usize) {
        if count > 0 || self.0.is_some() {
            self.0.get_or_insert_default().clocks = vec![PaceClock::default(); count].into();
        }
    }

    pub(super) fn set_mark(&mut self, mark: u64) {
        self.0.get_or_insert_default().mark = Some(mark);
    }

    pub(super) fn seat(&self) -> Option<&KeySeat> {
        self.0.as_ref()?.seat.as_ref()
    }

    pub(super) fn seat_mut(&mut self) -> Option<&mut KeySeat> {
        self.0.as_mut()?.seat.as_mut()
    }

    pub(super) fn seat_or_new(&mut self) -> &mut KeySeat {
        self.0.get_or_insert_default().seat.get_or_insert_default()
    }

    pub(super) fn take_seat(&mut self) -> Option<KeySeat> {
        self.0.as_mut()?.seat.take()
    }
}

/// Nobody outside the machine names a queue: none is ever stale.
impl Entry for Queue {
    fn generation(&self) -> Generation {
        Generation::MIN
    }

    fn set_generation(&mut self, _: Generation) {}
}

impl Entry for KeyRecord {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn set_generation(&mut self, generation: Generation) {
        self.generation = generation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_small() {
        let sizes = (Slab::<Queue>::SLOT, size_of::<Line>(), Slab::<KeyRecord>::SLOT, size_of::<LimitStates>());
        assert_eq!(sizes, (72, 72, 64, 24));
    }
}
