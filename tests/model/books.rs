//! What is known of each request, from what the machine said and from nothing else, and what must follow from it.

use std::collections::{BTreeMap, BTreeSet};

use request_balancer::engine::{NextStart, RequestId, Why};

use super::history::{Entry, Target};
use super::limits::{Attempt, Limit};
use super::server::{Done, Word};
use super::shares::Shares;
use super::spec::{Cost, Spec};

/// What is wrong, in words.
pub(crate) type Wrong = String;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) entry: Entry,
    /// What it was said to cost.
    pub(crate) asked: Cost,
    pub(crate) stage: Stage,
    /// When it entered or was put back.
    pub(crate) since: u64,
    pub(crate) not_before: u64,
    pub(crate) deadline: Option<u64>,
    /// In which order it was granted.
    pub(crate) granted: u64,
    pub(crate) lease: Option<u64>,
    pub(crate) slept: bool,
    /// Attempts that began.
    pub(crate) starts: usize,
    pub(crate) aborted: bool,
    /// When its owner claims.
    pub(crate) claims_at: Option<u64>,
    /// When its attempt ends.
    pub(crate) ends_at: Option<u64>,
    /// What the machine said of its start before it entered, and how many loosening events and ends there were then.
    pub(crate) foretold: (NextStart, u64, u64),
    /// Times its owner was told how it ended.
    pub(crate) answers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Queued,
    /// Queued, or granted behind another grant of its queue.
    Perhaps,
    Granted,
    Asleep,
    /// Out of its queue until an instant.
    Out(u64),
    /// Its attempt, by number.
    Running(usize),
    Refused(Why),
    Gone,
}

impl Stage {
    pub(crate) const fn in_line(self) -> bool {
        matches!(self, Self::Queued | Self::Perhaps | Self::Granted | Self::Asleep | Self::Out(_))
    }
}

/// Why a request cannot start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Paused,
    Until(u64),
    /// Position of the limit, when it has room if nothing else happens, and whether it has room for a cost of one.
    Full {
        limit: usize,
        opens: Option<u64>,
        fits_one: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) spec: Spec,
    pub(crate) limits: Vec<Limit>,
    pub(crate) requests: Vec<Request>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) hold: u64,
    pub(crate) rule_holds: Vec<u64>,
    pub(crate) key_holds: BTreeMap<u64, u64>,
    pub(crate) queue_holds: BTreeMap<(usize, u64), u64>,
    pub(crate) paused: Vec<bool>,
    pub(crate) closed: bool,
    pub(crate) now: u64,
    pub(crate) grants: u64,
    pub(crate) shares: Shares,
    /// The order of grants is not known at the moment.
    pub(crate) blind: bool,
    /// Events that may let something start earlier than it seemed: releases, refunds, refusals.
    pub(crate) loosened: u64,
    /// Attempts that ended.
    pub(crate) ends: u64,
    /// When a key was last used.
    pub(crate) key_used: BTreeMap<u64, u64>,
    /// What the server said, in that order.
    pub(crate) words_said: Vec<Word>,
    /// Counts responses and ends.
    pub(crate) order: u64,
    /// Queues whose numbers were changed.
    pub(crate) renumbered: BTreeSet<(usize, u64)>,
}

impl Books {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            limits: Limit::all(spec),
            requests: Vec::new(),
            attempts: Vec::new(),
            hold: 0,
            rule_holds: vec![0; spec.rules.len()],
            key_holds: BTreeMap::new(),
            queue_holds: BTreeMap::new(),
            paused: spec.rules.iter().map(|rule| rule.paused).collect(),
            closed: false,
            now: 0,
            grants: 0,
            shares: Shares::default(),
            blind: false,
            loosened: 0,
            ends: 0,
            key_used: BTreeMap::new(),
            words_said: Vec::new(),
            order: 0,
            renumbered: BTreeSet::new(),
            spec: spec.clone(),
        }
    }

    /// Requests of a queue, in the order of their numbers.
    pub(crate) fn queue(&self, rule: usize, key: u64) -> impl Iterator<Item = usize> {
        let within = move |request: &Request| request.entry.rule == rule && request.entry.key == key;
        self.requests.iter().enumerate().filter(move |(_, request)| within(request)).map(|(number, _)| number)
    }

    /// Queues in which something waits for a grant.
    pub(crate) fn waiting_queues(&self) -> Vec<(usize, u64)> {
        let mut queues: Vec<_> = self
            .requests
            .iter()
            .filter(|request| self.is_queued(request))
            .map(|request| (request.entry.rule, request.entry.key))
            .collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Whether it waits for a grant. Who stepped out does from its instant on.
    pub(crate) fn is_queued(&self, request: &Request) -> bool {
        match request.stage {
            Stage::Queued => true,
            Stage::Out(until) => until <= self.now,
            Stage::Perhaps | Stage::Granted | Stage::Asleep | Stage::Running(_) | Stage::Refused(_) | Stage::Gone => {
                false
            }
        }
    }

    /// The first of a queue that waits for a grant; none if that is not certain.
    pub(crate) fn head(&self, rule: usize, key: u64) -> Option<usize> {
        let mut queue = self.queue(rule, key);
        let first = queue
            .find(|&number| self.is_queued(&self.requests[number]) || self.requests[number].stage == Stage::Perhaps)?;
        (self.requests[first].stage != Stage::Perhaps).then_some(first)
    }

    /// The grant of a queue that may claim.
    pub(crate) fn first_granted(&self, rule: usize, key: u64) -> Option<usize> {
        self.queue(rule, key)
            .filter(|&number| self.requests[number].stage == Stage::Granted)
            .min_by_key(|&number| self.requests[number].granted)
    }

    /// Whether a queue has requests of which it is not certain that they were granted.
    pub(crate) fn perhaps_granted(&self, rule: usize, key: u64) -> bool {
        self.queue(rule, key).any(|number| self.requests[number].stage == Stage::Perhaps)
    }

    /// Sum of costs that were granted and did not start yet, as far as a limit is concerned.
    pub(crate) fn outstanding(&self, limit: &Limit, key: u64, perhaps: bool) -> u64 {
        self.requests
            .iter()
            .filter(|request| request.stage == Stage::Granted || (perhaps && request.stage == Stage::Perhaps))
            .filter(|request| limit.concerns(Some(key), request.entry.rule, request.entry.key))
            .map(|request| limit.takes(request.entry.cost))
            .sum()
    }

    pub(crate) fn held_until(&self, rule: usize, key: u64) -> u64 {
        let key_hold = self.key_holds.get(&key).copied().unwrap_or(0);
        let queue_hold = self.queue_holds.get(&(rule, key)).copied().unwrap_or(0);
        self.hold.max(self.rule_holds[rule]).max(key_hold).max(queue_hold)
    }

    /// Everything that keeps a request from starting now, but for whose turn it is.
    ///
    /// `perhaps`: those that may have been granted count as if they had been.
    pub(crate) fn obstacles(&self, number: usize, perhaps: bool) -> Vec<Obstacle> {
        let request = &self.requests[number];
        let (rule, key, cost) = (request.entry.rule, request.entry.key, request.entry.cost);
        let mut obstacles = Vec::new();
        if self.paused[rule] {
            obstacles.push(Obstacle::Paused);
        }
        let until = self.held_until(rule, key).max(request.not_before);
        if until > self.now {
            obstacles.push(Obstacle::Until(until));
        }
        for (position, limit) in self.limits.iter().enumerate().filter(|(_, limit)| limit.binds(rule, key)) {
            let mut outstanding = self.outstanding(limit, key, perhaps);
            if request.stage == Stage::Granted || (perhaps && request.stage == Stage::Perhaps) {
                outstanding -= limit.takes(cost);
            }
            let fits_at = |cost| limit.fits_at(&self.attempts, key, self.now, outstanding, cost);
            // What may have been granted is this one, and awaited, too.
            let own = if request.stage == Stage::Granted || (perhaps && request.stage == Stage::Perhaps) {
                limit.takes(cost) as i64
            } else {
                0
            };
            let server = self.left_by_server(position, key, perhaps);
            let left = |cost| server.is_none_or(|(left, _)| limit.takes(cost) as i64 <= left + own);
            let opens = fits_at(cost);
            if opens != Some(self.now) || !left(cost) {
                let until = server.filter(|_| !left(cost)).map_or(0, |(_, until)| until);
                let opens = opens.map(|opens| opens.max(until));
                let fits_one = cost != Cost::ONE && fits_at(Cost::ONE) == Some(self.now) && left(Cost::ONE);
                obstacles.push(Obstacle::Full { limit: position, opens, fits_one });
            }
        }
        obstacles
    }

    /// Whether a limit is smaller than a request, so that it could never start; `capacity` is that limit's count.
    pub(crate) fn can_never_fit(&self, rule: usize, key: u64, cost: Cost, capacity: Option<u64>) -> bool {
        self.limits
            .iter()
            .filter(|limit| limit.binds(rule, key) && limit.takes(cost) > limit.count)
            .any(|limit| capacity.is_none_or(|capacity| capacity == limit.count))
    }

    /// The same for a request that is there.
    pub(crate) fn never_fits(&self, number: usize, capacity: u32) -> bool {
        let Entry { rule, key, cost, .. } = self.requests[number].entry;
        self.can_never_fit(rule, key, cost, Some(capacity.into()))
    }

    /// From now on these are the rules, of which a queue's numbers are new. What fits them no more is refused.
    pub(crate) fn renumber(&mut self, spec: Spec, queue: (usize, u64)) {
        self.limits = Limit::all(&spec);
        self.spec = spec;
        self.loosened += 1;
        self.shares.reset();
        self.renumbered.insert(queue);
        let in_line: Vec<usize> =
            self.queue(queue.0, queue.1).filter(|&number| self.requests[number].stage.in_line()).collect();
        for number in in_line {
            let cost = self.requests[number].entry.cost;
            if self.can_never_fit(queue.0, queue.1, cost, None) {
                self.left(number, Stage::Refused(Why::CostTooHigh { cost: 0, capacity: 0 }));
            }
        }
    }

    /// How many of a queue stand in line.
    pub(crate) fn in_line(&self, rule: usize, key: u64) -> u64 {
        self.queue(rule, key).filter(|&number| self.requests[number].stage.in_line()).count() as u64
    }

    /// Who makes place for a newcomer in a full queue that drops its oldest; `Err` if that is not certain.
    pub(crate) fn oldest_never_started(&self, rule: usize, key: u64) -> Result<Option<usize>, ()> {
        for number in self.queue(rule, key) {
            let request = &self.requests[number];
            match request.stage {
                Stage::Queued if request.starts == 0 => return Ok(Some(number)),
                Stage::Perhaps if request.starts == 0 => return Err(()),
                Stage::Out(until) if request.starts == 0 && until <= self.now => return Err(()),
                Stage::Queued
                | Stage::Perhaps
                | Stage::Out(_)
                | Stage::Granted
                | Stage::Asleep
                | Stage::Running(_)
                | Stage::Refused(_)
                | Stage::Gone => {}
            }
        }
        Ok(None)
    }

    pub(crate) fn set_hold(&mut self, target: Target, until: u64) {
        let until = until.min(self.now + self.spec.max_hold);
        let hold = match target {
            Target::Overall => &mut self.hold,
            Target::Rule(rule) => &mut self.rule_holds[rule],
            Target::Key(key) => self.key_holds.entry(key).or_default(),
            Target::Queue(rule, key) => self.queue_holds.entry((rule, key)).or_default(),
        };
        *hold = until.max(*hold);
    }

    /// Takes back what was granted and is held or paused now. Returns whose grants those may have been.
    pub(crate) fn revoke(&mut self) -> Vec<usize> {
        let stopped = |request: &Request| {
            let (rule, key) = (request.entry.rule, request.entry.key);
            self.paused[rule] || self.held_until(rule, key) > self.now
        };
        let granted = |request: &Request| matches!(request.stage, Stage::Granted | Stage::Perhaps);
        let revoked: Vec<usize> = (0..self.requests.len())
            .filter(|&number| granted(&self.requests[number]) && stopped(&self.requests[number]))
            .collect();
        for &number in &revoked {
            self.loosened += 1;
            let request = &mut self.requests[number];
            request.stage = Stage::Queued;
            request.slept = false;
            request.lease = None;
            request.claims_at = None;
        }
        if !revoked.is_empty() {
            self.shares.reset();
        }
        revoked
    }

    pub(crate) fn release(&mut self, target: Target) {
        self.loosened += 1;
        match target {
            Target::Overall => self.hold = 0,
            Target::Rule(rule) => self.rule_holds[rule] = 0,
            Target::Key(key) => drop(self.key_holds.remove(&key)),
            Target::Queue(rule, key) => drop(self.queue_holds.remove(&(rule, key))),
        }
    }

    /// What a turn does first: leases that ran out are revoked, who stepped out comes back.
    pub(crate) fn advance(&mut self) {
        for number in 0..self.requests.len() {
            let request = &mut self.requests[number];
            match request.stage {
                Stage::Granted if request.lease.is_some_and(|lease| lease <= self.now) => {
                    self.loosened += 1;
                    request.stage = Stage::Asleep;
                    request.slept = true;
                    request.lease = None;
                    request.claims_at = None;
                    let (rule, key) = (request.entry.rule, request.entry.key);
                    self.begin_lease(rule, key);
                }
                Stage::Out(until) if until <= self.now => {
                    request.stage = Stage::Queued;
                    request.not_before = 0;
                }
                Stage::Queued
                | Stage::Perhaps
                | Stage::Out(_)
                | Stage::Granted
                | Stage::Asleep
                | Stage::Running(_)
                | Stage::Refused(_)
                | Stage::Gone => {}
            }
        }
    }

    /// The lease of a queue's first grant runs from when it became the first.
    pub(crate) fn begin_lease(&mut self, rule: usize, key: u64) {
        let end = self.now + self.spec.lease;
        if let Some(first) = self.first_granted(rule, key) {
            self.requests[first].lease.get_or_insert(end);
        }
    }

    /// From now on it is not certain whether a request was granted.
    pub(crate) fn perhaps(&mut self, number: usize) {
        self.grants += 1;
        self.requests[number].stage = Stage::Perhaps;
        self.requests[number].granted = self.grants;
    }

    /// A request that is granted now must not have any obstacle.
    pub(crate) fn nothing_in_the_way(&self, number: usize) -> Result<(), Wrong> {
        let obstacles = self.obstacles(number, false);
        if obstacles.is_empty() {
            return Ok(());
        }
        Err(format!("#{number} granted despite {}", self.words(&obstacles)))
    }

    /// A request was granted: it must have been its turn in its queue, and nothing may stand in its way.
    ///
    /// `is_first`: it may claim at once.
    pub(crate) fn granted(&mut self, number: usize, is_first: bool) -> Result<(), Wrong> {
        let request = &self.requests[number];
        let (rule, key) = (request.entry.rule, request.entry.key);
        if request.stage != Stage::Perhaps {
            let before = self.queue(rule, key).take_while(|&other| other < number);
            if let Some(passed) = before.into_iter().find(|&other| self.is_queued(&self.requests[other])) {
                return Err(format!("#{number} granted before #{passed} of its queue"));
            }
            self.nothing_in_the_way(number)?;
            self.count_grant(number)?;
        } else {
            self.shares.reset();
        }
        self.grants += 1;
        let grants = self.grants;
        let request = &mut self.requests[number];
        // Who was told to wait behind a grant and is first now was granted then.
        let then = request.stage == Stage::Perhaps && is_first;
        request.granted = if then { request.granted } else { grants };
        request.stage = Stage::Granted;
        request.lease = None;
        if then {
            // Another one seemed to be first.
            let others: Vec<usize> = self.queue(rule, key).filter(|&other| other != number).collect();
            others.into_iter().for_each(|other| self.requests[other].lease = None);
        }
        self.begin_lease(rule, key);
        self.forget_unready((rule, key));
        Ok(())
    }

    /// An attempt began.
    pub(crate) fn started(&mut self, number: usize) -> Result<(), Wrong> {
        let request = &self.requests[number];
        let (rule, key, cost) = (request.entry.rule, request.entry.key, request.entry.cost);
        if request.stage == Stage::Granted && self.first_granted(rule, key) != Some(number) {
            return Err(format!("#{number} started before one granted earlier in its queue"));
        }
        if self.paused[rule] || self.held_until(rule, key) > self.now {
            return Err(format!("#{number} started although it is held or paused"));
        }
        if request.starts == 0 {
            self.as_foretold(number)?;
        }
        let attempt = self.attempts.len();
        self.order += 1;
        let charges = vec![(self.order, cost)];
        self.attempts.push(Attempt { rule, key, cost, least: cost, charges, start: self.now, end: None, done: None });
        let now = self.now;
        let request = &mut self.requests[number];
        request.stage = Stage::Running(attempt);
        request.lease = None;
        request.claims_at = None;
        request.deadline = None;
        let ends = request.entry.attempts.get(request.starts).map_or(0, |attempt| attempt.lasts);
        request.ends_at = Some(now + ends);
        request.starts += 1;
        self.begin_lease(rule, key);
        self.forget_unready((rule, key));
        for limit in self.limits.iter().filter(|limit| limit.binds(rule, key)) {
            // Granted before the key's numbers were lowered.
            if self.renumbered.contains(&(rule, key)) {
                continue;
            }
            let used = limit.used_knowingly(&self.attempts, key, self.now);
            if used > limit.count {
                return Err(format!("#{number} started as {used} of {} in {}", limit.count, limit.name));
            }
        }
        Ok(())
    }

    /// The machine's lower bound for a start holds unless something let go meanwhile that did not have to.
    fn as_foretold(&self, number: usize) -> Result<(), Wrong> {
        let (foretold, loosened, ends) = self.requests[number].foretold;
        if loosened != self.loosened {
            return Ok(());
        }
        let right = match foretold {
            NextStart::Now => true,
            NextStart::At(at) => self.now >= at.as_nanos(),
            // Or the server's window begins anew.
            NextStart::WhenOneEnds => self.ends > ends || !self.words_said.is_empty(),
            NextStart::Never => false,
        };
        if right { Ok(()) } else { Err(format!("#{number} started before it was foretold: {foretold:?}")) }
    }

    /// What a request costs as far as it is known.
    pub(crate) fn cost_of(&self, request: &Request) -> Cost {
        match request.stage {
            Stage::Running(attempt) => self.attempts[attempt].cost,
            Stage::Queued
            | Stage::Perhaps
            | Stage::Granted
            | Stage::Asleep
            | Stage::Out(_)
            | Stage::Refused(_)
            | Stage::Gone => request.entry.cost,
        }
    }

    /// What a request's running attempt costs, as it turns out.
    pub(crate) fn costs(&mut self, number: usize, change: impl Fn(&mut Cost)) {
        let Stage::Running(attempt) = self.requests[number].stage else { return };
        let attempt = &mut self.attempts[attempt];
        let before = attempt.cost;
        change(&mut attempt.cost);
        self.order += 1;
        attempt.charges.push((self.order, attempt.cost.and(before, u64::saturating_sub)));
        attempt.least = attempt.least.and(attempt.cost, u64::min);
        self.loosened += 1;
    }

    /// What a request's next attempt costs: as much as the last one, no less than was asked for, and only that if it
    /// could never start otherwise.
    pub(crate) fn costs_again(&mut self, number: usize) {
        let Stage::Running(attempt) = self.requests[number].stage else { return };
        let Request { asked, ref entry, .. } = self.requests[number];
        let most = asked.and(self.attempts[attempt].cost, u64::max);
        let fits = !self.can_never_fit(entry.rule, entry.key, most, None);
        self.requests[number].entry.cost = if fits { most } else { asked };
    }

    /// A request's attempt ended.
    pub(crate) fn ended(&mut self, number: usize) {
        if let Stage::Running(attempt) = self.requests[number].stage {
            self.attempts[attempt].end = Some(self.now);
            self.order += 1;
            let done = Done { at: self.now, order: self.order, told: None };
            self.attempts[attempt].done.get_or_insert(done);
            self.ends += 1;
        }
        self.requests[number].ends_at = None;
    }

    /// A request left, wherever it stood.
    pub(crate) fn left(&mut self, number: usize, stage: Stage) {
        if self.requests[number].stage.in_line() {
            self.loosened += 1;
        }
        self.key_used.insert(self.requests[number].entry.key, self.now);
        let request = &mut self.requests[number];
        request.stage = stage;
        request.lease = None;
        request.claims_at = None;
        request.ends_at = None;
        let (rule, key) = (request.entry.rule, request.entry.key);
        self.begin_lease(rule, key);
        self.forget_unready((rule, key));
    }

    /// All starts: rule, key, cost, when.
    pub(crate) fn log(&self) -> Vec<(usize, u64, Cost, u64, Option<u64>)> {
        let line = |attempt: &Attempt| (attempt.rule, attempt.key, attempt.cost, attempt.start, attempt.end);
        self.attempts.iter().map(line).collect()
    }

    pub(crate) fn words(&self, obstacles: &[Obstacle]) -> String {
        let words = obstacles.iter().map(|obstacle| match obstacle {
            Obstacle::Paused => "a pause".to_owned(),
            Obstacle::Until(until) => format!("a hold until {until} at {}", self.now),
            Obstacle::Full { limit, opens, .. } => format!("{} full until {opens:?}", self.limits[*limit].name),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}
