//! The clock on the wall: what calendar days and a state that is stored go by. Nothing that times a start reads it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "serde")]
use crate::engine::{Instant, Nanos};

/// What the machine's own clock shows, as [`unix`] has it.
pub(super) fn now() -> i128 {
    unix(SystemTime::now())
}

/// What it shows: moments in responses that carry no date of their own are counted from it, and what outlives the process.
#[cfg(any(feature = "headers", feature = "outbox"))]
pub(crate) fn clock() -> SystemTime {
    SystemTime::now()
}

/// A time on the wall in nanoseconds since 1970 in UTC; negative before it.
pub(super) fn unix(wall: SystemTime) -> i128 {
    let nanos = |span: Duration| i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    match wall.duration_since(UNIX_EPOCH) {
        Ok(since) => nanos(since),
        Err(before) => -nanos(before.duration()),
    }
}

/// A time on the wall as it is stored: nanoseconds since 1970 in UTC.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Unix(u64);

/// What the clock on the wall showed at an instant of the machine.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Wall {
    now: Instant,
    unix: u64,
}

#[cfg(feature = "serde")]
impl Wall {
    /// Times before 1970 count as 1970.
    pub(super) fn at(now: Instant, wall: SystemTime) -> Self {
        Self { now, unix: u64::try_from(unix(wall).max(0)).unwrap_or(u64::MAX) }
    }

    pub(super) fn of(self, at: Instant) -> Unix {
        Unix(if at >= self.now {
            self.unix.saturating_add(at.since(self.now).get())
        } else {
            self.unix.saturating_sub(self.now.since(at).get())
        })
    }

    pub(super) fn instant(self, Unix(unix): Unix) -> Instant {
        if unix >= self.unix {
            self.now.saturating_add(Nanos::new(unix - self.unix))
        } else {
            self.now.saturating_sub(Nanos::new(self.unix - unix))
        }
    }
}
