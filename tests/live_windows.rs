//! Limits that stand in every version of the rules hold over replaced rules, keys that become one, and restarts.

#[path = "harness/rng.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod rng;

use std::collections::BTreeMap;
use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::{Claim, Enter, Entry, Instant, KeyId, RequestId, RuleId, Scheduler};
use rng::Rng;

const HISTORIES: u64 = 1_000;
const OPS: usize = 80;
const KEYS: u64 = 4;
const MS: u64 = 1_000_000;

/// What every version says, and how it is checked.
const FIXED: &str = "overall = '5/100ms'\nper_key = '3/50ms'\n";
const OVERALL: (u64, usize) = (100 * MS, 5);
const PER_KEY: (u64, usize) = (50 * MS, 3);

const VERSIONS: [&str; 4] = [
    "[rules]\na = {}\nb = { priority = 2 }",
    "[rules]\na = { per_key = '2/70ms' }\nb = {}",
    "[rules]\nb = { key_concurrency = 1 }\na = { priority = 3 }",
    "[rules]\nx = {}\na = { overall = '4/30ms' }\nb = { priority = 2, per_key = '1/5ms smooth' }",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Waiting,
    Running,
    Gone,
}

struct World {
    machine: Scheduler<usize>,
    now: u64,
    keys: BTreeMap<u64, KeyId>,
    aliases: BTreeMap<u64, u64>,
    /// What was asked for, under which key, and where it is.
    asked: Vec<(RequestId, u64, At)>,
    /// When and under which key.
    starts: Vec<(u64, u64)>,
}

fn version(random: &mut Rng) -> Rules {
    let text = format!("{FIXED}{}", VERSIONS[random.below(4) as usize]);
    text.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{text}"))
}

impl World {
    fn new(rules: &Rules) -> Self {
        let machine = Scheduler::new(rules.plan());
        Self { machine, now: 0, keys: BTreeMap::new(), aliases: BTreeMap::new(), asked: vec![], starts: vec![] }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn resolve(&self, key: u64) -> u64 {
        self.aliases.get(&key).map_or(key, |&new| self.resolve(new))
    }

    fn key(&mut self, key: u64) -> KeyId {
        let key = self.resolve(key);
        match self.keys.get(&key) {
            Some(&id) if self.machine.knows(id) => id,
            Some(_) | None => {
                let id = self.machine.add_key(self.now(), key);
                self.keys.insert(key, id);
                id
            }
        }
    }

    fn step(&mut self, random: &mut Rng) {
        match random.below(14) {
            0..=6 => self.ask(random),
            7 => self.finish(),
            8 => self.replace(&version(random)),
            9 if random.below(3) == 0 => self.alias(random.below(KEYS), random.below(KEYS)),
            10 if random.below(3) == 0 => {
                let memory = self.machine.export(self.now());
                self.machine.import(self.now(), &memory);
            }
            _ => self.advance(random.below(40 * MS)),
        }
        self.settle();
    }

    fn ask(&mut self, random: &mut Rng) {
        let key = random.below(KEYS);
        let (id, rule) = (self.key(key), RuleId(random.below(self.machine.plan().rules.len() as u64) as u16));
        let entered = if random.below(2) == 0 {
            self.machine.enter(self.now(), id, rule, Entry::default())
        } else {
            self.machine.enqueue(self.now(), id, rule, Entry::default()).map(Enter::Waiting)
        };
        let number = self.asked.len();
        match entered {
            Ok(Enter::Started(id)) => {
                self.asked.push((id, key, At::Running));
                self.started(key);
            }
            Ok(Enter::Waiting(id)) => {
                self.asked.push((id, key, At::Waiting));
                let _unknown = self.machine.set_waker(id, number);
                self.machine.dispatch(self.now());
                self.poll(number);
            }
            // Its rule is gone.
            Err(_) => {}
        }
    }

    fn finish(&mut self) {
        if let Some(running) = self.asked.iter_mut().find(|(_, _, at)| *at == At::Running) {
            running.2 = At::Gone;
            let id = running.0;
            self.machine.finish(self.now(), id);
        }
    }

    fn replace(&mut self, rules: &Rules) {
        let plan = Arc::unwrap_or_clone(rules.plan()).succeeding(self.machine.plan());
        self.machine.replace(self.now(), Arc::new(plan));
    }

    fn alias(&mut self, old: u64, new: u64) {
        let (old, new) = (self.resolve(old), self.resolve(new));
        if old != new {
            let ids = (self.key(old), self.key(new));
            assert!(self.machine.alias(self.now(), ids.0, ids.1));
            self.aliases.insert(old, new);
            self.keys.remove(&old);
        }
    }

    fn advance(&mut self, span: u64) {
        let end = self.now + span;
        while self.now < end {
            let next = self.machine.next_wake().map_or(end, |at| at.as_nanos().min(end));
            self.now = next.max(self.now + 1);
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            loop {
                let woken = std::mem::take(self.machine.take_wakes());
                self.machine.take_evicted().clear();
                self.machine.take_notices().clear();
                if woken.is_empty() {
                    break;
                }
                woken.into_iter().for_each(|number| self.poll(number));
            }
            if self.machine.next_wake().is_none_or(|at| at > self.now()) {
                return;
            }
            self.machine.dispatch(self.now());
        }
    }

    fn poll(&mut self, number: usize) {
        let (id, key, At::Waiting) = self.asked[number] else { return };
        match self.machine.claim(self.now(), id) {
            Claim::Started { .. } => {
                self.asked[number].2 = At::Running;
                self.started(key);
            }
            Claim::Waiting => drop(self.machine.set_waker(id, number)),
            Claim::Running | Claim::Refused { .. } | Claim::Unknown => self.asked[number].2 = At::Gone,
        }
    }

    /// No window that ends with this start has more than its limit allows. Keys that became one count together.
    fn started(&mut self, key: u64) {
        self.starts.push((self.now, key));
        let key = self.resolve(key);
        let (starts, now) = (&self.starts, self.now);
        let within = |period| starts.iter().filter(move |(at, _)| at + period > now);
        let of_key = within(PER_KEY.0).filter(|(_, other)| self.resolve(*other) == key).count();
        assert!(of_key <= PER_KEY.1, "{of_key} of key {key} in the window that ends at {}", self.now);
        let of_all = within(OVERALL.0).count();
        assert!(of_all <= OVERALL.1, "{of_all} in the window that ends at {}", self.now);
    }
}

#[test]
fn windows_stay_exact_while_the_rest_changes() {
    let mut starts = 0;
    for seed in 0..HISTORIES {
        let seeded = std::panic::catch_unwind(|| {
            let mut random = Rng::new(seed);
            let mut world = World::new(&version(&mut random));
            (0..OPS).for_each(|_| world.step(&mut random));
            world.starts.len()
        });
        starts += seeded.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(starts > 10_000, "{starts} starts");
}
