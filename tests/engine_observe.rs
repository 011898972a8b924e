//! What a server says of its counters narrows limits, less what is under way.

mod observing;

use std::sync::Arc;

use observing::{RULE, World, at, left};
use request_balancer::Rules;
use request_balancer::engine::{Claim, Enter, Entry, NextStart, RequestId, Target};

#[test]
fn it_narrows_until_the_reset_and_never_widens() {
    let mut world = World::new("per_key = '10/60s'");
    let first = world.start(0);
    world.answer(100, first, &[left(4, 30_000)]);
    assert_eq!(world.free(100), 4);
    assert_eq!(world.machine.next_start(at(100), RULE, Some(world.key)), NextStart::WhenOneEnds);

    let mut world = World::new("per_key = '10/60s'");
    let first = world.start(0);
    world.answer(100, first, &[left(4, 30_000)]);
    assert_eq!(world.free(30_100), 9);

    let mut world = World::new("per_key = '5/60s'");
    let first = world.start(0);
    world.answer(100, first, &[left(99, 60_000)]);
    assert_eq!(world.free(100), 4);
}

#[test]
fn nothing_left_holds_until_the_reset_to_the_nanosecond() {
    let mut world = World::new("per_key = '10/60s'");
    let first = world.start(0);
    world.answer(100, first, &[left(0, 2_000)]);
    assert_eq!(world.machine.next_start(at(100), RULE, Some(world.key)), NextStart::At(at(2_100)));
    let Ok(Enter::Waiting(waits)) = world.machine.enter(at(100), world.key, RULE, Entry::default()) else {
        panic!("started")
    };
    assert_eq!(world.machine.next_wake(), Some(at(2_100)));
    world.machine.dispatch(at(2_100));
    assert!(matches!(world.machine.claim(at(2_100), waits), Claim::Started { .. }));
}

#[test]
fn what_runs_and_what_ended_without_a_word_is_taken_off() {
    let mut world = World::new("per_key = '20/60s'");
    let ids: Vec<RequestId> = (0..6).map(|_| world.start(0)).collect();
    world.answer(100, ids[0], &[left(5, 40_000)]);
    assert_eq!(world.free(100), 0, "five are under way");
    for (answered, id) in (0..).zip(&ids[1..4]) {
        world.answer(200 + answered, *id, &[left(4 - u32::try_from(answered).expect("few"), 39_900)]);
    }
    assert_eq!(world.free(210), 0, "two are left and two are under way");
    // One is lost; the server may have counted it all the same.
    world.machine.finish(at(220), ids[4]);
    assert_eq!(world.free(220), 0);
    world.answer(230, ids[5], &[left(2, 39_870)]);
    assert_eq!(world.free(230), 1);
}

#[test]
fn an_older_answer_loosens_nothing_and_a_later_window_replaces() {
    let mut world = World::new("per_key = '20/60s'");
    let ids: Vec<RequestId> = (0..4).map(|_| world.start(0)).collect();
    world.answer(200, ids[1], &[left(3, 50_000)]);
    world.answer(400, ids[0], &[left(4, 50_000)]);
    world.answer(500, ids[2], &[left(9, 49_700)]);
    world.machine.finish(at(500), ids[3]);
    // 3, and one ended without a word.
    let started = world.start(600);
    assert!(world.try_start(600).is_some() && world.try_start(600).is_none());
    // The answer is about the next window already.
    world.answer(800, started, &[left(7, 60_000)]);
    assert_eq!(world.free(800), 6, "seven, and one is under way");
}

#[test]
fn slow_answers_of_two_windows_in_a_row_are_not_taken_for_one_that_is_over() {
    let mut world = World::new("per_key = '20/60s'");
    let ids: Vec<RequestId> = (0..3).map(|_| world.start(0)).collect();
    // The first window ends somewhere from 2,080 to 4,781, the second one from 4,317 on.
    world.answer(2_700, ids[0], &[left(3, 2_080)]);
    world.answer(2_900, ids[1], &[left(3, 4_318)]);
    let late = world.start(4_000);
    world.answer(5_100, ids[2], &[left(0, 2_040)]);
    world.answer(6_600, late, &[left(2, 2_042)]);
    assert_eq!(world.free(6_600), 0);
}

#[test]
fn a_late_answer_about_a_window_that_is_over_changes_nothing() {
    let mut world = World::new("per_key = '20/60s'");
    let (early, late) = (world.start(0), world.start(0));
    world.answer(5_000, late, &[left(10, 30_000)]);
    world.answer(5_001, early, &[left(0, 1_000)]);
    assert_eq!(world.free(5_001), 10);
}

#[test]
fn costs_count_and_a_costly_request_waits_for_the_reset() {
    let mut world = World::new("per_key = '20/60s'");
    let first = world.start(0);
    world.answer(100, first, &[left(3, 5_000)]);
    let costly = Entry { cost: 4, ..Entry::default() };
    let Ok(Enter::Waiting(costly)) = world.machine.enter(at(100), world.key, RULE, costly) else { panic!("started") };
    assert_eq!(world.machine.next_wake(), Some(at(5_100)));
    world.machine.withdraw(at(100), costly);
    let three = Entry { cost: 3, ..Entry::default() };
    assert!(matches!(world.machine.enter(at(100), world.key, RULE, three), Ok(Enter::Started(_))));
}

#[test]
fn what_was_told_from_outside_counts_for_its_target() {
    let mut world = World::new("overall = '50/1s'\nper_key = '10/60s'");
    let other = world.machine.add_key(at(0), 2);
    assert!(world.machine.observe_target(at(0), Target::Key(world.key), [left(0, 9_000)]));
    assert_eq!(world.machine.next_start(at(0), RULE, Some(world.key)), NextStart::At(at(9_000)));
    assert_eq!(world.machine.next_start(at(0), RULE, Some(other)), NextStart::Now);
    assert!(world.machine.observe_target(at(0), Target::Overall, [left(0, 500)]));
    assert_eq!(world.machine.next_start(at(0), RULE, Some(other)), NextStart::At(at(500)));
    // The record stays for as long as the window.
    world.machine.dispatch(at(8_000));
    assert!(world.machine.knows(world.key) && !world.machine.knows(other));
    world.machine.dispatch(at(9_000));
    assert!(!world.machine.knows(world.key));
    assert!(!world.machine.observe_target(at(9_000), Target::Key(world.key), [left(0, 1)]));
}

#[test]
fn it_survives_new_numbers_an_alias_and_new_rules() {
    let mut world = World::new("[rules.read]\nper_key = '10/60s'");
    let (first, runs) = (world.start(0), world.start(0));
    world.answer(100, first, &[left(4, 30_000)]);
    let numbers: Rules = "[rules.read]\nper_key = '50/60s'".parse().expect("rules");
    assert!(world.machine.set_own(at(100), world.key, RULE, Some(numbers.plan().rules[0].own.to_vec().into())));
    let new = world.machine.add_key(at(100), 2);
    assert!(world.machine.alias(at(100), world.key, new));
    world.key = new;
    let plan = Arc::unwrap_or_clone(numbers.plan()).succeeding(world.machine.plan());
    world.machine.replace(at(100), Arc::new(plan));
    assert_eq!(world.free(100), 3, "four, and one is under way");
    world.machine.finish(at(200), runs);
    assert_eq!(world.free(30_100), 45);
}
