//! How servers count: by fixed windows and by token buckets.
#![allow(dead_code, reason = "each example uses its part")]

use std::time::{Duration, Instant};

/// A window that begins anew with each period, whoever calls.
#[derive(Debug)]
pub(crate) struct FixedWindow {
    pub(crate) count: u32,
    per: Duration,
    ends: Instant,
    used: u32,
    /// What other clients take of it as soon as it begins.
    others: u32,
}

impl FixedWindow {
    /// Its first period ends at `ends`.
    pub(crate) const fn new(count: u32, per: Duration, others: u32, ends: Instant) -> Self {
        Self { count, per, ends, used: others, others }
    }

    /// Counts `cost`, if it fits.
    pub(crate) fn take(&mut self, now: Instant, cost: u32) -> bool {
        self.turn(now);
        let fits = cost <= self.left();
        self.used += if fits { cost } else { 0 };
        fits
    }

    pub(crate) const fn left(&self) -> u32 {
        self.count - self.used
    }

    pub(crate) fn resets_in(&mut self, now: Instant) -> Duration {
        self.turn(now);
        self.ends - now
    }

    fn turn(&mut self, now: Instant) {
        while now >= self.ends {
            self.ends += self.per;
            self.used = self.others;
        }
    }
}

/// A bucket of `burst` tokens, into which one falls with each `interval`.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) burst: u32,
    interval: Duration,
    /// When it is full again.
    full: Instant,
}

impl Bucket {
    pub(crate) const fn new(burst: u32, interval: Duration, now: Instant) -> Self {
        Self { burst, interval, full: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let fits = self.left(now) > 0;
        if fits {
            self.full = self.full.max(now) + self.interval;
        }
        fits
    }

    pub(crate) fn left(&self, now: Instant) -> u32 {
        let missing = self.fills_in(now).as_nanos().div_ceil(self.interval.as_nanos());
        self.burst.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    pub(crate) fn next_in(&self, now: Instant) -> Duration {
        self.fills_in(now).saturating_sub(self.interval * (self.burst - 1))
    }

    pub(crate) fn fills_in(&self, now: Instant) -> Duration {
        self.full.saturating_duration_since(now)
    }
}

/// Whole units, rounded up: what is told too short would be broken.
pub(crate) fn ceil(time: Duration, unit: Duration) -> u128 {
    time.as_nanos().div_ceil(unit.as_nanos())
}
