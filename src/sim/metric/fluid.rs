//! The fluid schedule: all queues that have work are served at once, each by its weight, none faster than its own limits
//! let it and all together as fast as the shared ones and all endpoints do. It is what turns of whole calls come near to.

use std::collections::{BTreeMap, BTreeSet};

use super::Run;
use crate::engine::{Charge, EndpointPlan, Instant, LimitKind, LimitSpec, Nanos, Plan};
use crate::sim::measure::{Value, WHOLE};

/// Billionths of a request.
type Work = u128;

const REQUEST: Work = 1_000_000_000;

/// Queues with the same weight and the same limits: while they have work all get the same.
#[derive(Debug)]
struct Class {
    weight: u128,
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

impl Fluid {
    /// `None`: nothing limits all together, so there are no shares.
    fn new(run: &Run<'_>) -> Option<Self> {
        let plan = run.setup.rules.plan();
        let shared = |rule: u16| {
            let bound = plan.rules[usize::from(rule)].shared.iter();
            bound.map(|bound| &plan.shared_limits[bound.limit]).collect::<Vec<_>>()
        };
        let all = rate(run.setup.traffic.iter().flat_map(|traffic| shared(traffic.rule.0)), plan.fair_by);
        let all = slower(all, rate_of_pool(&plan, |endpoint| &endpoint.limits))?;
        let key_in_pool = rate_of_pool(&plan, |endpoint| &endpoint.key_limits);
        let mut known: BTreeMap<(u128, Option<u128>), usize> = BTreeMap::new();
        let mut classes = Vec::new();
        let queues = &run.ready().queues;
        let of_queue = queues.iter().map(|&(rule, _)| {
            let rule = &plan.rules[usize::from(rule)];
            let key = rule.key.iter().map(|bound| &plan.key_limits[bound.limit]);
            let weight = u128::from(rule.weight);
            let most = slower(rate(rule.own.iter().chain(key), plan.fair_by), key_in_pool);
            *known.entry((weight, most)).or_insert_with(|| {
                classes.push(Class { weight, most, service: 0, active: BTreeSet::new() });
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

    /// Shares the rate out: whoever is limited to less than his share leaves the rest to the others.
    fn share(&mut self) {
        let mut open: Vec<usize> = (0..self.classes.len()).filter(|&at| !self.classes[at].active.is_empty()).collect();
        let classes = &self.classes;
        open.sort_by_key(|&at| (classes[at].most.is_none(), classes[at].most.unwrap_or(0) / classes[at].weight));
        let mut rest = self.rate;
        let mut weights: u128 = open.iter().map(|&at| classes[at].weight * classes[at].active.len() as u128).sum();
        self.rates.fill(0);
        for at in open {
            let class = &self.classes[at];
            let queues = class.active.len() as u128;
            let fair = rest * class.weight / weights.max(1);
            let rate = class.most.map_or(fair, |most| most.min(fair));
            self.rates[at] = rate;
            rest = rest.saturating_sub(rate * queues);
            weights -= class.weight * queues;
        }
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

/// What happens, in order: arrivals before starts of the same instant.
fn events(run: &Run<'_>) -> Vec<(Instant, Option<u32>, u32)> {
    let arrivals = (0..).zip(&run.log.calls).map(|(index, call)| (call.at, None, index));
    let starts = (0..).zip(&run.log.starts).map(|(index, start)| (start.at, Some(index), start.call));
    let withdrawn: Vec<u32> = run.log.withdrawn.iter().map(|&(call, _)| call).collect();
    let mut events: Vec<_> = arrivals
        .chain(starts)
        .filter(|(_, start, call)| start.is_some() || withdrawn.binary_search(call).is_err())
        .collect();
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
    let all = run.log.first.iter().filter(|&&at| at != Instant::NEVER).count() + run.log.withdrawn.len();
    if all < run.log.calls.len() {
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
