//! What balancers that share limits tell each other: breakers of endpoints, holds that are ended. In a store in memory, on
//! the paused clock.
#![cfg(feature = "shared")]

use std::sync::Mutex;
use std::time::Duration;

use request_balancer::shared::MemoryStore;
use request_balancer::{Attempt, Balancer, BreakerSnapshot, Event, Failure, NextStart, Rules, Target};
use tokio::time::sleep;

const MILLI: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

const POOL: &str = "
    overall = { limit = '100/1s', shared = true }
    retry = 'none'
    [pool]
    endpoints = ['a', 'b']
    choose = 'in-order'
    breaker = { failures = 1, reset = '30s', jitter = 0.0 }";

const KEYS: &str = "per_key = { limit = '100/1s', shared = true }";

fn process(rules: &str, store: &MemoryStore) -> Balancer {
    let rules: Rules = rules.parse().unwrap();
    Balancer::builder(rules).shared(store.clone()).build()
}

/// Runs an attempt that ends so. Returns where it was, if it was.
async fn run(balancer: &Balancer, key: u64, works: bool) -> Option<String> {
    let at = Mutex::new(None);
    let call = |attempt: Attempt| {
        *at.lock().unwrap() = attempt.endpoint().map(|endpoint| endpoint.name().to_owned());
        async move { if works { Ok(()) } else { Err(Failure::transient("down")) } }
    };
    let _ = balancer.run("default", key, call).await;
    sleep(MILLI).await;
    at.into_inner().unwrap()
}

/// The breaker of the first endpoint.
fn breaker(balancer: &Balancer) -> BreakerSnapshot {
    balancer.snapshot().endpoints[0].breaker
}

fn next(balancer: &Balancer, key: u64) -> NextStart {
    balancer.next_start("default", key).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_in_one_process_rests_in_all() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(POOL, &store));
    for balancer in [&one, &other] {
        assert_eq!(run(balancer, 1, true).await.as_deref(), Some("a"));
    }
    let mut events = other.events();
    run(&one, 1, false).await;
    assert_eq!(breaker(&other), BreakerSnapshot::Open(30 * SEC - MILLI));
    assert_eq!(run(&other, 1, true).await.as_deref(), Some("b"));
    assert!(matches!(events.try_next(), Some(Event::BreakerOpened { endpoint, .. }) if *endpoint == *"a"));
    // Who comes later hears of what is left of it.
    sleep(10 * SEC).await;
    let third = process(POOL, &store);
    assert_eq!(run(&third, 1, true).await.as_deref(), Some("b"));
    assert!(matches!(breaker(&third), BreakerSnapshot::Open(left) if left < 20 * SEC && left > 19 * SEC));
    // The first probe that works closes it everywhere.
    sleep(20 * SEC).await;
    assert_eq!(breaker(&other), BreakerSnapshot::HalfOpen);
    assert_eq!(run(&one, 1, true).await.as_deref(), Some("a"));
    for balancer in [&one, &other, &third] {
        assert_eq!(breaker(balancer), BreakerSnapshot::Closed);
    }
    assert!(matches!(events.try_next(), Some(Event::BreakerClosed { endpoint }) if *endpoint == *"a"));
    assert_eq!(events.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_keeps_it_resting_everywhere() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(POOL, &store));
    run(&other, 1, true).await;
    run(&one, 1, false).await;
    sleep(30 * SEC).await;
    run(&one, 1, false).await;
    assert_eq!(breaker(&one), BreakerSnapshot::Open(30 * SEC - MILLI));
    assert_eq!(breaker(&other), BreakerSnapshot::Open(30 * SEC - MILLI));
}

/// One process opened it and the other closed it, while a message took half a second: the one that the store heard last
/// counts in both.
#[tokio::test(start_paused = true)]
async fn the_last_news_counts_everywhere() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(POOL, &store));
    for balancer in [&one, &other] {
        run(balancer, 1, true).await;
    }
    one.open_breaker("a", 30 * SEC).unwrap();
    sleep(MILLI).await;
    store.set_latency(80 * MILLI);
    other.close_breaker("a").unwrap();
    sleep(10 * MILLI).await;
    one.open_breaker("a", 60 * SEC).unwrap();
    sleep(SEC).await;
    for balancer in [&one, &other] {
        assert!(matches!(breaker(balancer), BreakerSnapshot::Open(left) if left > 58 * SEC), "{:?}", breaker(balancer));
    }
    other.open_breaker("a", 60 * SEC).unwrap();
    sleep(10 * MILLI).await;
    one.close_breaker("a").unwrap();
    sleep(SEC).await;
    assert_eq!([breaker(&one), breaker(&other)], [BreakerSnapshot::Closed; 2]);
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_other_rules_and_balancers_that_share_nothing_hear_nothing() {
    let store = MemoryStore::new();
    let [one, other] = [POOL, &POOL.replace("'a'", "'c'")].map(|rules| process(rules, &store));
    for balancer in [&one, &other] {
        run(balancer, 1, true).await;
    }
    one.open_breaker("a", 30 * SEC).unwrap();
    sleep(MILLI).await;
    assert_eq!(breaker(&other), BreakerSnapshot::Closed);
    let told = store.told();
    let alone = process(&POOL.replace(", shared = true", ""), &store);
    run(&alone, 1, true).await;
    alone.open_breaker("a", 30 * SEC).unwrap();
    sleep(SEC).await;
    assert_eq!(store.told(), told);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_released_is_over_everywhere() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(KEYS, &store));
    for balancer in [&one, &other] {
        run(balancer, 7, true).await;
    }
    for target in [Target::overall(), Target::key(1), Target::rule("default"), Target::queue("default", 1)] {
        one.hold(target.clone(), 60 * SEC).unwrap();
        sleep(MILLI).await;
        assert_eq!(next(&other, 1), NextStart::After(60 * SEC - MILLI), "{target:?}");
        other.release(target.clone()).unwrap();
        sleep(MILLI).await;
        assert_eq!([next(&one, 1), next(&other, 1)], [NextStart::Now; 2], "{target:?}");
        // Nor does it come to who comes later.
        let third = process(KEYS, &store);
        run(&third, 7, true).await;
        assert_eq!(next(&third, 1), NextStart::Now, "{target:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_released_is_used_everywhere() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(POOL, &store));
    run(&other, 1, true).await;
    one.hold(Target::endpoint("a"), 60 * SEC).unwrap();
    run(&one, 1, true).await;
    assert_eq!(run(&other, 1, true).await.as_deref(), Some("b"));
    one.release(Target::endpoint("a")).unwrap();
    sleep(MILLI).await;
    assert_eq!(run(&other, 1, true).await.as_deref(), Some("a"));
}

/// The process that released a hold heard of it again from the store when it connected anew.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_released_does_not_come_back() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(KEYS, &store));
    for balancer in [&one, &other] {
        run(balancer, 7, true).await;
    }
    one.hold(Target::key(1), 600 * SEC).unwrap();
    other.hold(Target::key(2), 600 * SEC).unwrap();
    sleep(MILLI).await;
    // Released while the store is away: it is told when it is back, and what it says of the hold meanwhile is old.
    store.set_away(true);
    one.release(Target::key(1)).unwrap();
    one.release(Target::key(2)).unwrap();
    sleep(10 * SEC).await;
    store.set_away(false);
    sleep(SEC).await;
    for key in [1, 2] {
        assert_eq!([next(&one, key), next(&other, key)], [NextStart::Now; 2], "key {key}");
    }
    store.set_away(true);
    sleep(SEC).await;
    store.set_away(false);
    sleep(SEC).await;
    for key in [1, 2] {
        assert_eq!([next(&one, key), next(&other, key)], [NextStart::Now; 2], "key {key}");
    }
    // A hold that begins after that is one.
    other.hold(Target::key(1), 60 * SEC).unwrap();
    sleep(MILLI).await;
    assert_eq!(next(&one, 1), NextStart::After(60 * SEC - MILLI));
}

/// The release was told while somebody could not hear it.
#[tokio::test(start_paused = true)]
async fn who_was_away_hears_of_a_release_afterwards() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process(KEYS, &store));
    for balancer in [&one, &other] {
        run(balancer, 7, true).await;
    }
    one.hold(Target::key(1), 600 * SEC).unwrap();
    sleep(MILLI).await;
    store.deafen();
    one.release(Target::key(1)).unwrap();
    sleep(SEC).await;
    assert_eq!(next(&other, 1), NextStart::Now);
}
