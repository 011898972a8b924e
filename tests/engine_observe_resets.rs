//! Until when a server's window counts: resets that are told, that are not, and that are too far away.

mod observing;

use observing::{RULE, World, at, left, so_long, without_reset};
use request_balancer::engine::{Enter, Entry, Nanos, NextStart, RequestId, ServerWindow};

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
