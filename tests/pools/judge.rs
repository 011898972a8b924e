//! What must be true at any time.

use request_balancer::engine::{BreakerState, EndpointId, Instant};

use super::{EACH_KEY, KEYS, Numbers, OVERALL, Open, RULES, Request, SECOND, Seat, Stage, World};

impl World {
    pub(crate) fn allows(&self, request: &Request, id: EndpointId) -> bool {
        let fits = request.cost <= self.endpoints[usize::from(id.0)].numbers.each;
        fits && (request.among.is_empty() || request.among.contains(&id))
    }

    /// Whether an endpoint is there that a request may use and that is large enough for it.
    pub(crate) fn fits(&self, cost: u64, among: &[EndpointId]) -> bool {
        let allowed = |id: &EndpointId| among.is_empty() || among.contains(id);
        let all = self.ids().zip(&self.endpoints).filter(|(id, endpoint)| !endpoint.removed && allowed(id));
        all.into_iter().any(|(_, endpoint)| endpoint.numbers.each >= cost)
    }

    /// Whether an endpoint is enabled and not open that the request may use.
    pub(crate) fn usable_ever(&self, request: &Request) -> bool {
        self.ids().any(|id| self.allows(request, id) && !self.is_out(id))
    }

    pub(crate) fn is_out(&self, id: EndpointId) -> bool {
        let endpoint = &self.endpoints[usize::from(id.0)];
        endpoint.removed || endpoint.disabled || endpoint.open.is_some_and(|open| open.until > self.now)
    }

    /// Every seat that is taken, but that of one request.
    fn seats(&self, but: usize) -> impl Iterator<Item = (&Request, Seat)> {
        let others = self.requests.iter().enumerate().filter(move |(number, _)| *number != but);
        others.filter_map(|(_, request)| match request.stage {
            Stage::Granted(seat) | Stage::Runs(seat) => Some((request, seat)),
            Stage::Waits | Stage::Asleep | Stage::Out(_) | Stage::Over => None,
        })
    }

    /// Probes of the present half-open time that are under way.
    pub(crate) fn probing(&self, but: usize, id: EndpointId) -> impl Iterator<Item = u64> {
        let epoch = self.endpoints[usize::from(id.0)].epoch;
        self.seats(but).filter(move |(_, seat)| seat.at == id && seat.epoch == epoch).filter_map(|(_, seat)| seat.probe)
    }

    /// What counts in a window: starts of the last second, and what is granted and not taken up.
    fn in_window(&self, but: usize, counts: impl Fn(EndpointId, u64) -> bool) -> u64 {
        let starts = self
            .ids()
            .zip(&self.endpoints)
            .flat_map(|(id, endpoint)| endpoint.starts.iter().map(move |&(at, key, cost)| (id, at, key, cost)));
        let started: u64 = starts
            .filter(|&(id, at, key, _)| at + SECOND > self.now && counts(id, key))
            .map(|(_, _, _, cost)| cost)
            .sum();
        let granted = self.seats(but).filter(|(request, _)| matches!(request.stage, Stage::Granted(_)));
        started
            + granted
                .filter(|(request, seat)| counts(seat.at, request.key))
                .map(|(request, _)| request.cost)
                .sum::<u64>()
    }

    /// Why a start of the request would be wrong now, wherever.
    fn objection_anywhere(&self, number: usize) -> Option<String> {
        let request = &self.requests[number];
        let Request { rule, key, .. } = *request;
        let held = [
            self.holds.all,
            self.holds.rules.get(&rule).copied().unwrap_or(0),
            self.holds.keys.get(&key).copied().unwrap_or(0),
            self.holds.queues.get(&(rule, key)).copied().unwrap_or(0),
        ];
        if let Some(until) = held.into_iter().find(|until| *until > self.now) {
            return Some(format!("held until {until}"));
        }
        let full = self.in_window(number, |_, _| true) + request.cost > OVERALL;
        full.then(|| "the window over all is full".into())
    }

    /// Whether an endpoint is healthy: enabled, not held, its breaker closed.
    fn is_healthy(&self, id: EndpointId) -> bool {
        let endpoint = &self.endpoints[usize::from(id.0)];
        !endpoint.removed && !endpoint.disabled && endpoint.held <= self.now && endpoint.open.is_none()
    }

    /// Those that a key that stays where it is chooses from.
    fn choice(&self, request: &Request) -> Vec<EndpointId> {
        let fresh = |id: &EndpointId| !request.tried.contains(id) || request.again == Some(*id);
        self.ids().filter(|id| self.allows(request, *id) && self.is_healthy(*id) && fresh(id)).collect()
    }

    /// Whether keys that stay where they are may try one of the endpoints again: who does so hangs on who came first.
    fn is_tried_again(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.open.is_some_and(|open| open.until <= self.now))
    }

    /// Where a key that stays has to go now, if that is known from when all was well.
    fn home(&self, number: usize) -> Option<EndpointId> {
        let request = &self.requests[number];
        // Whether a probe that is given up for lost makes place for another one at once is not known here.
        let is_lost = |id: EndpointId| {
            let open = self.endpoints[usize::from(id.0)].open;
            let since = |open: Open| self.now.saturating_sub(open.length.max(self.setup.reset));
            open.is_some_and(|open| self.probing(number, id).any(|begun| begun <= since(open)))
        };
        if self.ids().any(is_lost) {
            return None;
        }
        let may_try = |id: &EndpointId| {
            let endpoint = &self.endpoints[usize::from(id.0)];
            let is_there = !endpoint.removed && !endpoint.disabled && endpoint.held <= self.now;
            let tries = |open: Open| {
                open.until <= self.now && (self.probing(number, *id).count() as u32 + endpoint.passed) < open.probes
            };
            is_there && endpoint.open.is_none_or(tries)
        };
        let fresh = |id: &EndpointId| !request.tried.contains(id) || request.again == Some(*id);
        let choice = self.ids().filter(|id| self.allows(request, *id) && may_try(id) && fresh(id)).collect();
        self.homes.get(&(request.key, choice)).copied()
    }

    /// Why a start of the request on an endpoint would be wrong now.
    pub(crate) fn objection(&self, number: usize, id: EndpointId) -> Option<String> {
        let request = &self.requests[number];
        let endpoint = &self.endpoints[usize::from(id.0)];
        if endpoint.removed || endpoint.disabled {
            return Some("it is gone".into());
        }
        if endpoint.held > self.now {
            return Some(format!("it is held until {}", endpoint.held));
        }
        match endpoint.open {
            Some(open) if open.until > self.now => return Some(format!("it is open until {}", open.until)),
            Some(open) if self.probing(number, id).count() as u32 + endpoint.passed >= open.probes => {
                return Some("it is probed".into());
            }
            Some(_) | None => {}
        }
        if !self.allows(request, id) {
            return Some("it is none of those that the request may use".into());
        }
        if request.tried.contains(&id) && request.barred > self.now && request.again != Some(id) {
            return Some(format!("it was there and does not come back before {}", request.barred));
        }
        let Numbers { each, at_once, .. } = endpoint.numbers;
        if self.seats(number).filter(|(_, seat)| seat.at == id).count() as u64 >= at_once {
            return Some("it is full".into());
        }
        if self.in_window(number, |at, _| at == id) + request.cost > each {
            return Some("its window is full".into());
        }
        if self.in_window(number, |at, key| at == id && key == request.key) + request.cost > EACH_KEY {
            return Some("the key's window on it is full".into());
        }
        if self.setup.sticky && !self.is_tried_again() {
            let choice = self.choice(request);
            let home = self.homes.get(&(request.key, choice.clone()));
            if home.is_some_and(|home| *home != id) || (!choice.is_empty() && !choice.contains(&id)) {
                return Some(format!("the key stays with {home:?} of {choice:?}"));
            }
        }
        self.objection_anywhere(number)
    }

    /// A key goes to the same endpoint whenever it has the same choice, and keeps to it when others go.
    pub(crate) fn note_home(&mut self, number: usize, id: EndpointId) {
        let request = &self.requests[number];
        let (key, choice) = (request.key, self.choice(request));
        if !self.setup.sticky || choice.is_empty() || self.is_tried_again() {
            return;
        }
        for ((of, among), home) in &self.homes {
            let fewer = choice.iter().all(|id| among.contains(id)) && choice.contains(home);
            let more = among.iter().all(|id| choice.contains(id)) && among.contains(&id);
            assert!(
                *of != key || !(fewer || more) || *home == id,
                "key {key} of {choice:?}: {id:?}; of {among:?}: {home:?}"
            );
        }
        self.homes.insert((key, choice), id);
    }

    /// Nobody waits who could start, nobody waits for nothing, and the load adds up.
    pub(crate) fn judge(&mut self) {
        let now = self.now;
        for request in &mut self.requests {
            if matches!(request.stage, Stage::Out(until) if until <= now) {
                request.stage = Stage::Waits;
            }
        }
        let waiting: Vec<usize> = (0..self.requests.len())
            .filter(|&number| self.requests[number].stage == Stage::Waits && !self.requests[number].woken)
            .collect();
        // For a costly request that waits one endpoint may be kept, or the room over all.
        let in_line = |request: &&Request| matches!(request.stage, Stage::Waits | Stage::Asleep);
        let costly = self.requests.iter().filter(in_line).map(|request| request.cost).max().filter(|cost| *cost > 1);
        let all_are_kept = costly.is_some_and(|cost| self.in_window(usize::MAX, |_, _| true) + cost > OVERALL);
        for queue in (0..RULES).flat_map(|rule| (0..KEYS).map(move |key| (rule, key))) {
            let in_line = |number: &usize| {
                let request = &self.requests[*number];
                (request.rule, request.key) == queue && matches!(request.stage, Stage::Waits | Stage::Asleep)
            };
            // Of who sleeps or was woken it is not known whether it stands before the others.
            let Some(first) = (0..self.requests.len()).find(in_line) else { continue };
            if all_are_kept || !waiting.contains(&first) {
                continue;
            }
            // Where a key that stays goes is not known before it was there.
            let request = &self.requests[first];
            let meant: Vec<EndpointId> = if !self.setup.sticky {
                self.ids().collect()
            } else if self.is_tried_again() {
                // Whoever belongs to one that is tried has to try it, and goes elsewhere while others do.
                self.home(first).into_iter().collect()
            } else {
                let choice = self.choice(request);
                let is_known = choice.is_empty() || self.homes.contains_key(&(request.key, choice));
                self.ids().filter(|_| is_known).collect()
            };
            let free: Vec<EndpointId> = meant.into_iter().filter(|id| self.objection(first, *id).is_none()).collect();
            assert!(
                free.len() <= usize::from(costly.is_some()),
                "request {first} could start on {free:?} at {now}: {request:?}"
            );
        }
        for number in waiting {
            let request = &self.requests[number];
            assert!(self.usable_ever(request), "request {number} waits for nothing at {now}: {request:?}");
            assert!(
                request.deadline.is_none_or(|at| at > now),
                "request {number} waits too long at {now}: {request:?}"
            );
        }
        for snapshot in self.machine.endpoints(self.at()) {
            let there = |request: &&Request| matches!(request.stage, Stage::Granted(seat) | Stage::Runs(seat) if seat.at == snapshot.endpoint);
            let live = self.requests.iter().filter(there);
            let running = live.clone().filter(|request| matches!(request.stage, Stage::Runs(_))).count();
            assert_eq!((snapshot.in_flight as usize, snapshot.live as usize), (running, live.count()), "at {now}");
            let endpoint = &self.endpoints[usize::from(snapshot.endpoint.0)];
            let expected = match endpoint.open {
                None => BreakerState::Closed,
                Some(open) if open.until > now => BreakerState::Open { until: Instant::from_millis(open.until) },
                Some(_) => BreakerState::HalfOpen,
            };
            assert_eq!(snapshot.breaker, expected, "{:?} at {now}", snapshot.endpoint);
            assert_eq!(snapshot.disabled, endpoint.disabled);
        }
    }

    /// Which endpoint a request has to get that starts at once, by those that it could get; `None`: by what is not known
    /// here.
    pub(crate) fn assert_choice(&self, number: usize, could: &[EndpointId], got: EndpointId) {
        let request = &self.requests[number];
        let position = |id: &EndpointId| usize::from(id.0);
        let load = |id: &EndpointId| {
            let live = self.seats(number).filter(|(_, seat)| seat.at == *id).count() as u64;
            (live << 31) / u64::from(self.endpoints[position(id)].numbers.weight)
        };
        let rank = |id: &EndpointId| {
            let is_probe = self.endpoints[position(id)].open.is_some();
            let score = match self.setup.choose {
                "least-loaded" => load(id),
                "in-order" => u64::from(id.0),
                _ => 0,
            };
            (request.tried.contains(id), !is_probe, score)
        };
        let best = could.iter().map(rank).min();
        assert!(could.contains(&got) && Some(rank(&got)) == best, "{got:?} of {could:?}: {request:?}");
    }
}
