//! Bounds that no schedule can beat, the fluid schedule, and the limits that they go by.

#![cfg(feature = "sim")]

mod sim;

use request_balancer::sim::{Policy, Scenario};
use sim::shown;

const BOTH: [&str; 2] = ["'utilisation'", "'makespan'"];

#[test]
fn costs_are_packed_as_well_as_any_schedule_can() {
    // Of 3 + 3 + 2 + 2 two of five fit in each second: 3 + 2 at 0 s and at 1 s, which is what turns do.
    let scenario = r#"
        rules = "overall = '5/1s'"
        [[traffic]]
        name = 'a'
        calls = 2
        cost = 3
        [[traffic]]
        name = 'b'
        first_key = 1
        calls = 2
        cost = 2
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &BOTH), ["1.000", "1.000"]);
    // In order of arrival 3, then 3 + 2, then 2.
    assert_eq!(shown(Policy::Fifo, scenario, &BOTH), ["1.000", "0.500"]);
}

#[test]
fn of_calls_that_cost_tokens_the_cheapest_are_the_most() {
    // 100 tokens in the minute of the run: of the calls of 60 and 20 those of 20 are what fits, five of them.
    let scenario = r#"
        rules = "units = ['tokens']\noverall = '100/1m tokens'"
        until = '60s'
        [[traffic]]
        name = 'long'
        calls = 5
        units = { tokens = 60 }
        [[traffic]]
        name = 'short'
        first_key = 1
        calls = 5
        units = { tokens = 20 }
    "#;
    // In line 60, and the next one does not fit.
    assert_eq!(shown(Policy::Fifo, scenario, &["'utilisation'", "'started'"]), ["0.200", "1"]);
    // 60 + 20 + 20.
    assert_eq!(shown(Policy::Scan, scenario, &["'utilisation'", "'started'"]), ["0.600", "3"]);
}

#[test]
fn a_call_that_is_refused_and_comes_again_counts_once() {
    let scenario = r#"
        rules = "overall = '10/1s'"
        until = '100s'
        [[traffic]]
        keys = 10
        calls = 100
        [[server]]
        limit = "1/2s"
    "#;
    // Each started, most of them more than once.
    assert_eq!(shown(Policy::Balancer, scenario, &["'utilisation'", "'started'"]), ["1.000", "100"]);
}

#[test]
fn spacing_is_a_bound_too() {
    // One every 10 ms.
    let scenario = r#"
        rules = "overall = '100/1s smooth'"
        until = '60s'
        [[traffic]]
        keys = 'own'
        calls = 7000
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'utilisation'", "'started'"]), ["1.000", "6000"]);
    // A start of 3 is paid for afterwards: at 0 ms, 30 ms and 60 ms.
    let costly = r#"
        rules = "overall = '100/1s smooth'"
        [[traffic]]
        calls = 3
        cost = 3
    "#;
    let shown = shown(Policy::Balancer, costly, &["'last-start'", "'makespan'"]);
    assert_eq!(shown[0], "60.000 ms");
    assert!(shown[1].parse::<f64>().is_ok_and(|ratio| ratio <= 1.0), "{shown:?}");
}

/// A rule of 1/1s each, and a key that may 10/1s.
const OWN: &str = r#"
    rules = "[rules]\na = '1/1s'\n[keys.5]\na = '10/1s'"
    [[traffic]]
    first_key = 5
    calls = 20
"#;

#[test]
fn a_key_with_numbers_of_its_own_is_measured_by_those() {
    let shows = ["'last-start'", "'makespan'", "'utilisation'", "'overshoot'", "'induced-wait'\nstat = 'max'"];
    assert_eq!(shown(Policy::Balancer, OWN, &shows), ["1.000 s", "1.000", "1.000", "0", "0.000 ms"]);
    let places = ["'overshoot'\nlimit = 'rules.a.per_key'", "'overshoot'\nlimit = 'keys.5.a'"];
    // A bucket of ten and one every 100 ms: 19 in the first second.
    assert_eq!(shown(Policy::IndependentLimiters, OWN, &places), ["0", "9"]);
    // Its neighbour has the numbers of the rule.
    let neighbour = OWN.replace("first_key = 5", "first_key = 6");
    assert_eq!(shown(Policy::Balancer, &neighbour, &shows[..3]), ["19.000 s", "1.000", "1.000"]);
}

#[test]
fn a_key_with_numbers_of_its_own_has_them_whoever_balances() {
    let last = |policy| shown(policy, OWN, &["'last-start'"]).remove(0);
    assert_eq!([Policy::Fifo, Policy::Scan, Policy::AgeingLanes].map(last), ["1.000 s"; 3]);
    // Ten at once and ten 100 ms apart; all of them 100 ms apart.
    assert_eq!([Policy::IndependentLimiters, Policy::SmartRequestBalancer].map(last), ["1.000 s", "1.900 s"]);
}

#[test]
fn a_key_with_numbers_of_its_own_flows_at_those() {
    // At 3 a second key 5 is through at 3 s; the other one, at 1 a second, at 9 s.
    let scenario = r#"
        rules = "overall = '100/1s'\n[rules]\na = '1/1s'\n[keys.5]\na = '3/1s'"
        [[traffic]]
        first_key = 5
        keys = 2
        calls = 18
    "#;
    let shows = ["'fair-makespan'", "'last-start'"];
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["1.125", "8.000 s"]);
}

#[test]
fn the_fluid_schedule_goes_by_what_all_share() {
    // Bulk is ten keys at 1/1s in all, the chats share the rest of 30/1s: nothing of that is unfair.
    let scenario = r#"
        rules = "overall = '30/1s'\n[rules]\nchat = {}\nbulk = { overall = '1/1s' }"
        [[traffic]]
        rule = 'chat'
        keys = 10
        calls = 300
        [[traffic]]
        rule = 'bulk'
        first_key = 10
        keys = 10
        calls = 10
    "#;
    // A chat flows at 2.9 a second and a key of bulk at 0.1. At 8 s 261 calls of the ten chats have started, 27 of one of
    // them, which has had 23.2; the last key of bulk has its call at 9 s and has had 0.9 by then.
    let shows = ["'lead'", "'lag'", "'last-start'"];
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["3.800", "0.900", "10.000 s"]);
}

#[test]
fn a_rule_with_a_limit_of_its_own_flows_no_faster() {
    // Slow has 0.5 of 2 a second and is through at 4 s; fast has 1.5 until then, and its last 3 of 9 at 2 a second.
    let scenario = r#"
        rules = "overall = '2/1s'\n[rules]\nslow = { overall = '1/2s' }\nfast = {}"
        [[traffic]]
        rule = 'slow'
        calls = 2
        [[traffic]]
        rule = 'fast'
        first_key = 1
        calls = 9
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'fair-makespan'", "'last-start'"]), ["1.100", "5.000 s"]);
}

#[test]
fn libraries_without_margins_lose_nothing_to_one() {
    let scenario = r#"
        rules = "overall = '10/1s'\nmargin = '1s'"
        [[traffic]]
        keys = 'own'
        calls = 11
    "#;
    let last = |policy| shown(policy, scenario, &["'last-start'"]).remove(0);
    assert_eq!(last(Policy::Balancer), "2.000 s");
    assert_eq!([Policy::SmartRequestBalancer, Policy::IndependentLimiters].map(last), ["1.000 s", "100.000 ms"]);
}

#[test]
fn a_scan_looks_behind_a_call_that_costs_too_much() {
    let scenario = r#"
        rules = "overall = '5/1s'"
        [[traffic]]
        name = 'a'
        keys = 2
        calls = 2
        cost = 3
        [[traffic]]
        name = 'b'
        first_key = 2
        calls = 1
        cost = 2
    "#;
    let shows = ["'wait'\nof = 'b'", "'last-start'"];
    assert_eq!(shown(Policy::Scan, scenario, &shows), ["0.000 ms", "1.000 s"]);
    assert_eq!(shown(Policy::Fifo, scenario, &shows), ["1.000 s", "1.000 s"]);
}

#[test]
fn a_ratio_says_how_near_the_optimum_is_whichever_way_is_better() {
    let ratio = |show: &str, policy| {
        let text = format!(
            "title = 't'\nrules = \"overall = '1/1s'\"\nuntil = '4s'\n[[traffic]]\nname = 'a'\ncalls = 3\n\
             [[traffic]]\nname = 'b'\nfirst_key = 1\ncalls = 3\n[[show]]\nmetric = {show}"
        );
        let scenario: Scenario = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
        scenario.run(policy)[0].ratio()
    };
    // Three of a and one of b in four starts.
    assert_eq!(ratio("'started'\nof = 'b'\noptimum = 2", Policy::Fifo), Some(500));
    assert_eq!(ratio("'started'\nof = 'a'\noptimum = 2", Policy::Fifo), Some(1_500));
    assert_eq!(ratio("'share'\nof = 'a'\noptimum = '50%'", Policy::Fifo), Some(666));
    assert_eq!(ratio("'share'\nof = 'b'\noptimum = '50%'", Policy::Fifo), Some(500));
    assert_eq!(ratio("'wait'\nstat = 'max'\noptimum = '2s'", Policy::Fifo), Some(500));
    assert_eq!(ratio("'overshoot'", Policy::Fifo), Some(1_000));
}
