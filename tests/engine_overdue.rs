//! Attempts that may only run for so long, on the machine's own time.

mod world;

use request_balancer::engine::{Claim, Entry, Nanos, RequestId, Target};
use world::{Manner, World, ms};

/// Starts an attempt that may run for so many milliseconds; its waker is its number.
fn limited(world: &mut World, key: u64, millis: u64) -> (usize, RequestId) {
    let number = world.enter_as("r", key, Manner::Zombie, Entry::default());
    let id = world.asked[number].id;
    world.scheduler.limit_attempt(id, Nanos::from_millis(millis));
    let _same = world.scheduler.set_waker(id, number);
    (number, id)
}

#[test]
fn its_owner_is_woken_in_time_and_the_slot_is_its_own_until_it_ends() {
    let mut world = World::new("[rules]\nr = { key_concurrency = 1 }");
    let (number, id) = limited(&mut world, 1, 5_000);
    let next = world.enter("r", 1);
    assert_eq!(world.scheduler.next_wake(), Some(ms(5_000)));
    world.now = ms(4_999);
    world.scheduler.dispatch(world.now);
    assert!(!world.scheduler.is_overdue(id) && world.scheduler.take_wakes().is_empty());
    world.now = ms(5_000);
    world.scheduler.dispatch(world.now);
    assert_eq!((world.scheduler.is_overdue(id), std::mem::take(world.scheduler.take_wakes())), (true, vec![number]));
    assert_eq!(world.scheduler.claim(world.now, id), Claim::Running);
    world.now = ms(6_000);
    assert!(world.starts_of(next).is_empty());
    world.finish(number);
    assert_eq!((world.starts_of(next), world.scheduler.is_overdue(id)), (&[6_000][..], false));
}

#[test]
fn an_attempt_that_ends_sooner_leaves_no_alarm_and_the_next_one_has_none() {
    let mut world = World::new("[rules]\nr = {}");
    let (number, id) = limited(&mut world, 1, 5_000);
    let key = world.key(1);
    world.now = ms(1_000);
    assert!(world.scheduler.retry(world.now, id, Target::Key(key), ms(2_000), None));
    world.now = ms(2_000);
    world.scheduler.dispatch(world.now);
    assert!(matches!(world.claim(number), Claim::Started { .. }));
    // Nothing is due: the key is busy, and no time was said for this attempt.
    assert_eq!(world.scheduler.next_wake(), None);
    world.scheduler.limit_attempt(id, Nanos::MAX);
    assert_eq!(world.scheduler.next_wake(), None);
    world.scheduler.limit_attempt(id, Nanos::from_millis(100));
    assert_eq!(world.scheduler.next_wake(), Some(ms(2_100)));
    world.run_until(2_100);
    assert!(world.scheduler.is_overdue(id));
    // It is put back, or told to stop, like any other.
    assert_eq!(world.scheduler.abort(), 1);
    assert!(world.scheduler.is_aborted(id) && !world.scheduler.is_overdue(id));
    world.finish(number);
    world.scheduler.limit_attempt(id, Nanos::ZERO);
    world.run_until(60_000);
    assert_eq!((world.key_count(), world.scheduler.next_wake()), (0, None));
}

#[test]
fn an_overdue_attempt_may_back_off() {
    let mut world = World::new("[rules]\nr = {}");
    let (number, id) = limited(&mut world, 1, 1_000);
    world.run_until(1_000);
    assert!(world.scheduler.is_overdue(id));
    assert!(world.scheduler.back_off(world.now, id, ms(3_000), Some(ms(2_000))));
    world.run_until(2_000);
    assert!(world.scheduler.is_refused(id) && matches!(world.claim(number), Claim::Refused { .. }));
}
