//! A client with more to send than it may, against a random server, on virtual time: what feedback is worth.
#![allow(dead_code, reason = "each user has its own use for it")]

#[path = "../harness/rng.rs"]
mod rng;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use request_balancer::Rules;
use request_balancer::engine::{
    Charge, Enter, Entry, Instant, KeyId, Nanos, NextStart, RequestId, RuleId, Scheduler, ServerReset, ServerWindow,
    Target,
};
use rng::Rng;

const MS: u64 = 1_000_000;
/// The server's window.
pub(crate) const PERIOD: u64 = 10_000 * MS;
pub(crate) const COUNT: u64 = 20;
/// How long one run is.
const LASTS: u64 = 30 * PERIOD;

/// What the client makes of what the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Nothing.
    Deaf,
    /// `min(local, remaining)`: what is left is what the last answer of the window said, less what started since.
    Literal,
    Overlay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fixed,
    Sliding,
}

/// One setting of the study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    /// Of a hundred slots, how many others ask for.
    pub(crate) others: u64,
    /// Of a hundred answers, how many have no fields.
    pub(crate) missing: u64,
    /// The local rule is so many times as wide as the server's.
    pub(crate) wide: u64,
}

/// What came of it, over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) runs: u64,
    pub(crate) starts: u64,
    pub(crate) refused: u64,
    /// Refused though an answer of the very window, after which nobody else took anything, had said how many were left,
    /// and no answer of it was without fields.
    pub(crate) foreseeable: u64,
    /// Slots that others left.
    pub(crate) slots: u64,
    pub(crate) used: u64,
}

impl Outcome {
    pub(crate) fn refused_a_run(&self) -> f64 {
        self.refused as f64 / self.runs as f64
    }

    /// Of the slots that others left, in percent.
    pub(crate) fn share(&self) -> f64 {
        100.0 * self.used as f64 / self.slots as f64
    }

    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.starts += other.starts;
        self.refused += other.refused;
        self.foreseeable += other.foreseeable;
        self.slots += other.slots;
        self.used += other.used;
    }
}

pub(crate) fn study(setting: Setting, policy: Policy, seeds: std::ops::Range<u64>) -> Outcome {
    let mut all = Outcome::default();
    for seed in seeds {
        let mut world = World::new(setting, policy, seed);
        world.run();
        all.add(world.outcome());
    }
    all
}

/// Answers on their way.
#[derive(Clone, Copy, Debug)]
struct Answer {
    accepted: bool,
    /// How many are left and in how long the window begins anew.
    fields: Option<(u32, u64)>,
    /// The server's window, by number, and what others had taken of it.
    window: u64,
    others: u64,
    reset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Others take a slot.
    Other,
    /// A request reaches the server.
    Reaches(usize),
    /// Its answer reaches the client.
    Answers(usize),
    /// The client looks whether it may send.
    Look,
}

struct Sent {
    id: RequestId,
    at: u64,
    answer: Option<Answer>,
}

struct World {
    setting: Setting,
    policy: Policy,
    rng: Rng,
    machine: Scheduler<()>,
    key: KeyId,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    now: u64,
    sent: Vec<Sent>,
    in_flight: usize,
    /// The server's counted requests, and whether they are ours.
    counted: VecDeque<(u64, bool)>,
    /// Per fixed window: ours, others'.
    used: Vec<[u64; 2]>,
    /// What the literal reader goes by: left, until.
    literal: Option<(u32, u64)>,
    looks_at: u64,
    outcome: Outcome,
    /// Per window: the others' takes when the first answer arrived; whether one was without fields.
    heard: std::collections::BTreeMap<u64, (u64, bool)>,
}

/// Attempts at once.
const AT_ONCE: usize = 8;

impl World {
    fn new(setting: Setting, policy: Policy, seed: u64) -> Self {
        let local = COUNT * setting.wide;
        let rules: Rules = format!("per_key = '{local}/10s'").parse().expect("rules");
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 0);
        let mut rng = Rng::new(seed);
        let others = COUNT * LASTS / PERIOD * setting.others / 100;
        let arrivals = rng.poisson(others, Nanos::new(LASTS));
        let mut world = Self {
            setting,
            policy,
            rng,
            machine,
            key,
            events: BinaryHeap::new(),
            order: 0,
            now: 0,
            sent: Vec::new(),
            in_flight: 0,
            counted: VecDeque::new(),
            used: vec![[0, 0]; usize::try_from(LASTS / PERIOD).expect("few") + 1],
            literal: None,
            looks_at: u64::MAX,
            outcome: Outcome { runs: 1, ..Outcome::default() },
            heard: std::collections::BTreeMap::new(),
        };
        for at in arrivals {
            world.plan(at.as_nanos(), Event::Other);
        }
        world.plan(0, Event::Look);
        world
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn run(&mut self) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= LASTS {
                break;
            }
            self.now = at;
            match event {
                Event::Other => {
                    self.forget();
                    if self.left() > 0 {
                        self.count(false);
                    }
                }
                Event::Reaches(number) => self.reaches(number),
                Event::Answers(number) => {
                    self.answers(number);
                    self.look();
                }
                Event::Look => {
                    if self.looks_at <= at {
                        self.looks_at = u64::MAX;
                    }
                    self.look();
                }
            }
        }
    }

    fn outcome(&self) -> Outcome {
        // The first and the last window are not whole ones to the client.
        let whole = &self.used[1..self.used.len() - 2];
        let slots = whole.iter().map(|[_, others]| COUNT - others.min(&COUNT)).sum();
        Outcome { slots, used: whole.iter().map(|[ours, _]| ours).sum(), ..self.outcome }
    }

    // The server.

    fn window(&self) -> u64 {
        self.now / PERIOD
    }

    fn forget(&mut self) {
        let is_over = |at: u64| match self.setting.kind {
            Kind::Fixed => at / PERIOD < self.now / PERIOD,
            Kind::Sliding => at + PERIOD <= self.now,
        };
        while self.counted.front().is_some_and(|&(at, _)| is_over(at)) {
            self.counted.pop_front();
        }
    }

    fn left(&self) -> u64 {
        COUNT - self.counted.len() as u64
    }

    fn count(&mut self, is_ours: bool) {
        self.counted.push_back((self.now, is_ours));
        let window = usize::try_from(self.window()).expect("few");
        self.used[window][usize::from(!is_ours)] += 1;
    }

    fn reset(&self) -> u64 {
        match self.setting.kind {
            Kind::Fixed => (self.window() + 1) * PERIOD,
            Kind::Sliding => self.counted.front().map_or(self.now, |&(at, _)| at + PERIOD),
        }
    }

    fn reaches(&mut self, number: usize) {
        self.forget();
        let accepted = self.left() > 0;
        let others = self.used[usize::try_from(self.window()).expect("few")][1];
        if accepted {
            self.count(true);
        } else {
            self.outcome.refused += 1;
            self.note_foreseeable(number, others);
        }
        let reset = self.reset();
        let has_fields = !accepted || self.rng.below(100) >= self.setting.missing;
        let left = u32::try_from(self.left()).expect("few");
        let fields = has_fields.then_some((left, reset - self.now));
        self.sent[number].answer = Some(Answer { accepted, fields, window: self.window(), others, reset });
        let back = self.rng.between(10, 200) * MS;
        self.plan(self.now + back, Event::Answers(number));
    }

    /// The first answer of this window that reached the client before it sent this request said how many were left;
    /// nobody else took any since, and every answer had its fields.
    fn note_foreseeable(&mut self, number: usize, others: u64) {
        let sent = self.sent[number].at;
        let of_window =
            self.sent.iter().filter(|other| other.answer.is_some_and(|answer| answer.window == self.window()));
        let first = self.heard.get(&self.window()).filter(|(at, _)| *at < sent);
        let first_others = of_window.clone().filter_map(|other| other.answer).map(|answer| answer.others).min();
        let all_told = of_window.filter_map(|other| other.answer).all(|answer| answer.fields.is_some());
        if self.setting.kind == Kind::Fixed && first.is_some() && all_told && first_others == Some(others) {
            self.outcome.foreseeable += 1;
        }
    }

    // The client.

    fn answers(&mut self, number: usize) {
        let (now, id, key) = (Instant::from_nanos(self.now), self.sent[number].id, self.key);
        let answer = self.sent[number].answer.expect("it reached the server");
        self.heard.entry(answer.window).or_insert((self.now, true));
        self.in_flight -= 1;
        if let Some((left, after)) = answer.fields {
            match self.policy {
                Policy::Deaf => {}
                Policy::Literal => self.literal = Some((left, self.now + after)),
                Policy::Overlay => {
                    let window = ServerWindow {
                        name: "window",
                        charge: Charge::Requests,
                        side: None,
                        limit: None,
                        left: Some(left),
                        per: None,
                        reset: Some(ServerReset { after: Nanos::new(after), grain: Nanos::from_millis(1) }),
                    };
                    assert!(self.machine.observe(now, id, [window]));
                }
            }
        }
        self.machine.finish(now, id);
        if !answer.accepted {
            let wait = answer.reset.saturating_sub(self.now).max(MS);
            self.machine.hold(now, Target::Key(key), now.saturating_add(Nanos::new(wait)));
        }
    }

    fn look(&mut self) {
        let now = Instant::from_nanos(self.now);
        while self.in_flight < AT_ONCE {
            if let Some((left, until)) = self.literal
                && until > self.now
            {
                if left == 0 {
                    self.look_again(until);
                    return;
                }
                self.literal = Some((left - 1, until));
            }
            if !self.machine.knows(self.key) {
                self.key = self.machine.add_key(now, 0);
            }
            match self.machine.enter(now, self.key, RuleId(0), Entry::default()).expect("a place") {
                Enter::Started(id) => {
                    let number = self.sent.len();
                    self.sent.push(Sent { id, at: self.now, answer: None });
                    self.outcome.starts += 1;
                    self.in_flight += 1;
                    let forth = self.rng.between(10, 200) * MS;
                    self.plan(self.now + forth, Event::Reaches(number));
                }
                Enter::Waiting(id) => {
                    self.machine.withdraw(now, id);
                    if let Some((left, until)) = &mut self.literal
                        && *until > self.now
                    {
                        *left += 1;
                    }
                    match self.machine.next_start(now, RuleId(0), Some(self.key)) {
                        NextStart::At(at) => self.look_again(at.as_nanos()),
                        // It looks at every answer.
                        NextStart::WhenOneEnds => {}
                        next @ (NextStart::Now | NextStart::Never) => panic!("{next:?} and did not start"),
                    }
                    return;
                }
            }
        }
    }

    fn look_again(&mut self, at: u64) {
        if at < self.looks_at {
            self.looks_at = at;
            self.plan(at, Event::Look);
        }
    }
}
