//! What is said of the next start after a log, against when the engine really started it.

#![cfg(feature = "sim")]

use std::time::Duration;

use request_balancer::sim::{Policy, Scenario};
use request_balancer::{Opens, Outlook, Rules, Start, explain_log};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}"))
}

fn said(outlook: &Outlook) -> Vec<String> {
    outlook.limits.iter().map(ToString::to_string).collect()
}

/// After each start of a saturated queue it is said when the next one comes, and then it comes.
fn foretold(head: &str, traffic: &str) {
    let text = format!("title = 't'\nrules = \"{head}\"\n[[traffic]]\n{traffic}\n[[show]]\nmetric = 'started'");
    let scenario: Scenario = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let record = scenario.record(Policy::Balancer);
    let starts: Vec<Start> = record.starts().iter().map(|started| started.start.clone()).collect();
    assert!(starts.len() > 40, "{head}: {} starts", starts.len());
    for started in 1..starts.len() {
        let (known, next) = (&starts[..started], &starts[started]);
        let last = known[started - 1].at;
        let mut asked = next.clone();
        asked.at = last;
        // It may go anywhere.
        asked.endpoint = None;
        let opens = match explain_log(record.rules(), known, &asked).opens() {
            Opens::Now => last,
            Opens::At(at) => at,
            opens @ (Opens::WhenOneEnds | Opens::Never) => panic!("{head}: start {started}: {opens}"),
        };
        assert_eq!(opens, next.at, "{head}: start {started}");
    }
}

#[test]
fn the_engine_starts_a_saturated_queue_when_the_log_says_so() {
    for head in [
        "per_key = '20/60s'",
        "per_key = ['3/1s', '20/60s']\\nmargin = '50ms'",
        "overall = '7/1s smooth'",
        "overall = '5/3s burst 12'",
        "overall = ['30/1s', '4/1s smooth']\\nper_key = '5/2s burst 3'",
        "[rules.group]\\nper_key = '3/1s'\\nunder = ['shop']\\n[limits.shop]\\noverall = '50/60s'",
        "[rules]\\ngroup = '3/1s'\\n[keys.0]\\ngroup = '2/5s'",
        "concurrency = 1\\nkey_concurrency = 1\\nper_key = '9/10s'",
    ] {
        foretold(head, "calls = 60");
        foretold(head, "calls = 60\ncost = [1, 2]");
    }
    foretold("per_key = '4/1s'\\ncount_from = 'response'", "calls = 60\ntakes = '300ms'\ncost = 2");
    foretold("key_concurrency = 1", "calls = 60\ntakes = '300ms'");
    for pool in ["overall = '3/1s'", "overall = '3/2s smooth'\nper_key = '2/1s'", "overall = '2/1s burst 4'"] {
        foretold(&format!("[pool]\nendpoints = ['a', 'b', 'c']\n{pool}").replace('\n', "\\n"), "calls = 60");
    }
    foretold("[pool]\\nendpoints = ['a', 'b']\\nconcurrency = 2", "calls = 60\ntakes = '300ms'");
}

#[test]
fn each_limit_says_what_it_counts_and_when_it_has_room() {
    let rules = rules(
        "units = ['tokens']\noverall = ['500/min', '900/60s tokens']\nconcurrency = 2\nper_key = '2/1s burst 3'\n[rules]\na = {}\nb = '4/1s smooth'",
    );
    let log = [
        Start::new(ms(0), "a", 1).units("tokens", 700).end(ms(200)),
        Start::new(ms(100), "b", 1).cost(2),
        Start::new(ms(150), "a", 2).units("tokens", 100),
        Start::new(ms(9_000), "a", 1),
    ];
    let next = Start::new(ms(300), "b", 1).units("tokens", 300);
    assert_eq!(
        said(&explain_log(&rules, &log, &next)),
        [
            "`overall` 500/60s: 4 of 500 used, room now",
            "`overall` 900/60s tokens: 800 of 900 used, room at 60s",
            "`per_key` 2/1s burst 3, key 1: 3 of 3 used, room at 500ms",
            "`concurrency` 2: 2 of 2 used, room when a running attempt ends",
            "`rules.b.per_key` 4/1s smooth, key 1: 2 of 4 used, room now",
            "`rules.b.per_key` 4/1s smooth, key 1: 2 of 1 used, room at 600ms",
        ]
    );
    assert_eq!(explain_log(&rules, &log, &next).opens(), Opens::WhenOneEnds);
    // What takes none of a unit is not asked for any.
    assert_eq!(explain_log(&rules, &log, &Start::new(ms(300), "b", 1)).limits.len(), 5);
    let never = explain_log(&rules, &[], &Start::new(ms(0), "a", 1).cost(4));
    assert_eq!(
        (never.opens(), said(&never)[1].as_str()),
        (Opens::Never, "`per_key` 2/1s burst 3, key 1: 0 of 3 used, room never")
    );
    assert_eq!(explain_log(&rules, &log, &Start::new(ms(0), "c", 1)).limits, []);
}

#[test]
fn a_refusal_holds_what_the_policy_of_its_rule_says() {
    let text = "retry = { min_wait = '2s' }\n[rules]\na = {}\nb = { retry = { hold = 'rule' } }\nc = { retry = { hold = 'request' } }";
    let rules = rules(text);
    let refused = |rule, key, again| [Start::new(ms(1_000), rule, key).end(ms(1_500)).refused(ms(again))];
    let opens = |log: &[Start], rule, key| explain_log(&rules, log, &Start::new(ms(1_600), rule, key)).opens();
    assert_eq!(opens(&refused("a", 1, 9_000), "b", 1), Opens::At(ms(9_000)));
    assert_eq!(opens(&refused("a", 1, 9_000), "a", 2), Opens::Now);
    assert_eq!(opens(&refused("b", 1, 9_000), "b", 2), Opens::At(ms(9_000)));
    assert_eq!(opens(&refused("b", 1, 9_000), "a", 1), Opens::Now);
    assert_eq!(opens(&refused("c", 1, 9_000), "c", 1), Opens::Now);
    // No wait is shorter than the least one, and no hold longer than an hour.
    assert_eq!(opens(&refused("a", 1, 1_600), "a", 1), Opens::At(ms(3_500)));
    assert_eq!(opens(&refused("a", 1, 9_000_000), "a", 1), Opens::At(ms(3_601_500)));
}

#[cfg(feature = "calendar")]
#[test]
fn a_day_ends_at_midnight_of_its_zone() {
    let rules = rules("overall = '2/day Europe/Berlin'");
    // 2026-03-29 00:00 UTC and 2 h, on the day on which Berlin has 23 hours.
    let day = Duration::from_secs(1_774_742_400);
    let at = |hours: u64| day + Duration::from_secs(hours * 3_600);
    let log = [Start::new(at(0), "default", 1), Start::new(at(2), "default", 1)];
    let outlook = explain_log(&rules, &log, &Start::new(at(3), "default", 1));
    assert_eq!((outlook.limits[0].used, outlook.opens()), (2, Opens::At(at(22))));
}
