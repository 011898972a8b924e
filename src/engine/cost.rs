//! What a request takes from limits that count different things.

use super::plan::Charge;

/// What a request costs in requests and in each declared unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs<'a> {
    requests: u32,
    units: &'a [u32],
}

impl<'a> Costs<'a> {
    /// The least that a request can cost and need room for everywhere.
    pub(crate) const ONE: Costs<'static> = Costs { requests: 1, units: &[] };

    pub(crate) const fn new(requests: u32, units: &'a [u32]) -> Self {
        // `max` is not const.
        Self { requests: if requests == 0 { 1 } else { requests }, units }
    }

    /// What a limit that counts `charge` takes.
    pub(crate) fn of(self, charge: Charge) -> u32 {
        match charge {
            Charge::Attempt => 1,
            Charge::Requests => self.requests,
            Charge::Unit(unit) => self.units.get(unit).copied().unwrap_or(0),
        }
    }

    /// What it takes of a turn: nothing is for free there.
    pub(crate) fn of_turn(self, fair_by: Charge) -> u32 {
        self.of(fair_by).max(1)
    }

    /// Whether it costs one request and nothing else, as most do.
    pub(crate) const fn is_plain(self) -> bool {
        self.requests == 1 && self.units.is_empty()
    }
}

/// The costs of a request in the machine. Most have none in units, and that takes one word.
#[derive(Debug)]
pub(crate) struct OwnCosts {
    requests: u32,
    units: Option<Box<Box<[u32]>>>,
}

impl OwnCosts {
    pub(crate) fn new(costs: Costs<'_>) -> Self {
        let units = (!costs.units.is_empty()).then(|| Box::new(costs.units.into()));
        Self { requests: costs.requests, units }
    }

    pub(crate) fn get(&self) -> Costs<'_> {
        Costs { requests: self.requests, units: self.units.as_deref().map_or(&[], |units| units) }
    }

    /// The cost in one unit turned out to be another. Returns what it was.
    pub(crate) fn set(&mut self, charge: Charge, actual: u32) -> u32 {
        match charge {
            Charge::Attempt => 1,
            Charge::Requests => std::mem::replace(&mut self.requests, actual),
            Charge::Unit(unit) => {
                let mut units = self.units.take().map_or_else(Vec::new, |units| units.into_vec());
                if units.len() <= unit {
                    units.resize(unit + 1, 0);
                }
                let before = std::mem::replace(&mut units[unit], actual);
                self.units = Some(Box::new(units.into()));
                before
            }
        }
    }
}
