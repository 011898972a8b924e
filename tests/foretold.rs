//! What is said of a start that is yet to come holds where a limit counts more than it has room for.
#![cfg(feature = "tokio")]

use std::time::Duration;

use request_balancer::{Balancer, Decision, FailureKind, Nanos, NextStart, Refused, Retry, Rules, Spent, WaitOrder};
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

fn rules(text: &str) -> Rules {
    text.parse().unwrap()
}

/// One that turned out to cost five times as much as there is room for.
async fn settled_high(quota: &str) -> Balancer {
    let balancer = Balancer::new(rules(&format!("units = ['tokens']\n[rules]\na = '{quota}'")));
    let first = balancer.request("a", "k").cost_of("tokens", 100).acquire().await.unwrap();
    first.settle("tokens", 5_000).unwrap();
    balancer
}

/// Twenty have started, and from now on five may.
async fn narrowed() -> Balancer {
    let balancer = Balancer::new(rules("[rules]\na = '20/60s'"));
    for _ in 0..20 {
        drop(balancer.request("a", "k").acquire().await.unwrap());
    }
    balancer.replace_rules(rules("[rules]\na = '5/60s'"));
    balancer
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_over_the_count_leaves_with_its_start() {
    let balancer = settled_high("1000/1m tokens").await;
    let zero = Instant::now();
    let request = || balancer.request("a", "k").cost_of("tokens", 1);
    let refused = request().try_acquire().map(drop);
    assert_eq!(refused.unwrap_err(), Refused::NotNow { next_start: NextStart::After(WINDOW) });
    let waits = request().max_wait(WINDOW).eager().acquire().await;
    assert!(waits.is_ok(), "{waits:?}");
    assert_eq!(zero.elapsed(), WINDOW);
}

#[tokio::test(start_paused = true)]
async fn what_started_when_more_was_allowed_leaves_when_it_would_have() {
    let balancer = narrowed().await;
    let zero = Instant::now();
    assert_eq!(balancer.next_start("a", "k"), Ok(NextStart::After(WINDOW)));
    let waits = balancer.request("a", "k").max_wait(WINDOW).eager().acquire().await;
    assert!(waits.is_ok(), "{waits:?}");
    assert_eq!(zero.elapsed(), WINDOW);
}

#[cfg(feature = "calendar")]
#[tokio::test(start_paused = true)]
async fn a_day_ends_at_midnight_whatever_was_used() {
    let balancer = settled_high("1000/day UTC tokens").await;
    let refused = balancer.request("a", "k").cost_of("tokens", 1).try_acquire().map(drop);
    let Err(Refused::NotNow { next_start: NextStart::After(wait) }) = refused else { panic!("{refused:?}") };
    assert!(wait <= Duration::from_secs(86_400), "{wait:?}");
}

#[test]
fn the_policys_own_delay_has_nothing_to_do_with_the_longest_wait_for_a_server() {
    let policy = |order| {
        let retry = Retry::new().backoff(Duration::from_secs(400)).max_delay(Duration::from_secs(400)).jitter(0.0);
        retry.ceiling(Duration::from_secs(300)).order(order).policy()
    };
    for (order, server, wait) in [
        (WaitOrder::Policy, 1, 400),
        (WaitOrder::Policy, 1_000, 400),
        (WaitOrder::Max, 1, 400),
        (WaitOrder::Server, 1, 1),
    ] {
        let failure = FailureKind::Retry { after: Some(Nanos::from_secs(server)) };
        let said = policy(order).decide(&mut Spent::default(), failure, false, 0);
        assert_eq!(said, Decision::Retry { wait: Nanos::from_secs(wait) }, "{order:?}, told {server} s");
    }
}
