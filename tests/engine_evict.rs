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
