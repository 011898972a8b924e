//! What a call costs: in requests, and in the units that the rules declare.

use super::random::Random;
use super::setup::Traffic;
use crate::engine::Charge;

/// How many declared units a scenario has room for: every call carries its cost in each.
pub(crate) const MOST_UNITS: usize = 3;

/// What a call takes from limits that count different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) requests: u32,
    /// By position in the rules' `units`.
    pub(crate) units: [u32; MOST_UNITS],
}

impl Cost {
    /// One request and nothing else.
    pub(crate) const ONE: Self = Self { requests: 1, units: [0; MOST_UNITS] };

    /// What some traffic's next call costs. What is not a range is not drawn.
    pub(crate) fn drawn(random: &mut Random, traffic: &Traffic) -> Self {
        let requests = between(random, traffic.cost);
        Self { requests, units: traffic.units.map(|range| between(random, range)) }
    }

    /// Whether it has room wherever another one has: it is nowhere larger.
    pub(crate) fn fits_like(self, other: Self) -> bool {
        self.requests <= other.requests && self.units.iter().zip(other.units).all(|(own, other)| *own <= other)
    }

    /// The smaller one in each of what limits count.
    pub(crate) fn least(self, other: Self) -> Self {
        let mut units = self.units;
        units.iter_mut().zip(other.units).for_each(|(own, other)| *own = other.min(*own));
        Self { requests: self.requests.min(other.requests), units }
    }

    /// So many of what a limit counts.
    pub(crate) fn of_charge(charge: Charge, many: u32) -> Self {
        let mut cost = Self { requests: many, ..Self::ONE };
        if let Charge::Unit(unit) = charge
            && let Some(place) = cost.units.get_mut(unit)
        {
            *place = many;
        }
        cost
    }

    /// What a limit that counts `charge` takes.
    pub(crate) fn of(self, charge: Charge) -> u32 {
        match charge {
            Charge::Attempt => 1,
            Charge::Requests => self.requests.max(1),
            Charge::Unit(unit) => self.units.get(unit).copied().unwrap_or(0),
        }
    }

    /// What it takes of a turn, where turns are measured in `fair_by`: nothing is for free there.
    pub(crate) fn of_turn(self, fair_by: Charge) -> u32 {
        self.of(fair_by).max(1)
    }

    /// The units up to the last that it costs anything of.
    pub(crate) fn units(&self) -> &[u32] {
        let last = self.units.iter().rposition(|&cost| cost > 0);
        &self.units[..last.map_or(0, |last| last + 1)]
    }
}

fn between(random: &mut Random, (low, high): (u32, u32)) -> u32 {
    if low == high {
        return low;
    }
    u32::try_from(random.between(low.into(), high.into())).unwrap_or(high)
}
