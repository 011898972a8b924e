//! The machine: requests in, grants out.

use std::sync::Arc;

use super::plan::{Plan, RuleId};
use super::time::{Instant, Nanos};

/// A key's record. Stale once the record was evicted; every method that takes one says what it does then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A request in the machine, from [`Scheduler::enter`] to [`Scheduler::finish`] or [`Scheduler::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a request brings along.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it takes from every limit; at least 1.
    pub cost: u32,
    /// It does not start before this.
    pub not_before: Option<Instant>,
    /// It is refused with [`Why::MaxWait`] if it still stands in line then.
    pub deadline: Option<Instant>,
}

/// What became of a request that entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// Granted and claimed: the attempt begins now.
    Started(RequestId),
    /// It stands in line.
    Waiting(RequestId),
}

/// Why a request was turned away at the door. Nothing was kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The key's record was evicted: make a new one with [`Scheduler::add_key`] and come again.
    StaleKey,
    /// Its queue is full.
    QueueFull {
        /// How many wait there.
        waiting: u32,
    },
    /// It can never fit.
    CostTooHigh {
        /// What it costs.
        cost: u32,
        /// The most that one of its limits ever has room for.
        capacity: u32,
    },
    /// The machine was closed.
    Closed,
}

/// Why a request in line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its deadline passed while it stood in line.
    MaxWait,
    /// A newer request took its place in a full queue.
    Displaced,
    /// The machine was closed.
    Closed,
    /// The machine was told to give up even what runs.
    Aborted,
}

/// The answer to [`Scheduler::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The attempt begins now; it stood in line for so long this time.
    Started {
        /// Time in line since it entered or was put back.
        waited: Nanos,
    },
    /// It stands in line, or one granted before it in its queue must claim first.
    Waiting,
    /// It runs already.
    Running,
    /// It was refused; the request is gone from the machine with this answer.
    Refused {
        /// For this reason.
        why: Why,
        /// Time in line since it entered or was put back.
        waited: Nanos,
    },
    /// The machine knows no such request.
    Unknown,
}

/// When a request could start at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextStart {
    /// At once.
    Now,
    /// Not before this instant.
    At(Instant),
    /// As soon as a running attempt ends.
    WhenOneEnds,
    /// Its rule is paused.
    Never,
}

/// What a hold or a release is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything under `overall`.
    Overall,
    /// A rule, whatever the key.
    Rule(RuleId),
    /// A key, whatever the rule.
    Key(KeyId),
    /// The queue of a rule and a key.
    Queue(RuleId, KeyId),
    /// One request, by the queue it belongs to: only for putting it back.
    Request,
}

/// A key's record that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// What the owner called the key in [`Scheduler::add_key`].
    pub tag: u64,
    /// Its id, now stale.
    pub id: KeyId,
}

/// The state of the machine in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests in line, put back and stepped out ones included.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Grants that nobody took up yet.
    pub unclaimed: usize,
    /// Key records.
    pub keys: usize,
    /// End of the hold over everything, if one is on.
    pub held_until: Option<Instant>,
    /// When the machine wants to be called next.
    pub next_wake: Option<Instant>,
    /// Per lane, most urgent first.
    pub lanes: Vec<LaneSnapshot>,
    /// Per rule, in the order of the plan.
    pub rules: Vec<RuleSnapshot>,
}

/// One lane in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Grants that went past it since it was last served.
    pub bypassed: u32,
}

/// One rule in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSnapshot {
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// End of its hold, if one is on.
    pub held_until: Option<Instant>,
    /// Whether it is paused.
    pub paused: bool,
}

/// One key in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySnapshot {
    /// Requests in line, over all rules.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// End of its hold, if one is on.
    pub held_until: Option<Instant>,
}

/// Decides which request starts when. `W` wakes the owner of a request.
///
/// After every call that takes `now`, fire what [`take_wakes`](Self::take_wakes) hands out (outside any lock) and see
/// whether [`next_wake`](Self::next_wake) moved.
#[derive(Debug)]
pub struct Scheduler<W> {
    plan: Arc<Plan>,
    wakes: Vec<W>,
}

impl<W> Scheduler<W> {
    /// An empty machine for these rules.
    #[must_use]
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { plan, wakes: Vec::new() }
    }

    /// The rules it goes by.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Makes a record for a key. `tag` is the owner's name for it, handed back when the record is evicted.
    pub fn add_key(&mut self, now: Instant, tag: u64) -> KeyId {
        todo!()
    }

    /// Takes a request in and starts it at once if nothing is in the way: granted and claimed in one.
    ///
    /// # Errors
    /// Says why the request was turned away; nothing is kept of it then.
    pub fn enter(&mut self, now: Instant, key: KeyId, rule: RuleId, entry: Entry) -> Result<Enter, Turned> {
        todo!()
    }

    /// Takes a request in without starting anything: [`dispatch`](Self::dispatch) will grant it, its owner claim it.
    ///
    /// # Errors
    /// Says why the request was turned away; nothing is kept of it then.
    pub fn enqueue(&mut self, now: Instant, key: KeyId, rule: RuleId, entry: Entry) -> Result<RequestId, Turned> {
        todo!()
    }

    /// Sets whom to wake when something becomes of the request: a grant, a refusal, its turn to claim. Running requests are woken by [`abort`](Self::abort) alone.
    /// Each wake is used once. An unknown request is no error: the waker comes back.
    pub fn set_waker(&mut self, id: RequestId, waker: W) -> Option<W> {
        todo!()
    }

    /// The waker that is set for a request and not used yet.
    #[must_use]
    pub fn waker(&self, id: RequestId) -> Option<&W> {
        todo!()
    }

    /// Whether a [`claim`](Self::claim) would start the request now.
    #[must_use]
    pub fn is_granted(&self, id: RequestId) -> bool {
        todo!()
    }

    /// Wakes the owners of all requests in line, so that they look after themselves. Changes nothing else.
    pub fn wake_waiting(&mut self) {
        todo!()
    }

    /// Takes up a grant: the attempt begins. Asked too early, it answers [`Claim::Waiting`]. A request that slept
    /// because it let its lease pass is put back in line, in its old place.
    pub fn claim(&mut self, now: Instant, id: RequestId) -> Claim {
        todo!()
    }

    /// The attempt ended and so does the request.
    pub fn finish(&mut self, now: Instant, id: RequestId) {
        todo!()
    }

    /// The attempt ended; the request goes back to its place in line and `scope` is held until `until`.
    ///
    /// With [`Target::Request`] it steps out of line until then. `deadline` is as in [`Entry`].
    /// Returns false if the machine is closed or knows no such running request: then it is gone.
    pub fn retry(
        &mut self,
        now: Instant,
        id: RequestId,
        scope: Target,
        until: Instant,
        deadline: Option<Instant>,
    ) -> bool {
        todo!()
    }

    /// The attempt failed; the request steps out until `until` and then goes back to its place. In an `ordered` rule
    /// its queue waits for it. Returns as [`retry`](Self::retry).
    pub fn back_off(&mut self, now: Instant, id: RequestId, until: Instant, deadline: Option<Instant>) -> bool {
        todo!()
    }

    /// The owner dropped the request, in whatever state: what it had not used is refunded.
    pub fn withdraw(&mut self, now: Instant, id: RequestId) {
        todo!()
    }

    /// Nothing of the target starts before `until`. Holds on one target combine by maximum; none is longer than the plan's `max_hold`.
    pub fn hold(&mut self, now: Instant, target: Target, until: Instant) {
        todo!()
    }

    /// Ends a target's hold.
    pub fn release(&mut self, now: Instant, target: Target) {
        todo!()
    }

    /// Starts nothing of the rule until [`resume`](Self::resume).
    pub fn pause(&mut self, now: Instant, rule: RuleId) {
        todo!()
    }

    /// Ends a pause.
    pub fn resume(&mut self, now: Instant, rule: RuleId) {
        todo!()
    }

    /// Refuses what waits and whatever comes. What runs may finish. Returns how many were refused.
    pub fn close(&mut self, now: Instant) -> usize {
        todo!()
    }

    /// After [`close`](Self::close): marks what runs as [`Why::Aborted`] and wakes it. Returns how many.
    pub fn abort(&mut self, now: Instant) -> usize {
        todo!()
    }

    /// Whether the request was marked by [`abort`](Self::abort).
    #[must_use]
    pub fn is_aborted(&self, id: RequestId) -> bool {
        todo!()
    }

    /// One turn: what is due becomes ready, and what is ready is granted, at most 64 grants and demotions.
    /// If more is left, `next_wake` is now.
    pub fn dispatch(&mut self, now: Instant) {
        todo!()
    }

    /// When to call [`dispatch`](Self::dispatch) again. `None`: not before another call.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        todo!()
    }

    /// Whom to wake, in order. Empty most of the time.
    pub fn take_wakes(&mut self) -> &mut Vec<W> {
        &mut self.wakes
    }

    /// Records that were evicted since the last call.
    pub fn take_evicted(&mut self) -> &mut Vec<Evicted> {
        todo!()
    }

    /// Whether a request of this queue could never start because the given running ones, which wait for it, occupy a
    /// limit that lets go only when they end.
    #[must_use]
    pub fn would_deadlock(&self, rule: RuleId, key: KeyId, ancestors: &[RequestId]) -> bool {
        todo!()
    }

    /// A lower bound for the start of a new request, from limits, holds and the requests ahead in the same queue.
    #[must_use]
    pub fn next_start(&mut self, now: Instant, rule: RuleId, key: Option<KeyId>) -> NextStart {
        todo!()
    }

    /// The machine in numbers.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        todo!()
    }

    /// One key in numbers; all zero for a stale id.
    #[must_use]
    pub fn key_snapshot(&self, now: Instant, key: KeyId) -> KeySnapshot {
        todo!()
    }
}
