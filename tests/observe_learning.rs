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

/// Whatever the server says, no more start in the length of the most than that, nor fewer than the rules of another length.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn nothing_that_is_told_goes_beyond_the_most() {
    for (rules, policy, secs, most) in [
        // Counted in the server's 55 s, twice 91 would start in a minute.
        ("per_key = '60/60s'\nobserve = { learn = '100/60s' }", "500;w=55", 60, 100),
        ("per_key = '60/60s'\nobserve = { learn = '100/60s' }", "500;w=66", 60, 100),
        ("per_key = '60/60s'\nobserve = { learn = '100/66s' }", "500;w=60", 66, 100),
        // 7,200 in an hour are not two in each second.
        ("per_key = '60/1h'\nobserve = { learn = '2/1s' }", "5000;w=3600", 60, 60),
        // What the server says of one second is no more than a second's share of the most of a minute, so nothing.
        ("per_key = ['3/1s', '60/60s']\nobserve = { learn = '100/60s' }", "5;w=1", 1, 3),
    ] {
        let balancer = balancer(&format!("[rules.read]\n{rules}"));
        let left = policy.split(';').next().expect("a number");
        told(&balancer, &[("RateLimit-Policy", policy), ("RateLimit-Limit", left)]).await;
        sleep(Duration::from_secs(2 * 3_600)).await;
        let begin = Instant::now();
        let mut starts = Vec::new();
        while starts.len() < 250 && begin.elapsed() < Duration::from_secs(150) {
            call(&balancer, "k", None).await;
            starts.push(begin.elapsed());
        }
        let within = |first: &Duration| {
            starts.iter().filter(|at| (*first..*first + Duration::from_secs(secs)).contains(at)).count()
        };
        assert_eq!(starts.iter().map(within).max(), Some(most), "{rules}, {policy}");
    }
}

#[test]
fn a_most_for_another_length_than_each_limit_is_found() {
    let rules = |learn| {
        let rules = format!("[rules.read]\nper_key = ['3/1s', '60/60s']\nobserve = {{ learn = '{learn}' }}");
        rules.parse::<Rules>().expect("they load").warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(rules("100/60s").is_empty() && rules("100/65s").is_empty() && rules("5/1s").is_empty());
    let found = "3:21: warning[no-effect] rules.read.observe.learn: found `60/1h` for another length than each `per_key` of \
                 the rule; allowed: as long as one of them";
    assert_eq!(rules("60/1h"), [found]);
    assert!(
        "[rules.read]\nper_key = '5/300s burst 20'\nobserve = { learn = '1/1s' }"
            .parse::<Rules>()
            .expect("they load")
            .warnings()
            .is_empty()
    );
}
