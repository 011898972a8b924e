//! Cases from the field: what is seen of a balancer, and the guard before a ban.
#![cfg(feature = "tokio")]

mod field;

use std::future::ready;
use std::pin::pin;

use field::life::poll_once;
use field::{End, Field, Script, ms, settle};
use request_balancer::{Event, Failure, Health, HoldCause, Scope, Target};
use tokio::time::Instant;

// Its first half, the ten streams, is with the cases of waking.
#[tokio::test(start_paused = true)]
async fn fr_012_stalled_when_something_waits_the_budget_is_free_and_nothing_started() {
    let field = Field::new("concurrency = 10\n[rules]\nr = {}");
    field.balancer.hold(Target::rule("r"), ms(1_000)).unwrap();
    let mut queued = pin!(field.balancer.run("r", 1, |_| ready(Ok::<_, Failure<()>>(()))));
    assert!(poll_once(queued.as_mut()).is_pending());
    for millis in [500, 1_500, 2_000] {
        field.at(millis).await;
        assert_eq!(field.balancer.health(), if millis < 2_000 { Health::Limited } else { Health::Stalled });
    }
    assert_eq!(field.balancer.snapshot().in_flight, 0);
    assert!(poll_once(queued.as_mut()).is_ready());
    assert_eq!(field.balancer.health(), Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn fr_074_nothing_starts_at_9_500_invalid_attempts_in_600_seconds() {
    let field = Field::new("ban_guard = '9500/600s'\n[rules]\nr = {}");
    let mut events = field.balancer.events();
    let invalid = async |_| Err::<(), _>(Failure::permanent("forbidden").invalid());
    // 95 in each of a hundred seconds.
    for second in 0..100 {
        field.at(second * 1_000).await;
        for key in 0..95 {
            assert_eq!(events.try_next(), None);
            assert!(field.balancer.run("r", key, invalid).await.is_err());
        }
    }
    let until = Instant::now() + ms(501_000);
    assert_eq!(events.try_next(), Some(Event::BanAhead { level: 9_500, period: ms(600_000), until }));
    let waiting: Vec<_> = (0..10).map(|key| field.go("r", key, "next")).collect();
    field.at(599_999).await;
    assert_eq!(field.starts("next"), []);
    field.all_ok(waiting).await;
    assert_eq!(field.starts("next"), [600_000; 10]);
    assert_eq!(events.try_next(), Some(Event::BanOver));
}

// A hold is no longer than an hour, of which an event tells.
#[tokio::test(start_paused = true)]
async fn fr_088_a_long_hold_is_told_in_the_same_instant() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nceiling = false\ntotal_wait = false");
    let mut events = field.balancer.events();
    let _sent_away = field.play("r", "k", "a", Script::ends([End::Retry(74_089_000), End::Ok]));
    settle().await;
    assert_eq!(field.now(), 0);
    let (rule, key) = (Some("r".into()), Some("k".into()));
    assert_eq!(
        events.try_next(),
        Some(Event::HoldStarted {
            scope: Scope::Key,
            rule: rule.clone(),
            key: key.clone(),
            cause: HoldCause::Retry,
            lasts: ms(3_600_000),
            until: Instant::now() + ms(3_600_000),
        })
    );
    let (wanted, allowed) = (ms(74_089_000), ms(3_600_000));
    assert_eq!(events.try_next(), Some(Event::HoldCut { scope: Scope::Key, rule, key, wanted, allowed }));
    assert_eq!(field.balancer.key("k").held, Some(ms(3_600_000)));
}

#[tokio::test(start_paused = true)]
async fn fr_152_waits_that_end_well_are_no_illness() {
    let field = Field::new("[rules]\nr = {}");
    let script = Script::ends([End::Retry(2_000), End::Ok]);
    let all: Vec<_> = (0..50).map(|key| field.play("r", key, "r", script.clone())).collect();
    settle().await;
    for tenth in 0..20 {
        field.at(tenth * 100).await;
        assert_eq!(field.balancer.health(), Health::Limited, "at {} ms", tenth * 100);
    }
    field.all_ok(all).await;
    assert_eq!(field.now(), 2_000);
    assert_eq!(field.balancer.health(), Health::Ok);
}
