//! What the machine is asked with and what it answers.

use super::plan::RuleId;
use super::pool::EndpointId;
use super::slab::Generation;
use super::time::{Instant, Nanos};

/// A key's record. Stale once the record was evicted; every method that takes one says what it does then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    pub(super) index: u32,
    pub(super) generation: Generation,
}

/// A request in the machine, from [`Scheduler::enter`](super::Scheduler::enter) to
/// [`finish`](super::Scheduler::finish) or [`withdraw`](super::Scheduler::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) index: u32,
    pub(super) generation: Generation,
}

/// What a request brings along.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What it takes from limits that count requests; zero counts as 1.
    pub cost: u32,
    /// What it takes from limits in declared units, by position; nothing where the list ends.
    pub units: &'a [u32],
    /// It does not start before this.
    pub not_before: Option<Instant>,
    /// It is refused with [`Why::MaxWait`] if it still stands in line then.
    pub deadline: Option<Instant>,
    /// The endpoints that it may use; empty: all.
    pub endpoints: &'a [EndpointId],
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self { cost: 1, units: &[], not_before: None, deadline: None, endpoints: &[] }
    }
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
    /// The key's record was evicted: make a new one with [`Scheduler::add_key`](super::Scheduler::add_key) and come
    /// again.
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
    /// Its rule is no longer among the rules.
    RuleRemoved,
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
    /// Its rule is no longer among the rules.
    RuleRemoved,
    /// It fits its limits no more since they were changed.
    CostTooHigh {
        /// What it costs.
        cost: u32,
        /// The most that one of its limits has room for.
        capacity: u32,
    },
    /// No endpoint that it may use can be used: they are disabled, or their breakers are open.
    NoEndpoint,
    /// The machine was closed.
    Closed,
    /// The machine was told to give up even what runs.
    Aborted,
}

/// The answer to [`Scheduler::claim`](super::Scheduler::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The attempt begins now.
    Started {
        /// Time in line since the request entered or was put back.
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
        /// Time in line since the request entered or was put back.
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
    /// Its rule is paused or removed, none of the endpoints can be used, or the machine is closed.
    Never,
}

/// What a hold stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything.
    Overall,
    /// A rule, whatever the key.
    Rule(RuleId),
    /// A key, whatever the rule.
    Key(KeyId),
    /// The queue of a rule and a key.
    Queue(RuleId, KeyId),
    /// An endpoint, whatever the request.
    Endpoint(EndpointId),
    /// Only the request that is put back: it steps out of line. Nothing else can be held so.
    Request,
}

/// A key's record that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// What the owner called the key in [`Scheduler::add_key`](super::Scheduler::add_key).
    pub tag: u64,
    /// Its id, now stale.
    pub id: KeyId,
}
