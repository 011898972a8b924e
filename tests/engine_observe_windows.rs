//! Which of a server's windows is which, which limit it narrows, and where its numbers differ.

mod observing;

use std::sync::Arc;

use observing::{RULE, World, at, left, of, so_long, without_reset};
use request_balancer::Rules;
use request_balancer::engine::{Charge, Enter, Entry, Nanos, NextStart, Notice, RequestId, RuleId, ServerWindow, Side};

#[test]
fn each_window_narrows_until_its_own_reset() {
    let mut world = World::new("per_key = '100/60s'");
    let window = |name, remaining, millis| ServerWindow { name, ..left(remaining, millis) };
    let first = world.start(0);
    world.answer(100, first, &[window("min", 3, 10_000), window("day", 7, 3_600_000)]);
    assert_eq!(world.free(100), 3);

    let mut world = World::new("per_key = '100/60s'");
    let first = world.start(0);
    world.answer(100, first, &[window("min", 3, 10_000), window("day", 7, 3_600_000)]);
    // This one tells of the minute alone, so the day may be one less.
    let second = world.start(200);
    world.answer(300, second, &[window("min", 2, 9_800)]);
    assert_eq!(world.free(10_200), 6);
}

#[test]
fn windows_of_one_name_and_two_lengths_are_two() {
    let mut world = World::new("overall = '20/1s'");
    let first = world.start(0);
    world.answer(100, first, &[so_long(1, without_reset(0)), so_long(120, without_reset(80))]);
    assert_eq!(world.machine.next_start(at(100), RULE, Some(world.key)), NextStart::At(at(1_100)));
}

#[test]
fn a_window_whose_length_is_not_always_told_stays_one() {
    for told in [[None, Some(60)], [Some(60), None]] {
        let [first, second] = told.map(|secs| {
            move |left| match secs {
                Some(secs) => so_long(secs, without_reset(left)),
                None => without_reset(left),
            }
        });
        let mut world = World::new("per_key = '20/60s'");
        let one = world.start(0);
        let next = world.start(100);
        world.answer(100, one, &[first(0)]);
        // It was asked for when the other answer was there, so it knows better.
        world.answer(200, next, &[second(5)]);
        assert_eq!(world.free(200), 5, "{told:?}");
    }
}

#[test]
fn an_older_answer_about_another_window_of_the_name_ends_no_hold() {
    let mut world = World::new("per_key = '20/60s'");
    let ids: Vec<RequestId> = (0..2).map(|_| world.start(0)).collect();
    world.answer(100, ids[0], &[left(0, 60_000)]);
    // Not of a later window, as the first has not ended: the server counts in two after all.
    world.answer(200, ids[1], &[left(15, 3_000_000)]);
    assert_eq!(world.machine.next_start(at(200), RULE, Some(world.key)), NextStart::At(at(60_100)));
    assert_eq!(world.free(60_100), 15);
}

#[test]
fn a_window_too_many_takes_nothing_from_those_that_are_known() {
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    let mut world = World::new("per_key = '100/60s'");
    let ids: Vec<RequestId> = (0..20).map(|_| world.start(0)).collect();
    for (name, id) in NAMES.into_iter().zip(ids) {
        let remaining = if name == "a" { 0 } else { 60 };
        world.answer(100, id, &[of(name, left(remaining, if name == "t" { 70_000 } else { 60_000 }))]);
    }
    assert_eq!(world.machine.next_start(at(100), RULE, Some(world.key)), NextStart::At(at(60_100)));
    // What is not told apart counts for as long as the longest of it: 60, less 20 that ended without a word.
    assert_eq!(world.free(60_100), 41);
}

#[test]
fn a_window_goes_to_the_limit_that_is_most_like_it() {
    let rules = "overall = '50/1s'\nunits = ['tokens']\n[rules.chat]\nper_key = ['20/60s', '3/1s', '1000/60s tokens']";
    let window = |name, count, per: Option<u64>, side, remaining| ServerWindow {
        name,
        limit: Some(count),
        per: per.map(Nanos::from_secs),
        side,
        ..left(remaining, 10_000)
    };
    for (told, free) in [
        // Of the 19 that the minute leaves, the second lets two go.
        (window("minute", 20, Some(60), None, 1), 1),
        (window("second", 3, Some(1), None, 0), 0),
        (window("all", 50, None, Some(Side::All), 1), 1),
        (window("all", 50, None, None, 1), 1),
        (window("wide", 70, Some(3_600), None, 1), 1),
        (ServerWindow { charge: Charge::Unit(0), ..window("tokens", 1_000, Some(60), None, 0) }, 2),
        // What nothing counts says nothing of requests, unless nothing is left of it.
        (ServerWindow { charge: Charge::Unit(1), ..window("words", 1_000, Some(60), None, 1) }, 2),
        (ServerWindow { charge: Charge::Unit(1), ..window("words", 1_000, Some(60), None, 0) }, 0),
    ] {
        let mut world = World::new(rules);
        let first = world.start(0);
        world.answer(10, first, &[told]);
        assert_eq!(world.free(10), free, "{told:?}");
        let other = world.machine.add_key(at(10), 2);
        let binds_all = world.machine.next_start(at(10), RULE, Some(other)) != NextStart::Now;
        assert_eq!(binds_all, told.name == "all" && told.left == Some(1), "{told:?}");
    }
}

#[test]
fn under_other_rules_a_window_goes_to_the_limit_that_is_most_like_it_then() {
    let told = |remaining| ServerWindow { limit: Some(20), per: Some(Nanos::from_secs(60)), ..left(remaining, 10_000) };
    let mut world = World::new("overall = '20/60s'\nper_key = '5/1s'");
    let first = world.start(0);
    world.answer(10, first, &[told(9)]);
    let other = world.machine.add_key(at(10), 2);
    assert_eq!(world.machine.next_start(at(10), RULE, Some(other)), NextStart::Now);
    let rules: Rules = "overall = '500/60s'\nper_key = '20/60s'".parse().expect("rules");
    let plan = Arc::unwrap_or_clone(rules.plan()).succeeding(world.machine.plan());
    world.machine.replace(at(20), Arc::new(plan));
    let second = world.start(20);
    world.answer(30, second, &[told(0)]);
    assert_eq!(world.free(30), 0);
    assert_eq!(world.machine.next_start(at(30), RULE, Some(other)), NextStart::Now, "the window is the one key's");
}

#[test]
fn another_number_than_the_rules_is_told_once_and_counted() {
    let mut world = World::new("per_key = '50/60s'");
    for now in 0..3 {
        let id = world.start(now);
        world.answer(now, id, &[ServerWindow { limit: Some(100), ..left(98, 60_000) }]);
        assert_eq!(world.machine.take_notices().drain(..).count(), usize::from(now == 0));
    }
    let differences = world.machine.snapshot(at(3)).differences;
    let [difference] = &*differences else { panic!("{differences:?}") };
    assert_eq!((difference.configured, difference.reported, difference.seen), (50, 100, 3));
    let id = world.start(10);
    let as_said = ServerWindow { limit: Some(50), per: Some(Nanos::from_secs(60)), ..left(40, 60_000) };
    // A window of another length is another window.
    let of_a_day = ServerWindow { limit: Some(9_999), per: Some(Nanos::from_secs(86_400)), ..left(40, 60_000) };
    world.answer(10, id, &[as_said, of_a_day]);
    assert!(world.machine.take_notices().iter().all(|notice| !matches!(notice, Notice::LimitDiffers(_))));
    assert_eq!(world.machine.snapshot(at(10)).differences.len(), 1);
}

#[test]
fn the_difference_that_was_not_seen_for_longest_goes() {
    let mut world = World::new("per_key = '500/60s'");
    let tell = |world: &mut World, limit| {
        let id = world.start(0);
        world.answer(0, id, &[ServerWindow { limit: Some(limit), ..left(400, 60_000) }]);
        let is_told = |notice: &Notice| matches!(notice, Notice::LimitDiffers(_));
        world.machine.take_notices().drain(..).filter(is_told).count()
    };
    assert!((1..=64).all(|limit| tell(&mut world, limit) == usize::from(limit == 1)));
    assert_eq!((tell(&mut world, 1), tell(&mut world, 65)), (0, 0));
    let differences = world.machine.snapshot(at(0)).differences;
    let reported: Vec<u32> = differences.iter().map(|difference| difference.reported).collect();
    assert_eq!(reported, (3..=64).chain([1, 65]).collect::<Vec<_>>());
}

/// A dynamic limit, or windows by the names of hashes, more than are remembered: each round would be news again.
#[test]
fn what_differs_all_the_time_is_not_news_all_the_time() {
    let names: Vec<String> = (0..65).map(|number| format!("hash-{number}")).collect();
    for (is_one_window, most) in [(true, 1), (false, 64)] {
        let mut world = World::new("per_key = '500/60s'");
        let mut told = 0;
        for _ in 0..3 {
            for (name, limit) in names.iter().zip(1..) {
                let (name, limit) = if is_one_window { ("window", limit) } else { (name.as_str(), 7) };
                let id = world.start(0);
                world.answer(0, id, &[ServerWindow { name, limit: Some(limit), ..left(400, 60_000) }]);
                let notices = world.machine.take_notices();
                told += notices.iter().filter(|notice| matches!(notice, Notice::LimitDiffers(_))).count();
                notices.clear();
            }
        }
        assert_eq!(told, most);
    }
}

/// Of 65 limits that differ the list has 64, and forgets one with each answer: that is no news, either.
#[test]
fn limits_that_differ_all_the_time_are_not_news_all_the_time() {
    let rules: String = (0..65).map(|rule| format!("r{rule:02} = '500/60s'\n")).collect();
    let mut world = World::new(&format!("[rules]\n{rules}"));
    let mut told = 0;
    for _ in 0..3 {
        for rule in (0..65).map(RuleId) {
            let Ok(Enter::Started(id)) = world.machine.enter(at(0), world.key, rule, Entry::default()) else {
                panic!("waits");
            };
            world.answer(0, id, &[ServerWindow { limit: Some(400), ..left(399, 60_000) }]);
            let notices = world.machine.take_notices();
            told += notices.iter().filter(|notice| matches!(notice, Notice::LimitDiffers(_))).count();
            notices.clear();
        }
    }
    assert_eq!(told, 65);
}

#[test]
fn differences_go_with_the_numbers_that_they_are_from() {
    let mut world = World::new("overall = '60/60s'\nper_key = '50/60s'");
    let id = world.start(0);
    let told = |name, side| of(name, ServerWindow { limit: Some(40), side: Some(side), ..left(39, 60_000) });
    world.answer(0, id, &[told("key", Side::Key), told("all", Side::All)]);
    let rules: Rules = "overall = '60/60s'\nper_key = '40/60s'".parse().expect("rules");
    let plan = Arc::unwrap_or_clone(rules.plan()).succeeding(world.machine.plan());
    world.machine.replace(at(1), Arc::new(plan));
    let differences = world.machine.snapshot(at(1)).differences;
    let windows: Vec<&str> = differences.iter().map(|difference| &*difference.window).collect();
    assert_eq!(windows, ["all"]);
}
