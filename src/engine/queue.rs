//! Records: requests, the queues they stand in, the keys that own the queues.

use std::sync::Arc;

use super::answer::Why;
use super::cost::OwnCosts;
use super::hold::HoldCause;
use super::learn::Learnt;
use super::limit::{LimitStates, PaceClock};
use super::plan::{LimitSpec, Plan, RulePlan};
use super::pool::{KeySeat, Route};
use super::slab::{NIL, Slab};
use super::time::Instant;

/// One request.
#[derive(Debug)]
pub(super) struct Request<W> {
    pub(super) queue: u32,
    /// Neighbours in the queue's waiting list or in its list of grants.
    pub(super) links: Links,
    pub(super) costs: OwnCosts,
    /// Place in line among the requests of its queue, kept for life.
    pub(super) number: u64,
    /// When it entered the line or was put back; while it runs, when its attempt began.
    pub(super) since: Instant,
    /// When it is refused if it still stands in line; while it runs, when its attempt is overdue; once it is refused,
    /// when that was.
    pub(super) deadline: Instant,
    pub(super) stage: Stage,
    /// Whether an attempt ever started.
    pub(super) started: bool,
    /// Its endpoint, and what it knows of endpoints; nothing where there is no pool.
    pub(super) route: Option<Box<Route>>,
    /// Whether the response to the running attempt was read.
    pub(super) is_read: bool,
    pub(super) waker: Option<W>,
}

impl<W> Request<W> {
    /// Whether it is granted or runs, and has no response yet.
    pub(super) const fn is_awaited(&self) -> bool {
        self.stage.is_outstanding(!self.is_read)
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the line, which has no room for it.
    Outside,
    /// In its queue, not to start before an instant. While it is first, its queue waits for that instant.
    Queued { not_before: Instant },
    /// It may claim. The lease ends at an instant, and runs only for the first grant of a queue.
    Granted { lease: Instant },
    /// It let its lease pass: out of the queue until its owner asks again.
    Asleep,
    /// Out of the queue until an instant.
    Out { until: Instant },
    /// Its attempt runs.
    Running,
    /// Its attempt has run for as long as it may, and is to be given up.
    Overdue,
    /// Its attempt runs and is to be given up.
    Aborted,
    /// Refused, and its owner does not know yet.
    Refused { why: Why },
}

impl Stage {
    /// Whether it stands in line: waits, or was granted and did not claim.
    pub(super) const fn in_line(self) -> bool {
        match self {
            Self::Queued { .. } | Self::Granted { .. } | Self::Asleep | Self::Out { .. } => true,
            Self::Outside | Self::Running | Self::Overdue | Self::Aborted | Self::Refused { .. } => false,
        }
    }

    /// Whether its attempt runs.
    pub(super) const fn runs(self) -> bool {
        match self {
            Self::Running | Self::Overdue | Self::Aborted => true,
            Self::Outside
            | Self::Queued { .. }
            | Self::Granted { .. }
            | Self::Asleep
            | Self::Out { .. }
            | Self::Refused { .. } => false,
        }
    }

    /// Whether its attempt runs and nothing but its own end ends it.
    pub(super) const fn may_go_on(self) -> bool {
        match self {
            Self::Running | Self::Overdue => true,
            Self::Outside
            | Self::Queued { .. }
            | Self::Granted { .. }
            | Self::Asleep
            | Self::Out { .. }
            | Self::Aborted
            | Self::Refused { .. } => false,
        }
    }

    /// Whether it is outstanding in a limit, which may let go only when attempts end.
    pub(super) const fn is_outstanding(self, counts_from_end: bool) -> bool {
        match self {
            Self::Granted { .. } => true,
            Self::Running | Self::Overdue | Self::Aborted => counts_from_end,
            Self::Outside | Self::Queued { .. } | Self::Asleep | Self::Out { .. } | Self::Refused { .. } => false,
        }
    }
}

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
    pub(super) len: u32,
    /// The last one that was put back by its number, or a neighbour of it: the next one often belongs beside it.
    finger: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL, len: 0, finger: NIL };

    pub(super) const fn is_empty(self) -> bool {
        self.head == NIL
    }

    pub(super) fn push_back<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        self.insert_before(requests, id, NIL);
    }

    /// Inserts `id` before `next`, or last if that is [`NIL`].
    pub(super) fn insert_before<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32, next: u32) {
        self.len += 1;
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
        self.len += other.len;
    }

    pub(super) fn unlink<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        self.len -= 1;
        let Links { prev, next } = std::mem::replace(&mut requests[id].links, Links::NONE);
        if self.finger == id {
            self.finger = if next == NIL { prev } else { next };
        }
        if prev == NIL {
            self.head = next
        } else {
            requests[prev].links.next = next
        }
        if next == NIL { self.tail = prev } else { requests[next].links.prev = prev }
    }

    /// Inserts before the first request with a larger number. Costs as many steps as it is away from the nearest of the
    /// two ends and the one that was inserted before it.
    pub(super) fn insert_by_number<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let number = requests[id].number;
        let is_before = |other: u32| requests[other].number < number;
        let (mut front, mut back, mut finger) = (self.head, self.tail, self.finger);
        let next = loop {
            if front == NIL || !is_before(front) {
                break front;
            }
            front = requests[front].links.next;
            if back == NIL {
                break self.head;
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
        self.insert_before(requests, id, next);
        self.finger = id;
    }
}

/// The queue of one rule and one key.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) key: u32,
    pub(super) rule: u16,
    pub(super) state: QueueState,
    pub(super) waiting: List,
    pub(super) granted: List,
    /// How many stand in line.
    pub(super) in_line: u32,
    pub(super) running: u32,
    pub(super) next_number: u64,
    pub(super) hold: Instant,
    pub(super) hold_cause: HoldCause,
    /// The key's next queue, in a circle.
    pub(super) sibling: u32,
    /// Neighbours in its rule's ring.
    pub(super) ring: Links,
    /// Its turn: the lane serves the smallest.
    pub(super) ticket: i64,
    /// What it may still start in this turn.
    pub(super) credit: u64,
    /// Starts of sibling queues that draw on the same limits since its own last start, while it waited.
    pub(super) passed: u32,
    /// The next room of the key in these limits is its own.
    pub(super) owed: bool,
    /// Whether it left its ring for want of an endpoint: it goes back to its old place.
    pub(super) awaits_pool: bool,
    /// Where it stands among those that are told when something happens at an endpoint: its lane and its turn.
    pub(super) pool_place: Option<(usize, i64)>,
    pub(super) limits: LimitStates,
    /// The numbers that it goes by, where they are others than its rule's.
    pub(super) numbers: Option<Arc<[LimitSpec]>>,
    /// There if these are the server's.
    pub(super) learnt: Option<Box<Learnt>>,
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

impl Queue {
    pub(super) fn new(key: u32, rule: u16, plan: &RulePlan) -> Self {
        Self {
            key,
            rule,
            state: QueueState::Idle,
            waiting: List::EMPTY,
            granted: List::EMPTY,
            in_line: 0,
            running: 0,
            next_number: 0,
            hold: Instant::ZERO,
            hold_cause: HoldCause::default(),
            sibling: NIL,
            ring: Links::NONE,
            ticket: 0,
            credit: 0,
            passed: 0,
            owed: false,
            awaits_pool: false,
            pool_place: None,
            limits: LimitStates::new(&plan.own),
            numbers: None,
            learnt: None,
        }
    }

    /// The queue's own limits: the key's numbers, else the rule's.
    pub(super) fn own<'a>(numbers: &'a Option<Arc<[LimitSpec]>>, rule: &'a RulePlan) -> &'a [LimitSpec] {
        numbers.as_deref().unwrap_or(&rule.own)
    }
}

/// A key.
#[derive(Debug)]
pub(super) struct KeyRecord {
    pub(super) tag: u64,
    pub(super) hold: Instant,
    pub(super) hold_cause: HoldCause,
    /// The first of its queues, or [`NIL`].
    pub(super) queues: u32,
    /// How many of its queues the next room is owed to. Those draw on different limits.
    pub(super) owed: u32,
    /// Requests of all its queues, in line and running.
    pub(super) busy: u32,
    /// Whether the sweep will look at it.
    pub(super) swept: bool,
    pub(super) limits: LimitStates,
    pub(super) clocks: Box<[PaceClock]>,
    /// What it knows of endpoints, if there is a pool and it was there.
    pub(super) seat: Option<Box<KeySeat>>,
}

impl KeyRecord {
    pub(super) fn new(tag: u64, plan: &Plan, begin: Instant) -> Self {
        Self {
            tag,
            hold: Instant::ZERO,
            hold_cause: HoldCause::default(),
            queues: NIL,
            owed: 0,
            busy: 0,
            swept: false,
            limits: LimitStates::new(&plan.key_limits),
            // An empty box allocates nothing.
            clocks: vec![PaceClock::from(begin); plan.key_clocks].into_boxed_slice(),
            seat: None,
        }
    }
}
