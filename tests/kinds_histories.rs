//! Random histories under every kind of quota at once, with an executor that polls late: nothing is ever over.

#[allow(dead_code, unused_imports, reason = "some of it is for the golden tests")]
mod harness;

use harness::{Call, Rng};
use request_balancer::engine::{Instant, Nanos, RuleId};

const HISTORIES: u64 = 200;
const CALLS: u64 = 120;

/// What spacing lets a start that a timer made late be followed early by.
const CATCH_UP: u64 = 2_000_000;

#[test]
fn nothing_is_over_whenever_it_is_claimed() {
    for seed in 0..HISTORIES {
        let mut rng = Rng::new(seed);
        let [count, per_key, burst] = [9, 7, 12].map(|most| 2 + rng.below(most));
        let [period, key_period] = [1_000, 700].map(|most| 100 + rng.below(most));
        let plan = harness::plan(&format!(
            "overall = '{count}/{period}ms smooth'\nper_key = '{per_key}/{key_period}ms burst {burst}'"
        ));
        let largest = count.min(burst);
        let late = rng.below(3) * period * 300_000;
        let mut at = 0;
        let calls = (0..CALLS).map(|_| {
            at += if rng.below(3) == 0 { rng.below(4 * period * 1_000_000 / count) } else { 0 };
            let cost = u32::try_from(1 + rng.below(largest)).expect("a small cost");
            let handling = Nanos::new(rng.below(50_000_000));
            Call { at: Instant::from_nanos(at), rule: RuleId(0), key: rng.below(3), cost, handling }
        });
        let calls = calls.collect();
        let log = harness::run(&plan, calls, Instant::NEVER, || Nanos::new(if late > 0 { rng.below(late) } else { 0 }));
        assert!(log.started.iter().all(Option::is_some), "seed {seed}: not all started");

        let all: Vec<_> = log.starts().map(|(call, at)| (at, call.cost)).collect();
        let interval = Nanos::from_millis(period).div_ceil(count).get();
        for (from, &(first, cost)) in all.iter().enumerate() {
            let end = first.saturating_add(Nanos::from_millis(period));
            let held: u32 = all[from..].iter().take_while(|(at, _)| *at < end).map(|(_, cost)| cost).sum();
            assert!(u64::from(held) <= count, "seed {seed}: {held} of {count} from {first:?}");
            if let Some((next, _)) = all.get(from + 1) {
                let gap = next.since(first).get();
                assert!(gap + CATCH_UP >= interval * u64::from(cost), "seed {seed}: {gap} ns after a start of {cost}");
            }
        }
        let interval = Nanos::from_millis(key_period).div_ceil(per_key).get();
        for key in 0..3 {
            let own: Vec<_> = log.starts().filter(|(call, _)| call.key == key).collect();
            for (from, (_, first)) in own.iter().enumerate() {
                let mut held = 0;
                for (call, at) in &own[from..] {
                    held += u64::from(call.cost);
                    let room = burst + at.since(*first).get() / interval;
                    assert!(held <= room, "seed {seed}: {held} of {room} in a bucket from {first:?} to {at:?}");
                }
            }
        }
    }
}
