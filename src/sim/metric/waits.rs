//! How long callers wait, and for whom.

use std::collections::BTreeMap;

use super::{Of, Run, Stat};
use crate::engine::{Instant, Nanos};
use crate::sim::measure::Value;

/// From its arrival to its first start. A call that never started has waited until the end of the run, one that was
/// withdrawn is not asked.
pub(super) fn wait(run: &Run<'_>, of: Of, stat: Stat) -> Option<Value> {
    let log = run.log;
    let withdrawn: Vec<u32> = log.withdrawn.iter().map(|&(call, _)| call).collect();
    let waits = log
        .calls
        .iter()
        .zip(&log.first)
        .enumerate()
        .filter(|(index, (call, _))| {
            of.is_none_or(|of| call.traffic == of) && withdrawn.binary_search(&(*index as u32)).is_err()
        })
        .map(|(_, (call, &first))| (call.key, first.min(log.end).since(call.at)));
    summary(waits, stat)
}

/// What of it the scheduler is to blame for: from the instant at which the limits of the key itself let it start.
pub(super) fn induced(run: &Run<'_>, of: Of, stat: Stat) -> Option<Value> {
    let ready = run.ready();
    let waits = run.log.starts.iter().zip(&ready.since);
    let waits = waits.filter(|(start, _)| of.is_none_or(|of| run.traffic(start) == of));
    summary(waits.map(|(start, &since)| (run.log.calls[start.call as usize].key, start.at.since(since))), stat)
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

/// The longest time between two starts of a key.
pub(super) fn gap(run: &Run<'_>, of: Of) -> Option<Value> {
    let mut last: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut longest = None;
    for start in run.starts_of(of) {
        if let Some(before) = last.insert(run.log.calls[start.call as usize].key, start.at) {
            longest = longest.max(Some(start.at.since(before)));
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
