//! "Slow down" without a number: how the waits of a scope grow, on the machine's own time.

mod world;

use request_balancer::engine::{Nanos, RuleId, Scheduler, Target};
use world::{Manner, World, ms};

/// Starts an attempt, says "slow down" to it, ends it and holds the target for `hold`. Returns the length of the row
/// before.
fn slowed(world: &mut World, rule: &str, key: u64, target: Option<Target>, hold: u64) -> u32 {
    let number = started(world, rule, key);
    let target = target.unwrap_or_else(|| Target::Key(world.key(key)));
    let id = world.asked[number].id;
    let before = world.scheduler.slow_down(world.now, id, target);
    let until = world.now.saturating_add(Nanos::from_millis(hold));
    world.scheduler.hold(world.now, target, until);
    world.finish(number);
    before
}

fn succeeded(world: &mut World, rule: &str, key: u64) {
    let number = started(world, rule, key);
    let id = world.asked[number].id;
    world.scheduler.succeed(id);
    world.finish(number);
}

fn started(world: &mut World, rule: &str, key: u64) -> usize {
    let number = world.enter_as(rule, key, Manner::Runs, Default::default());
    assert_eq!(world.starts_of(number), [world.now.as_nanos() / 1_000_000], "nothing is in its way");
    number
}

/// The rows of the scheduler, as its `Debug` tells them.
fn rows(scheduler: &Scheduler<usize>) -> usize {
    format!("{scheduler:?}").matches("Row {").count()
}

#[test]
fn each_further_answer_makes_the_row_longer_and_a_success_ends_it() {
    let mut world = World::new("[rules]\na = {}\nb = {}");
    for (at, before) in [(0, 0), (1_000, 1), (3_000, 2), (7_000, 3)] {
        world.run_until(at);
        // Whichever rule it was under: the key is held.
        let rule = if before % 2 == 0 { "a" } else { "b" };
        assert_eq!(slowed(&mut world, rule, 1, None, 1_000 << before), before);
    }
    // Another key's success says nothing, nor that of an attempt that failed otherwise.
    succeeded(&mut world, "a", 2);
    world.run_until(15_000);
    let other = started(&mut world, "a", 1);
    world.finish(other);
    assert_eq!(slowed(&mut world, "a", 1, None, 16_000), 4);
    world.run_until(31_000);
    succeeded(&mut world, "b", 1);
    assert_eq!(slowed(&mut world, "a", 1, None, 1_000), 0);
}

#[test]
fn scopes_have_rows_of_their_own() {
    let mut world = World::new("[rules]\na = {}\nb = {}");
    let (a, b) = (world.rule("a"), world.rule("b"));
    for round in 0..3 {
        for target in [Target::Overall, Target::Rule(a), Target::Rule(b)] {
            world.run_until(world.now.as_nanos() / 1_000_000 + 10);
            assert_eq!(slowed(&mut world, "a", 1, Some(target), 1), round, "{target:?}");
        }
        let key = world.key(1);
        for target in [Target::Key(key), Target::Queue(a, key), Target::Queue(b, key)] {
            world.run_until(world.now.as_nanos() / 1_000_000 + 10);
            assert_eq!(slowed(&mut world, "a", 1, Some(target), 1), round, "{target:?}");
        }
    }
    // A success is one of its queue, key, rule and of everything: not of another rule's.
    world.run_until(500);
    succeeded(&mut world, "a", 1);
    let key = world.key(1);
    let expected = [
        (Target::Overall, 0),
        (Target::Rule(a), 0),
        (Target::Rule(b), 3),
        (Target::Key(key), 0),
        (Target::Queue(a, key), 0),
        (Target::Queue(b, key), 3),
    ];
    for (target, before) in expected {
        world.run_until(world.now.as_nanos() / 1_000_000 + 10);
        assert_eq!(slowed(&mut world, "a", 1, Some(target), 1), before, "{target:?}");
    }
}

#[test]
fn a_crowd_that_is_refused_together_is_refused_once() {
    let mut world = World::new("[rules]\na = {}");
    let key = world.key(1);
    let crowd: Vec<usize> = (0..5).map(|_| started(&mut world, "a", 1)).collect();
    for number in crowd {
        world.now = world.now.saturating_add(Nanos::from_millis(10));
        let id = world.asked[number].id;
        assert_eq!(world.scheduler.slow_down(world.now, id, Target::Key(key)), 0);
        world.finish(number);
    }
    world.run_until(100);
    assert_eq!(slowed(&mut world, "a", 1, None, 1), 1);
    // One that ran meanwhile and succeeds at last ends nothing.
    let mut world = World::new("[rules]\na = {}");
    let slow = started(&mut world, "a", 1);
    world.run_until(10);
    assert_eq!(slowed(&mut world, "a", 1, None, 1), 0);
    world.run_until(20);
    let id = world.asked[slow].id;
    world.scheduler.succeed(id);
    world.finish(slow);
    assert_eq!(slowed(&mut world, "a", 1, None, 1), 1);
}

#[test]
fn nothing_is_kept_of_keys_that_nobody_needs() {
    let mut world = World::new("[rules]\na = {}");
    for key in 0..1_000 {
        assert_eq!(slowed(&mut world, "a", key, None, 1_000), 0);
    }
    assert_eq!((world.key_count(), rows(&world.scheduler)), (1_000, 1_000));
    // As long again as the hold was: whoever comes back in that time finds the row.
    world.run_until(1_900);
    assert_eq!(slowed(&mut world, "a", 7, None, 2_000), 1);
    world.run_until(4_500);
    assert_eq!((world.key_count(), rows(&world.scheduler)), (1, 1));
    world.run_until(20_000);
    assert_eq!((world.key_count(), rows(&world.scheduler)), (0, 0));
    assert_eq!(slowed(&mut world, "a", 7, None, 1_000), 0);
}

#[test]
fn what_is_not_there_has_no_row() {
    let mut world = World::new("[rules]\na = {}");
    let key = world.key(1);
    let number = started(&mut world, "a", 1);
    let id = world.asked[number].id;
    assert_eq!(world.scheduler.slow_down(ms(0), id, Target::Request), 0);
    world.finish(number);
    assert_eq!(world.scheduler.slow_down(ms(0), id, Target::Key(key)), 0);
    world.run_until(60_000);
    assert_eq!(world.key_count(), 0);
    let other = started(&mut world, "a", 2);
    let id = world.asked[other].id;
    for target in [Target::Key(key), Target::Queue(RuleId(0), key)] {
        assert_eq!(world.scheduler.slow_down(world.now, id, target), 0);
    }
    assert_eq!(rows(&world.scheduler), 0);
}

#[test]
fn two_keys_that_are_one_have_the_longer_row() {
    let mut world = World::new("[rules]\na = {}");
    for _ in 0..3 {
        slowed(&mut world, "a", 1, None, 1);
        world.run_until(world.now.as_nanos() / 1_000_000 + 10);
    }
    slowed(&mut world, "a", 2, None, 1);
    world.run_until(world.now.as_nanos() / 1_000_000 + 10);
    let (from, into) = (world.key(1), world.key(2));
    world.scheduler.alias(world.now, from, into);
    assert_eq!(slowed(&mut world, "a", 2, None, 1), 3);
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_dropped_permit_says_nothing_of_success() {
    let rules = "retry = { bare_wait = '5s', attempts = 9 }\n[rules]\nr = '100/1s'".parse::<request_balancer::Rules>();
    let balancer = request_balancer::Balancer::new(rules.expect("rules"));
    let slowed_down = async || {
        let permit = balancer.request("r", 1).acquire().await.expect("a start");
        let begin = tokio::time::Instant::now();
        let permit = permit.retry(None).await.expect("another start");
        (begin.elapsed().as_secs(), permit)
    };
    let (wait, permit) = slowed_down().await;
    assert_eq!(wait, 5);
    drop(permit);
    let (wait, permit) = slowed_down().await;
    assert_eq!(wait, 10);
    permit.succeed();
    assert_eq!(slowed_down().await.0, 5);
}
