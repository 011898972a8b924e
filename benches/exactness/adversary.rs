//! Callers who try to get one call too many into a window of `20/60s`.

use std::time::Duration;

use crate::harness::Rng;

/// After this nothing more is asked of anybody.
pub(crate) const END: Duration = Duration::from_secs(3_600);

const SECOND: u64 = 1_000;
const WINDOW: u64 = 60 * SECOND;

/// When callers come, and for how long whoever should poll them does not.
#[derive(Clone, Debug)]
pub(crate) struct Adversary {
    pub(crate) name: &'static str,
    /// Milliseconds, in order.
    pub(crate) arrivals: Vec<u64>,
    /// Whether nothing is polled for up to ten windows, again and again.
    pub(crate) stalls: bool,
}

impl Adversary {
    /// All of them. The first is the greedy one.
    pub(crate) fn all() -> Vec<Self> {
        let mut rng = Rng::new(20);
        let random = (0..1_800).map(|_| rng.below(END.as_secs() * SECOND));
        let bursts = (0..24).flat_map(|burst| (0..60).map(move |call| burst * 150 * SECOND + call * 100));
        let edges = (0..12).flat_map(|edge| {
            let start = edge * 300 * SECOND;
            let (before, after) = (start + WINDOW - 1, start + WINDOW);
            [(start, 1), (before, 19), (after, 20), (after + 1, 20)].into_iter().flat_map(repeat)
        });
        let just_in_time = (0..60)
            .flat_map(|turn| [(turn * WINDOW, 10), (turn * WINDOW + WINDOW / 2, 10)].into_iter().flat_map(repeat));
        // A little faster than one in three seconds.
        let drip = (0..1_204).map(|call| call * 2_990);
        let herds = [(0, 300), (30 * WINDOW, 300)].into_iter().flat_map(repeat);
        [
            ("greedy", repeat((0, 1_500)).collect(), false),
            ("bursts", bursts.collect(), false),
            ("window's edge", edges.collect(), false),
            ("just in time", just_in_time.collect(), false),
            ("drip", drip.collect(), false),
            ("herd", herds.collect(), false),
            ("random", random.collect::<Vec<_>>(), false),
            ("stalls", repeat((0, 1_500)).collect(), true),
        ]
        .into_iter()
        .map(|(name, mut arrivals, stalls)| {
            arrivals.sort_unstable();
            Self { name, arrivals, stalls }
        })
        .collect()
    }
}

/// How long the executor stalls, from the same draws each time: every other time not at all.
pub(crate) fn stalls() -> impl FnMut() -> Duration {
    let mut rng = Rng::new(60);
    move || match rng.below(8) {
        0 => Duration::from_millis(rng.below(10 * WINDOW)),
        1 | 2 => Duration::from_millis(rng.below(WINDOW)),
        3 => Duration::from_millis(rng.below(2 * SECOND)),
        _ => Duration::ZERO,
    }
}

fn repeat((at, times): (u64, usize)) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(at, times)
}
