//! Each metric on a run small enough to be worked out by hand.

#![cfg(feature = "sim")]

mod sim;

use request_balancer::sim::{Policy, Scenario};
use sim::shown;

/// Key 0 has three calls and key 1 one, all at 0, one start a second. In line: a a a b; in turns: a b a a.
const TWO_KEYS: &str = r#"
    rules = "overall = '1/1s'"
    [[traffic]]
    name = 'a'
    calls = 3
    [[traffic]]
    name = 'b'
    first_key = 1
    calls = 1
"#;

#[test]
fn waits() {
    let shows = [
        "'wait'",
        "'wait'\nstat = 'p50'",
        "'wait'\nstat = 'p99'",
        "'wait'\nstat = 'max'\nof = 'b'",
        "'wait'\nstat = 'p99-of-keys'",
        "'first-service'",
        "'gap'\nof = 'a'",
        "'last-start'\nof = 'b'",
    ];
    let turns = ["1.500 s", "1.000 s", "3.000 s", "1.000 s", "3.000 s", "1.000 s", "2.000 s", "1.000 s"];
    assert_eq!(shown(Policy::Balancer, TWO_KEYS, &shows), turns);
    let line = ["1.500 s", "1.000 s", "3.000 s", "3.000 s", "3.000 s", "3.000 s", "1.000 s", "3.000 s"];
    assert_eq!(shown(Policy::Fifo, TWO_KEYS, &shows), line);
}

/// Two endpoints, a start a second on each, and a server that counts them apart.
const TWO_ENDPOINTS: &str = r#"
    rules = "[pool]\nendpoints = ['a', 'b']\noverall = '1/1s'"
    [[traffic]]
    keys = 4
    calls = 4
    [[server]]
    limit = "1/1s"
    each = "endpoint"
"#;

#[test]
fn endpoints() {
    let shows = [
        "'started'\non = 'a'",
        "'last-start'\non = 'b'",
        "'overshoot'\nlimit = 'pool.overall'",
        "'overshoot'\nlimit = 'pool.endpoints.b.overall'",
        "'refusals'",
        "'refusals'\non = 'b'",
        "'makespan'",
        "'fair-makespan'",
        "'idle-while-ready'",
    ];
    // One on each at 0 s and at 1 s. The fluid schedule is through at 2 s, when the last call is served.
    let own = ["2", "1.000 s", "0", "0", "0", "0", "1.000", "2.000", "none"];
    assert_eq!(shown(Policy::Balancer, TWO_ENDPOINTS, &shows), own);
    // All at 0 s, two of which are refused and come back at 1 s.
    let blind = ["2", "1.000 s", "1", "1", "2", "1", "1.000", "2.000", "none"];
    assert_eq!(shown(Policy::Fifo, TWO_ENDPOINTS, &shows), blind);
    // Bound to one of them.
    let bound = TWO_ENDPOINTS.replace("calls = 4", "calls = 4\n    endpoints = ['b']");
    for policy in [Policy::Balancer, Policy::Fifo] {
        assert_eq!(shown(policy, &bound, &shows[..2]), ["0", "3.000 s"], "{policy}");
    }
}

#[test]
fn attempts_at_once() {
    // At 0 s two; of the one on `a` the answer is back at 2 s, in the instant in which the next one starts.
    let scenario = r#"
        rules = "[pool]\nconcurrency = 1\nendpoints = ['a', 'b']"
        [[traffic]]
        name = "long"
        calls = 2
        takes = "2s"
        [[traffic]]
        name = "short"
        first_key = 1
        start = "1s"
        calls = 1
        [[server]]
        at_once = 1
        each = "endpoint"
    "#;
    let shows =
        ["'at-once'", "'at-once'\non = 'a'", "'at-once'\nof = 'short'", "'last-start'\nof = 'short'", "'refusals'"];
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["2", "1", "1", "2.000 s", "0"]);
    // The short one comes to `a`, which works on something for another second.
    assert_eq!(shown(Policy::Fifo, scenario, &shows), ["2", "1", "1", "2.000 s", "1"]);
}

#[test]
fn what_never_started_has_waited_to_the_end() {
    let scenario = format!("until = '2s'\n{TWO_KEYS}");
    let shows = ["'started'", "'wait'", "'share'\nof = 'a'", "'makespan'", "'utilisation'"];
    // 0 s, 1 s, and two who wait for 2 s; what starts at 2 s is not in the run.
    assert_eq!(shown(Policy::Fifo, &scenario, &shows), ["2", "1.250 s", "100.000 %", "none", "1.000"]);
}

#[test]
fn induced_waits_begin_where_the_keys_own_limits_end() {
    // Own limit: 0 s, 2 s, 4 s. The other key takes the slots at 1 s and 3 s; nobody is late because of it.
    let scenario = r#"
        rules = "overall = '1/1s'\nper_key = '1/2s'"
        [[traffic]]
        keys = 2
        calls = 6
    "#;
    let shows = ["'wait'\nstat = 'max'", "'induced-wait'\nstat = 'max'", "'induced-wait'", "'idle-while-ready'"];
    // Key 1 is ready from 0 s and starts at 1 s; from then on each starts the moment that it may.
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["5.000 s", "1.000 s", "166.666 ms", "0.000 ms"]);
}

#[test]
fn shares() {
    let window = |metric: &str| format!("'{metric}'\nrounds = 1");
    let shows = ["jain", "least-served", "most-served"].map(window);
    let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
    let scenario = TWO_KEYS.replace("calls = 1", "calls = 3");
    // One round is two starts: one each, or two of the first: (2 + 0)^2 / (2 (4 + 0)).
    assert_eq!(shown(Policy::Balancer, &scenario, &shows), ["1.000", "1", "1"]);
    assert_eq!(shown(Policy::Fifo, &scenario, &shows), ["0.500", "0", "2"]);
    let shows = ["'pair-gap'", "'round-overrun'", "'max-min-distance'"];
    // At the last start, at 5 s, the fluid schedule still owes one call of six: half of one to each key.
    assert_eq!(shown(Policy::Balancer, &scenario, &shows), ["1.000", "0", "10.000 %"]);
    assert_eq!(shown(Policy::Fifo, &scenario, &shows)[0], "3.000");
    let cut = format!("until = '3s'\n{scenario}");
    // Of three starts the fluid schedule gives each key 1.5: 1.5 too many and 1.5 too few are half of 3.
    assert_eq!(shown(Policy::Fifo, &cut, &["'max-min-distance'"]), ["50.000 %"]);
}

#[test]
fn the_fluid_schedule_serves_all_at_once() {
    let shows = ["'lag'", "'lead'", "'fair-makespan'"];
    // Half a call a second each until b has its one at 2 s. The first of a is ahead by a whole call at once, that of b
    // is behind by half of one at 1 s. All is through at 4 s, the last start is at 3 s.
    assert_eq!(shown(Policy::Balancer, TWO_KEYS, &shows), ["0.500", "1.000", "1.333"]);
    // In line b has had its one call when it starts at 3 s; a is ahead by 3 - 1.
    assert_eq!(shown(Policy::Fifo, TWO_KEYS, &shows), ["1.000", "2.000", "1.333"]);
    // A key limited to 1/10s leaves the rest to the others.
    let limited = r#"
        rules = "overall = '1/1s'\n[rules]\nslow = '1/10s'\nfast = {}"
        [[traffic]]
        rule = 'slow'
        calls = 2
        [[traffic]]
        rule = 'fast'
        first_key = 1
        calls = 9
    "#;
    // Slow is through at 20 s at its 0.1 a second, fast at 10 s at the other 0.9; the last start is at 10 s.
    assert_eq!(shown(Policy::Balancer, limited, &["'fair-makespan'", "'last-start'"]), ["2.000", "10.000 s"]);
}

#[test]
fn bounds_of_all_schedules() {
    // 20 at once, and 20 more after 60 s.
    let scenario = r#"
        rules = "per_key = '20/60s'"
        [[traffic]]
        calls = 40
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'makespan'", "'utilisation'"]), ["1.000", "1.000"]);
    // 39 times 3 s instead of 60 s.
    assert_eq!(shown(Policy::SmartRequestBalancer, scenario, &["'makespan'"]), ["0.512"]);
    let cut = format!("until = '60s'\n{scenario}");
    assert_eq!(shown(Policy::SmartRequestBalancer, &cut, &["'utilisation'", "'started'"]), ["1.000", "20"]);
    let cut = format!("until = '30s'\n{scenario}");
    assert_eq!(shown(Policy::SmartRequestBalancer, &cut, &["'utilisation'", "'started'"]), ["0.500", "10"]);
}

#[test]
fn lanes_that_are_gone_past() {
    // A backlog of urgent calls and one call of the lower lane, which waits for its share: K = 20 - 2.
    let scenario = r#"
        rules = "overall = '10/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }"
        [[traffic]]
        rule = 'urgent'
        keys = 'own'
        calls = 100
        [[traffic]]
        rule = 'bulk'
        keys = 'own'
        calls = 1
    "#;
    let shows = ["'bypass'\nof = 'bulk'", "'inversions'", "'inversion-time'\nof = 'urgent'"];
    // The call of bulk starts as the 19th. Of the urgent ones behind it every tenth comes a second later.
    let own = shown(Policy::Balancer, scenario, &shows);
    assert_eq!(own[..2], ["18", "1"]);
    assert_eq!(own[2], "90.000 ms");
    assert_eq!(shown(Policy::StrictLanes, scenario, &shows), ["100", "0", "0.000 ms"]);
    // In order of arrival bulk is the last, and nobody who is less urgent goes first.
    assert_eq!(shown(Policy::Fifo, scenario, &shows), ["100", "0", "0.000 ms"]);
}

#[test]
fn a_servers_own_count() {
    // The rules let two a second go, the server lets one in.
    let scenario = r#"
        rules = "overall = '2/1s'"
        [network]
        delay = '250ms'
        [[traffic]]
        calls = 4
        [[server]]
        limit = '1/1s'
        kind = 'KIND'
    "#;
    let shows =
        ["'refusals'", "'refusals-per-success'", "'finished'", "'order-inversions'", "'overshoot'\nat = 'server'"];
    // Whoever is refused is back in line before those who came later.
    for kind in ["sliding", "paced", "bucket"] {
        let own = shown(Policy::Balancer, &scenario.replace("KIND", kind), &shows);
        assert_eq!(own[2..], ["4", "0", "0"], "{kind}");
    }
    assert_eq!(shown(Policy::Balancer, &scenario.replace("KIND", "fixed"), &shows)[2..], ["4", "0", "0"]);
}

#[test]
fn overshoot_is_counted_for_each_limit_by_its_place() {
    let scenario = r#"
        rules = "overall = '3/1s'\nper_key = '1/1s'\nmargin = '100ms'"
        [[traffic]]
        keys = 4
        calls = 8
    "#;
    let shows = ["'overshoot'", "'overshoot'\nlimit = 'overall'", "'overshoot'\nlimit = 'per_key'"];
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["0", "0", "0"]);
    // A bucket of 3, which knows no margin, starts 3 at once, the fourth after 333 ms, and two more after 1 s: 6 in 1.1 s.
    let limiters = shown(Policy::IndependentLimiters, scenario, &shows);
    assert_eq!(limiters[1], "3");
}

/// The largest gap of two keys under rules of these weights, with costs from 1 up to these.
fn gap_of(weights: [u32; 2], largest: [u32; 2], seed: u64) -> f64 {
    let [one, two] = weights;
    let traffic = |rule: &str, key: u32, most: u32| {
        format!("[[traffic]]\nrule = '{rule}'\nfirst_key = {key}\ncalls = 400\ncost = [1, {most}]\n")
    };
    let text = format!(
        "title = 't'\nrules = \"overall = '30/1s'\\n[rules]\\none.weight = {one}\\ntwo.weight = {two}\"\nuntil = '20s'\n{}{}\
         [[show]]\nmetric = 'pair-gap'",
        traffic("one", 0, largest[0]),
        traffic("two", 1, largest[1]),
    );
    let scenario: Scenario = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let measures = scenario.with_seeds([seed]).run(Policy::Balancer);
    measures[0].measured.map_or(f64::NAN, request_balancer::sim::Value::as_f64)
}

#[test]
fn costs_keep_two_keys_as_close_as_deficit_round_robin_can() {
    for (weights, largest) in
        [([1, 1], [5, 5]), ([1, 2], [5, 5]), ([2, 8], [9, 3]), ([1, 4], [1, 12]), ([3, 3], [2, 2])]
    {
        // One turn, and what a key saves from one turn for the next: less than one of its calls.
        let saved = |at: usize| f64::from(largest[at] - 1) / f64::from(weights[at]);
        let bound = f64::from(largest[0].max(largest[1])) + saved(0) + saved(1);
        for seed in 1..=10 {
            let gap = gap_of(weights, largest, seed);
            assert!(gap <= bound + 1e-5, "weights {weights:?}, costs up to {largest:?}, seed {seed}: {gap} > {bound}");
        }
    }
}

#[test]
fn the_bound_of_two_keys_with_costs_is_reached() {
    // Key 0 saves 4 from its first turn and has 9 in its second, then 5 in its third; in between key 1, which had saved
    // nothing, saves 4 and so starts no more than 1: 14 - 1 = 5 + 4 + 4.
    let calls = ["0,1,5", "0,0,1", "0,1,5", "0,0,5", "0,0,4", "0,1,1", "0,0,5", "0,1,5", "0,0,5", "0,1,5"];
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("gap.csv");
    std::fs::write(&path, calls.join("\n")).expect("a folder to write to");
    let scenario =
        format!("rules = \"overall = '5/1s'\"\n[[traffic]]\narrivals = 'trace'\nfile = '{}'", path.display());
    assert_eq!(shown(Policy::Balancer, &scenario, &["'pair-gap'"]), ["13.000"]);
}
