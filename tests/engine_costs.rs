//! Costly requests get their turns, and stop nobody who does not need the room that they wait for.

mod world;

use request_balancer::engine::{Charge, Entry, NextStart};
use world::{Manner, World, ms};

#[test]
fn a_costly_request_gets_its_turn_below_a_saturated_lane() {
    let mut world = World::new(
        "overall = '10/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    for step in 0..1_000 {
        world.run_until(step * 20);
        world.enter("urgent", step + 10);
        if step == 10 || step == 110 {
            world.enter_as("bulk", 1, Manner::Prompt, Entry { cost: 10, ..Entry::default() });
        }
    }
    world.run_until(120_000);
    let bulk = world.starts("bulk", 1);
    assert_eq!(bulk.len(), 2);
    // One period until ten units are free together, after at most K starts of the lane above.
    assert!(bulk[0] <= 200 + 2_000 && bulk[1] <= 2_200 + 2_000, "{bulk:?}");
    let mut starts: Vec<u64> = world.order.iter().map(|&number| world.asked[number].starts[0]).collect();
    starts.sort_unstable();
    assert_eq!(starts.len(), 1_002);
}

/// What a turn is worth was worked out when a queue took its place: whose first request turned out to be a costlier one
/// than all by then lost that turn, and let another one pass.
#[test]
fn a_request_that_became_first_and_is_costly_starts_in_its_queues_turn() {
    let mut world = World::new("overall = '1000/1s'");
    world.enqueue_many("default", 1, 9);
    let first = world.enqueue("default", 2);
    let costly = world.enqueue_as("default", 2, Manner::Prompt, Entry { cost: 3, ..Entry::default() });
    world.withdraw(first);
    assert_eq!(world.order.iter().position(|&number| number == costly), Some(1), "{:?}", world.order);
    assert_eq!(world.order.len(), 10);
}

#[test]
fn what_a_queue_saved_is_part_of_what_its_turn_is_worth_for_a_costlier_request() {
    let mut world = World::new("overall = '5/1s'");
    let add = |world: &mut World, key, cost| {
        world.enqueue_as("default", key, Manner::Prompt, Entry { cost, ..Entry::default() })
    };
    // Each turn is worth three: one is left of the first queue's.
    let first = [2, 2].map(|cost| add(&mut world, 1, cost));
    let other = [3, 3].map(|cost| add(&mut world, 2, cost));
    world.turn();
    // Its next one is worth four, and would be too small: it is worth five, as a new one is, and not six.
    let late = [5, 1].map(|cost| add(&mut world, 1, cost));
    world.withdraw(first[1]);
    world.run_until(2_000);
    assert_eq!(world.order, [first[0], other[0], late[0], other[1], late[1]]);
    assert_eq!((world.starts_of(late[0]), world.starts_of(late[1])), (&[1_000][..], &[2_000][..]));
}

#[test]
fn a_costly_request_of_a_key_waits_its_turn_among_siblings() {
    let mut world = World::new("per_key = '5/1s'\n[rules]\nlarge = {}\nsmall = {}");
    world.enqueue_many("small", 1, 100);
    let large = world.enqueue_as("large", 1, Manner::Prompt, Entry { cost: 5, ..Entry::default() });
    world.turn();
    world.run_until(60_000);
    assert_eq!(world.starts_of(large), [1_000]);
}

#[test]
fn a_costly_request_that_waits_for_its_rules_own_limit_stops_no_other_rule() {
    let mut world = World::new("overall = '100/1s'\n[rules]\ntight = { overall = '4/1s' }\nfree = {}");
    world.enter("tight", 1);
    let costly = world.enter_as("tight", 1, Manner::Prompt, Entry { cost: 4, ..Entry::default() });
    let behind = world.enter("tight", 2);
    let other = world.enter("free", 3);
    assert_eq!(world.starts_of(other), [0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
    assert_eq!(world.starts_of(behind), [2_000]);
}

#[test]
fn a_costly_request_stops_only_those_of_its_lane_that_need_the_same_room() {
    let mut world =
        World::new("overall = '4/1s'\nper_key = '100/1s'\n[rules]\na = {}\nb = {}\nfree = { under = ['per_key'] }");
    world.enter("a", 1);
    let costly = world.enter_as("a", 1, Manner::Prompt, Entry { cost: 4, ..Entry::default() });
    let behind = world.enter("b", 2);
    let free = world.enter("free", 3);
    assert_eq!(world.starts_of(free), [0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
    assert_eq!(world.starts_of(behind), [2_000]);
}

#[test]
fn a_costly_request_does_not_stop_who_takes_nothing_of_what_it_waits_for() {
    let mut world = World::new("units = ['tokens']\noverall = '100/1s tokens'\n[rules]\nask = {}\nlook = {}");
    let tokens = |tokens: &'static [u32]| Entry { units: tokens, ..Entry::default() };
    world.enter_as("ask", 1, Manner::Prompt, tokens(&[60]));
    let costly = world.enter_as("ask", 2, Manner::Prompt, tokens(&[60]));
    let free = world.enter("look", 3);
    assert_eq!(world.starts_of(free), [0]);
    let cheap = world.enter_as("look", 4, Manner::Prompt, tokens(&[1]));
    world.run_until(1_000);
    assert_eq!((world.starts_of(costly), world.starts_of(cheap)), (&[1_000][..], &[1_000][..]));
}

#[test]
fn a_costly_request_that_only_the_room_left_to_others_is_too_small_for_has_an_instant() {
    // The lower lane leaves one of fifty free: 48 and 2 fit the window, but not what it leaves.
    let mut world =
        World::new("overall = '50/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\npace = '1ms'");
    for key in 0..48 {
        world.enter("urgent", key);
    }
    let costly = world.enter_as("bulk", 99, Manner::Prompt, Entry { cost: 2, ..Entry::default() });
    assert_eq!(world.starts_of(costly), [] as [u64; 0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
}

#[test]
fn a_request_that_comes_back_before_a_costly_one_does_not_wait_for_what_that_one_waits_for() {
    // The costly one waits for the end of an attempt; the one before it fits as soon as its backoff is over.
    let mut world = World::new("per_key = { count = 5, per = '100ms', count_from = 'response' }");
    let long = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    world.back_off(first, 30);
    let costly = world.enter_as("default", 1, Manner::Prompt, Entry { cost: 5, ..Entry::default() });
    world.run_until(40);
    assert_eq!(world.starts_of(first), [0, 30]);
    world.finish(first);
    world.run_until(500);
    world.finish(long);
    world.run_until(1_000);
    assert_eq!(world.starts_of(costly), [600]);
}

#[test]
fn the_next_start_of_a_costly_request_is_when_all_it_costs_fits() {
    let mut world = World::new("overall = '20/60s'");
    world.enter("default", 1);
    let (rule, costly) = (world.rule("default"), Entry { cost: 20, ..Entry::default() });
    assert_eq!(world.scheduler.next_start(world.now, rule, None), NextStart::Now);
    assert_eq!(world.scheduler.next_start_of(world.now, rule, None, &costly), NextStart::At(ms(60_000)));
}

#[test]
fn costs_beyond_all_numbers_are_counted_and_nothing_more() {
    for limit in [
        "overall = { count = 10, per = '60s', count_from = 'response' }",
        "overall = '10/60s'",
        "per_key = '10/60s burst 10'",
        "[rules]\ndefault = { concurrency = 10 }",
    ] {
        let mut world = World::new(limit);
        world.judged = false;
        let mut runs = Vec::new();
        for millis in [0, 0, 1] {
            world.run_until(millis);
            runs.push(world.enter_as("default", 1, Manner::Runs, Entry::default()));
        }
        for &number in &runs {
            world.scheduler.settle(world.now, world.asked[number].id, Charge::Requests, u32::MAX);
        }
        world.scheduler.dispatch(world.now);
        runs.into_iter().for_each(|number| world.finish(number));
        let other = world.enter_as("default", 2, Manner::Runs, Entry::default());
        if !world.starts_of(other).is_empty() {
            world.scheduler.settle(world.now, world.asked[other].id, Charge::Requests, u32::MAX);
        }
        let (from, into) = (world.key(2), world.key(1));
        assert!(world.scheduler.alias(world.now, from, into));
        world.run_until(70_000);
        assert_eq!(world.starts_of(other).len(), 1, "{limit}");
    }
}
