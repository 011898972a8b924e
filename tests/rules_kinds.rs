//! What kinds of quotas, units and keys with numbers of their own become for the engine.

use std::sync::Arc;
use std::time::Duration;

use request_balancer::engine::{Anchor, Charge, LimitKind, LimitRef, LimitSpec, Nanos, Origin, PaceRef, Plan, RuleId};
use request_balancer::{CountFrom, FindingCode, Quota, Rules};

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}"))
}

fn plan(text: &str) -> Arc<Plan> {
    rules(text).plan()
}

fn kinds(specs: &[LimitSpec]) -> Vec<LimitKind> {
    specs.iter().map(|spec| spec.kind).collect()
}

const fn window(count: u32, period: Nanos) -> LimitKind {
    LimitKind::Window { count, period, anchor: Anchor::Start, grain: Nanos::ZERO }
}

const fn spaced(nanos: u64, largest: u32) -> LimitKind {
    LimitKind::Spaced { interval: Nanos::new(nanos), largest }
}

const fn bucket(nanos: u64, burst: u32) -> LimitKind {
    LimitKind::Bucket { interval: Nanos::new(nanos), burst }
}

const fn cap(count: u32) -> LimitKind {
    LimitKind::Window { count, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO }
}

#[test]
fn smooth_is_its_window_and_a_spacing_of_both_with_the_margin() {
    let plan =
        plan("margin = '50ms'\noverall = ['7/1s smooth', { count = 3, per = '2s', kind = 'smooth', margin = '0s' }]");
    let ms = Nanos::from_millis;
    assert_eq!(
        kinds(&plan.shared_limits),
        [window(7, ms(1_050)), spaced(150_000_000, 7), window(3, ms(2_000)), spaced(666_666_667, 3)]
    );
    assert!(plan.shared_limits.iter().all(|spec| spec.origin == Origin::Overall && spec.charge == Charge::Requests));
    assert_eq!(plan.rules[0].shared.iter().map(|bound| bound.limit).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn one_in_a_period_needs_no_spacing() {
    let plan = plan("margin = '50ms'\nper_key = '1/1s smooth'");
    assert_eq!(kinds(&plan.key_limits), [window(1, Nanos::from_millis(1_050))]);
}

#[test]
fn what_the_file_says_for_all_quotas_reaches_those_that_can_have_it() {
    let plan = plan("margin = '50ms'\ncount_from = 'response'\noverall = ['5/1s', '5/2s smooth', '5/300s burst 20']");
    let from_response =
        LimitKind::Window { count: 5, period: Nanos::from_millis(1_050), anchor: Anchor::End, grain: Nanos::ZERO };
    assert_eq!(
        kinds(&plan.shared_limits),
        [from_response, window(5, Nanos::from_millis(2_050)), spaced(410_000_000, 5), bucket(60_000_000_000, 20)]
    );
}

#[test]
fn lower_lanes_are_paced_by_plain_windows_alone() {
    for (overall, interval, reserves) in [
        ("['100/1s smooth', '500/60s burst 60']", None, vec![0, 0, 0]),
        ("['100/1s smooth', '300/60s', '500/60s burst 60']", Some(200_000_000), vec![0, 0, 6, 0]),
    ] {
        let plan =
            plan(&format!("overall = {overall}\nconcurrency = 100\n[rules]\ntop = {{}}\nlow = {{ priority = 2 }}"));
        let low = &plan.rules[1];
        let refs = reserves.into_iter().chain([0]).enumerate().map(|(limit, reserve)| LimitRef { limit, reserve });
        assert_eq!(*low.shared, refs.collect::<Vec<_>>(), "{overall}");
        let paces = interval.map(|nanos| PaceRef { clock: 0, interval: Nanos::new(nanos), charge: Charge::Requests });
        assert_eq!(*low.shared_pace, Vec::from_iter(paces), "{overall}");
    }
}

#[test]
fn each_unit_has_a_clock_of_its_own_in_every_group() {
    let plan = plan(
        "units = ['images', 'tokens']
         overall = ['1000/60s tokens', '30/1s', '2000/30s tokens', '9/1s smooth images']
         per_key = '100/60s tokens'
         [rules]
         top = {}
         low = { priority = 2 }
         lowest = { priority = 3 }",
    );
    let tokens = Charge::Unit(1);
    let charges: Vec<_> = plan.shared_limits.iter().map(|spec| spec.charge).collect();
    assert_eq!(charges, [tokens, Charge::Requests, tokens, Charge::Unit(0), Charge::Unit(0)]);
    assert_eq!((plan.shared_clocks, plan.key_clocks), (2, 1));
    for rule in &plan.rules[1..] {
        assert_eq!(
            *rule.shared_pace,
            [
                PaceRef { clock: 0, interval: Nanos::from_millis(60), charge: tokens },
                PaceRef { clock: 1, interval: Nanos::new(33_333_334), charge: Charge::Requests },
            ]
        );
        assert_eq!(*rule.key_pace, [PaceRef { clock: 0, interval: Nanos::from_millis(600), charge: tokens }]);
        assert_eq!(rule.shared.iter().map(|bound| bound.reserve).collect::<Vec<_>>(), [20, 0, 40, 0, 0]);
    }
}

#[test]
fn turns_are_measured_in_the_unit_that_the_file_says() {
    let fair_by = |text: &str| plan(text).fair_by;
    assert_eq!(fair_by(""), Charge::Requests);
    assert_eq!(fair_by("fair_by = 'requests'"), Charge::Requests);
    assert_eq!(fair_by("units = ['images', 'requests', 'tokens']\nfair_by = 'tokens'"), Charge::Unit(1));
}

#[test]
fn large_windows_of_keys_are_counted_in_granules_and_shared_ones_exactly() {
    let rules = rules(
        "margin = '1s'
         overall = '5000/1023s'
         per_key = ['4096/1023s', '4097/1023s']
         [limits.account]
         overall = '5000/1h'
         per_key = '5000/1h smooth'
         [rules.read]
         overall = '5000/1h'
         per_key = '5000/1h'
         under = ['account', 'overall', 'per_key']
         [keys.7]
         read = '9000/1h'",
    );
    let plan = rules.plan();
    let grains = |specs: &[LimitSpec]| -> Vec<u64> {
        let windows = specs.iter().filter_map(|spec| match spec.kind {
            LimitKind::Window { grain, .. } => Some(grain.get()),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => None,
        });
        windows.collect()
    };
    // An hour and a second in 1,024 parts, rounded up.
    let hour = 3_516_601_563;
    assert_eq!(grains(&plan.shared_limits), [0, 0, 0]);
    assert_eq!(grains(&plan.key_limits), [0, 1_000_000_000, hour]);
    assert_eq!(grains(&plan.rules[0].own), [hour]);
    assert_eq!(grains(&rules.own_numbers("7")[0].1), [hour]);
}

#[test]
fn a_key_replaces_the_quotas_of_a_rule_and_keeps_its_caps() {
    let rules = rules(
        "margin = '50ms'
         units = ['tokens']
         [rules.read]
         per_key = ['10/1s', '100/60s']
         key_concurrency = 3
         [rules.write]
         ordered = true
         [rules.other]
         per_key = '1/1s'
         [keys.'shop-1']
         write = '5/1s burst 9'
         read = ['40/1s', '9000/60s tokens']",
    );
    let ms = Nanos::from_millis;
    let own = rules.own_numbers("shop-1");
    assert_eq!(own.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), [RuleId(0), RuleId(1)]);
    let granules =
        LimitKind::Window { count: 9_000, period: ms(60_050), anchor: Anchor::Start, grain: Nanos::new(58_642_579) };
    assert_eq!(kinds(&own[0].1), [window(40, ms(1_050)), granules, cap(3)]);
    let charges: Vec<_> = own[0].1.iter().map(|spec| spec.charge).collect();
    assert_eq!(charges, [Charge::Requests, Charge::Unit(0), Charge::Attempt]);
    assert!(own[0].1.iter().all(|spec| spec.origin == Origin::RulePerKey("read".into())));
    assert_eq!(kinds(&own[1].1), [bucket(200_000_000, 9), cap(1)]);
    assert!(rules.own_numbers("shop-2").is_empty());
}

#[test]
fn quotas_that_come_later_are_checked_and_compiled_like_those_of_the_file() {
    let rules = rules("margin = '50ms'\nunits = ['tokens']\n[rules]\nread = { key_concurrency = 2 }\nwrite = '1/1s'");
    let (rule, specs) = rules
        .compile_own("write", &[Quota::per_second(3), Quota::per_minute(4).smooth().unit("tokens")])
        .expect("valid");
    let ms = Nanos::from_millis;
    assert_eq!(rule, RuleId(1));
    assert_eq!(kinds(&specs), [window(3, ms(1_050)), window(4, ms(60_050)), spaced(15_012_500_000, 4)]);
    assert_eq!(specs[1].charge, Charge::Unit(0));
    let (_, specs) = rules.compile_own("read", &[Quota::new(1, Duration::from_micros(1))]).expect("only doubtful");
    assert_eq!(specs.len(), 2);
    for (rule, quotas, found) in [
        ("reed", vec![Quota::per_second(1)], vec![FindingCode::UnknownRule]),
        ("read", vec![], vec![FindingCode::Empty]),
        ("read", vec![Quota::per_second(0)], vec![FindingCode::Zero]),
        ("read", vec![Quota::per_second(1).unit("token")], vec![FindingCode::UnknownUnit]),
        ("read", vec![Quota::per_second(1), Quota::per_second(1)], vec![FindingCode::DuplicateQuota]),
        ("read", vec![Quota::per_second(1).burst(0)], vec![FindingCode::Zero]),
        (
            "read",
            vec![Quota::per_second(1).burst(1).margin(Duration::ZERO).count_from(CountFrom::Response)],
            vec![FindingCode::TwoMeanings, FindingCode::TwoMeanings],
        ),
    ] {
        let findings = rules.compile_own(rule, &quotas).expect_err("not valid");
        assert_eq!(findings.iter().map(|finding| finding.code()).collect::<Vec<_>>(), found, "{quotas:?}");
        assert!(findings.iter().all(|finding| finding.path().starts_with(&format!("rules.{rule}.per_key"))));
    }
    let findings = rules.compile_own("reed", &[Quota::per_second(1)]).expect_err("no such rule");
    assert_eq!(findings.iter().next().and_then(|finding| finding.nearest()), Some("read"));
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_quota_names_its_zone_by_position_and_is_neither_paced_nor_left_free() {
    let rules = rules(
        "margin = '1s'
         count_from = 'response'
         overall = '1000/day UTC'
         per_key = '100/day Europe/Berlin'
         [rules]
         top = {}
         low = { priority = 2 }
         [keys.7]
         low = '9000/day Asia/Tokyo'
         [lanes.2]
         pace = '2days'",
    );
    let plan = rules.plan();
    assert_eq!(plan.zones.iter().map(|zone| zone.name()).collect::<Vec<_>>(), ["Asia/Tokyo", "Europe/Berlin", "UTC"]);
    assert_eq!(kinds(&plan.shared_limits), [LimitKind::Calendar { count: 1_000, zone: 2 }]);
    assert_eq!(kinds(&plan.key_limits), [LimitKind::Calendar { count: 100, zone: 1 }]);
    assert_eq!(kinds(&rules.own_numbers("7")[0].1), [LimitKind::Calendar { count: 9_000, zone: 0 }]);
    assert_eq!(*plan.rules[1].shared, [LimitRef { limit: 0, reserve: 0 }]);
    assert!(plan.rules[1].shared_pace.is_empty() && plan.rules[1].key_pace.is_empty());
    let (_, specs) = rules.compile_own("low", &[Quota::per_calendar_day(5, "UTC")]).expect("a zone of the rules");
    assert_eq!(kinds(&specs), [LimitKind::Calendar { count: 5, zone: 2 }]);
    for zone in ["Europe/Paris", "Europe/Parris"] {
        let findings = rules.compile_own("low", &[Quota::per_calendar_day(5, zone)]).expect_err("no zone of the rules");
        assert_eq!(findings.iter().map(|finding| finding.code()).collect::<Vec<_>>(), [FindingCode::UnknownZone]);
    }
}
