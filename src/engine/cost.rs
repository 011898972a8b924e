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
    #[inline]
    pub(crate) fn of(self, charge: Charge) -> u32 {
        match charge {
            Charge::Attempt => 1,
            Charge::Requests => self.requests,
            Charge::Unit(unit) => self.units.get(unit).copied().unwrap_or(0),
        }
    }

    /// What it takes of a turn: nothing is for free there.
    #[inline]
    pub(crate) fn of_turn(self, fair_by: Charge) -> u32 {
        self.of(fair_by).max(1)
    }

    /// What it costs in requests, if it costs nothing else.
    pub(crate) const fn in_requests(self) -> Option<u32> {
        if self.units.is_empty() { Some(self.requests) } else { None }
    }

    /// Whether it costs one request and nothing else, as most do.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.requests == 1 && self.units.is_empty()
    }
}

/// The costs of a request in the machine. Most have none in units, and that takes one word.
#[derive(Debug)]
pub(crate) struct OwnCosts {
    asked: u32,
    requests: u32,
    units: Option<Box<Units>>,
}

#[derive(Debug)]
struct Units {
    costs: Box<[u32]>,
    /// What was asked for, once something else was found out.
    asked: Option<Box<[u32]>>,
}

impl OwnCosts {
    pub(crate) fn new(costs: Costs<'_>) -> Self {
        let units = || Box::new(Units { costs: costs.units.into(), asked: None });
        let units = (!costs.units.is_empty()).then(units);
        Self { asked: costs.requests, requests: costs.requests, units }
    }

    pub(crate) fn get(&self) -> Costs<'_> {
        Costs { requests: self.requests, units: self.units.as_deref().map_or(&[], |units| &units.costs) }
    }

    /// The cost in one unit turned out to be another. Returns what it was.
    pub(crate) fn set(&mut self, charge: Charge, actual: u32) -> u32 {
        match charge {
            Charge::Attempt => 1,
            Charge::Requests => std::mem::replace(&mut self.requests, actual),
            Charge::Unit(unit) => {
                let none = || Box::new(Units { costs: Box::default(), asked: None });
                let Units { costs, asked } = &mut **self.units.get_or_insert_with(none);
                asked.get_or_insert_with(|| costs.clone());
                if costs.len() <= unit {
                    let mut longer = std::mem::take(costs).into_vec();
                    longer.resize(unit + 1, 0);
                    *costs = longer.into();
                }
                std::mem::replace(&mut costs[unit], actual)
            }
        }
    }

    /// For another attempt: as much as the last one turned out to cost, and no less than was asked for.
    pub(crate) fn at_least_asked(&mut self) {
        self.requests = self.requests.max(self.asked);
        if let Some(units) = &mut self.units
            && let Some(asked) = &units.asked
        {
            units.costs.iter_mut().zip(asked).for_each(|(cost, &asked)| *cost = asked.max(*cost));
        }
    }

    /// What was asked for.
    pub(crate) fn as_asked(&mut self) {
        self.requests = self.asked;
        if let Some(units) = &mut self.units
            && let Some(asked) = units.asked.take()
        {
            units.costs = asked;
        }
    }
}
