//! Costs, keys with numbers of their own, other rules and other names of keys while requests wait and run.

#![cfg(feature = "tokio")]

use std::time::Duration;

use request_balancer::{Attempt, Balancer, Error, Failure, NextStart, Outcome, Quota, Refused, Rules};
use tokio::time::Instant;

type Never = std::convert::Infallible;

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{text}"))
}

fn balancer(text: &str) -> Balancer {
    Balancer::new(rules(text))
}

/// When a request of this cost starts, in milliseconds from `zero`.
async fn start(balancer: &Balancer, zero: Instant, rule: &str, key: &str, cost: u32) -> u128 {
    let permit = balancer.request(rule, key).cost(cost).acquire().await.expect("a start");
    let at = zero.elapsed().as_millis();
    drop(permit);
    at
}

async fn at(millis: u64, zero: Instant) {
    tokio::time::sleep_until(zero + Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_pays_what_it_costs() {
    let (balancer, zero) = (balancer("[rules]\nsend = '10/1s'"), Instant::now());
    assert_eq!(start(&balancer, zero, "send", "a", 7).await, 0);
    assert_eq!(start(&balancer, zero, "send", "a", 3).await, 0);
    assert_eq!(start(&balancer, zero, "send", "a", 1).await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_is_refused_at_once_and_spends_nothing() {
    let balancer = balancer("[rules]\nsend = '10/1s'");
    let refused = balancer.request("send", "a").cost(11).acquire().await.map(drop);
    assert_eq!(refused, Err(Refused::CostTooHigh { cost: 11, capacity: 10 }));
    assert!(balancer.request("send", "a").cost(10).try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn units_are_counted_beside_requests_and_settled_afterwards() {
    let text = "units = ['tokens']\noverall = ['3/1m', '1000/1m tokens']";
    let (balancer, zero) = (balancer(text), Instant::now());
    let first = balancer.request("default", "a").cost_of("tokens", 900).acquire().await.expect("a start");
    let refused = balancer.request("default", "a").cost_of("tokens", 200).try_acquire();
    assert!(matches!(refused, Err(Refused::NotNow { .. })));
    first.settle("tokens", 100).expect("a unit");
    drop(first);
    let second = balancer.request("default", "a").cost_of("tokens", 900).try_acquire().expect("room");
    // It took more than was asked for: who comes next waits.
    second.settle("tokens", 1_500).expect("a unit");
    drop(second);
    let third = balancer.request("default", "a").cost_of("tokens", 1).acquire().await.expect("a start");
    assert_eq!(zero.elapsed(), Duration::from_secs(60));
    drop(third);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_settles_and_its_retry_pays_the_new_cost() {
    let text = "units = ['tokens']\noverall = '1000/1m tokens'\n[retry]\njitter = 0";
    let (balancer, zero) = (balancer(text), Instant::now());
    let f = async |attempt: Attempt| -> Outcome<u32, Never> {
        attempt.settle("tokens", 600).expect("a unit");
        if attempt.number() == 1 { Err(attempt.retry(Duration::from_secs(1))) } else { Ok(attempt.number()) }
    };
    let answer = balancer.request("default", "a").cost_of("tokens", 10).run(f).await;
    // 600 of the first attempt and 600 of the second do not fit into one minute.
    assert_eq!((answer.ok(), zero.elapsed().as_secs()), (Some(2), 60));
}

#[tokio::test]
async fn an_undeclared_unit_is_refused_with_the_nearest_name() {
    let balancer = balancer("units = ['tokens']\noverall = '1000/1m tokens'");
    let refused = balancer.request("default", "a").cost_of("token", 5).acquire().await.map(drop);
    assert_eq!(refused, Err(Refused::UnknownUnit { name: "token".into(), nearest: Some("tokens".into()) }));
    let permit = balancer.request("default", "a").cost_of("requests", 1).acquire().await.expect("a start");
    assert!(matches!(permit.settle("words", 5), Err(Refused::UnknownUnit { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_file_has_its_own_numbers() {
    let balancer = balancer("[rules]\nread = '1/1s'\n[keys.'shop-1']\nread = '3/1s'\n[keys.42]\nread = '2/1s'");
    for (key, count) in [("shop-1", 3), ("42", 2), ("other", 1)] {
        for _ in 0..count {
            assert!(balancer.request("read", key).try_acquire().is_ok(), "{key}");
        }
        assert!(balancer.request("read", key).try_acquire().is_err(), "{key}");
    }
    assert!(balancer.request("read", 42).try_acquire().is_ok(), "a number has the numbers of its text");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_was_set_outlives_the_keys_record() {
    let (balancer, zero) = (balancer("[rules]\nread = '1/1s'"), Instant::now());
    balancer.set_limit("read", "shop", &[Quota::per_second(2)]).expect("a quota");
    assert_eq!(start(&balancer, zero, "read", "shop", 1).await, 0);
    at(60_000, zero).await;
    assert_eq!(balancer.snapshot().keys, 0);
    assert_eq!(start(&balancer, zero, "read", "shop", 1).await, 60_000);
    assert_eq!(start(&balancer, zero, "read", "shop", 1).await, 60_000);
    balancer.set_limit("read", "shop", &[]).expect("no quota");
    // Two starts are known, and the rule allows one.
    assert_eq!(start(&balancer, zero, "read", "shop", 1).await, 61_000);
    assert_eq!(start(&balancer, zero, "read", "shop", 1).await, 62_000);
}

#[tokio::test]
async fn a_limit_is_set_for_rules_that_there_are() {
    let balancer = balancer("[rules]\nread = '1/1s'");
    let findings = balancer.set_limit("raed", "shop", &[Quota::per_second(2)]).expect_err("no such rule");
    assert!(findings.to_string().contains("read"), "{findings}");
}

#[tokio::test(start_paused = true)]
async fn other_rules_hold_for_whoever_waits_and_known_starts_count() {
    let (balancer, zero) = (balancer("[rules]\na = '1/1s'"), Instant::now());
    let starts = (0..4).map(|_| start(&balancer, zero, "a", "k", 1));
    let change = async {
        at(1_500, zero).await;
        balancer.replace_rules(rules("[rules]\nb = {}\na = '1/10s'"));
    };
    let (starts, ()) = tokio::join!(futures::future::join_all(starts), change);
    assert_eq!(starts, [0, 1_000, 11_000, 21_000]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_under_a_removed_rule_is_refused_and_its_handle_says_so() {
    let balancer = balancer("[rules]\na = '1/1s'\nb = {}");
    let handle = balancer.rule("a").expect("a rule");
    drop(handle.request("k").acquire().await);
    let waits = handle.request("k").acquire();
    let change = async { balancer.replace_rules(rules("[rules]\nb = {}")) };
    let (waits, ()) = tokio::join!(waits, change);
    assert_eq!(waits.map(drop), Err(Refused::RuleRemoved));
    assert_eq!(handle.request("k").acquire().await.map(drop), Err(Refused::RuleRemoved));
    assert!(matches!(balancer.rule("a"), Err(Refused::UnknownRule { .. })));
}

#[tokio::test(start_paused = true)]
async fn fr_124_what_runs_while_its_rule_goes_or_its_key_is_renamed_is_answered() {
    for change in 0..2 {
        let balancer = balancer("key_concurrency = 1\n[rules]\na = '5/1s'\nb = {}");
        let running = balancer.run("a", "A", async |_| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, Failure<Never>>("done")
        });
        let act = async {
            if change == 0 {
                balancer.replace_rules(rules("key_concurrency = 1\n[rules]\nb = {}"));
            } else {
                balancer.alias("A", "B").expect("two keys");
                assert_eq!(balancer.key("B").in_flight, 1);
            }
        };
        let (answer, ()) = tokio::join!(running, act);
        assert!(matches!(answer, Ok("done")));
        assert_eq!((balancer.snapshot().in_flight, balancer.snapshot().waiting), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn units_keep_their_meaning_when_rules_are_replaced() {
    let balancer = balancer("units = ['tokens', 'images']\noverall = ['100/1m tokens', '2/1m images']");
    drop(balancer.request("default", 1).cost_of("images", 2).acquire().await);
    balancer.replace_rules(rules("units = ['images', 'words']\noverall = ['2/1m images', '10/1m words']"));
    assert!(balancer.request("default", 1).cost_of("images", 1).try_acquire().is_err());
    assert!(balancer.request("default", 1).cost_of("words", 10).try_acquire().is_ok());
    assert!(balancer.request("default", 1).cost_of("words", 1).try_acquire().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_alias_shares_budget_queue_and_holds() {
    let (balancer, zero) = (balancer("[rules]\ngroup = '2/1s'"), Instant::now());
    drop(balancer.request("group", "old").acquire().await);
    balancer.alias("old", "new").expect("two keys");
    assert_eq!(start(&balancer, zero, "group", "new", 1).await, 0);
    assert_eq!(start(&balancer, zero, "group", "old", 1).await, 1_000);
    balancer.hold(request_balancer::Target::key("old"), Duration::from_secs(5)).expect("a key");
    assert_eq!(balancer.next_start("group", "new"), Ok(NextStart::After(Duration::from_secs(5))));
    assert!(matches!(balancer.alias("new", "old"), Err(Refused::AliasCycle { .. })));
    assert!(matches!(balancer.alias("new", "new"), Err(Refused::AliasCycle { .. })));
    assert!(balancer.unalias("old"));
    assert!(!balancer.unalias("old"));
    assert_eq!(balancer.next_start("group", "old"), Ok(NextStart::Now));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_made_before_its_key_was_renamed_goes_to_the_new_one() {
    let balancer = balancer("[rules]\ngroup = '1/1s'");
    let made = balancer.request("group", "old").acquire();
    drop(balancer.request("group", "new").acquire().await);
    balancer.alias("old", "new").expect("two keys");
    let zero = Instant::now();
    drop(made.await.expect("a start"));
    assert_eq!(zero.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_rename_holds_the_new_key() {
    let balancer = balancer("[rules]\ngroup = '9/1s'");
    let f = async |attempt: Attempt| -> Outcome<u32, Never> {
        if attempt.number() > 1 {
            return Ok(attempt.number());
        }
        balancer.alias("old", "new").expect("two keys");
        Err(attempt.retry(Duration::from_secs(3)))
    };
    let zero = Instant::now();
    let answer: Result<u32, Error<Never>> = balancer.run("group", "old", f).await;
    assert_eq!((answer.ok(), zero.elapsed()), (Some(2), Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn numbers_given_to_another_name_are_those_of_the_key() {
    let balancer = balancer("[rules]\nread = '10/1s'");
    balancer.alias("old", "new").expect("no circle");
    balancer.set_limit("read", "old", &[Quota::per_second(1)]).expect("a rule");
    drop(balancer.request("read", "new").try_acquire().expect("a start"));
    for key in ["old", "new"] {
        let refused = balancer.request("read", key).try_acquire().map(drop);
        assert_eq!(refused, Err(Refused::NotNow { next_start: NextStart::After(Duration::from_secs(1)) }), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_name_may_be_said_twice() {
    let balancer = balancer("[rules]\nread = '1/1s'");
    for _ in 0..2 {
        assert_eq!(balancer.alias("old", "new"), Ok(()));
    }
    assert_eq!(balancer.alias("older", "old"), Ok(()));
    assert_eq!(balancer.alias("older", "new"), Ok(()));
    // The other way round it would be a circle, in the caller's own words.
    let circle = balancer.alias("new", "older");
    assert_eq!(circle, Err(Refused::AliasCycle { old: "new".into(), new: "older".into() }));
    assert!(balancer.alias("new", "new").is_err());
    // What it stands for comes along.
    assert_eq!(balancer.alias("old", "newest"), Ok(()));
    drop(balancer.request("read", "newest").try_acquire().expect("a start"));
    for key in ["older", "old", "new"] {
        assert!(balancer.request("read", key).try_acquire().is_err(), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_failure_is_for_the_rules_in_force_to_say() {
    let with_attempts =
        |attempts| rules(&format!("[rules]\nread = {{ per_key = '1/1s', retry.attempts = {attempts} }}"));
    let balancer = Balancer::new(with_attempts(2));
    let lasts = std::cell::RefCell::new(Vec::new());
    let answer = balancer.run("read", "a", async |attempt| {
        lasts.borrow_mut().push(attempt.is_last());
        balancer.replace_rules(with_attempts(3));
        Err::<(), _>(Failure::transient("busy"))
    });
    assert_eq!(answer.await, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: Some("busy") }));
    assert_eq!(*lasts.borrow(), [false, false, true]);
}
