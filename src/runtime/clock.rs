//! tokio's time as the engine's.

use std::time::Duration;

use tokio::time::Instant as TokioInstant;

use crate::engine::{Instant, Nanos};

/// A step back of more than this is another clock, not an unsteady one.
const OTHER_CLOCK: Nanos = Nanos::from_secs(1);

const DAY: Nanos = Nanos::from_secs(86_400);

/// The engine's time when a clock is made: ten years after its epoch, so that starts of earlier runs have instants, too.
pub(crate) const BEGIN: Instant = Instant::from_millis(10 * 365 * 86_400_000);

/// Reads tokio's clock in the engine's unit. Never goes backwards, so it must be read in the order of its use: inside
/// the lock that it stands behind.
#[derive(Debug)]
pub(crate) struct Clock {
    anchor: TokioInstant,
    /// What the engine's time was at the anchor.
    base: Instant,
    latest: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { anchor: TokioInstant::now(), base: BEGIN, latest: BEGIN }
    }

    /// The engine's time now.
    ///
    /// A small step back repeats the latest instant. After a large one, as when a balancer made under one runtime's
    /// paused clock is used under another's, time goes on from the latest instant at the new clock's pace.
    pub(crate) fn read(&mut self) -> Instant {
        self.advance(TokioInstant::now())
    }

    /// What it showed when it was last read.
    pub(crate) const fn latest(&self) -> Instant {
        self.latest
    }

    #[inline]
    fn advance(&mut self, wall: TokioInstant) -> Instant {
        let now = self.base.saturating_add(wall.saturating_duration_since(self.anchor).into());
        if now > self.latest {
            self.latest = now;
            return now;
        }
        self.stand_still(wall)
    }

    /// The clock is not ahead of the latest instant.
    #[cold]
    fn stand_still(&mut self, wall: TokioInstant) -> Instant {
        let behind = if wall >= self.anchor {
            self.latest.since(self.base.saturating_add((wall - self.anchor).into()))
        } else {
            self.latest.since(self.base).saturating_add((self.anchor - wall).into())
        };
        if behind > OTHER_CLOCK {
            self.anchor = wall;
            self.base = self.latest;
        }
        self.latest
    }

    /// When it will be `instant`, or a day from now if that is sooner: timers have an end, and a look once a day costs
    /// nothing.
    pub(crate) fn at(&self, instant: Instant) -> TokioInstant {
        let ahead = self.latest.since(self.base).saturating_add(instant.since(self.latest).min(DAY));
        self.anchor + ahead.into()
    }
}

/// The moment `span` from now, or in a year if that is sooner.
pub(crate) fn from_now(span: Duration) -> TokioInstant {
    TokioInstant::now() + span.min(Duration::from(DAY) * 365)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn started() -> (Clock, TokioInstant) {
        let start = TokioInstant::now() + Duration::from_secs(3_600);
        (Clock { anchor: start, base: Instant::ZERO, latest: Instant::ZERO }, start)
    }

    #[test]
    fn goes_as_the_clock_goes() {
        let (mut clock, start) = started();
        assert_eq!(clock.advance(start), Instant::ZERO);
        assert_eq!(clock.advance(start + 5 * MILLI), Instant::from_millis(5));
        assert_eq!(clock.at(Instant::from_millis(7)), start + 7 * MILLI);
        assert_eq!(clock.at(Instant::from_millis(4)), start + 5 * MILLI);
        assert_eq!(clock.at(Instant::NEVER), start + 5 * MILLI + Duration::from_secs(86_400));
    }

    #[test]
    fn a_small_step_back_repeats_the_latest_instant() {
        let (mut clock, start) = started();
        clock.advance(start + 10 * MILLI);
        assert_eq!(clock.advance(start + 8 * MILLI), Instant::from_millis(10));
        assert_eq!(clock.advance(start - MILLI), Instant::from_millis(10));
        assert_eq!(clock.advance(start + 11 * MILLI), Instant::from_millis(11));
    }

    #[test]
    fn another_clock_goes_on_from_the_latest_instant() {
        let (mut clock, start) = started();
        clock.advance(start + Duration::from_secs(100));
        assert_eq!(clock.advance(start + Duration::from_secs(7)), Instant::from_millis(100_000));
        assert_eq!(clock.advance(start + Duration::from_secs(8)), Instant::from_millis(101_000));
        assert_eq!(clock.at(Instant::from_millis(102_000)), start + Duration::from_secs(9));
        assert_eq!(clock.advance(start - Duration::from_secs(50)), Instant::from_millis(101_000));
        assert_eq!(clock.advance(start - Duration::from_secs(50) + MILLI), Instant::from_millis(101_001));
    }
}
