//! A slow model of pools that knows nothing but lists: what requests want, what endpoints are, and what must hold of both.

mod acts;
mod judge;
mod lives;
#[path = "../harness/rng.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) mod rng;
mod sync;

use std::collections::BTreeMap;

use request_balancer::Rules;
use request_balancer::engine::{EndpointId, Instant, KeyId, RequestId, Scheduler, Target};
use rng::Rng;

pub(crate) const SECOND: u64 = 1_000;
/// The numbers of the rules below.
pub(crate) const OVERALL: u64 = 12;
pub(crate) const EACH_KEY: u64 = 2;
pub(crate) const FAILURES: u32 = 2;
pub(crate) const EXHAUSTED: u64 = 5 * SECOND;
pub(crate) const LEASE: u64 = SECOND;
pub(crate) const ENDPOINTS: usize = 4;
pub(crate) const KEYS: u64 = 5;
pub(crate) const RULES: u16 = 2;

/// What endpoints may do. The first one of these is what the pool says of each.
pub(crate) const NUMBERS: [Numbers; 4] = [
    Numbers { each: 4, at_once: 3, weight: 1 },
    Numbers { each: 1, at_once: 1, weight: 2 },
    Numbers { each: 2, at_once: 2, weight: 3 },
    Numbers { each: 8, at_once: 2, weight: 1 },
];

/// Starts a second, attempts at a time, and the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) each: u64,
    pub(crate) at_once: u64,
    pub(crate) weight: u32,
}

/// What differs from history to history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) choose: &'static str,
    pub(crate) same_first: bool,
    pub(crate) probes: u32,
    pub(crate) reset: u64,
    pub(crate) sticky: bool,
    /// Whether some requests cost 2.
    pub(crate) costly: bool,
    /// Of ten requests that are woken so many come late.
    pub(crate) late: u64,
}

impl Setup {
    fn new(random: &mut Rng) -> Self {
        Self {
            choose: ["least-loaded", "fastest", "in-order", "weighted"][random.below(4) as usize],
            same_first: random.below(3) == 0,
            probes: random.between(1, 2) as u32,
            reset: [300, 3 * SECOND][random.below(2) as usize],
            sticky: random.below(4) == 0,
            costly: random.below(4) == 0,
            late: [0, 2, 6][random.below(3) as usize],
        }
    }

    fn rules(&self) -> Rules {
        let Self { choose, same_first, probes, reset, sticky, .. } = self;
        let failover = if *same_first { "same-first" } else { "next" };
        let text = format!(
            "overall = '12/1s'\n[rules]\na = {{}}\nb = {{}}\n[pool]\noverall = '4/1s'\nper_key = '2/1s'\n\
             concurrency = 3\nchoose = '{choose}'\nfailover = '{failover}'\nsticky = {sticky}\n\
             breaker = {{ failures = 2, reset = '{reset}ms', jitter = 0, probes = {probes} }}\nexhausted = '5s'\n\
             [pool.endpoints]\ne0 = {{}}\ne1 = {{}}\ne2 = {{}}\n\
             e3 = {{ overall = '1/1s', concurrency = 1, weight = 2 }}"
        );
        text.parse().unwrap_or_else(|findings| panic!("{findings}"))
    }
}

/// What the model knows of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) numbers: Numbers,
    /// How often it was renewed.
    pub(crate) life: u32,
    pub(crate) removed: bool,
    pub(crate) disabled: bool,
    pub(crate) held: u64,
    pub(crate) failed_in_a_row: u32,
    pub(crate) open: Option<Open>,
    pub(crate) passed: u32,
    /// Changes of the breaker so far.
    pub(crate) epoch: u64,
    /// Start, key, cost.
    pub(crate) starts: Vec<(u64, u64, u64)>,
}

/// A breaker that is open until an instant, and then half-open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) until: u64,
    pub(crate) length: u64,
    pub(crate) probes: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) key: u64,
    pub(crate) rule: u16,
    pub(crate) cost: u64,
    pub(crate) among: Vec<EndpointId>,
    pub(crate) tried: Vec<EndpointId>,
    pub(crate) barred: u64,
    pub(crate) again: Option<EndpointId>,
    pub(crate) charged: Option<EndpointId>,
    pub(crate) deadline: Option<u64>,
    /// When it was said to start at the earliest, if nothing changes but time, and how many things had changed by then.
    pub(crate) earliest: Option<(u64, usize)>,
    pub(crate) stage: Stage,
    /// Somebody told it to look how it stands, and it has not yet.
    pub(crate) woken: bool,
    /// How things were when it was refused, of which it has yet to hear.
    pub(crate) refused: Option<Refused>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) at: u64,
    /// An endpoint that it may use was there, enabled and not open.
    pub(crate) usable: bool,
    /// An endpoint that it may use was there and large enough.
    pub(crate) fits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Waits,
    /// It was granted something and did not come for it in time, or that was taken back.
    Asleep,
    /// Until then it is out of line.
    Out(u64),
    Granted(Seat),
    Runs(Seat),
    Over,
}

/// What a granted or running request has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seat {
    pub(crate) at: EndpointId,
    pub(crate) epoch: u64,
    /// What its endpoint's was when it started.
    pub(crate) life: u32,
    /// Since when it is a probe, if it is one.
    pub(crate) probe: Option<u64>,
    pub(crate) since: u64,
}

/// What is held until when, besides endpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    pub(crate) all: u64,
    pub(crate) rules: BTreeMap<u16, u64>,
    pub(crate) keys: BTreeMap<u64, u64>,
    pub(crate) queues: BTreeMap<(u16, u64), u64>,
}

pub(crate) struct World {
    pub(crate) machine: Scheduler<usize>,
    pub(crate) now: u64,
    pub(crate) setup: Setup,
    pub(crate) rules: Rules,
    pub(crate) keys: BTreeMap<u64, KeyId>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) requests: Vec<Request>,
    pub(crate) holds: Holds,
    /// Where a key goes that can choose among these.
    pub(crate) homes: BTreeMap<(u64, Vec<EndpointId>), EndpointId>,
    /// How many names there were.
    pub(crate) names: usize,
    /// Things that happened and may let somebody start earlier than was foretold.
    pub(crate) upheavals: usize,
    pub(crate) random: Rng,
    pub(crate) tally: Tally,
}

/// What happened at all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) starts: usize,
    pub(crate) refusals: usize,
    pub(crate) too_late: usize,
    pub(crate) probes: usize,
    pub(crate) lost_leases: usize,
    pub(crate) killed_grants: usize,
    /// Places that went from one endpoint to another.
    pub(crate) handed_on: usize,
    /// Starts that were foretold.
    pub(crate) foretold: usize,
}

impl Tally {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            starts: self.starts + other.starts,
            refusals: self.refusals + other.refusals,
            too_late: self.too_late + other.too_late,
            probes: self.probes + other.probes,
            lost_leases: self.lost_leases + other.lost_leases,
            killed_grants: self.killed_grants + other.killed_grants,
            handed_on: self.handed_on + other.handed_on,
            foretold: self.foretold + other.foretold,
        }
    }
}

/// What the endpoints have at first, of which one has numbers of its own.
pub(crate) const fn first(number: usize) -> Numbers {
    NUMBERS[(number == 3) as usize]
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let setup = Setup::new(&mut random);
        let rules = setup.rules();
        Self {
            machine: Scheduler::new(rules.plan()),
            now: 0,
            setup,
            rules,
            keys: BTreeMap::new(),
            endpoints: (0..ENDPOINTS).map(|number| Endpoint::new(&format!("e{number}"), first(number))).collect(),
            names: ENDPOINTS,
            upheavals: 0,
            requests: Vec::new(),
            holds: Holds::default(),
            homes: BTreeMap::new(),
            random,
            tally: Tally::default(),
        }
    }

    pub(crate) fn at(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = EndpointId> + use<> {
        (0..self.endpoints.len() as u16).map(EndpointId)
    }

    pub(crate) fn endpoint(&mut self, id: EndpointId) -> &mut Endpoint {
        &mut self.endpoints[usize::from(id.0)]
    }

    pub(crate) fn key(&mut self, key: u64) -> KeyId {
        let now = self.at();
        let known = self.keys.get(&key).copied().filter(|id| self.machine.knows(*id));
        let id = known.unwrap_or_else(|| self.machine.add_key(now, key));
        self.keys.insert(key, id);
        id
    }

    /// One thing that happens, or some time that passes.
    pub(crate) fn act(&mut self) {
        match self.random.below(12) {
            0..4 => self.enter(),
            4..7 => self.end_any(),
            7 => self.change(),
            8 => self.poll_any(),
            9 => self.leave_any(),
            _ => {
                let wanted = self.now + self.random.below(1_500);
                self.pass(wanted);
            }
        }
        self.settle();
    }

    /// Time passes; the machine is called whenever it wants to be.
    fn pass(&mut self, wanted: u64) {
        while let Some(wake) = self.machine.next_wake().filter(|at| *at <= Instant::from_millis(wanted)) {
            self.now = self.now.max(wake.as_nanos().div_ceil(1_000_000));
            self.settle();
            if self.machine.next_wake() == Some(wake) && wake > self.at() {
                break;
            }
        }
        self.now = self.now.max(wanted);
    }

    /// Notes a hold until then.
    pub(crate) fn note_hold(&mut self, target: Target, key: u64, until: u64) {
        let held = match target {
            Target::Overall => &mut self.holds.all,
            Target::Rule(rule) => self.holds.rules.entry(rule.0).or_default(),
            Target::Key(_) => self.holds.keys.entry(key).or_default(),
            Target::Queue(rule, _) => self.holds.queues.entry((rule.0, key)).or_default(),
            Target::Endpoint(id) => &mut self.endpoints[usize::from(id.0)].held,
            Target::Request => return,
        };
        *held = until.max(*held);
    }
}
