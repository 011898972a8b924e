//! Random histories in which rules are replaced, keys become one and get numbers of their own, while requests wait and
//! run: counts stay right, nothing starts inside a hold, nobody waits for ever, every key goes in the end.

#[path = "harness/rng.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod rng;

use std::collections::BTreeMap;
use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::{
    Charge, Claim, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, Target,
};
use rng::Rng;

const HISTORIES: u64 = 600;
const OPS: usize = 150;
const KEYS: u64 = 5;

const RULES: [&str; 4] = [
    "overall = '5/100ms'\nper_key = '2/50ms'\n[rules]\na = {}\nb = { priority = 2, per_key = '3/200ms' }\nc = { ordered = true }",
    "overall = '9/100ms'\nban_guard = '4/300ms'\nqueue = 6\n[rules]\na = { key_concurrency = 1 }\nb = { overall = '3/70ms', queue = 2 }\nc = { per_key = '1/30ms smooth' }",
    "per_key = '4/90ms'\n[rules]\na = { priority = 3, concurrency = 2 }\nc = { priority = 1, per_key = '4/100ms burst 4' }\n[retry]\nbudget = 0.1",
    "overall = { count = 6, per = '80ms', count_from = 'response' }\nqueue = 9\n[rules]\nb = { ordered = true, priority = 2 }\nd = { queue = 1, overflow = 'drop-oldest' }\na = {}",
];

/// Numbers of single keys, of other kinds and in other places than those of the rules.
const OWN: [&str; 4] =
    ["['3/30ms', '5/90ms']", "'5/10ms burst 5'", "'1/20ms'", "{ count = 2, per = '30ms', count_from = 'response' }"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Waiting,
    Running,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    id: RequestId,
    rule: RuleId,
    at: At,
}

struct World {
    machine: Scheduler<usize>,
    now: u64,
    keys: BTreeMap<u64, KeyId>,
    aliases: BTreeMap<u64, u64>,
    asked: Vec<Asked>,
    log: Vec<String>,
}

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{text}"))
}

impl World {
    fn new(text: &str) -> Self {
        Self {
            machine: Scheduler::new(rules(text).plan()),
            now: 0,
            keys: BTreeMap::new(),
            aliases: BTreeMap::new(),
            asked: Vec::new(),
            log: Vec::new(),
        }
    }

    fn instant(&self) -> Instant {
        self.after(0)
    }

    fn after(&self, millis: u64) -> Instant {
        Instant::from_millis(self.now + millis)
    }

    fn resolve(&self, key: u64) -> u64 {
        self.aliases.get(&key).map_or(key, |&next| self.resolve(next))
    }

    fn key(&mut self, key: u64) -> KeyId {
        let key = self.resolve(key);
        if let Some(&id) = self.keys.get(&key)
            && self.machine.knows(id)
        {
            return id;
        }
        let id = self.machine.add_key(self.instant(), key);
        self.keys.insert(key, id);
        id
    }

    fn poll(&mut self, number: usize) {
        let Asked { id, rule, at } = self.asked[number];
        if at != At::Waiting {
            return;
        }
        let now = self.instant();
        match self.machine.claim(now, id) {
            Claim::Started { .. } => {
                self.asked[number].at = At::Running;
                let key = self.machine.key_of(id).expect("a request of a key");
                for target in [Target::Overall, Target::Rule(rule), Target::Key(key), Target::Queue(rule, key)] {
                    assert_eq!(self.machine.held(now, target), None, "#{number} started inside a hold");
                }
            }
            Claim::Waiting => {
                let _before = self.machine.set_waker(id, number);
            }
            Claim::Refused { .. } => self.asked[number].at = At::Gone,
            claim @ (Claim::Running | Claim::Unknown) => panic!("#{number} waits: {claim:?}"),
        }
    }

    fn wake(&mut self) {
        loop {
            let woken = std::mem::take(self.machine.take_wakes());
            self.machine.take_evicted().clear();
            self.machine.take_notices().clear();
            if woken.is_empty() {
                return;
            }
            for number in woken {
                if self.asked[number].at == At::Running && self.machine.is_overdue(self.asked[number].id) {
                    self.finish(number);
                } else {
                    self.poll(number);
                }
            }
        }
    }

    fn finish(&mut self, number: usize) {
        self.machine.finish(self.instant(), self.asked[number].id);
        self.asked[number].at = At::Gone;
    }

    fn settle(&mut self) {
        for _ in 0..5_000 {
            self.wake();
            let now = self.instant();
            if self.machine.next_wake().is_none_or(|at| at > now) {
                return;
            }
            self.machine.dispatch(now);
        }
        panic!("no end of turns");
    }

    fn advance(&mut self, to: u64) {
        while self.now < to {
            let next = self.machine.next_wake().map_or(to, |at| at.as_nanos().div_ceil(1_000_000).min(to));
            self.now = next.max(self.now + 1);
            self.settle();
        }
    }

    fn all(&self, is_meant: impl Fn(At) -> bool) -> Vec<usize> {
        (0..self.asked.len()).filter(|&number| is_meant(self.asked[number].at)).collect()
    }

    fn check(&self) {
        let snapshot = self.machine.snapshot(self.instant());
        let before = self.asked.iter().filter(|asked| self.machine.is_outside(asked.id)).count();
        let counts = (self.all(|at| at == At::Waiting).len() - before, self.all(|at| at == At::Running).len());
        assert_eq!((snapshot.waiting, snapshot.in_flight), counts, "in all");
        let lanes = snapshot.lanes.iter().fold((0, 0), |sum, lane| (sum.0 + lane.waiting, sum.1 + lane.in_flight));
        let rules = snapshot.rules.iter().fold((0, 0), |sum, rule| (sum.0 + rule.waiting, sum.1 + rule.in_flight));
        assert_eq!((lanes, rules), (counts, counts), "in lanes and in rules");
    }

    fn enter(&mut self, rng: &mut Rng) {
        let (now, key) = (self.instant(), rng.below(KEYS));
        let id = self.key(key);
        let rule = RuleId(rng.below(self.machine.plan().rules.len() as u64) as u16);
        let entry = Entry {
            cost: 1 + rng.below(3) as u32 / 2,
            not_before: (rng.below(5) == 0).then(|| self.after(rng.below(60))),
            deadline: (rng.below(5) == 0).then(|| self.after(rng.below(200))),
            ..Entry::default()
        };
        self.log.push(format!("{} enter {rule:?} {key} {entry:?}", self.now));
        let entered = match rng.below(3) {
            0 => self.machine.enter(now, id, rule, entry),
            1 => self.machine.enqueue(now, id, rule, entry).map(Enter::Waiting),
            _ => self.machine.enqueue_patiently(now, id, rule, entry).map(Enter::Waiting),
        };
        match entered {
            Ok(Enter::Started(id)) => self.asked.push(Asked { id, rule, at: At::Running }),
            Ok(Enter::Waiting(id)) => {
                let number = self.asked.len();
                self.asked.push(Asked { id, rule, at: At::Waiting });
                let _new = self.machine.set_waker(id, number);
                self.machine.dispatch(now);
                if !self.machine.is_outside(id) {
                    self.poll(number);
                }
            }
            Err(_) => {}
        }
    }

    fn retry(&mut self, rng: &mut Rng, number: usize) {
        let (now, Asked { id, rule, .. }) = (self.instant(), self.asked[number]);
        let key = self.machine.key_of(id).expect("a request of a key");
        let target = match rng.below(5) {
            0 => Target::Overall,
            1 => Target::Request,
            2 => Target::Rule(rule),
            3 => Target::Key(key),
            _ => Target::Queue(rule, key),
        };
        let until = self.after(rng.below(50));
        self.log.push(format!("{} retry {number} {target:?} {until:?}", self.now));
        self.machine.slow_down(now, id, target);
        let back = match rng.below(2) {
            0 => self.machine.retry(now, id, target, until, None),
            _ => self.machine.back_off(now, id, until, None),
        };
        self.asked[number].at = if back { At::Waiting } else { At::Gone };
        self.poll(number);
    }

    fn replace(&mut self, text: &str) {
        self.log.push(format!("{} replace {text:?}", self.now));
        let plan = Arc::unwrap_or_clone(rules(text).plan()).succeeding(self.machine.plan());
        self.machine.replace(self.instant(), Arc::new(plan));
    }

    fn alias(&mut self, from: u64, into: u64) {
        let (from, into) = (self.resolve(from), self.resolve(into));
        if from == into {
            return;
        }
        self.log.push(format!("{} alias {from} {into}", self.now));
        let (old, new) = (self.key(from), self.key(into));
        assert!(self.machine.alias(self.instant(), old, new));
        self.aliases.insert(from, into);
        self.keys.remove(&from);
    }

    fn own(&mut self, key: u64, numbers: Option<&str>) {
        self.log.push(format!("{} own {key} {numbers:?}", self.now));
        let id = self.key(key);
        let numbers = numbers.map(|numbers| {
            let rules = rules(&format!("[rules]\na = '2/20ms'\n[keys.k]\na = {numbers}"));
            rules.own_numbers("k").remove(0).1
        });
        self.machine.set_own(self.instant(), id, RuleId(0), numbers);
    }

    fn step(&mut self, rng: &mut Rng) {
        let now = self.instant();
        let pick = |rng: &mut Rng, of: &[usize]| of.get(rng.below(of.len().max(1) as u64) as usize).copied();
        let running = self.all(|at| at == At::Running);
        match rng.below(25) {
            0..=8 => self.enter(rng),
            9..=11 => {
                if let Some(number) = pick(rng, &running) {
                    self.log.push(format!("{} finish {number}", self.now));
                    if rng.below(3) == 0 {
                        self.machine.count_invalid(now);
                    }
                    if rng.below(3) == 0 {
                        self.machine.succeed(self.asked[number].id);
                    }
                    self.finish(number);
                }
            }
            12..=13 => {
                if let Some(number) = pick(rng, &running) {
                    self.retry(rng, number);
                }
            }
            14 => {
                if let Some(number) = pick(rng, &self.all(|at| at != At::Gone)) {
                    self.log.push(format!("{} withdraw {number}", self.now));
                    self.machine.withdraw(now, self.asked[number].id);
                    self.asked[number].at = At::Gone;
                }
            }
            15 => {
                if let Some(number) = pick(rng, &running) {
                    self.log.push(format!("{} limit {number}", self.now));
                    self.machine.limit_attempt(self.asked[number].id, Nanos::from_millis(rng.below(60)));
                    let _before = self.machine.set_waker(self.asked[number].id, number);
                }
            }
            16 => self.replace(RULES[rng.below(4) as usize]),
            17 => {
                if rng.below(3) == 0 {
                    self.alias(rng.below(KEYS), rng.below(KEYS));
                }
            }
            18 => {
                if let Some(number) = pick(rng, &running) {
                    let actual = rng.below(6) as u32;
                    self.log.push(format!("{} settle {number} {actual}", self.now));
                    self.machine.settle(now, self.asked[number].id, Charge::Requests, actual);
                }
            }
            19..=20 => {
                let numbers = OWN.get(rng.below(OWN.len() as u64 + 2) as usize).copied();
                self.own(rng.below(KEYS), numbers);
            }
            21 => {
                let (key, until) = (rng.below(KEYS), self.after(rng.below(100)));
                self.log.push(format!("{} hold {key} {until:?}", self.now));
                let id = self.key(key);
                self.machine.hold(now, Target::Key(id), until);
            }
            22 => {
                self.log.push(format!("{} import", self.now));
                let memory = self.machine.export(now);
                self.machine.import(now, &memory);
            }
            _ => {
                let to = self.now + rng.below(80);
                self.log.push(format!("{} advance to {to}", self.now));
                self.advance(to);
            }
        }
        self.settle();
        self.check();
        let now = self.instant();
        self.machine.health(now);
        for number in self.all(|_| true) {
            drop(self.machine.explain_request(now, self.asked[number].id));
        }
    }

    /// Whatever runs ends at once from now on: nobody waits for ever, and no key is left.
    fn drain(&mut self) {
        for _ in 0..4_000 {
            for number in self.all(|at| at == At::Running) {
                self.finish(number);
                self.settle();
            }
            if self.all(|at| at != At::Gone).is_empty() {
                break;
            }
            self.advance(self.now + 10);
        }
        let now = self.instant();
        if let Some(&number) = self.all(|at| at != At::Gone).first() {
            panic!("#{number} waits for ever: {:?}", self.machine.explain_request(now, self.asked[number].id));
        }
        self.advance(self.now + 100_000);
        assert_eq!((self.machine.snapshot(self.instant()).keys, self.machine.next_wake()), (0, None), "keys are kept");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.iter().for_each(|line| println!("{line}"));
        }
    }
}

#[test]
fn nothing_goes_wrong_while_rules_and_keys_change() {
    for seed in 0..HISTORIES {
        println!("history {seed}");
        let mut rng = Rng::new(seed);
        let mut world = World::new(RULES[rng.below(4) as usize]);
        for _ in 0..OPS {
            world.step(&mut rng);
        }
        world.drain();
    }
}
