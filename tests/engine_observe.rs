//! What a server says of its counters, laid over limits: the machine by itself.

use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::{
    Charge, Claim, Enter, Entry, Instant, KeyId, Nanos, NextStart, Notice, RequestId, RuleId, Scheduler, ServerReset,
    ServerWindow, Side, Target,
};

const RULE: RuleId = RuleId(0);

struct World {
    machine: Scheduler<()>,
    key: KeyId,
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// So many left for so many milliseconds.
const fn left(left: u32, millis: u64) -> ServerWindow<'static> {
    ServerWindow {
        name: "ratelimit",
        charge: Charge::Requests,
        side: None,
        limit: None,
        left: Some(left),
        per: None,
        reset: Some(ServerReset { after: Nanos::from_millis(millis), grain: Nanos::from_millis(1) }),
    }
}

impl World {
    fn new(rules: &str) -> Self {
        let rules: Rules = rules.parse().expect("rules");
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 1);
        Self { machine, key }
    }

    fn start(&mut self, now: u64) -> RequestId {
        self.try_start(now).unwrap_or_else(|| panic!("no start at {now}"))
    }

    fn try_start(&mut self, now: u64) -> Option<RequestId> {
        match self.machine.enter(at(now), self.key, RULE, Entry::default()).expect("a place") {
            Enter::Started(id) => Some(id),
            Enter::Waiting(id) => {
                self.machine.withdraw(at(now), id);
                None
            }
        }
    }

    fn answer(&mut self, now: u64, id: RequestId, windows: &[ServerWindow<'_>]) {
        assert!(self.machine.observe(at(now), id, windows.iter().copied()));
        self.machine.finish(at(now), id);
    }

    /// How many would start now, one after the other, without an answer.
    fn free(&mut self, now: u64) -> usize {
        let started: Vec<RequestId> = std::iter::from_fn(|| self.try_start(now)).take(1_000).collect();
        started.len()
    }
}

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
fn a_server_that_gives_back_one_at_a_time_is_believed_one_at_a_time() {
    let mut world = World::new("per_key = '20/60s'");
    let of_four = |remaining, millis| ServerWindow {
        limit: Some(4),
        per: Some(Nanos::from_millis(8_000)),
        ..left(remaining, millis)
    };
    let first = world.start(0);
    world.answer(100, first, &[of_four(0, 900)]);
    // For all that is known the window is full again.
    assert_eq!(world.free(1_000), 19);

    let mut world = World::new("per_key = '20/60s'");
    let first = world.start(0);
    world.answer(100, first, &[of_four(0, 900)]);
    let second = world.start(1_000);
    world.answer(1_100, second, &[of_four(0, 1_900)]);
    // It was not, so it is not now: one, and another with each eighth of the average.
    let third = world.start(3_000);
    assert!(world.try_start(3_499).is_none());
    world.start(3_500);
    // What the server says counts at once,
    world.answer(3_600, third, &[of_four(2, 4_000)]);
    assert_eq!(world.free(3_600), 1);
    // and a window that was full after all is full the next time.
    let mut world = World::new("per_key = '20/60s'");
    let mut now = 0;
    for remaining in [0, 0, 0, 3] {
        let next = world.start(now);
        world.answer(now + 100, next, &[of_four(remaining, 900)]);
        now += 1_000;
    }
    let next = world.start(now);
    world.answer(now + 100, next, &[of_four(0, 900)]);
    assert_eq!(world.free(now + 1_000), 15);
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
fn a_window_without_a_reset_counts_for_as_long_as_the_limit() {
    let mut world = World::new("per_key = '10/60s'");
    let first = world.start(0);
    world.answer(100, first, &[ServerWindow { reset: None, ..left(1, 0) }]);
    let second = world.start(200);
    assert_eq!(world.free(200), 0);
    // It was sent after that answer: it knows better.
    world.answer(300, second, &[ServerWindow { reset: None, ..left(5, 0) }]);
    assert_eq!(world.free(300), 5);
    let mut world = World::new("per_key = '10/60s'");
    let first = world.start(0);
    world.answer(100, first, &[ServerWindow { reset: None, ..left(0, 0) }]);
    assert_eq!(world.machine.next_start(at(100), RULE, Some(world.key)), NextStart::At(at(60_100)));
}

#[test]
fn no_reset_is_believed_beyond_an_hour_or_the_limits_own_period() {
    for (rules, until) in [("per_key = '10/60s'", 3_600_000), ("per_key = '10/7200s'", 7_200_000)] {
        let mut world = World::new(rules);
        let first = world.start(0);
        world.answer(0, first, &[left(0, 300 * 86_400_000)]);
        assert_eq!(world.machine.next_start(at(0), RULE, Some(world.key)), NextStart::At(at(until)));
    }
}

/// A window that ends in twenty hours is believed for an hour at a time. Nothing begins anew by that, so it must not fill up:
/// one request tries, whatever it costs, and the others wait for its answer.
#[test]
fn past_an_hour_of_a_longer_window_one_request_tries() {
    const HOUR: u64 = 3_600_000;
    let of_sixty = |remaining, millis| ServerWindow { limit: Some(60), ..left(remaining, millis) };
    let mut world = World::new("per_key = '60/60s'\noverall = '100/1s'");
    let first = world.start(0);
    world.answer(100, first, &[of_sixty(0, 20 * HOUR)]);
    assert!(world.try_start(HOUR + 99).is_none());
    let tries = world.start(HOUR + 100);
    assert_eq!(world.free(HOUR + 100), 0);
    assert_eq!(world.free(HOUR + 30_000), 0, "nothing comes back while it runs");
    world.answer(HOUR + 30_000, tries, &[of_sixty(0, 19 * HOUR - 30_000)]);
    assert_eq!(
        world.machine.next_start(at(HOUR + 30_000), RULE, Some(world.key)),
        NextStart::At(at(2 * HOUR + 30_000))
    );
    // A try without an answer is as good as none; the next one is an hour later.
    let tries = world.start(2 * HOUR + 30_000);
    world.machine.finish(at(2 * HOUR + 31_000), tries);
    assert_eq!(
        world.machine.next_start(at(2 * HOUR + 31_000), RULE, Some(world.key)),
        NextStart::At(at(3 * HOUR + 30_000))
    );
    // However late somebody asks, the hours are counted from the answer.
    let costly = Entry { cost: 7, ..Entry::default() };
    let Ok(Enter::Started(tries)) = world.machine.enter(at(5 * HOUR), world.key, RULE, costly) else { panic!("waits") };
    assert_eq!(world.free(5 * HOUR + 30_000), 0);
    // The server gave it up.
    world.answer(5 * HOUR + 30_000, tries, &[of_sixty(9, HOUR / 2)]);
    assert_eq!(world.free(5 * HOUR + 30_000), 9);

    // Unanswered for twenty hours, it is full when it begins anew.
    let mut world = World::new("per_key = '60/60s'");
    let first = world.start(0);
    world.answer(100, first, &[of_sixty(0, 20 * HOUR)]);
    for hour in 1..20 {
        let tries = world.start(hour * HOUR + 100);
        world.machine.finish(at(hour * HOUR + 200), tries);
        assert_eq!(world.free(hour * HOUR + 200), 0);
    }
    assert!(world.try_start(20 * HOUR + 99).is_none());
    assert_eq!(world.free(20 * HOUR + 100), 60);
}

/// What was sent thirty seconds before may tell of a window that was over by then: its reset is not that of the later
/// answer, which told none.
#[test]
fn an_older_answer_with_a_reset_shortens_no_later_hold_without_one() {
    let mut world = World::new("per_key = '20/60s'");
    let old = world.start(0);
    let later = world.start(30_000);
    world.answer(30_100, later, &[without_reset(0)]);
    world.answer(31_000, old, &[left(5, 10_000)]);
    assert_eq!(world.machine.next_start(at(31_000), RULE, Some(world.key)), NextStart::At(at(90_100)));

    // The other way round: the window may have ended before the answer without a reset arrived.
    let mut world = World::new("per_key = '20/60s'");
    let ids = [(); 2].map(|()| world.start(0));
    world.answer(100, ids[0], &[left(5, 10_000)]);
    world.answer(10_050, ids[1], &[without_reset(0)]);
    assert_eq!(world.machine.next_start(at(10_050), RULE, Some(world.key)), NextStart::At(at(70_050)));
}

const fn of(name: &'static str, window: ServerWindow<'static>) -> ServerWindow<'static> {
    ServerWindow { name, ..window }
}

const fn without_reset(left: u32) -> ServerWindow<'static> {
    ServerWindow { reset: None, ..self::left(left, 0) }
}

const fn so_long(secs: u64, window: ServerWindow<'static>) -> ServerWindow<'static> {
    ServerWindow { per: Some(Nanos::from_secs(secs)), ..window }
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
fn a_told_reset_stands_beside_answers_without_one() {
    let mut world = World::new("per_key = '10/60s'");
    let ids: Vec<RequestId> = (0..2).map(|_| world.start(0)).collect();
    world.answer(100, ids[0], &[left(5, 10_000)]);
    world.answer(200, ids[1], &[without_reset(0)]);
    assert_eq!(world.machine.next_start(at(200), RULE, Some(world.key)), NextStart::At(at(10_100)));

    let mut world = World::new("per_key = '10/60s'");
    let ids: Vec<RequestId> = (0..2).map(|_| world.start(0)).collect();
    world.answer(100, ids[0], &[without_reset(0)]);
    world.answer(200, ids[1], &[left(5, 10_000)]);
    assert_eq!(world.machine.next_start(at(200), RULE, Some(world.key)), NextStart::At(at(10_200)));
}

#[test]
fn a_window_ends_at_its_reset_however_many_answers_without_one_come() {
    let mut world = World::new("per_key = '20/10s'");
    let first = world.start(0);
    world.answer(0, first, &[left(3, 10_000)]);
    let second = world.start(5_000);
    world.answer(5_000, second, &[without_reset(2)]);
    let third = world.start(11_000);
    world.answer(11_100, third, &[without_reset(18)]);
    assert_eq!(world.free(11_100), 18);
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
fn an_old_answer_past_the_reset_gives_nothing_back_that_was_not_told() {
    let of_four = |remaining, millis| ServerWindow { limit: Some(4), ..so_long(8, left(remaining, millis)) };
    let mut world = World::new("per_key = '20/60s'");
    let first = world.start(0);
    world.answer(100, first, &[of_four(0, 900)]);
    let (old, second) = (world.start(1_000), world.start(1_000));
    world.answer(1_100, second, &[of_four(0, 900)]);
    // Past the reset there is one, and an answer that is older than that is about the window before.
    assert_eq!(world.machine.next_start(at(2_000), RULE, Some(world.key)), NextStart::WhenOneEnds);
    world.answer(2_050, old, &[of_four(3, 1_000)]);
    assert_eq!(world.machine.next_start(at(2_050), RULE, Some(world.key)), NextStart::At(at(3_050)));
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

/// A key that rests is not forgotten before the window is over that the server told of.
#[test]
fn a_key_that_rests_stays_while_a_told_window_is_open() {
    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;
    for (told, over) in [(20 * HOUR, 20 * HOUR + 100), (400 * DAY, 31 * DAY + 100)] {
        let mut world = World::new("per_key = '60/60s'");
        let first = world.start(0);
        world.answer(100, first, &[ServerWindow { limit: Some(60), ..left(0, told) }]);
        world.machine.finish(at(200), first);
        for (rest, keys) in [(HOUR + 2_000, 1), (over - 1, 1), (over + 2_000, 0)] {
            while let Some(wake) = world.machine.next_wake().filter(|&wake| wake <= at(rest)) {
                world.machine.dispatch(wake);
            }
            assert_eq!(world.machine.snapshot(at(rest)).keys, keys);
        }
    }
    let mut world = World::new("per_key = '60/60s'");
    let first = world.start(0);
    world.answer(100, first, &[ServerWindow { limit: Some(60), ..left(0, 20 * HOUR) }]);
    world.machine.finish(at(200), first);
    while let Some(wake) = world.machine.next_wake().filter(|&wake| wake <= at(HOUR + 2_000)) {
        world.machine.dispatch(wake);
    }
    assert_eq!(world.free(HOUR + 2_000), 1);
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
