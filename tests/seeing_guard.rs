//! The guard before a ban.
#![cfg(feature = "tokio")]

mod field;
mod world;

use field::{Field, ms, settle};
use request_balancer::engine::Entry;
use request_balancer::{Classify, Event, Failure, FindingCode, Health, NextStart, Rules, Verdict};
use tokio::time::Instant;
use world::{Manner, World};

const RULES: &str = "ban_guard = '3/10s'\n[rules]\nr = {}";

async fn invalid(field: &Field, key: i64) {
    let end = async |_| Err::<(), _>(Failure::permanent("no such chat").invalid());
    assert!(field.balancer.run("r", key, end).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_the_level_is_reached() {
    let field = Field::new(RULES);
    let mut events = field.balancer.events();
    for second in 0..3 {
        field.at(second * 1_000).await;
        assert_eq!(field.balancer.health(), Health::Ok);
        invalid(&field, 1).await;
    }
    let until = Instant::now() + ms(8_000);
    assert_eq!(events.try_next(), Some(Event::BanAhead { level: 3, period: ms(10_000), until }));
    assert_eq!(field.balancer.health(), Health::Limited);
    assert_eq!(field.balancer.next_start("r", 2).unwrap(), NextStart::After(ms(8_000)));
    assert!(field.balancer.explain("r", 2).unwrap().to_string().contains("`ban_guard` lets nothing start for 8s"));
    field.all_ok([field.go("r", 2, "next")]).await;
    assert_eq!(field.starts("next"), [10_000]);
    assert_eq!(events.try_next(), Some(Event::BanOver));
    // Two of them still count.
    invalid(&field, 1).await;
    assert!(matches!(events.try_next(), Some(Event::BanAhead { .. })));
    field.all_ok([field.go("r", 2, "last")]).await;
    assert_eq!(field.starts("last"), [11_000]);
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_in_time_though_nothing_waits() {
    let field = Field::new(RULES);
    let mut events = field.balancer.events();
    settle().await;
    for _ in 0..3 {
        invalid(&field, 1).await;
    }
    assert!(matches!(events.next().await, Some(Event::BanAhead { .. })));
    assert_eq!(events.next().await, Some(Event::BanOver));
    assert_eq!(field.now(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn retries_verdicts_and_permits_count_if_they_are_marked() {
    struct Gone;
    impl Classify for Gone {
        fn classify(&self) -> Verdict {
            Verdict::Invalid
        }
    }
    let field = Field::new(RULES);
    let mut events = field.balancer.events();
    let sent_away = async |attempt: request_balancer::Attempt| match attempt.number() {
        1 => Err::<(), Failure<()>>(attempt.retry(ms(1_000)).invalid()),
        _ => Ok(()),
    };
    field.balancer.run("r", 1, sent_away).await.unwrap();
    assert!(field.balancer.call("r", 1, async |_| Err::<(), _>(Gone)).await.is_err());
    assert!(matches!(events.try_next(), Some(Event::HoldStarted { .. })));
    let mut permit = field.balancer.request("r", 1).try_acquire().unwrap();
    permit.invalid();
    // It counts when it ends.
    assert_eq!(events.try_next(), None);
    drop(permit);
    assert!(matches!(events.try_next(), Some(Event::BanAhead { .. })));
}

#[tokio::test(start_paused = true)]
async fn other_rules_may_have_another_guard() {
    let field = Field::new(RULES);
    let mut events = field.balancer.events();
    for _ in 0..2 {
        invalid(&field, 1).await;
    }
    let replace = |rules: &str| field.balancer.replace_rules(rules.parse().unwrap());
    replace("ban_guard = '2/20s'\n[rules]\nr = {}");
    assert!(matches!(events.try_next(), Some(Event::BanAhead { level: 2, .. })));
    assert_eq!(field.balancer.next_start("r", 1).unwrap(), NextStart::After(ms(20_000)));
    replace("[rules]\nr = {}");
    assert_eq!(events.try_next(), Some(Event::BanOver));
    assert_eq!(field.balancer.next_start("r", 1).unwrap(), NextStart::Now);
}

#[test]
fn what_was_granted_is_taken_back_and_keeps_its_place() {
    let mut world = World::new("ban_guard = '1/10s'\n[rules]\nr = '3/1s'");
    let first = world.enter_as("r", 1, Manner::Runs, Entry::default());
    let sleepers: Vec<_> = (0..2).map(|_| world.enqueue_as("r", 1, Manner::Zombie, Entry::default())).collect();
    world.turn();
    assert!(world.scheduler.is_granted(world.asked[sleepers[0]].id));
    world.scheduler.count_invalid(world.now);
    world.finish(first);
    for &sleeper in &sleepers {
        assert!(!world.scheduler.is_granted(world.asked[sleeper].id));
        world.claim(sleeper);
        world.asked[sleeper].manner = Manner::Prompt;
    }
    let last = world.enqueue("r", 1);
    world.run_until(20_000);
    assert_eq!(
        sleepers.iter().chain([&last]).flat_map(|&one| world.starts_of(one)).collect::<Vec<_>>(),
        [&10_000, &10_000, &10_000]
    );
    assert_eq!(world.order, [first, sleepers[0], sleepers[1], last]);
}

#[test]
fn the_file_says_it_as_a_number_in_a_time_and_nothing_else() {
    let rules: Rules = "ban_guard = '9500/600s'".parse().unwrap();
    assert_eq!(rules.to_string(), "ban_guard = \"9500/10m\"\n\n[rules]\ndefault = {}\n");
    assert_eq!(rules.to_string().parse::<Rules>().unwrap(), rules);
    for (text, code) in [
        ("'0/1s'", FindingCode::Zero),
        ("'1/0s'", FindingCode::Zero),
        ("'1/1s smooth'", FindingCode::InvalidQuota),
        ("{ count = 1, per = '1s', margin = '1s' }", FindingCode::InvalidQuota),
        ("5", FindingCode::WrongType),
    ] {
        let findings = format!("ban_guard = {text}").parse::<Rules>().unwrap_err();
        let codes: Vec<_> = findings.iter().map(|finding| (finding.path(), finding.code())).collect();
        assert_eq!(codes, [("ban_guard", code)], "{text}");
    }
}
