//! The fluid schedule: all queues that have work are served at once, each by its weight, none faster than its own limits
//! let it and all together as fast as the shared ones and all endpoints do. It is what turns of whole calls come near to.

use std::collections::{BTreeMap, BTreeSet};

use super::Run;
use crate::engine::{Charge, EndpointPlan, Instant, LimitKind, LimitSpec, Nanos, Plan};
use crate::sim::measure::{Value, WHOLE};
use crate::sim::own::OwnNumbers;
use crate::sim::world::Start;

/// Billionths of a request.
type Work = u128;

const REQUEST: Work = 1_000_000_000;

/// Queues with the same weight and the same limits: while they have work all get the same.
#[derive(Debug)]
struct Class {
    weight: u128,
    /// Limits that they share with some others, by position in [`Fluid::groups`].
    groups: Vec<usize>,
    /// Billionths of a request in a second; `None`: any.
    most: Option<u128>,
    /// What each queue of the class would have had if it had always had work.
    service: Work,
    /// Queues with work, by the `service` at which they have none.
    active: BTreeSet<(Work, u32)>,
}

#[derive(Debug)]
struct Fluid {
    classes: Vec<Class>,
    of_queue: Vec<usize>,
    drained_at: Vec<Work>,
    arrived: Vec<Work>,
    rate: u128,
    /// The rates of limits that some share and not all, the narrowest first.
    groups: Vec<u128>,
    now: Instant,
    rates: Vec<u128>,
}

/// The lowest rate of limits, those left out that count something else than turns do.
fn rate<'s>(specs: impl Iterator<Item = &'s LimitSpec>, fair_by: Charge) -> Option<u128> {
    let per_second = |count: u32, period: Nanos| {
        (!period.is_zero()).then(|| u128::from(count) * REQUEST * 1_000_000_000 / u128::from(period.get()))
    };
    let rates = specs.filter(|spec| spec.charge == fair_by).filter_map(|spec| match spec.kind {
        LimitKind::Window { count, period, .. } => per_second(count, period),
        LimitKind::Spaced { interval, .. } | LimitKind::Bucket { interval, .. } => per_second(1, interval),
        LimitKind::Calendar { count, .. } => per_second(count, Nanos::from_secs(86_400)),
    });
    rates.min()
}

/// What all endpoints together have; `None`: any, or there is no pool.
fn rate_of_pool(plan: &Plan, limits: impl Fn(&EndpointPlan) -> &[LimitSpec]) -> Option<u128> {
    let mut endpoints = plan.pool.as_ref()?.endpoints.iter();
    endpoints.try_fold(0, |sum: u128, endpoint| Some(sum + rate(limits(endpoint).iter(), plan.fair_by)?))
}

/// The lower one of two rates, of which each may be any.
fn slower(one: Option<u128>, other: Option<u128>) -> Option<u128> {
    [one, other].into_iter().flatten().min()
}

/// The limits that some rules share and not all, and their rates, those of the fewest rules first.
fn groups(plan: &Plan, by_all: &[usize]) -> (Vec<usize>, Vec<u128>) {
    let shared_by =
        |limit: usize| plan.rules.iter().filter(|rule| rule.shared.iter().any(|of| of.limit == limit)).count();
    let of_some = (0..plan.shared_limits.len()).filter(|limit| !by_all.contains(limit));
    let rates = of_some.filter_map(|limit| {
        let rate = rate(std::iter::once(&plan.shared_limits[limit]), plan.fair_by)?;
        Some((shared_by(limit), limit, rate))
    });
    let mut rates: Vec<_> = rates.collect();
    rates.sort_unstable();
    rates.into_iter().map(|(_, limit, rate)| (limit, rate)).unzip()
}

impl Fluid {
    /// `None`: nothing limits all together, so there are no shares.
    fn new(run: &Run<'_>) -> Option<Self> {
        let plan = run.setup.rules.plan();
        let numbers = OwnNumbers::new(&run.setup.rules);
        let by_all = run.shared_by_all(&plan);
        let all = rate(by_all.iter().map(|&limit| &plan.shared_limits[limit]), plan.fair_by);
        let all = slower(all, rate_of_pool(&plan, |endpoint| &endpoint.limits))?;
        let (limits, groups) = groups(&plan, &by_all);
        let groups_of = |rule: u16| -> Vec<usize> {
            let shared = &plan.rules[usize::from(rule)].shared;
            (0..limits.len()).filter(|&at| shared.iter().any(|bound| bound.limit == limits[at])).collect()
        };
        let key_in_pool = rate_of_pool(&plan, |endpoint| &endpoint.key_limits);
        let mut known: BTreeMap<(u128, Option<u128>, Vec<usize>), usize> = BTreeMap::new();
        let mut classes = Vec::new();
        let queues = &run.ready().queues;
        let of_queue = queues.iter().map(|&(id, key)| {
            let rule = &plan.rules[usize::from(id)];
            let shared = rule.key.iter().map(|bound| &plan.key_limits[bound.limit]);
            let weight = u128::from(rule.weight);
            let most = rate(numbers.of(&plan, id, key).iter().chain(shared), plan.fair_by);
            let (most, groups) = (slower(most, key_in_pool), groups_of(id));
            *known.entry((weight, most, groups.clone())).or_insert_with(|| {
                classes.push(Class { weight, groups, most, service: 0, active: BTreeSet::new() });
                classes.len() - 1
            })
        });
        let of_queue: Vec<usize> = of_queue.collect();
        Some(Self {
            drained_at: vec![0; of_queue.len()],
            arrived: vec![0; of_queue.len()],
            rates: vec![0; classes.len()],
            of_queue,
            classes,
            rate: all,
            groups,
            now: Instant::ZERO,
        })
    }

    fn arrive(&mut self, queue: u32, cost: u32) {
        let index = queue as usize;
        let class = &mut self.classes[self.of_queue[index]];
        let work = Work::from(cost) * REQUEST;
        let drained = self.drained_at[index];
        let was_active = class.active.remove(&(drained, queue));
        let from = if was_active { drained } else { class.service };
        self.arrived[index] += work;
        self.drained_at[index] = from + work;
        class.active.insert((from + work, queue));
        self.share();
    }

    /// What a queue has had.
    fn served(&self, queue: u32) -> Work {
        let index = queue as usize;
        let left = self.drained_at[index].saturating_sub(self.classes[self.of_queue[index]].service);
        self.arrived[index].saturating_sub(left)
    }

    /// Shares the rate out. Who shares a narrower limit with some gets no more than his part of that.
    fn share(&mut self) {
        let mut most: Vec<Option<u128>> = self.classes.iter().map(|class| class.most).collect();
        for (group, &rate) in self.groups.iter().enumerate() {
            for (at, part) in self.parts(rate, |class| class.groups.contains(&group), &most) {
                most[at] = Some(part);
            }
        }
        self.rates.fill(0);
        for (at, part) in self.parts(self.rate, |_| true, &most) {
            self.rates[at] = part;
        }
    }

    /// What each queue of some classes gets of a rate: whoever is limited to less than his share leaves the rest to the
    /// others.
    fn parts(&self, rate: u128, of: impl Fn(&Class) -> bool, most: &[Option<u128>]) -> Vec<(usize, u128)> {
        let classes = &self.classes;
        let is_open = |at: &usize| !classes[*at].active.is_empty() && of(&classes[*at]);
        let mut open: Vec<usize> = (0..classes.len()).filter(is_open).collect();
        open.sort_by_key(|&at| (most[at].is_none(), most[at].unwrap_or(0) / classes[at].weight));
        let mut rest = rate;
        let mut weights: u128 = open.iter().map(|&at| classes[at].weight * classes[at].active.len() as u128).sum();
        let parts = open.into_iter().map(|at| {
            let (class, queues) = (&classes[at], classes[at].active.len() as u128);
            let fair = rest * class.weight / weights.max(1);
            let part = most[at].map_or(fair, |most| most.min(fair));
            rest = rest.saturating_sub(part * queues);
            weights -= class.weight * queues;
            (at, part)
        });
        parts.collect()
    }

    fn advance(&mut self, to: Instant) {
        const SECOND: u128 = 1_000_000_000;
        while self.now < to {
            let mut span = u128::from(to.since(self.now).get());
            for (class, &rate) in self.classes.iter().zip(&self.rates) {
                if let Some(&(drained, _)) = class.active.first()
                    && rate > 0
                {
                    span = span.min(((drained - class.service) * SECOND).div_ceil(rate));
                }
            }
            if to == Instant::NEVER && self.classes.iter().all(|class| class.active.is_empty()) {
                return;
            }
            let mut drained = false;
            for (class, &rate) in self.classes.iter_mut().zip(&self.rates) {
                class.service += rate * span / SECOND;
                // What the division cut off is not worth another step.
                while let Some(&(at, queue)) = class.active.first()
                    && at <= class.service + 1
                {
                    class.active.remove(&(at, queue));
                    drained = true;
                }
            }
            self.now = self.now.saturating_add(Nanos::new(u64::try_from(span.max(1)).unwrap_or(u64::MAX)));
            if drained {
                self.share();
            }
        }
    }
}

/// What happens, in order: arrivals before starts of the same instant. A call that the server refuses is served once.
fn events(run: &Run<'_>) -> Vec<(Instant, Option<u32>, u32)> {
    let arrivals = (0..).zip(&run.log.calls).map(|(index, call)| (call.at, None, index));
    let is_first = |start: &Start| run.log.first[start.call as usize] == start.at;
    let starts = (0..).zip(run.log.starts.iter().filter(|start| is_first(start)));
    let starts = starts.map(|(index, start)| (start.at, Some(index), start.call));
    let is_meant = |(_, _, call): &(Instant, Option<u32>, u32)| !run.log.left_unserved(*call);
    let mut events: Vec<_> = arrivals.chain(starts).filter(is_meant).collect();
    events.sort_unstable();
    events
}

fn in_millionths(work: Work) -> u64 {
    u64::try_from(work * Work::from(WHOLE) / REQUEST).unwrap_or(u64::MAX)
}

/// How far a queue was behind its fluid share at most, and how far ahead.
pub(super) fn lag(run: &Run<'_>) -> Option<(Value, Value)> {
    let mut fluid = Fluid::new(run)?;
    let ready = run.ready();
    let mut served: Vec<Work> = vec![0; ready.queues.len()];
    let (mut lag, mut lead) = (0, 0);
    for (at, start, call) in events(run) {
        fluid.advance(at);
        let queue = ready.queue_of(call);
        let cost = run.turn(call);
        if start.is_none() {
            fluid.arrive(queue, cost);
            continue;
        }
        let (fluid, served) = (fluid.served(queue), &mut served[queue as usize]);
        lag = lag.max(fluid.saturating_sub(*served));
        *served += Work::from(cost) * REQUEST;
        lead = lead.max(served.saturating_sub(fluid));
    }
    fluid.advance(run.log.end);
    for (queue, &served) in (0..).zip(&served) {
        lag = lag.max(fluid.served(queue).saturating_sub(served));
    }
    Some((Value::Ratio(in_millionths(lag)), Value::Ratio(in_millionths(lead))))
}

/// Which part of all service went to others than the fluid schedule would have served, by the end of the run.
pub(super) fn max_min_distance(run: &Run<'_>) -> Option<Value> {
    let mut fluid = Fluid::new(run)?;
    let ready = run.ready();
    let mut served: Vec<Work> = vec![0; ready.queues.len()];
    for (at, start, call) in events(run) {
        fluid.advance(at);
        let queue = ready.queue_of(call);
        let cost = run.turn(call);
        match start {
            None => fluid.arrive(queue, cost),
            Some(_) => served[queue as usize] += Work::from(cost) * REQUEST,
        }
    }
    fluid.advance(run.log.end);
    let fair: Vec<Work> = (0..served.len() as u32).map(|queue| fluid.served(queue)).collect();
    let all: Work = fair.iter().sum();
    let apart: Work = fair.iter().zip(&served).map(|(fair, served)| fair.abs_diff(*served)).sum();
    let share = (apart * Work::from(WHOLE)).checked_div(2 * all)?;
    Some(Value::Share(u64::try_from(share).unwrap_or(u64::MAX)))
}

/// When the fluid schedule is through, by the last start of this one. Nothing if not everything started.
pub(super) fn makespan(run: &Run<'_>) -> Option<Value> {
    let last = run.log.starts.last()?.at;
    if !run.log.all_started() {
        return None;
    }
    let mut fluid = Fluid::new(run)?;
    let ready = run.ready();
    for (at, start, call) in events(run) {
        if start.is_none() {
            fluid.advance(at);
            fluid.arrive(ready.queue_of(call), run.turn(call));
        }
    }
    fluid.advance(Instant::NEVER);
    Some(Value::ratio(fluid.now.as_nanos(), last.as_nanos()))
}
