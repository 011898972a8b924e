//! A run, start by start.

use std::sync::Arc;
use std::time::Duration;

use super::policy::Policy;
use super::setup::Setup;
use super::world::Log;
use crate::engine::Instant;
use crate::rules::Rules;
use crate::verify::{Fill, Start, fills};

/// What became of one run: every start, and how full the limits were.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// The scenario's title, with that of its variant.
    pub scenario: String,
    /// Who balanced.
    pub policy: Policy,
    /// When the run ended, since its beginning.
    pub end: Duration,
    /// The names of the rules' lanes, the most urgent first.
    pub lanes: Vec<Arc<str>>,
    rules: Rules,
    starts: Vec<Recorded>,
}

/// One start of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// When, under which rule, of which key, at what cost, where; instants since the beginning of the run.
    pub start: Start,
    /// The position of its rule's lane in [`Record::lanes`].
    pub lane: usize,
    /// How long after its arrival it started. `None`: the server had refused it before.
    pub waited: Option<Duration>,
}

impl Record {
    pub(super) fn new(setup: &Setup, policy: Policy, log: &Log) -> Self {
        let plan = setup.rules.plan();
        let names: Vec<&str> = setup.rules.endpoints().collect();
        let starts = log.starts.iter().map(|start| {
            let call = log.calls[start.call as usize];
            let rule = &plan.rules[usize::from(setup.traffic[usize::from(call.traffic)].rule.0)];
            let mut begun = Start::new(since_zero(start.at), &*rule.name, call.key).cost(call.cost.requests);
            for (unit, &cost) in setup.rules.units().zip(call.cost.units()) {
                begun = begun.units(unit, cost);
            }
            if let Some(endpoint) = start.endpoint {
                begun = begun.on(names[usize::from(endpoint.0)]);
            }
            if start.answered != Instant::NEVER {
                begun = begun.end(since_zero(start.answered));
            }
            begun.again = start.again.map(since_zero);
            let is_first = log.first[start.call as usize] == start.at;
            let waited = is_first.then(|| start.at.since(call.at).into());
            Recorded { start: begun, lane: rule.lane, waited }
        });
        Self {
            scenario: setup.title.clone(),
            policy,
            end: since_zero(log.end),
            lanes: plan.lanes.iter().map(|lane| Arc::clone(&lane.name)).collect(),
            rules: setup.rules.clone(),
            starts: starts.collect(),
        }
    }

    /// All starts, in order.
    #[must_use]
    pub fn starts(&self) -> &[Recorded] {
        &self.starts
    }

    /// The rules of the run.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How full each window and each cap of the rules was, over `columns` stretches of the run that are equally long.
    ///
    /// ```
    /// use request_balancer::sim::{Policy, Scenario};
    ///
    /// let record = Scenario::from_file("examples/scenarios/one-key.toml")?.record(Policy::Balancer);
    /// let [fill] = &record.fills(49)[..] else { panic!("there is one limit") };
    /// assert_eq!((fill.limit.as_str(), fill.allowed), ("rules.group.per_key", 20));
    /// // 2,940 s are 49 windows, each of which is full.
    /// assert!(fill.most.iter().all(|&most| most == 20));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn fills(&self, columns: usize) -> Vec<Fill> {
        let starts: Vec<&Start> = self.starts.iter().map(|recorded| &recorded.start).collect();
        fills(&self.rules, &starts, self.end, columns)
    }
}

fn since_zero(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}
