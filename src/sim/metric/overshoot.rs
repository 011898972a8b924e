//! By how much the fullest window of a limit is over.

use std::time::Duration;

use super::{Clock, Run};
use crate::engine::{Charge, Instant, Nanos};
use crate::rules::{CountFrom, Level, QuotaKind};
use crate::sim::measure::Value;

/// Of all windows of the rules, or of those at one place in the file. What starts sums up to is the cost in the limit's unit; buckets and
/// calendar days are not windows.
pub(super) fn most(run: &Run<'_>, limit: Option<&str>, clock: Clock) -> Option<Value> {
    let rules = &run.setup.rules;
    let mut most = None;
    for level in rules.levels() {
        for (field, quotas, each_key) in [("overall", level.overall(), false), ("per_key", level.per_key(), true)] {
            if limit.is_some_and(|limit| limit != level.path(field)) {
                continue;
            }
            for quota in quotas {
                if !matches!(quota.kind(), QuotaKind::Window | QuotaKind::Smooth) {
                    continue;
                }
                let from = quota.own_count_from().unwrap_or_else(|| rules.count_from());
                let margin = match (clock, from) {
                    (Clock::Starts, CountFrom::Start) => quota.own_margin().unwrap_or_else(|| rules.margin()),
                    (Clock::Starts, CountFrom::Response) | (Clock::Server, _) => Duration::ZERO,
                };
                let period = quota.period().saturating_add(margin).into();
                let charge = quota.own_unit().map_or(Some(Charge::Requests), |unit| rules.unit(unit));
                let Some(charge) = charge else { continue };
                let fullest = fullest(run, level, each_key, charge, period, clock);
                most = most.max(Some(fullest.saturating_sub(quota.count().into())));
            }
        }
    }
    most.map(Value::Count)
}

/// The most that starts, or arrives at the server, in any half-open interval of a length.
fn fullest(run: &Run<'_>, level: Level<'_>, each_key: bool, charge: Charge, period: Nanos, clock: Clock) -> u64 {
    let rules: Vec<_> = run.setup.rules.iter().collect();
    let binds: Vec<bool> =
        rules.iter().map(|rule| if each_key { level.binds_per_key(rule) } else { level.binds_overall(rule) }).collect();
    let mut instants: Vec<(u32, Instant, u32)> = run
        .log
        .starts
        .iter()
        .filter(|start| binds[usize::from(run.rule(start.call))])
        .map(|start| {
            let call = run.log.calls[start.call as usize];
            let at = match clock {
                Clock::Starts => start.at,
                Clock::Server => start.arrived,
            };
            (if each_key { call.key } else { 0 }, at, call.cost.of(charge))
        })
        .filter(|&(_, at, _)| at != Instant::NEVER)
        .collect();
    instants.sort_unstable();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for &(key, at, cost) in &instants {
        while let (first_key, first_at, first_cost) = instants[first]
            && (first_key != key || first_at.saturating_add(period) <= at)
        {
            sum -= u64::from(first_cost);
            first += 1;
        }
        sum += u64::from(cost);
        most = most.max(sum);
    }
    most
}
