//! What is closed or full is passed over, lower lanes are paced, and overdue ones are served.

mod world;

use request_balancer::engine::{Entry, Nanos, Target};
use world::{Manner, World, ms};

#[test]
fn a_limit_of_a_rule_that_does_not_bind_changes_nobodys_share() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nmany = { overall = '1000/1s' }\none = {}");
    for key in 0..50 {
        world.enqueue_many("many", key, 100);
    }
    world.enqueue_many("one", 99, 100);
    world.turn();
    world.run_until(4_999);
    for key in 0..50 {
        assert!((9..=10).contains(&world.starts("many", key).len()));
    }
    assert!((9..=10).contains(&world.starts("one", 99).len()));
}

#[test]
fn a_closed_rule_is_passed_over_and_uses_its_limit_in_full() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nmany = { overall = '10/1s' }\none = {}");
    for key in 0..50 {
        world.enqueue_many("many", key, 100);
    }
    world.enqueue_many("one", 99, 2_000);
    world.turn();
    world.run_until(9_999);
    let many: Vec<usize> = (0..50).map(|key| world.starts("many", key).len()).collect();
    assert_eq!(many, [2; 50]);
    assert_eq!(world.starts("one", 99).len(), 900);
}

#[test]
fn a_queue_whose_oldest_is_displaced_again_and_again_keeps_its_turn() {
    let mut world = World::new(
        "overall = '1/100ms'
        [rules]
        others = {}
        status = { queue = 1, overflow = 'drop-oldest' }",
    );
    for key in 1..=5 {
        world.enqueue_many("others", key, 20);
    }
    world.turn();
    let status = Entry::default();
    for step in 0..200 {
        world.run_until(5 + step * 10);
        world.enqueue_as("status", 9, Manner::Prompt, status);
    }
    // Five are before it, and then it is one of six.
    assert_eq!(world.starts("status", 9), [600, 1_200, 1_800]);
}

#[test]
fn blocked_queues_are_decided_anew_when_an_attempt_ends() {
    let mut world = World::new("key_concurrency = 1\n[rules]\na = {}\nb = {}");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let of_b = world.enter("b", 1);
    let of_a = world.enter("a", 1);
    assert_eq!(world.scheduler.next_wake(), None);
    world.run_until(777);
    world.finish(first);
    assert_eq!(world.starts_of(of_b), [777]);
    assert_eq!(world.starts_of(of_a), [777]);
    assert_eq!(world.order, [first, of_b, of_a]);
}

#[test]
fn a_rule_at_its_concurrency_is_passed_over() {
    let mut world = World::new("[rules]\na = { concurrency = 1 }\nb = {}");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let waits = world.enter("a", 2);
    let free = world.enter("b", 3);
    assert_eq!(world.starts_of(free), [0]);
    world.run_until(50);
    world.withdraw(first);
    assert_eq!(world.starts_of(waits), [50]);
}

#[test]
fn overall_concurrency_never_runs_over() {
    let mut world = World::new("concurrency = 3");
    let numbers: Vec<_> = (0..9).map(|key| world.enter_as("default", key, Manner::Runs, Entry::default())).collect();
    assert_eq!(world.order.len(), 3);
    for number in numbers {
        assert_eq!(world.scheduler.snapshot(world.now).in_flight, (9 - number).min(3));
        world.finish(number);
    }
    assert_eq!(world.order.len(), 9);
}

#[test]
fn an_overdue_lane_with_a_held_key_lets_its_next_queue_go() {
    let mut world = World::new(
        "overall = '10/1s'\nper_key = '100/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    world.enqueue_many("urgent", 1, 200);
    let held = world.enqueue("bulk", 2);
    let free = world.enqueue_many("bulk", 3, 20);
    let key = world.key(2);
    world.scheduler.hold(world.now, Target::Key(key), ms(8_000));
    world.turn();
    world.run_until(1_999);
    // K = 2: every third start is the bulk lane's, as often as it has one that may go.
    let bulk = free.iter().filter(|&&number| !world.starts_of(number).is_empty()).count();
    assert_eq!((bulk, world.starts_of(held).len()), (6, 0));
    world.run_until(60_000);
    assert_eq!(world.starts_of(held), [8_000]);
}

#[test]
fn a_lane_whose_rule_is_closed_is_neither_served_nor_counted() {
    let mut world = World::new(
        "overall = '10/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    world.enqueue_many("urgent", 1, 100);
    world.enqueue_many("bulk", 2, 5);
    let rule = world.rule("bulk");
    world.scheduler.hold(world.now, Target::Rule(rule), ms(3_000));
    world.turn();
    world.run_until(2_999);
    assert_eq!(world.scheduler.snapshot(world.now).lanes[1].bypassed, 0);
    assert_eq!(world.starts("urgent", 1).len(), 30);
    world.run_until(60_000);
    // Two urgent ones go past it from the moment it is open.
    let rules: Vec<_> = world.order[30..36].iter().map(|&number| world.asked[number].rule).collect();
    let (urgent, bulk) = (world.rule("urgent"), world.rule("bulk"));
    assert_eq!(rules, [urgent, urgent, bulk, urgent, urgent, bulk]);
    assert_eq!(world.starts("bulk", 2)[0], 3_000);
}

#[test]
fn a_paced_broadcast_under_two_overall_windows_leaves_room_at_every_instant() {
    let mut world = World::new("overall = ['30/1s', '1000/60s']\n[rules]\nurgent = {}\nbroadcast = { priority = 2 }");
    for key in 0..6_000 {
        world.enqueue("broadcast", 1_000 + key);
    }
    world.turn();
    let mut urgent = Vec::new();
    for step in 0..800 {
        world.run_until(step * 500 + 7);
        urgent.push((step * 500 + 7, world.enter("urgent", 10_000 + step)));
    }
    world.run_until(800_000);
    for (asked, number) in urgent {
        assert_eq!(world.starts_of(number), [asked]);
    }
    let last = (0..6_000).map(|key| world.starts("broadcast", 1_000 + key)[0]).max();
    // 980 of 1,000 in each 60 s, of which the urgent calls take 120.
    assert!(last.is_some_and(|last| (394_000..=425_000).contains(&last)), "{last:?}");
}

#[test]
fn a_late_timer_is_caught_up_by_the_pace() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nurgent = {}\nbroadcast = { priority = 2 }");
    for key in 0..1_000 {
        world.enqueue("broadcast", key);
    }
    world.turn();
    // The owner's timer is always 3 ms late.
    while let Some(wake) = world.scheduler.next_wake().filter(|&wake| wake < ms(20_000)) {
        world.now = world.now.max(wake.saturating_add(Nanos::from_millis(3)));
        world.turn();
    }
    let last = (0..1_000).map(|key| world.starts("broadcast", key)[0]).max().expect("a start");
    // 10 ms apart; two of a hundred are left to the urgent lane.
    assert!(last <= 10_300, "{last}");
}

#[test]
fn a_heavier_rule_of_a_key_does_not_take_every_paced_start() {
    let mut world = World::new(
        "per_key = '10/1s'\n[rules]\nurgent = {}\nheavy = { priority = 2, weight = 3 }\nlight = { priority = 2 }",
    );
    world.enqueue_many("light", 1, 3);
    world.enqueue_many("heavy", 1, 20);
    world.turn();
    world.run_until(10_000);
    assert_eq!(world.starts("light", 1), [0, 200, 400]);
    assert_eq!(world.starts("heavy", 1)[..5], [100, 300, 500, 600, 700]);
}

#[test]
fn weights_hold_in_a_lower_lane_where_the_keys_pace_is_not_what_they_wait_for() {
    let rules = "overall = '30/1s'\nper_key = '100/1s'\n[rules]\nurgent = {}\nlight = { priority = 2 }
        heavy = { priority = 2, weight = 8 }";
    for other in [1, 2] {
        let mut world = World::new(rules);
        world.enqueue_many("light", 1, 300);
        world.enqueue_many("heavy", other, 300);
        world.turn();
        world.run_until(9_999);
        let starts = (world.starts("light", 1).len(), world.starts("heavy", other).len());
        assert_eq!(starts, (34, 266), "light under key 1, heavy under key {other}");
    }
}
