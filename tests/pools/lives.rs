//! What happens to endpoints from outside: they come, go, rest, are held, get other numbers and are renewed.

use request_balancer::engine::{EndpointId, Instant, Target};
use request_balancer::{EndpointRules, Nanos};

use super::{ENDPOINTS, Endpoint, NUMBERS, Numbers, Request, SECOND, Stage, World};

impl Endpoint {
    pub(crate) fn new(name: &str, numbers: Numbers) -> Self {
        Self {
            name: name.to_owned(),
            numbers,
            life: 0,
            removed: false,
            disabled: false,
            held: 0,
            failed_in_a_row: 0,
            open: None,
            passed: 0,
            epoch: 0,
            starts: Vec::new(),
        }
    }
}

impl World {
    /// Whether a running request's endpoint is the one that its attempt began with.
    pub(crate) fn is_the_same(&self, number: usize) -> bool {
        let Stage::Runs(seat) = self.requests[number].stage else { panic!("it runs") };
        let is_the_same = self.endpoints[usize::from(seat.at.0)].life == seat.life;
        let lasting = self.machine.lasting_endpoint_of(self.requests[number].id);
        assert_eq!(lasting, is_the_same.then_some(seat.at));
        is_the_same
    }

    /// Somebody changes something from outside.
    pub(crate) fn change(&mut self) {
        self.upheavals += 1;
        let now = self.at();
        let id = EndpointId(self.random.below(self.endpoints.len() as u64) as u16);
        match self.random.below(13) {
            0 => {
                self.endpoint(id).disabled = true;
                self.machine.disable_endpoint(now, id);
            }
            1 | 2 => {
                self.endpoint(id).disabled = false;
                self.machine.enable_endpoint(now, id);
            }
            3 => {
                let until = self.now + self.random.between(1, 3_000);
                self.note_hold(Target::Endpoint(id), 0, until);
                self.taken_back(Target::Endpoint(id), 0);
                self.machine.hold(now, Target::Endpoint(id), Instant::from_millis(until));
            }
            4 => {
                self.endpoint(id).held = 0;
                self.machine.release(now, Target::Endpoint(id));
            }
            5 => {
                if self.endpoint(id).open.is_some() {
                    self.close(id);
                }
                self.machine.close_breaker(now, id);
            }
            6 => {
                let length = self.random.below(3) * self.random.below(1_000);
                self.open(id, length, self.setup.probes);
                self.machine.open_breaker(now, id, Nanos::from_millis(length));
            }
            7 => {
                self.holds.all = 0;
                self.machine.release(now, Target::Overall);
            }
            8 => {
                self.renewed(id);
                self.machine.renew_endpoint(now, id);
            }
            9 => {
                let numbers = NUMBERS[self.random.below(NUMBERS.len() as u64) as usize];
                let mut there = self.there();
                let name = self.endpoint(id).name.clone();
                if let Some((_, known)) = there.iter_mut().find(|(known, _)| *known == name) {
                    *known = numbers;
                }
                self.replace(there);
            }
            _ => self.come_or_go(id),
        }
        self.sync();
    }

    /// One that is there goes, or one that went comes back, or another one comes.
    fn come_or_go(&mut self, id: EndpointId) {
        let mut there = self.there();
        let name = self.endpoint(id).name.clone();
        if let Some(place) = there.iter().position(|(known, _)| *known == name) {
            there.remove(place);
        } else if there.len() < ENDPOINTS {
            let numbers = NUMBERS[self.random.below(NUMBERS.len() as u64) as usize];
            let is_new = self.random.below(2) == 0;
            let new = format!("e{}", self.names);
            self.names += usize::from(is_new);
            there.push((if is_new { new } else { name }, numbers));
        }
        self.replace(there);
    }

    /// Another one comes behind the name of an endpoint.
    fn renewed(&mut self, id: EndpointId) {
        self.close(id);
        let endpoint = self.endpoint(id);
        (endpoint.held, endpoint.disabled) = (0, false);
        endpoint.life += 1;
    }

    fn there(&self) -> Vec<(String, Numbers)> {
        let there = self.endpoints.iter().filter(|endpoint| !endpoint.removed);
        there.map(|endpoint| (endpoint.name.clone(), endpoint.numbers)).collect()
    }

    /// Whether nothing is left of an endpoint that is gone.
    fn is_vacant(&self, id: EndpointId) -> bool {
        let endpoint = &self.endpoints[usize::from(id.0)];
        let knows = |request: &Request| match request.stage {
            Stage::Over => false,
            Stage::Granted(seat) | Stage::Runs(seat) if seat.at == id => true,
            Stage::Granted(_) | Stage::Runs(_) | Stage::Waits | Stage::Asleep | Stage::Out(_) => {
                request.among.contains(&id)
                    || request.tried.contains(&id)
                    || [request.again, request.charged].contains(&Some(id))
            }
        };
        let counts = endpoint.starts.iter().any(|(at, ..)| at + SECOND > self.now);
        endpoint.removed && !counts && !self.requests.iter().any(knows)
    }

    /// Goes over to rules with these endpoints.
    pub(crate) fn replace(&mut self, there: Vec<(String, Numbers)>) {
        self.upheavals += 1;
        let vacant: Vec<EndpointId> = self.ids().filter(|id| self.is_vacant(*id)).collect();
        let rules = there.iter().map(|(name, Numbers { each, at_once, weight })| {
            let quota = format!("{each}/1s").parse().expect("a quota");
            (name.clone(), EndpointRules::new().weight(*weight).concurrency(*at_once as u32).overall(quota))
        });
        let rules = self.rules.with_endpoints(rules).expect("good names");
        let plan = self.machine.succeeding(self.at(), (*rules.plan()).clone());
        let pool = plan.pool.clone().expect("there is a pool");
        self.machine.replace(self.at(), plan.into());
        for (id, plan) in (0..).map(EndpointId).zip(&pool.endpoints) {
            let numbers = there.iter().find(|(name, _)| **name == *plan.name).map(|(_, numbers)| *numbers);
            assert_eq!(plan.removed, numbers.is_none(), "{id:?} at {}", self.now);
            let known = self.endpoints.get(usize::from(id.0)).cloned();
            let known = known.filter(|known| *known.name == *plan.name);
            if known.as_ref().is_none_or(|known| numbers.is_some_and(|numbers| numbers != known.numbers)) {
                // Where keys go hangs on names and weights.
                self.homes.retain(|(_, among), _| !among.contains(&id));
            }
            match (known, numbers) {
                (Some(known), numbers) => {
                    if known.removed && numbers.is_some() {
                        self.renewed(id);
                    }
                    let endpoint = self.endpoint(id);
                    endpoint.removed = numbers.is_none();
                    endpoint.numbers = numbers.unwrap_or(endpoint.numbers);
                }
                (None, Some(numbers)) if usize::from(id.0) < self.endpoints.len() => {
                    assert!(vacant.contains(&id), "{id:?} was another's at {}", self.now);
                    self.tally.handed_on += 1;
                    *self.endpoint(id) = Endpoint::new(&plan.name, numbers);
                }
                (None, Some(numbers)) => {
                    let used = |id: &EndpointId| !self.endpoints[usize::from(id.0)].removed;
                    assert!(vacant.iter().all(used), "{vacant:?} and a place more at {}", self.now);
                    self.endpoints.push(Endpoint::new(&plan.name, numbers));
                }
                (None, None) => panic!("{id:?} is gone and was not known"),
            }
        }
        self.sync();
    }
}
