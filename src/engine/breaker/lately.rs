//! How attempts ended of late: counted in parts of the time that they count.

use crate::engine::time::{Instant, Nanos};

/// How many parts of the time that attempts count are counted in.
const SLOTS: usize = 10;

/// Attempts of late: counted in tenths of the time, of which the running one and the nine before it count.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// Made for the first attempt that is counted.
    counts: Option<Box<[(u32, u32); SLOTS]>>,
    /// The number of the running tenth since the epoch.
    latest: u64,
}

impl Slots {
    /// An attempt ended.
    pub(super) fn count(&mut self, over: Nanos, now: Instant, failed: bool) {
        self.advance(over, now);
        let counts = self.counts.get_or_insert_default();
        let (all, failures) = &mut counts[(self.latest % SLOTS as u64) as usize];
        *all = all.saturating_add(1);
        *failures = failures.saturating_add(failed.into());
    }

    /// All of them, and the failures.
    pub(super) fn sum(&mut self, over: Nanos, now: Instant) -> (u64, u64) {
        self.advance(over, now);
        let counts = self.counts.iter().flat_map(|counts| counts.iter());
        counts.fold((0, 0), |(all, failed), (more, worse)| (all + u64::from(*more), failed + u64::from(*worse)))
    }

    /// Forgets what is past.
    fn advance(&mut self, over: Nanos, now: Instant) {
        let tenth = over.div_ceil(SLOTS as u64).get().max(1);
        let current = now.as_nanos() / tenth;
        let Some(counts) = &mut self.counts else {
            self.latest = current;
            return;
        };
        if current < self.latest {
            // Time never goes back: they count for another time than before, and nobody knows how much of that is past.
            **counts = Default::default();
            self.latest = current;
        }
        for slot in 1..=current.saturating_sub(self.latest).min(SLOTS as u64) {
            counts[((self.latest + slot) % SLOTS as u64) as usize] = (0, 0);
        }
        self.latest = current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Nanos = Nanos::from_secs(1);
    const LONG: Nanos = Nanos::from_secs(60);

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn attempts_count_for_so_long() {
        let mut lately = Slots::default();
        lately.count(LONG, at(3_600), true);
        lately.count(LONG, at(3_630), false);
        assert_eq!(lately.sum(LONG, at(3_659)), (2, 1));
        assert_eq!(lately.sum(LONG, at(3_660)), (1, 0));
        assert_eq!(lately.sum(LONG, at(3_690)), (0, 0));
    }

    /// The tenths of a longer time have smaller numbers, and nothing was forgotten before those were as large again.
    #[test]
    fn what_counts_for_another_time_begins_anew() {
        for (before, after) in [(SHORT, LONG), (LONG, SHORT)] {
            let mut lately = Slots::default();
            lately.count(before, at(3_600), true);
            assert_eq!(lately.sum(after, at(3_600)), (0, 0), "{before:?} {after:?}");
            lately.count(after, at(3_600), true);
            assert_eq!(lately.sum(after, at(3_600)), (1, 1), "{before:?} {after:?}");
            assert_eq!(lately.sum(after, at(3_660)), (0, 0), "{before:?} {after:?}");
        }
    }
}
