//! Metrics before somebody who gets nothing: no number is good because of it.

#![cfg(feature = "sim")]

mod sim;

use request_balancer::sim::Policy;
use sim::shown;

/// Two keys with three calls each, all at 0, one start a second, and the end after three of them.
const CUT: &str = r#"
    rules = "overall = '1/1s'"
    until = '3s'
    [[traffic]]
    name = 'a'
    calls = 3
    [[traffic]]
    name = 'b'
    first_key = 1
    calls = 3
"#;

#[test]
fn who_never_starts_has_the_longest_gap() {
    let shows = ["'gap'", "'gap'\nof = 'a'", "'gap'\nof = 'b'"];
    // a b a, and then nothing of b from 1 s to the end.
    assert_eq!(shown(Policy::Balancer, CUT, &shows), ["2.000 s", "2.000 s", "2.000 s"]);
    // a a a, and nothing of b at all.
    assert_eq!(shown(Policy::Fifo, CUT, &shows), ["3.000 s", "1.000 s", "3.000 s"]);
}

#[test]
fn a_key_that_wants_nothing_has_no_gap() {
    // One call at 0 s and one at 10 s, which starts at once.
    let scenario = r#"
        rules = "overall = '1/1s'"
        [[traffic]]
        arrivals = 'even'
        rate = '1/10s'
        calls = 2
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'gap'", "'round-overrun'"]), ["0.000 ms", "0"]);
}

#[test]
fn a_gap_ends_when_the_last_caller_leaves() {
    let scenario = CUT
        .replace("until = '3s'", "")
        .replace("calls = 3\n", "calls = 3\ncancel = { at = '1500ms', share = '100%' }\n");
    // Both keys started one of three when everybody leaves.
    assert_eq!(shown(Policy::Balancer, &scenario, &["'gap'\nof = 'a'", "'gap'\nof = 'b'"]), ["1.500 s", "1.000 s"]);
}

#[test]
fn a_refused_call_is_in_line_again() {
    // The server lets one in every 10 s, and says so: the other one starts at 0 s, in vain, and again at 10 s.
    let scenario = r#"
        rules = ""
        [[traffic]]
        keys = 2
        calls = 2
        [[server]]
        limit = "1/10s"
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'gap'", "'refusals'"]), ["10.000 s", "1"]);
}

#[test]
fn who_never_starts_overruns_every_round() {
    assert_eq!(shown(Policy::Balancer, CUT, &["'round-overrun'"]), ["0"]);
    // After one start of a it was the turn of b; two more went past.
    assert_eq!(shown(Policy::Fifo, CUT, &["'round-overrun'", "'round-overrun'\nof = 'a'"]), ["2", "0"]);
}

#[test]
fn heavier_queues_have_longer_turns() {
    let scenario = r#"
        rules = "overall = '1/1s'\n[rules]\none = { weight = 1 }\nfour = { weight = 4 }"
        until = '50s'
        [[traffic]]
        rule = 'one'
        calls = 100
        [[traffic]]
        rule = 'four'
        first_key = 1
        calls = 100
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'round-overrun'", "'pair-gap'"]), ["0", "1.000"]);
}

#[test]
fn the_gap_of_two_keys_counts_those_that_never_start() {
    assert_eq!(shown(Policy::Balancer, CUT, &["'pair-gap'"]), ["1.000"]);
    // Three for a, none for b, which was ready all the time.
    assert_eq!(shown(Policy::Fifo, CUT, &["'pair-gap'"]), ["3.000"]);
}

#[test]
fn the_scheduler_is_to_blame_for_who_never_starts() {
    let shows = ["'induced-wait'\nstat = 'max'", "'induced-wait'\nstat = 'max'\nof = 'b'"];
    assert_eq!(shown(Policy::Balancer, CUT, &shows), ["2.000 s", "2.000 s"]);
    assert_eq!(shown(Policy::Fifo, CUT, &shows), ["3.000 s", "3.000 s"]);
}

#[test]
fn an_ordered_queue_is_not_ready_while_its_call_runs() {
    // Its answer is back 2.5 s after each start; then the other one, which came to the line before, starts and then it: every
    // 4 s. Nobody is ahead of a queue that waits for itself.
    let scenario = r#"
        rules = "overall = '1/1s'\n[rules]\nordered = { ordered = true }\nplain = {}"
        until = '60s'
        [[traffic]]
        rule = 'ordered'
        calls = 100
        takes = '2500ms'
        [[traffic]]
        rule = 'plain'
        first_key = 1
        calls = 100
    "#;
    assert_eq!(shown(Policy::Balancer, scenario, &["'pair-gap'", "'started'\nof = 'ordered'"]), ["1.000", "15"]);
}

#[test]
fn a_queue_is_ready_by_all_that_started_before() {
    // Both rules are under the key's limits. What one of them is asked must not make the meters forget what the other one
    // will be asked for an earlier instant: nobody could have started anything sooner.
    let scenario = r#"
        rules = "per_key = ['28/1m', '4/333ms']\n[rules]\none = {}\ntwo = {}"
        until = '10m'
        [[traffic]]
        rule = 'one'
        arrivals = 'poisson'
        rate = '1/3s'
        [[traffic]]
        rule = 'two'
        arrivals = 'poisson'
        rate = '1/3s'
    "#;
    for policy in [Policy::Balancer, Policy::Scan] {
        assert_eq!(shown(policy, scenario, &["'idle-while-ready'"]), ["0.000 ms"], "{policy}");
    }
}

#[test]
fn two_kinds_of_callers_leave_at_two_times() {
    // Half of them leave after 10 s and the others after 20 s: 20 calls started, the last at 19 s.
    let traffic = |name: &str, key: u32, at: u32| {
        format!(
            "[[traffic]]\nname = '{name}'\nfirst_key = {key}\nkeys = 50\ncalls = 50\n\
             cancel = {{ at = '{at}s', share = '100%' }}\n"
        )
    };
    let scenario = format!("rules = \"overall = '1/1s'\"\n{}{}", traffic("A", 0, 20), traffic("B", 50, 10));
    let shows = ["'started'", "'last-start'", "'wait'\nstat = 'max'", "'makespan'", "'turned-away'"];
    assert_eq!(shown(Policy::Balancer, &scenario, &shows), ["20", "19.000 s", "19.000 s", "1.000", "0"]);
}

#[test]
fn who_is_turned_away_has_not_waited_to_the_end() {
    let shows = ["'started'", "'turned-away'", "'wait'\nstat = 'max'", "'makespan'"];
    let one_a_second = |rule: &str, traffic: &str| {
        format!("rules = \"overall = '1/1s'\\n[rules]\\nr = {{ {rule} }}\"\n[[traffic]]\ncalls = 5\n{traffic}")
    };
    // A cost that never fits waits for nothing.
    assert_eq!(shown(Policy::Balancer, &one_a_second("", "cost = 7"), &shows), ["0", "5", "none", "none"]);
    // Two have their place in line, at 0 s and 1 s, the others none.
    assert_eq!(shown(Policy::Balancer, &one_a_second("queue = 2", ""), &shows), ["2", "3", "1.000 s", "1.000"]);
    // Three at 0 s, 1 s and 2 s, then the time of the other two is over.
    let waits = one_a_second("max_wait = '2500ms'", "keys = 'own'");
    assert_eq!(shown(Policy::Balancer, &waits, &shows), ["3", "2", "2.500 s", "1.000"]);
}

#[test]
fn who_gives_up_after_refusals_is_turned_away() {
    let scenario = r#"
        rules = "retry = { waits = 2 }"
        [[traffic]]
        keys = 2
        calls = 2
        [[server]]
        limit = "1/1h"
        retry_after = "1s"
    "#;
    // One is let in; the other comes at 0 s, 1 s and 2 s and is refused each time.
    let shows = ["'finished'", "'refusals'", "'turned-away'", "'gap'"];
    assert_eq!(shown(Policy::Balancer, scenario, &shows), ["1", "3", "1", "1.000 s"]);
}

#[test]
fn an_attempt_takes_no_longer_than_it_may() {
    let scenario = r#"
        rules = "concurrency = 1\nattempt_timeout = '1s'"
        [[traffic]]
        calls = 4
        takes = '10s'
    "#;
    let shows = ["'last-start'", "'finished'", "'turned-away'", "'started'"];
    for policy in [Policy::Balancer, Policy::Fifo] {
        assert_eq!(shown(policy, scenario, &shows), ["3.000 s", "0", "4", "4"], "{policy}");
    }
    // On the way for longer than that, it counts at the server all the same.
    let slow = format!("{scenario}\n[network]\ndelay = '1500ms'\n[[server]]\nlimit = '1/1h'");
    assert_eq!(shown(Policy::Balancer, &slow, &["'last-start'", "'turned-away'", "'refusals'"]), ["3.000 s", "4", "0"]);
    let in_time = scenario.replace("'10s'", "'500ms'");
    assert_eq!(shown(Policy::Balancer, &in_time, &shows), ["1.500 s", "4", "0", "4"]);
}

#[test]
fn a_closed_loop_goes_on_after_an_error() {
    let scenario = r#"
        rules = "attempt_timeout = '1s'"
        until = '10s'
        [[traffic]]
        arrivals = 'closed'
        think = '1s'
        takes = '5s'
    "#;
    // At 0 s, 2 s, 4 s, 6 s and 8 s.
    assert_eq!(shown(Policy::Balancer, scenario, &["'started'", "'turned-away'"]), ["5", "5"]);
}
