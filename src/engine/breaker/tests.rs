use super::*;

fn plan() -> BreakerPlan {
    BreakerPlan { failures: Some(3), jitter: 0.0, ..BreakerPlan::default() }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn run(breaker: &mut Breaker, plan: &BreakerPlan, now: Instant, report: Report) -> bool {
    let ticket = breaker.begin(plan, now);
    breaker.end(plan, now, ticket, report, 0)
}

fn opened(plan: &BreakerPlan) -> Breaker {
    let mut breaker = Breaker::default();
    while !run(&mut breaker, plan, at(0), Report::Failure) {}
    breaker
}

#[test]
fn only_failures_in_a_row_open_it() {
    let mut breaker = Breaker::default();
    for report in [Report::Failure, Report::Failure, Report::Success, Report::Failure, Report::Neutral] {
        assert!(!run(&mut breaker, &plan(), at(0), report));
    }
    assert!(!run(&mut breaker, &plan(), at(0), Report::Failure));
    assert!(run(&mut breaker, &plan(), at(0), Report::Failure));
    assert_eq!(breaker.state(at(29_999)), BreakerState::Open { until: at(30_000) });
    assert_eq!(breaker.state(at(30_000)), BreakerState::HalfOpen);
}

#[test]
fn whoever_comes_as_it_half_opens_gets_exactly_the_probes() {
    for probes in [1, 3] {
        let plan = BreakerPlan { probes, ..plan() };
        let mut breaker = opened(&plan);
        let mut begun = 0;
        for _ in 0..100 {
            if breaker.admits(&plan, at(30_000)) == Admission::Probe {
                breaker.begin(&plan, at(30_000));
                begun += 1;
            }
        }
        assert_eq!(begun, probes);
    }
}

#[test]
fn a_probe_that_brings_nothing_gives_its_place_back() {
    let mut breaker = opened(&plan());
    for _ in 0..5 {
        assert_eq!(breaker.admits(&plan(), at(30_000)), Admission::Probe);
        run(&mut breaker, &plan(), at(30_000), Report::Neutral);
        assert_eq!(breaker.state(at(30_000)), BreakerState::HalfOpen);
    }
}

#[test]
fn a_probe_that_does_not_report_makes_place_for_another() {
    let mut breaker = opened(&plan());
    let lost = breaker.begin(&plan(), at(30_000));
    assert_eq!(breaker.admits(&plan(), at(59_999)), Admission::Probed(at(60_000)));
    assert_eq!(breaker.admits(&plan(), at(60_000)), Admission::Probe);
    let probe = breaker.begin(&plan(), at(60_000));
    assert!(breaker.lets_begin(probe) && !breaker.lets_begin(lost));
    // It has no place any more that it could give back.
    assert!(!breaker.end(&plan(), at(60_001), lost, Report::Neutral, 0));
    assert_eq!(breaker.admits(&plan(), at(60_001)), Admission::Probed(at(90_000)));
    breaker.end(&plan(), at(60_002), probe, Report::Success, 0);
    assert_eq!(breaker.state(at(60_002)), BreakerState::Closed);
}

/// Attempts took 70 s and the rest 30 s: each probe was replaced by the next one before it could tell that it worked,
/// and an endpoint that was well again had one start every 30 s, for ever.
#[test]
fn probes_that_take_longer_than_the_rest_are_heard() {
    for probes in [1, 2] {
        let plan = BreakerPlan { probes, ..plan() };
        let mut breaker = opened(&plan);
        let mut running = std::collections::VecDeque::new();
        for now in (30_000..).step_by(10_000).map(at).take(9) {
            while running.front().is_some_and(|(began, _)| now.since(*began) >= Nanos::from_secs(70)) {
                let (_, ticket) = running.pop_front().expect("it was there");
                breaker.end(&plan, now, ticket, Report::Success, 0);
            }
            if matches!(breaker.admits(&plan, now), Admission::Probe) {
                running.push_back((now, breaker.begin(&plan, now)));
            }
        }
        // The first is back at 100 s, a second one that began with it or after it by then or at 110 s.
        assert_eq!(breaker.state(at(110_000)), BreakerState::Closed, "{probes} probes");
    }
    // A late failure is one, too.
    let mut breaker = opened(&plan());
    let first = breaker.begin(&plan(), at(30_000));
    let second = breaker.begin(&plan(), at(60_000));
    assert!(breaker.end(&plan(), at(70_000), first, Report::Failure, 0));
    assert_eq!(breaker.state(at(70_000)), BreakerState::Open { until: at(100_000) });
    assert!(!breaker.end(&plan(), at(80_000), second, Report::Failure, 0));
}

#[test]
fn one_that_rests_for_no_time_is_probed_and_not_overrun() {
    let mut breaker = Breaker::default();
    breaker.open(at(5), Nanos::ZERO);
    assert_eq!(breaker.state(at(5)), BreakerState::HalfOpen);
    let probe = breaker.begin(&plan(), at(5));
    assert_eq!(breaker.admits(&plan(), at(5)), Admission::Probed(at(30_005)));
    assert!(breaker.end(&plan(), at(10), probe, Report::Failure, 0));
    assert_eq!(breaker.state(at(10)), BreakerState::Open { until: at(30_010) });
}

#[test]
fn a_failed_probe_opens_it_for_as_long_as_before() {
    let mut breaker = Breaker::default();
    breaker.open(at(0), Nanos::from_secs(3_600));
    let hour = at(3_600_000);
    assert!(run(&mut breaker, &plan(), hour, Report::Failure));
    assert_eq!(breaker.state(hour), BreakerState::Open { until: at(7_200_000) });
    // Once it was closed, the plan's length goes again.
    run(&mut breaker, &plan(), at(7_200_000), Report::Success);
    for _ in 0..3 {
        run(&mut breaker, &plan(), at(7_200_000), Report::Failure);
    }
    assert_eq!(breaker.state(at(7_200_000)), BreakerState::Open { until: at(7_230_000) });
}

#[test]
fn a_spent_quota_is_probed_by_one_attempt() {
    let plan = BreakerPlan { probes: 3, ..plan() };
    let mut breaker = Breaker::default();
    breaker.exhaust(at(0), Nanos::from_secs(3_600));
    for hour in [3_600_000, 7_200_000] {
        assert_eq!(breaker.admits(&plan, at(hour)), Admission::Probe);
        let probe = breaker.begin(&plan, at(hour));
        assert!(matches!(breaker.admits(&plan, at(hour)), Admission::Probed(_)));
        assert!(breaker.end(&plan, at(hour), probe, Report::Failure, 0));
    }
    // Its success is enough, too.
    run(&mut breaker, &plan, at(10_800_000), Report::Success);
    assert_eq!(breaker.state(at(10_800_000)), BreakerState::Closed);
}

#[test]
fn what_is_to_begin_may_as_long_as_nothing_changed() {
    let mut breaker = Breaker::default();
    let early = breaker.begin(&plan(), at(0));
    breaker.open(at(0), Nanos::from_secs(1));
    assert!(!breaker.lets_begin(early));
    let probe = breaker.begin(&plan(), at(1_000));
    assert!(breaker.lets_begin(probe) && !breaker.lets_begin(early));
    breaker.end(&plan(), at(1_000), probe, Report::Success, 0);
    assert!(breaker.lets_begin(early));
}

#[test]
fn all_probes_have_to_succeed() {
    let plan = BreakerPlan { probes: 3, ..plan() };
    let mut breaker = opened(&plan);
    let now = at(30_000);
    run(&mut breaker, &plan, now, Report::Success);
    let tickets = [breaker.begin(&plan, now), breaker.begin(&plan, now)];
    assert!(matches!(breaker.admits(&plan, now), Admission::Probed(_)));
    breaker.end(&plan, now, tickets[0], Report::Success, 0);
    assert_eq!(breaker.state(now), BreakerState::HalfOpen);
    assert!(breaker.end(&plan, now, tickets[1], Report::Failure, 0));
}

#[test]
fn what_began_before_it_changed_is_not_counted() {
    let mut breaker = Breaker::default();
    let early: Vec<Ticket> = (0..10).map(|_| breaker.begin(&plan(), at(0))).collect();
    for ticket in &early[..3] {
        breaker.end(&plan(), at(1), *ticket, Report::Failure, 0);
    }
    assert_eq!(breaker.state(at(1)), BreakerState::Open { until: at(30_001) });
    run(&mut breaker, &plan(), at(30_001), Report::Success);
    for ticket in &early[3..] {
        assert!(!breaker.end(&plan(), at(30_002), *ticket, Report::Failure, 0));
    }
    assert_eq!(breaker.state(at(30_002)), BreakerState::Closed);
}

#[test]
fn a_ratio_needs_its_minimum_and_forgets() {
    let ratio = RatioPlan { part: 1, of: 2, minimum: 10, over: Nanos::from_secs(30) };
    let plan = BreakerPlan { failures: None, ratio: Some(ratio), ..plan() };
    let mut breaker = Breaker::default();
    for _ in 0..9 {
        assert!(!run(&mut breaker, &plan, at(0), Report::Failure));
    }
    // 30 s later they are gone.
    for _ in 0..5 {
        assert!(!run(&mut breaker, &plan, at(30_000), Report::Success));
    }
    for number in 1..=5 {
        assert_eq!(run(&mut breaker, &plan, at(30_001), Report::Failure), number == 5);
    }
}

#[test]
fn jitter_only_makes_it_longer_and_follows_the_seed() {
    let plan = BreakerPlan { jitter: 0.5, ..plan() };
    let until = |seed| {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            let ticket = breaker.begin(&plan, at(0));
            breaker.end(&plan, at(0), ticket, Report::Failure, seed);
        }
        match breaker.state(at(0)) {
            BreakerState::Open { until } => until,
            state => panic!("{state:?}"),
        }
    };
    let ends: Vec<Instant> = (0..200).map(until).collect();
    assert!(ends.iter().all(|end| (at(30_000)..=at(45_000)).contains(end)));
    assert!(ends.iter().any(|end| *end > at(44_000)) && ends.iter().any(|end| *end < at(31_000)));
    assert_eq!(until(7), ends[7]);
}

#[test]
fn random_lives_never_get_stuck_and_never_admit_too_many() {
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let probes = draw(3) as u32 + 1;
        let plan = BreakerPlan { probes, failures: Some(draw(4) as u32 + 1), ..plan() };
        let (mut breaker, mut now) = (Breaker::default(), at(0));
        let mut running: Vec<(Ticket, bool)> = Vec::new();
        for _ in 0..200 {
            now = now.saturating_add(Nanos::from_millis(draw(4_000)));
            match breaker.admits(&plan, now) {
                Admission::Free | Admission::Probe => {
                    let is_probe = breaker.state(now) == BreakerState::HalfOpen;
                    let ticket = breaker.begin(&plan, now);
                    running.push((ticket, is_probe));
                    let probing = running.iter().filter(|(held, probe)| *probe && *held == ticket).count();
                    assert!(!is_probe || probing <= probes as usize);
                }
                Admission::Closed(until) | Admission::Probed(until) => {
                    assert!(until > now);
                    assert!(matches!(breaker.admits(&plan, until), Admission::Probe));
                }
            }
            if draw(3) > 0 && !running.is_empty() {
                let (ticket, _) = running.swap_remove(draw(running.len() as u64) as usize);
                let report = [Report::Success, Report::Failure, Report::Neutral][draw(3) as usize];
                let was = breaker.state(now);
                let opened = breaker.end(&plan, now, ticket, report, draw(1_000));
                assert!(!opened || report == Report::Failure);
                assert!(!matches!(was, BreakerState::Open { .. }) || breaker.state(now) == was);
            }
        }
    }
}
