//! Bounds that no schedule can beat: each queue alone with the limits of its key, and all together with the shared ones and
//! those of all endpoints.
//!
//! They allow more than any schedule may: what a call costs may start piece by piece, and an attempt takes no time. Then
//! the earliest start of each piece, in order of arrival, is the best that there is.

use std::collections::BTreeMap;

use super::Run;
use crate::engine::{Anchor, Charge, EndpointPlan, Instant, LimitKind, LimitSpec, Nanos, Plan};
use crate::sim::cost::Cost;
use crate::sim::measure::Value;
use crate::sim::meter::{self, CATCH_UP, Meter, Room};
use crate::sim::own::OwnNumbers;

/// Calls in order of arrival.
type Calls = Vec<(Instant, Cost)>;

/// What one line gets through: cost in requests before the end, and when the last piece starts.
#[derive(Clone, Copy, Debug)]
struct Through {
    by_end: u64,
    last: Instant,
}

/// What limits let through of calls before `end`.
fn through(specs: &[&LimitSpec], calls: &[(Instant, Cost)], end: Instant) -> Through {
    let arrived: Calls = calls.iter().copied().take_while(|&(at, _)| at < end).collect();
    let all = arrived.iter().map(|(_, cost)| u64::from(cost.of(Charge::Requests))).sum();
    let last = calls.last().map_or(Instant::ZERO, |&(at, _)| at);
    let is_new = |&at: &usize| specs[..at].iter().all(|before| before.charge != specs[at].charge);
    let bounds = (0..specs.len()).filter(is_new).map(|at| {
        let charge = specs[at].charge;
        let specs: Vec<_> = specs.iter().copied().filter(|spec| spec.charge == charge).collect();
        let pieces = pieces(&specs, charge, calls, end);
        Through { by_end: most_requests(&arrived, charge, pieces.by_end), last: pieces.last }
    });
    bounds.fold(Through { by_end: all, last }, |one, other| Through {
        by_end: one.by_end.min(other.by_end),
        last: one.last.max(other.last),
    })
}

/// The same of limits that count the same, in what they count.
fn pieces(specs: &[&LimitSpec], charge: Charge, calls: &[(Instant, Cost)], end: Instant) -> Through {
    let largest = calls.iter().map(|(_, cost)| cost.of(charge)).max().unwrap_or(0);
    let mut meters: Vec<_> = specs.iter().map(|spec| Meter::new(&in_pieces(spec, largest))).collect();
    let mut through = Through { by_end: 0, last: Instant::ZERO };
    for &(at, cost) in calls {
        let mut left = cost.of(charge);
        let mut from = at.max(through.last);
        while left > 0 {
            let Room::At(opens) = meter::room(&mut meters, from, Cost::of_charge(charge, 1)) else { return through };
            if opens > from {
                from = opens;
                continue;
            }
            let free = meters.iter_mut().map(|meter| meter.free(from)).min().unwrap_or(u64::MAX);
            let taken = u32::try_from(free).unwrap_or(u32::MAX).clamp(1, left);
            for meter in &mut meters {
                meter.start(from, Cost::of_charge(charge, taken));
                meter.end(from, Cost::of_charge(charge, taken));
            }
            through.last = from;
            through.by_end += if from < end { u64::from(taken) } else { 0 };
            left -= taken;
        }
    }
    through
}

/// Spacing is paid for after a start, however much it costs, and a late one catches up: so much may start at once.
fn in_pieces(spec: &LimitSpec, largest: u32) -> LimitSpec {
    let kind = match spec.kind {
        LimitKind::Spaced { interval, .. } => {
            let early = CATCH_UP.div_ceil(interval.get().max(1)).get();
            let burst = u32::try_from(u64::from(largest.max(1)) + early).unwrap_or(u32::MAX);
            LimitKind::Bucket { interval, burst }
        }
        kind @ (LimitKind::Window { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. }) => kind,
    };
    LimitSpec { kind, ..spec.clone() }
}

/// The most requests that calls can cost which together cost no more than so many of something else: those first that cost
/// least of that for each request.
fn most_requests(calls: &[(Instant, Cost)], charge: Charge, most: u64) -> u64 {
    let mut costs: Vec<(u64, u64)> =
        calls.iter().map(|(_, cost)| (cost.of(charge).into(), cost.of(Charge::Requests).into())).collect();
    costs.sort_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)));
    let (mut left, mut requests) = (most, 0);
    for (taken, cost) in costs {
        if taken > left {
            // Of the last one no more than the part that fits.
            return requests + (left * cost).div_ceil(taken);
        }
        left -= taken;
        requests += cost;
    }
    requests
}

/// The bound for each queue alone, and that for all of them under the limits that all rules share.
fn bounds(run: &Run<'_>) -> Through {
    let plan = run.setup.rules.plan();
    let numbers = OwnNumbers::new(&run.setup.rules);
    // A run that was cut starts nothing at its end; one that ran out may have.
    let cut = run.log.end == Instant::ZERO.saturating_add(run.setup.until);
    let end = run.log.end.saturating_add(Nanos::new(u64::from(!cut)));
    let mut order: Vec<u32> = (0..run.log.calls.len() as u32).filter(|&call| !run.log.left_unserved(call)).collect();
    order.sort_by_key(|&index| run.log.calls[index as usize].at);
    let mut queues: BTreeMap<(u16, u32), Calls> = BTreeMap::new();
    for &index in &order {
        let call = run.log.calls[index as usize];
        queues.entry((run.rule(index), call.key)).or_default().push((call.at, call.cost));
    }
    let key_in_pool = of_pool(&plan, |endpoint| &endpoint.key_limits);
    let (mut sum, mut last) = (0_u64, Instant::ZERO);
    for ((rule, key), calls) in queues {
        let shared = plan.rules[usize::from(rule)].key.iter().map(|bound| &plan.key_limits[bound.limit]);
        let specs: Vec<_> = numbers.of(&plan, rule, key).iter().chain(shared).chain(&key_in_pool).collect();
        let queue = through(&specs, &calls, end);
        sum += queue.by_end;
        last = last.max(queue.last);
    }
    let pool = of_pool(&plan, |endpoint| &endpoint.limits);
    let shared = run.shared_by_all(&plan);
    let specs: Vec<_> = shared.into_iter().map(|limit| &plan.shared_limits[limit]).chain(&pool).collect();
    let calls = order.iter().map(|&index| run.log.calls[index as usize]).map(|call| (call.at, call.cost));
    let all = through(&specs, &calls.collect::<Calls>(), end);
    Through { by_end: sum.min(all.by_end), last: last.max(all.last) }
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

/// What started by the end of the run, of the most that any schedule could have started by then. A call that the server
/// refuses starts again and counts once.
pub(super) fn utilisation(run: &Run<'_>) -> Option<Value> {
    let most = bounds(run).by_end;
    let started = run.first_starts(None).map(|start| u64::from(run.log.calls[start.call as usize].cost.requests)).sum();
    (most > 0).then(|| Value::ratio(started, most))
}

/// The earliest instant by which any schedule has started every call once, by the last start of this one. Nothing if not
/// everything started.
pub(super) fn makespan(run: &Run<'_>) -> Option<Value> {
    let last = run.log.starts.last()?.at;
    let nanos = |at: Instant| at.as_nanos();
    run.log.all_started().then(|| Value::ratio(nanos(bounds(run).last), nanos(last)))
}
