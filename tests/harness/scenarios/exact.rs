//! Starts are never over a limit, and never later than it demands.

use std::collections::BTreeMap;
use std::fmt::Write;

use request_balancer::engine::{Instant, Nanos};

use super::super::{Call, Measure, Rng, Value, call, overshoot, plan, prompt, rule, run};

/// One key with 1,000 calls in line under `20/60s`: fifty full windows, the last of which starts after 49 periods.
pub(crate) fn one_key_saturated() -> Vec<Measure> {
    const NAME: &str = "one key, 20/60s, 1,000 waiting";
    let plan = plan("[rules]\ngroup = \"20/60s\"");
    let calls = (0..1_000).map(|_| call(Instant::ZERO, rule(&plan, "group"), 7)).collect();
    let log = run(&plan, calls, Instant::NEVER, prompt);
    let starts: Vec<_> = log.starts().map(|(_, at)| at).collect();
    vec![
        Measure::exactly(NAME, "started", Value::Count(starts.len() as u64), Value::Count(1_000)),
        Measure::exactly(NAME, "last start", Value::Time(log.last_start().since(Instant::ZERO)), Value::secs(2_940)),
        Measure::exactly(
            NAME,
            "most over 20 in any 60 s",
            overshoot(&starts, 20, Nanos::from_secs(60)),
            Value::Count(0),
        ),
    ]
}

/// Random windows and arrivals on one key. The i-th start is the latest of its arrival, the start before it, and for
/// every window the start that many places back plus the period: no exact policy is ever earlier.
pub(crate) fn earliest_starts() -> Vec<Measure> {
    const HISTORIES: u64 = 500;
    const CALLS: u64 = 80;
    const NAME: &str = "500 random histories of one key, 1 to 4 windows";
    let mut as_computed = 0;
    for seed in 0..HISTORIES {
        let mut rng = Rng::new(seed);
        let windows: Vec<_> = (0..rng.between(1, 4))
            .map(|_| (rng.between(1, 12) as usize, Nanos::new(rng.between(1, 200_000_000))))
            .collect();
        let mut rules = "[rules]\nchat = [".to_owned();
        for (count, period) in &windows {
            write!(rules, "\"{count}/{}ns\", ", period.get()).expect("a string takes everything");
        }
        rules.push(']');
        let plan = plan(&rules);
        let mut at = Instant::ZERO;
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let pause = rng.below(60_000_000) * u64::from(rng.below(3) == 0);
                at = at.saturating_add(Nanos::new(pause));
                call(at, rule(&plan, "chat"), 7)
            })
            .collect();
        let arrivals: Vec<_> = calls.iter().map(|call| call.at).collect();
        let log = run(&plan, calls, Instant::NEVER, prompt);
        let expected = earliest(&arrivals, &windows);
        as_computed += expected.iter().zip(&log.started).filter(|&(&expected, &at)| Some(expected) == at).count();
    }
    let total = Value::Count(HISTORIES * CALLS);
    vec![Measure::exactly(NAME, "starts at the earliest nanosecond", Value::Count(as_computed as u64), total)]
}

fn earliest(arrivals: &[Instant], windows: &[(usize, Nanos)]) -> Vec<Instant> {
    let mut starts: Vec<Instant> = Vec::with_capacity(arrivals.len());
    for (index, &arrival) in arrivals.iter().enumerate() {
        let after_windows = windows
            .iter()
            .filter_map(|&(count, period)| Some(starts[index.checked_sub(count)?].saturating_add(period)));
        let start = after_windows.chain(starts.last().copied()).fold(arrival, Instant::max);
        starts.push(start);
    }
    starts
}

/// An executor that now and then takes up to ten periods from wake to poll, longer than the lease of a grant too.
pub(crate) fn stalled_executor() -> Vec<Measure> {
    const HISTORIES: u64 = 100;
    const CALLS: u64 = 150;
    const KEYS: u64 = 4;
    const PERIOD: Nanos = Nanos::from_millis(300);
    const NAME: &str = "100 random histories, executor stalls of up to 10 periods";
    let plan = plan("overall = \"9/300ms\"\n[rules]\nchat = \"4/300ms\"");
    let (mut started, mut over_overall, mut over_key) = (0, Value::Count(0), Value::Count(0));
    for seed in 0..HISTORIES {
        let mut rng = Rng::new(seed);
        let calls = (0..CALLS)
            .map(|_| Call {
                handling: Nanos::from_millis(rng.below(20)),
                ..call(Instant::from_millis(rng.below(4_000)), rule(&plan, "chat"), rng.below(KEYS))
            })
            .collect();
        let log = run(&plan, calls, Instant::NEVER, || match rng.below(4) {
            0 => Nanos::new(rng.below(10 * PERIOD.get())),
            1 => Nanos::new(rng.below(PERIOD.get())),
            _ => Nanos::ZERO,
        });
        let all: Vec<_> = log.starts().map(|(_, at)| at).collect();
        started += all.len() as u64;
        over_overall = over_overall.max(overshoot(&all, 9, PERIOD));
        let mut by_key: BTreeMap<u64, Vec<Instant>> = BTreeMap::new();
        for (call, at) in log.starts() {
            by_key.entry(call.key).or_default().push(at);
        }
        for starts in by_key.values() {
            over_key = over_key.max(overshoot(starts, 4, PERIOD));
        }
    }
    vec![
        Measure::exactly(NAME, "started", Value::Count(started), Value::Count(HISTORIES * CALLS)),
        Measure::exactly(NAME, "most over 9 in any 300 ms", over_overall, Value::Count(0)),
        Measure::exactly(NAME, "most over 4 of a key", over_key, Value::Count(0)),
    ]
}
