//! The callers of the machine: they ask, are woken, claim, end and leave, and write down what they were told.

use request_balancer::engine::{self, Claim, Enter, KeyId, NextStart, RequestId, Turned, Why};

use super::books::{Request, Stage, Wrong};
use super::history::{Entry, Scope, Target, Then};
use super::limits::Kind;
use super::owner::{Owner, at, rule_id};

impl Owner {
    /// While draining: one that stands in line without having been polled.
    pub(super) fn sleeper(&self) -> Option<usize> {
        let idle = |stage| match stage {
            Stage::Asleep | Stage::Refused(_) => true,
            Stage::Granted | Stage::Queued | Stage::Perhaps | Stage::Out(_) | Stage::Running(_) | Stage::Gone => false,
        };
        self.draining.then(|| self.books.requests.iter().position(|request| idle(request.stage)))?
    }

    pub(super) fn enter(&mut self, entry: &Entry) -> Result<(), Wrong> {
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

    pub(super) fn remember(
        &mut self,
        id: RequestId,
        entry: &Entry,
        not_before: Option<u64>,
        deadline: Option<u64>,
    ) -> usize {
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
    pub(super) fn would_deadlock(&self, entry: &Entry, key: KeyId) -> Result<(), Wrong> {
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
        let said = self.scheduler.would_deadlock(rule_id(entry.rule), key, &[], &ids);
        if said == known { Ok(()) } else { Err(format!("would deadlock: {said}, not {known}")) }
    }

    /// It was told to wait: it stands in its queue, or behind another grant of it.
    pub(super) fn waits(&mut self, number: usize) {
        if self.books.requests[number].stage == Stage::Queued {
            self.books.perhaps(number);
        }
        let _unknown = self.scheduler.set_waker(self.books.requests[number].id, number);
    }

    pub(super) fn granted(&mut self, number: usize) -> Result<(), Wrong> {
        let is_first = self.scheduler.is_granted(self.books.requests[number].id);
        self.books.granted(number, is_first)
    }

    pub(super) fn started(&mut self, number: usize) -> Result<(), Wrong> {
        self.books.started(number)?;
        let _unknown = self.scheduler.set_waker(self.books.requests[number].id, number);
        Ok(())
    }

    pub(super) fn claim(&mut self, number: usize) -> Result<(), Wrong> {
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

    pub(super) fn answered(&mut self, number: usize) {
        self.books.left(number, Stage::Gone);
        self.books.requests[number].answers += 1;
    }

    /// Fires the wakers, and those of whoever starts then, until nobody is left to wake.
    pub(super) fn wakes(&mut self) -> Result<(), Wrong> {
        while !self.scheduler.take_wakes().is_empty() {
            let prompt = self.hear()?;
            self.prompt(prompt)?;
        }
        self.books.resolve();
        self.evictions()
    }

    /// Writes down who was woken; returns those who claim at once.
    pub(super) fn hear(&mut self) -> Result<Vec<usize>, Wrong> {
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

    pub(super) fn prompt(&mut self, prompt: Vec<usize>) -> Result<(), Wrong> {
        for number in prompt {
            if self.books.requests[number].stage == Stage::Granted {
                self.claim(number)?;
            }
        }
        Ok(())
    }

    pub(super) fn woken(&mut self, number: usize, prompt: &mut Vec<usize>) {
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
    pub(super) fn end(&mut self, number: usize, then: Then) -> Result<(), Wrong> {
        let request = &self.books.requests[number];
        let (id, now) = (request.id, self.books.now);
        let (rule, key) = (request.entry.rule, request.entry.key);
        let stays = !self.books.closed && !request.aborted;
        let (after, deadline, scope) = match then {
            Then::Finish => {
                // Every other one as the runtime ends it.
                if number.is_multiple_of(2) || self.scheduler.end_at_once(id).is_none() {
                    self.scheduler.finish(at(now), id);
                }
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
    pub(super) fn revoked(&mut self) -> Result<(), Wrong> {
        let revoked = self.books.revoke();
        if revoked.is_empty() {
            return Ok(());
        }
        self.dirty = false;
        self.settled()?;
        self.poll_all(revoked)
    }

    pub(super) fn poll_all(&mut self, numbers: Vec<usize>) -> Result<(), Wrong> {
        for number in numbers {
            if self.books.requests[number].stage.in_line() {
                self.claim(number)?;
            }
        }
        self.wakes()
    }

    /// Polls a request that was put in line by a call that may have granted or refused it.
    pub(super) fn repoll(&mut self, number: usize) -> Result<(), Wrong> {
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

    pub(super) fn withdraw(&mut self, number: usize) -> Result<(), Wrong> {
        self.scheduler.withdraw(at(self.books.now), self.books.requests[number].id);
        if self.books.requests[number].stage == Stage::Gone {
            // Unknown to the machine: nothing happened.
            return self.wakes();
        }
        self.books.ended(number);
        self.answered(number);
        self.settled()
    }
}
