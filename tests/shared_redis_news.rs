//! What processes tell each other through a real server: breakers of endpoints, holds that are ended, rules with a version.
//! And a server that is a cluster of its own.
#![cfg(feature = "redis")]

mod redis_server;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis_server::RedisServer;
use request_balancer::shared::{Redis, Store as _, VersionedRules};
use request_balancer::{Attempt, Balancer, BreakerSnapshot, Event, Failure, NextStart, Rules, Target};
use tokio::time::sleep;

const MILLI: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

const POOL: &str = "
    overall = { limit = '1000/1s', shared = true }
    per_key = { limit = '1000/1s', shared = true }
    retry = 'none'
    [pool]
    endpoints = ['a', 'b']
    choose = 'in-order'
    breaker = { failures = 1, reset = '60s' }";

fn process(server: &RedisServer, text: &str, more: &str) -> Balancer {
    let rules: Rules = format!("{text}\n[shared]\nurl = '{}'\nlease = '2s'\n{more}", server.url()).parse().unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    Balancer::builder(rules).shared(store).build()
}

/// Runs an attempt that ends so. Returns where it was.
async fn run(balancer: &Balancer, works: bool) -> Option<String> {
    let at = Mutex::new(None);
    let call = |attempt: Attempt| {
        *at.lock().unwrap() = attempt.endpoint().map(|endpoint| endpoint.name().to_owned());
        async move { if works { Ok(()) } else { Err(Failure::transient("down")) } }
    };
    let _ = balancer.run("default", 7, call).await;
    at.into_inner().unwrap()
}

fn breaker(balancer: &Balancer) -> BreakerSnapshot {
    balancer.snapshot().endpoints[0].breaker
}

fn is_open(balancer: &Balancer) -> bool {
    matches!(breaker(balancer), BreakerSnapshot::Open(_))
}

fn is_held(balancer: &Balancer) -> bool {
    matches!(balancer.next_start("default", 1), Ok(NextStart::After(_)))
}

async fn call<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
}

/// Waits until it is so, at most a few seconds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < 10 * SEC, "never came: {what}");
        sleep(5 * MILLI).await;
    }
}

async fn until_all_hear(server: &RedisServer, processes: i64) {
    let subscribed = async || {
        let counts: (String, i64) = call(server, &["PUBSUB", "NUMSUB", "{rb}:v1:news"]).await;
        counts.1 == processes
    };
    until("subscribers", subscribed).await;
}

#[tokio::test]
async fn real_clock_an_endpoint_rests_everywhere_and_works_again_everywhere() {
    let server = RedisServer::start();
    let [one, other] = [0; 2].map(|_| process(&server, POOL, ""));
    for balancer in [&one, &other] {
        assert_eq!(run(balancer, true).await.as_deref(), Some("a"));
    }
    until_all_hear(&server, 2).await;
    run(&one, false).await;
    until("open at the other", async || is_open(&other)).await;
    // A third one hears of it from what the server keeps.
    let third = process(&server, POOL, "");
    run(&third, true).await;
    until("open at the third", async || is_open(&third)).await;
    let stays: i64 = call(&server, &["PTTL", "{rb}:v1:said"]).await;
    assert!((50_000..=67_000).contains(&stays), "{stays} ms");
    other.close_breaker("a").unwrap();
    until("closed at all", async || ![&one, &other, &third].iter().any(|balancer| is_open(balancer))).await;
    // Who comes after that hears that it was closed.
    let fourth = process(&server, POOL, "");
    run(&fourth, true).await;
    until_all_hear(&server, 4).await;
    assert_eq!(breaker(&fourth), BreakerSnapshot::Closed);
}

#[tokio::test]
async fn real_clock_a_released_hold_is_over_everywhere_and_does_not_come_back() {
    let server = RedisServer::start();
    let [one, other] = [0; 2].map(|_| process(&server, POOL, ""));
    for balancer in [&one, &other] {
        run(balancer, true).await;
    }
    until_all_hear(&server, 2).await;
    one.hold(Target::key(1), 600 * SEC).unwrap();
    until("held at the other", async || is_held(&other)).await;
    other.release(Target::key(1)).unwrap();
    until("released", async || !is_held(&one)).await;
    // All connections are cut: each hears anew what the server knows.
    let _: i64 = call(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    until("nobody", async || call::<(String, i64)>(&server, &["PUBSUB", "NUMSUB", "{rb}:v1:news"]).await.1 < 2).await;
    until_all_hear(&server, 2).await;
    sleep(50 * MILLI).await;
    assert!(!is_held(&one) && !is_held(&other));
    one.hold(Target::key(1), 600 * SEC).unwrap();
    until("held again", async || is_held(&other)).await;
}

#[tokio::test]
async fn real_clock_the_highest_version_of_the_rules_is_everybody_s() {
    let server = RedisServer::start();
    let text = |count: u32| format!("overall = {{ limit = '{count}/1s', shared = true }}");
    let old = process(&server, &text(10), "version = 9");
    run(&old, true).await;
    until_all_hear(&server, 1).await;
    let mut events = old.events();
    // As text it would be the lower one.
    let new = process(&server, &text(20), "version = 10");
    run(&new, true).await;
    until("taken over", async || events.try_next() == Some(Event::RulesTaken { version: 10 })).await;
    let kept: (u64, String) = call(&server, &["HMGET", "{rb}:v1:rules", "version", "text"]).await;
    assert_eq!(kept.0, 10);
    assert!(kept.1.contains("20/1s") && !kept.1.contains("redis://"), "{}", kept.1);
    let stays: i64 = call(&server, &["PTTL", "{rb}:v1:rules"]).await;
    assert!((1..=2_001).contains(&stays), "{stays} ms");
    // What somebody else wrote there is told, and changes nothing.
    let _: i64 = call(&server, &["HSET", "{rb}:v1:rules", "version", "11", "text", "\u{1}nonsense"]).await;
    let unreadable = |event: Option<Event>| matches!(event, Some(Event::RulesUnreadable { version: 11, .. }));
    until("unreadable", async || unreadable(events.try_next())).await;
    run(&old, true).await;
    drop((old, new));
    // Nothing is left but what no process of ours has kept.
    let _: i64 = call(&server, &["DEL", "{rb}:v1:rules"]).await;
    until("no names", async || call::<i64>(&server, &["DBSIZE"]).await == 0).await;
}

#[tokio::test]
async fn real_clock_what_is_no_version_is_overwritten() {
    let server = RedisServer::start();
    let rules: Rules = format!("[shared]\nurl = '{}'\nversion = 7", server.url()).parse().unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    let ours = VersionedRules { version: 7, text: "a".into() };
    for words in [&["version", "x", "text", "b"][..], &["version", "9"], &["text", "b"]] {
        let _: i64 = call(&server, &[&["HSET", "{rb}:v1:rules"], words].concat()).await;
        assert_eq!(store.keep_rules(1, ours.clone(), SEC).await.as_ref(), Ok(&ours), "{words:?}");
        let _: i64 = call(&server, &["DEL", "{rb}:v1:rules"]).await;
    }
    // Numbers that are none to Lua are compared all the same.
    for (kept, version, is_higher) in [(u64::MAX, u64::MAX - 1, false), (u64::MAX - 1, u64::MAX, true), (9, 10, true)] {
        let [kept, next] = [kept, version].map(|version| VersionedRules { version, text: "a".into() });
        store.keep_rules(1, kept.clone(), SEC).await.unwrap();
        let expected = if is_higher { &next } else { &kept };
        assert_eq!(store.keep_rules(1, next.clone(), SEC).await.as_ref(), Ok(expected));
        let _: i64 = call(&server, &["DEL", "{rb}:v1:rules"]).await;
    }
}

/// The node of a cluster that has the slot of all names serves as any server does.
#[tokio::test]
async fn real_clock_a_node_of_a_cluster_serves_all_names_of_a_prefix() {
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let _: String = call(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let info = async || call::<String>(&server, &["CLUSTER", "INFO"]).await;
    until("a cluster", async || info().await.contains("cluster_state:ok")).await;
    let text = "overall = { limit = '1000/1s', concurrency = 4, shared = true }
        per_key = { limit = ['2000/60s', '100/1s burst 100', '9/1s smooth'], shared = true }";
    let [one, other] = [0; 2].map(|_| process(&server, text, "version = 3"));
    for balancer in [&one, &other] {
        run(balancer, true).await;
    }
    until_all_hear(&server, 2).await;
    one.hold(Target::key(1), 600 * SEC).unwrap();
    until("held at the other", async || is_held(&other)).await;
    let names: Vec<String> = call(&server, &["KEYS", "*"]).await;
    assert!(names.len() > 5, "{names:?}");
    let mut slots = Vec::new();
    for name in &names {
        slots.push(call::<i64>(&server, &["CLUSTER", "KEYSLOT", name]).await);
    }
    slots.dedup();
    assert_eq!(slots.len(), 1, "{names:?}");
}
