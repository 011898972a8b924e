//! The machine on its own time, driven by hand: requests are claimed when they are woken, unless a test says otherwise.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::collections::BTreeMap;
use std::time::Duration;

use request_balancer::engine::{
    Claim, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, Target, Turned,
};
use request_balancer::{Rules, Start, verify};

/// What happens when a request is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It claims at once and is done at once.
    Prompt,
    /// It claims at once and runs until the test ends it.
    Runs,
    /// It never claims by itself.
    Zombie,
}

/// One request of the test.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    pub(crate) rule: RuleId,
    pub(crate) key: u64,
    pub(crate) manner: Manner,
    /// Starts in milliseconds, one per attempt.
    pub(crate) starts: Vec<u64>,
    /// What a line of the log says of it, and which line is that of the attempt that runs.
    line: Start,
    runs: Option<usize>,
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler<usize>,
    pub(crate) now: Instant,
    pub(crate) asked: Vec<Asked>,
    /// Numbers of requests, in order of start.
    pub(crate) order: Vec<usize>,
    pub(crate) turns: usize,
    /// In the end the checker is asked whether all starts kept to the rules. Not where a test changes them.
    pub(crate) judged: bool,
    keys: BTreeMap<u64, KeyId>,
    rules: Rules,
    log: Vec<Start>,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.judged && !std::thread::panicking() {
            let breaches = verify(&self.rules, &self.log);
            assert!(breaches.is_empty(), "{}", breaches[0]);
        }
    }
}

pub(crate) const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Seconds as milliseconds.
pub(crate) const fn secs<const N: usize>(seconds: [u64; N]) -> [u64; N] {
    let mut millis = seconds;
    let mut i = 0;
    while i < N {
        millis[i] *= 1_000;
        i += 1;
    }
    millis
}

impl World {
    pub(crate) fn new(rules: &str) -> Self {
        let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{rules}"));
        Self {
            scheduler: Scheduler::new(rules.plan()),
            now: Instant::ZERO,
            asked: Vec::new(),
            order: Vec::new(),
            turns: 0,
            judged: true,
            keys: BTreeMap::new(),
            rules,
            log: Vec::new(),
        }
    }

    pub(crate) fn rule(&self, name: &str) -> RuleId {
        let rules = &self.scheduler.plan().rules;
        RuleId(rules.iter().position(|rule| &*rule.name == name).expect("a rule of the test") as u16)
    }

    pub(crate) fn key(&mut self, key: u64) -> KeyId {
        let Self { keys, scheduler, now, .. } = self;
        *keys.entry(key).or_insert_with(|| scheduler.add_key(*now, key))
    }

    /// Puts a request in line without a turn.
    pub(crate) fn enqueue(&mut self, rule: &str, key: u64) -> usize {
        self.enqueue_as(rule, key, Manner::Prompt, Entry::default())
    }

    pub(crate) fn enqueue_as(&mut self, rule: &str, key: u64, manner: Manner, entry: Entry<'_>) -> usize {
        let (rule, id) = (self.rule(rule), self.key(key));
        let entered = self.scheduler.enqueue(self.now, id, rule, entry);
        let id = match entered {
            Err(Turned::StaleKey) => {
                self.keys.remove(&key);
                let id = self.key(key);
                self.scheduler.enqueue(self.now, id, rule, entry).expect("room in line")
            }
            entered => entered.expect("room in line"),
        };
        self.remember(id, rule, key, manner, entry)
    }

    pub(crate) fn enqueue_many(&mut self, rule: &str, key: u64, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.enqueue(rule, key)).collect()
    }

    /// Enters as a caller does: at once if nothing is in the way.
    pub(crate) fn enter(&mut self, rule: &str, key: u64) -> usize {
        self.enter_as(rule, key, Manner::Prompt, Entry::default())
    }

    pub(crate) fn enter_as(&mut self, rule: &str, key: u64, manner: Manner, entry: Entry<'_>) -> usize {
        let rule = self.rule(rule);
        let entered = loop {
            let id = self.key(key);
            match self.scheduler.enter(self.now, id, rule, entry) {
                Err(Turned::StaleKey) => drop(self.keys.remove(&key)),
                entered => break entered.expect("room in line"),
            }
        };
        match entered {
            Enter::Started(id) => {
                let number = self.remember(id, rule, key, manner, entry);
                self.started(number);
                self.wake();
                number
            }
            Enter::Waiting(id) => {
                let number = self.remember(id, rule, key, manner, entry);
                self.wake();
                number
            }
        }
    }

    /// Claims for a request, as its next poll would.
    pub(crate) fn claim(&mut self, number: usize) -> Claim {
        let claim = self.scheduler.claim(self.now, self.asked[number].id);
        match claim {
            Claim::Started { .. } => self.started(number),
            Claim::Waiting => assert_eq!(self.scheduler.set_waker(self.asked[number].id, number), None),
            Claim::Running | Claim::Refused { .. } | Claim::Unknown => {}
        }
        self.wake();
        claim
    }

    pub(crate) fn finish(&mut self, number: usize) {
        self.ended(number);
        self.scheduler.finish(self.now, self.asked[number].id);
        self.wake();
    }

    pub(crate) fn withdraw(&mut self, number: usize) {
        self.ended(number);
        self.scheduler.withdraw(self.now, self.asked[number].id);
        self.wake();
    }

    /// Puts a running request back in line, its scope held for so many milliseconds.
    pub(crate) fn retry(&mut self, number: usize, scope: Target, millis: u64) {
        self.retry_until(number, scope, millis, None);
    }

    /// The same for a request that waits for so many milliseconds at most.
    pub(crate) fn retry_until(&mut self, number: usize, scope: Target, millis: u64, max_wait: Option<u64>) {
        let until = self.now.saturating_add(Nanos::from_millis(millis));
        let deadline = max_wait.map(|millis| self.now.saturating_add(Nanos::from_millis(millis)));
        let id = self.asked[number].id;
        self.ended(number);
        assert!(self.scheduler.retry(self.now, id, scope, until, deadline));
        assert_eq!(self.scheduler.set_waker(id, number), None);
        self.wake();
    }

    pub(crate) fn back_off(&mut self, number: usize, millis: u64) {
        let until = self.now.saturating_add(Nanos::from_millis(millis));
        let id = self.asked[number].id;
        self.ended(number);
        assert!(self.scheduler.back_off(self.now, id, until, None));
        assert_eq!(self.scheduler.set_waker(id, number), None);
        self.wake();
    }

    /// One turn now, and whoever it wakes.
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        self.scheduler.dispatch(self.now);
        self.wake();
    }

    /// Lets time go on to `millis`, with a turn whenever the machine wants one.
    pub(crate) fn run_until(&mut self, millis: u64) {
        let end = ms(millis);
        while let Some(wake) = self.scheduler.next_wake().filter(|&wake| wake <= end) {
            self.now = self.now.max(wake);
            self.turn();
        }
        self.now = self.now.max(end);
    }

    /// Starts of all requests of a rule and a key, in milliseconds.
    pub(crate) fn starts(&self, rule: &str, key: u64) -> Vec<u64> {
        let rule = self.rule(rule);
        let of_queue = |number: &&usize| self.asked[**number].rule == rule && self.asked[**number].key == key;
        let mut seen = BTreeMap::<usize, usize>::new();
        self.order
            .iter()
            .filter(of_queue)
            .map(|&number| {
                let attempt = seen.entry(number).or_default();
                *attempt += 1;
                self.asked[number].starts[*attempt - 1]
            })
            .collect()
    }

    /// Starts of one request.
    pub(crate) fn starts_of(&self, number: usize) -> &[u64] {
        &self.asked[number].starts
    }

    pub(crate) fn key_count(&self) -> usize {
        self.scheduler.snapshot(self.now).keys
    }

    fn remember(&mut self, id: RequestId, rule: RuleId, key: u64, manner: Manner, entry: Entry<'_>) -> usize {
        let number = self.asked.len();
        let name = &*self.scheduler.plan().rules[usize::from(rule.0)].name;
        let line = Start::new(Duration::ZERO, name, key).cost(entry.cost);
        let units = self.rules.units().zip(entry.units);
        let line = units.fold(line, |line, (unit, &cost)| line.units(unit, cost));
        self.asked.push(Asked { id, rule, key, manner, starts: Vec::new(), line, runs: None });
        let _running = self.scheduler.set_waker(id, number);
        number
    }

    fn started(&mut self, number: usize) {
        let nanos = self.now.as_nanos();
        self.asked[number].starts.push(nanos / 1_000_000);
        self.order.push(number);
        let mut line = self.asked[number].line.clone();
        line.at = Duration::from_nanos(nanos);
        self.asked[number].runs = Some(self.log.len());
        self.log.push(line);
        if self.asked[number].manner == Manner::Prompt {
            self.ended(number);
            self.scheduler.finish(self.now, self.asked[number].id);
        }
    }

    fn ended(&mut self, number: usize) {
        if let Some(line) = self.asked[number].runs.take() {
            self.log[line].end = Some(Duration::from_nanos(self.now.as_nanos()));
        }
    }

    fn wake(&mut self) {
        loop {
            let woken = std::mem::take(self.scheduler.take_wakes());
            if woken.is_empty() {
                return;
            }
            for number in woken {
                if self.asked[number].manner == Manner::Zombie {
                    continue;
                }
                match self.scheduler.claim(self.now, self.asked[number].id) {
                    Claim::Started { .. } => self.started(number),
                    Claim::Waiting => {
                        let _gone = self.scheduler.set_waker(self.asked[number].id, number);
                    }
                    Claim::Running | Claim::Refused { .. } | Claim::Unknown => {}
                }
            }
        }
    }
}
