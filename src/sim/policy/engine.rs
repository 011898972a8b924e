//! This crate's engine, driven as the shell drives it, by callers who are always polled at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Balancing;
use crate::engine::{
    Claim, Decision, EndpointId, Enter, Entry, FailureKind, Instant, KeyId, LimitSpec, Nanos, Plan, Report, RequestId,
    RetryPolicy, RuleId, Scheduler, Scope, Spent, Target, Turned,
};
use crate::sim::own::OwnNumbers;
use crate::sim::setup::Setup;
use crate::sim::traffic::Call;

pub(crate) struct Engine {
    scheduler: Scheduler<u32>,
    rules: Vec<RuleId>,
    retry: Vec<RetryPolicy>,
    /// Of each traffic: the endpoints that it may use; empty: all.
    among: Vec<Box<[EndpointId]>>,
    keys: Vec<Option<KeyId>>,
    own: BTreeMap<u32, Own>,
    /// By call.
    requests: Vec<Option<(RequestId, u32, u16)>>,
    spent: BTreeMap<u32, Spent>,
    /// Calls that started when they came.
    at_once: Vec<u32>,
    turned_away: Vec<u32>,
    /// Somebody joined the line since the last turn.
    joined: bool,
}

/// A key's own numbers, rule by rule.
type Own = Vec<(RuleId, Arc<[LimitSpec]>)>;

/// The same rules without shares and pace.
pub(crate) fn strict(plan: &Plan) -> Arc<Plan> {
    let mut plan = plan.clone();
    for lane in &mut plan.lanes {
        lane.bypass = None;
    }
    for rule in &mut plan.rules {
        rule.key_pace = Box::default();
        rule.shared_pace = Box::default();
        rule.key.iter_mut().chain(rule.shared.iter_mut()).for_each(|bound| bound.reserve = 0);
    }
    Arc::new(plan)
}

impl Engine {
    pub(crate) fn new(setup: &Setup, plan: Arc<Plan>, keys: u32) -> Self {
        let mut own: BTreeMap<u32, Own> = BTreeMap::new();
        for (rule, key, specs) in OwnNumbers::new(&setup.rules).iter() {
            own.entry(key).or_default().push((RuleId(rule), Arc::clone(specs)));
        }
        Self {
            own,
            rules: setup.traffic.iter().map(|traffic| traffic.rule).collect(),
            among: setup.traffic.iter().map(|traffic| traffic.endpoints.clone()).collect(),
            retry: plan.rules.iter().map(|rule| rule.retry.clone()).collect(),
            scheduler: Scheduler::new(plan),
            keys: vec![None; keys as usize],
            requests: Vec::new(),
            spent: BTreeMap::new(),
            at_once: Vec::new(),
            turned_away: Vec::new(),
            joined: false,
        }
    }

    fn key(&mut self, now: Instant, key: u32) -> KeyId {
        if let Some(id) = self.keys[key as usize] {
            return id;
        }
        let id = self.scheduler.add_key(now, key.into());
        if let Some(own) = self.own.get(&key) {
            for (rule, numbers) in own {
                self.scheduler.set_own(now, id, *rule, Some(Arc::clone(numbers)));
            }
        }
        self.keys[key as usize] = Some(id);
        id
    }

    /// Lets whom the machine wakes take up their grants.
    fn claim_woken(&mut self, now: Instant, starts: &mut Vec<u32>) {
        let mut woken = std::mem::take(self.scheduler.take_wakes());
        for index in woken.drain(..) {
            let Some((id, ..)) = self.requests[index as usize] else { continue };
            match self.scheduler.claim(now, id) {
                Claim::Started { .. } => starts.push(index),
                Claim::Waiting => {
                    self.scheduler.set_waker(id, index);
                }
                Claim::Running => {}
                // Its time in line is over, or its place is another one's.
                Claim::Refused { .. } => {
                    self.requests[index as usize] = None;
                    self.turned_away.push(index);
                }
                Claim::Unknown => self.requests[index as usize] = None,
            }
        }
        if self.scheduler.take_wakes().is_empty() {
            // Its room is kept for the next turn.
            *self.scheduler.take_wakes() = woken;
        }
    }

    /// A request is back in line, if nothing refused it there.
    fn wait_again(&mut self, now: Instant, id: RequestId, index: u32) {
        if self.scheduler.is_refused(id) {
            self.scheduler.claim(now, id);
            self.requests[index as usize] = None;
            self.turned_away.push(index);
        } else {
            self.scheduler.set_waker(id, index);
        }
    }

    fn forget_evicted(&mut self) {
        for evicted in self.scheduler.take_evicted().drain(..) {
            let Some(slot) = self.keys.get_mut(evicted.tag as usize) else { continue };
            if *slot == Some(evicted.id) {
                *slot = None;
            }
        }
    }
}

impl Balancing for Engine {
    fn arrive(&mut self, now: Instant, index: u32, call: &Call, alone: bool) {
        let rule = self.rules[usize::from(call.traffic)];
        let deadline = self.scheduler.plan().rules[usize::from(rule.0)].max_wait.map(|wait| now.saturating_add(wait));
        let among = std::mem::take(&mut self.among[usize::from(call.traffic)]);
        let (cost, units) = (call.cost.requests, call.cost.units());
        let entry = Entry { cost, units, deadline, endpoints: &among, ..Entry::default() };
        if self.requests.len() <= index as usize {
            self.requests.resize(index as usize + 1, None);
        }
        // A record can be evicted by the very call that brings its first request.
        for _ in 0..2 {
            let key = self.key(now, call.key);
            let entered = if alone {
                self.scheduler.enter(now, key, rule, entry)
            } else {
                self.joined = true;
                self.scheduler.enqueue(now, key, rule, entry).map(Enter::Waiting)
            };
            match entered {
                Ok(Enter::Started(id)) => {
                    self.requests[index as usize] = Some((id, call.key, rule.0));
                    self.at_once.push(index);
                }
                Ok(Enter::Waiting(id)) => {
                    self.requests[index as usize] = Some((id, call.key, rule.0));
                    self.scheduler.set_waker(id, index);
                }
                Err(Turned::StaleKey) => {
                    self.keys[call.key as usize] = None;
                    continue;
                }
                // A full line, or a cost that never fits.
                Err(Turned::QueueFull { .. } | Turned::CostTooHigh { .. } | Turned::RuleRemoved | Turned::Closed) => {
                    self.turned_away.push(index);
                }
            }
            break;
        }
        self.among[usize::from(call.traffic)] = among;
        self.forget_evicted();
    }

    fn turn(&mut self, now: Instant, starts: &mut Vec<u32>) {
        starts.append(&mut self.at_once);
        let due = |scheduler: &Scheduler<u32>| scheduler.next_wake().is_some_and(|at| at <= now);
        while std::mem::take(&mut self.joined) || !self.scheduler.take_wakes().is_empty() || due(&self.scheduler) {
            self.scheduler.dispatch(now);
            self.claim_woken(now, starts);
        }
        self.forget_evicted();
    }

    fn ended(&mut self, now: Instant, index: u32) {
        if let Some((id, ..)) = self.requests[index as usize].take() {
            self.scheduler.report(now, id, Report::Success, 0);
            self.scheduler.finish(now, id);
        }
    }

    fn refused(&mut self, now: Instant, index: u32, after: Nanos) {
        let Some((id, key, rule)) = self.requests[index as usize] else { return };
        let policy = &self.retry[usize::from(rule)];
        let spent = self.spent.entry(index).or_default();
        let failure = FailureKind::Retry { after: Some(after) };
        let scope = match (policy.hold, self.keys[key as usize], self.scheduler.endpoint_of(id)) {
            (Scope::Endpoint, _, Some(endpoint)) => Target::Endpoint(endpoint),
            (Scope::Request, ..) | (Scope::Queue | Scope::Key | Scope::Endpoint, None, _) => Target::Request,
            (Scope::Queue, Some(key), _) => Target::Queue(RuleId(rule), key),
            (Scope::Key | Scope::Endpoint, Some(key), _) => Target::Key(key),
            (Scope::Rule, ..) => Target::Rule(RuleId(rule)),
            (Scope::Overall, ..) => Target::Overall,
        };
        let counts = self.scheduler.plan().pool.as_ref().is_some_and(|pool| pool.breaker.counts_retries);
        let report = if counts { Report::Failure } else { Report::Neutral };
        self.scheduler.report(now, id, report, index.into());
        let rest = |wait| match scope {
            Target::Endpoint(_) => self.scheduler.rest_elsewhere(now, id, wait),
            Target::Overall | Target::Rule(_) | Target::Key(_) | Target::Queue(..) | Target::Request => wait,
        };
        match policy.decide_in_pool(spent, failure, true, index.into(), rest) {
            Decision::Retry { wait } => {
                self.scheduler.retry(now, id, scope, now.saturating_add(wait), None);
                self.wait_again(now, id, index);
            }
            Decision::BackOff(delay) => {
                self.scheduler.back_off(now, id, now.saturating_add(delay), None);
                self.wait_again(now, id, index);
            }
            Decision::GiveUp { hold, .. } => {
                if let Some(hold) = hold {
                    self.scheduler.hold(now, scope, now.saturating_add(hold));
                }
                self.requests[index as usize] = None;
                self.scheduler.finish(now, id);
                self.turned_away.push(index);
            }
        }
    }

    fn timed_out(&mut self, now: Instant, index: u32) {
        if let Some((id, ..)) = self.requests[index as usize].take() {
            self.scheduler.report(now, id, Report::Failure, index.into());
            self.scheduler.finish(now, id);
        }
    }

    fn turned_away(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.turned_away)
    }

    fn withdraw(&mut self, now: Instant, index: u32) {
        if let Some((id, ..)) = self.requests.get_mut(index as usize).and_then(Option::take) {
            self.scheduler.withdraw(now, id);
        }
    }

    fn endpoint(&self, index: u32) -> Option<EndpointId> {
        let (id, ..) = self.requests.get(index as usize).copied().flatten()?;
        self.scheduler.endpoint_of(id)
    }

    fn next_wake(&self) -> Option<Instant> {
        // What started at once is handed out in the turn that follows its arrival.
        self.scheduler.next_wake()
    }
}
