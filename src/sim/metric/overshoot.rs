//! By how much the fullest window of a limit is over.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Clock, Run};
use crate::engine::{Instant, Nanos};
use crate::rules::{CountFrom, Level, QuotaKind};
use crate::sim::measure::Value;

/// Of all windows of the rules, or of those at one place in the file. What starts sums up to is the cost; buckets and
/// calendar days are not windows.
pub(super) fn most(run: &Run<'_>, limit: Option<&str>, clock: Clock) -> Option<Value> {
    let rules = &run.setup.rules;
    let mut most = None;
    for level in rules.levels() {
        for (field, quotas, each_key) in [("overall", level.overall(), false), ("per_key", level.per_key(), true)] {
            if limit.is_some_and(|limit| limit != level.path(field)) {
                continue;
            }
            for quota in quotas.iter().filter(|quota| quota.own_unit().is_none()) {
                if !matches!(quota.kind(), QuotaKind::Window | QuotaKind::Smooth) {
                    continue;
                }
                let from = quota.own_count_from().unwrap_or_else(|| rules.count_from());
                let margin = match (clock, from) {
                    (Clock::Starts, CountFrom::Start) => quota.own_margin().unwrap_or_else(|| rules.margin()),
                    (Clock::Starts, CountFrom::Response) | (Clock::Server, _) => Duration::ZERO,
                };
                let period = quota.period().saturating_add(margin).into();
                let fullest = fullest(run, level, each_key, period, clock);
                most = most.max(Some(fullest.saturating_sub(quota.count().into())));
            }
        }
    }
    most.map(Value::Count)
}

/// The most that starts, or arrives at the server, in any half-open interval of a length.
fn fullest(run: &Run<'_>, level: Level<'_>, each_key: bool, period: Nanos, clock: Clock) -> u64 {
    let rules: Vec<_> = run.setup.rules.iter().collect();
    let binds: Vec<bool> =
        rules.iter().map(|rule| if each_key { level.binds_per_key(rule) } else { level.binds_overall(rule) }).collect();
    let mut instants: Vec<(Instant, u32)> = run
        .log
        .starts
        .iter()
        .filter(|start| binds[usize::from(run.rule(start.call))])
        .map(|start| match clock {
            Clock::Starts => (start.at, start.call),
            Clock::Server => (start.arrived, start.call),
        })
        .filter(|&(at, _)| at != Instant::NEVER)
        .collect();
    instants.sort_by_key(|&(at, _)| at);
    let mut windows: BTreeMap<u32, (VecDeque<(Instant, u64)>, u64)> = BTreeMap::new();
    let mut most = 0;
    for (at, call) in instants {
        let call = run.log.calls[call as usize];
        let (window, sum) = windows.entry(if each_key { call.key } else { 0 }).or_default();
        while let Some(&(first, cost)) = window.front()
            && first.saturating_add(period) <= at
        {
            window.pop_front();
            *sum -= cost;
        }
        window.push_back((at, call.cost.into()));
        *sum += u64::from(call.cost);
        most = most.max(*sum);
    }
    most
}
