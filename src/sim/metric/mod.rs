//! What is measured of a run. The formulas are in the documentation of [`crate::sim`].

mod bounds;
mod fluid;
mod lanes;
pub(crate) mod overshoot;
mod ready;
mod shares;
mod waits;

use std::cell::OnceCell;

use self::ready::Ready;
use super::measure::{Aim, Value, WHOLE};
use super::setup::Setup;
use super::world::{Log, Start};
use crate::engine::{Charge, EndpointId, Instant, Nanos, Plan};

/// A metric with everything that it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Started { of: Of, on: On },
    Finished { of: Of },
    FirstService { of: Of },
    LastStart { of: Of, on: On },
    AtOnce { of: Of, on: On },
    Share { of: Of },
    Wait { of: Of, stat: Stat },
    InducedWait { of: Of, stat: Stat },
    InversionTime { of: Of },
    Gap { of: Of },
    RoundOverrun { of: Of },
    KeyBypass { of: Of },
    Jain(Window),
    LeastServed(Window),
    MostServed(Window),
    PairGap { of: Of },
    Lag,
    Lead,
    MaxMinDistance,
    Overshoot { limit: Option<String>, clock: Clock },
    Utilisation,
    Makespan,
    FairMakespan,
    Bypass { of: Of },
    Inversions,
    IdleWhileReady,
    OrderInversions,
    TurnedAway { of: Of },
    Refusals { on: On },
    RefusalsPerSuccess,
}

/// Of which traffic, by position. `None`: of all.
pub(crate) type Of = Option<u16>;

/// Through which endpoint. `None`: through any, or there is no pool.
pub(crate) type On = Option<EndpointId>;

/// What is said of many lengths of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    Mean,
    /// What so many per cent do not exceed.
    P(u8),
    Max,
    /// The 99th percentile of what each key has as its 99th percentile.
    P99OfKeys,
}

/// Some starts in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) of: Of,
    pub(crate) from: Nanos,
    pub(crate) length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A round is one turn of every queue that has work when the window begins, by its weight.
    Rounds(u32),
    Starts(u32),
}

/// Where starts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Starts,
    Server,
}

/// How the numbers of several runs become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Sum,
    Mean,
    Largest,
    Smallest,
}

impl Metric {
    /// A zero in the metric's unit.
    pub(crate) const fn zero(&self) -> Value {
        match self {
            Self::LastStart { .. }
            | Self::FirstService { .. }
            | Self::Wait { .. }
            | Self::InducedWait { .. }
            | Self::InversionTime { .. }
            | Self::Gap { .. }
            | Self::IdleWhileReady => Value::Time(Nanos::ZERO),
            Self::Started { .. }
            | Self::Finished { .. }
            | Self::RoundOverrun { .. }
            | Self::KeyBypass { .. }
            | Self::LeastServed(_)
            | Self::MostServed(_)
            | Self::Overshoot { .. }
            | Self::Bypass { .. }
            | Self::AtOnce { .. }
            | Self::Inversions
            | Self::OrderInversions
            | Self::TurnedAway { .. }
            | Self::Refusals { .. } => Value::Count(0),
            Self::Share { .. } | Self::MaxMinDistance => Value::Share(0),
            Self::Jain(_)
            | Self::PairGap { .. }
            | Self::Lag
            | Self::Lead
            | Self::Utilisation
            | Self::Makespan
            | Self::FairMakespan
            | Self::RefusalsPerSuccess => Value::Ratio(0),
        }
    }

    pub(crate) const fn combine(&self) -> Combine {
        match self {
            Self::Started { .. }
            | Self::Finished { .. }
            | Self::Inversions
            | Self::OrderInversions
            | Self::TurnedAway { .. }
            | Self::Refusals { .. } => Combine::Sum,
            Self::Wait { stat: Stat::Mean, .. }
            | Self::InducedWait { stat: Stat::Mean, .. }
            | Self::InversionTime { .. }
            | Self::Share { .. }
            | Self::RefusalsPerSuccess => Combine::Mean,
            Self::Jain(_) | Self::LeastServed(_) | Self::Utilisation | Self::Makespan | Self::FairMakespan => {
                Combine::Smallest
            }
            Self::LastStart { .. }
            | Self::FirstService { .. }
            | Self::Wait { .. }
            | Self::InducedWait { .. }
            | Self::Gap { .. }
            | Self::RoundOverrun { .. }
            | Self::KeyBypass { .. }
            | Self::MostServed(_)
            | Self::PairGap { .. }
            | Self::Lag
            | Self::Lead
            | Self::MaxMinDistance
            | Self::Overshoot { .. }
            | Self::AtOnce { .. }
            | Self::Bypass { .. }
            | Self::IdleWhileReady => Combine::Largest,
        }
    }

    /// Which numbers are better.
    pub(crate) const fn aim(&self) -> Aim {
        match self {
            Self::Started { .. }
            | Self::Finished { .. }
            | Self::Jain(_)
            | Self::LeastServed(_)
            | Self::Utilisation
            | Self::Makespan
            | Self::FairMakespan => Aim::Most,
            Self::Share { .. } => Aim::Exactly,
            Self::LastStart { .. }
            | Self::FirstService { .. }
            | Self::AtOnce { .. }
            | Self::Wait { .. }
            | Self::InducedWait { .. }
            | Self::InversionTime { .. }
            | Self::Gap { .. }
            | Self::RoundOverrun { .. }
            | Self::KeyBypass { .. }
            | Self::MostServed(_)
            | Self::PairGap { .. }
            | Self::Lag
            | Self::Lead
            | Self::MaxMinDistance
            | Self::Overshoot { .. }
            | Self::Bypass { .. }
            | Self::Inversions
            | Self::IdleWhileReady
            | Self::OrderInversions
            | Self::TurnedAway { .. }
            | Self::Refusals { .. }
            | Self::RefusalsPerSuccess => Aim::Least,
        }
    }

    /// What theory allows at best, where that does not depend on the scenario.
    pub(crate) const fn best(&self) -> Option<Value> {
        match self {
            Self::Overshoot { .. }
            | Self::OrderInversions
            | Self::TurnedAway { .. }
            | Self::Refusals { .. }
            | Self::RoundOverrun { .. } => Some(Value::Count(0)),
            Self::IdleWhileReady => Some(Value::Time(Nanos::ZERO)),
            Self::RefusalsPerSuccess => Some(Value::Ratio(0)),
            Self::MaxMinDistance => Some(Value::Share(0)),
            Self::Jain(_) | Self::Utilisation | Self::Makespan => Some(Value::Ratio(WHOLE)),
            Self::Started { .. }
            | Self::Finished { .. }
            | Self::FirstService { .. }
            | Self::LastStart { .. }
            | Self::Share { .. }
            | Self::Wait { .. }
            | Self::InducedWait { .. }
            | Self::InversionTime { .. }
            | Self::Gap { .. }
            | Self::KeyBypass { .. }
            | Self::LeastServed(_)
            | Self::MostServed(_)
            | Self::PairGap { .. }
            | Self::FairMakespan
            | Self::Lag
            | Self::Lead
            | Self::AtOnce { .. }
            | Self::Bypass { .. }
            | Self::Inversions => None,
        }
    }

    /// `None` where there is nothing to measure.
    pub(crate) fn of(&self, run: &Run<'_>) -> Option<Value> {
        match *self {
            Self::Started { of, on } => {
                Some(Value::Count(run.first_starts(of).filter(|start| start.is_on(on)).count() as u64))
            }
            Self::Finished { of } => {
                let of_traffic = |&&call: &&u32| of.is_none_or(|of| run.log.calls[call as usize].traffic == of);
                Some(Value::Count(run.log.done.iter().filter(of_traffic).count() as u64))
            }
            Self::FirstService { of } => waits::first_service(run, of),
            Self::LastStart { of, on } => {
                let last = run.starts_of(of).filter(|start| start.is_on(on)).last();
                last.map(|start| Value::Time(start.at.since(Instant::ZERO)))
            }
            Self::AtOnce { of, on } => Some(Value::Count(overshoot::at_once(run.starts_of(of), on))),
            Self::Share { of } => Some(Value::share(run.starts_of(of).count() as u64, run.log.starts.len() as u64)),
            Self::Wait { of, stat } => waits::wait(run, of, stat),
            Self::InducedWait { of, stat } => waits::induced(run, of, stat),
            Self::InversionTime { of } => waits::inversion_time(run, of),
            Self::Gap { of } => waits::gap(run, of),
            Self::RoundOverrun { of } => shares::round_overrun(run, of),
            Self::KeyBypass { of } => lanes::key_bypass(run, of),
            Self::Jain(window) => shares::jain(run, window),
            Self::LeastServed(window) => shares::served(run, window).into_iter().min().map(Value::Count),
            Self::MostServed(window) => shares::served(run, window).into_iter().max().map(Value::Count),
            Self::PairGap { of } => shares::pair_gap(run, of),
            Self::Lag => fluid::lag(run).map(|(lag, _)| lag),
            Self::Lead => fluid::lag(run).map(|(_, lead)| lead),
            Self::MaxMinDistance => fluid::max_min_distance(run),
            Self::Overshoot { ref limit, clock } => overshoot::most(run, limit.as_deref(), clock),
            Self::Utilisation => bounds::utilisation(run),
            Self::Makespan => bounds::makespan(run),
            Self::FairMakespan => fluid::makespan(run),
            Self::Bypass { of } => lanes::bypass(run, of),
            Self::Inversions => Some(lanes::inversions(run)),
            Self::IdleWhileReady => lanes::idle_while_ready(run),
            Self::OrderInversions => Some(waits::order_inversions(run)),
            Self::TurnedAway { of } => Some(waits::turned_away(run, of)),
            Self::Refusals { on } => {
                let refused = |start: &&Start| start.again.is_some() && start.is_on(on);
                Some(Value::Count(run.log.starts.iter().filter(refused).count() as u64))
            }
            Self::RefusalsPerSuccess => {
                let done = run.log.done.len() as u64;
                (done > 0).then(|| Value::ratio(run.log.refusals, done))
            }
        }
    }
}

/// A run, and what several metrics want to know of it.
pub(crate) struct Run<'r> {
    pub(crate) setup: &'r Setup,
    pub(crate) log: &'r Log,
    /// What turns are measured in.
    fair_by: Charge,
    ready: OnceCell<Ready>,
    /// Runs the scenario again without the traffic of lanes below that of some traffic.
    pub(crate) without_below: &'r dyn Fn(u16) -> (Setup, Log),
}

impl<'r> Run<'r> {
    pub(crate) fn new(setup: &'r Setup, log: &'r Log, without_below: &'r dyn Fn(u16) -> (Setup, Log)) -> Self {
        Self { setup, log, fair_by: setup.rules.plan().fair_by, ready: OnceCell::new(), without_below }
    }

    fn ready(&self) -> &Ready {
        self.ready.get_or_init(|| Ready::new(self.setup, self.log))
    }

    /// The limits over all keys that bind every rule which is called, by position in the plan.
    fn shared_by_all(&self, plan: &Plan) -> Vec<usize> {
        let rules = || self.setup.traffic.iter().map(|traffic| &plan.rules[usize::from(traffic.rule.0)]);
        let by_all = |limit: &usize| rules().all(|rule| rule.shared.iter().any(|bound| bound.limit == *limit));
        (0..plan.shared_limits.len()).filter(by_all).collect()
    }

    fn traffic(&self, start: &Start) -> u16 {
        self.log.calls[start.call as usize].traffic
    }

    /// What a call takes of a turn.
    fn turn(&self, call: u32) -> u32 {
        self.log.calls[call as usize].cost.of_turn(self.fair_by)
    }

    fn rule(&self, call: u32) -> u16 {
        self.setup.traffic[usize::from(self.log.calls[call as usize].traffic)].rule.0
    }

    /// The starts of some traffic.
    fn starts_of(&self, of: Of) -> impl Iterator<Item = &'r Start> {
        self.log.starts.iter().filter(move |start| of.is_none_or(|of| self.traffic(start) == of))
    }

    /// The calls of some traffic that started, repeated attempts left out.
    fn first_starts(&self, of: Of) -> impl Iterator<Item = &'r Start> {
        self.starts_of(of).filter(|start| self.log.first[start.call as usize] == start.at)
    }
}
