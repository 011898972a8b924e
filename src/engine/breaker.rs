//! Circuit breakers: whether an endpoint is worth a try, from how its last attempts ended. Pure.
//!
//! Closed, it admits everybody and counts failures. Open, it admits nobody until an instant. Then it is half-open: it
//! admits a few probes, whose successes close it and of whose failures one opens it again. Every attempt carries the
//! ticket it began with; what attempts bring that began before the breaker changed says nothing about what it is now.
//! A probe that does not report makes place for another one after a while, and is heard all the same if it does: where
//! attempts take longer than the breaker rests, nobody else could ever close it.

mod lately;

use self::lately::Slots;
use super::time::{Instant, Nanos};

/// When a breaker opens, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerPlan {
    /// So many failures in a row open it. `None`: any number may come.
    pub failures: Option<u32>,
    /// Such a part of failures opens it. `None`: any may.
    pub ratio: Option<RatioPlan>,
    /// How long it stays open.
    pub reset: Nanos,
    /// How much longer it stays open at most, as a part of that, drawn at random.
    pub jitter: f64,
    /// How many attempts it admits half-open, and how many of them have to succeed to close it; at least 1.
    pub probes: u32,
    /// Whether "slow down" counts as a failure.
    pub counts_retries: bool,
}

/// A part of failures among the attempts of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatioPlan {
    /// So many failures …
    pub part: u32,
    /// … of so many attempts are too many.
    pub of: u32,
    /// Below so many attempts nothing follows; at least 1.
    pub minimum: u32,
    /// How long an attempt counts.
    pub over: Nanos,
}

impl Default for BreakerPlan {
    fn default() -> Self {
        Self {
            failures: Some(5),
            ratio: None,
            reset: Nanos::from_secs(30),
            jitter: 0.1,
            probes: 1,
            counts_retries: false,
        }
    }
}

/// What a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// It admits everybody.
    Closed,
    /// It admits nobody before an instant.
    Open {
        /// When it admits probes.
        until: Instant,
    },
    /// It admits a few, to see.
    HalfOpen,
}

/// A rest that a breaker takes, and what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// How long it takes from now.
    pub lasts: Nanos,
    /// How long the next one is, if a probe fails.
    pub rest: Nanos,
    /// Whether one attempt alone probes it, whatever the plan says.
    pub alone: bool,
}

/// Whether a breaker lets an attempt begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It does.
    Free,
    /// It does, as one of a few.
    Probe,
    /// Not before this instant.
    Closed(Instant),
    /// All probes are under way; at this instant others may take their places.
    Probed(Instant),
}

/// What an attempt shows when it reports how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ticket {
    /// How often the breaker had changed.
    change: u32,
    /// Which probes took the places, since it changed.
    round: u32,
}

/// How an attempt ended, as far as its endpoint is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It worked.
    Success,
    /// It did not, and that may be due to the endpoint.
    Failure,
    /// It says nothing about the endpoint.
    Neutral,
}

/// The breaker of one endpoint.
///
/// ```
/// use request_balancer::engine::{Admission, Breaker, BreakerPlan, BreakerState, Instant, Report};
///
/// let plan = BreakerPlan { failures: Some(2), jitter: 0.0, ..BreakerPlan::default() };
/// let mut breaker = Breaker::default();
/// let second = Instant::from_millis(1_000);
/// for _ in 0..2 {
///     let ticket = breaker.begin(&plan, second);
///     breaker.end(&plan, second, ticket, Report::Failure, 0);
/// }
/// let until = Instant::from_millis(31_000);
/// assert_eq!(breaker.state(second), BreakerState::Open { until });
/// assert_eq!(breaker.admits(&plan, second), Admission::Closed(until));
/// // Then one may try.
/// assert_eq!(breaker.admits(&plan, until), Admission::Probe);
/// let probe = breaker.begin(&plan, until);
/// assert!(matches!(breaker.admits(&plan, until), Admission::Probed(_)));
/// breaker.end(&plan, until, probe, Report::Success, 0);
/// assert_eq!(breaker.state(until), BreakerState::Closed);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    now: Now,
    /// What attempts that begin are to show.
    ticket: Ticket,
    log: Slots,
}

#[derive(Clone, Copy, Debug, Default)]
enum Now {
    #[default]
    Closed,
    /// Failures in a row so far.
    Failing(u32),
    Open {
        until: Instant,
        rest: Rest,
    },
    /// `out` probes of this round are under way, the last one since an instant; `passed` succeeded, of all rounds.
    HalfOpen {
        out: u32,
        passed: u32,
        since: Instant,
        rest: Rest,
    },
}

/// How long it is open, the next time, too, if no probe succeeds, and how it is probed then.
#[derive(Clone, Copy, Debug)]
struct Rest {
    length: Nanos,
    /// By one attempt, whatever the plan says.
    alone: bool,
}

impl Rest {
    /// For how long others wait for a probe to report. One that is told to rest for no time is not to be overrun.
    fn patience(self, plan: &BreakerPlan) -> Nanos {
        self.length.max(plan.reset)
    }

    /// The one after a probe that failed.
    fn again(self, plan: &BreakerPlan) -> Self {
        if self.length.is_zero() { Self { length: plan.reset, ..self } } else { self }
    }

    fn probes(self, plan: &BreakerPlan) -> u32 {
        if self.alone { 1 } else { plan.probes.max(1) }
    }
}

impl Breaker {
    /// What it is. One that stays open until `now` is half-open.
    #[must_use]
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.now {
            Now::Closed | Now::Failing(_) => BreakerState::Closed,
            Now::Open { until, .. } if until > now => BreakerState::Open { until },
            Now::Open { .. } | Now::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Whether an attempt may begin.
    #[must_use]
    pub fn admits(&self, plan: &BreakerPlan, now: Instant) -> Admission {
        match self.now {
            Now::Closed | Now::Failing(_) => Admission::Free,
            Now::Open { until, .. } if until > now => Admission::Closed(until),
            Now::Open { .. } => Admission::Probe,
            Now::HalfOpen { out, passed, since, rest } => {
                let lost = since.saturating_add(rest.patience(plan));
                if out.saturating_add(passed) < rest.probes(plan) || lost <= now {
                    Admission::Probe
                } else {
                    Admission::Probed(lost)
                }
            }
        }
    }

    /// An attempt begins that is [admitted](Self::admits). It is to show its ticket when it ends.
    pub fn begin(&mut self, plan: &BreakerPlan, now: Instant) -> Ticket {
        match self.now {
            Now::Closed | Now::Failing(_) => {}
            Now::Open { rest, .. } => {
                self.change(Now::HalfOpen { out: 1, passed: 0, since: now, rest });
            }
            Now::HalfOpen { out, passed, rest, .. } if out.saturating_add(passed) >= rest.probes(plan) => {
                // The others have not reported. Their places are free, and they are heard if they do.
                self.ticket.round = self.ticket.round.wrapping_add(1);
                self.now = Now::HalfOpen { out: 1, passed, since: now, rest };
            }
            Now::HalfOpen { out, passed, rest, .. } => {
                self.now = Now::HalfOpen { out: out + 1, passed, since: now, rest };
            }
        }
        self.ticket
    }

    /// Whether an attempt that was to begin with this ticket still may: nothing has changed and nobody has its place, or
    /// the breaker is closed.
    #[must_use]
    pub fn lets_begin(&self, ticket: Ticket) -> bool {
        match self.now {
            Now::Closed | Now::Failing(_) => true,
            Now::Open { .. } | Now::HalfOpen { .. } => ticket == self.ticket,
        }
    }

    /// An attempt ended, or was never made after all. `seed` is what jitter is drawn from. Returns whether the breaker
    /// opened.
    pub fn end(&mut self, plan: &BreakerPlan, now: Instant, ticket: Ticket, report: Report, seed: u64) -> bool {
        if ticket.change != self.ticket.change {
            return false;
        }
        let place = u32::from(ticket.round == self.ticket.round);
        match (self.now, report) {
            (Now::Closed | Now::Failing(_) | Now::Open { .. }, Report::Neutral) | (Now::Open { .. }, _) => false,
            (Now::Closed | Now::Failing(_), Report::Success) => {
                self.now = Now::Closed;
                if let Some(ratio) = plan.ratio {
                    self.log.count(ratio.over, now, false);
                }
                false
            }
            (Now::Closed, Report::Failure) => self.note_failure(plan, now, 1, seed),
            (Now::Failing(row), Report::Failure) => self.note_failure(plan, now, row.saturating_add(1), seed),
            (Now::HalfOpen { out, passed, since, rest }, Report::Neutral) => {
                self.now = Now::HalfOpen { out: out.saturating_sub(place), passed, since, rest };
                false
            }
            (Now::HalfOpen { out, passed, since, rest }, Report::Success) => {
                if passed + 1 >= rest.probes(plan) {
                    self.close();
                } else {
                    self.now = Now::HalfOpen { out: out.saturating_sub(place), passed: passed + 1, since, rest };
                }
                false
            }
            (Now::HalfOpen { rest, .. }, Report::Failure) => {
                self.open_for(plan, now, rest.again(plan), seed);
                true
            }
        }
    }

    /// Opens it for `length`, and again for as long whenever a probe fails, until one succeeds. For no time: it is probed at
    /// once, and rests for as long as the plan says if that fails.
    pub fn open(&mut self, now: Instant, length: Nanos) {
        self.open_until(now.saturating_add(length), Rest { length, alone: false });
    }

    /// The same, but one attempt alone probes it then, whatever the plan says.
    pub fn exhaust(&mut self, now: Instant, length: Nanos) {
        self.open_until(now.saturating_add(length), Rest { length, alone: true });
    }

    /// Opens it as another breaker [is](Self::opening).
    pub fn open_as(&mut self, now: Instant, opening: Opening) {
        let Opening { lasts, rest, alone } = opening;
        self.open_until(now.saturating_add(lasts), Rest { length: rest, alone });
    }

    /// The rest that it takes, if it is open.
    #[must_use]
    pub fn opening(&self, now: Instant) -> Option<Opening> {
        match self.now {
            Now::Open { until, rest: Rest { length, alone } } if until > now => {
                Some(Opening { lasts: until.since(now), rest: length, alone })
            }
            Now::Open { .. } | Now::Closed | Now::Failing(_) | Now::HalfOpen { .. } => None,
        }
    }

    /// Closes it, whatever it knows.
    pub fn close(&mut self) {
        self.change(Now::Closed);
        self.log = Slots::default();
    }

    fn note_failure(&mut self, plan: &BreakerPlan, now: Instant, row: u32, seed: u64) -> bool {
        self.now = Now::Failing(row);
        let mut opens = plan.failures.is_some_and(|most| row >= most);
        if let Some(ratio) = plan.ratio {
            self.log.count(ratio.over, now, true);
            let (all, failed) = self.log.sum(ratio.over, now);
            opens |= all >= u64::from(ratio.minimum)
                && failed.saturating_mul(ratio.of.into()) >= all.saturating_mul(ratio.part.into());
        }
        if opens {
            self.open_for(plan, now, Rest { length: plan.reset, alone: false }, seed);
        }
        opens
    }

    fn open_for(&mut self, plan: &BreakerPlan, now: Instant, rest: Rest, seed: u64) {
        let more = rest.length.get() as f64 * plan.jitter.clamp(0.0, 1.0) * super::retry::draw(seed);
        self.open_until(now.saturating_add(rest.length).saturating_add(Nanos::new(more as u64)), rest);
    }

    fn open_until(&mut self, until: Instant, rest: Rest) {
        self.change(Now::Open { until, rest });
        self.log = Slots::default();
    }

    fn change(&mut self, now: Now) {
        self.now = now;
        self.ticket = Ticket { change: self.ticket.change.wrapping_add(1), round: 0 };
    }
}

#[cfg(test)]
mod tests {
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
}
