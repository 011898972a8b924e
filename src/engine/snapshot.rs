//! The machine in numbers, and what it can say about the future.

use super::answer::{Entry, KeyId, NextStart, RequestId};
use super::cost::Costs;
use super::limit::{self, Ask, LimitState, Spec};
use super::observe::Difference;
use super::plan::{LimitSpec, RuleId};
use super::pool::{EndpointId, EndpointSnapshot};
use super::queue::Queue;
use super::request::Request;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

/// The state of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests in line: waiting, put back, stepped out, and granted but not claimed.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Key records.
    pub keys: usize,
    /// End of the hold over everything, if one is on.
    pub held_until: Option<Instant>,
    /// When the machine wants to be called next.
    pub next_wake: Option<Instant>,
    /// Per lane, most urgent first.
    pub lanes: Vec<LaneSnapshot>,
    /// Per rule, in the order of the plan.
    pub rules: Vec<RuleSnapshot>,
    /// Per endpoint, in the order of the plan.
    pub endpoints: Vec<EndpointSnapshot>,
    /// Limits that the server has other numbers for than the rules, in the order in which that was first seen.
    pub differences: Vec<Difference>,
}

/// One lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// Grants that went past it while it was ready, since it was last served.
    pub bypassed: u32,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSnapshot {
    /// Requests in line.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// End of its hold, if one is on.
    pub held_until: Option<Instant>,
    /// Whether it is paused, by itself or with everything else.
    pub paused: bool,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySnapshot {
    /// Requests in line, over all rules.
    pub waiting: usize,
    /// Attempts that run.
    pub in_flight: usize,
    /// End of its hold, if one is on.
    pub held_until: Option<Instant>,
}

impl<W> Scheduler<W> {
    /// The machine in numbers.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let lanes = self.lanes.iter().map(|lane| LaneSnapshot {
            waiting: lane.in_line,
            in_flight: lane.rules.iter().map(|&rule| self.rules[rule].running).sum(),
            bypassed: lane.bypassed,
        });
        let rules = self.rules.iter().map(|rule| RuleSnapshot {
            waiting: rule.in_line,
            in_flight: rule.running,
            held_until: still(rule.hold, now),
            paused: self.paused || rule.paused,
        });
        Snapshot {
            waiting: self.lanes.iter().map(|lane| lane.in_line).sum(),
            in_flight: self.rules.iter().map(|rule| rule.running).sum(),
            keys: self.keys.len(),
            held_until: still(self.hold, now),
            next_wake: self.next_wake(),
            lanes: lanes.collect(),
            rules: rules.collect(),
            endpoints: self.endpoints(now),
            differences: self.differences.clone(),
        }
    }

    /// One key in numbers; all zero for a stale id.
    #[must_use]
    pub fn key_snapshot(&self, now: Instant, key: KeyId) -> KeySnapshot {
        let Some(record) = self.keys.get(key.index, key.generation) else { return KeySnapshot::default() };
        let mut snapshot = KeySnapshot { held_until: still(record.extras.hold(), now), ..KeySnapshot::default() };
        let first = record.queues;
        let mut queue = first;
        while queue != NIL {
            let record = &self.queues[queue];
            snapshot.waiting += record.in_line as usize;
            snapshot.in_flight += record.running as usize;
            queue = if record.sibling == first { NIL } else { record.sibling };
        }
        snapshot
    }

    /// A lower bound for the start of a new request of cost 1, from limits, holds and the requests ahead in the same
    /// queue. Without a key (or with a stale one): of a key that nothing is known of.
    pub fn next_start(&mut self, now: Instant, rule: RuleId, key: Option<KeyId>) -> NextStart {
        self.next_start_of(now, rule, key, &Entry::default())
    }

    /// The same for a request that costs as much as `entry` says.
    pub fn next_start_of(&mut self, now: Instant, rule: RuleId, key: Option<KeyId>, entry: &Entry<'_>) -> NextStart {
        let costs = Costs::new(entry.cost, entry.units);
        let now = self.tick(now);
        let position = usize::from(rule.0);
        if self.closed || self.plan.rules[position].removed || self.is_paused(position) {
            return NextStart::Never;
        }
        let key = key.filter(|key| self.keys.contains(key.index, key.generation)).map(|key| key.index);
        let queue = key.and_then(|key| self.find_queue(key, rule));
        let mut held = self.hold.max(self.rules[position].hold).max(self.guard.closed_until());
        let mut ahead = 0;
        if let Some(key) = key {
            held = held.max(self.keys[key].extras.hold());
        }
        if let Some(queue) = queue {
            held = held.max(self.queues[queue].extras.hold());
            // What is granted is outstanding in the limits already, and who stepped out is passed. Who is ahead may take
            // nothing of the units that this one takes.
            ahead = if entry.units.is_empty() { self.queues[queue].waits.into() } else { 0 };
        }
        let mut all = match self.next_endpoint(now, (key, ahead), entry.endpoints, costs) {
            Ok(answer) => answer,
            Err(None) => return NextStart::Never,
            Err(Some(opens)) => Ask::At(opens),
        };
        held = held.max(self.closed_in_store(position, key, queue));
        let Self { plan, queues, keys, shared, days, .. } = self;
        let rule = &plan.rules[position];
        let mut ask =
            |spec: Spec<'_>, state: &mut LimitState, cost| all = all.and(state.earliest(spec, now, ahead, cost));
        if let Some(queue) = queue {
            let Queue { extras, limits, .. } = &mut queues[queue];
            limits.for_all(Queue::own(extras, rule), days, costs, &mut ask);
        }
        if let Some(key) = key {
            keys[key].limits.for_refs(&plan.key_limits, &rule.key, days, costs, &mut ask);
        }
        shared.for_refs(&plan.shared_limits, &rule.shared, days, costs, &mut ask);
        let at = match all {
            Ask::Busy => return NextStart::WhenOneEnds,
            Ask::Room => held,
            Ask::At(at) | Ask::Unclaimed(at) => at.max(held),
        };
        if at > now { NextStart::At(at) } else { NextStart::Now }
    }

    /// Whether a new request of this queue could never start because the given running requests, which wait for it,
    /// fill a limit that lets go only when they end.
    #[must_use]
    pub fn would_deadlock(&self, rule: RuleId, key: KeyId, endpoints: &[EndpointId], ancestors: &[RequestId]) -> bool {
        let goes_on = |id: &&RequestId| {
            self.requests.get(id.index, id.generation).is_some_and(|request| request.stage().may_go_on())
        };
        let indices: Vec<u32> = ancestors.iter().filter(goes_on).map(|id| id.index).collect();
        let running: Vec<&Request<W>> = indices.iter().map(|&index| &self.requests[index]).collect();
        let fills = |spec: &LimitSpec, binds: &dyn Fn(&Queue) -> bool| {
            let bound = running.iter().filter(|request| binds(&self.queues[request.queue]));
            let taken: u64 = bound.map(|request| u64::from(request.costs().of(spec.charge))).sum();
            limit::counts_from_end(spec.kind) && taken >= u64::from(limit::capacity(spec.kind))
        };
        let plan = &self.plan.rules[usize::from(rule.0)];
        let rule_of = |queue: &Queue| &self.plan.rules[usize::from(queue.rule)];
        // A stale key is a key of which nothing runs, whoever has its place now.
        let known = self.keys.contains(key.index, key.generation);
        let queue = if known { self.find_queue(key.index, rule) } else { None };
        let same_key = |other: &Queue| known && other.key == key.index;
        queue
            .map_or(&*plan.own, |queue| Queue::own(&self.queues[queue].extras, plan))
            .iter()
            .any(|spec| fills(spec, &|other| same_key(other) && other.rule == rule.0))
            || plan.key.iter().any(|bound| {
                fills(&self.plan.key_limits[bound.limit], &|other| {
                    same_key(other) && rule_of(other).key.iter().any(|also| also.limit == bound.limit)
                })
            })
            || plan.shared.iter().any(|bound| {
                fills(&self.plan.shared_limits[bound.limit], &|other| {
                    rule_of(other).shared.iter().any(|also| also.limit == bound.limit)
                })
            })
            || self.would_fill_pool(known.then_some(key.index), endpoints, &indices)
    }
}

fn still(hold: Instant, now: Instant) -> Option<Instant> {
    (hold > now).then_some(hold)
}
