//! Eight kinds of callers against every kind of quota at every level of the file, and before a server behind a network
//! that delays: nowhere is one start too many, and the worst of them get as much as there is.

#[path = "adversaries/callers.rs"]
mod callers;
#[allow(dead_code, unused_imports, reason = "the golden tests use the rest of it")]
mod harness;

use callers::{Adversary, Target};
use harness::{Call, Log, Rng, Setup, plan, rule, run};
use request_balancer::engine::{Instant, Nanos};
use request_balancer::verify_arrivals;

const COUNT: u64 = 4;
const KEYS: u64 = 3;

/// Where a quota stands in the file, whether each key has it to itself, and the file.
type Scope = (&'static str, bool, fn(&str) -> String);

const SCOPES: [Scope; 7] = [
    ("overall", false, |quota| format!("overall = '{quota}'\n[rules]\nr = {{}}")),
    ("per_key", true, |quota| format!("per_key = '{quota}'\n[rules]\nr = {{}}")),
    ("rule's overall", false, |quota| format!("[rules.r]\noverall = '{quota}'")),
    ("rule's per_key", true, |quota| format!("[rules.r]\nper_key = '{quota}'")),
    ("named", false, |quota| format!("[limits.n]\noverall = '{quota}'\n[rules.r]\nunder = ['n']")),
    ("named per_key", true, |quota| format!("[limits.n]\nper_key = '{quota}'\n[rules.r]\nunder = ['n']")),
    ("lane", false, |quota| format!("[lanes.1]\noverall = '{quota}'\n[rules]\nr = {{}}")),
];

const SECOND: Target = Target { count: COUNT, period: 1_000, periods: 60 };
#[cfg(feature = "calendar")]
const DAY: Target = Target { period: 86_400_000, ..SECOND };

/// Everybody calls for all keys in turn; each attempt takes as long as it is told.
fn attack(setup: &Setup, target: Target, adversary: &Adversary, mut handling: impl FnMut() -> Nanos) -> Log {
    let rule = rule(setup, "r");
    let call = |(index, &at): (usize, &u64)| Call {
        at: Instant::from_millis(at),
        rule,
        key: index as u64 % KEYS,
        cost: 1,
        handling: handling(),
    };
    let calls = adversary.arrivals.iter().enumerate().map(call).collect();
    let mut draw = target.stalls();
    let stall = || Nanos::from_millis(if adversary.stalls { draw() } else { 0 });
    run(setup, calls, Instant::from_millis(target.end()), stall)
}

/// The instants of whoever shares a quota, in order.
fn sharers(log: &Log, each_key: bool) -> Vec<Vec<Instant>> {
    let of = |key: Option<u64>| {
        log.starts().filter(|(call, _)| key.is_none_or(|key| call.key == key)).map(|(_, at)| at).collect()
    };
    if each_key { (0..KEYS).map(|key| of(Some(key))).collect() } else { vec![of(None)] }
}

/// The most in any half-open interval of this length.
fn fullest(starts: &[Instant], period: Nanos) -> u64 {
    let within = |first: usize| starts.partition_point(|&at| at < starts[first].saturating_add(period)) - first;
    (0..starts.len()).map(within).max().unwrap_or(0) as u64
}

/// The most on one day in UTC.
#[cfg(feature = "calendar")]
fn fullest_day(starts: &[Instant]) -> u64 {
    let day = |at: &Instant| at.as_nanos() / Nanos::from_millis(DAY.period).get();
    starts.chunk_by(|one, next| day(one) == day(next)).map(<[_]>::len).max().unwrap_or(0) as u64
}

/// Runs all against a quota in every scope. `most`: what is counted of the starts, of which there may be so many, and
/// the greedy get that many.
fn nobody_gets_more(quota: &str, target: Target, allowed: u64, most: impl Fn(&[Instant]) -> u64) {
    for (scope, each_key, rules) in SCOPES {
        let setup = plan(&rules(quota));
        for adversary in target.adversaries() {
            // Whether the log breaks a rule is asked by whoever runs it.
            let log = attack(&setup, target, &adversary, || Nanos::ZERO);
            let worst = sharers(&log, each_key).iter().map(|starts| most(starts)).max().unwrap_or(0);
            let name = adversary.name;
            assert!(worst <= allowed, "{quota} {scope}, {name}: {worst} of {allowed}");
            if name == "greedy" || name == "herd" {
                assert_eq!(worst, allowed, "{quota} {scope}, {name}");
            }
        }
    }
}

#[test]
fn no_window_holds_one_more() {
    let period = Nanos::from_millis(SECOND.period);
    nobody_gets_more("4/1s", SECOND, COUNT, |starts| fullest(starts, period));
}

#[test]
fn no_window_of_evenly_spaced_starts_holds_one_more() {
    let period = Nanos::from_millis(SECOND.period);
    nobody_gets_more("4/1s smooth", SECOND, COUNT, |starts| fullest(starts, period));
}

#[test]
fn two_evenly_spaced_starts_are_never_closer_than_a_timers_grain_allows() {
    // 250 ms, of which a start that came late is caught up by 2 ms at most.
    nobody_gets_more("4/1s smooth", SECOND, 1, |starts| fullest(starts, Nanos::from_millis(248)));
}

#[test]
fn no_bucket_gives_more_than_it_holds_and_gets_back() {
    for burst in [1, 4, 9] {
        let quota = format!("4/1s burst {burst}");
        nobody_gets_more(&quota, SECOND, burst, |starts| fullest(starts, Nanos::from_millis(250)));
        // Full at first, and one comes back every 250 ms.
        nobody_gets_more(&quota, SECOND, burst + COUNT - 1, |starts| fullest(starts, Nanos::from_millis(1_000)));
    }
}

#[cfg(feature = "calendar")]
#[test]
fn no_day_holds_one_more() {
    nobody_gets_more("4/day UTC", DAY, COUNT, fullest_day);
}

/// By how much the delay on the way to the server varies.
const JITTER: Nanos = Nanos::from_millis(70);

/// Delays that bring starts together: a period's worth of starts late, the next not at all; and any delays.
fn networks(period: Nanos) -> [Box<dyn FnMut(Instant) -> Nanos>; 3] {
    let mut rng = Rng::new(70);
    let turn = move |at: Instant| at.as_nanos() / period.saturating_add(JITTER).get() % 2;
    [
        Box::new(move |at| if turn(at) == 0 { JITTER } else { Nanos::ZERO }),
        Box::new(move |at| if turn(at) == 1 { JITTER } else { Nanos::ZERO }),
        Box::new(move |_| Nanos::new(rng.below(JITTER.get() + 1))),
    ]
}

#[test]
fn no_server_counts_one_more_than_a_window_with_a_margin_for_the_networks_jitter() {
    let period = Nanos::from_millis(SECOND.period);
    for quota in ["4/1s", "4/1s smooth"] {
        for (scope, each_key, rules) in SCOPES {
            let setup = plan(&format!("margin = '70ms'\n{}", rules(quota)));
            for adversary in SECOND.adversaries() {
                let log = attack(&setup, SECOND, &adversary, || Nanos::ZERO);
                let told = format!("{quota} {scope}, {}", adversary.name);
                for mut network in networks(period) {
                    let mut starts = log.starts().map(|(_, at)| at);
                    let arrivals = log.lines(&setup, |_| network(starts.next().expect("a start")));
                    assert_eq!(verify_arrivals(&setup.rules, &arrivals), [], "{told}");
                }
                // Two starts can arrive less than a period apart if they are less than that and the jitter apart.
                let sharers = sharers(&log, each_key);
                let worst = sharers.iter().map(|starts| fullest(starts, period.saturating_add(JITTER))).max();
                assert!(worst.is_some_and(|worst| worst <= COUNT), "{told}: {worst:?}");
            }
        }
    }
}

#[test]
fn the_same_networks_break_a_window_without_a_margin() {
    let setup = plan("overall = '4/1s'\n[rules]\nr = {}");
    let log = attack(&setup, SECOND, &SECOND.adversaries()[0], || Nanos::ZERO);
    for mut network in networks(Nanos::from_millis(SECOND.period)) {
        let mut starts = log.starts().map(|(_, at)| at);
        let arrivals = log.lines(&setup, |_| network(starts.next().expect("a start")));
        assert_ne!(verify_arrivals(&setup.rules, &arrivals), []);
    }
}

#[test]
fn no_server_counts_one_more_than_a_window_that_counts_from_the_response_whatever_the_network_does() {
    for (scope, _, rules) in SCOPES {
        let setup = plan(&format!("count_from = 'response'\n{}", rules("4/1s")));
        for adversary in SECOND.adversaries() {
            let mut rng = Rng::new(7);
            let log = attack(&setup, SECOND, &adversary, || match rng.below(4) {
                0 => Nanos::ZERO,
                1 => Nanos::from_millis(rng.below(3_000)),
                _ => Nanos::from_millis(rng.below(200)),
            });
            // Each reaches the server at some instant between its start and its end.
            for part in 0..4 {
                let mut rng = Rng::new(part);
                let arrivals = log.lines(&setup, |call| match part {
                    0 => Nanos::ZERO,
                    1 => call.handling,
                    _ => Nanos::new(rng.below(call.handling.get() + 1)),
                });
                assert_eq!(verify_arrivals(&setup.rules, &arrivals), [], "{scope}, {}", adversary.name);
            }
        }
    }
}
