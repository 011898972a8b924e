use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use request_balancer::engine::{
    Claim, Enter, Entry, Instant, KeyId, Nanos, Plan, RequestId, RuleId, Scheduler, Turned,
};
use request_balancer::{Rules, Start, verify};

/// One call that somebody makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub at: Instant,
    pub rule: RuleId,
    pub key: u64,
    pub cost: u32,
    /// How long the attempt takes.
    pub handling: Nanos,
}

/// A call of cost 1 that is over as soon as it starts.
pub(crate) fn call(at: Instant, rule: RuleId, key: u64) -> Call {
    Call { at, rule, key, cost: 1, handling: Nanos::ZERO }
}

/// What became of the calls of a run.
#[derive(Debug)]
pub(crate) struct Log {
    /// In order of arrival.
    pub calls: Vec<Call>,
    /// When each of [`Self::calls`] started, if it did.
    pub started: Vec<Option<Instant>>,
    /// Positions in [`Self::calls`], in order of start.
    pub order: Vec<usize>,
}

impl Log {
    /// The calls that started and when, in order of start.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (&Call, Instant)> {
        self.order.iter().filter_map(|&index| Some((&self.calls[index], self.started[index]?)))
    }

    /// The log as whoever reads it elsewhere sees it, `late` after each start.
    pub(crate) fn lines(&self, plan: &Plan, mut late: impl FnMut(&Call) -> Nanos) -> Vec<Start> {
        let line = |(call, at): (&Call, Instant)| {
            let seen = at.saturating_add(late(call));
            let end = seen.max(at.saturating_add(call.handling));
            let rule = &*plan.rules[usize::from(call.rule.0)].name;
            Start::new(nanos(seen), rule, call.key).cost(call.cost).end(nanos(end))
        };
        self.starts().map(line).collect()
    }

    /// When the last call started.
    pub(crate) fn last_start(&self) -> Instant {
        self.starts().last().map_or(Instant::ZERO, |(_, at)| at)
    }

    /// How many calls of the rule started, and their mean wait.
    pub(crate) fn mean_wait(&self, rule: RuleId) -> (u64, Nanos) {
        let (mut count, mut sum) = (0, 0_u128);
        for (call, started) in self.starts().filter(|(call, _)| call.rule == rule) {
            count += 1;
            sum += u128::from(started.since(call.at).get());
        }
        (count, Nanos::new((sum / u128::from(count.max(1))) as u64))
    }
}

/// A rules file and its plan.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) rules: Rules,
    plan: Arc<Plan>,
}

impl Deref for Setup {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

/// A rules file, loaded.
pub(crate) fn plan(rules: &str) -> Setup {
    match rules.parse::<Rules>() {
        Ok(rules) => Setup { plan: rules.plan(), rules },
        Err(findings) => panic!("{findings}\nin\n{rules}"),
    }
}

/// The rule of that name.
pub(crate) fn rule(plan: &Plan, name: &str) -> RuleId {
    let position = plan.rules.iter().position(|rule| &*rule.name == name);
    RuleId(u16::try_from(position.expect("a rule of the scenario")).expect("few rules"))
}

/// An executor that polls whatever it wakes at once.
pub(crate) fn prompt() -> Nanos {
    Nanos::ZERO
}

/// Lets the calls come and go until nothing is left to do before `until`. No start may break a rule.
///
/// `stall` says how long the executor takes from each wake to the poll that claims. Calls of one instant all stand in
/// line before the first of them is granted.
pub(crate) fn run(setup: &Setup, mut calls: Vec<Call>, until: Instant, stall: impl FnMut() -> Nanos) -> Log {
    calls.sort_by_key(|call| call.at);
    let mut driver = Driver {
        scheduler: Scheduler::new(Arc::clone(&setup.plan)),
        keys: BTreeMap::new(),
        ids: vec![None; calls.len()],
        events: BinaryHeap::new(),
        next_event: 0,
        enqueued: false,
        stall,
        log: Log { started: vec![None; calls.len()], order: Vec::with_capacity(calls.len()), calls },
    };
    driver.run(until);
    let breaches = verify(&setup.rules, &driver.log.lines(setup, |_| Nanos::ZERO));
    assert!(breaches.is_empty(), "{} breaches, the first is {}", breaches.len(), breaches[0]);
    driver.log
}

fn nanos(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Poll(usize),
    End(usize),
}

#[derive(Debug)]
struct Driver<S> {
    scheduler: Scheduler<usize>,
    keys: BTreeMap<u64, KeyId>,
    ids: Vec<Option<RequestId>>,
    /// By instant, then by the order in which they were put in.
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    next_event: u64,
    /// Whether somebody joined the line since the last turn.
    enqueued: bool,
    stall: S,
    log: Log,
}

impl<S: FnMut() -> Nanos> Driver<S> {
    fn run(&mut self, until: Instant) {
        let mut arrived = 0;
        let (mut now, mut turns) = (Instant::ZERO, 0_usize);
        loop {
            let arrival = self.log.calls.get(arrived).map(|call| call.at);
            let event = self.events.peek().map(|&Reverse((at, ..))| at);
            let wake = if self.enqueued { Some(now) } else { self.scheduler.next_wake() };
            let Some(next) = [arrival, event, wake].into_iter().flatten().min() else { break };
            if next >= until {
                break;
            }
            turns = if next > now { 0 } else { turns + 1 };
            assert!(turns <= 8 * self.log.calls.len() + 64, "the engine goes round in circles at {now:?}");
            now = now.max(next);
            if event.is_some_and(|at| at <= now) {
                self.handle_event(now);
            } else if arrival.is_some_and(|at| at <= now) {
                self.arrive(now, arrived);
                arrived += 1;
            } else {
                self.enqueued = false;
                self.scheduler.dispatch(now);
            }
            self.fire_wakes(now);
        }
    }

    fn arrive(&mut self, now: Instant, index: usize) {
        let call = self.log.calls[index];
        let in_company = |other: Option<&Call>| other.is_some_and(|other| other.at == call.at);
        let alone = !in_company(self.log.calls.get(index + 1))
            && !in_company(index.checked_sub(1).and_then(|before| self.log.calls.get(before)));
        let entry = Entry { cost: call.cost, ..Entry::default() };
        let entered = loop {
            let key = *self.keys.entry(call.key).or_insert_with(|| self.scheduler.add_key(now, call.key));
            let entered = if alone && (self.stall)().is_zero() {
                self.scheduler.enter(now, key, call.rule, entry)
            } else {
                self.enqueued = true;
                self.scheduler.enqueue(now, key, call.rule, entry).map(Enter::Waiting)
            };
            match entered {
                Err(Turned::StaleKey) => {
                    self.keys.remove(&call.key);
                }
                Err(turned) => panic!("{call:?} was turned away: {turned:?}"),
                Ok(entered) => break entered,
            }
        };
        match entered {
            Enter::Started(id) => {
                self.ids[index] = Some(id);
                self.start(now, index);
            }
            Enter::Waiting(id) => {
                self.ids[index] = Some(id);
                self.scheduler.set_waker(id, index);
            }
        }
    }

    fn handle_event(&mut self, now: Instant) {
        let Some(Reverse((_, _, event))) = self.events.pop() else { return };
        match event {
            Event::End(index) => {
                if let Some(id) = self.ids[index].take() {
                    self.scheduler.finish(now, id);
                }
            }
            Event::Poll(index) => {
                let Some(id) = self.ids[index] else { return };
                match self.scheduler.claim(now, id) {
                    Claim::Started { .. } => self.start(now, index),
                    Claim::Waiting => {
                        self.scheduler.set_waker(id, index);
                    }
                    Claim::Running => {}
                    answer @ (Claim::Refused { .. } | Claim::Unknown) => {
                        panic!("{:?} was answered {answer:?}", self.log.calls[index])
                    }
                }
            }
        }
    }

    fn start(&mut self, now: Instant, index: usize) {
        self.log.started[index] = Some(now);
        self.log.order.push(index);
        self.push(now.saturating_add(self.log.calls[index].handling), Event::End(index));
    }

    fn fire_wakes(&mut self, now: Instant) {
        for index in std::mem::take(self.scheduler.take_wakes()) {
            let at = now.saturating_add((self.stall)());
            self.push(at, Event::Poll(index));
        }
        for evicted in self.scheduler.take_evicted().drain(..) {
            if self.keys.get(&evicted.tag) == Some(&evicted.id) {
                self.keys.remove(&evicted.tag);
            }
        }
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.next_event, event)));
        self.next_event += 1;
    }
}
