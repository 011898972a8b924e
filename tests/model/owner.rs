//! The machine's owner and its callers: drives the machine through a history and writes down what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use request_balancer::engine::{
    self, Charge, Claim, Enter, Instant, KeyId, Nanos, NextStart, Plan, RequestId, RuleId, Scheduler, ServerReset,
    ServerWindow, Turned, Why,
};
use request_balancer::{Rules, Start};

use super::books::{Books, Request, Stage, Wrong};
use super::history::{Attempt, Entry, History, Op, Scope, Target, Then};
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
    rules: Rules,
    pub(crate) books: Books,
    pub(crate) keys: BTreeMap<u64, KeyId>,
    pub(crate) turns: u64,
    labels: BTreeMap<u32, usize>,
    /// Something was put in line without a turn.
    dirty: bool,
    /// Every request is polled as soon as it may do something.
    draining: bool,
    /// Nothing is inspected: it was, the last time it went this way.
    pub(crate) blindly: bool,
    /// The queue that a newcomer is being put into.
    joining: Option<(usize, u64)>,
}

pub(crate) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const fn rule_id(rule: usize) -> RuleId {
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
    fn settle(&mut self) -> Result<(), Wrong> {
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

    /// While draining: one that stands in line without having been polled.
    fn sleeper(&self) -> Option<usize> {
        let idle = |stage| match stage {
            Stage::Asleep | Stage::Refused(_) => true,
            Stage::Granted | Stage::Queued | Stage::Perhaps | Stage::Out(_) | Stage::Running(_) | Stage::Gone => false,
        };
        self.draining.then(|| self.books.requests.iter().position(|request| idle(request.stage)))?
    }

    fn turn(&mut self) -> Result<(), Wrong> {
        self.dirty = false;
        self.turns += 1;
        self.scheduler.dispatch(at(self.books.now));
        self.settled()
    }

    /// After a call that may have made a turn.
    fn settled(&mut self) -> Result<(), Wrong> {
        self.books.advance();
        self.wakes()
    }

    fn enter(&mut self, entry: &Entry) -> Result<(), Wrong> {
        let (rule, key, now) = (entry.rule, entry.key, self.books.now);
        let id = self.key(key)?;
        let deadline = entry.deadline.map(|span| now + span);
        let not_before = entry.not_before.map(|span| now + span);
        let units = [entry.cost.tokens as u32];
        let asked = engine::Entry {
            cost: entry.cost.requests as u32,
            units: if entry.cost.tokens > 0 { &units } else { &[] },
            not_before: not_before.map(at),
            deadline: deadline.map(at),
            endpoints: &[],
        };
        let full = self.books.spec.rules[rule].queue.is_some_and(|bound| self.books.in_line(rule, key) >= bound);
        let displaced = if full && self.books.spec.rules[rule].drop_oldest {
            self.books.oldest_never_started(rule, key)
        } else {
            Ok(None)
        };
        let foretold = self.scheduler.next_start_of(at(now), rule_id(rule), Some(id), &asked);
        self.would_deadlock(entry, id)?;
        let entered = if entry.at_once {
            self.scheduler.enter(at(now), id, rule_id(rule), asked)
        } else {
            self.scheduler.enqueue(at(now), id, rule_id(rule), asked).map(Enter::Waiting)
        };
        let too_costly = self.books.can_never_fit(rule, key, entry.cost, None);
        let right = match entered {
            Err(Turned::StaleKey | Turned::RuleRemoved) => false,
            Err(Turned::Closed) => self.books.closed,
            Err(Turned::CostTooHigh { capacity, .. }) => {
                !self.books.closed && self.books.can_never_fit(rule, key, entry.cost, Some(capacity.into()))
            }
            Err(Turned::QueueFull { waiting }) => {
                full && displaced.is_ok_and(|displaced| displaced.is_none())
                    && u64::from(waiting) == self.books.in_line(rule, key)
                    || displaced.is_err()
            }
            Ok(Enter::Started(_)) => !self.books.closed && !too_costly,
            Ok(Enter::Waiting(_)) => !self.books.closed && !too_costly && (!full || displaced != Ok(None)),
        };
        if !right {
            return Err(format!("entering: {entered:?}, full: {full}, too costly: {too_costly}"));
        }
        let Ok(entered) = entered else { return Ok(()) };
        let (Enter::Started(request) | Enter::Waiting(request)) = entered;
        let number = self.remember(request, entry, not_before, deadline);
        self.books.requests[number].foretold = (foretold, self.books.loosened, self.books.ends);
        self.joining = full.then_some((rule, key));
        match entered {
            Enter::Started(_) => {}
            Enter::Waiting(_) if entry.at_once => self.waits(number),
            Enter::Waiting(_) => {
                self.dirty = true;
                let _unknown = self.scheduler.set_waker(request, number);
            }
        }
        if entry.at_once {
            self.books.advance();
        }
        // Those who were woken were granted before it or after it.
        let others = entry.at_once && !self.scheduler.take_wakes().is_empty();
        self.books.blind = others;
        let prompt = self.hear()?;
        self.joining = None;
        if let Ok(Some(victim)) = displaced
            && matches!(entered, Enter::Waiting(_))
            && self.books.requests[victim].stage != Stage::Gone
        {
            return Err(format!("#{victim} was not displaced"));
        }
        if let Enter::Started(_) = entered {
            self.books.blind = others;
            self.granted(number)?;
            self.books.blind = false;
            self.started(number)?;
        } else if entry.at_once && self.books.requests[number].stage != Stage::Gone {
            self.repoll(number)?;
        }
        self.prompt(prompt)?;
        self.wakes()
    }

    fn remember(&mut self, id: RequestId, entry: &Entry, not_before: Option<u64>, deadline: Option<u64>) -> usize {
        let (number, now) = (self.books.requests.len(), self.books.now);
        let until = not_before.unwrap_or(0);
        let ordered = self.books.spec.rules[entry.rule].ordered;
        self.books.requests.push(Request {
            id,
            entry: entry.clone(),
            asked: entry.cost,
            stage: if until > now && !ordered { Stage::Out(until) } else { Stage::Queued },
            since: now,
            not_before: if ordered { until } else { 0 },
            deadline,
            granted: 0,
            lease: None,
            slept: false,
            starts: 0,
            aborted: false,
            claims_at: None,
            ends_at: None,
            foretold: (NextStart::Now, 0, 0),
            answers: 0,
        });
        self.labels.insert(entry.label, number);
        number
    }

    /// Whether a request would wait for a slot of those that wait for it, by the numbers.
    fn would_deadlock(&self, entry: &Entry, key: KeyId) -> Result<(), Wrong> {
        let running = self.books.requests.iter().enumerate().filter(|(number, request)| {
            matches!(request.stage, Stage::Running(_))
                && !request.aborted
                && (entry.label as usize >> (number % 5)).is_multiple_of(2)
        });
        let ancestors: Vec<&Request> = running.map(|(_, request)| request).collect();
        let known = self.books.limits.iter().filter(|limit| limit.binds(entry.rule, entry.key)).any(|limit| {
            let bound = ancestors
                .iter()
                .filter(|request| limit.concerns(Some(entry.key), request.entry.rule, request.entry.key));
            let taken: u64 = bound.map(|request| limit.takes(self.books.cost_of(request))).sum();
            matches!(limit.kind, Kind::Running | Kind::Responses(..)) && taken >= limit.count
        });
        let ids: Vec<RequestId> = ancestors.iter().map(|request| request.id).collect();
        let said = self.scheduler.would_deadlock(rule_id(entry.rule), key, &ids);
        if said == known { Ok(()) } else { Err(format!("would deadlock: {said}, not {known}")) }
    }

    /// It was told to wait: it stands in its queue, or behind another grant of it.
    fn waits(&mut self, number: usize) {
        if self.books.requests[number].stage == Stage::Queued {
            self.books.perhaps(number);
        }
        let _unknown = self.scheduler.set_waker(self.books.requests[number].id, number);
    }

    fn granted(&mut self, number: usize) -> Result<(), Wrong> {
        let is_first = self.scheduler.is_granted(self.books.requests[number].id);
        self.books.granted(number, is_first)
    }

    fn started(&mut self, number: usize) -> Result<(), Wrong> {
        self.books.started(number)?;
        let _unknown = self.scheduler.set_waker(self.books.requests[number].id, number);
        Ok(())
    }

    fn claim(&mut self, number: usize) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (stage, now) = (request.stage, self.books.now);
        let overdue = request.deadline.is_some_and(|deadline| deadline <= now);
        let claim = self.scheduler.claim(at(now), request.id);
        let wrong = || Err(format!("#{number} claims as {stage:?}: {claim:?}"));
        match (claim, stage) {
            (Claim::Started { waited }, Stage::Granted | Stage::Perhaps | Stage::Asleep) => {
                if waited.get() != now - request.since {
                    return wrong();
                }
                if stage == Stage::Asleep {
                    self.books.requests[number].stage = Stage::Queued;
                    self.books.advance();
                    self.books.blind = true;
                    self.granted(number)?;
                }
                self.started(number)?;
                self.books.advance();
            }
            // It is woken at its deadline: whether that was a grant or a refusal is only known now.
            (Claim::Started { .. }, Stage::Queued | Stage::Out(_)) if overdue => {
                self.granted(number)?;
                self.started(number)?;
                self.books.advance();
            }
            (Claim::Waiting, Stage::Queued | Stage::Perhaps | Stage::Out(_)) => {
                let _unknown = self.scheduler.set_waker(request.id, number);
            }
            (Claim::Waiting, Stage::Granted)
                if self.books.first_granted(request.entry.rule, request.entry.key) != Some(number)
                    || self.books.perhaps_granted(request.entry.rule, request.entry.key) =>
            {
                let _unknown = self.scheduler.set_waker(request.id, number);
            }
            (Claim::Waiting, Stage::Asleep) => {
                self.books.requests[number].stage = Stage::Queued;
                self.books.requests[number].not_before = 0;
                self.books.advance();
                self.waits(number);
            }
            (Claim::Running, Stage::Running(_)) | (Claim::Unknown, Stage::Gone) => {}
            (Claim::Refused { why, .. }, Stage::Refused(known)) if why == known => self.answered(number),
            (Claim::Refused { why: Why::CostTooHigh { .. }, .. }, Stage::Refused(Why::CostTooHigh { .. })) => {
                self.answered(number);
            }
            (Claim::Refused { why: Why::MaxWait, .. }, _) if overdue && stage.in_line() => self.answered(number),
            (Claim::Refused { why: Why::Displaced, .. }, Stage::Queued | Stage::Perhaps | Stage::Out(_))
                if self.joining == Some((request.entry.rule, request.entry.key)) =>
            {
                self.answered(number);
            }
            (
                Claim::Started { .. } | Claim::Waiting | Claim::Running | Claim::Refused { .. } | Claim::Unknown,
                Stage::Queued
                | Stage::Perhaps
                | Stage::Granted
                | Stage::Asleep
                | Stage::Out(_)
                | Stage::Running(_)
                | Stage::Refused(_)
                | Stage::Gone,
            ) => return wrong(),
        }
        Ok(())
    }

    fn answered(&mut self, number: usize) {
        self.books.left(number, Stage::Gone);
        self.books.requests[number].answers += 1;
    }

    /// Fires the wakers, and those of whoever starts then, until nobody is left to wake.
    fn wakes(&mut self) -> Result<(), Wrong> {
        while !self.scheduler.take_wakes().is_empty() {
            let prompt = self.hear()?;
            self.prompt(prompt)?;
        }
        self.books.resolve();
        self.evictions()
    }

    /// Writes down who was woken; returns those who claim at once.
    fn hear(&mut self) -> Result<Vec<usize>, Wrong> {
        let mut prompt = Vec::new();
        for number in std::mem::take(self.scheduler.take_wakes()) {
            let request = &self.books.requests[number];
            let queue = (request.entry.rule, request.entry.key);
            let overdue = request.deadline.is_some_and(|deadline| deadline <= self.books.now);
            match request.stage {
                Stage::Queued | Stage::Perhaps | Stage::Out(_) | Stage::Asleep
                    if (overdue || self.joining == Some(queue)) && !self.scheduler.is_granted(request.id) =>
                {
                    self.claim(number)?;
                    let request = &self.books.requests[number];
                    if matches!(request.stage, Stage::Queued | Stage::Perhaps | Stage::Out(_)) {
                        // Not refused, and yet woken: granted behind another grant of its queue.
                        self.granted(number)?;
                    }
                }
                Stage::Refused(_) => self.claim(number)?,
                Stage::Queued | Stage::Perhaps | Stage::Out(_) => {
                    self.granted(number)?;
                    self.woken(number, &mut prompt);
                }
                Stage::Granted => self.woken(number, &mut prompt),
                Stage::Running(_) if self.scheduler.is_aborted(request.id) && request.aborted => {}
                Stage::Asleep | Stage::Running(_) | Stage::Gone => {
                    return Err(format!("#{number} woken as {:?}", request.stage));
                }
            }
        }
        if std::mem::take(&mut self.books.blind) {
            self.books.shares.reset();
        }
        Ok(prompt)
    }

    fn prompt(&mut self, prompt: Vec<usize>) -> Result<(), Wrong> {
        for number in prompt {
            if self.books.requests[number].stage == Stage::Granted {
                self.claim(number)?;
            }
        }
        Ok(())
    }

    fn woken(&mut self, number: usize, prompt: &mut Vec<usize>) {
        let now = self.books.now;
        let request = &mut self.books.requests[number];
        let delay = if self.draining { Some(0) } else { request.entry.claims_after };
        match delay {
            Some(0) => prompt.push(number),
            Some(span) => request.claims_at = Some(now + span),
            None => {}
        }
    }

    /// An attempt ends.
    fn end(&mut self, number: usize, then: Then) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (id, now) = (request.id, self.books.now);
        let (rule, key) = (request.entry.rule, request.entry.key);
        let stays = !self.books.closed && !request.aborted;
        let (after, deadline, scope) = match then {
            Then::Finish => {
                self.scheduler.finish(at(now), id);
                self.books.ended(number);
                self.answered(number);
                return self.settled();
            }
            Then::Retry { scope, after, deadline } => (after, deadline, Some(scope)),
            Then::BackOff { after, deadline } => (after, deadline, None),
        };
        let (until, deadline) = (now + after, deadline.map(|span| now + span));
        let target = scope.and_then(|scope| match scope {
            Scope::Request => None,
            Scope::Queue => Some(Target::Queue(rule, key)),
            Scope::Key => Some(Target::Key(key)),
            Scope::Rule => Some(Target::Rule(rule)),
            Scope::Overall => Some(Target::Overall),
        });
        let kept = match scope {
            Some(_) => {
                let known = match target {
                    Some(target) => self.target(target)?,
                    None => engine::Target::Request,
                };
                self.scheduler.retry(at(now), id, known, at(until), deadline.map(at))
            }
            None => self.scheduler.back_off(at(now), id, at(until), deadline.map(at)),
        };
        if kept != stays {
            return Err(format!("#{number} put back: {kept}"));
        }
        if let Some(target) = target {
            self.books.set_hold(target, until);
        }
        let revoked = self.books.revoke();
        self.books.costs_again(number);
        self.books.ended(number);
        if !kept {
            self.answered(number);
            self.settled()?;
            return self.poll_all(revoked);
        }
        let waits_alone = matches!(scope, Some(Scope::Request) | None) || after > self.books.spec.max_hold;
        let steps_out = waits_alone && !self.books.spec.rules[rule].ordered;
        let request = &mut self.books.requests[number];
        request.not_before = if waits_alone && !steps_out { until } else { 0 };
        request.since = now;
        request.deadline = deadline;
        if steps_out && until > now {
            request.stage = Stage::Out(until);
        } else {
            self.books.perhaps(number);
        }
        self.settled()?;
        // It has no waker yet: it may have been granted again already.
        if matches!(self.books.requests[number].stage, Stage::Perhaps | Stage::Out(_) | Stage::Queued) {
            self.repoll(number)?;
        }
        self.wakes()?;
        self.poll_all(revoked)
    }

    /// After a call that stopped something: what was granted there and not taken up is taken back.
    fn revoked(&mut self) -> Result<(), Wrong> {
        let revoked = self.books.revoke();
        if revoked.is_empty() {
            return Ok(());
        }
        self.dirty = false;
        self.settled()?;
        self.poll_all(revoked)
    }

    fn poll_all(&mut self, numbers: Vec<usize>) -> Result<(), Wrong> {
        for number in numbers {
            if self.books.requests[number].stage.in_line() {
                self.claim(number)?;
            }
        }
        self.wakes()
    }

    /// Polls a request that was put in line by a call that may have granted or refused it.
    fn repoll(&mut self, number: usize) -> Result<(), Wrong> {
        let (id, now) = (self.books.requests[number].id, self.books.now);
        let stage = self.books.requests[number].stage;
        match self.scheduler.claim(at(now), id) {
            Claim::Started { .. } if stage == Stage::Granted => self.started(number)?,
            Claim::Started { .. } => {
                self.books.nothing_in_the_way(number)?;
                self.books.granted(number, true)?;
                self.started(number)?;
                self.books.advance();
            }
            Claim::Waiting => self.waits(number),
            Claim::Refused { why: Why::MaxWait, .. }
                if self.books.requests[number].deadline.is_some_and(|deadline| deadline <= now) =>
            {
                self.answered(number);
            }
            Claim::Refused { why: Why::CostTooHigh { capacity, .. }, .. }
                if self.books.never_fits(number, capacity) =>
            {
                self.answered(number);
            }
            claim @ (Claim::Running | Claim::Refused { .. } | Claim::Unknown) => {
                return Err(format!("#{number} put back and polled at once: {claim:?}"));
            }
        }
        Ok(())
    }

    fn withdraw(&mut self, number: usize) -> Result<(), Wrong> {
        self.scheduler.withdraw(at(self.books.now), self.books.requests[number].id);
        if self.books.requests[number].stage == Stage::Gone {
            // Unknown to the machine: nothing happened.
            return self.wakes();
        }
        self.books.ended(number);
        self.answered(number);
        self.settled()
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
        self.books.told(number, narrowed, left, reset);
        self.settled()
    }

    /// An attempt costs something else than was asked for.
    fn settle_cost(&mut self, number: usize, tokens: bool, actual: u64) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (id, aborted, charge) =
            (request.id, request.aborted, if tokens { Charge::Unit(0) } else { Charge::Requests });
        self.scheduler.settle(at(self.books.now), id, charge, actual as u32);
        if !aborted {
            self.books.costs(number, |cost| *if tokens { &mut cost.tokens } else { &mut cost.requests } = actual);
        }
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
    fn key(&mut self, key: u64) -> Result<KeyId, Wrong> {
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

    fn target(&mut self, target: Target) -> Result<engine::Target, Wrong> {
        Ok(match target {
            Target::Overall => engine::Target::Overall,
            Target::Rule(rule) => engine::Target::Rule(rule_id(rule)),
            Target::Key(key) => engine::Target::Key(self.key(key)?),
            Target::Queue(rule, key) => engine::Target::Queue(rule_id(rule), self.key(key)?),
        })
    }

    /// Forgets the keys that the machine forgot, which must have been idle.
    fn evictions(&mut self) -> Result<(), Wrong> {
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
