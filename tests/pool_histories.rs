//! Random histories of pools on the engine's own time, against a slow model that knows nothing but lists: who may be
//! used, that whoever could start has started, that load adds up, who is refused.

#[path = "harness/rng.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod rng;

use std::collections::BTreeMap;

use request_balancer::engine::{
    BreakerState, Claim, Elsewhere, EndpointId, Enter, Entry, Instant, KeyId, Report, RequestId, RuleId, Scheduler,
    Target, Turned, Why,
};
use request_balancer::{EndpointRules, Rules};
use rng::Rng;

const SECOND: u64 = 1_000;
/// The numbers of the rules below.
const OVERALL: (usize, u64) = (12, SECOND);
const EACH: (usize, u64) = (4, SECOND);
const EACH_KEY: (usize, u64) = (2, SECOND);
const CONCURRENCY: usize = 3;
const FAILURES: u32 = 2;
const RESET: u64 = 3 * SECOND;
const ENDPOINTS: usize = 4;
const KEYS: u64 = 5;

fn rules(choose: &str, failover: &str, probes: u32) -> Rules {
    format!(
        "overall = '12/1s'\n[pool]\nendpoints = ['e0', 'e1', 'e2', 'e3']\noverall = '4/1s'\nper_key = '2/1s'\n\
         concurrency = 3\nchoose = '{choose}'\nfailover = '{failover}'\n\
         breaker = {{ failures = 2, reset = '3s', jitter = 0, probes = {probes} }}\nexhausted = '5s'"
    )
    .parse()
    .unwrap_or_else(|findings| panic!("{findings}"))
}

/// What the model knows of an endpoint.
#[derive(Clone, Debug, Default)]
struct Endpoint {
    removed: bool,
    disabled: bool,
    held: u64,
    failed_in_a_row: u32,
    /// Since when it is open and until when: then it is half-open.
    open: Option<(u64, u64)>,
    passed: u32,
    /// Changes of the breaker so far.
    epoch: u64,
    /// Start, key.
    starts: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Request {
    id: RequestId,
    key: u64,
    among: Vec<EndpointId>,
    tried: Vec<EndpointId>,
    barred: u64,
    again: Option<EndpointId>,
    charged: Option<EndpointId>,
    stage: Stage,
    woken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Waits,
    /// Until then it is out of line.
    Out(u64),
    Runs {
        at: EndpointId,
        epoch: u64,
        probe: Option<u64>,
    },
    Over,
}

struct World {
    machine: Scheduler<usize>,
    now: u64,
    probes: u32,
    same_first: bool,
    rules: Rules,
    keys: BTreeMap<u64, KeyId>,
    endpoints: Vec<Endpoint>,
    requests: Vec<Request>,
    starts: usize,
    refusals: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let choose = ["least-loaded", "fastest", "in-order", "weighted"][random.below(4) as usize];
        let same_first = random.below(3) == 0;
        let probes = random.between(1, 2) as u32;
        let rules = rules(choose, if same_first { "same-first" } else { "next" }, probes);
        Self {
            machine: Scheduler::new(rules.plan()),
            now: 0,
            probes,
            same_first,
            rules,
            keys: BTreeMap::new(),
            endpoints: vec![Endpoint::default(); ENDPOINTS],
            requests: Vec::new(),
            starts: 0,
            refusals: 0,
        }
    }

    fn at(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn key(&mut self, key: u64) -> KeyId {
        let now = self.at();
        let known = self.keys.get(&key).copied().filter(|id| self.machine.knows(*id));
        let id = known.unwrap_or_else(|| self.machine.add_key(now, key));
        self.keys.insert(key, id);
        id
    }

    fn enter(&mut self, key: u64, among: Vec<EndpointId>) {
        let id = self.key(key);
        let entry = Entry { endpoints: &among, ..Entry::default() };
        let entered = match self.machine.enter(self.at(), id, RuleId(0), entry) {
            Err(Turned::StaleKey) => unreachable!("it was looked up"),
            entered => entered.expect("there is room in line"),
        };
        let (id, started) = match entered {
            Enter::Started(id) => (id, true),
            Enter::Waiting(id) => (id, false),
        };
        let number = self.requests.len();
        let (tried, stage) = (Vec::new(), Stage::Waits);
        self.requests.push(Request {
            id,
            key,
            among,
            tried,
            barred: 0,
            again: None,
            charged: None,
            stage,
            woken: false,
        });
        if started {
            self.started(number);
        } else {
            self.wait(number);
        }
    }

    /// Sees to it that the request is woken, or takes its answer.
    fn wait(&mut self, number: usize) {
        match self.machine.claim(self.at(), self.requests[number].id) {
            Claim::Started { .. } => self.started(number),
            Claim::Waiting => {
                let _none = self.machine.set_waker(self.requests[number].id, number);
            }
            Claim::Refused { why: Why::NoEndpoint, .. } => {
                let request = &self.requests[number];
                let usable = self.usable_ever(request);
                assert!(!usable, "refused although an endpoint comes back: {request:?} {:?}", self.endpoints);
                self.requests[number].stage = Stage::Over;
                self.refusals += 1;
            }
            claim => panic!("{claim:?} for {:?}", self.requests[number]),
        }
    }

    /// Whether an endpoint is enabled and not open that the request may use.
    fn usable_ever(&self, request: &Request) -> bool {
        self.ids().any(|id| self.allows(request, id) && !self.is_out(id))
    }

    fn ids(&self) -> impl Iterator<Item = EndpointId> + use<> {
        (0..self.endpoints.len() as u16).map(EndpointId)
    }

    fn allows(&self, request: &Request, id: EndpointId) -> bool {
        request.among.is_empty() || request.among.contains(&id)
    }

    fn endpoint(&mut self, id: EndpointId) -> &mut Endpoint {
        &mut self.endpoints[usize::from(id.0)]
    }

    fn is_out(&self, id: EndpointId) -> bool {
        let endpoint = &self.endpoints[usize::from(id.0)];
        endpoint.removed || endpoint.disabled || endpoint.open.is_some_and(|(_, until)| until > self.now)
    }

    fn running_on(&self, id: EndpointId) -> usize {
        let on = |request: &&Request| matches!(request.stage, Stage::Runs { at, .. } if at == id);
        self.requests.iter().filter(on).count()
    }

    /// Probes of the present half-open time that are under way, unless they are given up for lost.
    fn probing(&self, id: EndpointId) -> usize {
        let endpoint = &self.endpoints[usize::from(id.0)];
        let probes = self.requests.iter().filter_map(|request| match request.stage {
            Stage::Runs { at, epoch, probe: Some(since) } if at == id && epoch == endpoint.epoch => Some(since),
            Stage::Runs { .. } | Stage::Waits | Stage::Out(_) | Stage::Over => None,
        });
        probes.count()
    }

    /// Why a start of the request on an endpoint would be wrong now.
    fn objection(&self, request: &Request, id: EndpointId) -> Option<String> {
        let endpoint = &self.endpoints[usize::from(id.0)];
        let since = |period: u64| self.now.saturating_sub(period - 1);
        let within = |(count, period): (usize, u64), starts: &mut dyn Iterator<Item = u64>| {
            let begin = if self.now < period { 0 } else { since(period) };
            starts.filter(|at| *at >= begin).count() < count
        };
        if endpoint.removed || endpoint.disabled {
            return Some("it is gone".into());
        }
        if endpoint.held > self.now {
            return Some(format!("it is held until {}", endpoint.held));
        }
        match endpoint.open {
            Some((_, until)) if until > self.now => return Some(format!("it is open until {until}")),
            Some(_) if self.probing(id) + endpoint.passed as usize >= self.probes as usize => {
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
        if self.running_on(id) >= CONCURRENCY {
            return Some("it is full".into());
        }
        if !within(EACH, &mut endpoint.starts.iter().map(|(at, _)| *at)) {
            return Some("its window is full".into());
        }
        let of_key = endpoint.starts.iter().filter(|(_, key)| *key == request.key).map(|(at, _)| *at);
        if !within(EACH_KEY, &mut { of_key }) {
            return Some("the key's window on it is full".into());
        }
        let mut all = self.endpoints.iter().flat_map(|endpoint| &endpoint.starts).map(|(at, _)| *at);
        (!within(OVERALL, &mut all)).then(|| "the window over all is full".into())
    }

    fn started(&mut self, number: usize) {
        let request = self.requests[number].clone();
        let at = self.machine.endpoint_of(request.id).expect("every start has an endpoint");
        // A probe that was given up for lost makes place for another.
        if let Some((_, until)) = self.endpoint(at).open
            && until <= self.now
            && self.probing(at) + self.endpoint(at).passed as usize >= self.probes as usize
        {
            let begun = self.requests.iter().filter_map(|request| match request.stage {
                Stage::Runs { at: there, epoch, probe: Some(since) }
                    if there == at && epoch == self.endpoints[usize::from(at.0)].epoch =>
                {
                    Some(since)
                }
                Stage::Runs { .. } | Stage::Waits | Stage::Out(_) | Stage::Over => None,
            });
            let last = begun.max();
            let length = self.endpoint(at).open.map_or(RESET, |(since, until)| until - since);
            assert!(last.is_some_and(|last| last + length <= self.now), "probed too often");
            self.endpoint(at).epoch += 1;
        }
        let objection = self.objection(&request, at);
        assert_eq!(objection, None, "request {number} on {at:?} at {}: {request:?}", self.now);
        let now = self.now;
        let endpoint = self.endpoint(at);
        endpoint.starts.push((now, request.key));
        let (epoch, probe) = (endpoint.epoch, endpoint.open.map(|_| now));
        let request = &mut self.requests[number];
        request.stage = Stage::Runs { at, epoch, probe };
        request.again = None;
        request.woken = false;
        self.starts += 1;
    }

    fn dispatch(&mut self) {
        self.machine.dispatch(self.at());
        let woken: Vec<usize> = self.machine.take_wakes().drain(..).collect();
        for number in woken {
            self.requests[number].woken = true;
        }
        self.machine.take_evicted().clear();
        self.machine.take_notices().clear();
    }

    /// Everybody who was woken looks how it stands, until nobody is.
    fn settle(&mut self) {
        loop {
            self.dispatch();
            let Some(number) = self.requests.iter().position(|request| request.woken) else { break };
            self.requests[number].woken = false;
            if matches!(self.requests[number].stage, Stage::Waits | Stage::Out(_)) {
                self.wait(number);
            }
        }
        if self.machine.next_wake().is_none_or(|at| at > self.at()) {
            self.judge();
        }
    }

    /// Nobody waits who could start, nobody waits for nothing, and the load adds up.
    fn judge(&mut self) {
        let now = self.now;
        for request in &mut self.requests {
            if matches!(request.stage, Stage::Out(until) if until <= now) {
                request.stage = Stage::Waits;
            }
        }
        let waiting: Vec<usize> =
            (0..self.requests.len()).filter(|number| self.requests[*number].stage == Stage::Waits).collect();
        for key in 0..KEYS {
            let Some(first) = waiting.iter().find(|number| self.requests[**number].key == key) else { continue };
            let request = &self.requests[*first];
            for id in self.ids() {
                let objection = self.objection(request, id);
                assert!(objection.is_some(), "request {first} could start on {id:?} at {now}: {request:?}");
            }
        }
        for number in waiting {
            let request = &self.requests[number];
            assert!(self.usable_ever(request), "request {number} waits for nothing at {now}: {request:?}");
        }
        for snapshot in self.machine.endpoints(self.at()) {
            let running = self.running_on(snapshot.endpoint);
            assert_eq!((snapshot.in_flight as usize, snapshot.live as usize), (running, running));
            let endpoint = &self.endpoints[usize::from(snapshot.endpoint.0)];
            let expected = match endpoint.open {
                None => BreakerState::Closed,
                Some((_, until)) if until > now => BreakerState::Open { until: Instant::from_millis(until) },
                Some(_) => BreakerState::HalfOpen,
            };
            assert_eq!(snapshot.breaker, expected, "at {now}");
        }
    }

    fn open(&mut self, id: EndpointId, length: u64) {
        let now = self.now;
        let endpoint = self.endpoint(id);
        endpoint.open = Some((now, now + length));
        endpoint.epoch += 1;
        (endpoint.failed_in_a_row, endpoint.passed) = (0, 0);
    }

    fn close(&mut self, id: EndpointId) {
        let endpoint = self.endpoint(id);
        endpoint.open = None;
        endpoint.epoch += 1;
        (endpoint.failed_in_a_row, endpoint.passed) = (0, 0);
    }

    /// The attempt of a request ends so, as far as its endpoint is concerned.
    fn report(&mut self, number: usize, report: Report) {
        let Stage::Runs { at, epoch, .. } = self.requests[number].stage else { return };
        self.machine.report(self.at(), self.requests[number].id, report, 0);
        let elsewhere = self.requests[number].charged.is_some_and(|charged| charged != at);
        if report == Report::Failure && !elsewhere {
            self.requests[number].charged = Some(at);
        }
        if self.endpoint(at).epoch != epoch {
            return;
        }
        let half_open = self.endpoint(at).open;
        match report {
            Report::Success => match half_open {
                None => self.endpoint(at).failed_in_a_row = 0,
                Some(_) => {
                    self.endpoint(at).passed += 1;
                    if self.endpoint(at).passed >= self.probes {
                        self.close(at);
                    }
                }
            },
            Report::Failure if elsewhere => {}
            Report::Failure => {
                self.endpoint(at).failed_in_a_row += 1;
                match half_open {
                    Some((since, until)) => self.open(at, until - since),
                    None if self.endpoint(at).failed_in_a_row >= FAILURES => self.open(at, RESET),
                    None => {}
                }
            }
            Report::Neutral => {}
        }
    }

    /// A running attempt ends in some way.
    fn end(&mut self, number: usize, random: &mut Rng) {
        let Stage::Runs { at, .. } = self.requests[number].stage else { return };
        let (now, id) = (self.at(), self.requests[number].id);
        match random.below(10) {
            0..4 => {
                self.report(number, Report::Success);
                self.requests[number].stage = Stage::Over;
                self.machine.finish(now, id);
                // Whoever says so twice is not heard.
                self.machine.finish(now, id);
            }
            4 => {
                self.requests[number].stage = Stage::Over;
                self.machine.withdraw(now, id);
            }
            5 => {
                self.report(number, Report::Neutral);
                let until = self.now + random.between(1, 4) * SECOND;
                let held = &mut self.endpoint(at).held;
                *held = until.max(*held);
                let request = &mut self.requests[number];
                if !request.tried.contains(&at) {
                    request.tried.push(at);
                }
                request.stage = Stage::Waits;
                assert!(self.machine.retry(now, id, Target::Endpoint(at), Instant::from_millis(until), None));
                self.wait(number);
            }
            6 => {
                self.report(number, Report::Neutral);
                self.open(at, 5 * SECOND);
                self.machine.exhaust_endpoint(now, at);
                self.fail_over(number, at, self.now);
            }
            _ => {
                self.report(number, Report::Failure);
                let until = self.now + random.between(100, 2_000);
                match self.machine.elsewhere(now, id) {
                    Elsewhere::AtOnce => self.fail_over(number, at, until),
                    Elsewhere::Nowhere => {
                        let request = &mut self.requests[number];
                        (request.stage, request.barred) = (Stage::Out(until), 0);
                        request.tried.clear();
                        assert!(self.machine.back_off(now, id, Instant::from_millis(until), None));
                        let _none = self.machine.set_waker(id, number);
                    }
                }
            }
        }
    }

    fn fail_over(&mut self, number: usize, at: EndpointId, until: u64) {
        let (now, id) = (self.at(), self.requests[number].id);
        let request = &mut self.requests[number];
        request.again = (self.same_first && !request.tried.contains(&at)).then_some(at);
        if !request.tried.contains(&at) {
            request.tried.push(at);
        }
        (request.barred, request.stage) = (until, Stage::Waits);
        assert!(self.machine.fail_over(now, id, Instant::from_millis(until), None));
        self.wait(number);
    }

    fn change(&mut self, random: &mut Rng) {
        let now = self.at();
        let id = EndpointId(random.below(self.endpoints.len() as u64) as u16);
        match random.below(7) {
            0 => {
                self.endpoint(id).disabled = true;
                self.machine.disable_endpoint(now, id);
            }
            1 | 2 => {
                self.endpoint(id).disabled = false;
                self.machine.enable_endpoint(now, id);
            }
            3 => {
                let until = self.now + random.between(1, 3_000);
                let held = &mut self.endpoint(id).held;
                *held = until.max(*held);
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
            _ => {
                // A removed one comes back, or another one goes.
                let removed = !self.endpoint(id).removed;
                self.endpoint(id).removed = removed;
                if !removed {
                    self.endpoint(id).disabled = false;
                }
                let there = self.endpoints.iter().enumerate().filter(|(_, endpoint)| !endpoint.removed);
                let names: Vec<_> = there.map(|(number, _)| (format!("e{number}"), EndpointRules::new())).collect();
                let rules = self.rules.with_endpoints(names).expect("good names");
                let plan = (*rules.plan()).clone().succeeding(self.machine.plan());
                self.machine.replace(now, plan.into());
            }
        }
    }
}

fn history(seed: u64) -> (usize, usize) {
    let mut world = World::new(seed);
    let mut random = Rng::new(seed ^ 0x5eed);
    for _ in 0..120 {
        match random.below(10) {
            0..4 => {
                let among = match random.below(4) {
                    0 => {
                        let mut among: Vec<EndpointId> = world.ids().filter(|_| random.below(2) == 0).collect();
                        among.truncate(2);
                        among
                    }
                    _ => Vec::new(),
                };
                world.enter(random.below(KEYS), among);
            }
            4..7 => {
                let runs = |request: &Request| matches!(request.stage, Stage::Runs { .. });
                let running: Vec<usize> =
                    (0..world.requests.len()).filter(|number| runs(&world.requests[*number])).collect();
                if !running.is_empty() {
                    world.end(running[random.below(running.len() as u64) as usize], &mut random);
                }
            }
            7 => world.change(&mut random),
            _ => {
                let wanted = world.now + random.below(1_500);
                // The machine is called whenever it wants to be.
                while let Some(wake) = world.machine.next_wake().filter(|at| *at <= Instant::from_millis(wanted)) {
                    world.now = world.now.max(wake.as_nanos().div_ceil(1_000_000));
                    world.settle();
                    if world.machine.next_wake() == Some(wake) && wake > world.at() {
                        break;
                    }
                }
                world.now = world.now.max(wanted);
            }
        }
        world.settle();
    }
    drain(&mut world);
    (world.starts, world.refusals)
}

/// All endpoints are there again, everything succeeds, and nothing is left.
fn drain(world: &mut World) {
    let names = (0..ENDPOINTS).map(|number| (format!("e{number}"), EndpointRules::new()));
    let rules = world.rules.with_endpoints(names).expect("good names");
    let plan = (*rules.plan()).clone().succeeding(world.machine.plan());
    world.machine.replace(world.at(), plan.into());
    for id in world.ids().collect::<Vec<_>>() {
        let removed = std::mem::take(&mut world.endpoint(id).removed);
        world.endpoint(id).disabled &= !removed;
    }
    for id in world.ids().collect::<Vec<_>>() {
        world.endpoint(id).disabled = false;
        let now = world.at();
        world.machine.enable_endpoint(now, id);
    }
    for _ in 0..10_000 {
        world.settle();
        for number in 0..world.requests.len() {
            if matches!(world.requests[number].stage, Stage::Runs { .. }) {
                world.report(number, Report::Success);
                world.requests[number].stage = Stage::Over;
                let (now, id) = (world.at(), world.requests[number].id);
                world.machine.finish(now, id);
                // A grant may give a probe up for lost: whoever has it takes it up before anything else happens.
                world.settle();
            }
        }
        if world.requests.iter().all(|request| request.stage == Stage::Over) {
            break;
        }
        let Some(wake) = world.machine.next_wake() else { continue };
        world.now = world.now.max(wake.as_nanos().div_ceil(1_000_000));
    }
    assert!(world.requests.iter().all(|request| request.stage == Stage::Over), "something is left");
    let snapshot = world.machine.snapshot(world.at());
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
    assert!(snapshot.endpoints.iter().all(|endpoint| endpoint.live == 0 && endpoint.in_flight == 0));
    // Nothing is kept of keys without work, of what they did on endpoints neither.
    world.machine.dispatch(Instant::from_millis(world.now + 3_600_000));
    world.machine.dispatch(Instant::from_millis(world.now + 3_600_001));
    assert_eq!(world.machine.snapshot(world.at()).keys, 0);
}

#[test]
fn random_histories_keep_to_the_slow_model() {
    let runs = std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(400);
    let (mut starts, mut refusals) = (0, 0);
    for seed in 0..runs {
        let result = std::panic::catch_unwind(|| history(seed));
        let Ok((more, refused)) = result else { panic!("history {seed} breaks a promise") };
        starts += more;
        refusals += refused;
    }
    assert!(starts > 0 && refusals > 0, "{starts} starts and {refusals} refusals show nothing");
}
