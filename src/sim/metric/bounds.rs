//! Bounds that no schedule can beat: each queue alone with the limits of its key, and all together with the shared ones and
//! those of all endpoints.

use std::collections::BTreeMap;

use super::Run;
use crate::engine::{Anchor, EndpointPlan, Instant, LimitKind, LimitSpec, Nanos, Plan};
use crate::sim::cost::Cost;
use crate::sim::measure::Value;
use crate::sim::meter::{self, Meter, Room};

/// What one line gets through in time: cost by the end, and when the last one starts.
struct Alone {
    by_end: u64,
    last: Instant,
}

/// Calls in order of arrival through limits, each as early as it can.
fn alone(specs: &[&LimitSpec], calls: impl Iterator<Item = (Instant, Cost)>, end: Instant) -> Alone {
    let mut meters: Vec<_> = specs.iter().map(|spec| Meter::new(spec)).collect();
    let mut alone = Alone { by_end: 0, last: Instant::ZERO };
    for (at, cost) in calls {
        let from = at.max(alone.last);
        let Room::At(at) = meter::room(&mut meters, from, cost) else { break };
        for meter in &mut meters {
            meter.start(at, cost);
            // An attempt takes no time here: no schedule is earlier for that.
            meter.end(at, cost);
        }
        alone.last = at;
        if at < end {
            alone.by_end += u64::from(cost.requests);
        }
    }
    alone
}

/// The bound for each queue alone, and that for all of them under the limits that all rules share.
fn bounds(run: &Run<'_>) -> (u64, Instant) {
    let plan = run.setup.rules.plan();
    // A run that was cut starts nothing at its end; one that ran out may have.
    let cut = run.log.end == Instant::ZERO.saturating_add(run.setup.until);
    let ready_until = run.log.end.saturating_add(Nanos::new(u64::from(!cut)));
    let mut order: Vec<u32> = (0..run.log.calls.len() as u32).collect();
    order.sort_by_key(|&index| run.log.calls[index as usize].at);
    let withdrawn: Vec<u32> = run.log.withdrawn.iter().map(|&(call, _)| call).collect();
    order.retain(|index| withdrawn.binary_search(index).is_err());
    let mut queues: BTreeMap<(u16, u32), Vec<(Instant, Cost)>> = BTreeMap::new();
    for &index in &order {
        let call = run.log.calls[index as usize];
        queues.entry((run.rule(index), call.key)).or_default().push((call.at, call.cost));
    }
    let key_in_pool = of_pool(&plan, |endpoint| &endpoint.key_limits);
    let (mut sum, mut last) = (0_u64, Instant::ZERO);
    for ((rule, _), calls) in queues {
        let rule = &plan.rules[usize::from(rule)];
        let key = rule.key.iter().map(|bound| &plan.key_limits[bound.limit]);
        let specs: Vec<_> = rule.own.iter().chain(key).chain(&key_in_pool).collect();
        let queue = alone(&specs, calls.into_iter(), ready_until);
        sum += queue.by_end;
        last = last.max(queue.last);
    }
    let pool = of_pool(&plan, |endpoint| &endpoint.limits);
    let specs: Vec<_> = shared_by_all(run, &plan).into_iter().chain(&pool).collect();
    let calls = order.iter().map(|&index| run.log.calls[index as usize]).map(|call| (call.at, call.cost));
    let all = alone(&specs, calls, ready_until);
    (sum.min(all.by_end), last.max(all.last))
}

fn shared_by_all<'p>(run: &Run<'_>, plan: &'p Plan) -> Vec<&'p LimitSpec> {
    let rules = || run.setup.traffic.iter().map(|traffic| &plan.rules[usize::from(traffic.rule.0)]);
    let by_all = |limit: usize| rules().all(|rule| rule.shared.iter().any(|bound| bound.limit == limit));
    plan.shared_limits.iter().enumerate().filter(|&(limit, _)| by_all(limit)).map(|(_, spec)| spec).collect()
}

/// Windows that no schedule breaks with all endpoints together: where each has one of the same length, what all of them
/// allow in that time.
fn of_pool(plan: &Plan, limits: impl Fn(&EndpointPlan) -> &[LimitSpec]) -> Vec<LimitSpec> {
    let Some(pool) = &plan.pool else { return Vec::new() };
    let window = |spec: &LimitSpec| match spec.kind {
        LimitKind::Window { count, period, .. } if !period.is_zero() => Some((spec.charge, period, count)),
        LimitKind::Window { .. } | LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => {
            None
        }
    };
    let listed = || pool.listed().map(|(_, endpoint)| limits(endpoint));
    let first = listed().next().unwrap_or_default();
    let together = first.iter().filter_map(|spec| {
        let (charge, period, _) = window(spec)?;
        let same = |spec: &LimitSpec| window(spec).filter(|of| (of.0, of.1) == (charge, period)).map(|of| of.2);
        let mut counts = listed().map(|specs| specs.iter().filter_map(same).min());
        let count = counts.try_fold(0_u32, |sum, count| Some(sum.saturating_add(count?)))?;
        let kind = LimitKind::Window { count, period, anchor: Anchor::Start, grain: Nanos::ZERO };
        Some(LimitSpec { kind, ..spec.clone() })
    });
    together.collect()
}

/// What started by the end of the run, of the most that any schedule could have started by then.
pub(super) fn utilisation(run: &Run<'_>) -> Option<Value> {
    let (most, _) = bounds(run);
    let started = run.log.starts.iter().map(|start| u64::from(run.log.calls[start.call as usize].cost.requests)).sum();
    (most > 0).then(|| Value::ratio(started, most))
}

/// The earliest last start of any schedule, by that of this one. Nothing if not everything started.
pub(super) fn makespan(run: &Run<'_>) -> Option<Value> {
    let last = run.log.starts.last()?.at;
    let done = run.log.first.iter().filter(|&&at| at != Instant::NEVER).count() + run.log.withdrawn.len();
    let (_, earliest) = bounds(run);
    let nanos = |at: Instant| at.as_nanos();
    (done == run.log.calls.len()).then(|| Value::ratio(nanos(earliest), nanos(last)))
}
