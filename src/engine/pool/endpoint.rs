//! What is known of one endpoint: what it has under way, how fast it is, whether it may be used.

use super::plan::EndpointPlan;
use crate::engine::breaker::Breaker;
use crate::engine::hold::HoldCause;
use crate::engine::limit::LimitStates;
use crate::engine::time::{Instant, Nanos};

/// The state of an endpoint.
#[derive(Debug)]
pub(in crate::engine) struct Endpoint {
    pub(in crate::engine) limits: LimitStates,
    pub(in crate::engine) hold: Instant,
    pub(in crate::engine) hold_cause: HoldCause,
    /// Until when a limit that a store keeps has nothing.
    pub(in crate::engine) closed: Instant,
    pub(in crate::engine) breaker: Breaker,
    pub(in crate::engine) disabled: bool,
    /// Attempts under way: granted or running.
    pub(in crate::engine) live: u32,
    /// Those of them that run.
    pub(in crate::engine) running: u32,
    /// How many attempts it was given so far.
    pub(in crate::engine) starts: u64,
    /// Whether any endpoint of its name was given one.
    pub(super) was_used: bool,
    /// The number of its last grant among those of the pool.
    pub(super) used: u64,
    /// Where it stands among those that are used by weight.
    pub(super) pass: u64,
    pub(in crate::engine) latency: Latency,
    /// How often another one came behind the same name.
    pub(super) life: u32,
}

impl Endpoint {
    pub(super) fn new(plan: &EndpointPlan) -> Self {
        Self {
            limits: LimitStates::new(&plan.limits),
            hold: Instant::ZERO,
            hold_cause: HoldCause::default(),
            closed: Instant::ZERO,
            breaker: Breaker::default(),
            disabled: false,
            live: 0,
            running: 0,
            starts: 0,
            was_used: false,
            used: 0,
            pass: 0,
            latency: Latency::default(),
            life: 0,
        }
    }

    /// Another one comes behind the same name. What its limits count stays, as nobody knows whether its server tells the
    /// two apart, but nothing of what the server said of the old one; so does what runs, which says nothing about it any
    /// more.
    pub(super) fn renew(&mut self) {
        self.limits.forget_told();
        self.breaker.close();
        self.life = self.life.wrapping_add(1);
        (self.hold, self.hold_cause, self.disabled) = (Instant::ZERO, HoldCause::default(), false);
        (self.starts, self.used, self.pass) = (0, 0, 0);
        self.latency = Latency::default();
    }
}

/// How long attempts took of late: of each new one a fifth is taken in, and while none is under way it is worth half as much
/// after every ten seconds, so that who was slow is tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Latency {
    /// Zero: not known.
    nanos: u64,
    /// Since when no attempt is under way. `None`: one is.
    idle_since: Option<Instant>,
}

impl Latency {
    const HALF_LIFE: u64 = 10_000_000_000;
    /// The least that a failure counts as: a quick one must attract nobody.
    const PENALTY: u64 = 1_000_000_000;
    const LONGEST: u64 = 60_000_000_000;

    /// What it is now; `None` if it is not known.
    pub(in crate::engine) fn estimate(self, now: Instant) -> Option<Nanos> {
        if self.nanos == 0 {
            return None;
        }
        let idle = self.idle_since.map_or(Nanos::ZERO, |since| now.since(since)).get();
        let halved = self.nanos.checked_shr(u32::try_from(idle / Self::HALF_LIFE).unwrap_or(u32::MAX)).unwrap_or(0);
        let part = u128::from(halved / 2) * u128::from(idle % Self::HALF_LIFE) / u128::from(Self::HALF_LIFE);
        Some(Nanos::new(halved.saturating_sub(part as u64).max(1)))
    }

    /// The first attempt is under way.
    pub(super) fn busy(&mut self, now: Instant) {
        self.nanos = self.estimate(now).map_or(0, Nanos::get);
        self.idle_since = None;
    }

    /// None is under way any more.
    pub(super) const fn idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    /// An attempt succeeded that took so long.
    pub(super) fn succeed(&mut self, took: Nanos) {
        self.take_in(took.get());
    }

    /// An attempt failed that took so long, where the slowest of all takes `slowest`.
    pub(super) fn fail(&mut self, took: Nanos, slowest: Nanos) {
        let penalty = slowest.saturating_mul(2).get().clamp(Self::PENALTY, Self::LONGEST);
        self.take_in(took.get().max(penalty));
    }

    fn take_in(&mut self, sample: u64) {
        let known = if self.nanos == 0 { sample } else { self.nanos };
        self.nanos = (known / 5 * 4).saturating_add(sample / 5).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_each_sample_is_taken_in() {
        let mut latency = Latency::default();
        let now = Instant::from_millis(1);
        assert_eq!(latency.estimate(now), None);
        latency.succeed(Nanos::from_millis(100));
        assert_eq!(latency.estimate(now), Some(Nanos::from_millis(100)));
        latency.succeed(Nanos::from_millis(200));
        assert_eq!(latency.estimate(now), Some(Nanos::from_millis(120)));
    }

    #[test]
    fn a_quick_failure_counts_as_a_slow_answer() {
        let mut latency = Latency::default();
        let now = Instant::from_millis(1);
        latency.succeed(Nanos::from_millis(100));
        latency.fail(Nanos::from_millis(1), Nanos::from_millis(700));
        assert_eq!(latency.estimate(now), Some(Nanos::from_millis(360)));
    }

    #[test]
    fn what_is_idle_is_worth_half_after_ten_seconds() {
        let mut latency = Latency::default();
        let begin = Instant::from_millis(0);
        latency.busy(begin);
        latency.succeed(Nanos::from_millis(800));
        // While there are attempts it does not become any faster: they may be those that take long.
        assert_eq!(latency.estimate(Instant::from_millis(60_000)), Some(Nanos::from_millis(800)));
        latency.idle(begin);
        for (at, expected) in [(0, 800), (5_000, 600), (10_000, 400), (20_000, 200)] {
            assert_eq!(latency.estimate(Instant::from_millis(at)), Some(Nanos::from_millis(expected)), "at {at}");
        }
        assert_eq!(latency.estimate(Instant::NEVER), Some(Nanos::new(1)));
        latency.busy(Instant::from_millis(10_000));
        assert_eq!(latency.estimate(Instant::from_millis(20_000)), Some(Nanos::from_millis(400)));
    }
}
