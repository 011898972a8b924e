//! Keys that nobody needs any more are forgotten.

mod world;

use world::{World, ms};

#[test]
fn a_key_without_work_is_gone_within_two_seconds_of_its_last_window() {
    let mut world = World::new("per_key = '1/1s'");
    for key in 0..100_000 {
        world.enter("default", key);
    }
    assert_eq!(world.key_count(), 100_000);
    world.run_until(999);
    assert_eq!(world.key_count(), 100_000);
    world.run_until(2_000);
    assert_eq!(world.key_count(), 0);
    assert_eq!(world.scheduler.take_evicted().len(), 100_000);
    assert_eq!(world.scheduler.next_wake(), None);
}

#[test]
fn requests_evict_in_passing_where_no_timer_runs() {
    let mut world = World::new("per_key = '1/1s'");
    for key in 0..1_000 {
        world.enter("default", key);
    }
    for step in 1..=1_000 {
        world.now = ms(2_000 + step * 10);
        world.enter("default", 7_777);
    }
    assert!(world.key_count() <= 2, "{}", world.key_count());
}

#[test]
fn keys_that_never_get_work_are_gone_in_time() {
    let mut world = World::new("per_key = '1/1s'");
    let scheduler = &mut world.scheduler;
    for tag in 0..1_000 {
        scheduler.add_key(ms(tag * 2), tag);
    }
    // Those of the first second, and then those of the next one.
    for (now, expected) in [(1_999, 0..500), (2_000, 500..1_000)] {
        while scheduler.next_wake().is_some_and(|wake| wake <= ms(now)) {
            scheduler.dispatch(ms(now));
        }
        assert!(scheduler.take_evicted().drain(..).map(|evicted| evicted.tag).eq(expected), "at {now} ms");
    }
    assert_eq!(scheduler.next_wake(), None);
}

#[test]
fn whoever_takes_the_place_of_a_key_that_is_another_now_is_not_kept_for_as_long_as_that_one() {
    let mut world = World::new("[rules]\nquick = '1/1s'\nslow = '1/1h'");
    world.judged = false;
    world.enter("slow", 1);
    world.enter("slow", 2);
    world.run_until(1_000);
    let (old, new) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(ms(1_000), old, new));
    world.enter("quick", 3);
    let third = world.key(3);
    world.run_until(3_000);
    assert!(!world.scheduler.knows(third));
    assert!(world.scheduler.knows(new));
}
