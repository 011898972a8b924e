//! From traffic to calls: who comes when.

use super::cost::Cost;
use super::random::{Random, Zipf};
use super::setup::{Arrivals, Keys, Setup, Traffic, Who};
use crate::engine::{Instant, Nanos};

/// One call that somebody makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) key: u32,
    pub(crate) cost: Cost,
    pub(crate) traffic: u16,
}

/// All calls that do not depend on answers, in order of arrival, and how many keys there are.
pub(crate) fn planned(setup: &Setup, seed: u64) -> (Vec<Call>, u32) {
    let mut calls = Vec::new();
    let mut keys = setup.traffic.iter().map(Traffic::keys_end).max().unwrap_or(0);
    for (index, traffic) in setup.traffic.iter().enumerate() {
        let mut random = Random::new(seed.wrapping_add((index as u64) << 32));
        let whose = Whose::new(traffic.keys);
        let start = Instant::ZERO.saturating_add(traffic.start);
        let mut push = |random: &mut Random, number: u64, at: Instant, traced: Option<(u32, Cost)>| {
            let (key, cost) = traced.unwrap_or_else(|| {
                let key = whose.key(random, number).unwrap_or_else(|| {
                    keys = keys.saturating_add(1);
                    keys - 1
                });
                (key, Cost::drawn(random, traffic))
            });
            calls.push(Call { at, key, cost, traffic: index as u16 });
        };
        match &traffic.arrivals {
            Arrivals::Backlog { calls } => (0..*calls).for_each(|number| push(&mut random, number, start, None)),
            Arrivals::Even { calls, every } => (0..*calls).for_each(|number| {
                push(&mut random, number, start.saturating_add(every.saturating_mul(number)), None);
            }),
            Arrivals::Poisson { calls, span } => {
                for (number, at) in (0..).zip(random.poisson(*calls, start, *span)) {
                    push(&mut random, number, at, None);
                }
            }
            Arrivals::Bursts { calls, size, every } => (0..*calls).for_each(|number| {
                let burst = number / size;
                push(&mut random, number, start.saturating_add(every.saturating_mul(burst)), None);
            }),
            Arrivals::Closed { .. } => (0..whose.keys()).for_each(|number| push(&mut random, number, start, None)),
            Arrivals::Trace(lines) => {
                for (number, line) in (0..).zip(lines.iter()) {
                    let cost = Cost { requests: line.cost, ..Cost::drawn(&mut random, traffic) };
                    push(&mut random, number, start.saturating_add(line.at), Some((line.key, cost)));
                }
            }
        }
    }
    calls.sort_by_key(|call| call.at);
    (calls, keys)
}

impl Traffic {
    /// The first key that it does not have.
    pub(crate) fn keys_end(&self) -> u32 {
        let traced = match &self.arrivals {
            Arrivals::Trace(lines) => lines.iter().map(|line| line.key.saturating_add(1)).max().unwrap_or(0),
            Arrivals::Backlog { .. }
            | Arrivals::Even { .. }
            | Arrivals::Poisson { .. }
            | Arrivals::Bursts { .. }
            | Arrivals::Closed { .. } => 0,
        };
        match self.keys {
            Keys::Own => traced,
            Keys::Some { first, count, .. } => first.saturating_add(count).max(traced),
        }
    }

    /// How long a call waits before it is made again, in a closed loop.
    pub(crate) const fn think(&self) -> Option<Nanos> {
        match self.arrivals {
            Arrivals::Closed { think } => Some(think),
            Arrivals::Backlog { .. }
            | Arrivals::Even { .. }
            | Arrivals::Poisson { .. }
            | Arrivals::Bursts { .. }
            | Arrivals::Trace(_) => None,
        }
    }
}

impl Arrivals {
    /// How many calls are known before anything is answered; in a closed loop none.
    pub(crate) fn calls(&self) -> u64 {
        match self {
            Self::Backlog { calls }
            | Self::Even { calls, .. }
            | Self::Poisson { calls, .. }
            | Self::Bursts { calls, .. } => *calls,
            Self::Closed { .. } => 0,
            Self::Trace(lines) => lines.len() as u64,
        }
    }
}

struct Whose {
    keys: Keys,
    zipf: Option<Zipf>,
}

impl Whose {
    fn new(keys: Keys) -> Self {
        let zipf = match keys {
            Keys::Some { count, who: Who::Zipf, .. } => Some(Zipf::new(count)),
            Keys::Some { who: Who::InTurn | Who::Random, .. } | Keys::Own => None,
        };
        Self { keys, zipf }
    }

    const fn keys(&self) -> u64 {
        match self.keys {
            Keys::Own => 0,
            Keys::Some { count, .. } => count as u64,
        }
    }

    /// The key of call number so and so; `None`: one of its own.
    fn key(&self, random: &mut Random, number: u64) -> Option<u32> {
        let Keys::Some { first, count, who } = self.keys else { return None };
        let offset = match who {
            Who::InTurn => (number % u64::from(count.max(1))) as u32,
            Who::Random => random.below(u64::from(count.max(1))) as u32,
            Who::Zipf => self.zipf.as_ref().map_or(0, |zipf| zipf.draw(random)),
        };
        Some(first.saturating_add(offset))
    }
}
