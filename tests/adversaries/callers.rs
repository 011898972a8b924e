//! Callers who try to get one call too many into a quota.

use crate::harness::Rng;

/// What they are up against: `count` in `period` milliseconds, for so many periods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) count: u64,
    pub(crate) period: u64,
    /// A multiple of 60. After that nothing more is asked of anybody.
    pub(crate) periods: u64,
}

/// When callers come, and for how long whoever should poll them does not.
#[derive(Clone, Debug)]
pub(crate) struct Adversary {
    pub(crate) name: &'static str,
    /// Milliseconds, in order.
    pub(crate) arrivals: Vec<u64>,
    /// Whether nothing is polled for up to ten periods, again and again.
    pub(crate) stalls: bool,
}

impl Target {
    /// Milliseconds.
    pub(crate) const fn end(self) -> u64 {
        self.period * self.periods
    }

    /// All eight. The first is the greedy one.
    pub(crate) fn adversaries(self) -> Vec<Adversary> {
        let Self { count, period, periods } = self;
        let mut rng = Rng::new(20);
        let random = (0..periods * count * 3 / 2).map(|_| rng.below(self.end()));
        let bursts = (0..periods * 2 / 5)
            .flat_map(|burst| (0..3 * count).map(move |call| burst * period * 5 / 2 + call * period / 600));
        let edges = (0..periods / 5).flat_map(|edge| {
            let start = edge * 5 * period;
            let (before, after) = (start + period - 1, start + period);
            [(start, 1), (before, count - 1), (after, count), (after + 1, count)].into_iter().flat_map(repeat)
        });
        let just_in_time = (0..periods).flat_map(|turn| {
            let half = count / 2;
            [(turn * period, count - half), (turn * period + period / 2, half)].into_iter().flat_map(repeat)
        });
        // A little faster than the quota.
        let step = period / count - (period / 6_000).max(1);
        let drip = (0..self.end().div_ceil(step)).map(|call| call * step);
        let herd = count * periods / 4;
        let herds = [(0, herd), (periods / 2 * period, herd)].into_iter().flat_map(repeat);
        let greedy = || repeat((0, periods * count * 5 / 4)).collect();
        [
            ("greedy", greedy(), false),
            ("bursts", bursts.collect(), false),
            ("window's edge", edges.collect(), false),
            ("just in time", just_in_time.collect(), false),
            ("drip", drip.collect(), false),
            ("herd", herds.collect(), false),
            ("random", random.collect::<Vec<_>>(), false),
            ("stalls", greedy(), true),
        ]
        .into_iter()
        .map(|(name, mut arrivals, stalls)| {
            arrivals.sort_unstable();
            Adversary { name, arrivals, stalls }
        })
        .collect()
    }

    /// For how many milliseconds the executor stalls, from the same draws each time: every other time not at all.
    pub(crate) fn stalls(self) -> impl FnMut() -> u64 {
        let mut rng = Rng::new(60);
        move || match rng.below(8) {
            0 => rng.below(10 * self.period),
            1 | 2 => rng.below(self.period),
            3 => rng.below(self.period / 30),
            _ => 0,
        }
    }
}

fn repeat((at, times): (u64, u64)) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(at, usize::try_from(times).expect("few calls"))
}
