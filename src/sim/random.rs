//! Chance without floating point: the same draws for the same seed, everywhere.

use crate::engine::{Instant, Nanos};

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The draws that belong to a place in a run, whoever balances and in whatever order things happen there.
    pub(crate) fn at(seed: u64, place: u64, of: u64) -> Self {
        let mut random = Self(seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ of.rotate_left(32));
        random.draw();
        random
    }

    pub(crate) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A Poisson process that has exactly `count` arrivals in a span: given their number, arrivals of such a process are
    /// independent and uniform. So no logarithm is needed, whose last digits differ between machines.
    pub(crate) fn poisson(&mut self, count: u64, from: Instant, span: Nanos) -> Vec<Instant> {
        let at = |random: &mut Self| from.saturating_add(Nanos::new(random.below(span.get().max(1))));
        let mut arrivals: Vec<_> = (0..count).map(|_| at(self)).collect();
        arrivals.sort_unstable();
        arrivals
    }
}

/// Zipf's law with exponent 1: the key of rank r is drawn in proportion to 1/r.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// Sums of the weights up to each rank.
    sums: Vec<u64>,
}

impl Zipf {
    pub(crate) fn new(ranks: u32) -> Self {
        const FIRST: u64 = 1 << 40;
        let weights = (1..=u64::from(ranks.max(1))).map(|rank| FIRST / rank);
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    /// A rank, from 0.
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let all = self.sums.last().copied().unwrap_or(1);
        let drawn = random.below(all);
        self.sums.partition_point(|&sum| sum <= drawn) as u32
    }
}
