//! A scenario as it is run: checked, with nothing left to look up.

use std::sync::Arc;

use super::cost::MOST_UNITS;
use super::measure::{Bound, Value};
use super::metric::Metric;
use crate::engine::{Charge, EndpointId, Nanos, RuleId};
use crate::rules::Rules;

/// What a run has room for in a few gigabytes.
pub(crate) const MOST_CALLS: u64 = 50_000_000;
pub(crate) const MOST_KEYS: u64 = 50_000_000;

/// A run ends after this many starts, for example where a server refuses for ever.
pub(crate) const MOST_STARTS: usize = 100_000_000;

/// One variant of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) title: String,
    pub(crate) rules: Rules,
    /// One run for each.
    pub(crate) seeds: Vec<u64>,
    /// Nothing starts from then on. [`Nanos::MAX`]: until nothing is left to do.
    pub(crate) until: Nanos,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) network: Network,
    pub(crate) server: Vec<ServerLimit>,
    pub(crate) shows: Vec<Show>,
}

/// Calls of one rule by one kind of caller.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) name: Arc<str>,
    pub(crate) rule: RuleId,
    pub(crate) keys: Keys,
    pub(crate) arrivals: Arrivals,
    /// When it begins.
    pub(crate) start: Nanos,
    /// Drawn evenly, both included.
    pub(crate) cost: (u32, u32),
    /// The same of each declared unit.
    pub(crate) units: [(u32, u32); MOST_UNITS],
    /// How long the server works on a call.
    pub(crate) takes: (Nanos, Nanos),
    /// The endpoints that they may use; empty: all.
    pub(crate) endpoints: Box<[EndpointId]>,
    pub(crate) cancel: Option<Cancel>,
}

/// Whose calls they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each call has a key that no other has.
    Own,
    /// Keys from `first` on.
    Some { first: u32, count: u32, who: Who },
}

/// Whose call is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    InTurn,
    Random,
    Zipf,
}

/// When calls come.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    /// All at once.
    Backlog { calls: u64 },
    /// One every so often.
    Even { calls: u64, every: Nanos },
    /// At random: so many in all of a length of time.
    Poisson { calls: u64, span: Nanos },
    /// So many at once, every so often.
    Bursts { calls: u64, size: u64, every: Nanos },
    /// Each key has one call at a time, and makes the next one so long after the answer.
    Closed { think: Nanos },
    /// As somebody wrote down.
    Trace(Arc<[Traced]>),
}

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traced {
    pub(crate) at: Nanos,
    pub(crate) key: u32,
    pub(crate) cost: u32,
}

/// Callers who lose patience, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancel {
    pub(crate) at: Nanos,
    /// Which part of those that wait then, in millionths.
    pub(crate) share: u64,
}

/// The way to the server, and the same back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) delay: Nanos,
    /// By how much a way takes longer at most, drawn evenly.
    pub(crate) jitter: Nanos,
}

/// What the server really allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerLimit {
    pub(crate) kind: ServerKind,
    /// What it counts of a call.
    pub(crate) charge: Charge,
    pub(crate) count: u32,
    pub(crate) period: Nanos,
    pub(crate) each: Each,
    /// From the first to the last key, both included.
    pub(crate) keys: Option<(u32, u32)>,
    /// Only calls that come through these.
    pub(crate) endpoints: Option<Box<[u16]>>,
    /// Whoever is refused is refused for so long, and for as long again if he comes before that.
    pub(crate) penalty: Option<Nanos>,
    /// What the server says instead of how long it takes.
    pub(crate) retry_after: Option<Nanos>,
}

/// How the server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Sliding,
    Fixed,
    Bucket,
    Paced,
    /// What it works on, and no period.
    AtOnce,
}

/// Whom it counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Each {
    All,
    Key,
    Endpoint,
    KeyOnEndpoint,
}

/// A line of the report.
#[derive(Clone, Debug)]
pub(crate) struct Show {
    pub(crate) what: String,
    pub(crate) metric: Metric,
    pub(crate) optimum: Option<Value>,
    pub(crate) bound: Option<Bound>,
}
