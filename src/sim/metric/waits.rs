//! How long callers wait, and for whom.

use std::collections::BTreeMap;

use super::{Of, Run, Stat};
use crate::engine::{Instant, Nanos};
use crate::sim::measure::Value;
use crate::sim::world::Why;

/// From its arrival to its first start. A call that never started has waited until the end of the run, or until its time
/// in line was over. Who was withdrawn is not asked, nor who was turned away at once.
pub(super) fn wait(run: &Run<'_>, of: Of, stat: Stat) -> Option<Value> {
    let log = run.log;
    let calls = (0..).zip(&log.calls).filter(|(_, call)| of.is_none_or(|of| call.traffic == of));
    let waits = calls.filter_map(|(index, call)| {
        let first = log.first[index as usize];
        let until = match log.left(index) {
            Some(left) if first == Instant::NEVER => match left.why {
                Why::TurnedAway if left.at > call.at => left.at,
                Why::TurnedAway | Why::TimedOut | Why::Withdrawn => return None,
            },
            Some(_) | None => first.min(log.end),
        };
        Some((call.key, until.since(call.at)))
    });
    summary(waits, stat)
}

/// What of it the scheduler is to blame for: from the instant at which the limits of the key itself let it start. The first
/// of a line that could have started and never did has waited until the end, or until it left.
pub(super) fn induced(run: &Run<'_>, of: Of, stat: Stat) -> Option<Value> {
    let ready = run.ready();
    let started = run.log.starts.iter().zip(&ready.since).map(|(start, &since)| (start.call, start.at.since(since)));
    let never = ready.never.iter().map(|idle| (idle.call, idle.until.since(idle.from)));
    let waits = started.chain(never).map(|(call, wait)| (run.log.calls[call as usize], wait));
    let waits = waits.filter(|(call, _)| of.is_none_or(|of| call.traffic == of));
    summary(waits.map(|(call, wait)| (call.key, wait)), stat)
}

/// The mean wait, less the mean wait of the same calls without those of lower lanes.
pub(super) fn inversion_time(run: &Run<'_>, of: Of) -> Option<Value> {
    let of = of?;
    let mean = |run: &Run<'_>| wait(run, Some(of), Stat::Mean).map(Value::number);
    let (setup, log) = (run.without_below)(of);
    let alone = mean(&Run::new(&setup, &log, run.without_below))?;
    Some(Value::Time(Nanos::new(mean(run)?.saturating_sub(alone))))
}

/// The longest time from a key's first arrival to its first start.
pub(super) fn first_service(run: &Run<'_>, of: Of) -> Option<Value> {
    let mut keys: BTreeMap<u32, (Instant, Instant)> = BTreeMap::new();
    for (call, &first) in
        run.log.calls.iter().zip(&run.log.first).filter(|(call, _)| of.is_none_or(|of| call.traffic == of))
    {
        let (arrived, started) = keys.entry(call.key).or_insert((call.at, Instant::NEVER));
        *arrived = call.at.min(*arrived);
        *started = first.min(*started);
    }
    let waits = keys.values().map(|&(arrived, started)| started.min(run.log.end).since(arrived));
    waits.max().map(Value::Time)
}

/// What changes for the line of a key, in the order in which it does so within an instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Joins,
    Starts,
    /// Refused by the server, it joins again.
    Returns,
    Leaves,
}

/// The longest time in which a key had something in line and started nothing: between two starts, before the first, and
/// after the last.
pub(super) fn gap(run: &Run<'_>, of: Of) -> Option<Value> {
    let log = run.log;
    let is_meant = |call: u32| of.is_none_or(|of| log.calls[call as usize].traffic == of);
    let key = |call: u32| log.calls[call as usize].key;
    let joins = (0..).zip(&log.calls).map(|(call, joined)| (call, joined.at, Change::Joins));
    let starts = log.starts.iter().map(|start| (start.call, start.at, Change::Starts));
    let refused = log.starts.iter().filter(|start| start.again.is_some());
    let returns = refused.map(|start| (start.call, start.answered, Change::Returns));
    let left = log.left.iter().filter(|left| left.why != Why::TimedOut);
    let leaves = left.map(|left| (left.call, left.at, Change::Leaves));
    let changes = joins.chain(starts).chain(returns).chain(leaves).filter(|&(call, ..)| is_meant(call));
    let mut changes: Vec<_> = changes.map(|(call, at, change)| (key(call), at, change)).collect();
    changes.sort_unstable();
    let mut longest = None;
    for of_key in changes.chunk_by(|one, other| one.0 == other.0) {
        let (mut in_line, mut since) = (0_u64, Instant::ZERO);
        for &(_, at, change) in of_key {
            let gap = at.since(since);
            match change {
                Change::Joins | Change::Returns => {
                    since = if in_line == 0 { at } else { since };
                    in_line += 1;
                    continue;
                }
                Change::Starts => since = at,
                Change::Leaves => {}
            }
            in_line -= 1;
            if change == Change::Starts || in_line == 0 {
                longest = longest.max(Some(gap));
            }
        }
        if in_line > 0 {
            longest = longest.max(Some(log.end.since(since)));
        }
    }
    longest.map(Value::Time)
}

/// Calls that were answered before an earlier one of their queue.
pub(super) fn order_inversions(run: &Run<'_>) -> Value {
    let mut latest: BTreeMap<(u16, u32), (Instant, u32)> = BTreeMap::new();
    let mut inversions = 0;
    for &index in &run.log.done {
        let call = run.log.calls[index as usize];
        let place = (call.at, index);
        let latest = latest.entry((run.rule(index), call.key)).or_insert(place);
        inversions += u64::from(place < *latest);
        *latest = place.max(*latest);
    }
    Value::Count(inversions)
}

/// Calls whose callers got an error: the balancer refused them or gave them up, or their attempt took too long.
pub(super) fn turned_away(run: &Run<'_>, of: Of) -> Value {
    let left = run.log.left.iter().filter(|left| left.why != Why::Withdrawn);
    let left = left.filter(|left| of.is_none_or(|of| run.log.calls[left.call as usize].traffic == of));
    Value::Count(left.count() as u64)
}

fn summary(waits: impl Iterator<Item = (u32, Nanos)>, stat: Stat) -> Option<Value> {
    let nanos = match stat {
        Stat::Mean => {
            let (sum, count) =
                waits.fold((0_u128, 0_u128), |(sum, count), (_, wait)| (sum + u128::from(wait.get()), count + 1));
            u64::try_from(sum.checked_div(count)?).unwrap_or(u64::MAX)
        }
        Stat::Max => waits.map(|(_, wait)| wait.get()).max()?,
        Stat::P(per_cent) => {
            quantile(&mut waits.map(|(_, wait)| wait.get()).collect::<Vec<_>>(), usize::from(per_cent))?
        }
        Stat::P99OfKeys => {
            let mut by_key: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            waits.for_each(|(key, wait)| by_key.entry(key).or_default().push(wait.get()));
            let mut of_keys: Vec<u64> = by_key.into_values().filter_map(|mut waits| quantile(&mut waits, 99)).collect();
            quantile(&mut of_keys, 99)?
        }
    };
    Some(Value::Time(Nanos::new(nanos)))
}

/// The smallest number that so many per cent are not above (nearest rank).
fn quantile(numbers: &mut [u64], per_cent: usize) -> Option<u64> {
    numbers.sort_unstable();
    let rank = (numbers.len() * per_cent).div_ceil(100);
    numbers.get(rank.saturating_sub(1)).copied()
}
