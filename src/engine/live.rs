//! Changes while requests wait and run: other rules, and two keys that turn out to be one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::{KeyId, Why};
use super::lane::{Lane, Ring};
use super::limit::PaceClock;
use super::plan::{Charge, LimitRef, LimitSpec, Plan, RuleId, RulePlan};
use super::pool::EndpointId;
use super::queue::{Queue, QueueState};
use super::quick::Quick;
use super::request::{Request, Stage, comes_before};
use super::scheduler::{RuleState, Scheduler};
use super::slab::NIL;
use super::store::Site;
use super::time::Instant;

impl Plan {
    /// This plan with the ids of `old`: a rule keeps its position, and one that is gone keeps its place as a removed
    /// one, under those of its outer limits that there still are.
    #[must_use]
    pub fn succeeding(self, old: &Self) -> Self {
        self.succeeding_with(old, &BTreeSet::new())
    }

    /// The same, where these places of endpoints may be given to new ones.
    pub(super) fn succeeding_with(self, old: &Self, vacant: &BTreeSet<EndpointId>) -> Self {
        let mut fresh: Vec<Option<RulePlan>> = Vec::from(self.rules).into_iter().map(Some).collect();
        let mut rules = Vec::with_capacity(old.rules.len().max(fresh.len()));
        for before in &old.rules {
            let same = fresh.iter_mut().find(|rule| rule.as_ref().is_some_and(|rule| rule.name == before.name));
            rules.push(same.and_then(Option::take).unwrap_or_else(|| RulePlan {
                lane: self.lanes.len().saturating_sub(1),
                key: translate(&before.key, &old.key_limits, &self.key_limits),
                shared: translate(&before.shared, &old.shared_limits, &self.shared_limits),
                key_pace: Box::default(),
                shared_pace: Box::default(),
                removed: true,
                ..before.clone()
            }));
        }
        rules.extend(fresh.into_iter().flatten());
        let pool = self.pool.map(|pool| Box::new(pool.succeeding(old.pool.as_deref(), vacant)));
        Self { rules: rules.into(), pool, ..self }
    }

    /// This plan with its units at other positions: the first at `places[0]`, and so on. Units that are not listed stay.
    #[must_use]
    pub fn with_units_at(mut self, places: &[usize]) -> Self {
        let move_charge = |charge: &mut Charge| match charge {
            Charge::Unit(unit) => *unit = places.get(*unit).copied().unwrap_or(*unit),
            Charge::Attempt | Charge::Requests => {}
        };
        move_charge(&mut self.fair_by);
        let limits = self.key_limits.iter_mut().chain(&mut self.shared_limits);
        limits
            .chain(self.rules.iter_mut().flat_map(|rule| &mut rule.own))
            .for_each(|spec| move_charge(&mut spec.charge));
        for endpoint in self.pool.iter_mut().flat_map(|pool| &mut pool.endpoints) {
            let limits = endpoint.limits.iter_mut().chain(&mut endpoint.key_limits);
            limits.for_each(|spec| move_charge(&mut spec.charge));
        }
        let paces = self.rules.iter_mut().flat_map(|rule| rule.key_pace.iter_mut().chain(&mut rule.shared_pace));
        paces.for_each(|pace| move_charge(&mut pace.charge));
        self
    }
}

/// The limits of the new plan that stand where those of the old one stood.
fn translate(refs: &[LimitRef], old: &[LimitSpec], new: &[LimitSpec]) -> Box<[LimitRef]> {
    let bound = |spec: &LimitSpec| refs.iter().any(|bound| old[bound.limit].origin == spec.origin);
    let kept = new.iter().enumerate().filter(|(_, spec)| bound(spec));
    kept.map(|(limit, _)| LimitRef { limit, reserve: 0 }).collect()
}

impl<W> Scheduler<W> {
    /// Goes over to other rules, from a plan [succeeding](Plan::succeeding) the present one, or [in its places](Self::succeeding).
    ///
    /// What waits under a removed rule is refused with [`Why::RuleRemoved`], what can no longer fit with
    /// [`Why::CostTooHigh`]; what runs may finish. Starts that are known count under the new limits. A queue whose
    /// priority changed goes to the end of its new lane. Numbers of single keys end with the plan that they were made for:
    /// set them anew. Costs a look at every request and key.
    pub fn replace(&mut self, now: Instant, plan: Arc<Plan>) {
        let now = self.tick(now);
        self.recall_asked(now);
        let old = std::mem::replace(&mut self.plan, plan);
        self.change_limits(now, &old);
        self.change_lanes(&old);
        self.owe_all();
        self.review_store(&old);
        self.change_guard(now);
        self.review_differences();
        for rule in 0..self.rules.len() {
            if self.rules[rule].paused {
                self.revoke_where(now, |queue| usize::from(queue.rule) == rule);
            }
        }
        self.refuse_unfit(now);
        self.refuse_without_endpoint(now);
        self.review_door(now);
        self.retries = match (self.plan.retry_budget, self.retries) {
            (Some(fresh), Some(known)) => Some(fresh.succeeding(known)),
            (fresh, _) => fresh,
        };
        self.dispatch(now);
    }

    /// From now on the two keys are one: `from` is dissolved and what it had is `into`'s. Returns false if one of them
    /// is stale or both are the same.
    ///
    /// The starts of both count, the longer hold stands, and in each queue the requests of `from` are before those of
    /// `into`. Costs a look at every request.
    pub fn alias(&mut self, now: Instant, from: KeyId, into: KeyId) -> bool {
        let now = self.tick(now);
        let known = |key: KeyId| self.keys.contains(key.index, key.generation);
        if !known(from) || !known(into) || from == into {
            return false;
        }
        self.recall_asked(now);
        self.clear_key(from.index);
        self.clear_key(into.index);
        let mut queue = self.keys[from.index].queues;
        let first = queue;
        while queue != NIL {
            let next = self.queues[queue].sibling;
            self.move_queue(now, queue, into.index);
            queue = if next == first { NIL } else { next };
        }
        let mut old = self.keys.remove(from.index);
        self.streaks.merge(from, into);
        self.forget_in_store(from);
        self.sweeps.forget(from.index);
        let record = &mut self.keys[into.index];
        record.extras.merge_hold(old.extras.held());
        record.limits.merge(now, &old.limits);
        for (clock, other) in record.extras.clocks_mut().iter_mut().zip(old.extras.clocks()) {
            *clock = clock.later(*other);
        }
        self.merge_seats(now, into.index, old.extras.take_seat());
        self.review_slots(|_| true, |site| matches!(site, Site::Shared(_) | Site::Endpoint(..)));
        let held = self.keys[into.index].extras.hold();
        self.revoke_of_key(now, into.index, |queue| queue.extras.hold().max(held) > now);
        self.refuse_unfit(now);
        self.review_door(now);
        self.redecide_all(into.index);
        self.note_idle(now, into.index);
        self.dispatch(now);
        true
    }

    /// Carries what is known of past starts over to the limits of the present plan. Nothing is outstanding in them.
    fn change_limits(&mut self, now: Instant, old: &Plan) {
        let fresh = self.days.of(now, &self.plan.zones);
        let before = std::mem::replace(&mut self.days, fresh);
        let Self { plan, keys, queues, shared, clocks, days, .. } = self;
        shared.change_to(now, (&old.shared_limits, &before), (&plan.shared_limits, days));
        *clocks = vec![PaceClock::default(); plan.shared_clocks].into();
        let indices: Vec<u32> = keys.indices().collect();
        for index in indices {
            let key = &mut keys[index];
            key.limits.change_to(now, (&old.key_limits, &before), (&plan.key_limits, days));
            key.extras.renew_clocks(plan.key_clocks);
        }
        let indices: Vec<u32> = queues.indices().collect();
        for index in indices {
            let Queue { rule, extras, limits, .. } = &mut queues[index];
            let rule = usize::from(*rule);
            // A key's numbers may name zones by position, too: they go with the plan they were made for.
            let was = Queue::own(extras, &old.rules[rule]).to_vec();
            extras.set_numbers(None);
            limits.change_to(now, (&was, &before), (&plan.rules[rule].own, days));
        }
        self.change_pool(now, old, &before);
    }

    /// Sorts the queues into the lanes of the present plan, those that are ready in the order of their turns.
    fn change_lanes(&mut self, old: &Plan) {
        let mut waiting: Vec<(usize, i64, u32)> = Vec::new();
        let indices: Vec<u32> = self.queues.indices().collect();
        for &index in &indices {
            let queue = &self.queues[index];
            if !queue.waiting.is_empty() {
                let ticket = if queue.state() == QueueState::Ready { queue.ticket } else { i64::MAX };
                waiting.push((old.rules[usize::from(queue.rule)].lane, ticket, index));
            }
            self.queues[index].owed = false;
        }
        waiting.sort_unstable();
        let bypassed = |priority| {
            let same = old.lanes.iter().position(|lane| lane.priority == priority)?;
            Some(self.lanes[same].bypassed)
        };
        let mut lanes = Lane::all(&self.plan);
        for (lane, plan) in lanes.iter_mut().zip(&self.plan.lanes) {
            lane.bypassed = bypassed(plan.priority).unwrap_or(0);
        }
        self.lanes = lanes;
        self.rings = vec![Ring::EMPTY; self.plan.rules.len()].into();
        let mut rules = std::mem::take(&mut self.rules).into_vec();
        rules.resize_with(self.plan.rules.len(), RuleState::default);
        for (position, (rule, state)) in self.plan.rules.iter().zip(&mut rules).enumerate() {
            // A pause by hand stands unless the file says something new.
            if old.rules.get(position).is_none_or(|old| old.paused != rule.paused) {
                state.paused = rule.paused;
            }
        }
        self.rules = rules.into();
        self.quick = Quick::all(&self.plan);
        self.spots.clear();
        self.only_windows = self.plan.shares_only_windows();
        self.any_end |= self.plan.counts_any_end();
        self.count_lanes();
        for (_, _, index) in waiting {
            self.queues[index].set_state(QueueState::Idle);
            // The lanes begin to count turns anew.
            self.queues[index].extras.take_awaits_pool();
            self.make_ready(index);
        }
    }

    /// Counts anew who stands in which lane and what they cost.
    fn count_lanes(&mut self) {
        let Self { plan, requests, queues, lanes, .. } = self;
        for index in requests.indices() {
            let request = &requests[index];
            let lane = &mut lanes[plan.rules[usize::from(queues[request.queue].rule)].lane];
            if request.stage().in_line() {
                lane.joined(request.costs().of_turn(plan.fair_by));
            }
        }
    }

    /// Refuses what the present plan has no place for.
    pub(super) fn refuse_unfit(&mut self, now: Instant) {
        let in_line: Vec<u32> =
            self.requests.indices().filter(|&index| self.requests[index].stage().in_line()).collect();
        for index in in_line {
            self.refuse_if_unfit(now, index);
        }
    }

    /// Refuses a request in line that one of its limits never has room for, or whose rule is gone.
    pub(super) fn refuse_if_unfit(&mut self, now: Instant, index: u32) -> bool {
        let request = &self.requests[index];
        if self.plan.rules[usize::from(self.queues[request.queue].rule)].removed {
            self.refuse(now, index, Why::RuleRemoved);
            return true;
        }
        let Err((cost, capacity)) = self.must_fit(request.queue, request.among(), request.costs()) else {
            return false;
        };
        self.refuse(now, index, Why::CostTooHigh { cost, capacity });
        true
    }

    /// Moves a queue with all that is in it to another key: into its queue of the same rule, if it has one.
    fn move_queue(&mut self, now: Instant, id: u32, key: u32) {
        let rule = RuleId(self.queues[id].rule);
        let Some(other) = self.find_queue(key, rule) else {
            self.queues[id].key = key;
            self.queues[id].sibling = NIL;
            self.link_queue(key, id);
            // Numbers of its own end with the key that they were given to.
            match self.queues[id].extras.numbers_mut().and_then(|own| own.learnt.as_mut()) {
                Some(learnt) => learnt.configured = None,
                None => self.count_under(now, id, None),
            }
            return;
        };
        let is_alike = {
            let plan = &self.plan.rules[usize::from(rule.0)];
            Queue::own(&self.queues[id].extras, plan) == Queue::own(&self.queues[other].extras, plan)
        };
        if !is_alike {
            let numbers = self.queues[other].extras.numbers().cloned();
            self.count_under(now, id, numbers);
        }
        self.wait_no_more(id);
        let moved = self.queues.remove(id);
        // What came to the moved queue goes before what is left of the other one, whose numbers go on from there.
        let stands_here =
            |request: &&Request<W>| request.queue == other && !matches!(request.stage(), Stage::Outside { .. });
        let left = self.requests.indices().map(|index| &self.requests[index]).filter(stands_here);
        let first = left.fold(self.queues[other].next_number, |first, request| {
            if comes_before(request.number, first) { request.number } else { first }
        });
        let shift = moved.next_number.wrapping_sub(first);
        let indices: Vec<u32> = self.requests.indices().collect();
        for index in indices {
            let request = &mut self.requests[index];
            if request.queue == other && !matches!(request.stage(), Stage::Outside { .. }) {
                request.number = request.number.wrapping_add(shift);
            } else if request.queue == id {
                request.queue = other;
            }
        }
        self.move_door(id, other);
        let Self { requests, queues, .. } = self;
        let queue = &mut queues[other];
        queue.next_number = queue.next_number.wrapping_add(shift);
        queue.waiting.prepend(requests, moved.waiting);
        queue.granted.prepend(requests, moved.granted);
        queue.waits += moved.waits;
        queue.in_line += moved.in_line;
        queue.running += moved.running;
        queue.requests += moved.requests;
        queue.extras.merge_hold(moved.extras.held());
        queue.limits.merge(now, &moved.limits);
        // Only the first grant has a lease.
        let others: Vec<u32> = queue.granted.iter(requests).skip(1).collect();
        for index in others {
            requests[index].set_stage(Stage::Granted { lease: Instant::NEVER });
        }
        queue.set_state(QueueState::Idle);
        queue.rest();
        if !queue.waiting.is_empty() {
            self.make_ready(other);
        }
    }

    /// Takes a key's queues out of rings and timers; nothing is owed to any of them.
    fn clear_key(&mut self, key: u32) {
        let first = self.keys[key].queues;
        let mut queue = first;
        while queue != NIL {
            match self.queues[queue].state() {
                QueueState::Ready => self.leave_ring(queue),
                QueueState::Parked { .. } | QueueState::Blocked | QueueState::Yielding | QueueState::Idle => {}
            }
            let record = &mut self.queues[queue];
            record.owed = false;
            record.set_state(if record.waiting.is_empty() { QueueState::Idle } else { QueueState::Blocked });
            queue = if record.sibling == first { NIL } else { record.sibling };
        }
    }
}
