//! Which limits the server's windows narrowed lately: to look for one among all of a request's costs more than the rest
//! of an observation, and what it finds follows from the rules and the window alone.

use super::observe::{ServerWindow, Side, Spot};
use super::plan::Charge;
use super::pool::EndpointId;
use super::time::Nanos;

/// How many are remembered: a handful of rules and endpoints, each with a few windows. With more of them in turn each is
/// looked for anew.
const KNOWN: usize = 16;

/// What was found lately, under one plan and for keys without numbers of their own.
#[derive(Debug, Default)]
pub(super) struct Spots {
    known: Vec<Known>,
    /// The one that is forgotten next.
    oldest: usize,
}

#[derive(Debug)]
struct Known {
    rule: u16,
    endpoint: Option<EndpointId>,
    charge: Charge,
    side: Option<Side>,
    limit: Option<u32>,
    per: Option<Nanos>,
    name: String,
    spot: Option<Spot>,
}

impl Spots {
    /// The limit that such a window narrowed last time, if it was met lately.
    pub(super) fn get(
        &self,
        rule: u16,
        endpoint: Option<EndpointId>,
        window: &ServerWindow<'_>,
    ) -> Option<Option<Spot>> {
        let &ServerWindow { name, charge, side, limit, per, .. } = window;
        let is_it = |known: &&Known| {
            known.rule == rule
                && known.limit == limit
                && known.per == per
                && known.charge == charge
                && known.side == side
                && known.endpoint == endpoint
                && *known.name == *name
        };
        self.known.iter().find(is_it).map(|known| known.spot)
    }

    /// Remembers one that was not known.
    pub(super) fn note(
        &mut self,
        rule: u16,
        endpoint: Option<EndpointId>,
        window: &ServerWindow<'_>,
        spot: Option<Spot>,
    ) {
        let &ServerWindow { name, charge, side, limit, per, .. } = window;
        let mut text = String::new();
        if self.known.len() == KNOWN {
            // Its memory is used again: names that change all the time are no reason to allocate.
            text = std::mem::take(&mut self.known[self.oldest].name);
            text.clear();
        }
        text.push_str(name);
        let known = Known { rule, endpoint, charge, side, limit, per, name: text, spot };
        if self.known.len() < KNOWN {
            self.known.push(known);
        } else {
            self.known[self.oldest] = known;
            self.oldest = (self.oldest + 1) % KNOWN;
        }
    }

    /// Other rules are in force.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(name: &str, limit: u32) -> ServerWindow<'_> {
        let (charge, limit) = (Charge::Requests, Some(limit));
        ServerWindow { name, charge, side: None, limit, left: Some(3), per: None, reset: None }
    }

    #[test]
    fn what_it_depends_on_tells_it_apart_and_what_is_left_does_not() {
        let mut spots = Spots::default();
        spots.note(1, None, &window("core", 60), Some(Spot::Own(0)));
        assert_eq!(spots.get(1, None, &ServerWindow { left: None, ..window("core", 60) }), Some(Some(Spot::Own(0))));
        assert_eq!(spots.get(2, None, &window("core", 60)), None);
        assert_eq!(spots.get(1, Some(EndpointId(0)), &window("core", 60)), None);
        assert_eq!(spots.get(1, None, &window("search", 60)), None);
        assert_eq!(spots.get(1, None, &window("core", 61)), None);
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut spots = Spots::default();
        for limit in 0..40 {
            spots.note(0, None, &window("core", limit), None);
        }
        assert_eq!(spots.known.len(), KNOWN);
        assert_eq!(spots.get(0, None, &window("core", 24)), Some(None));
        assert_eq!(spots.get(0, None, &window("core", 23)), None);
    }
}
