//! Lanes: who is gone past, who should have waited, and whether anybody waits for nothing.

use std::collections::BTreeMap;

use super::{Of, Run};
use crate::engine::{Instant, Nanos};
use crate::sim::cost::Cost;
use crate::sim::measure::Value;
use crate::sim::meter::Room;
use crate::sim::policy::Limiters;

/// How many queues of each group could start something, start by start.
struct Active {
    /// Since when, sorted, of each group.
    since: Vec<Vec<Instant>>,
    /// When those that no start ended were over, sorted.
    over: Vec<Vec<Instant>>,
    opened: Vec<usize>,
    closed: Vec<usize>,
    ended: Vec<usize>,
}

impl Active {
    /// `group` of a rule, below `groups`.
    fn new(run: &Run<'_>, groups: usize, group: impl Fn(u16) -> usize) -> Self {
        let ready = run.ready();
        let (mut since, mut over) = (vec![Vec::new(); groups], vec![Vec::new(); groups]);
        for (start, &at) in run.log.starts.iter().zip(&ready.since) {
            since[group(run.rule(start.call))].push(at);
        }
        for idle in &ready.never {
            let group = group(ready.queues[idle.queue as usize].0);
            since[group].push(idle.from);
            over[group].push(idle.until);
        }
        since.iter_mut().chain(&mut over).for_each(|instants| instants.sort_unstable());
        Self { since, over, opened: vec![0; groups], closed: vec![0; groups], ended: vec![0; groups] }
    }

    /// How many could start something just before the next start, which is at `at`.
    fn count(&mut self, group: usize, at: Instant) -> usize {
        let opened = &mut self.opened[group];
        *opened += self.since[group][*opened..].partition_point(|&since| since <= at);
        let ended = &mut self.ended[group];
        *ended += self.over[group][*ended..].partition_point(|&over| over < at);
        opened.saturating_sub(self.closed[group] + *ended)
    }

    /// The first time after `at` that another one could.
    fn next(&self, group: usize) -> Option<Instant> {
        self.since[group].get(self.opened[group]).copied()
    }

    fn start(&mut self, group: usize) {
        self.closed[group] += 1;
    }
}

/// The most starts in a row that went past the lane of some traffic while it had something ready.
pub(super) fn bypass(run: &Run<'_>, of: Of) -> Option<Value> {
    let plan = run.setup.rules.plan();
    let lane = |rule: u16| plan.rules[usize::from(rule)].lane;
    let own = lane(run.setup.traffic[usize::from(of?)].rule.0);
    let mut active = Active::new(run, plan.lanes.len(), lane);
    let (mut current, mut most) = (0_u64, 0);
    for start in &run.log.starts {
        let of = lane(run.rule(start.call));
        let ready = active.count(own, start.at) > 0;
        current = if of == own || !ready { 0 } else { current + 1 };
        most = most.max(current);
        active.start(of);
    }
    Some(Value::Count(most))
}

/// Starts of a lane while a more urgent one had something ready.
pub(super) fn inversions(run: &Run<'_>) -> Value {
    let plan = run.setup.rules.plan();
    let lane = |rule: u16| plan.rules[usize::from(rule)].lane;
    let mut active = Active::new(run, plan.lanes.len(), lane);
    let mut inversions = 0;
    for start in &run.log.starts {
        let of = lane(run.rule(start.call));
        inversions += u64::from((0..of).any(|urgent| active.count(urgent, start.at) > 0));
        // All are counted up to here, so that none is behind.
        active.count(of, start.at);
        active.start(of);
    }
    Value::Count(inversions)
}

/// How long a rule of the top lane, which nothing paces, had something ready and shared limits with room. Nothing where
/// there is a pool: whether an endpoint would have been of use is not in the log.
pub(super) fn idle_while_ready(run: &Run<'_>) -> Option<Value> {
    let plan = run.setup.rules.plan();
    if plan.pool.is_some() {
        return None;
    }
    let mut answered: Vec<(Instant, u32)> =
        (0..).zip(&run.log.starts).map(|(index, start)| (start.answered, index)).collect();
    answered.sort_unstable();
    let mut worst = None;
    for rule in (0..plan.rules.len()).filter(|&rule| plan.rules[rule].lane == 0) {
        let mut active = Active::new(run, plan.rules.len(), usize::from);
        let mut limiters = Limiters::new(&run.setup.rules);
        let (mut idle, mut ends) = (Nanos::ZERO, 0);
        let mut before = Instant::ZERO;
        let mut was_ready = false;
        for start in &run.log.starts {
            while let Some(&(at, of)) = answered.get(ends)
                && at < start.at
            {
                let call = run.log.starts[of as usize].call;
                let what = run.log.calls[call as usize];
                limiters.end(at, run.rule(call), what.key, what.cost);
                ends += 1;
            }
            let since = if was_ready { Some(before) } else { active.next(rule).map(|at| at.max(before)) };
            if let (Some(since), Room::At(opens)) = (since, limiters.shared_room(before, rule as u16, Cost::ONE)) {
                idle = idle.saturating_add(start.at.since(since.max(opens)));
            }
            active.count(rule, start.at);
            let of = run.rule(start.call);
            let call = run.log.calls[start.call as usize];
            limiters.start(start.at, of, call.key, call.cost);
            active.start(usize::from(of));
            was_ready = active.count(rule, start.at) > 0;
            before = start.at;
        }
        worst = worst.max(Some(idle));
    }
    worst.map(Value::Time)
}

/// The most starts of one key under other rules that went past a call of some traffic.
pub(super) fn key_bypass(run: &Run<'_>, of: Of) -> Option<Value> {
    let of = of?;
    let mut starts: BTreeMap<u32, Vec<(Instant, u16)>> = BTreeMap::new();
    for start in &run.log.starts {
        starts.entry(run.log.calls[start.call as usize].key).or_default().push((start.at, run.rule(start.call)));
    }
    let of_traffic = run.log.calls.iter().zip(&run.log.first).filter(|(call, _)| call.traffic == of);
    let rule = run.setup.traffic[usize::from(of)].rule.0;
    let past = of_traffic.map(|(call, &first)| {
        let of_key = starts.get(&call.key).map_or(&[][..], Vec::as_slice);
        let meanwhile = of_key.iter().filter(|&&(at, other)| other != rule && at > call.at && at < first);
        meanwhile.count() as u64
    });
    past.max().map(Value::Count)
}
