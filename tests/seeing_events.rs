//! What a balancer tells of its own accord, on the paused clock.
#![cfg(feature = "tokio")]

mod field;

use field::{End, Field, Script, balancer, ms, settle};
use request_balancer::{Event, Events, HoldCause, Refused, Retry, Scope, Target};
use tokio::time::Instant;

fn drain(events: &mut Events) -> Vec<Event> {
    std::iter::from_fn(|| events.try_next()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hold_by_hand_is_told_once_it_is_on_and_once_it_is_released() {
    let balancer = balancer("[rules]\nr = {}");
    let mut events = balancer.events();
    let until = Instant::now() + ms(5_000);
    balancer.hold(Target::queue("r", 1), ms(5_000)).unwrap();
    // A shorter one changes nothing.
    balancer.hold(Target::queue("r", 1), ms(2_000)).unwrap();
    balancer.release(Target::queue("r", 1)).unwrap();
    // Nothing is on any more.
    balancer.release(Target::queue("r", 1)).unwrap();
    let (scope, rule, key) = (Scope::Queue, Some("r".into()), Some(1.into()));
    let started = Event::HoldStarted {
        scope,
        rule: rule.clone(),
        key: key.clone(),
        cause: HoldCause::Asked,
        lasts: ms(5_000),
        until,
    };
    assert_eq!(drain(&mut events), [started, Event::HoldReleased { scope, rule, key }]);
    assert!(balancer.hold(Target::rule("x"), ms(1)).is_err());
    assert_eq!(drain(&mut events), []);
}

#[tokio::test(start_paused = true)]
async fn a_longer_hold_is_told_anew_and_one_too_long_is_told_as_cut() {
    let balancer = balancer("[rules]\nr = {}");
    let mut events = balancer.events();
    let hold = |millis| balancer.hold(Target::overall(), ms(millis)).unwrap();
    let lasts = |events: &mut Events| {
        drain(events)
            .into_iter()
            .map(|event| match event {
                Event::HoldStarted { lasts, .. } => lasts,
                Event::HoldCut { wanted, .. } => wanted,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    hold(1_000);
    hold(3_000);
    assert_eq!(lasts(&mut events), [ms(1_000), ms(3_000)]);
    hold(7_200_000);
    assert_eq!(lasts(&mut events), [ms(3_600_000), ms(7_200_000)]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_is_told_with_the_reason() {
    let field = Field::new("[rules]\nr = {}");
    let mut events = field.balancer.events();
    let answer = field.play_as("r", "A", "a", Script::ends([End::Transient]), Retry::none()).await.unwrap();
    assert!(answer.is_err());
    let gave_up = Event::RetryGaveUp { rule: "r".into(), key: "A".into(), attempts: 1, reason: Refused::Attempts };
    assert_eq!(drain(&mut events), [gave_up]);
    // An error that is final by itself is nobody's giving up.
    let _failed = field.play("r", "A", "b", Script::ends([End::Permanent])).await.unwrap();
    assert_eq!(drain(&mut events), []);
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_learns_what_it_missed_and_blocks_nobody() {
    let balancer = balancer("[rules]\nr = {}");
    let mut events = balancer.events();
    for key in 0..300 {
        balancer.hold(Target::key(key), ms(1_000)).unwrap();
    }
    let told = drain(&mut events);
    assert_eq!(told[0], Event::Missed { events: 44 });
    assert_eq!(told.len(), 257);
    assert!(matches!(&told[1], Event::HoldStarted { key: Some(key), .. } if *key == 44.into()));
}

#[tokio::test(start_paused = true)]
async fn events_end_with_the_balancer_and_keep_nothing_alive() {
    let balancer = balancer("[rules]\nr = {}");
    let mut events = balancer.events();
    let waiting = tokio::spawn(async move { events.next().await });
    settle().await;
    drop(balancer);
    assert_eq!(waiting.await.unwrap(), None);
    settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}
