//! Random histories under windows: never over, and never later than they demand.

#[allow(dead_code, unused_imports, reason = "some of it is for other tests")]
mod harness;

use std::collections::BTreeMap;
use std::fmt::Write;

use harness::{Call, Rng, call, plan, prompt, rule, run};
use request_balancer::engine::{Instant, Nanos};

/// The i-th start is the latest of its arrival, the start before it, and for every window the start that many places back
/// plus the period: no exact policy is ever earlier.
#[test]
fn starts_on_one_key_are_the_earliest_that_its_windows_allow() {
    const HISTORIES: u64 = 500;
    const CALLS: u64 = 80;
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
        let started: Vec<_> = log.started.into_iter().flatten().collect();
        assert_eq!(started, earliest(&arrivals, &windows), "seed {seed}: {rules}");
    }
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
#[test]
fn no_window_is_overfilled_however_late_the_executor_polls() {
    const HISTORIES: u64 = 100;
    const CALLS: u64 = 150;
    const KEYS: u64 = 4;
    const PERIOD: Nanos = Nanos::from_millis(300);
    let plan = plan("overall = \"9/300ms\"\n[rules]\nchat = \"4/300ms\"");
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
        assert_eq!(all.len() as u64, CALLS, "seed {seed}: not all started");
        assert!(fullest(&all, PERIOD) <= 9, "seed {seed}: more than 9 in a window");
        let mut by_key: BTreeMap<u64, Vec<Instant>> = BTreeMap::new();
        for (call, at) in log.starts() {
            by_key.entry(call.key).or_default().push(at);
        }
        for (key, starts) in by_key {
            assert!(fullest(&starts, PERIOD) <= 4, "seed {seed}: more than 4 of key {key} in a window");
        }
    }
}

/// The most starts in any half-open interval of a length. Starts are in order.
fn fullest(starts: &[Instant], period: Nanos) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, &at) in starts.iter().enumerate() {
        while starts[first].saturating_add(period) <= at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}
