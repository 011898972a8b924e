//! Even spacing and token buckets, on governor's GCRA ("generic cell rate algorithm", ITU-T I.371).
//!
//! The state of a limit is governor's one word, the theoretical arrival time, and what is outstanding. Asking commits
//! nothing; a start is charged at its claim; a refund touches no state, since setting the word back would let the next
//! start follow too early. A limiter is put together for each question: it is two words of arithmetic.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::ops::Add;
use std::time::Duration;

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos as Cells;
use governor::state::StateStore;
use governor::{NotUntil, Quota, RateLimiter};

use super::Ask;
use crate::engine::time::{Instant, Nanos};

/// The numbers of a limit on governor, as the plan has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Time in which one unit of cost comes back, rounded up.
    pub(crate) interval: Nanos,
    /// Units that may be in store; for spacing, the largest cost.
    pub(crate) burst: u32,
    pub(crate) shape: Shape,
}

/// What idle time earns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing: each start waits until the one before is paid for.
    Spaced,
    /// Up to `burst` units.
    Bucket,
}

/// The state of one limit on governor.
#[derive(Debug, Default)]
pub(crate) struct Gcra {
    outstanding: u64,
    word: Word,
}

impl Gcra {
    /// Lateness that spacing catches up: the grain of tokio's timers, which would otherwise add up.
    const CATCH_UP: Nanos = Nanos::from_millis(2);

    /// Whether `cost` fits now.
    pub(crate) fn ask(&self, spec: Spec, now: Instant, cost: u32) -> Ask {
        let wanted = self.outstanding + u64::from(cost);
        let cells = match spec.shape {
            // The whole store is there again when the start before is paid for.
            Shape::Spaced if self.outstanding == 0 => spec.burst,
            Shape::Spaced => {
                // A claim from here on counts from its own instant: only it decides then, and any instant named now would
                // move on with time.
                let is_fixed = self.word.due().is_some_and(|due| due > now.saturating_sub(Self::CATCH_UP));
                let at = self.after(spec, now, self.outstanding);
                return if is_fixed && at > now { Ask::Unclaimed(at) } else { Ask::Busy };
            }
            Shape::Bucket if wanted <= u64::from(spec.burst) => wanted as u32,
            // What is outstanding must be claimed first, and counts from then.
            Shape::Bucket if self.word.due().is_none_or(|due| due <= now) && self.outstanding > 0 => return Ask::Busy,
            Shape::Bucket => return Ask::Unclaimed(self.after(spec, now, wanted - u64::from(spec.burst))),
        };
        match self.word.check(spec, now, cells, Commit::No) {
            Ok(()) => Ask::Room,
            Err(at) => Ask::At(at),
        }
    }

    /// A request is granted: its cost is outstanding.
    pub(crate) const fn grant(&mut self, cost: u32) {
        self.outstanding += cost as u64;
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, spec: Spec, now: Instant, cost: u32) {
        self.outstanding -= cost as u64;
        let due = self.word.due().unwrap_or(now);
        let at = match spec.shape {
            Shape::Spaced if due < now && now.since(due) <= Self::CATCH_UP => due,
            Shape::Spaced | Shape::Bucket => now,
        };
        if self.word.check(spec, at, cost, Commit::Yes).is_err() {
            // Granted with room; since then another start turned out to cost more, or the numbers changed.
            let paid = self.word.due().map_or(at, |due| due.max(at));
            self.word.set(paid.saturating_add(spec.interval.saturating_mul(cost.into())));
        }
    }

    /// The grant was not used.
    pub(crate) const fn refund(&mut self, cost: u32) {
        self.outstanding -= cost as u64;
    }

    /// A start cost `actual` instead of `cost`. What it cost more is charged; what it cost less is not given back:
    /// setting the word back would let a start follow too early.
    pub(crate) fn settle(&mut self, spec: Spec, at: Instant, cost: u32, actual: u32) {
        if actual > cost {
            let more = Nanos::saturating_mul(spec.interval, (actual - cost).into());
            // A start that seemed to be for nothing left no trace.
            let due = self.word.due().map_or(at, |due| due.max(at));
            self.word.set(due.saturating_add(more));
        }
    }

    /// A lower bound for the start of a request that comes after `ahead` others of unit cost.
    pub(crate) fn earliest(&self, spec: Spec, now: Instant, ahead: u64, cost: u32) -> Ask {
        let before = self.outstanding + ahead;
        let at = match spec.shape {
            Shape::Spaced => self.after(spec, now, before),
            Shape::Bucket => {
                let units = before + u64::from(cost);
                let paid = self.word.due().unwrap_or(Instant::ZERO).max(now);
                let spare = spec.interval.saturating_mul(spec.burst.into());
                paid.saturating_add(spec.interval.saturating_mul(units)).saturating_sub(spare)
            }
        };
        if at > now { Ask::At(at) } else { Ask::Room }
    }

    /// When everything that started is paid for.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.word.due()
    }

    /// Counts what another limit of this kind is owed, or else the starts that a window knows.
    pub(crate) fn remember(&mut self, spec: Spec, due: Option<Instant>, starts: &[(Instant, u32)]) {
        let charged = starts.iter().fold(None, |due: Option<Instant>, &(at, cost)| {
            let from = due.map_or(at, |due| due.max(at));
            Some(from.saturating_add(spec.interval.saturating_mul(cost.into())))
        });
        if let Some(due) = due.or(charged) {
            self.word.set(due);
        }
    }

    /// Counts what another run of the program was owed, beside what it is owed itself.
    pub(crate) fn recall(&mut self, spec: Spec, now: Instant, due: Option<Instant>, starts: &[(Instant, u32)]) {
        let mut other = Self::default();
        other.remember(spec, due, starts);
        self.merge(now, &other);
    }

    /// Counts what another state of the same numbers is owed and has outstanding, too.
    pub(crate) fn merge(&mut self, now: Instant, other: &Self) {
        self.outstanding += other.outstanding;
        let due = match (self.word.due(), other.word.due()) {
            (Some(one), Some(other)) => Some(one.max(other).saturating_add(one.min(other).since(now))),
            (one, other) => one.or(other),
        };
        if let Some(due) = due {
            self.word.0.set(due.as_nanos());
        }
    }

    /// When everything is paid for, once other numbers go: a bucket that others fill lacks as many tokens as before.
    pub(crate) fn due_under(&self, was: Spec, spec: super::Spec<'_>, now: Instant) -> Option<Instant> {
        let due = self.due()?;
        match (was.shape, spec) {
            (Shape::Bucket, super::Spec::Gcra(Spec { interval, shape: Shape::Bucket, .. })) => {
                let owed = u128::from(due.since(now).get()) * u128::from(interval.get());
                let owed = owed.div_ceil(u128::from(was.interval.get().max(1)));
                Some(now.saturating_add(Nanos::new(u64::try_from(owed).unwrap_or(u64::MAX))))
            }
            (Shape::Bucket | Shape::Spaced, _) => Some(due),
        }
    }

    /// When nothing is left of it. `None` while something is outstanding.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        (self.outstanding == 0).then(|| self.word.due().unwrap_or(Instant::ZERO))
    }

    /// A lower bound for when `units` more are paid for.
    fn after(&self, spec: Spec, now: Instant, units: u64) -> Instant {
        let paid = match (self.word.due(), spec.shape) {
            (Some(due), Shape::Spaced) => due.max(now.saturating_sub(Self::CATCH_UP)),
            (Some(due), Shape::Bucket) => due.max(now),
            (None, Shape::Spaced | Shape::Bucket) => now,
        };
        paid.saturating_add(spec.interval.saturating_mul(units))
    }
}

/// governor's state word: the theoretical arrival time, zero for none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word(Cell<u64>);

impl Word {
    fn due(&self) -> Option<Instant> {
        Some(self.0.get()).filter(|&word| word != 0).map(Instant::from_nanos)
    }

    fn set(&self, due: Instant) {
        // governor adds to it without a guard.
        self.0.set(due.as_nanos().min(u64::MAX / 4));
    }

    /// Asks governor for so many cells at an instant. An error says when they fit.
    fn check(&self, spec: Spec, at: Instant, cells: u32, commit: Commit) -> Result<(), Instant> {
        let burst = NonZeroU32::new(spec.burst).unwrap_or(NonZeroU32::MIN);
        let cells = NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN);
        // governor multiplies without a guard; a plan from rules is far below this.
        let interval = spec.interval.get().clamp(1, u64::MAX / 8 / u64::from(burst.get()));
        let Some(quota) = Quota::with_period(Duration::from_nanos(interval)) else { return Ok(()) };
        let clock = Told(Cell::new(Told::EPOCH));
        let limiter =
            RateLimiter::<_, _, _, NoOpMiddleware<Moment>>::new(quota.allow_burst(burst), InPlace(commit), &clock);
        clock.0.set(Moment(at.as_nanos().min(u64::MAX / 8)));
        match limiter.check_key_n(self, cells) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => Err(instant(&not_until)),
            Err(_more_than_ever_fits) => Err(Instant::NEVER),
        }
    }
}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.get().hash(state);
    }
}

/// Whether an answer changes the state.
#[derive(Clone, Copy, Debug)]
enum Commit {
    Yes,
    No,
}

/// A store whose key is the state itself.
#[derive(Debug)]
struct InPlace(Commit);

impl StateStore for InPlace {
    type Key = Word;

    fn measure_and_replace<T, F, E>(&self, key: &Word, f: F) -> Result<T, E>
    where
        F: Fn(Option<Cells>) -> Result<(T, Cells), E>,
    {
        let word = key.0.get();
        let (answer, next) = f((word != 0).then(|| Cells::new(word)))?;
        match self.0 {
            Commit::Yes => key.0.set(next.as_u64()),
            Commit::No => {}
        }
        Ok(answer)
    }
}

/// A clock that is told the time.
#[derive(Debug)]
struct Told(Cell<Moment>);

impl Told {
    const EPOCH: Moment = Moment(0);
}

impl Clock for &Told {
    type Instant = Moment;

    fn now(&self) -> Moment {
        self.0.get()
    }
}

/// The engine's instant in governor's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Add<Cells> for Moment {
    type Output = Self;

    fn add(self, span: Cells) -> Self {
        Self(self.0.saturating_add(span.as_u64()))
    }
}

impl Reference for Moment {
    fn duration_since(&self, earlier: Self) -> Cells {
        Cells::new(self.0.saturating_sub(earlier.0))
    }

    fn saturating_sub(&self, span: Cells) -> Self {
        Self(self.0.saturating_sub(span.as_u64()))
    }
}

fn instant(not_until: &NotUntil<Moment>) -> Instant {
    Instant::from_nanos(not_until.earliest_possible().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn starts(spec: Spec, asked: &[(u64, usize)]) -> Vec<u64> {
        let mut gcra = Gcra::default();
        let mut starts = Vec::new();
        let mut now = Instant::ZERO;
        for &(from, count) in asked {
            now = now.max(at(from));
            for _ in 0..count {
                while let Ask::At(later) = gcra.ask(spec, now, 1) {
                    now = later;
                }
                gcra.grant(1);
                gcra.claim(spec, now, 1);
                starts.push(now.as_nanos() / 1_000_000);
            }
        }
        starts
    }

    #[test]
    fn spaced_starts_earn_nothing_by_idling() {
        let spec = Spec { interval: Nanos::from_secs(1), burst: 1, shape: Shape::Spaced };
        assert_eq!(starts(spec, &[(0, 1), (30_000, 3)]), [0, 30_000, 31_000, 32_000]);
    }

    #[test]
    fn spacing_catches_up_the_grain_of_a_timer_and_no_more() {
        let spec = Spec { interval: Nanos::from_millis(10), burst: 5, shape: Shape::Spaced };
        let mut gcra = Gcra::default();
        for (now, next) in [(0, 10), (12, 20), (21, 30), (33, 43)] {
            assert_eq!(gcra.ask(spec, at(now), 1), Ask::Room);
            gcra.grant(1);
            gcra.claim(spec, at(now), 1);
            assert_eq!(gcra.ask(spec, at(now), 1), Ask::At(at(next)), "after {now}");
        }
    }

    #[test]
    fn an_answer_that_only_a_claim_changes_names_no_instant_that_is_past_or_moves() {
        let spec = Spec { interval: Nanos::from_millis(1), burst: 4, shape: Shape::Spaced };
        let mut gcra = Gcra::default();
        gcra.grant(1);
        assert_eq!(gcra.ask(spec, at(5), 1), Ask::Busy);
        gcra.claim(spec, at(5), 1);
        gcra.grant(1);
        assert_eq!(gcra.ask(spec, at(6), 1), Ask::Unclaimed(at(7)));
        gcra.refund(1);
        gcra.grant(1);
        assert_eq!(gcra.ask(spec, at(7), 1), Ask::Busy);
        gcra.claim(spec, at(7), 1);
        assert_eq!(gcra.ask(spec, at(7), 1), Ask::Room);
    }

    #[test]
    fn a_costly_spaced_start_is_paid_for_before_the_next() {
        let spec = Spec { interval: Nanos::from_millis(10), burst: 5, shape: Shape::Spaced };
        let mut gcra = Gcra::default();
        gcra.grant(4);
        gcra.claim(spec, at(0), 4);
        assert_eq!(gcra.ask(spec, at(0), 1), Ask::At(at(40)));
    }

    #[test]
    fn a_bucket_starts_full_and_refills_evenly() {
        let spec = Spec { interval: Nanos::from_secs(60), burst: 5, shape: Shape::Bucket };
        assert_eq!(starts(spec, &[(0, 7)]), [0, 0, 0, 0, 0, 60_000, 120_000]);
    }

    #[test]
    fn what_is_outstanding_is_asked_for_too_and_a_refund_touches_nothing() {
        let spec = Spec { interval: Nanos::from_millis(100), burst: 1, shape: Shape::Bucket };
        let mut gcra = Gcra::default();
        gcra.grant(1);
        assert_eq!(gcra.ask(spec, at(99), 1), Ask::Busy);
        gcra.refund(1);
        assert_eq!(gcra.ask(spec, at(99), 1), Ask::Room);
        gcra.grant(1);
        gcra.claim(spec, at(99), 1);
        assert_eq!(gcra.ask(spec, at(100), 1), Ask::At(at(199)));
        gcra.grant(1);
        assert_eq!(gcra.ask(spec, at(100), 1), Ask::Unclaimed(at(299)));
    }

    #[test]
    fn a_start_granted_before_another_turned_out_costlier_is_charged_all_the_same() {
        let spec = Spec { interval: Nanos::from_millis(100), burst: 2, shape: Shape::Bucket };
        let mut gcra = Gcra::default();
        gcra.grant(1);
        gcra.claim(spec, at(0), 1);
        gcra.grant(1);
        gcra.settle(spec, Instant::ZERO, 1, 11);
        gcra.claim(spec, at(0), 1);
        assert_eq!(gcra.ask(spec, at(0), 1), Ask::At(at(1_100)));
        gcra.settle(spec, Instant::ZERO, 1, u32::MAX);
        assert!(matches!(gcra.ask(spec, at(0), 2), Ask::At(later) if later > at(1_000_000)));
    }

    #[test]
    fn extreme_numbers_neither_panic_nor_let_anything_through_early() {
        let spec = Spec { interval: Nanos::MAX, burst: u32::MAX, shape: Shape::Spaced };
        let mut gcra = Gcra::default();
        assert_eq!(gcra.ask(spec, Instant::NEVER, 1), Ask::Room);
        gcra.grant(1);
        gcra.claim(spec, at(0), 1);
        assert!(matches!(gcra.ask(spec, at(1), 1), Ask::At(later) if later > at(1)));
    }
}
