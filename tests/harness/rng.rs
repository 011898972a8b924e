use request_balancer::engine::{Instant, Nanos};

/// SplitMix64: the same numbers for the same seed, everywhere.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
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
        low + self.below(high - low + 1)
    }

    /// A Poisson process that has exactly `count` arrivals before `end`: given their number, arrivals of such a process
    /// are independent and uniform. So no logarithm is needed, whose last digits differ between machines.
    pub(crate) fn poisson(&mut self, count: u64, end: Nanos) -> Vec<Instant> {
        let mut arrivals: Vec<_> = (0..count).map(|_| Instant::from_nanos(self.below(end.get()))).collect();
        arrivals.sort_unstable();
        arrivals
    }
}
