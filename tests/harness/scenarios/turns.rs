//! Turns between the keys of one lane.

use std::collections::BTreeMap;

use request_balancer::engine::{Instant, Nanos};

use super::super::{Call, Measure, Rng, Value, call, plan, prompt, rule, run};

/// A hog with 1,000 calls and then 100 keys with one each: the hog costs each of them a turn, not a thousand.
pub(crate) fn hog_and_mice() -> Vec<Measure> {
    const NAME: &str = "hog of 1,000 and 100 single calls, 30/1s";
    const HOG: u64 = 0;
    let plan = plan("overall = \"30/1s\"\n[rules]\naccount = \"1000/1s\"");
    let account = rule(&plan, "account");
    let keys = std::iter::repeat_n(HOG, 1_000).chain(1..=100);
    let calls = keys.map(|key| call(Instant::ZERO, account, key)).collect();
    let log = run(&plan, calls, Instant::NEVER, prompt);
    let worst = log.starts().filter(|(call, _)| call.key != HOG).map(|(_, at)| at).max().unwrap_or(Instant::NEVER);
    vec![
        Measure::exactly(NAME, "longest wait of a single call", time(worst), Value::secs(3)),
        Measure::exactly(NAME, "last start", time(log.last_start()), Value::secs(36)),
        Measure::exactly(NAME, "started", Value::Count(log.order.len() as u64), Value::Count(1_100)),
    ]
}

/// Fifty keys with 1,000 calls each, and 25 new keys with one call each in every second: whoever comes later stands
/// behind, so an old key is back after the round that it saw when it was served.
pub(crate) fn newcomer_flood() -> Vec<Measure> {
    const NAME: &str = "50 keys x 1,000 and 25 new keys a second, 600 s";
    const OLD: u64 = 50;
    const SECS: u64 = 600;
    let plan = plan("overall = \"30/1s\"\n[rules]\naccount = {}");
    let account = rule(&plan, "account");
    let mut calls: Vec<Call> = (0..OLD * 1_000).map(|index| call(Instant::ZERO, account, index % OLD)).collect();
    for (key, at) in (OLD..).zip(Rng::new(11).poisson(25 * SECS, Nanos::from_secs(SECS))) {
        calls.push(call(at, account, key));
    }
    let log = run(&plan, calls, Instant::ZERO.saturating_add(Nanos::from_secs(SECS)), prompt);

    let newcomers: Vec<_> = log.calls.iter().filter(|call| call.key >= OLD).map(|call| call.at).collect();
    let arrived_by = |at: Instant| newcomers.partition_point(|&arrival| arrival <= at) as u64;
    let mut last: BTreeMap<u64, Turn> = BTreeMap::new();
    let mut served = 0;
    let (mut over_round, mut longest_gap, mut longest_round) = (0, Nanos::ZERO, 0);
    for (position, (call, at)) in (0_u64..).zip(log.starts()) {
        if call.key >= OLD {
            served += 1;
            continue;
        }
        let turn = Turn { position, at, round: OLD + arrived_by(at) - served };
        if let Some(before) = last.insert(call.key, turn) {
            over_round = over_round.max((position - before.position).saturating_sub(before.round));
            let gap = at.since(before.at);
            if gap > longest_gap {
                (longest_gap, longest_round) = (gap, before.round);
            }
        }
    }
    // `round` starts under 30/1s take so many full periods at most.
    let bound = Value::secs(longest_round.div_ceil(30));
    vec![
        Measure::exactly(NAME, "old keys: most starts beyond one round", Value::Count(over_round), Value::Count(0)),
        Measure::exactly(NAME, "old keys: longest gap", Value::Time(longest_gap), bound).within(Value::secs(0), bound),
        Measure::exactly(NAME, "started", Value::Count(log.order.len() as u64), Value::Count(30 * SECS)),
    ]
}

/// An old key's turn: which start it was, when, and how many queues stood in line, its own included.
#[derive(Clone, Copy)]
struct Turn {
    position: u64,
    at: Instant,
    round: u64,
}

fn time(at: Instant) -> Value {
    Value::Time(at.since(Instant::ZERO))
}
