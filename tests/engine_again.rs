//! Holds and pauses, and requests that go back to their places in line.

mod world;

use request_balancer::engine::{Claim, Entry, Health, NextStart, Target};
use world::{Manner, World, ms};

#[test]
fn a_held_key_stops_in_all_lanes_and_nobody_else() {
    let mut world = World::new("per_key = '1/1s'\n[rules]\na = {}\nb = { priority = 2 }");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(5_000));
    let a = world.enter("a", 1);
    let b = world.enter("b", 1);
    let other = world.enter("b", 2);
    assert_eq!(world.starts_of(other), [0]);
    world.run_until(10_000);
    assert_eq!(world.starts_of(a), [5_000]);
    assert_eq!(world.starts_of(b), [6_000]);
}

#[test]
fn a_release_lets_the_key_go_at_once() {
    let mut world = World::new("per_key = '1/1s'");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(50_000));
    let number = world.enter("default", 1);
    world.run_until(2_500);
    assert!(world.scheduler.release(world.now, Target::Key(key)));
    world.turn();
    assert_eq!(world.starts_of(number), [2_500]);
}

#[test]
fn holds_combine_by_maximum_and_none_is_longer_than_an_hour() {
    let mut world = World::new("per_key = '1/1s'");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(5_000));
    world.scheduler.hold(world.now, Target::Key(key), ms(2_000));
    assert_eq!(world.scheduler.key_snapshot(world.now, key).held_until, Some(ms(5_000)));
    world.scheduler.hold(world.now, Target::Key(key), ms(10_000_000_000));
    assert_eq!(world.scheduler.key_snapshot(world.now, key).held_until, Some(ms(3_600_000)));
}

#[test]
fn what_is_paused_or_closed_is_not_said_to_be_well() {
    let mut world = World::new("[rules]\na = '1/1s'\nb = {}");
    let (a, b) = (world.rule("a"), world.rule("b"));
    assert_eq!(world.scheduler.health(world.now), Health::Ok);
    world.scheduler.pause(world.now, a);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    assert_eq!(world.scheduler.next_start(world.now, a, None), NextStart::Never);
    world.scheduler.resume(world.now, a);
    world.scheduler.pause_all(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    world.scheduler.resume_all(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Ok);
    world.scheduler.close(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    assert_eq!(world.scheduler.next_start(world.now, b, None), NextStart::Never);
}

#[test]
fn refused_requests_go_back_in_the_order_of_their_numbers() {
    let mut world = World::new("per_key = '2/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let second = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let third = world.enter("default", 1);
    let key = world.key(1);
    world.run_until(100);
    world.retry(first, Target::Key(key), 3_000);
    world.run_until(200);
    world.retry(second, Target::Key(key), 1_000);
    world.run_until(10_000);
    assert_eq!(world.order, [first, second, first, second, third]);
    assert_eq!(world.starts_of(first), [0, 3_100]);
    assert_eq!(world.starts_of(third), [4_100]);
}

#[test]
fn those_that_come_back_in_any_order_stand_in_their_places() {
    let mut world = World::new("[rules]\na = '1/1s'");
    world.enter("a", 1);
    // Every other one comes back later: the even ones in order, the odd ones the last one first.
    let numbers: Vec<usize> = (0..200)
        .map(|number| {
            let not_before = match number % 4 {
                0 => Some(ms(100)),
                1 => Some(ms(900 - number)),
                _ => None,
            };
            world.enqueue_as("a", 1, Manner::Prompt, Entry { not_before, ..Entry::default() })
        })
        .collect();
    world.run_until(300_000);
    assert_eq!(world.order[1..], numbers);
}

#[test]
fn a_backoff_steps_out_of_line_and_comes_back_to_its_place() {
    let mut world = World::new("per_key = '1/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let others = world.enqueue_many("default", 1, 4);
    world.run_until(500);
    world.back_off(first, 2_000);
    world.run_until(10_000);
    assert_eq!(world.order, [first, others[0], others[1], first, others[2], others[3]]);
    assert_eq!(world.starts_of(first), [0, 3_000]);
}

#[test]
fn who_stepped_out_is_not_ahead_of_a_newcomer() {
    let mut world = World::new("per_key = '2/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    world.back_off(first, 60_000);
    let (rule, key) = (world.rule("default"), world.key(1));
    assert_eq!(world.scheduler.next_start(world.now, rule, Some(key)), NextStart::Now);
    let newcomer = world.enter("default", 1);
    assert_eq!(world.starts_of(newcomer), [0]);
}

#[test]
fn an_ordered_queue_waits_for_the_backoff_of_its_first() {
    let mut world = World::new("[rules]\na = { per_key = '10/1s', ordered = true }");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let second = world.enter("a", 1);
    world.run_until(500);
    world.back_off(first, 2_000);
    world.run_until(2_500);
    assert_eq!(world.starts_of(first), [0, 2_500]);
    assert_eq!(world.starts_of(second), [] as [u64; 0]);
    world.run_until(2_600);
    world.finish(first);
    assert_eq!(world.starts_of(second), [2_600]);
}

#[test]
fn an_ordered_queue_does_not_wait_for_one_that_left() {
    let mut world = World::new("[rules]\na = { per_key = '10/1s', ordered = true }");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let second = world.enter("a", 1);
    world.run_until(500);
    world.back_off(first, 20_000);
    world.run_until(700);
    world.withdraw(first);
    assert_eq!(world.starts_of(second), [700]);
}

#[test]
fn an_ordered_queue_waits_for_a_request_that_waits_for_itself_alone() {
    for (is_ordered, starts_of_second) in [(true, 2_000), (false, 0)] {
        let mut world = World::new(&format!("[rules]\na = {{ ordered = {is_ordered}, key_concurrency = 1 }}"));
        let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
        let second = world.enqueue("a", 1);
        world.retry(first, Target::Request, 2_000);
        world.asked[first].manner = Manner::Prompt;
        world.run_until(1_999);
        assert_eq!(world.starts_of(first), [0]);
        world.run_until(2_000);
        assert_eq!((world.starts_of(first)[1], world.starts_of(second)[0]), (2_000, starts_of_second));
    }
}

#[test]
fn a_request_waits_for_as_long_as_it_was_told_though_no_hold_is_that_long() {
    const HOUR: u64 = 3_600_000;
    for is_ordered in [false, true] {
        let mut world = World::new(&format!("[rules]\na = {{ ordered = {is_ordered} }}\nb = {{}}"));
        let told = world.enter_as("a", 1, Manner::Runs, Entry::default());
        let key = world.key(1);
        world.retry(told, Target::Key(key), 2 * HOUR);
        world.asked[told].manner = Manner::Prompt;
        let (behind, other) = (world.enqueue("a", 1), world.enqueue("b", 1));
        world.turn();
        world.run_until(3 * HOUR);
        assert_eq!(world.starts_of(told), [0, 2 * HOUR]);
        assert_eq!(world.starts_of(behind), [if is_ordered { 2 * HOUR } else { HOUR }]);
        assert_eq!(world.starts_of(other), [HOUR]);
    }
}

#[test]
fn whoever_stood_behind_a_refused_request_goes_on_in_its_place() {
    // Nothing else would wake the machine: the first one's hold was all that the queue was parked for.
    let mut world = World::new("overall = '2/10ms'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let key = world.key(1);
    world.retry_until(first, Target::Key(key), 50, Some(5));
    let costly = world.enter_as("default", 1, Manner::Prompt, Entry { cost: 2, ..Entry::default() });
    world.run_until(5);
    assert_eq!((world.claim(first), world.scheduler.snapshot(world.now).waiting), (Claim::Unknown, 1));
    world.run_until(1_000);
    assert_eq!(world.starts_of(costly), [50]);
}
