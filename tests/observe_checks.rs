//! What `check` makes of answers: a failure, a hold, or nothing.

#![cfg(all(feature = "tokio", feature = "json"))]

use std::time::Duration;

use request_balancer::headers::{self, Dialect};
use request_balancer::{Balancer, Failure, NextStart, Rules, Target};
use tokio::time::{Instant, sleep};

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("rules"))
}

/// Runs one that is answered so the first time, and with a plain 200 after that. Returns how long it took.
async fn answered(balancer: &Balancer, status: u16, fields: &[(&str, &str)], body: Option<&str>) -> Duration {
    let began = Instant::now();
    let answer = balancer.run("read", "k", async |attempt| {
        if attempt.number() == 1 {
            attempt.check(status, fields.iter().map(|(name, value)| (*name, *value)), body.map(str::as_bytes))?;
        }
        Ok::<_, Failure<()>>(())
    });
    answer.await.expect("answered");
    began.elapsed()
}

fn next(balancer: &Balancer, rule: &str, key: &str) -> NextStart {
    balancer.next_start(rule, key).expect("a rule")
}

const fn after(secs: u64) -> NextStart {
    NextStart::After(Duration::from_secs(secs))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_wait_that_comes_with_an_answer_holds_its_route_and_fails_nothing() {
    let balancer = balancer("[rules]\nread = { observe = { dialect = 'stackexchange' } }\nwrite = {}");
    let body = r#"{"items":[],"backoff":10,"quota_max":300,"quota_remaining":287}"#;
    assert_eq!(answered(&balancer, 200, &[], Some(body)).await, Duration::ZERO);
    assert_eq!(next(&balancer, "read", "k"), after(10));
    assert_eq!((next(&balancer, "write", "k"), next(&balancer, "read", "other")), (NextStart::Now, NextStart::Now));
    assert_eq!(balancer.snapshot().in_flight, 0);
    // Elsewhere a wait that comes with success is about something else.
    let balancer = self::balancer("[rules]\nread = {}");
    assert_eq!(answered(&balancer, 202, &[("Retry-After", "30")], None).await, Duration::ZERO);
    assert_eq!(next(&balancer, "read", "k"), NextStart::Now);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_refusal_that_no_wait_helps_against_is_left_to_the_caller_and_holds_nobody() {
    let balancer = balancer("[rules]\nread = {}");
    let body = r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#;
    assert_eq!(answered(&balancer, 429, &[("Retry-After", "5")], Some(body)).await, Duration::ZERO);
    assert_eq!(next(&balancer, "read", "k"), NextStart::Now);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_hold_of_a_refusal_is_not_shortened_by_anything_that_is_said_later() {
    let balancer = balancer("[rules]\nread = '50/60s'");
    let late = balancer.request("read", "k").try_acquire().expect("room");
    let refused = balancer.request("read", "k").try_acquire().expect("room");
    let failure = refused.check::<_, _, ()>(429, [("Retry-After", "30")], None).expect_err("refused");
    let again = tokio::spawn(refused.fail(failure));
    tokio::task::yield_now().await;
    assert_eq!(next(&balancer, "read", "k"), after(30));

    let plenty = [("X-RateLimit-Remaining", "49"), ("X-RateLimit-Reset", "1")];
    assert!(late.check::<_, _, ()>(200, plenty, None).is_ok());
    late.succeed();
    let said = headers::read(200, plenty, None, std::time::SystemTime::UNIX_EPOCH, Dialect::auto());
    balancer.observe(Target::key("k"), &said).expect("a key");
    let shorter = headers::read(429, [("Retry-After", "3")], None, std::time::SystemTime::UNIX_EPOCH, Dialect::auto());
    balancer.observe(Target::key("k"), &shorter).expect("a key");
    assert_eq!(next(&balancer, "read", "k"), after(30));
    sleep(Duration::from_secs(30)).await;
    assert!(again.await.expect("no panic").is_ok());
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_refusal_of_everything_holds_everything_and_in_a_pool_its_endpoint() {
    const GLOBAL: &[(&str, &str)] =
        &[("Retry-After", "7"), ("X-RateLimit-Global", "true"), ("X-RateLimit-Scope", "global")];
    let alone = balancer("[rules]\nread = { observe = { dialect = 'discord' } }\nwrite = {}");
    assert_eq!(answered(&alone, 429, GLOBAL, None).await, Duration::from_secs(7));

    let alone = balancer("[rules]\nread = { observe = { dialect = 'discord' } }\nwrite = {}");
    let refused = alone.request("read", "k").try_acquire().expect("room");
    let failure = refused.check::<_, _, ()>(429, GLOBAL.iter().copied(), None).expect_err("refused");
    drop(tokio::spawn(refused.fail(failure)));
    tokio::task::yield_now().await;
    assert_eq!(next(&alone, "write", "other"), after(7));

    // The other token may go on at once.
    let pool = balancer("[rules.read]\nobserve = { dialect = 'discord' }\n[pool]\nendpoints = ['a', 'b']");
    assert_eq!(answered(&pool, 429, GLOBAL, None).await, Duration::ZERO);
}
