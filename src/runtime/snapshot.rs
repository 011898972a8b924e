//! The state of a balancer in numbers.

use std::time::Duration;

use crate::engine::{self, Instant, Plan};

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
    /// Attempts that run.
    pub in_flight: usize,
    /// How long the key is held; `None` if it is not.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Option<Duration>,
}

impl Snapshot {
    pub(super) fn new(plan: &Plan, now: Instant, snapshot: engine::Snapshot) -> Self {
        let engine::Snapshot { waiting, in_flight, keys, held_until, next_wake, lanes, rules } = snapshot;
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
            in_flight,
            keys,
            held: span(now, held_until),
            next_wake: span(now, next_wake),
            lanes: lanes.collect(),
            rules: rules.collect(),
        }
    }
}

impl KeySnapshot {
    pub(super) fn new(now: Instant, snapshot: &engine::KeySnapshot) -> Self {
        let engine::KeySnapshot { waiting, in_flight, held_until } = *snapshot;
        Self { waiting, in_flight, held: span(now, held_until) }
    }
}

fn span(now: Instant, until: Option<Instant>) -> Option<Duration> {
    until.map(|instant| instant.since(now).into())
}

/// A span as seconds with fractions.
#[cfg(feature = "serde")]
#[expect(clippy::ref_option, reason = "serde hands over the field")]
fn seconds<S: serde::Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&span.map(|span| span.as_secs_f64()), serializer)
}
