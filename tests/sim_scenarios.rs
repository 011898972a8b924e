//! Scenario files: everything that is wrong is told at once; what loads runs the same everywhere.

#![cfg(feature = "sim")]

use request_balancer::sim::{Policy, Scenario};
use request_balancer::{Findings, Start, verify};

fn findings(text: &str) -> Findings {
    match text.parse::<Scenario>() {
        Ok(scenario) => panic!("{scenario:?} loads"),
        Err(findings) => findings,
    }
}

#[test]
fn all_findings_are_told_at_once_with_their_places() {
    let text = r#"title = "t"
rules = '''
overall = "30/1s"
[rules]
chat = { overflow = 'drop' }
'''
until = "1 fortnight"
policies = ["fifo", "scam"]
[[traffic]]
rule = "chat"
"#;
    // What traffic and shows refer to could not be read: nothing is said of them.
    let expected = "\
        5:21: error[unknown-value] rules: rules.chat.overflow: found `drop`; allowed: `reject`, `drop-oldest`; did you \
        mean `drop-oldest`?\n\
        7:9: error[invalid-duration] until: found `1 fortnight`; allowed: a length of time such as `500ms`, `60s`, \
        `1h 30m`\n\
        8:21: error[unknown-value] policies: found `scam`; allowed: `request-balancer`, `fifo`, `scan`, \
        `smart-request-balancer`, `strict-lanes`, `ageing-lanes`, `independent-limiters`; did you mean `scan`?";
    assert_eq!(findings(text).to_string(), expected);
}

#[test]
fn each_field_says_what_it_takes() {
    let found = |text: &str| {
        let text = format!("title = 't'\nrules = ''\n{text}");
        findings(&text).iter().map(|finding| format!("{} {}", finding.code(), finding.path())).collect::<Vec<_>>()
    };
    let show = "[[show]]\nmetric = 'started'\n";
    let traffic = "[[traffic]]\ncalls = 1\n";
    for (text, expected) in [
        (show.to_owned(), "empty traffic"),
        (format!("{show}{traffic}units = {{ tokens = 5 }}"), "unknown-value traffic[0].units.tokens"),
        (format!("{show}{traffic}units = 5"), "wrong-type traffic[0].units"),
        (format!("{show}{traffic}[[server]]\nlimit = '1/1s'\ncounts = 'tokens'"), "unknown-value server[0].counts"),
        (format!("variants = []\n{show}{traffic}"), "empty variants"),
        (traffic.to_owned(), "empty show"),
        (format!("{traffic}{show}of = 'x'"), "unknown-value show[0].of"),
        (format!("{traffic}{show}stat = 'p99'"), "two-meanings show[0].stat"),
        (format!("{traffic}{show}exact = true"), "empty show[0].optimum"),
        (format!("{traffic}{show}optimum = '1s'"), "wrong-type show[0].optimum"),
        (format!("{traffic}[[show]]\nmetric = 'weight'"), "unknown-value show[0].metric"),
        (format!("{traffic}[[show]]\nmetric = 'bypass'"), "empty show[0].of"),
        (format!("{traffic}[[show]]\nmetric = 'jain'\nat_least = 1e3"), "out-of-range show[0].at_least"),
        (format!("{show}[[traffic]]\nrule = 'x'\ncalls = 1"), "unknown-rule traffic[0].rule"),
        (format!("{show}[[traffic]]\ncalls = 0"), "zero traffic[0].calls"),
        (format!("{show}[[traffic]]\ncalls = 60_000_000"), "out-of-range traffic"),
        (format!("{show}[[traffic]]\ncalls = 1\nkeys = 60_000_000"), "out-of-range traffic"),
        (format!("{show}[[traffic]]\ncalls = 1\nkeys = 'each'"), "wrong-type traffic[0].keys"),
        (format!("{show}[[traffic]]\ncalls = 1\ncost = [1, 2, 3]"), "wrong-type traffic[0].cost"),
        (format!("{show}[[traffic]]\ncalls = 1\nthink = '1s'"), "two-meanings traffic[0].think"),
        (format!("{show}[[traffic]]\narrivals = 'even'\ncalls = 1"), "empty traffic[0].rate"),
        (format!("{show}[[traffic]]\narrivals = 'even'\nrate = '5/1s'"), "empty traffic[0].calls"),
        (format!("{show}[[traffic]]\narrivals = 'even'\nrate = '5'\ncalls = 1"), "invalid-quota traffic[0].rate"),
        (format!("{show}[[traffic]]\narrivals = 'closed'\nthink = '1s'"), "empty until"),
        (format!("{show}[[traffic]]\narrivals = 'trace'\nfile = 'no.csv'"), "unreadable-file traffic[0].file"),
        (format!("{show}[[traffic]]\ncalls = 1\ncancel = {{ at = '1s' }}"), "empty traffic[0].cancel"),
        (format!("{show}{traffic}{traffic}"), "duplicate-name traffic[1].name"),
        (format!("{show}{traffic}[[server]]\nkind = 'fixed'"), "empty server[0].limit"),
        (format!("{show}{traffic}[[server]]\nlimit = '1/1s'\nkeys = [9, 0]"), "out-of-range server[0].keys"),
        (format!("{show}{traffic}[[server]]\nat_once = 0"), "zero server[0].at_once"),
        (format!("{show}{traffic}[[server]]\nat_once = 1\nlimit = '1/1s'"), "two-meanings server[0].limit"),
        (format!("{show}{traffic}[[server]]\nat_once = 1\nkind = 'fixed'"), "two-meanings server[0].kind"),
        (format!("{show}{traffic}[[server]]\nat_once = 1\neach = 'bot'"), "unknown-value server[0].each"),
        (format!("{show}{traffic}[[server]]\nat_once = 1\nendpoints = ['a']"), "unknown-value server[0].endpoints"),
        (format!("{show}{traffic}endpoints = ['a']"), "unknown-value traffic[0].endpoints"),
        (format!("{traffic}{show}on = 'a'"), "unknown-value show[0].on"),
        (format!("{show}{traffic}[network]\nlatency = '1s'"), "unknown-field network.latency"),
        (format!("{show}{traffic}[[variants]]\nmargin = '1s'"), "empty variants[0].title"),
        (format!("rules_file = 'x.toml'\n{show}{traffic}"), "unreadable-file rules_file"),
        (format!("{show}[[traffic]]\ncalls = 1\ncost = [5, 1]"), "out-of-range traffic[0].cost"),
        (format!("{show}[[traffic]]\ncalls = 1\ntakes = ['5s', '1s']"), "out-of-range traffic[0].takes"),
        (
            format!("{show}[[traffic]]\narrivals = 'even'\nrate = '5/1s burst 9'\ncalls = 1"),
            "out-of-range traffic[0].rate",
        ),
        (
            format!("{show}[[traffic]]\narrivals = 'even'\nrate = '5/1s smooth'\ncalls = 1"),
            "out-of-range traffic[0].rate",
        ),
        (
            format!("{show}[[traffic]]\narrivals = 'even'\nrate = '5/1s tokens'\ncalls = 1"),
            "out-of-range traffic[0].rate",
        ),
        (format!("until = '2h'\n{show}[[traffic]]\narrivals = 'even'\nrate = '1000000/1s'"), "out-of-range traffic[0]"),
        (
            format!("until = '2h'\n{show}[[traffic]]\narrivals = 'bursts'\nburst = 1\nevery = '0s'"),
            "zero traffic[0].every",
        ),
        (format!("{show}[[traffic]]\narrivals = 'poisson'\nrate = '1/100years'\ncalls = 6"), "out-of-range traffic[0]"),
        (format!("{traffic}[[show]]\nmetric = 'jain'\nrounds = 1\nstarts = 1"), "two-meanings show[0].starts"),
        (
            format!("{traffic}[[show]]\nmetric = 'started'\noptimum = 1\nexact = true\nwithin = '1%'"),
            "two-meanings show[0].exact",
        ),
        (
            format!("{traffic}[[show]]\nmetric = 'started'\noptimum = 1\nwithin = '1%'\nat_most = 3"),
            "two-meanings show[0].within",
        ),
        (format!("{traffic}[[show]]\nmetric = 'overshoot'\nlimit = 'rules.x.per_key'"), "unknown-value show[0].limit"),
    ] {
        assert_eq!(found(&text), [expected], "{text}");
    }
    let pool = findings(&format!("title = 't'\nrules = '[pool]'\n{traffic}{show}"));
    assert!(
        pool.to_string().starts_with("error[empty] pool.endpoints: found no `pool.endpoints`; allowed: "),
        "{pool}"
    );
    assert_eq!(findings("title = 't'").to_string().lines().count(), 1);
    assert!(findings("title = ").to_string().starts_with("1:9: error[syntax]"));
}

#[test]
fn what_a_variant_adds_is_found_where_it_says_so() {
    let text = "title = 't'
rules = '''
overall = \"30/1s\"
'''
[[traffic]]
calls = 1
[[variants]]
title = 'v'
margin = '1 fortnight'
count_from = 'answer'
[[variants.show]]
metric = 'started'
";
    let expected = "\
        9:10: error[invalid-duration] variants[0].margin: found `1 fortnight`; allowed: a length of time such as `500ms`, \
        `60s`, `1h 30m`\n\
        10:14: error[unknown-value] variants[0].count_from: found `answer`; allowed: `start`, `response`";
    assert_eq!(findings(text).to_string(), expected);
}

#[test]
fn limits_that_are_counted_are_named_by_their_places() {
    let rules = "overall = '9/1s'\n[rules]\na = '1/1s'\nb = '5/1m burst 5'\n[keys.5]\na = '2/1s'";
    let overshoot = |limit: &str| {
        let text = format!(
            "title = 't'\nrules = \"\"\"{rules}\"\"\"\n[[traffic]]\nrule = 'a'\ncalls = 1\n\
                            [[show]]\nmetric = 'overshoot'\nlimit = '{limit}'"
        );
        text.parse::<Scenario>()
    };
    for limit in ["overall", "rules.a.per_key", "keys.5.a"] {
        let scenario = overshoot(limit).unwrap_or_else(|findings| panic!("{findings}"));
        assert!(scenario.run(Policy::Balancer)[0].measured.is_some(), "{limit}");
    }
    // A bucket is no window.
    let findings = overshoot("rules.b.per_key").unwrap_err().to_string();
    assert!(findings.contains("allowed: `overall`, `rules.a.per_key`, `keys.5.a`"), "{findings}");
}

#[test]
fn a_missing_file_is_a_finding() {
    let findings = Scenario::from_file("examples/scenarios/none.toml").unwrap_err();
    assert!(findings.to_string().starts_with("examples/scenarios/none.toml: error[unreadable-file]"), "{findings}");
}

#[test]
fn all_scenarios_in_the_examples_load_and_say_what_they_are_for() {
    for entry in std::fs::read_dir("examples/scenarios").expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        match Scenario::from_file(&path) {
            Ok(scenario) => assert!(!scenario.policies().is_empty(), "{}", path.display()),
            Err(findings) => panic!("{findings}"),
        }
        let text = std::fs::read_to_string(&path).expect("a readable file");
        assert!(text.starts_with("# "), "{} does not say what it is for", path.display());
    }
}

/// Everything that draws at once: keys, arrivals, costs, times, jitter, refusals, people who leave.
const CHANCE: &str = r#"
    title = "chance"
    rules = "overall = '20/1s'\nper_key = '3/1s'\n[rules]\na = {}\nb = { priority = 2 }"
    seeds = [1, 2]
    until = "60s"
    [network]
    delay = "10ms"
    jitter = "300ms"
    [[traffic]]
    rule = "a"
    keys = 30
    who = "zipf"
    arrivals = "poisson"
    rate = "10/1s"
    takes = ["0s", "2s"]
    [[traffic]]
    rule = "b"
    keys = 30
    who = "random"
    calls = 900
    cost = [1, 3]
    cancel = { at = "20s", share = 0.5 }
    [[traffic]]
    name = "loop"
    rule = "a"
    first_key = 30
    keys = 5
    arrivals = "closed"
    think = "700ms"
    [[traffic]]
    name = "bursts"
    rule = "a"
    keys = "own"
    arrivals = "bursts"
    burst = 15
    every = "9s"
    [[server]]
    limit = "20/1s"
    [[server]]
    limit = "5/2s"
    kind = "fixed"
    each = "key"
    penalty = "1s"
    [[show]]
    metric = "started"
    [[show]]
    metric = "finished"
    [[show]]
    metric = "wait"
    stat = "p99-of-keys"
    [[show]]
    metric = "induced-wait"
    stat = "mean"
    of = "a"
    [[show]]
    metric = "overshoot"
    [[show]]
    metric = "overshoot"
    at = "server"
    [[show]]
    metric = "refusals-per-success"
    [[show]]
    metric = "max-min-distance"
    [[show]]
    metric = "utilisation"
    [[show]]
    metric = "inversions"
    [[show]]
    metric = "lead"
"#;

#[test]
fn a_run_is_the_same_every_time() {
    let scenario: Scenario = CHANCE.parse().expect("a sound scenario");
    for policy in Policy::ALL {
        let measures = scenario.run(policy);
        assert_eq!(measures, scenario.run(policy), "{policy}");
    }
    let own = scenario.run(Policy::Balancer);
    assert!(own.iter().all(|measure| measure.measured.is_some()), "{own:?}");
    let overshoot = own.iter().find(|measure| measure.metric == "overshoot").and_then(|measure| measure.measured);
    assert_eq!(overshoot.map(|value| value.number()), Some(0));
}

#[test]
fn progress_is_told_on_the_way() {
    let scenario: Scenario = "
        title = 't'
        rules = ''
        until = '100s'
        [[traffic]]
        keys = 7
        arrivals = 'even'
        rate = '2000/1s'
        [[show]]
        metric = 'started'
    "
    .parse()
    .expect("a sound scenario");
    let mut told = Vec::new();
    let measures = scenario.run_with(Policy::Fifo, |progress| told.push(progress));
    assert_eq!(measures[0].measured.map(|value| value.number()), Some(200_000));
    let started: Vec<u64> = told.iter().map(|progress| progress.started).collect();
    assert_eq!(started, (1..=24).map(|times| times * 8_192).collect::<Vec<_>>());
    // Start number n is at (n - 1) * 500 us.
    assert_eq!(told[0].now.as_nanos(), 8_191 * 500_000);
    assert_eq!(told[0].until.map(|until| until.as_nanos()), Some(100_000_000_000));
}

#[test]
fn the_readme_says_what_becomes_of_the_bots_afternoon() {
    let scenario = Scenario::from_file("examples/scenarios/telegram.toml").expect("a sound scenario");
    let lines = scenario.run(Policy::Balancer).into_iter().map(|line| {
        let measured = line.measured.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
        format!("{}: {measured}\n", line.metric)
    });
    let lines: String = lines.collect();
    assert!(include_str!("../README.md").contains(&lines), "README.md does not say so:\n{lines}");
}

#[test]
fn calls_cost_what_units_say_and_the_server_counts_it() {
    let scenario = |server: &str| -> Scenario {
        let text = format!(
            "title = 't'
            rules = \"units = ['images', 'tokens']\\noverall = '900/60s tokens'\"
            [[traffic]]
            calls = 6
            units = {{ tokens = 300 }}
            {server}
            [[show]]
            metric = 'last-start'
            [[show]]
            metric = 'overshoot'
            [[show]]
            metric = 'refusals'"
        );
        text.parse().unwrap_or_else(|findings| panic!("{findings}"))
    };
    let shown = |scenario: &Scenario, policy| -> Vec<String> {
        scenario.run(policy).iter().map(|line| line.measured.expect("a number").to_string()).collect()
    };
    let fits = scenario("[[server]]\nlimit = '900/60s'\ncounts = 'tokens'");
    assert_eq!(shown(&fits, Policy::Balancer), ["60.000 s", "0", "0"]);
    assert_eq!(shown(&fits, Policy::Scan), ["60.000 s", "0", "0"]);
    let record = fits.record(Policy::Balancer);
    assert_eq!(record.starts()[0].start.units, [("images".to_owned(), 0), ("tokens".to_owned(), 300)]);
    // Two of 300 fit at the server: the third is sent away, for as long as it takes or as the server says.
    for kind in ["sliding", "fixed", "bucket"] {
        let narrow = scenario(&format!("[[server]]\nlimit = '600/60s'\ncounts = 'tokens'\nkind = '{kind}'"));
        let refusals = shown(&narrow, Policy::Balancer).pop();
        assert_ne!(refusals.as_deref(), Some("0"), "{kind}");
    }
    // One call of 300 is as much as the limit counts of any.
    let least = scenario("[[server]]\nlimit = '100/60s'\ncounts = 'tokens'");
    assert_eq!(
        least.record(Policy::Balancer).starts().iter().filter(|started| started.start.again.is_none()).count(),
        6
    );
    let calls = scenario("[[server]]\nlimit = '3/60s'");
    assert_eq!(shown(&calls, Policy::Balancer)[2], "0");
}

#[test]
fn starts_of_the_engine_keep_to_the_rules_and_those_of_others_need_not() {
    let scenario = Scenario::from_file("examples/scenarios/hog-and-mice.toml").expect("a sound scenario");
    let rules = "overall = '30/1s'\n[rules]\naccount = '1000/1s'".parse().expect("sound rules");
    let starts = |policy| -> Vec<Start> {
        scenario.record(policy).starts().iter().map(|started| started.start.clone()).collect()
    };
    let own = starts(Policy::Balancer);
    assert_eq!((own.len(), verify(&rules, &own)), (1_100, Vec::new()));
    assert!(!verify(&rules, &starts(Policy::IndependentLimiters)).is_empty());
}

#[test]
fn nobody_comes_back_in_the_instant_in_which_he_was_refused() {
    let scenario: Scenario = "
        title = 't'
        rules = 'retry = { min_wait = \"1ns\", waits = 100000 }'
        until = '1s'
        [[traffic]]
        calls = 2
        [[server]]
        limit = '1/10s'
        retry_after = '0s'
        [[show]]
        metric = 'refusals'
    "
    .parse()
    .expect("a sound scenario");
    for policy in [Policy::Fifo, Policy::Scan, Policy::AgeingLanes, Policy::IndependentLimiters] {
        // One of the two is let in, the other comes every millisecond.
        assert_eq!(scenario.run(policy)[0].measured.map(|value| value.number()), Some(1_000), "{policy}");
    }
}
