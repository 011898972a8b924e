//! Any list of operations against the machine: it never panics, its numbers add up, no limit is broken, it always gets
//! on, and in the end nothing is left of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use request_balancer::engine::{
    Charge, Claim, Enter, Entry, Instant, KeyId, Nanos, Plan, RequestId, RuleId, Scheduler, Target, Turned,
};

use super::log::{Attempt, verify};
use super::said::Said;
use super::setup::Setup;

/// Turns at one instant after which the machine goes round in circles.
const PATIENCE: usize = 10_000;

/// Milliseconds that may pass at a time.
const LONGEST: u16 = 4_000;

#[derive(Clone, Debug, Arbitrary)]
enum Op {
    /// Time goes on, with a turn whenever the machine asks for one.
    Advance(u16),
    /// Time goes on without a turn.
    Stall(u16),
    Enter(Arrival),
    /// The owner looks after its request, woken or not.
    Claim(u8),
    Finish(u8),
    Withdraw(u8),
    Retry {
        request: u8,
        scope: u8,
        millis: u16,
        deadline: Option<u16>,
    },
    BackOff {
        request: u8,
        millis: u16,
        deadline: Option<u16>,
    },
    Settle {
        request: u8,
        actual: u8,
    },
    Hold {
        target: u8,
        key: u8,
        millis: u16,
    },
    Release {
        target: u8,
        key: u8,
    },
    /// A response is read.
    Observe {
        request: u8,
        said: [Option<Said>; 2],
    },
    /// The server says something by other ways.
    Tell {
        target: u8,
        key: u8,
        said: Said,
    },
    /// Most often nothing.
    Pause(bool, u8),
    Resume(bool),
    Turn,
    /// Most often nothing: after it nothing comes in.
    Close(u8),
    /// Most often nothing.
    Abort(u8),
}

#[derive(Clone, Debug, Arbitrary)]
struct Arrival {
    rule: bool,
    key: u8,
    cost: u8,
    not_before: Option<u8>,
    deadline: Option<u16>,
    at_once: bool,
    times: u8,
    manner: u8,
}

/// The first bytes make rules, the others operations.
pub(crate) fn machine(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok(setup) = Setup::arbitrary(&mut bytes) else { return };
    let Some(plan) = setup.plan() else { return };
    let mut world = World::new(plan);
    while let Ok(op) = Op::arbitrary(&mut bytes) {
        if bytes.is_empty() {
            break;
        }
        world.apply(&op);
        world.wake();
        world.count();
    }
    world.end();
}

struct World {
    scheduler: Scheduler<usize>,
    now: Instant,
    keys: BTreeMap<u64, KeyId>,
    requests: Vec<Request>,
    log: Vec<Attempt>,
}

struct Request {
    id: RequestId,
    rule: RuleId,
    key: u64,
    cost: u32,
    stage: Stage,
    manner: Manner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It claims when it is woken, and its attempts end as they begin.
    Prompt,
    /// It claims when it is woken, and its attempts last until an operation ends them.
    Stays,
    /// It does not look after itself when it is woken.
    Sleeps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    InLine,
    /// In line, or refused without knowing it.
    Woken,
    /// Its attempt in the log.
    Running(usize),
    Gone,
}

impl World {
    fn new(plan: Arc<Plan>) -> Self {
        Self {
            scheduler: Scheduler::new(plan),
            now: Instant::ZERO,
            keys: BTreeMap::new(),
            requests: Vec::new(),
            log: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Advance(millis) => self.advance(self.after(millis % LONGEST)),
            Op::Stall(millis) => self.now = self.after(millis % LONGEST),
            Op::Enter(ref arrival) => (0..1 + arrival.times % 6).for_each(|_| self.enter(arrival)),
            Op::Claim(number) => self.pick(number, |world, number| world.claim(number)),
            Op::Finish(number) => self.pick(number, |world, number| {
                if let Stage::Running(_) = world.requests[number].stage {
                    world.finish(number);
                }
            }),
            Op::Withdraw(number) => self.pick(number, |world, number| {
                world.scheduler.withdraw(world.now, world.requests[number].id);
                world.ended(number, Stage::Gone);
            }),
            Op::Retry { request, scope, millis, deadline } => self.pick(request, |world, number| {
                let Request { id, rule, key, .. } = world.requests[number];
                if let Stage::Running(_) = world.requests[number].stage {
                    let target = world.target(scope, rule, key).unwrap_or(Target::Request);
                    let (until, deadline) = (world.after(millis), deadline.map(|millis| world.after(millis)));
                    let back = world.scheduler.retry(world.now, id, target, until, deadline);
                    world.put_back(number, back);
                }
            }),
            Op::BackOff { request, millis, deadline } => self.pick(request, |world, number| {
                if let Stage::Running(_) = world.requests[number].stage {
                    let (until, deadline) = (world.after(millis), deadline.map(|millis| world.after(millis)));
                    let back = world.scheduler.back_off(world.now, world.requests[number].id, until, deadline);
                    world.put_back(number, back);
                }
            }),
            Op::Settle { request, actual } => self.pick(request, |world, number| {
                let Request { id, stage, .. } = world.requests[number];
                if let Stage::Running(attempt) = stage {
                    // What is settled at more than before may break a window, and is meant to.
                    let actual = u32::from(actual).min(world.log[attempt].cost);
                    world.scheduler.settle(world.now, id, Charge::Requests, actual);
                    world.log[attempt].cost = actual;
                } else {
                    world.scheduler.settle(world.now, id, Charge::Requests, actual.into());
                }
            }),
            Op::Hold { target, key, millis } => {
                if let Some(target) = self.target(target, RuleId(0), u64::from(key % 4)) {
                    self.scheduler.hold(self.now, target, self.after(millis % LONGEST));
                }
            }
            Op::Release { target, key } => {
                if let Some(target) = self.target(target, RuleId(0), u64::from(key % 4)) {
                    self.scheduler.release(self.now, target);
                }
            }
            Op::Observe { request, ref said } => self.pick(request, |world, number| {
                let Request { id, stage, .. } = world.requests[number];
                let taken = world.scheduler.observe(world.now, id, said.iter().flatten().map(Said::window));
                assert!(!taken || matches!(stage, Stage::Running(_)), "{stage:?}");
            }),
            Op::Tell { target, key, ref said } => {
                if let Some(target) = self.target(target, RuleId(0), u64::from(key % 4)) {
                    self.scheduler.observe_target(self.now, target, [said.window()]);
                }
            }
            Op::Pause(rule, 0..32) => self.scheduler.pause(self.now, RuleId(rule.into())),
            Op::Resume(rule) => self.scheduler.resume(self.now, RuleId(rule.into())),
            Op::Turn => self.scheduler.dispatch(self.now),
            Op::Close(0) => {
                self.scheduler.close(self.now);
            }
            Op::Abort(0) => {
                self.scheduler.abort();
            }
            Op::Pause(..) | Op::Close(_) | Op::Abort(_) => {}
        }
    }

    fn after(&self, millis: u16) -> Instant {
        self.now.saturating_add(Nanos::from_millis(millis.into()))
    }

    fn target(&self, number: u8, rule: RuleId, key: u64) -> Option<Target> {
        let key = self.keys.get(&key).copied();
        match number % 5 {
            0 => Some(Target::Overall),
            1 => Some(Target::Rule(rule)),
            2 => key.map(Target::Key),
            3 => key.map(|key| Target::Queue(rule, key)),
            _ => Some(Target::Request),
        }
    }

    /// Does something with a request that is not gone.
    fn pick(&mut self, number: u8, act: impl FnOnce(&mut Self, usize)) {
        let alive: Vec<_> =
            (0..self.requests.len()).filter(|&number| self.requests[number].stage != Stage::Gone).collect();
        if let Some(&number) = alive.get(usize::from(number) % alive.len().max(1)) {
            act(self, number);
        }
    }

    fn advance(&mut self, until: Instant) {
        let mut turns = 0;
        while let Some(wake) = self.scheduler.next_wake().filter(|&wake| wake <= until) {
            turns = if wake > self.now { 0 } else { turns + 1 };
            assert!(turns < PATIENCE, "the machine goes round in circles at {:?}", self.now);
            self.now = self.now.max(wake);
            self.scheduler.dispatch(self.now);
            self.wake();
        }
        self.now = self.now.max(until);
    }

    fn enter(&mut self, arrival: &Arrival) {
        let (rule, key) = (RuleId(arrival.rule.into()), u64::from(arrival.key % 4));
        let entry = Entry {
            cost: 1 + u32::from(arrival.cost % 4 / 2),
            not_before: arrival.not_before.map(|millis| self.after(millis.into())),
            deadline: arrival.deadline.map(|millis| self.after(millis)),
            ..Entry::default()
        };
        let entered = loop {
            let Self { scheduler, now, keys, .. } = self;
            let record = *keys.entry(key).or_insert_with(|| scheduler.add_key(*now, key));
            let entered = if arrival.at_once {
                scheduler.enter(*now, record, rule, entry)
            } else {
                scheduler.enqueue(*now, record, rule, entry).map(Enter::Waiting)
            };
            match entered {
                Err(Turned::StaleKey) => drop(keys.remove(&key)),
                Err(Turned::QueueFull { .. } | Turned::CostTooHigh { .. } | Turned::Closed | Turned::RuleRemoved) => {
                    return;
                }
                Ok(entered) => break entered,
            }
        };
        let number = self.requests.len();
        let (Enter::Started(id) | Enter::Waiting(id)) = entered;
        let manner = match arrival.manner % 8 {
            0 => Manner::Sleeps,
            1..4 => Manner::Stays,
            _ => Manner::Prompt,
        };
        self.requests.push(Request { id, rule, key, cost: entry.cost, stage: Stage::InLine, manner });
        match entered {
            Enter::Started(_) => self.started(number),
            Enter::Waiting(_) => self.look(number),
        }
    }

    /// A request was put in line, and something may have become of it before anybody could be woken for it.
    fn look(&mut self, number: usize) {
        let left = self.scheduler.set_waker(self.requests[number].id, number);
        assert_eq!(left, None, "a waker was left behind");
        match self.requests[number].manner {
            Manner::Prompt | Manner::Stays => self.claim(number),
            Manner::Sleeps => self.requests[number].stage = Stage::Woken,
        }
    }

    fn claim(&mut self, number: usize) {
        let Request { id, stage, .. } = self.requests[number];
        match self.scheduler.claim(self.now, id) {
            Claim::Started { .. } => self.started(number),
            Claim::Waiting => {
                self.requests[number].stage = Stage::InLine;
                self.scheduler.set_waker(id, number);
            }
            Claim::Running => assert!(matches!(stage, Stage::Running(_)), "{stage:?} runs"),
            Claim::Refused { .. } => self.requests[number].stage = Stage::Gone,
            Claim::Unknown => panic!("{stage:?} is unknown"),
        }
    }

    fn started(&mut self, number: usize) {
        let Request { rule, key, cost, manner, .. } = self.requests[number];
        self.requests[number].stage = Stage::Running(self.log.len());
        self.log.push(Attempt { rule, key, cost, start: self.now, end: Instant::NEVER });
        if manner == Manner::Prompt {
            self.finish(number);
        }
    }

    /// Ends every other attempt as the runtime does.
    fn finish(&mut self, number: usize) {
        let id = self.requests[number].id;
        if number.is_multiple_of(2) || self.scheduler.end_at_once(id).is_none() {
            self.scheduler.finish(self.now, id);
        }
        self.ended(number, Stage::Gone);
    }

    fn ended(&mut self, number: usize, stage: Stage) {
        if let Stage::Running(attempt) = std::mem::replace(&mut self.requests[number].stage, stage) {
            self.log[attempt].end = self.now;
        }
    }

    fn put_back(&mut self, number: usize, back: bool) {
        self.ended(number, if back { Stage::InLine } else { Stage::Gone });
        if back {
            self.look(number);
        }
    }

    /// Lets whoever is woken look after itself.
    fn wake(&mut self) {
        loop {
            let woken = std::mem::take(self.scheduler.take_wakes());
            if woken.is_empty() {
                break;
            }
            for number in woken {
                match self.requests[number].stage {
                    Stage::InLine if self.requests[number].manner == Manner::Sleeps => {
                        self.requests[number].stage = Stage::Woken
                    }
                    Stage::InLine | Stage::Woken => self.claim(number),
                    Stage::Running(_) | Stage::Gone => {}
                }
            }
        }
        for evicted in self.scheduler.take_evicted().drain(..) {
            if self.keys.get(&evicted.tag) == Some(&evicted.id) {
                self.keys.remove(&evicted.tag);
            }
        }
    }

    /// The machine's numbers are those of its owner.
    fn count(&self) {
        let snapshot = self.scheduler.snapshot(self.now);
        let count = |is: fn(Stage) -> bool| self.requests.iter().filter(|request| is(request.stage)).count();
        let in_line = count(|stage| stage == Stage::InLine);
        let perhaps = in_line + count(|stage| stage == Stage::Woken);
        assert!((in_line..=perhaps).contains(&snapshot.waiting), "{} for {in_line} to {perhaps}", snapshot.waiting);
        assert_eq!(snapshot.in_flight, count(|stage| matches!(stage, Stage::Running(_))));
        let of_rules = snapshot.rules.iter().map(|rule| (rule.waiting, rule.in_flight));
        let of_lanes = snapshot.lanes.iter().map(|lane| (lane.waiting, lane.in_flight));
        let sum = |(waiting, running): (usize, usize), (more, others)| (waiting + more, running + others);
        assert_eq!(of_rules.fold((0, 0), sum), (snapshot.waiting, snapshot.in_flight));
        assert_eq!(of_lanes.fold((0, 0), sum), (snapshot.waiting, snapshot.in_flight));
    }

    /// Everybody goes, and then there is nothing left.
    fn end(mut self) {
        for number in 0..self.requests.len() {
            if self.requests[number].stage != Stage::Gone {
                self.scheduler.withdraw(self.now, self.requests[number].id);
                self.ended(number, Stage::Gone);
                self.wake();
            }
        }
        self.count();
        self.advance(Instant::from_millis(10_000_000));
        let snapshot = self.scheduler.snapshot(self.now);
        assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
        verify(self.scheduler.plan(), &self.log);
    }
}
