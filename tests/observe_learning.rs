//! Rules that learn the server's numbers, key by key, and what they go back to.

#![cfg(all(feature = "tokio", feature = "headers"))]

use std::time::Duration;

use request_balancer::{Balancer, Failure, NextStart, Rules};
use tokio::time::{Instant, sleep};

const RULES: &str = "
    [rules.read]
    per_key = '5/60s'
    observe = { learn = '10/60s' }
    [keys.shop]
    read = '2/60s'
";
const DAY: Duration = Duration::from_secs(86_400);

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("rules"))
}

/// Starts one, whose answer tells the server's limit or nothing at all.
async fn call(balancer: &Balancer, key: &str, limit: Option<&str>) {
    let answer = balancer.run("read", key, async |attempt| {
        attempt.check(200, limit.map(|limit| ("RateLimit-Limit", limit)), None)?;
        Ok::<_, Failure<()>>(())
    });
    answer.await.expect("answered");
}

/// How many start at once.
async fn at_once(balancer: &Balancer, key: &str) -> usize {
    let (begin, mut count) = (Instant::now(), 0);
    loop {
        call(balancer, key, None).await;
        if begin.elapsed() > Duration::ZERO {
            return count;
        }
        count += 1;
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_key_with_numbers_of_its_own_goes_back_to_them_a_day_after_the_last_word() {
    let balancer = balancer(RULES);
    for (key, own, told, learnt) in [("shop", 2, "8", 8), ("other", 5, "99", 10)] {
        assert_eq!(at_once(&balancer, key).await, own, "{key}");
        sleep(Duration::from_secs(60)).await;
        call(&balancer, key, Some(told)).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(at_once(&balancer, key).await, learnt, "{key}");
        sleep(DAY).await;
        // The first attempt that ends without a word ends it, not the mere time.
        call(&balancer, key, None).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(at_once(&balancer, key).await, own, "{key}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn numbers_that_are_set_and_other_rules_end_what_was_learnt() {
    let balancer = balancer(RULES);
    call(&balancer, "shop", Some("8")).await;
    balancer.replace_rules(RULES.replace("2/60s", "4/60s").parse::<Rules>().expect("rules"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(at_once(&balancer, "shop").await, 4);
    sleep(Duration::from_secs(60)).await;
    call(&balancer, "shop", Some("8")).await;
    balancer.set_limit("read", "shop", &["3/60s".parse().expect("a quota")]).expect("a rule");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(at_once(&balancer, "shop").await, 3);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_number_that_differs_is_told_beside_the_one_that_the_key_has() {
    let balancer = balancer(RULES);
    call(&balancer, "shop", Some("8")).await;
    call(&balancer, "shop", Some("8")).await;
    let differences = balancer.snapshot().differences;
    assert_eq!(differences.len(), 1, "{differences:?}");
    let difference = &differences[0];
    assert_eq!((difference.configured, difference.reported, difference.seen), (2, 8, 2));
    assert_eq!(balancer.next_start("read", "shop").expect("a rule"), NextStart::Now);
}

/// Starts one with these fields in its answer.
async fn told(balancer: &Balancer, fields: &[(&str, &str)]) {
    let answer = balancer.run("read", "k", async |attempt| {
        attempt.check(200, fields.iter().map(|(name, value)| (*name, *value)), None)?;
        Ok::<_, Failure<()>>(())
    });
    answer.await.expect("answered");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_window_of_another_length_teaches_nothing() {
    let balancer = balancer("[rules.read]\nper_key = '60/60s'\nobserve = { learn = '100/60s' }");
    let hours = r#""h";q=5000;w=3600"#;
    told(&balancer, &[("RateLimit-Policy", hours), ("RateLimit", r#""h";r=4999;t=3600"#)]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(at_once(&balancer, "k").await, 60);
    sleep(Duration::from_secs(60)).await;
    let both = r#""m";q=80;w=60, "h";q=5000;w=3600"#;
    told(&balancer, &[("RateLimit-Policy", both), ("RateLimit", r#""m";r=79;t=60, "h";r=4999;t=3600"#)]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(at_once(&balancer, "k").await, 80);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_is_left_is_no_word_about_how_many_there_are() {
    let balancer = balancer("[rules.read]\nper_key = '5/60s'\nobserve = { learn = '10/60s' }");
    told(&balancer, &[("RateLimit-Limit", "8"), ("RateLimit-Remaining", "7")]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(at_once(&balancer, "k").await, 8);
    for _ in 0..24 {
        sleep(Duration::from_secs(3_600)).await;
        told(&balancer, &[("RateLimit-Remaining", "7")]).await;
    }
    sleep(Duration::from_secs(60)).await;
    let started = std::iter::from_fn(|| balancer.request("read", "k").try_acquire().ok());
    assert_eq!(started.take(99).collect::<Vec<_>>().len(), 5);
}
