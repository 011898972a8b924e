//! `[pool]` of a rules file: what it means, what is wrong with it, and that it is written as it is read.

use request_balancer::engine::{Enter, Entry, Instant, LimitKind, Origin, Plan, RuleId, Scheduler};
use request_balancer::{BreakerRules, Choose, EndpointRules, Failover, FindingCode, Nanos, PoolRules, Quota, Rules};

const FULL: &str = "
units = ['tokens']
overall = '100/1s'
margin = '50ms'
[rules]
a = {}
b = { priority = 2 }
[pool]
overall = ['30/1s', '1000/1m tokens']
per_key = '1/1s'
concurrency = 2
key_concurrency = 1
choose = 'weighted'
failover = 'same-first'
sticky = true
exhausted = '2h'
breaker = { failures = 3, ratio = '1/2', minimum = 20, over = '1m', reset = '10s', jitter = 0, probes = 2, count_retries = true }
[pool.endpoints]
b = {}
a = { weight = 3, overall = '10/1s smooth', concurrency = 1 }
";

fn read(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{text}"))
}

#[test]
fn everything_of_a_pool_reaches_the_plan() {
    let rules = read(FULL);
    assert_eq!(rules.endpoints().collect::<Vec<_>>(), ["b", "a"]);
    let plan = rules.plan();
    let pool = plan.pool.as_ref().expect("a pool");
    assert_eq!((pool.choose, pool.failover, pool.sticky), (Choose::Weighted, Failover::SameFirst, true));
    assert_eq!(pool.exhausted, Nanos::from_secs(7_200));
    assert_eq!((pool.breaker.failures, pool.breaker.reset, pool.breaker.probes), (Some(3), Nanos::from_secs(10), 2));
    let ratio = pool.breaker.ratio.expect("a ratio");
    assert_eq!((ratio.part, ratio.of, ratio.minimum, ratio.over), (1, 2, 20, Nanos::from_secs(60)));
    let [b, a] = &*pool.endpoints else { panic!("{:?}", pool.endpoints) };
    assert_eq!((&*b.name, b.weight, &*a.name, a.weight), ("b", 1, "a", 3));
    let counts = |limits: &[request_balancer::engine::LimitSpec]| -> Vec<u32> {
        limits
            .iter()
            .filter_map(|spec| match spec.kind {
                LimitKind::Window { count, .. } => Some(count),
                _ => None,
            })
            .collect()
    };
    assert_eq!((counts(&b.limits), counts(&b.key_limits)), (vec![30, 1_000, 2], vec![1, 1]));
    // Its own in place of the pool's; what it has not, is the pool's.
    assert_eq!((counts(&a.limits), counts(&a.key_limits)), (vec![10, 1], vec![1, 1]));
    assert!(b.limits.iter().all(|spec| spec.origin == Origin::EndpointOverall("b".into())));
    assert!(matches!(b.limits[0].kind, LimitKind::Window { period, .. } if period == Nanos::from_millis(1_050)));
}

#[test]
fn what_is_read_is_written_and_read_again() {
    let few = "[pool]\nendpoints = ['x', 'bot b', '7']\nconcurrency = 1";
    let code = "[pool]\nconcurrency = 1\nbreaker = false";
    for text in [FULL, few, code, "[pool]\nbreaker = { ratio = 0.25 }\nendpoints = ['a']"] {
        let rules = read(text);
        assert_eq!(read(&rules.to_string()), rules, "{rules}");
    }
    assert!(read(few).to_string().contains("endpoints = [\"x\", \"bot b\", \"7\"]"));
}

#[test]
fn the_same_comes_from_code() {
    let breaker = BreakerRules::new()
        .failures(3)
        .ratio(1, 2)
        .minimum(20)
        .over(std::time::Duration::from_secs(60))
        .reset(std::time::Duration::from_secs(10))
        .jitter(0.0)
        .probes(2)
        .count_retries(true);
    let pool = PoolRules::new()
        .overall(Quota::per_second(30))
        .overall(Quota::per_minute(1_000).unit("tokens"))
        .per_key(Quota::per_second(1))
        .concurrency(2)
        .key_concurrency(1)
        .choose(Choose::Weighted)
        .failover(Failover::SameFirst)
        .sticky(true)
        .exhausted(std::time::Duration::from_secs(7_200))
        .breaker(breaker)
        .endpoint("b", EndpointRules::new())
        .endpoint("a", EndpointRules::new().weight(3).overall("10/1s smooth".parse().unwrap()).concurrency(1));
    let built = Rules::builder()
        .units(["tokens"])
        .overall(Quota::per_second(100))
        .margin(std::time::Duration::from_millis(50))
        .rule("a", request_balancer::Rule::new())
        .rule("b", request_balancer::Rule::new().priority(2))
        .pool(pool)
        .build()
        .unwrap();
    assert_eq!(built, read(FULL));
}

#[test]
fn findings_say_what_is_wrong_with_a_pool() {
    let cases = [
        ("[pool]\nendpoint = ['a']", FindingCode::UnknownField, "pool.endpoint", Some("endpoints")),
        ("[pool]\nendpoints = []", FindingCode::Empty, "pool.endpoints", None),
        ("[pool]\nendpoints = ['a', 'a']", FindingCode::DuplicateName, "pool.endpoints.a", None),
        ("[pool]\nendpoints = ['']", FindingCode::InvalidName, "pool.endpoints.\"\"", None),
        ("[pool]\nendpoints = 'a'", FindingCode::WrongType, "pool.endpoints", None),
        ("[pool]\nchoose = 'least-load'", FindingCode::UnknownValue, "pool.choose", Some("least-loaded")),
        ("[pool]\nfailover = 'never'", FindingCode::UnknownValue, "pool.failover", None),
        ("[pool]\nconcurrency = 0", FindingCode::Zero, "pool.concurrency", None),
        ("[pool]\noverall = '1/1s potatoes'", FindingCode::UnknownUnit, "pool.overall", None),
        ("[pool]\nexhausted = '0s'", FindingCode::Zero, "pool.exhausted", None),
        ("[pool]\nbreaker = true", FindingCode::WrongType, "pool.breaker", None),
        ("[pool]\nbreaker = { failures = 0 }", FindingCode::Zero, "pool.breaker.failures", None),
        ("[pool]\nbreaker = { ratio = 0 }", FindingCode::Zero, "pool.breaker.ratio", None),
        ("[pool]\nbreaker = { minimum = 5 }", FindingCode::Empty, "pool.breaker.minimum", None),
        ("[pool]\nbreaker = { probes = 0 }", FindingCode::Zero, "pool.breaker.probes", None),
        ("[pool]\nbreaker = { jitter = 2 }", FindingCode::OutOfRange, "pool.breaker.jitter", None),
        ("[pool.endpoints]\na = { weight = 0 }", FindingCode::Zero, "pool.endpoints.a.weight", None),
        ("[pool.endpoints]\na = { weight = 2000000 }", FindingCode::OutOfRange, "pool.endpoints.a.weight", None),
        ("[pool.endpoints]\na = { weigth = 2 }", FindingCode::UnknownField, "pool.endpoints.a.weigth", Some("weight")),
    ];
    for (text, code, path, nearest) in cases {
        let findings = text.parse::<Rules>().expect_err(text);
        let found: Vec<_> =
            findings.iter().map(|finding| (finding.code(), finding.path(), finding.nearest())).collect();
        assert_eq!(found, [(code, path, nearest)], "{text}");
        assert!(findings.iter().all(|finding| finding.line().is_some()), "{text}");
    }
    let rules = read("[pool]\nconcurrency = 1");
    let findings = rules.with_endpoints([("a", EndpointRules::new().weight(0)), ("a", EndpointRules::new())]);
    assert_eq!(findings.unwrap_err().iter().count(), 2);
}

#[test]
fn warnings_say_what_of_a_pool_is_of_no_use() {
    let warnings = |text: &str| -> Vec<String> {
        let rules = read(text);
        rules.warnings().iter().map(ToString::to_string).collect()
    };
    let unreachable = "warning[unreachable-rate]";
    for (text, expected) in [
        (
            "overall = '20/1s'\n[pool]\nendpoints = ['a', 'b', 'c']\noverall = '7/1s'",
            format!(
                "4:11: {unreachable} pool.overall: found `7/1s` on each of 3 endpoints, a rate above that of `overall`; \
                 allowed: up to the rate of `20/1s` in all"
            ),
        ),
        (
            "overall = '20/1s'\n[pool.endpoints]\na = { overall = '15/1s' }\nb = { overall = '301/1m' }",
            format!(
                "{unreachable} pool.endpoints: found 2 endpoints, a rate above that of `overall`; allowed: up to the rate \
                 of `20/1s` in all"
            ),
        ),
        (
            "[pool]\nendpoints = ['a', 'b']\noverall = '10/1s'\nper_key = '11/1s'",
            format!(
                "4:11: {unreachable} pool.per_key: found `11/1s`, a rate above that of `pool.overall`; allowed: up to the \
                 rate of `10/1s`"
            ),
        ),
        (
            "[pool]\noverall = '10/1s'\n[pool.endpoints]\na = { per_key = '3/1s', overall = '2/1s' }\nb = {}",
            format!(
                "4:17: {unreachable} pool.endpoints.a.per_key: found `3/1s`, a rate above that of \
                 `pool.endpoints.a.overall`; allowed: up to the rate of `2/1s`"
            ),
        ),
        (
            "[pool]\nendpoints = ['a']\nsticky = true",
            "3:10: warning[no-effect] pool.sticky: found `sticky` with one endpoint; allowed: two or more endpoints"
                .to_owned(),
        ),
        (
            "[pool]\nchoose = 'in-order'\n[pool.endpoints]\na = { weight = 2 }\nb = {}",
            "4:16: warning[no-effect] pool.endpoints.a.weight: found `weight` with `choose = \"in-order\"`; allowed: no \
             weight, or another `choose`"
                .to_owned(),
        ),
    ] {
        assert_eq!(warnings(text), [expected], "{text}");
    }
    for sound in [
        // As much as all calls may do, and some calls that may do more.
        "overall = '20/1s'\n[pool]\nendpoints = ['a', 'b']\noverall = '10/1s'",
        "overall = '20/1s'\n[rules]\na = {}\nb = { under = [] }\n[pool]\nendpoints = ['a', 'b', 'c']\noverall = '10/1s'",
        // Other units, none, or endpoints from code.
        "units = ['t']\noverall = '20/1s'\n[rules]\na = {}\n[pool]\nendpoints = ['a', 'b', 'c']\noverall = '10/1s t'",
        "overall = '20/1s'\n[pool]\nendpoints = ['a', 'b', 'c']",
        "overall = '20/1s'\n[pool]\noverall = '30/1s'\nsticky = true",
        "[pool]\nendpoints = ['a', 'b']\nsticky = true",
        FULL,
    ] {
        assert_eq!(warnings(sound), [""; 0], "{sound}");
    }
}

#[test]
fn a_pool_without_endpoints_is_none_before_it_has_some() {
    let rules = read("[pool]\nconcurrency = 1");
    let has_pool = |plan: &Plan| plan.pool.is_some();
    assert!(rules.has_pool() && !has_pool(&rules.plan()));
    assert!(has_pool(&rules.with_endpoints([("a", EndpointRules::new())]).unwrap().plan()));
}

#[test]
fn lower_lanes_are_paced_by_the_sum_of_the_endpoints() {
    let paces = |text: &str| {
        let plan = read(text).plan();
        plan.rules
            .iter()
            .map(|rule| rule.shared_pace.iter().map(|pace| pace.interval).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let lanes = "[rules]\na = {}\nb = { priority = 2 }\n[pool]\nendpoints = ['x', 'y', 'z']\n";
    assert_eq!(paces(&format!("{lanes}overall = '10/1s'"))[..], [vec![], vec![Nanos::new(33_333_334)]]);
    // Nothing limits them, or only for longer than the horizon.
    assert_eq!(paces(lanes)[..], [vec![], vec![]]);
    assert_eq!(paces(&format!("{lanes}overall = '10/1h'"))[..], [vec![], vec![]]);
    let own =
        "[rules]\na = {}\nb = { priority = 2 }\n[pool.endpoints]\nx = { overall = '1/1s' }\ny = { overall = '3/1s' }";
    // One and three a second, each rounded so that it is not too fast.
    assert_eq!(paces(own)[..], [vec![], vec![Nanos::new(250_000_063)]]);
}

/// Only those that were added were counted, and the last place of all was one too many to count to.
#[test]
fn more_endpoints_than_there_can_be_are_found_however_they_come() {
    let names = (0..65_535).map(|number| (format!("e{number}"), EndpointRules::new()));
    let full = read("[pool]\nconcurrency = 1").with_endpoints(names).unwrap();
    let findings = full.with_endpoint("more", EndpointRules::new()).unwrap_err();
    assert!(findings.to_string().contains("65536 endpoints"), "{findings}");
    // One that is there may have other numbers, and all can be used.
    let full = full.with_endpoint("e7", EndpointRules::new().concurrency(2)).unwrap();
    let mut machine = Scheduler::<()>::new(full.plan());
    let key = machine.add_key(Instant::ZERO, 0);
    let started = machine.enter(Instant::ZERO, key, RuleId(0), Entry::default());
    assert!(matches!(started, Ok(Enter::Started(_))), "{started:?}");
    assert_eq!(machine.endpoints(Instant::ZERO).len(), 65_535);
}
