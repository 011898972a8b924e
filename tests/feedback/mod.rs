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

/// What a server does not say, or not exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Resets are whole seconds, rounded down.
    Floored,
    /// One answer in ten does not say when the window begins anew.
    NoReset,
    /// One in ten does not say how many are left.
    NoRemaining,
    /// Every other refusal says nothing at all.
    Bare,
}

impl Fault {
    pub(crate) const ALL: &[Self] = &[Self::Floored, Self::NoReset, Self::NoRemaining, Self::Bare];

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Floored => "resets rounded down",
            Self::NoReset => "without reset 10 %",
            Self::NoRemaining => "without remaining 10 %",
            Self::Bare => "bare refusals 50 %",
        }
    }
}

/// One setting of the study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) faults: &'static [Fault],
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
    /// Refused though an answer that was read before had said how many were left until a reset that is yet to come, and
    /// nobody else took anything since.
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
    /// How many are left.
    left: Option<u32>,
    /// In how long the window begins anew.
    after: Option<u64>,
    written: u64,
    /// What others had ever taken.
    others: u64,
    /// How long to wait, of a refusal.
    wait: Option<u64>,
}

/// An answer that said all there is to say.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: u64,
    reset: u64,
    others: u64,
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
    /// What others ever took.
    others: u64,
    heard: Vec<Heard>,
}

/// Attempts at once.
const AT_ONCE: usize = 8;
/// How long a refusal holds that does not say.
const BARE_WAIT: u64 = 5_000 * MS;
const SECOND: u64 = 1_000 * MS;

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
            others: 0,
            heard: Vec::new(),
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
        self.others += u64::from(!is_ours);
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
        if accepted {
            self.count(true);
        } else {
            self.outcome.refused += 1;
            self.note_foreseeable(number);
        }
        let is_bare = !accepted && self.has(Fault::Bare) && self.one_in(2);
        let has_fields = !is_bare && (!accepted || self.rng.below(100) >= self.setting.missing);
        let has_left = has_fields && !(self.has(Fault::NoRemaining) && self.one_in(10));
        let has_reset = has_fields && !(self.has(Fault::NoReset) && self.one_in(10));
        let exact = self.reset() - self.now;
        let after = if self.has(Fault::Floored) { exact / SECOND * SECOND } else { exact };
        self.sent[number].answer = Some(Answer {
            accepted,
            left: has_left.then(|| u32::try_from(self.left()).expect("few")),
            after: has_reset.then_some(after),
            written: self.now,
            others: self.others,
            wait: (!accepted && !is_bare).then_some(after),
        });
        let back = self.rng.between(10, 200) * MS;
        self.plan(self.now + back, Event::Answers(number));
    }

    fn has(&self, fault: Fault) -> bool {
        self.setting.faults.contains(&fault)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.rng.below(many) == 0
    }

    fn note_foreseeable(&mut self, number: usize) {
        let (now, others, sent) = (self.now, self.others, self.sent[number].at);
        self.heard.retain(|heard| heard.reset > now);
        let could_know = |heard: &Heard| heard.at < sent && heard.others == others;
        self.outcome.foreseeable += u64::from(self.heard.iter().any(could_know));
    }

    // The client.

    fn answers(&mut self, number: usize) {
        let (now, id, key) = (Instant::from_nanos(self.now), self.sent[number].id, self.key);
        let answer = self.sent[number].answer.expect("it reached the server");
        self.in_flight -= 1;
        let grain = if self.has(Fault::Floored) { SECOND } else { MS };
        if let (Some(_), Some(after)) = (answer.left, answer.after) {
            let reset = answer.written + after;
            self.heard.push(Heard { at: self.now, reset, others: answer.others });
        }
        match self.policy {
            Policy::Deaf => {}
            Policy::Literal => {
                let known = self.literal.filter(|(_, until)| *until > self.now);
                let until = answer.after.map(|after| self.now + after).or_else(|| known.map(|(_, until)| until));
                let left = answer.left.or_else(|| known.map(|(left, _)| left));
                self.literal = left.zip(until).or(self.literal);
            }
            Policy::Overlay => {
                let window = ServerWindow {
                    name: "window",
                    charge: Charge::Requests,
                    side: None,
                    limit: None,
                    left: answer.left,
                    per: None,
                    reset: answer.after.map(|after| ServerReset { after: Nanos::new(after), grain: Nanos::new(grain) }),
                };
                let windows = Some(window).filter(|window| window.left.is_some() || window.reset.is_some());
                assert!(self.machine.observe(now, id, windows));
            }
        }
        self.machine.finish(now, id);
        if !answer.accepted {
            let wait = match answer.wait {
                None => BARE_WAIT,
                // Seconds that are over hide up to one more.
                Some(0) => grain,
                Some(wait) => wait,
            };
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
