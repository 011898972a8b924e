//! What spaces the starts of the lower lanes.

use crate::engine::time::{Instant, Nanos};

/// The clock that spaces the starts of the lower lanes below one limit.
///
/// It is a schedule, not a stopwatch: a start that a timer made late is followed at the instant that was due, up to
/// [`PaceClock::CATCH_UP`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaceClock {
    due: Instant,
}

impl PaceClock {
    /// Lateness that is caught up. tokio's timers are up to 2 ms late; the rest is for a busy executor.
    const CATCH_UP: Nanos = Nanos::from_millis(5);

    /// A clock that owes nothing at `begin`.
    pub(crate) const fn from(begin: Instant) -> Self {
        Self { due: begin }
    }

    /// When the next paced start is due.
    pub(crate) const fn due(self) -> Instant {
        self.due
    }

    /// The later of two clocks.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { due: self.due.max(other.due) }
    }

    /// A paced request of this cost was granted.
    pub(crate) fn charge(&mut self, now: Instant, interval: Nanos, cost: u32) {
        let base = self.due.max(now.saturating_sub(Self::CATCH_UP));
        self.due = base.saturating_add(interval.saturating_mul(u64::from(cost)));
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, interval: Nanos, cost: u32) {
        self.due = self.due.saturating_sub(interval.saturating_mul(u64::from(cost)));
    }
}
