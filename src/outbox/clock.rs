//! The clock on the wall, as far as an outbox goes by it: read once, and from then on as tokio's time goes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::record::Unix;

/// The longest that anybody sleeps at a time: timers have an end.
const LONGEST: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    unix: Unix,
}

impl Clock {
    pub(super) fn starting_at(wall: SystemTime) -> Self {
        Self { began: Instant::now(), unix: unix(wall) }
    }

    pub(super) fn now(&self) -> Unix {
        self.unix.saturating_add(nanos(self.began.elapsed()))
    }

    /// How long it is from now.
    pub(super) fn until(&self, at: Unix) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.now()))
    }

    /// When it will be then, or a day from now if that is sooner.
    pub(super) fn instant(&self, at: Unix) -> Instant {
        Instant::now() + self.until(at).min(LONGEST)
    }

    /// When the span is over.
    pub(super) fn after(&self, span: Duration) -> Unix {
        self.now().saturating_add(nanos(span))
    }
}

/// Times before 1970 count as 1970.
pub(super) fn unix(wall: SystemTime) -> Unix {
    wall.duration_since(UNIX_EPOCH).map_or(0, nanos)
}

pub(super) fn wall(at: Unix) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(at)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
