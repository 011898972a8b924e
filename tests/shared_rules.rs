//! Rules whose limits are shared: at every level, in files and in code, and back to text.

use std::time::Duration;

use request_balancer::engine::{Kept, LimitKind, LimitSpec};
use request_balancer::{NamedLimit, OnOutage, Quota, Rule, Rules, SharedRules};

const EVERYWHERE: &str = r#"
overall = { limit = "30/1s", concurrency = 8, shared = true }
per_key = { limit = ["20/60s", "4/1s"], shared = true }

[rules]
plain = "1/1s"
mine = { overall = { limit = "8/1s burst 8", shared = true }, per_key = "1/1s", under = ["overall", "account"] }
whole = { per_key = "9/1s", key_concurrency = 4, shared = true }

[limits.account]
per_key = "5000/1h"
shared = true

[lanes.2]
overall = { limit = "25/1s", shared = true }

[pool]
endpoints = ["a", "b"]
overall = { limit = "12/1s smooth", shared = true }

[shared]
url = "redis://127.0.0.1:6379"
prefix = "bot"
lease = "10s"
on_outage = "closed"
processes = 2
"#;

fn shared(specs: &[LimitSpec]) -> Vec<bool> {
    specs.iter().map(LimitSpec::is_shared).collect()
}

#[test]
fn every_level_can_be_shared() {
    let rules: Rules = EVERYWHERE.parse().unwrap();
    let plan = rules.plan();
    assert_eq!(shared(&plan.shared_limits), [true; 3]);
    assert_eq!(shared(&plan.key_limits), [true; 3]);
    let own: Vec<_> = plan.rules.iter().map(|rule| shared(&rule.own)).collect();
    assert_eq!(own, [vec![false], vec![false], vec![true, true]]);
    let pool = plan.pool.as_ref().unwrap();
    assert_eq!(shared(&pool.endpoints[0].limits), [true, true]);
    let shared = rules.shared();
    assert_eq!((shared.url(), shared.prefix()), (Some("redis://127.0.0.1:6379"), "bot"));
    assert_eq!((shared.lease(), shared.processes()), (Duration::from_secs(10), 2));
    assert_eq!(shared.on_outage(), OnOutage::Closed);
}

#[test]
fn text_reads_as_the_same_rules() {
    let rules: Rules = EVERYWHERE.parse().unwrap();
    let text = rules.to_string();
    assert_eq!(text.parse::<Rules>().unwrap(), rules, "{text}");
    let only_a_cap: Rules = "overall = { concurrency = 5, shared = true }".parse().unwrap();
    assert_eq!(only_a_cap.to_string(), "overall = { concurrency = 5, shared = true }\n\n[rules]\ndefault = {}\n");
}

#[test]
fn code_says_the_same() {
    let code = Rules::builder()
        .overall(Quota::per_second(30))
        .share_overall()
        .limit("account", NamedLimit::new().per_key(Quota::per_hour(5_000)).share_per_key())
        .rule("mine", Rule::new().per_key(Quota::per_second(1)).share_per_key().under(["overall", "account"]))
        .shared(SharedRules::new().processes(2).lease(Duration::from_secs(5)).url("redis://a").prefix("p"))
        .build()
        .unwrap();
    let file = "overall = { limit = '30/1s', shared = true }\n[rules.mine]\nper_key = { limit = '1/1s', shared = true }\n\
                under = ['overall', 'account']\n[limits.account]\nper_key = { limit = '5000/1h', shared = true }\n\
                [shared]\nprocesses = 2\nlease = '5s'\nurl = 'redis://a'\nprefix = 'p'";
    assert_eq!(code, file.parse().unwrap());
}

#[test]
fn a_part_is_rounded_down_and_may_be_nothing() {
    let parts = |text: &str| -> Vec<Option<LimitKind>> {
        let rules: Rules = format!("overall = {{ limit = '{text}', concurrency = 7, shared = true }}").parse().unwrap();
        let part = |spec: &LimitSpec| match spec.kept {
            Kept::Here => panic!("{spec:?} is not shared"),
            Kept::InStore { alone } => alone,
        };
        rules.plan().shared_limits.iter().map(part).collect()
    };
    let counts = |text: &str| -> Vec<Option<u32>> {
        let count = |kind: LimitKind| match kind {
            LimitKind::Window { count, .. } => count,
            LimitKind::Bucket { burst, .. } => burst,
            LimitKind::Spaced { interval, .. } => u32::try_from(interval.get() / 1_000_000).unwrap(),
            LimitKind::Calendar { count, .. } => count,
        };
        parts(text).into_iter().map(|part| part.map(count)).collect()
    };
    assert_eq!(counts("20/60s"), [Some(5), Some(1)]);
    assert_eq!(counts("3/1s"), [None, Some(1)]);
    assert_eq!(counts("10/1s burst 9"), [Some(2), Some(1)]);
    // Spacing of 100 ms among four is 400 ms.
    assert_eq!(counts("10/1s smooth"), [Some(2), Some(400), Some(1)]);
}

#[test]
fn what_a_key_has_of_its_own_is_kept_by_the_store_as_well() {
    let text = |own: &str| format!("[rules]\na = {{ per_key = '9/1s', shared = true }}\nb = '9/1s'\n[keys.k]\n{own}");
    for (own, found) in [
        ("a = ['50/1s', '30/1s']", "keys.k.a: found two quotas of one length, shared"),
        ("a = { count = 5, per = '1s', count_from = 'response' }", "counts from the response, shared"),
    ] {
        let findings = text(own).parse::<Rules>().unwrap_err().to_string();
        assert!(findings.contains(found), "{findings}");
    }
    assert!(text("b = ['50/1s', '30/1s']").parse::<Rules>().is_ok());
}
