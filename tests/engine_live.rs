//! Other rules, and keys that turn out to be one, while requests wait and run.

mod world;

use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::{Claim, Entry, Target, Why};
use world::{Manner, World, ms};

fn replace(world: &mut World, rules: &str) {
    let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}"));
    world.judged = false;
    let old = Arc::clone(world.scheduler.plan());
    let new = Arc::unwrap_or_clone(rules.plan()).succeeding(&old);
    world.scheduler.replace(world.now, Arc::new(new));
    world.turn();
}

#[test]
fn fr_134_a_longer_period_counts_the_starts_that_are_known() {
    let mut world = World::new("[rules]\na = '1/1s'");
    world.enqueue_many("a", 1, 10);
    world.turn();
    world.run_until(5_500);
    replace(&mut world, "[rules]\na = '1/10s'");
    world.run_until(60_000);
    assert_eq!(world.starts("a", 1), [0, 1_000, 2_000, 3_000, 4_000, 5_000, 15_000, 25_000, 35_000, 45_000]);
}

#[test]
fn fr_136_a_raised_count_is_used_at_once() {
    let mut world = World::new("[rules]\na = '10/1s'");
    world.enqueue_many("a", 1, 30);
    world.turn();
    world.run_until(500);
    replace(&mut world, "[rules]\na = '12/1s'");
    world.run_until(60_000);
    let starts = world.starts("a", 1);
    assert_eq!(starts[..12], [[0; 10].as_slice(), &[500; 2]].concat());
    assert_eq!(starts[12..22], [1_000; 10]);
    assert_eq!(starts[22..24], [1_500; 2]);
}

#[test]
fn what_waits_under_a_removed_rule_is_refused_and_what_runs_finishes() {
    let mut world = World::new("concurrency = 2\n[rules]\na = {}\nb = {}");
    let runs = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let other = world.enter_as("b", 1, Manner::Runs, Entry::default());
    let waits = world.enqueue_as("a", 1, Manner::Zombie, Entry::default());
    let later = world.enqueue("b", 2);
    replace(&mut world, "concurrency = 2\n[rules]\nb = {}\nc = {}");
    assert!(matches!(world.claim(waits), Claim::Refused { why: Why::RuleRemoved, .. }));
    assert_eq!(world.scheduler.snapshot(world.now).in_flight, 2);
    // What runs under the removed rule still takes a place of all.
    world.run_until(1_000);
    assert_eq!(world.starts_of(later), [] as [u64; 0]);
    world.finish(runs);
    assert_eq!(world.starts_of(later), [1_000]);
    world.finish(other);
    assert_eq!(world.scheduler.snapshot(world.now).in_flight, 0);
    let fresh = world.enter("c", 1);
    assert_eq!(world.starts_of(fresh), [1_000]);
}

#[test]
fn what_comes_back_under_a_removed_rule_is_refused() {
    for paused in [false, true] {
        for scope in [Some(Target::Request), Some(Target::Overall), None] {
            let mut world = World::new("[rules]\na = '1/1s'\nc = {}");
            let runs = world.enter_as("a", 1, Manner::Runs, Entry::default());
            if paused {
                world.scheduler.pause(world.now, world.rule("a"));
            }
            replace(&mut world, "[rules]\nc = {}");
            match scope {
                Some(scope) => world.retry(runs, scope, 10),
                None => world.back_off(runs, 10),
            }
            let answer = world.claim(runs);
            assert!(matches!(answer, Claim::Refused { why: Why::RuleRemoved, .. }), "{answer:?}");
            assert_eq!(world.scheduler.snapshot(world.now).waiting, 0);
        }
    }
}

#[test]
fn a_rule_that_comes_back_has_its_old_place() {
    let mut world = World::new("[rules]\na = {}\nb = {}");
    let before = world.rule("b");
    replace(&mut world, "[rules]\na = {}");
    replace(&mut world, "[rules]\nb = '1/1s'\na = {}");
    assert_eq!(world.rule("b"), before);
    world.enter("b", 1);
    let second = world.enter("b", 1);
    world.run_until(2_000);
    assert_eq!(world.starts_of(second), [1_000]);
}

#[test]
fn a_request_that_fits_no_more_is_refused() {
    let mut world = World::new("[rules]\na = '10/1s'");
    let first = world.enter_as("a", 1, Manner::Prompt, Entry { cost: 8, ..Entry::default() });
    let waits = world.enter_as("a", 1, Manner::Zombie, Entry { cost: 8, ..Entry::default() });
    assert_eq!(world.starts_of(first), [0]);
    replace(&mut world, "[rules]\na = '5/1s'");
    assert!(matches!(world.claim(waits), Claim::Refused { why: Why::CostTooHigh { cost: 8, capacity: 5 }, .. }));
}

#[test]
fn a_new_priority_puts_a_queue_last_in_its_new_lane() {
    let rules = |b: u32| {
        format!(
            "overall = '1/1s'\n[rules]\na = {{}}\nb = {{ priority = {b} }}\nc = {{ priority = 2 }}\n[lanes.2]\nshare = 0\npace = false"
        )
    };
    let mut world = World::new(&rules(1));
    world.enqueue_many("a", 1, 3);
    world.enqueue_many("b", 2, 3);
    world.enqueue_many("c", 3, 1);
    replace(&mut world, &rules(2));
    world.run_until(10_000);
    assert_eq!(world.starts("a", 1), [0, 1_000, 2_000]);
    assert_eq!(world.starts("c", 3).len(), 1);
    assert_eq!(world.starts("b", 2).len(), 3);
    assert!(world.starts("b", 2)[0] >= 3_000);
}

#[test]
fn fr_177_two_keys_that_are_one_share_budget_and_queue() {
    let mut world = World::new("[rules]\ngroup = '20/60s'");
    for _ in 0..18 {
        world.enter("group", 1);
    }
    let hold = world.key(1);
    world.scheduler.hold(world.now, Target::Queue(world.rule("group"), hold), ms(1));
    let of_a = world.enqueue_many("group", 1, 3);
    let of_b = world.enqueue_many("group", 2, 2);
    let (a, b) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, a, b));
    assert!(!world.scheduler.alias(world.now, a, b), "the first key is gone");
    world.turn();
    world.run_until(70_000);
    assert_eq!(world.order[18..], [of_a.as_slice(), &of_b].concat());
    assert_eq!((world.starts_of(of_a[0]), world.starts_of(of_a[1])), ([1].as_slice(), [1].as_slice()));
    assert_eq!(world.starts_of(of_a[2]), [60_000]);
    assert_eq!(world.starts_of(of_b[1]), [60_000]);
}

#[test]
fn what_runs_under_either_key_counts_for_both() {
    let mut world = World::new("key_concurrency = 2");
    let one = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let other = world.enter_as("default", 2, Manner::Runs, Entry::default());
    let (a, b) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, a, b));
    let next = world.enter("default", 2);
    assert_eq!(world.starts_of(next), [] as [u64; 0]);
    assert_eq!(world.scheduler.key_snapshot(world.now, b).in_flight, 2);
    world.run_until(10);
    world.finish(one);
    assert_eq!(world.starts_of(next), [10]);
    world.finish(other);
    assert_eq!(world.scheduler.key_snapshot(world.now, b), Default::default());
}

/// Gives a key these numbers of its own.
fn set_own(world: &mut World, rule: &str, key: u64, quota: &str) {
    let text = format!("{}\n[keys.{key}]\n{rule} = '{quota}'", "[rules]\na = '3/1s'");
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    world.judged = false;
    let (rule, numbers) = rules.own_numbers(&key.to_string()).remove(0);
    let key = world.key(key);
    assert!(world.scheduler.set_own(world.now, key, rule, Some(numbers)));
}

#[test]
fn what_no_longer_fits_a_keys_own_numbers_is_refused_and_stops_nobody() {
    let mut world = World::new("[rules]\na = '3/1s'");
    let cost = |cost| Entry { cost, ..Entry::default() };
    world.enter_as("a", 1, Manner::Prompt, cost(3));
    let costly = world.enqueue_as("a", 1, Manner::Zombie, cost(3));
    let behind = world.enqueue("a", 1);
    set_own(&mut world, "a", 1, "2/1s");
    let answer = world.claim(costly);
    assert!(matches!(answer, Claim::Refused { why: Why::CostTooHigh { cost: 3, capacity: 2 }, .. }), "{answer:?}");
    world.run_until(5_000);
    assert_eq!(world.starts_of(behind), [1_000]);
}

#[test]
fn what_no_longer_fits_when_it_comes_back_is_refused_and_stops_nobody() {
    for scope in [Target::Request, Target::Overall] {
        let mut world = World::new("[rules]\na = '3/1s'");
        let costly = world.enter_as("a", 1, Manner::Runs, Entry { cost: 3, ..Entry::default() });
        set_own(&mut world, "a", 1, "2/1s");
        let behind = world.enqueue("a", 1);
        world.retry(costly, scope, 10);
        let answer = world.claim(costly);
        assert!(matches!(answer, Claim::Refused { why: Why::CostTooHigh { cost: 3, capacity: 2 }, .. }), "{answer:?}");
        world.run_until(5_000);
        assert_eq!(world.starts_of(behind), [1_000]);
    }
    let mut world = World::new("[rules]\na = '3/1s'");
    let costly = world.enter_as("a", 1, Manner::Runs, Entry { cost: 3, ..Entry::default() });
    set_own(&mut world, "a", 1, "2/1s");
    world.back_off(costly, 10);
    assert!(matches!(world.claim(costly), Claim::Refused { why: Why::CostTooHigh { cost: 3, capacity: 2 }, .. }));
    assert_eq!(world.scheduler.snapshot(world.now).waiting, 0);
}

#[test]
fn what_does_not_fit_the_numbers_of_the_key_that_its_own_turns_out_to_be_is_refused() {
    let mut world = World::new("[rules]\na = '3/1s'");
    world.enter_as("a", 1, Manner::Prompt, Entry { cost: 3, ..Entry::default() });
    let costly = world.enqueue_as("a", 1, Manner::Zombie, Entry { cost: 3, ..Entry::default() });
    set_own(&mut world, "a", 2, "2/1s");
    let behind = world.enqueue("a", 2);
    let (from, into) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, from, into));
    assert!(matches!(world.claim(costly), Claim::Refused { why: Why::CostTooHigh { cost: 3, capacity: 2 }, .. }));
    world.run_until(5_000);
    assert_eq!(world.starts_of(behind), [1_000]);
}

const SINGLE: &str = "[rules]\na = { key_concurrency = 2 }";

/// Gives a key these numbers of its own, under rules of one cap.
fn set_numbers(world: &mut World, key: u64, numbers: &str) {
    let rules: Rules =
        format!("{SINGLE}\n[keys.{key}]\na = {numbers}").parse().unwrap_or_else(|findings| panic!("{findings}"));
    world.judged = false;
    let (rule, numbers) = rules.own_numbers(&key.to_string()).remove(0);
    let key = world.key(key);
    assert!(world.scheduler.set_own(world.now, key, rule, Some(numbers)));
}

#[test]
fn numbers_of_another_kind_are_no_obstacle_where_two_keys_become_one() {
    let (by_rule, by_key) = ([1_000, 2_000, 3_000, 4_000, 5_000, 6_000], [0, 0, 0, 2_000, 4_000, 6_000]);
    for (from, into, expected) in [(1, 2, by_rule), (2, 1, by_key)] {
        let mut world = World::new("[rules]\na = '1/1s'");
        set_numbers(&mut world, 1, "'5/10s burst 5'");
        world.enter("a", 1);
        world.enter("a", 2);
        let (old, new) = (world.key(from), world.key(into));
        assert!(world.scheduler.alias(world.now, old, new));
        let next = world.enqueue_many("a", into, 6);
        world.turn();
        world.run_until(60_000);
        let starts: Vec<u64> = next.iter().map(|&number| world.starts_of(number)[0]).collect();
        assert_eq!(starts, expected);
    }
}

#[test]
fn what_runs_under_either_key_has_its_place_under_the_numbers_of_the_new_one() {
    let mut world = World::new(SINGLE);
    set_numbers(&mut world, 1, "'2/10s'");
    let runs = [2, 2].map(|key| world.enter_as("a", key, Manner::Runs, Entry::default()));
    world.enter("a", 1);
    let (own, plain) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, plain, own));
    runs.into_iter().for_each(|number| world.finish(number));
    let next = world.enqueue("a", 1);
    world.run_until(20_000);
    assert_eq!(world.starts_of(next).len(), 1);
    world.run_until(60_000);
    assert_eq!(world.key_count(), 0);

    let mut world = World::new(SINGLE);
    set_numbers(&mut world, 2, "'2/10s'");
    let plain = [1, 1].map(|key| world.enter_as("a", key, Manner::Runs, Entry::default()));
    let under_own = world.enter_as("a", 2, Manner::Runs, Entry::default());
    let (one, two) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, two, one));
    let next = world.enqueue("a", 1);
    world.turn();
    world.finish(plain[0]);
    assert_eq!(world.starts_of(next), [] as [u64; 0], "two still run");
    world.finish(under_own);
    assert_eq!(world.starts_of(next), [0]);
}

#[test]
fn numbers_of_a_key_end_where_it_becomes_another_one_that_has_none() {
    let mut world = World::new(SINGLE);
    set_numbers(&mut world, 1, "'1/10s'");
    world.enter("a", 1);
    let (own, fresh) = (world.key(1), world.key(2));
    assert!(world.scheduler.alias(world.now, own, fresh));
    assert!(!world.scheduler.has_own(fresh, world.rule("a")));
    let next = world.enter("a", 2);
    assert_eq!(world.starts_of(next), [0]);
}

#[test]
fn what_waits_before_the_line_and_fits_a_keys_own_numbers_no_more_is_refused() {
    let mut world = World::new("queue = 1\n[rules]\na = '3/1s'");
    world.enter_as("a", 1, Manner::Prompt, Entry { cost: 3, ..Entry::default() });
    let waits = world.enqueue("a", 1);
    let (key, rule) = (world.key(1), world.rule("a"));
    let costly = Entry { cost: 3, ..Entry::default() };
    let before = world.scheduler.enqueue_patiently(world.now, key, rule, costly).expect("room before the line");
    assert!(world.scheduler.is_outside(before));
    set_own(&mut world, "a", 1, "2/1s");
    let answer = world.scheduler.claim(world.now, before);
    assert!(matches!(answer, Claim::Refused { why: Why::CostTooHigh { cost: 3, capacity: 2 }, .. }), "{answer:?}");
    world.run_until(5_000);
    assert_eq!(world.starts_of(waits), [1_000]);
}
