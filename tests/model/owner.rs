//! The machine's owner: drives it through a history and compares what it says with the books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use request_balancer::engine::{
    self, Charge, Instant, KeyId, Nanos, Plan, RuleId, Scheduler, ServerReset, ServerWindow, Why,
};
use request_balancer::{Rules, Start};

use super::books::{Books, Stage, Wrong};
use super::history::{Attempt, History, Op, Target, Then};
use super::limits::Kind;
use super::server::GRID;
use super::spec::{MS, Quota, Shape, Spec};

/// Turns in one instant after which the machine is said to run in circles.
const CIRCLES: usize = 2_000;

/// Instants in a stretch of time after which the machine is said to wake its owner for nothing.
const INSTANTS: usize = 3_000;

/// A key's record without work is gone so long after its last window and hold.
const KEPT: u64 = 2_000 * MS;

pub(crate) struct Owner {
    pub(crate) scheduler: Scheduler<usize>,
    pub(super) rules: Rules,
    pub(crate) books: Books,
    pub(crate) keys: BTreeMap<u64, KeyId>,
    pub(crate) turns: u64,
    pub(super) labels: BTreeMap<u32, usize>,
    /// Something was put in line without a turn.
    pub(super) dirty: bool,
    /// Every request is polled as soon as it may do something.
    pub(super) draining: bool,
    /// Nothing is inspected: it was, the last time it went this way.
    pub(crate) blindly: bool,
    /// The queue that a newcomer is being put into.
    pub(super) joining: Option<(usize, u64)>,
}

pub(crate) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

pub(super) const fn rule_id(rule: usize) -> RuleId {
    RuleId(rule as u16)
}

/// The rules that a spec means, and their plan.
pub(crate) fn loaded(spec: &Spec) -> Result<(Rules, Arc<Plan>), Wrong> {
    let rules: Rules = spec.to_string().parse().map_err(|findings| format!("rules that do not load: {findings}"))?;
    let (lease, max_hold) = (Nanos::new(spec.lease), Nanos::new(spec.max_hold));
    let plan = Plan { lease, max_hold, ..(*rules.plan()).clone() };
    Ok((rules, Arc::new(plan)))
}

impl Owner {
    pub(crate) fn new(history: &History) -> Result<Self, Wrong> {
        let (rules, plan) = loaded(&history.spec)?;
        Ok(Self::under(&history.spec, rules, plan))
    }

    /// Under rules that are loaded already.
    pub(crate) fn under(spec: &Spec, rules: Rules, plan: Arc<Plan>) -> Self {
        let mut scheduler = Scheduler::new(plan);
        scheduler.set_wall_clock(Instant::ZERO, spec.wall.into());
        Self {
            rules,
            scheduler,
            books: Books::new(spec),
            keys: BTreeMap::new(),
            turns: 0,
            labels: BTreeMap::new(),
            dirty: false,
            draining: false,
            blindly: false,
            joining: None,
        }
    }

    /// Goes through a history and lets everything come to its end.
    pub(crate) fn run(&mut self, history: &History) -> Result<(), Wrong> {
        for (position, op) in history.ops.iter().enumerate() {
            self.apply(op).map_err(|wrong| format!("{wrong}\nat {} ns in op {position}: {op}", self.books.now))?;
        }
        self.drain().map_err(|wrong| format!("{wrong}\nat {} ns after the last op", self.books.now))
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), Wrong> {
        let now = at(self.books.now);
        match op {
            Op::Advance(span) => return self.advance(self.books.now + span),
            Op::Stall(span) => {
                self.books.now += span;
                return Ok(());
            }
            Op::Enter(entry) => {
                self.enter(entry)?;
                if !entry.at_once {
                    return Ok(());
                }
            }
            Op::Withdraw(label) => {
                if let Some(number) = self.labels.get(label).copied() {
                    self.withdraw(number)?;
                }
            }
            Op::Poll(label) => {
                if let Some(number) = self.labels.get(label).copied() {
                    self.claim(number)?;
                    self.wakes()?;
                }
            }
            Op::End(label, then) => {
                if let Some(number) = self.labels.get(label).copied()
                    && matches!(self.books.requests[number].stage, Stage::Running(_))
                {
                    self.end(number, *then)?;
                }
            }
            Op::Hold(target, span) => {
                let known = self.target(*target)?;
                self.scheduler.hold(now, known, at(self.books.now + span));
                self.books.set_hold(*target, self.books.now + span);
                self.revoked()?;
            }
            Op::Release(target) => {
                let known = self.target(*target)?;
                self.scheduler.release(now, known);
                self.books.release(*target);
                self.settled()?;
            }
            Op::Answer { label, limit, left } => {
                if let Some(number) = self.labels.get(label).copied() {
                    self.answer(number, *limit, *left)?;
                }
            }
            Op::Settle { label, tokens, actual } => {
                if let Some(number) = self.labels.get(label).copied() {
                    self.settle_cost(number, *tokens, *actual)?;
                }
            }
            Op::Pause(rule) => {
                self.scheduler.pause(now, rule_id(*rule));
                self.books.paused[*rule] = true;
                self.revoked()?;
            }
            Op::Resume(rule) => self.resume(*rule)?,
            Op::Own(rule, key, quotas) => self.own(*rule, *key, quotas)?,
            Op::Turn => self.turn()?,
            Op::Close => self.close()?,
            Op::Abort => self.abort()?,
        }
        self.settle()
    }

    /// Lets time go on, and at each instant does what is due.
    fn advance(&mut self, until: u64) -> Result<(), Wrong> {
        self.settle()?;
        let mut instants = 0;
        while let Some(next) = self.next_event().filter(|&next| next <= until) {
            self.books.now = self.books.now.max(next);
            self.settle()?;
            instants += 1;
            if instants > INSTANTS {
                return Err(format!("no end of instants: next wake-up {:?}", self.scheduler.next_wake()));
            }
        }
        self.books.now = until;
        self.settle()
    }

    fn next_event(&self) -> Option<u64> {
        let callers = self.books.requests.iter().flat_map(|request| [request.claims_at, request.ends_at]);
        let wake = self.scheduler.next_wake().map(Instant::as_nanos);
        callers.chain([wake]).flatten().min()
    }

    /// Does everything that is due, until nothing is left to do at this instant; then everything must be right.
    pub(super) fn settle(&mut self) -> Result<(), Wrong> {
        for _ in 0..CIRCLES {
            let now = self.books.now;
            let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
            if let Some(number) = self.books.requests.iter().position(|request| due(request.ends_at)) {
                let request = &self.books.requests[number];
                let script = request.entry.attempts.get(request.starts - 1);
                self.end(number, script.map_or(Then::Finish, |attempt: &Attempt| attempt.then))?;
            } else if let Some(number) = self.books.requests.iter().position(|request| due(request.claims_at)) {
                self.books.requests[number].claims_at = None;
                self.claim(number)?;
                self.wakes()?;
            } else if self.dirty || due(self.scheduler.next_wake().map(Instant::as_nanos)) {
                self.turn()?;
            } else if let Some(number) = self.sleeper() {
                self.claim(number)?;
                self.wakes()?;
            } else {
                return self.inspect();
            }
        }
        Err(format!("no end of turns: next wake-up {:?}", self.scheduler.next_wake()))
    }

    fn turn(&mut self) -> Result<(), Wrong> {
        self.dirty = false;
        self.turns += 1;
        self.scheduler.dispatch(at(self.books.now));
        self.settled()
    }

    /// After a call that may have made a turn.
    pub(super) fn settled(&mut self) -> Result<(), Wrong> {
        self.books.advance();
        self.wakes()
    }

    /// Reads the response to a running attempt.
    fn answer(&mut self, number: usize, limit: usize, left: u64) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (rule, key, now) = (request.entry.rule, request.entry.key, self.books.now);
        let Stage::Running(attempt) = request.stage else {
            return Ok(());
        };
        let attempt = &self.books.attempts[attempt];
        let reset = (attempt.start / GRID + 1) * GRID;
        let bound: Vec<usize> = (0..self.books.limits.len())
            .filter(|&limit| {
                self.books.limits[limit].binds(rule, key) && self.books.limits[limit].kind != Kind::Running
            })
            .collect();
        // What was told of the window that is over by now is not told at all.
        if bound.is_empty() || attempt.done.is_some() || request.aborted || reset <= now {
            return Ok(());
        }
        let meant = bound[limit % bound.len()];
        let window = ServerWindow {
            name: "window",
            charge: Charge::Requests,
            side: None,
            limit: u32::try_from(self.books.limits[meant].count).ok(),
            left: u32::try_from(left).ok(),
            per: match self.books.limits[meant].kind {
                Kind::Starts(period, _) | Kind::Responses(period, _) => Some(Nanos::new(period)),
                Kind::Running | Kind::Day(_) | Kind::Spaced(_) | Kind::Bucket(_) => None,
            },
            reset: Some(ServerReset { after: Nanos::new(reset - now), grain: Nanos::ZERO }),
        };
        if !self.scheduler.observe(at(now), request.id, [window]) {
            return Err(format!("#{number} runs, and its response is not taken in"));
        }
        let narrowed = self.books.narrowed(meant, rule, key);
        let of = self.books.limits[meant].count;
        self.books.told(number, narrowed, (left, of), reset);
        self.settled()
    }

    /// An attempt costs something else than was asked for.
    fn settle_cost(&mut self, number: usize, tokens: bool, actual: u64) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (id, charge) = (request.id, if tokens { Charge::Unit(0) } else { Charge::Requests });
        let is_running = matches!(request.stage, Stage::Running(_)) && !request.aborted;
        self.scheduler.settle(at(self.books.now), id, charge, actual as u32);
        if !is_running {
            // Unknown to the machine as one that costs anything: nothing happened.
            return Ok(());
        }
        self.books.costs(number, |cost| *if tokens { &mut cost.tokens } else { &mut cost.requests } = actual);
        self.settled()
    }

    fn resume(&mut self, rule: usize) -> Result<(), Wrong> {
        self.scheduler.resume(at(self.books.now), rule_id(rule));
        self.books.paused[rule] = false;
        self.books.loosened += 1;
        self.settled()
    }

    fn close(&mut self) -> Result<(), Wrong> {
        self.settle()?;
        let refused = self.scheduler.close(at(self.books.now));
        let waiting: Vec<usize> =
            (0..self.books.requests.len()).filter(|&number| self.books.requests[number].stage.in_line()).collect();
        if refused != waiting.len() {
            return Err(format!("{refused} refused at the close, of {}", waiting.len()));
        }
        for number in waiting {
            self.books.left(number, Stage::Refused(Why::Closed));
        }
        self.books.closed = true;
        self.wakes()
    }

    fn abort(&mut self) -> Result<(), Wrong> {
        let told = self.scheduler.abort();
        let running = self.books.requests.iter_mut().filter(|request| matches!(request.stage, Stage::Running(_)));
        let mut count = 0;
        for request in running.filter(|request| !request.aborted) {
            request.aborted = true;
            count += 1;
        }
        if told != count {
            return Err(format!("{told} aborted, of {count}"));
        }
        self.wakes()
    }

    /// The record of a key.
    pub(super) fn key(&mut self, key: u64) -> Result<KeyId, Wrong> {
        let now = at(self.books.now);
        self.books.key_used.insert(key, self.books.now);
        loop {
            if let Some(&id) = self.keys.get(&key) {
                return Ok(id);
            }
            let id = self.scheduler.add_key(now, key);
            self.keys.insert(key, id);
            for (rule, numbers) in self.rules.own_numbers(&key.to_string()) {
                // Whoever claims in the turn that follows may sweep it away again.
                if self.scheduler.set_own(now, id, rule, Some(numbers)) {
                    self.dirty = false;
                    self.settled()?;
                }
            }
        }
    }

    /// Changes what a key has of its own under a rule.
    fn own(&mut self, rule: usize, key: u64, quotas: &[Quota]) -> Result<(), Wrong> {
        let spec = &self.books.spec;
        let of_rule = &spec.rules[rule].caps.per_key;
        let before = spec.own(rule, key).unwrap_or(of_rule);
        let after = if quotas.is_empty() { of_rule } else { quotas };
        let longest = |quotas: &[Quota]| {
            quotas.iter().map(|quota| quota.period + quota.margin.unwrap_or(spec.margin)).max().unwrap_or(0)
        };
        let plain =
            |quota: &Quota| quota.shape == Shape::Window && !quota.tokens && !quota.response.unwrap_or(spec.response);
        let used = self.books.attempts.iter().any(|attempt| (attempt.rule, attempt.key) == (rule, key));
        if used && !(before.iter().chain(after).all(plain) && longest(after) <= longest(before)) {
            // What the machine knows of earlier starts depends on what it had to know.
            return Ok(());
        }
        let is_day = |quota: &Quota| matches!(quota.shape, Shape::Day(_));
        if quotas.iter().any(is_day) && self.scheduler.plan().zones.is_empty() {
            // `set_limit` refuses it: the machine knows no zone but those of its rules.
            return Ok(());
        }
        let mut spec = spec.clone();
        spec.own.retain(|(of, _)| *of != (rule, key));
        if !quotas.is_empty() {
            spec.own.push(((rule, key), quotas.to_vec()));
        }
        if spec.counts_tokens() != self.books.spec.counts_tokens() {
            return Ok(());
        }
        self.rules = loaded(&spec)?.0;
        let id = self.key(key)?;
        let numbers = self.rules.own_numbers(&key.to_string());
        let numbers = numbers.into_iter().find(|(of, _)| *of == rule_id(rule)).map(|(_, numbers)| numbers);
        self.books.renumber(spec, (rule, key));
        self.scheduler.set_own(at(self.books.now), id, rule_id(rule), numbers);
        self.dirty = false;
        self.settled()
    }

    pub(super) fn target(&mut self, target: Target) -> Result<engine::Target, Wrong> {
        Ok(match target {
            Target::Overall => engine::Target::Overall,
            Target::Rule(rule) => engine::Target::Rule(rule_id(rule)),
            Target::Key(key) => engine::Target::Key(self.key(key)?),
            Target::Queue(rule, key) => engine::Target::Queue(rule_id(rule), self.key(key)?),
        })
    }

    /// Forgets the keys that the machine forgot, which must have been idle.
    pub(super) fn evictions(&mut self) -> Result<(), Wrong> {
        let now = self.books.now;
        for evicted in std::mem::take(self.scheduler.take_evicted()) {
            let key = evicted.tag;
            if self.keys.remove(&key) != Some(evicted.id) {
                return Err(format!("key {key} evicted under another id"));
            }
            if self.books.free_at(key).is_none_or(|free| free > now) {
                return Err(format!("key {key} evicted while it was in use"));
            }
        }
        Ok(())
    }

    /// What runs ends now, and whatever starts from now on ends as it starts.
    pub(crate) fn end_all(&mut self) -> Result<(), Wrong> {
        for number in 0..self.books.requests.len() {
            self.books.requests[number].entry.attempts.clear();
            if matches!(self.books.requests[number].stage, Stage::Running(_)) {
                self.end(number, Then::Finish)?;
            }
        }
        Ok(())
    }

    /// Everything may go on and comes to its end; then nothing may be left.
    pub(crate) fn drain(&mut self) -> Result<(), Wrong> {
        self.settle()?;
        self.draining = true;
        for rule in 0..self.books.spec.rules.len() {
            self.resume(rule)?;
        }
        for number in 0..self.books.requests.len() {
            if self.books.requests[number].stage == Stage::Granted {
                self.claim(number)?;
                self.wakes()?;
            }
        }
        self.settle()?;
        let mut instants = 0;
        while let Some(next) = self.next_event() {
            self.books.now = self.books.now.max(next);
            self.settle()?;
            instants += 1;
            if instants > INSTANTS {
                return Err("no end of instants".to_owned());
            }
        }
        self.books.finished()?;
        self.verify()?;
        let snapshot = self.scheduler.snapshot(at(self.books.now));
        if snapshot.keys != 0 || !self.keys.is_empty() {
            return Err(format!("{} keys kept", snapshot.keys));
        }
        Ok(())
    }

    /// The independent checker finds nothing in the log.
    fn verify(&self) -> Result<(), Wrong> {
        if !self.books.renumbered.is_empty() {
            // The rules that the starts kept to are no more.
            return Ok(());
        }
        let since = |nanos| Duration::from_nanos(self.books.spec.wall + nanos);
        let starts: Vec<Start> = self
            .books
            .attempts
            .iter()
            .map(|attempt| {
                let start = Start::new(since(attempt.start), format!("r{}", attempt.rule), attempt.key);
                let start = start.cost(attempt.least.requests as u32).units("tokens", attempt.least.tokens as u32);
                let Some(end) = attempt.end else { return start };
                start.end(since(end))
            })
            .collect();
        match &request_balancer::verify(&self.rules, &starts)[..] {
            [] => Ok(()),
            [breach, ..] => Err(format!("broken: {breach}")),
        }
    }

    fn inspect(&mut self) -> Result<(), Wrong> {
        self.books.settle();
        if self.blindly {
            return Ok(());
        }
        let now = at(self.books.now);
        let snapshot = self.scheduler.snapshot(now);
        self.books.counts(&snapshot)?;
        for (&key, &id) in &self.keys {
            self.books.key_counts(key, &self.scheduler.key_snapshot(now, id))?;
            let used = self.books.key_used.get(&key).copied().unwrap_or(0);
            if self.books.free_at(key).is_some_and(|free| self.books.now > free.max(used) + KEPT) {
                return Err(format!("key {key} kept, used at {used}, free at {:?}", self.books.free_at(key)));
            }
        }
        self.books.nobody_waits_for_nothing(&snapshot)
    }
}
