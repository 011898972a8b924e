//! Calendar quotas go by the wall's clock.

#![cfg(all(feature = "tokio", feature = "calendar"))]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use request_balancer::{Balancer, NextStart, Rules};

const DAY: u128 = 86_400_000_000_000;

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970")
}

#[tokio::test(start_paused = true)]
async fn a_spent_day_ends_at_midnight() {
    let before = wall();
    let balancer = Balancer::new("[rules]\nsend = '1/day UTC'".parse::<Rules>().expect("right rules"));
    let after = wall();
    drop(balancer.request("send", 1).acquire().await.expect("a start"));
    let Ok(NextStart::After(left)) = balancer.next_start("send", 1) else { panic!("the day is spent") };
    // The balancer read the clock in between, and midnight is a whole number of days after 1970.
    let midnight = (before + left).as_nanos().div_ceil(DAY) * DAY;
    assert!(midnight <= (after + left).as_nanos(), "{left:?} left");
    assert!(left <= Duration::from_secs(86_400), "{left:?} left");
    drop(balancer.request("send", 1).acquire().await.expect("a start on the next day"));
}
