//! A hold or a pause also stops what is granted and not taken up.

mod world;

use request_balancer::engine::{Claim, Entry, Target, Why};
use world::{Manner, World};

/// A world where one request runs and another is granted and does not claim.
fn granted() -> (World, usize, usize) {
    let mut world = World::new("per_key = '2/1s'\n[rules]\na = {}");
    let runs = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let granted = world.enqueue_as("a", 1, Manner::Zombie, Entry::default());
    world.turn();
    assert!(world.scheduler.is_granted(world.asked[granted].id));
    (world, runs, granted)
}

#[test]
fn a_grant_that_nobody_took_up_does_not_start_inside_a_hold() {
    for scope in ["key", "queue", "rule", "overall"] {
        let (mut world, runs, granted) = granted();
        let (key, rule) = (world.key(1), world.rule("a"));
        let target = match scope {
            "key" => Target::Key(key),
            "queue" => Target::Queue(rule, key),
            "rule" => Target::Rule(rule),
            _ => Target::Overall,
        };
        world.retry(runs, target, 5_000);
        world.run_until(1);
        assert_eq!(world.claim(granted), Claim::Waiting, "{scope}");
        world.asked[granted].manner = Manner::Prompt;
        world.run_until(10_000);
        assert_eq!((world.starts_of(runs), world.starts_of(granted)), ([0, 5_000].as_slice(), [5_000].as_slice()));
    }
}

#[test]
fn a_hold_from_outside_takes_grants_back() {
    let (mut world, _, granted) = granted();
    let hold = world.now.saturating_add(request_balancer::engine::Nanos::from_millis(700));
    world.scheduler.hold(world.now, Target::Overall, hold);
    assert_eq!(world.claim(granted), Claim::Waiting);
    world.asked[granted].manner = Manner::Prompt;
    world.run_until(10_000);
    assert_eq!(world.starts_of(granted), [700]);
}

#[test]
fn what_a_hold_takes_back_is_room_for_others() {
    let mut world = World::new("overall = '2/10s'\n[rules]\na = {}");
    world.enter("a", 1);
    let granted = world.enqueue_as("a", 1, Manner::Zombie, Entry::default());
    world.turn();
    let other = world.enqueue("a", 2);
    world.turn();
    assert_eq!(world.starts_of(other), [] as [u64; 0]);
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), world::ms(3_000));
    world.turn();
    assert_eq!(world.claim(granted), Claim::Waiting);
    assert_eq!(world.starts_of(other), [0]);
}

#[test]
fn a_grant_that_nobody_took_up_does_not_start_during_a_pause() {
    for all in [false, true] {
        let (mut world, _, granted) = granted();
        let rule = world.rule("a");
        if all {
            world.scheduler.pause_all(world.now)
        } else {
            world.scheduler.pause(world.now, rule)
        }
        assert_eq!(world.claim(granted), Claim::Waiting);
        world.asked[granted].manner = Manner::Prompt;
        world.run_until(400);
        if all {
            world.scheduler.resume_all(world.now)
        } else {
            world.scheduler.resume(world.now, rule)
        }
        world.turn();
        assert_eq!(world.starts_of(granted), [400]);
    }
}

#[test]
fn a_grant_that_is_taken_back_after_its_deadline_is_refused() {
    let mut world = World::new("[rules]\na = {}");
    let deadline = Some(world::ms(10));
    let granted = world.enqueue_as("a", 1, Manner::Zombie, Entry { deadline, ..Entry::default() });
    world.turn();
    world.run_until(20);
    let rule = world.rule("a");
    world.scheduler.pause(world.now, rule);
    assert!(matches!(world.claim(granted), Claim::Refused { why: Why::MaxWait, .. }));
}

/// Told to wait, it would never be woken: it is refused while its owner asks.
#[test]
fn who_asks_for_a_lost_grant_after_its_deadline_is_refused() {
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}");
    let deadline = Some(world::ms(2_000));
    let slept = world.enqueue_as("a", 1, Manner::Zombie, Entry { deadline, ..Entry::default() });
    world.turn();
    world.run_until(1_500);
    let other = world.enter("a", 1);
    assert_eq!(world.starts_of(other), [1_500]);
    // Nobody has called the machine at the deadline.
    world.now = world::ms(2_000);
    assert!(matches!(world.claim(slept), Claim::Refused { why: Why::MaxWait, .. }));
}

/// The time that passed since the engine was last spoken to is no part of the next one's lease.
#[test]
fn who_follows_one_whose_grant_a_pause_takes_back_has_a_whole_lease() {
    let mut world = World::new("[rules]\na = {}\nb = {}\n[lanes.1]\nconcurrency = 1");
    let _ = world.enqueue_as("a", 1, Manner::Zombie, Entry::default());
    let next = world.enqueue_as("b", 2, Manner::Zombie, Entry::default());
    world.turn();
    world.now = world::ms(30);
    let rule = world.rule("a");
    world.scheduler.pause(world.now, rule);
    for (at, is_granted) in [(1_029, true), (1_030, false)] {
        world.scheduler.dispatch(world::ms(at));
        assert_eq!(world.scheduler.is_granted(world.asked[next].id), is_granted, "at {at} ms");
    }
}
