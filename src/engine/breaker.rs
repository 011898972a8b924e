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
mod tests;
