//! What rules become for the engine.

use request_balancer::Rules;
use request_balancer::engine::{Anchor, Charge, Kept, LimitKind, LimitRef, LimitSpec, Nanos, Origin, PaceRef, Plan};

fn plan(text: &str) -> std::sync::Arc<Plan> {
    text.parse::<Rules>().unwrap_or_else(|findings| panic!("{findings}")).plan()
}

fn window(origin: Origin, count: u32, period: Nanos, anchor: Anchor) -> LimitSpec {
    let charge = if period.is_zero() { Charge::Attempt } else { Charge::Requests };
    LimitSpec {
        origin,
        kind: LimitKind::Window { count, period, anchor, grain: Nanos::ZERO },
        charge,
        kept: Kept::Here,
    }
}

fn refs(limits: impl IntoIterator<Item = (usize, u32)>) -> Vec<LimitRef> {
    limits.into_iter().map(|(limit, reserve)| LimitRef { limit, reserve }).collect()
}

fn pace(clock: usize, nanos: u64) -> PaceRef {
    PaceRef { clock, interval: Nanos::new(nanos), charge: Charge::Requests }
}

const SECOND: Nanos = Nanos::from_secs(1);

#[test]
fn every_limit_stands_where_its_state_belongs() {
    let plan = plan(
        "overall = '30/1s'
         per_key = ['1/1s', { count = 20, per = '60s', margin = '1ms', count_from = 'response' }]
         margin = '50ms'
         concurrency = 8
         key_concurrency = 2
         [rules]
         free = { under = [] }
         plain = {}
         own = { per_key = '10/60s', key_concurrency = 1, overall = '5/1s', concurrency = 3, under = ['account'], priority = 3 }
         [limits.account]
         overall = '100/60s'
         per_key = '2/1s'
         concurrency = 4
         key_concurrency = 1
         [lanes.3]
         name = 'bulk'
         overall = '4/1s'
         concurrency = 1",
    );
    let ms = Nanos::from_millis;
    let account = || "account".into();
    assert_eq!(
        *plan.key_limits,
        [
            window(Origin::PerKey, 1, ms(1_050), Anchor::Start),
            window(Origin::PerKey, 20, ms(60_001), Anchor::End),
            window(Origin::PerKey, 2, Nanos::ZERO, Anchor::End),
            window(Origin::NamedPerKey(account()), 2, ms(1_050), Anchor::Start),
            window(Origin::NamedPerKey(account()), 1, Nanos::ZERO, Anchor::End),
        ]
    );
    assert_eq!(
        *plan.shared_limits,
        [
            window(Origin::Overall, 30, ms(1_050), Anchor::Start),
            window(Origin::Overall, 8, Nanos::ZERO, Anchor::End),
            window(Origin::NamedOverall(account()), 100, ms(60_050), Anchor::Start),
            window(Origin::NamedOverall(account()), 4, Nanos::ZERO, Anchor::End),
            window(Origin::Lane("bulk".into()), 4, ms(1_050), Anchor::Start),
            window(Origin::Lane("bulk".into()), 1, Nanos::ZERO, Anchor::End),
            window(Origin::RuleOverall("own".into()), 5, ms(1_050), Anchor::Start),
            window(Origin::RuleOverall("own".into()), 3, Nanos::ZERO, Anchor::End),
        ]
    );
    let [free, plain, own] = &*plan.rules else { panic!("three rules") };
    assert_eq!((free.key.len(), free.shared.len(), free.own.len()), (0, 0, 0));
    assert_eq!(*plain.key, refs([(0, 0), (1, 0), (2, 0)]));
    assert_eq!(*plain.shared, refs([(0, 0), (1, 0)]));
    assert_eq!(*own.key, refs([(3, 0), (4, 0)]));
    // Only one lane draws on the account, so nothing of it is paced or left free.
    assert_eq!(*own.shared, refs([(2, 0), (3, 0), (6, 0), (7, 0), (4, 0), (5, 0)]));
    assert_eq!(
        *own.own,
        [
            window(Origin::RulePerKey("own".into()), 10, ms(60_050), Anchor::Start),
            window(Origin::RulePerKey("own".into()), 1, Nanos::ZERO, Anchor::End),
        ]
    );
    assert_eq!((plan.key_clocks, plan.shared_clocks), (0, 0));
    assert_eq!((plan.lease, plan.max_hold), (SECOND, Nanos::from_secs(3_600)));
    let lanes: Vec<_> = plan.lanes.iter().map(|lane| (lane.priority, &*lane.name, lane.bypass)).collect();
    assert_eq!(lanes, [(1, "1", Some(18)), (3, "bulk", Some(18))]);
    assert_eq!(plan.rules.iter().map(|rule| rule.lane).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn a_file_without_rules_has_one_named_default() {
    let plan = plan("overall = '30/1s'");
    let [rule] = &*plan.rules else { panic!("one rule") };
    assert_eq!((&*rule.name, rule.lane, rule.weight, rule.queue), ("default", 0, 1, u32::MAX));
    assert_eq!(*rule.shared, refs([(0, 0)]));
    assert_eq!(plan.lanes.len(), 1);
}

#[test]
fn a_file_wide_count_from_holds_for_every_quota_that_says_nothing_else() {
    let plan = plan(
        "count_from = 'response'\nmargin = '10ms'\n
         overall = ['30/1s', { count = 1000, per = '1h', count_from = 'start', margin = '0s' }]",
    );
    assert_eq!(
        *plan.shared_limits,
        [
            window(Origin::Overall, 30, Nanos::from_millis(1_010), Anchor::End),
            window(Origin::Overall, 1_000, Nanos::from_secs(3_600), Anchor::Start),
        ]
    );
}

#[test]
fn ordered_needs_one_attempt_of_a_queue_at_a_time_once() {
    for own in ["ordered = true", "ordered = true, key_concurrency = 1"] {
        let plan = plan(&format!("[rules]\na = {{ {own} }}"));
        let cap = window(Origin::RulePerKey("a".into()), 1, Nanos::ZERO, Anchor::End);
        assert_eq!(*plan.rules[0].own, [cap]);
        assert!(plan.rules[0].ordered);
    }
}

#[test]
fn lower_lanes_are_paced_by_the_slowest_window_up_to_the_horizon() {
    for (overall, lane, interval, reserves) in [
        ("'30/1s'", "", Some(33_333_334), vec![0]),
        ("['30/1s', '1000/60s']", "", Some(60_000_000), vec![0, 20]),
        ("['30/1s', '1000/60s']", "pace = '1s'", Some(33_333_334), vec![0, 20]),
        ("['30/1s', '10000/1day']", "", Some(33_333_334), vec![0, 200]),
        ("'10000/1day'", "", None, vec![200]),
        ("['49/1s', '50/2s', '51/3s']", "", Some(58_823_530), vec![0, 1, 2]),
        ("['30/1s', '1000/60s']", "pace = false", None, vec![0, 0]),
    ] {
        let plan = plan(&format!(
            "overall = {overall}\nconcurrency = 100\n[rules]\ntop = {{}}\nlow = {{ priority = 2 }}\n[lanes.2]\n{lane}"
        ));
        let [top, low] = &*plan.rules else { panic!("two rules") };
        let free = reserves.len();
        assert_eq!(*top.shared, refs((0..=free).map(|limit| (limit, 0))), "{overall}");
        assert!(top.shared_pace.is_empty());
        // The concurrency cap comes last: never reserved.
        assert_eq!(*low.shared, refs(reserves.into_iter().chain([0]).enumerate()), "{overall}");
        assert_eq!(*low.shared_pace, Vec::from_iter(interval.map(|nanos| pace(0, nanos))), "{overall} {lane}");
        assert_eq!(plan.shared_clocks, usize::from(interval.is_some()));
    }
}

#[test]
fn the_margin_widens_the_pace_but_not_past_the_horizon() {
    let plan = plan("margin = '50ms'\noverall = '1000/60s'\n[rules]\ntop = {}\nlow = { priority = 2 }");
    assert_eq!(*plan.rules[1].shared_pace, [pace(0, 60_050_000)]);
}

#[test]
fn each_group_of_limits_has_one_clock_for_all_lower_lanes() {
    let plan = plan(
        "overall = '30/1s'
         per_key = '1/1s'
         [rules]
         top = { under = ['overall', 'per_key', 'shared'] }
         middle = { priority = 2, under = ['overall', 'own', 'lower'] }
         low = { priority = 3, under = ['overall', 'per_key', 'shared', 'lower'] }
         [limits]
         shared = { overall = '10/1s', per_key = '2/1s' }
         own = { overall = '10/1s' }
         lower = { overall = '5/1s', per_key = '4/1s' }",
    );
    let [top, middle, low] = &*plan.rules else { panic!("three rules") };
    assert!(top.shared_pace.is_empty() && top.key_pace.is_empty());
    // `overall`, which all share; not `own`, which is its own; not `lower`, of which it is the most urgent lane.
    assert_eq!(*middle.shared_pace, [pace(0, 33_333_334)]);
    assert!(middle.key_pace.is_empty());
    // In the order in which it names them: `overall`, then the named ones by name.
    assert_eq!(*low.shared_pace, [pace(0, 33_333_334), pace(1, 200_000_000), pace(2, 100_000_000)]);
    assert_eq!(*low.key_pace, [pace(0, 1_000_000_000), pace(1, 250_000_000), pace(2, 500_000_000)]);
    assert_eq!((plan.shared_clocks, plan.key_clocks), (3, 3));
}

#[test]
fn one_lane_is_not_paced() {
    let plan = plan("overall = '1000/1m'\nper_key = '1/1s'\n[rules]\na = { priority = 2 }\nb = { priority = 2 }");
    for rule in &plan.rules {
        assert_eq!((*rule.shared).to_vec(), refs([(0, 0)]));
        assert!(rule.shared_pace.is_empty() && rule.key_pace.is_empty());
    }
    assert_eq!((plan.shared_clocks, plan.key_clocks), (0, 0));
}

#[test]
fn a_share_becomes_the_grants_that_may_go_past() {
    let bypass = |share: &str| {
        let rules = "[rules]\na = {}\nb = { priority = 2 }\nc = { priority = 3 }";
        plan(&format!("{rules}\n[lanes.2]\nshare = 0\n[lanes.3]\nshare = {share}")).lanes[2].bypass
    };
    for (share, most) in [
        ("'1/12'", Some(9)),
        ("'1/32'", Some(29)),
        ("0.05", Some(17)),
        ("'1/20'", Some(17)),
        ("'2/25'", Some(10)),
        ("'1/4'", Some(1)),
        ("'1/3'", Some(1)),
        ("0", None),
        ("0.0", None),
        ("'0/7'", None),
    ] {
        assert_eq!(bypass(share), most, "{share}");
    }
}

#[test]
fn a_rule_keeps_what_it_says() {
    let plan = plan(
        "[retry]
         attempts = 4
         ceiling = false
         [rules.a]
         weight = 3
         queue = 10_000
         overflow = 'drop-oldest'
         max_wait = '10m'
         paused = true
         retry = { backoff = '2s', hold = 'overall', order = 'server', total_wait = false }
         [rules.b]
         retry = 'aggressive'
         [rules.c]",
    );
    let [a, b, c] = &*plan.rules else { panic!("three rules") };
    insta::assert_debug_snapshot!((a.weight, a.queue, a.overflow, a.max_wait, a.paused), @"
    (
        3,
        10000,
        DropOldest,
        Some(
            600s,
        ),
        true,
    )
    ");
    let short = |rule: &request_balancer::engine::RulePlan| {
        let policy = &rule.retry;
        format!(
            "{} {:?} {:?} {:?} {:?} {:?} {:?}",
            policy.attempts,
            policy.backoff,
            policy.max_delay,
            policy.ceiling,
            policy.total_wait,
            policy.hold,
            policy.order
        )
    };
    assert_eq!(short(a), "4 2s 30s None None Overall Server");
    assert_eq!(short(b), "5 250ms 5s None Some(900s) Endpoint Max");
    assert_eq!(short(c), "4 1s 30s None Some(900s) Endpoint Max");
}
