//! Cases from the field about kinds of quotas, units and costs, on the engine. The numbers are those of the collection.

mod world;

use request_balancer::Rules;
use request_balancer::engine::{Charge, Enter, Entry, Instant, Nanos, NextStart, RuleId, Scheduler, Target, Turned};
use world::{Manner, World, ms};

fn every(millis: u64, count: u64) -> Vec<u64> {
    (0..count).map(|number| number * millis).collect()
}

/// Starts of `count` requests of one key that come at once, to the nanosecond.
fn starts(rules: &str, count: usize) -> Vec<Instant> {
    let mut world = World::new(rules);
    world.enqueue_many("default", 1, count);
    let mut starts = Vec::with_capacity(count);
    world.turn();
    starts.resize(world.order.len(), world.now);
    while starts.len() < count {
        world.now = world.scheduler.next_wake().expect("requests wait");
        world.turn();
        starts.resize(world.order.len(), world.now);
    }
    starts
}

/// The most that any half-open interval of this length holds.
fn most_in(span: Nanos, starts: &[(Instant, u32)]) -> u32 {
    let held = |from: usize| {
        let end = starts[from].0.saturating_add(span);
        starts[from..].iter().take_while(|(at, _)| *at < end).map(|(_, cost)| cost).sum()
    };
    (0..starts.len()).map(held).max().unwrap_or(0)
}

fn of_cost(cost: u32) -> Entry<'static> {
    Entry { cost, ..Entry::default() }
}

fn of_tokens(units: &[u32]) -> Entry<'_> {
    Entry { units, ..Entry::default() }
}

#[test]
fn fr_041_a_window_lets_five_go_each_second() {
    let mut world = World::new("overall = '5/1s'");
    for key in 0..100 {
        world.enqueue("default", key);
    }
    world.turn();
    world.run_until(60_000);
    let starts: Vec<u64> = world.order.iter().map(|&number| world.starts_of(number)[0]).collect();
    assert_eq!(starts, (0..100).map(|number| number / 5 * 1_000).collect::<Vec<_>>());
}

#[test]
fn fr_041_smooth_lets_one_go_each_fifth_of_a_second() {
    let mut world = World::new("overall = '5/1s smooth'");
    for key in 0..100 {
        world.enqueue("default", key);
    }
    world.turn();
    world.run_until(60_000);
    let starts: Vec<u64> = world.order.iter().map(|&number| world.starts_of(number)[0]).collect();
    assert_eq!(starts, every(200, 100));
}

#[test]
fn fr_042_idle_time_earns_a_smooth_quota_nothing() {
    for (quota, apart) in [("1/1s smooth", 1_000), ("2/2s smooth", 1_000), ("10/1s smooth", 100)] {
        let mut world = World::new(&format!("per_key = '{quota}'"));
        world.enter("default", 1);
        world.run_until(30_000);
        for _ in 0..20 {
            world.enter("default", 1);
        }
        world.run_until(90_000);
        let after: Vec<u64> = every(apart, 20).into_iter().map(|millis| 30_000 + millis).collect();
        assert_eq!(world.starts("default", 1), [vec![0], after].concat(), "{quota}");
    }
}

/// Starts of 40 requests of a group that come at once, beside 25 direct ones a second under 30 in all.
fn group_beside_direct_traffic(quota: &str) -> Vec<u64> {
    let mut world = World::new(&format!("overall = '30/1s'\n[rules]\ndirect = {{}}\ngroup = '{quota}'"));
    world.enqueue_many("group", 7, 40);
    world.turn();
    for number in 0..25 * 120 {
        world.run_until(number * 40);
        world.enter("direct", 1_000 + number);
    }
    world.starts("group", 7)
}

#[test]
fn fr_050_a_smooth_group_is_spread() {
    assert_eq!(group_beside_direct_traffic("20/60s smooth"), every(3_000, 40));
}

#[test]
fn fr_050_a_window_keeps_its_burst() {
    let starts = group_beside_direct_traffic("20/60s");
    assert_eq!(starts[..20], [0; 20]);
    assert!(starts[20..].iter().all(|start| *start >= 60_000));
}

#[test]
fn fr_052_a_bucket_says_when_its_next_token_is_back() {
    let mut world = World::new("per_key = '5/300s burst 5'");
    for _ in 0..5 {
        world.enter("default", 1);
    }
    assert_eq!(world.starts("default", 1), [0; 5]);
    world.run_until(59_000);
    let key = world.key(1);
    let next = world.scheduler.next_start(world.now, RuleId(0), Some(key));
    assert_eq!(next, NextStart::At(ms(60_000)));
    world.enter("default", 1);
    world.run_until(70_000);
    assert_eq!(world.starts("default", 1), [0, 0, 0, 0, 0, 60_000]);
}

#[test]
fn fr_052_a_window_says_when_its_first_start_leaves() {
    let mut world = World::new("per_key = '5/300s'");
    for _ in 0..5 {
        world.enter("default", 1);
    }
    let key = world.key(1);
    for now in [59_000, 299_000] {
        world.run_until(now);
        let next = world.scheduler.next_start(world.now, RuleId(0), Some(key));
        assert_eq!(next, NextStart::At(ms(300_000)), "asked at {now}");
    }
}

#[test]
fn fr_057_spacing_loses_nothing_to_rounding() {
    let starts = starts("overall = '750/1s smooth'", 7_500);
    // A second divided by 750 and rounded up to whole nanoseconds.
    let interval = 1_333_334;
    assert_eq!(starts.last(), Some(&Instant::from_nanos(7_499 * interval)));
    assert!(starts.windows(2).all(|pair| pair[1].since(pair[0]) == Nanos::new(interval)));
    let counted: Vec<_> = starts.into_iter().map(|at| (at, 1)).collect();
    assert_eq!(most_in(Nanos::from_secs(1), &counted), 750);
}

#[test]
fn fr_058_every_rate_is_delivered_as_configured() {
    for (quota, count, period) in [("1/1s", 1, 1), ("5/1s", 5, 1), ("9/1s", 9, 1), ("1/24h", 1, 86_400), ("3/7s", 3, 7)]
    {
        let starts = starts(&format!("overall = '{quota} smooth'"), 100);
        let interval = Nanos::from_secs(period).div_ceil(count);
        assert_eq!(starts.last(), Some(&Instant::from_nanos(99 * interval.get())), "{quota}");
        // An error below 0.1 %: the rounding is a nanosecond for each start.
        let exact = 99 * period * 1_000_000_000 / count;
        assert!((99 * interval.get() - exact) * 1_000 < exact, "{quota}");
    }
}

#[test]
fn fr_021_a_cost_above_the_limit_is_refused_and_spends_nothing() {
    for (rules, charge) in [
        ("overall = '10/1s'", Charge::Requests),
        ("units = ['points']\noverall = '10/1s points'", Charge::Unit(0)),
        ("overall = '10/1s burst 10'", Charge::Requests),
        ("overall = '10/1s smooth'", Charge::Requests),
    ] {
        let mut world = World::new(rules);
        let entry = |cost| match charge {
            Charge::Unit(_) => of_tokens(if cost == 11 { &[11] } else { &[1] }),
            Charge::Requests | Charge::Attempt => of_cost(cost),
        };
        let key = world.key(1);
        let refused = world.scheduler.enter(world.now, key, RuleId(0), entry(11));
        assert_eq!(refused, Err(Turned::CostTooHigh { cost: 11, capacity: 10 }), "{rules}");
        for _ in 0..10 {
            world.enter_as("default", 1, Manner::Prompt, entry(1));
        }
        world.run_until(10_000);
        let apart = if rules.contains("smooth") { 100 } else { 0 };
        assert_eq!(world.starts("default", 1), every(apart, 10), "{rules}");
    }
}

#[test]
fn fr_039_weights_are_counted_in_full() {
    let mut world = World::new("overall = '1200/60s'");
    // Eight threads, each with its next request as soon as the one before is done.
    for key in 0..8 {
        for _ in 0..60 {
            world.enqueue_as("default", key, Manner::Prompt, of_cost(10));
        }
    }
    world.turn();
    world.run_until(180_000 - 1);
    let starts: Vec<_> = world.order.iter().map(|&number| (ms(world.starts_of(number)[0]), 10)).collect();
    assert_eq!(most_in(Nanos::from_secs(60), &starts), 1_200);
    assert_eq!(starts.len(), 360);
}

#[test]
fn fr_065_what_never_fits_is_refused_at_once() {
    let mut world = World::new("per_key = '100/60s'");
    let key = world.key(1);
    let refused = world.scheduler.enter(world.now, key, RuleId(0), of_cost(150));
    assert_eq!(refused, Err(Turned::CostTooHigh { cost: 150, capacity: 100 }));
    world.enter_as("default", 1, Manner::Prompt, of_cost(100));
    assert_eq!(world.starts("default", 1), [0]);
}

#[test]
fn requests_and_tokens_are_limited_side_by_side() {
    let mut world = World::new("units = ['tokens']\noverall = ['3/1s', '100/1s tokens']");
    for tokens in [[60], [40], [1], [10], [90]] {
        world.enqueue_as("default", 1, Manner::Prompt, of_tokens(&tokens));
    }
    // What costs no tokens waits for none; what has no room in one of the two takes nothing of the other.
    world.enqueue_as("default", 2, Manner::Prompt, Entry::default());
    world.turn();
    world.run_until(10_000);
    assert_eq!(world.starts("default", 1), [0, 0, 1_000, 1_000, 2_000]);
    assert_eq!(world.starts("default", 2), [0]);
}

/// A window for two requests of cost 2, and an attempt of the first that turned out to cost `actual` and is repeated.
fn repeated(charge: Charge, actual: u32) -> (World, usize) {
    let quota = if charge == Charge::Requests { "4/1s" } else { "4/1s tokens" };
    let mut world = World::new(&format!("units = ['tokens']\noverall = '{quota}'"));
    world.judged = false;
    let number = world.enter_as("default", 1, Manner::Runs, OF_TWO);
    world.scheduler.settle(world.now, world.asked[number].id, charge, actual);
    world.retry(number, Target::Request, 1);
    world.run_until(1);
    (world, number)
}

const OF_TWO: Entry<'static> = Entry { cost: 2, units: &[2], not_before: None, deadline: None, endpoints: &[] };

#[test]
fn an_attempt_that_cost_nothing_is_not_repeated_for_nothing() {
    for charge in [Charge::Requests, Charge::Unit(0)] {
        let (mut world, number) = repeated(charge, 0);
        assert_eq!(world.starts_of(number), [0, 1]);
        let fits = world.enter_as("default", 1, Manner::Runs, OF_TWO);
        let waits = world.enter_as("default", 1, Manner::Runs, OF_TWO);
        world.run_until(10_000);
        assert_eq!((world.starts_of(fits), world.starts_of(waits)), (&[1][..], &[1_001][..]), "{charge:?}");
    }
}

#[test]
fn an_attempt_that_cost_more_than_ever_fits_can_be_repeated() {
    for charge in [Charge::Requests, Charge::Unit(0)] {
        let (mut world, number) = repeated(charge, 50);
        world.run_until(10_000);
        assert_eq!(world.starts_of(number), [0, 1_000], "{charge:?}");
    }
}

#[test]
fn turns_are_equal_in_the_unit_that_says_so() {
    let served = |rules: &str| {
        let mut world = World::new(rules);
        for _ in 0..200 {
            world.enqueue_as("default", 1, Manner::Prompt, of_tokens(&[90]));
            world.enqueue_as("default", 2, Manner::Prompt, of_tokens(&[10]));
        }
        world.turn();
        world.run_until(2_000);
        [world.starts("default", 1).len(), world.starts("default", 2).len()]
    };
    let quota = "units = ['tokens']\noverall = '1000/1s tokens'";
    assert_eq!(served(quota), [30, 30]);
    // As many tokens for each, up to one request of the larger kind.
    let [large, small] = served(&format!("fair_by = 'tokens'\n{quota}"));
    assert!((large * 90).abs_diff(small * 10) <= 90, "{large} of 90, {small} of 10");
    assert!(large * 90 + small * 10 > 2_910, "{large} of 90, {small} of 10");
}

#[test]
fn a_key_with_its_own_numbers_goes_by_them() {
    let rules: Rules = "[rules.read]\nper_key = '2/1s'\n[keys.7]\nread = '4/1s'".parse().expect("valid");
    let mut world = World::new(&rules.to_string());
    world.judged = false;
    for (rule, numbers) in rules.own_numbers("7") {
        let key = world.key(7);
        assert!(world.scheduler.set_own(world.now, key, rule, Some(numbers)));
    }
    for key in [7, 8] {
        world.enqueue_many("read", key, 8);
    }
    world.turn();
    world.run_until(10_000);
    assert_eq!(world.starts("read", 7), [0, 0, 0, 0, 1_000, 1_000, 1_000, 1_000]);
    assert_eq!(world.starts("read", 8), [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000]);
    // Its record and what it was told are gone meanwhile. Told anew, what it started within the second counts on.
    let (rule, numbers) = rules.compile_own("read", &["6/1s".parse().expect("a quota")]).expect("valid");
    world.enqueue_many("read", 7, 4);
    world.turn();
    let key = world.key(7);
    assert!(world.scheduler.set_own(world.now, key, rule, Some(numbers)));
    world.enqueue_many("read", 7, 4);
    world.turn();
    world.run_until(20_000);
    let since = world.starts("read", 7).split_off(8);
    assert_eq!(since, [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 11_000, 11_000]);
}

#[test]
fn a_large_window_of_a_key_is_never_over_and_late_by_a_granule_at_most() {
    let mut world = World::new("per_key = '5000/1024s'");
    for burst in 0..5 {
        world.run_until(burst * 100_300);
        for _ in 0..1_000 {
            world.enter("default", 1);
        }
    }
    world.enqueue_many("default", 1, 5_000);
    world.turn();
    world.run_until(3_000_000);
    let starts: Vec<_> = world.starts("default", 1).into_iter().map(|at| (ms(at), 1)).collect();
    assert_eq!(starts.len(), 10_000);
    assert_eq!(most_in(Nanos::from_secs(1_024), &starts), 5_000);
    // A start is written down at the end of its granule, a second here.
    for (number, &(at, _)) in starts.iter().enumerate().skip(5_000) {
        let earliest = starts[number - 5_000].0.saturating_add(Nanos::from_secs(1_024));
        assert!(at.since(earliest) < Nanos::from_secs(1), "{number}: {at:?} for {earliest:?}");
    }
}

#[cfg(feature = "calendar")]
mod calendar {
    use super::*;

    const DAY: u64 = 86_400_000;
    /// 2026-07-31 23:59:59 in UTC.
    const BEFORE_MIDNIGHT: i128 = 1_785_542_399;

    fn world_at(rules: &str, unix_secs: i128) -> World {
        let mut world = World::new(rules);
        world.scheduler.set_wall_clock(world.now, unix_secs * 1_000_000_000);
        world
    }

    #[test]
    fn fr_170_a_calendar_day_starts_the_rest_at_midnight_and_a_window_a_day_later() {
        for (quota, rest) in [("100/day UTC", 1_000), ("100/24h", DAY)] {
            let mut world = world_at(&format!("overall = '{quota}'"), BEFORE_MIDNIGHT);
            world.judged = false;
            world.enqueue_many("default", 1, 150);
            world.turn();
            world.run_until(2 * DAY);
            assert_eq!(world.starts("default", 1), [vec![0; 100], vec![rest; 50]].concat(), "{quota}");
        }
    }

    #[test]
    fn a_day_of_each_key_ends_at_the_midnight_of_its_zone() {
        // 2026-03-28 12:00 in Berlin; the next day there has 23 hours.
        let mut world = world_at("per_key = '2/day Europe/Berlin'", 1_774_695_600);
        world.judged = false;
        for key in [1, 2] {
            world.enqueue_many("default", key, 5);
        }
        world.turn();
        let key = world.key(1);
        let next = world.scheduler.next_start(world.now, RuleId(0), Some(key));
        assert_eq!(next, NextStart::At(ms(12 * 3_600_000 + 23 * 3_600_000)));
        world.run_until(5 * DAY);
        let (first, second) = (12 * 3_600_000, (12 + 23) * 3_600_000);
        for key in [1, 2] {
            assert_eq!(world.starts("default", key), [0, 0, first, first, second]);
        }
        assert_eq!(world.key_count(), 0);
    }

    #[test]
    fn the_wall_clock_moves_whoever_waits_for_midnight() {
        let mut world = World::new("per_key = '1/day UTC'");
        world.judged = false;
        world.enqueue_many("default", 1, 3);
        world.turn();
        assert_eq!(world.scheduler.next_wake(), Some(ms(DAY)));
        // It was 23:59:59 all the time, and only now is it told.
        world.scheduler.set_wall_clock(world.now, BEFORE_MIDNIGHT * 1_000_000_000);
        world.turn();
        world.run_until(3 * DAY);
        // The day of 1970 it counted is not the day that it is.
        assert_eq!(world.starts("default", 1), [0, 0, 1_000]);
    }

    #[test]
    fn a_day_in_tokens_is_settled_by_what_they_were() {
        let mut world = world_at("units = ['tokens']\noverall = '100/day UTC tokens'", BEFORE_MIDNIGHT);
        world.judged = false;
        let first = world.enter_as("default", 1, Manner::Runs, of_tokens(&[90]));
        let second = world.enter_as("default", 1, Manner::Prompt, of_tokens(&[60]));
        assert!(world.starts_of(second).is_empty());
        let id = world.asked[first].id;
        world.scheduler.settle(world.now, id, Charge::Unit(0), 40);
        world.turn();
        assert_eq!(world.starts_of(second), [0]);
    }

    #[test]
    fn a_key_goes_over_from_a_window_to_a_day() {
        let rules: Rules = "[rules.read]\nper_key = '5/1h'\n[keys.7]\nread = '6/day UTC'".parse().expect("valid");
        let mut world = world_at(&rules.to_string(), BEFORE_MIDNIGHT);
        world.judged = false;
        for _ in 0..4 {
            world.enter("read", 7);
        }
        let key = world.key(7);
        for (rule, numbers) in rules.own_numbers("7") {
            assert!(world.scheduler.set_own(world.now, key, rule, Some(numbers)));
        }
        for _ in 0..3 {
            world.enter("read", 7);
        }
        world.run_until(DAY);
        assert_eq!(world.starts("read", 7), [0, 0, 0, 0, 0, 0, 1_000]);
    }
}

#[test]
fn spacing_is_kept_for_costs() {
    let rules: Rules = "overall = '10/1s smooth'".parse().expect("valid");
    let mut scheduler = Scheduler::<()>::new(rules.plan());
    let key = scheduler.add_key(Instant::ZERO, 1);
    let first = scheduler.enter(Instant::ZERO, key, RuleId(0), of_cost(4));
    assert!(matches!(first, Ok(Enter::Started(_))));
    assert_eq!(scheduler.next_start(Instant::ZERO, RuleId(0), Some(key)), NextStart::At(ms(400)));
}
