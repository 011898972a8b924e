//! Costs that are known only once the answer is there.

mod world;

use request_balancer::engine::{Charge, Entry};
use world::{Manner, World};

/// A request that says nothing of its tokens runs at 700 ms and turns out to have cost some; when the next one starts
/// that needs all there is.
fn next_after_settling(quota: &str, asks: u32, actual: u32) -> u64 {
    let mut world = World::new(&format!("units = ['tokens']\n[rules]\na = '{quota}'"));
    world.judged = false;
    world.run_until(700);
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    world.scheduler.settle(world.now, world.asked[first].id, Charge::Unit(0), actual);
    let next = world.enqueue_as("a", 1, Manner::Prompt, Entry { units: &[asks], ..Entry::default() });
    world.turn();
    world.run_until(800);
    world.finish(first);
    world.run_until(100_000_000);
    world.starts_of(next)[0]
}

/// Nothing was written down when it started, since it seemed to take nothing.
#[test]
fn what_seemed_to_be_for_nothing_counts_from_its_start() {
    for (quota, at) in [
        ("100/10s tokens", 10_700),
        ("100/10s tokens smooth", 10_700),
        // What it lacks comes back at 10 a second, of which 90 are here still.
        ("10/1s tokens burst 100", 1_700),
        #[cfg(feature = "calendar")]
        ("100/day UTC tokens", 86_400_000),
    ] {
        assert_eq!(next_after_settling(quota, 100, 10), at, "{quota}");
        assert_eq!(next_after_settling(quota, 100, 0), 700, "{quota}");
    }
    assert_eq!(next_after_settling("100/10s tokens", 90, 10), 700);
    assert_eq!(next_after_settling("100/10s tokens", 91, 10), 10_700);
}

/// One that started later is known already.
#[test]
fn what_counts_late_counts_in_its_place() {
    let mut world = World::new("units = ['tokens']\n[rules]\na = '100/10s tokens'");
    let runs = [0, 0].map(|_| world.enter_as("a", 1, Manner::Runs, Entry::default()));
    world.run_until(1_000);
    world.enter_as("a", 1, Manner::Runs, Entry { units: &[30], ..Entry::default() });
    world.run_until(2_000);
    world.enter_as("a", 1, Manner::Runs, Entry { units: &[30], ..Entry::default() });
    for first in runs {
        world.scheduler.settle(world.now, world.asked[first].id, Charge::Unit(0), 20);
    }
    let (half, all) = (Entry { units: &[60], ..Entry::default() }, Entry { units: &[100], ..Entry::default() });
    let next = [half, all].map(|entry| world.enqueue_as("a", 1, Manner::Prompt, entry));
    world.turn();
    world.run_until(100_000);
    // The first two leave at 10 s with 40, so that 40 are free; the third leaves at 11 s.
    assert_eq!(next.map(|next| world.starts_of(next)[0]), [11_000, 21_000]);
}
