//! Which of a server's windows is which: by name and length, whatever else the answers say.

#![cfg(all(feature = "tokio", feature = "headers"))]

use std::time::Duration;

use request_balancer::{Balancer, Failure, NextStart, Permit, Rules};

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("rules"))
}

/// Starts one of the key `k`.
fn start(balancer: &Balancer) -> Permit {
    balancer.request("read", "k").try_acquire().expect("room for a start")
}

/// Its answer, which says this much.
fn answer(permit: Permit, fields: &[(&str, &str)]) {
    let checked: Result<(), Failure<()>> = permit.check(200, fields.iter().map(|(name, value)| (*name, *value)), None);
    assert!(checked.is_ok(), "{fields:?}");
    permit.succeed();
}

fn next(balancer: &Balancer) -> NextStart {
    balancer.next_start("read", "k").expect("a rule")
}

const fn after(secs: u64) -> NextStart {
    NextStart::After(Duration::from_secs(secs))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn resources_of_github_go_where_the_rules_say() {
    let balancer = balancer(
        "[limits.account]
         overall = '5000/1h'
         [rules.read]
         per_key = '60/60s'
         under = ['account']
         observe = { dialect = 'github', windows = { core = 'account', search = 'none' } }",
    );
    let says = |resource, left, reset| {
        [("X-RateLimit-Resource", resource), ("X-RateLimit-Remaining", left), ("X-RateLimit-Reset", reset)]
    };
    let [search, core, again] = [(); 3].map(|()| start(&balancer));
    answer(search, &says("search", "0", "60"));
    assert_eq!(next(&balancer), NextStart::Now);
    answer(core, &says("core", "0", "3000"));
    assert_eq!(next(&balancer), after(3_000));
    answer(again, &says("search", "29", "55"));
    assert_eq!(next(&balancer), after(3_000));
}

/// Discord's windows go by the name of a bucket, which is a hash that nobody knows before.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn windows_whose_names_nobody_knows_go_where_the_rules_say() {
    let says = |bucket, left| {
        [
            ("X-RateLimit-Bucket", bucket),
            ("X-RateLimit-Limit", "5"),
            ("X-RateLimit-Remaining", left),
            ("X-RateLimit-Reset-After", "30"),
        ]
    };
    // `overall` is most like it, which would hold everybody.
    let rules = |windows| {
        format!(
            "overall = '5/30s'
             [rules.read]
             per_key = '50/1s'
             observe = {{ dialect = 'discord', windows = {{ {windows} }} }}"
        )
    };
    for (windows, held, other) in [
        ("'*' = 'per_key'", after(30), NextStart::Now),
        ("'*' = 'per_key', ABCD1234 = 'none'", NextStart::Now, NextStart::Now),
        ("'*' = 'none', ABCD1234 = 'overall'", after(30), after(30)),
    ] {
        let balancer = balancer(&rules(windows));
        answer(start(&balancer), &says("abcd1234", "0"));
        assert_eq!(next(&balancer), held, "{windows}");
        assert_eq!(balancer.next_start("read", "other").expect("a rule"), other, "{windows}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn one_resource_does_not_end_the_hold_of_another() {
    let balancer = balancer("[rules.read]\nper_key = '60/60s'\nobserve = { dialect = 'github' }");
    let says = |resource, left, reset| {
        [("x-ratelimit-resource", resource), ("x-ratelimit-remaining", left), ("x-ratelimit-reset", reset)]
    };
    let [search, core] = [(); 2].map(|()| start(&balancer));
    answer(search, &says("search", "0", "60"));
    answer(core, &says("core", "4000", "3000"));
    assert_eq!(next(&balancer), after(60));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_full_second_is_over_after_a_second_beside_two_minutes() {
    let balancer = balancer("overall = '20/1s'\n[rules.read]\nobserve = { dialect = 'riot' }");
    let told = [("X-App-Rate-Limit", "20:1,100:120"), ("X-App-Rate-Limit-Count", "20:1,20:120")];
    answer(start(&balancer), &told);
    assert_eq!(next(&balancer), after(1));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn long_names_are_told_apart_and_found_in_the_rules() {
    let balancer = balancer(
        "[rules.read]
         per_key = '60/60s'
         observe = { dialect = 'azure-arm', windows = { Subscription-Global-Reads = 'none' } }",
    );
    answer(start(&balancer), &[("x-ms-ratelimit-remaining-subscription-global-reads", "0")]);
    assert_eq!(next(&balancer), NextStart::Now);
    answer(start(&balancer), &[("x-ms-ratelimit-remaining-subscription-global-writes", "0")]);
    assert_eq!(next(&balancer), after(60));

    let balancer = self::balancer("[rules.read]\nper_key = '5000/60s'");
    let both = r#""requests-per-minute-per-user";r=0;t=30, "requests-per-minute-per-org";r=900;t=3600"#;
    answer(start(&balancer), &[("RateLimit", both)]);
    assert_eq!(next(&balancer), after(30));

    let balancer = self::balancer(
        "[rules.read]\nper_key = '60/60s'\nobserve = { windows = { 'requests per minute and user' = 'none' } }",
    );
    answer(start(&balancer), &[("RateLimit", r#""requests per minute and user";r=0;t=30"#)]);
    assert_eq!(next(&balancer), NextStart::Now);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn tokens_narrow_requests_only_where_none_are_left() {
    let says = |tokens| {
        [
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", tokens),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]
    };
    for rules in ["[rules.read]\nper_key = '60/60s'", "units = ['tokens']\n[rules.read]\nper_key = '60/60s'"] {
        let balancer = balancer(rules);
        answer(start(&balancer), &says("1"));
        assert_eq!(next(&balancer), NextStart::Now);
        let permits: Vec<Permit> = (0..50).map(|_| start(&balancer)).collect();
        permits.into_iter().for_each(Permit::succeed);
        answer(start(&balancer), &says("0"));
        assert_eq!(next(&balancer), after(360));
        assert!(balancer.snapshot().differences.is_empty());
    }
}
