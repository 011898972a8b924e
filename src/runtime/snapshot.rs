//! The state of a balancer in numbers.

use std::time::Duration;

use super::observe::LimitDifference;
use crate::engine::{self, BreakerState, Instant, Plan};

/// The state of a balancer in numbers, as of one instant; spans count from it.
///
/// With the feature `serde` it can be serialised, as can its parts: fields by their names, spans as seconds with
/// fractions, `null` where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Requests in line, those included that wait for another attempt or have yet to take up their grant.
    pub waiting: usize,
    /// Requests of [`submit_wait`](crate::Request::submit_wait) that wait for room in line.
    pub outside: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Keys with work or with an open window.
    pub keys: usize,
    /// How long everything is held; `None` if it is not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Option<Duration>,
    /// When the balancer has something to do by itself.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub next_wake: Option<Duration>,
    /// Per lane, most urgent first.
    pub lanes: Vec<LaneSnapshot>,
    /// Per rule, in the order of the rules file.
    pub rules: Vec<RuleSnapshot>,
    /// Limits that the server has other numbers for than the rules, in the order in which that was first seen; 64 at
    /// most.
    pub differences: Vec<LimitDifference>,
    /// Per endpoint of the pool, in order; empty if there is none.
    pub endpoints: Vec<EndpointSnapshot>,
}

/// One endpoint in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EndpointSnapshot {
    /// Its name.
    pub name: String,
    /// Attempts that run on it.
    pub in_flight: usize,
    /// Attempts that it was given since it was added.
    pub starts: u64,
    /// How long it is held; `None` if it is not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Option<Duration>,
    /// Its breaker.
    pub breaker: BreakerSnapshot,
    /// Whether it is disabled.
    pub disabled: bool,
    /// How long its attempts take of late, failures counted as slow ones; `None` if nothing is known.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub latency: Option<Duration>,
}

/// What the breaker of an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum BreakerSnapshot {
    /// The endpoint is used.
    Closed,
    /// It is not, for so long.
    Open(#[cfg_attr(feature = "serde", serde(serialize_with = "plain_seconds"))] Duration),
    /// A few attempts try it.
    HalfOpen,
}

/// One lane in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LaneSnapshot {
    /// Its name in the rules file, or its number as text.
    pub name: String,
    /// Its number in the rules file; lower is more urgent.
    pub priority: u32,
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Grants that went past it since it was last served.
    pub bypassed: u32,
}

/// One rule in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RuleSnapshot {
    /// Its name.
    pub name: String,
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// How long it is held; `None` if it is not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Option<Duration>,
    /// Whether it is paused.
    pub paused: bool,
}

/// One key in numbers, over all rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeySnapshot {
    /// Requests in line.
    pub waiting: usize,
    /// Requests of [`submit_wait`](crate::Request::submit_wait) that wait for room in line.
    pub outside: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// How long the key is held; `None` if it is not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Option<Duration>,
}

impl Snapshot {
    pub(super) fn new(plan: &Plan, now: Instant, outside: usize, snapshot: engine::Snapshot) -> Self {
        let engine::Snapshot { waiting, in_flight, keys, held_until, next_wake, lanes, rules, endpoints, differences } =
            snapshot;
        let lanes = plan.lanes.iter().zip(lanes).map(|(plan, lane)| {
            let engine::LaneSnapshot { waiting, in_flight, bypassed } = lane;
            LaneSnapshot { name: plan.name.to_string(), priority: plan.priority, waiting, in_flight, bypassed }
        });
        let rules = plan.rules.iter().zip(rules).map(|(plan, rule)| {
            let engine::RuleSnapshot { waiting, in_flight, held_until, paused } = rule;
            RuleSnapshot { name: plan.name.to_string(), waiting, in_flight, held: span(now, held_until), paused }
        });
        Self {
            waiting,
            outside,
            in_flight,
            keys,
            held: span(now, held_until),
            next_wake: span(now, next_wake),
            lanes: lanes.collect(),
            rules: rules.collect(),
            differences: differences.iter().map(LimitDifference::from).collect(),
            endpoints: endpoints.into_iter().map(|endpoint| EndpointSnapshot::new(now, &endpoint)).collect(),
        }
    }
}

impl EndpointSnapshot {
    fn new(now: Instant, snapshot: &engine::EndpointSnapshot) -> Self {
        Self {
            name: snapshot.name.to_string(),
            in_flight: snapshot.in_flight as usize,
            starts: snapshot.starts,
            held: span(now, snapshot.held_until),
            breaker: match snapshot.breaker {
                BreakerState::Closed => BreakerSnapshot::Closed,
                BreakerState::Open { until } => BreakerSnapshot::Open(until.since(now).into()),
                BreakerState::HalfOpen => BreakerSnapshot::HalfOpen,
            },
            disabled: snapshot.disabled,
            latency: snapshot.latency.map(Into::into),
        }
    }
}

impl KeySnapshot {
    pub(super) fn new(now: Instant, outside: usize, snapshot: &engine::KeySnapshot) -> Self {
        let engine::KeySnapshot { waiting, in_flight, held_until } = *snapshot;
        Self { waiting, outside, in_flight, held: span(now, held_until) }
    }
}

fn span(now: Instant, until: Option<Instant>) -> Option<Duration> {
    until.map(|instant| instant.since(now).into())
}

/// The same where there is one.
#[cfg(feature = "serde")]
fn plain_seconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

/// A span as seconds with fractions.
#[cfg(feature = "serde")]
#[expect(clippy::ref_option, reason = "serde hands over the field")]
fn seconds<S: serde::Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&span.map(|span| span.as_secs_f64()), serializer)
}
