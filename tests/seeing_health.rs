//! Whether things go as they should, on the paused clock.
#![cfg(feature = "tokio")]

mod field;

use std::future::ready;
use std::pin::pin;
use std::task::Poll;

use field::life::poll_once;
use field::{Field, balancer, ms, settle};
use request_balancer::{Failure, Health, Target};

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_limit_or_a_hold_is_limited() {
    let field = Field::new("[rules]\nr = '1/60s'\nother = {}");
    assert_eq!(field.balancer.health(), Health::Ok);
    field.all_ok([field.go("r", 1, "first")]).await;
    // Nobody waits.
    assert_eq!(field.balancer.health(), Health::Ok);
    let second = field.go("r", 1, "second");
    for second in 1..60 {
        field.at(second * 1_000).await;
        assert_eq!(field.balancer.health(), Health::Limited, "at {second} s");
    }
    field.all_ok([second]).await;
    assert_eq!(field.balancer.health(), Health::Ok);
    for target in [Target::overall(), Target::rule("r"), Target::key(7), Target::queue("r", 8)] {
        field.balancer.hold(target.clone(), ms(5_000)).unwrap();
        assert_eq!(field.balancer.health(), Health::Limited, "{target:?}");
        field.balancer.release(target).unwrap();
        assert_eq!(field.balancer.health(), Health::Ok);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_makes_wait_and_nothing_stalls() {
    let field = Field::new("[rules]\nr = {}");
    field.balancer.pause("r").unwrap();
    assert_eq!(field.balancer.health(), Health::Ok);
    let paused = field.go("r", 1, "paused");
    field.at(5_000).await;
    assert_eq!(field.balancer.health(), Health::Limited);
    field.balancer.resume("r").unwrap();
    field.all_ok([paused]).await;
}

#[tokio::test(start_paused = true)]
async fn long_attempts_are_no_stall() {
    let field = Field::new("concurrency = 1\n[rules]\nr = {}");
    let long = field.play("r", 1, "long", field::Script::takes(60_000));
    let next = field.go("r", 2, "next");
    field.at(30_000).await;
    assert_eq!(field.balancer.health(), Health::Limited);
    field.all_ok([long, next]).await;
    assert_eq!(field.balancer.health(), Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_nobody_polls_is_a_stall_once_a_second_is_over() {
    let field = Field::new("[rules]\nr = {}");
    field.balancer.hold(Target::key(1), ms(5_000)).unwrap();
    let mut forgotten = pin!(field.balancer.run("r", 1, |_| ready(Ok::<_, Failure<()>>(()))));
    assert!(poll_once(forgotten.as_mut()).is_pending());
    field.at(5_900).await;
    assert_eq!(field.balancer.health(), Health::Limited);
    field.at(6_001).await;
    assert_eq!(field.balancer.health(), Health::Stalled);
    // As long as others start, the balancer works.
    field.all_ok([field.go("r", 2, "other")]).await;
    assert_eq!(field.balancer.health(), Health::Limited);
    assert_eq!(poll_once(forgotten.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(field.balancer.health(), Health::Ok);
}

#[test]
fn a_runtime_that_is_not_run_is_a_stall() {
    let first = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let balancer = first.block_on(async { balancer("[rules]\nr = '1/1s'") });
    let waiting = first.block_on(async {
        drop(balancer.request("r", 1).try_acquire().unwrap());
        let ticket = balancer.request("r", 1).submit(|_| ready(Ok::<_, Failure<()>>(()))).unwrap();
        settle().await;
        Some(ticket)
    });
    // Its clock goes on without it.
    let second = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    second.block_on(async {
        tokio::time::sleep(ms(500)).await;
        assert_eq!(balancer.health(), Health::Limited);
        tokio::time::sleep(ms(1_600)).await;
        assert_eq!(balancer.health(), Health::Stalled);
    });
    drop(waiting);
}
