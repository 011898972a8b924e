//! Random histories of invalid attempts: a guard before a ban lets start whatever may, and nothing else, and tells it.

#[path = "harness/rng.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod rng;

use request_balancer::Rules;
use request_balancer::engine::{Claim, Enter, Entry, Instant, KeyId, Notice, RequestId, RuleId, Scheduler};
use rng::Rng;

const HISTORIES: u64 = 500;
const OPS: usize = 120;
const MS: u64 = 1_000_000;

/// How many invalid attempts in how long.
const GUARD: (usize, u64) = (3, 50 * MS);

struct World {
    machine: Scheduler<usize>,
    key: KeyId,
    now: u64,
    /// Whether the guard is said to be closed.
    told: bool,
    requests: Vec<(RequestId, At)>,
    invalid: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Waiting,
    Running,
    Gone,
}

impl World {
    fn new() -> Self {
        let rules: Rules = "ban_guard = '3/50ms'\n[rules]\na = {}".parse().unwrap();
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 1);
        Self { machine, key, now: 0, told: false, requests: Vec::new(), invalid: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// The model: so many invalid attempts within the time that ends now.
    fn is_closed(&self) -> bool {
        self.invalid.iter().filter(|&&at| at + GUARD.1 > self.now).count() >= GUARD.0
    }

    fn step(&mut self, random: &mut Rng) {
        match random.below(10) {
            0..=3 => self.enter(random.below(2) == 0),
            4..=6 => self.end(random),
            _ => {
                let end = self.now + random.below(30) * MS;
                while let Some(next) = self.machine.next_wake().filter(|next| next.as_nanos() <= end) {
                    self.now = self.now.max(next.as_nanos());
                    self.machine.dispatch(self.now());
                    self.hear();
                }
                self.now = end;
                self.machine.dispatch(self.now());
            }
        }
        self.hear();
    }

    fn enter(&mut self, at_once: bool) {
        if !self.machine.knows(self.key) {
            self.key = self.machine.add_key(self.now(), 1);
        }
        let number = self.requests.len();
        let (now, key) = (self.now(), self.key);
        if at_once {
            match self.machine.enter(now, key, RuleId(0), Entry::default()).unwrap() {
                Enter::Started(id) => {
                    assert!(!self.is_closed(), "started at {}", self.now);
                    self.requests.push((id, At::Running));
                    return;
                }
                Enter::Waiting(id) => self.requests.push((id, At::Waiting)),
            }
        } else {
            self.requests.push((self.machine.enqueue(now, key, RuleId(0), Entry::default()).unwrap(), At::Waiting));
        }
        let _unknown = self.machine.set_waker(self.requests[number].0, number);
        self.machine.dispatch(now);
    }

    fn end(&mut self, random: &mut Rng) {
        let running: Vec<usize> =
            (0..self.requests.len()).filter(|&number| self.requests[number].1 == At::Running).collect();
        if running.is_empty() {
            return;
        }
        let number = running[random.below(running.len() as u64) as usize];
        if random.below(2) == 0 {
            self.invalid.push(self.now);
            self.machine.count_invalid(self.now());
        }
        self.requests[number].1 = At::Gone;
        self.machine.finish(self.now(), self.requests[number].0);
    }

    /// Whoever is woken starts, and what the machine tells must be so.
    fn hear(&mut self) {
        loop {
            let woken = std::mem::take(self.machine.take_wakes());
            if woken.is_empty() {
                break;
            }
            for number in woken {
                match self.machine.claim(self.now(), self.requests[number].0) {
                    Claim::Started { .. } => {
                        assert!(!self.is_closed(), "#{number} started at {}", self.now);
                        self.requests[number].1 = At::Running;
                    }
                    Claim::Waiting => drop(self.machine.set_waker(self.requests[number].0, number)),
                    claim @ (Claim::Running | Claim::Refused { .. } | Claim::Unknown) => panic!("#{number}: {claim:?}"),
                }
            }
        }
        for notice in self.machine.take_notices().drain(..) {
            let closed = matches!(notice, Notice::BanAhead { .. });
            assert!(closed || notice == Notice::BanOver, "{notice:?}");
            assert_ne!(closed, self.told, "told twice at {}", self.now);
            self.told = closed;
        }
        self.machine.take_evicted().clear();
        assert_eq!(self.told, self.is_closed(), "at {}", self.now);
        let waits = self.requests.iter().any(|(_, at)| *at == At::Waiting);
        assert!(!waits || self.is_closed(), "somebody waits for nothing at {}", self.now);
    }
}

#[test]
fn nothing_starts_while_too_many_attempts_were_invalid_and_everything_does_else() {
    let (mut closed, mut starts) = (0, 0);
    for seed in 0..HISTORIES {
        let history = std::panic::catch_unwind(|| {
            let (mut random, mut world) = (Rng::new(seed), World::new());
            let closed = (0..OPS).filter(|_| {
                world.step(&mut random);
                world.told
            });
            (closed.count(), world.requests.iter().filter(|(_, at)| *at != At::Waiting).count())
        });
        let (of_history, started) = history.unwrap_or_else(|_| panic!("seed {seed}"));
        closed += of_history;
        starts += started;
    }
    assert!(closed > 1_000 && starts > 10_000, "closed after {closed} operations, {starts} starts");
}
