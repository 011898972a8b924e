//! Joining and leaving the line, and what that means for the queues of the key.

use super::answer::{Claim, Entry, RequestId, Turned, Why};
use super::cost::Costs;
use super::limit::{self, LimitState, PaceClock, Spec};
use super::plan::{LimitRef, LimitSpec, Overflow, PaceRef, RuleId, RulePlan};
use super::pool::Route;
use super::queue::{Credit, Queue, QueueState};
use super::request::{Request, Stage};
use super::scheduler::{Due, Scheduler};
use super::slab::NIL;
use super::time::{Instant, Nanos};
use super::turn::{has_deadline, is_live};

impl<W> Scheduler<W> {
    /// The queue of a rule and a key, made if there is none.
    pub(super) fn queue_of(&mut self, key: u32, rule: RuleId) -> u32 {
        if let Some(queue) = self.find_queue(key, rule) {
            return queue;
        }
        let plan = &self.plan.rules[usize::from(rule.0)];
        let (queue, _) = self.queues.insert(|_| Queue::new(key, rule.0, plan));
        self.link_queue(key, queue);
        queue
    }

    /// Adds a queue to its key's circle.
    pub(super) fn link_queue(&mut self, key: u32, queue: u32) {
        let first = self.keys[key].queues;
        if first == NIL {
            self.keys[key].queues = queue;
            self.queues[queue].sibling = queue;
        } else {
            self.queues[queue].sibling = self.queues[first].sibling;
            self.queues[first].sibling = queue;
        }
    }

    /// The queue of a rule and a key, if there is one.
    pub(super) fn find_queue(&self, key: u32, rule: RuleId) -> Option<u32> {
        let first = self.keys[key].queues;
        if first == NIL {
            return None;
        }
        let mut queue = first;
        loop {
            if self.queues[queue].rule == rule.0 {
                return Some(queue);
            }
            queue = self.queues[queue].sibling;
            if queue == first {
                return None;
            }
        }
    }

    /// Puts a new request last in its queue.
    pub(super) fn join(&mut self, now: Instant, queue: u32, entry: Entry<'_>) -> Result<RequestId, Turned> {
        let mut displaced = None;
        if let Some(waiting) = self.crowd(now, queue, entry) {
            displaced = match self.plan.rules[usize::from(self.queues[queue].rule)].overflow {
                Overflow::Reject => None,
                Overflow::DropOldest => self.oldest_never_started(queue),
            };
            if displaced.is_none() {
                return Err(Turned::QueueFull { waiting });
            }
        }
        let deadline = entry.deadline.unwrap_or(Instant::NEVER);
        let number = self.next_number(queue);
        let costs = Costs::new(entry.cost, entry.units);
        let route = self.route_among(entry);
        let id = self.add(queue, number, now, Stage::Asleep, costs);
        self.requests[id.index].set_route(route);
        self.note_request(queue);
        self.take_place(now, id, entry.not_before, deadline);
        // Only now, so that the queue is never empty and keeps its turn.
        if let Some(oldest) = displaced {
            self.refuse(now, oldest, Why::Displaced);
        }
        Ok(id)
    }

    /// Puts a new request, which stands nowhere yet, last in its queue.
    pub(super) fn take_place(&mut self, now: Instant, id: RequestId, not_before: Option<Instant>, deadline: Instant) {
        let request = &mut self.requests[id.index];
        let queue = request.queue;
        request.set_deadline(deadline);
        self.count_in(queue, id.index);
        if deadline != Instant::NEVER {
            self.deadlines.push(deadline, id);
        }
        if not_before.is_none_or(|at| at <= now) && self.refuse_if_stranded(now, id.index) {
            return;
        }
        match not_before {
            Some(until) if until > now && !self.plan.rules[usize::from(self.queues[queue].rule)].ordered => {
                self.step_out(id, until);
            }
            Some(until) => self.requeue(id.index, until),
            None => self.requeue(id.index, Instant::ZERO),
        }
    }

    /// What a new request knows of endpoints.
    pub(super) fn route_among(&self, entry: Entry<'_>) -> Option<Box<Route>> {
        let is_bound = self.pool.is_some() && !entry.endpoints.is_empty();
        is_bound.then(|| Box::new(Route::among(entry.endpoints)))
    }

    /// A request whose attempt ended stands in line again, outside its queue.
    pub(super) fn rejoin(&mut self, now: Instant, id: RequestId, deadline: Option<Instant>) {
        let request = &mut self.requests[id.index];
        request.since = now;
        request.set_stage(Stage::Asleep);
        request.set_deadline(deadline.unwrap_or(Instant::NEVER));
        request.waker = None;
        request.settle_costs();
        let queue = request.queue;
        // What it turned out to cost may be more than ever fits.
        let request = &self.requests[id.index];
        if self.must_fit(queue, request.among(), request.costs()).is_err() {
            self.requests[id.index].own_costs().as_asked();
        }
        self.count_in(queue, id.index);
        if let Some(deadline) = deadline {
            self.deadlines.push(deadline, id);
        }
    }

    /// Puts a request that stands in line outside its queue back into it, by its number.
    pub(super) fn requeue(&mut self, index: u32, not_before: Instant) {
        let Self { requests, queues, .. } = self;
        let request = &mut requests[index];
        let id = request.queue;
        request.set_stage(Stage::Queued { not_before });
        let queue = &mut queues[id];
        queue.queue_by_number(requests, index);
        // A queue that waits for its first request's instant, or for room that this one may not need.
        let is_first = queue.waiting.head == index;
        match queue.state() {
            QueueState::Idle => self.make_ready(id),
            QueueState::Parked { .. } if is_first => self.unpark(id),
            QueueState::Blocked | QueueState::Yielding if is_first => self.make_ready(id),
            QueueState::Parked { .. } | QueueState::Ready | QueueState::Blocked | QueueState::Yielding => {}
        }
    }

    /// Takes a request that stands in line outside its queue out of it until an instant.
    pub(super) fn step_out(&mut self, id: RequestId, until: Instant) {
        self.requests[id.index].set_stage(Stage::Out { until });
        self.timers.push(until, Due::request(id.index));
    }

    /// Takes a request out of the line, wherever it stands in it. What it was granted is refunded.
    pub(super) fn leave_line(&mut self, now: Instant, index: u32) {
        let (queue, stage) = (self.requests[index].queue, self.requests[index].stage());
        match stage {
            Stage::Queued { .. } => self.unqueue(queue, index),
            Stage::Asked => {
                self.unask(now, index);
                self.redecide_all(self.queues[queue].key);
            }
            Stage::Granted { .. } => self.give_back(now, queue, index),
            Stage::Out { .. } => {
                let Self { timers, requests, queues, .. } = self;
                requests[index].set_stage(Stage::Asleep);
                timers.note_stale(|at, due| is_live(requests, queues, at, due));
            }
            Stage::Asleep => {}
            Stage::Outside { .. } | Stage::Running | Stage::Overdue | Stage::Aborted | Stage::Refused { .. } => {
                unreachable!("{stage:?} is not in line")
            }
        }
        self.count_out(queue);
        self.drop_deadline(index);
    }

    /// Forgets until when a request may do what it does.
    pub(super) fn drop_deadline(&mut self, index: u32) {
        if self.requests[index].deadline() != Instant::NEVER {
            let Self { deadlines, requests, .. } = self;
            requests[index].set_deadline(Instant::NEVER);
            deadlines.note_stale(|at, id| has_deadline(requests, at, id));
        }
    }

    /// Refuses a request that stands in line or before it and wakes its owner, who takes the answer with `claim`.
    pub(super) fn refuse(&mut self, now: Instant, index: u32, why: Why) {
        if let Stage::Outside { ticket } = self.requests[index].stage() {
            self.leave_door(self.requests[index].queue, ticket);
        } else {
            self.leave_line(now, index);
        }
        let request = &mut self.requests[index];
        request.set_stage(Stage::Refused { why });
        request.since = Instant::ZERO.saturating_add(now.since(request.since));
        self.wakes.extend(request.waker.take());
    }

    /// Starts a request that nothing is in the way of: granted and claimed in one.
    pub(super) fn start(&mut self, now: Instant, queue: u32, costs: Costs<'_>) -> RequestId {
        let number = self.next_number(queue);
        let id = self.add(queue, number, now, Stage::Running, costs);
        let index = id.index;
        self.seat(now, index);
        self.note_running(index);
        self.note_alone(index);
        self.each_limit(index, |spec, state, cost| state.start(spec, now, cost));
        self.charge_pace(now, index);
        self.note_passed(queue);
        self.last_start = now;
        self.count_running(queue);
        self.note_request(queue);
        id
    }

    /// A new request's record.
    #[inline]
    pub(super) fn add(&mut self, queue: u32, number: u32, now: Instant, stage: Stage, costs: Costs<'_>) -> RequestId {
        let make = |generation| Request::new(queue, number, now, stage, generation);
        let (index, generation) = self.requests.insert(make);
        if !costs.is_plain() {
            self.requests[index].set_costs(costs);
        }
        RequestId { index, generation }
    }

    /// The queue has one request more.
    pub(super) fn note_request(&mut self, queue: u32) {
        self.queues[queue].requests += 1;
    }

    /// Claims for a request that may have been granted.
    pub(super) fn claim_granted(&mut self, now: Instant, id: RequestId) -> Claim {
        let request = &self.requests[id.index];
        let (queue, since) = (request.queue, request.since);
        let Stage::Granted { .. } = request.stage() else { return Claim::Waiting };
        if self.queues[queue].granted.head != id.index {
            return Claim::Waiting;
        }
        if !self.is_usable(now, id.index) || !self.is_well_seated(now, id.index) {
            self.return_to_line(now, id.index);
            self.dispatch(now);
            return self.claim(now, id);
        }
        self.use_given(id.index);
        self.drop_grant(now, queue, id.index);
        if !self.each_window(id.index, |spec, state| state.claim_one(spec, now)) {
            self.each_limit(id.index, |spec, state, cost| state.claim(spec, now, cost));
        }
        self.count_out(queue);
        self.count_running(queue);
        self.drop_deadline(id.index);
        let request = &mut self.requests[id.index];
        request.set_stage(Stage::Running);
        request.note_started();
        request.since = now;
        self.last_start = now;
        self.note_running(id.index);
        self.redecide_blocked(queue);
        self.after_minor_event(now);
        Claim::Started { waited: now.since(since) }
    }

    /// Revokes a grant whose lease ran out: the request sleeps until its owner asks again, or is refused if its deadline
    /// passed meanwhile.
    pub(super) fn revoke(&mut self, now: Instant, index: u32) {
        let queue = self.requests[index].queue;
        self.give_back(now, queue, index);
        if self.requests[index].deadline() <= now {
            self.refuse(now, index, Why::MaxWait);
        }
    }

    /// An attempt ended, however.
    pub(super) fn end_attempt(&mut self, now: Instant, index: u32) {
        let queue = self.requests[index].queue;
        self.drop_deadline(index);
        self.settled &= !self.ends_count(index);
        let is_read = self.requests[index].is_read();
        self.each_limit(index, |spec, state, cost| state.end(spec, now, cost, is_read));
        self.unseat(now, index);
        self.unlearn(now, queue);
        // Other numbers write down anew who holds which slots: so does this attempt until then.
        self.leave_store(index);
        let rule = usize::from(self.queues[queue].rule);
        self.queues[queue].running -= 1;
        self.rules[rule].running -= 1;
        self.redecide_blocked(queue);
    }

    /// Whether it matters when the request's attempt ends: to a limit that counts from there, to what a server said of its
    /// counters, or to an endpoint.
    pub(super) fn ends_count(&self, index: u32) -> bool {
        self.observes || self.pool.is_some() || self.limits_count_end(index)
    }

    /// Whether a limit counts from the end of the request's attempt.
    pub(super) fn limits_count_end(&self, index: u32) -> bool {
        if !self.any_end {
            return false;
        }
        let queue = &self.queues[self.requests[index].queue];
        let rule = &self.plan.rules[usize::from(queue.rule)];
        let of = |specs: &[LimitSpec], bound: &LimitRef| limit::counts_from_end(specs[bound.limit].kind);
        Queue::own(&queue.extras, rule).iter().any(|spec| limit::counts_from_end(spec.kind))
            || rule.key.iter().any(|bound| of(&self.plan.key_limits, bound))
            || rule.shared.iter().any(|bound| of(&self.plan.shared_limits, bound))
    }

    /// Forgets a request that stands nowhere.
    pub(super) fn retire(&mut self, now: Instant, index: u32) {
        let queue = &mut self.queues[self.requests[index].queue];
        self.requests.discard(index);
        queue.requests -= 1;
        if queue.requests == 0 {
            let key = queue.key;
            self.note_idle(now, key);
        }
    }

    /// Puts the blocked queues of a key in their rings again, the one that was just served last.
    #[inline]
    pub(super) fn redecide_blocked(&mut self, served: u32) {
        let is_stopped = |state| matches!(state, QueueState::Blocked | QueueState::Yielding);
        let record = &self.queues[served];
        // Most keys have one queue.
        if record.sibling != served || is_stopped(record.state()) {
            self.redecide(served, is_stopped);
        }
    }

    /// Puts all waiting queues of a key in their rings again.
    pub(super) fn redecide_all(&mut self, key: u32) {
        let first = self.keys[key].queues;
        if first != NIL {
            self.redecide(first, |state| !matches!(state, QueueState::Ready | QueueState::Idle));
        }
    }

    /// Every limit that binds a request, with what it takes.
    pub(super) fn each_limit(&mut self, index: u32, mut change: impl FnMut(Spec<'_>, &mut LimitState, u32)) {
        let Self { plan, requests, queues, keys, shared, days, .. } = self;
        let request = &requests[index];
        let costs = request.costs();
        let Queue { rule, key, extras, limits, .. } = &mut queues[request.queue];
        let rule = &plan.rules[usize::from(*rule)];
        limits.for_all(Queue::own(extras, rule), days, costs, &mut change);
        keys[*key].limits.for_refs(&plan.key_limits, &rule.key, days, costs, &mut change);
        shared.for_refs(&plan.shared_limits, &rule.shared, days, costs, &mut change);
        if self.pool.is_some() {
            self.each_endpoint_limit(index, change);
        }
    }

    /// A request was granted: the pace clocks that it goes by move on.
    pub(super) fn charge_pace(&mut self, now: Instant, index: u32) {
        self.each_clock(index, |clock, interval, cost| clock.charge(now, interval, cost));
    }

    /// What was granted was not used: the pace clocks move back.
    pub(super) fn refund_pace(&mut self, index: u32) {
        self.each_clock(index, |clock, interval, cost| clock.refund(interval, cost));
    }

    /// Puts a queue that stands nowhere in its ring: at the front if the key's room is owed to it, in its old place if it
    /// left that to a sibling, else last.
    pub(super) fn make_ready(&mut self, queue: u32) {
        self.settled = false;
        let Self { plan, queues, lanes, rings, .. } = self;
        let rule = usize::from(queues[queue].rule);
        let RulePlan { lane, weight, .. } = plan.rules[rule];
        let quantum = lanes[lane].quantum(weight);
        if queues[queue].owed {
            lanes[lane].push_front(&mut rings[rule], queues, queue, Credit::Due(quantum));
        } else if queues[queue].state() == QueueState::Yielding || queues[queue].extras.take_awaits_pool() {
            lanes[lane].push_back_in(&mut rings[rule], queues, queue);
        } else {
            lanes[lane].push_back(&mut rings[rule], queues, queue, quantum);
        }
    }

    /// Takes a queue out of its ring; the caller says where it stands now.
    pub(super) fn leave_ring(&mut self, queue: u32) {
        self.settled = false;
        let Self { plan, queues, lanes, rings, .. } = self;
        let rule = usize::from(queues[queue].rule);
        lanes[plan.rules[rule].lane].unlink(&mut rings[rule], queues, queue);
    }

    /// Parks a queue that stands nowhere.
    pub(super) fn park(&mut self, queue: u32, until: Instant) {
        self.queues[queue].set_state(QueueState::Parked { until });
        self.timers.push(until, Due::queue(queue));
    }

    pub(super) fn unpark(&mut self, queue: u32) {
        self.make_ready(queue);
        let Self { timers, requests, queues, .. } = self;
        timers.note_stale(|at, due| is_live(requests, queues, at, due));
    }

    pub(super) fn redecide(&mut self, served: u32, affected: impl Fn(QueueState) -> bool) {
        let mut queue = served;
        loop {
            queue = self.queues[queue].sibling;
            let state = self.queues[queue].state();
            if affected(state) {
                match state {
                    QueueState::Parked { .. } => self.unpark(queue),
                    QueueState::Blocked | QueueState::Yielding | QueueState::Idle | QueueState::Ready => {
                        self.make_ready(queue);
                    }
                }
            }
            if queue == served {
                return;
            }
        }
    }

    /// Takes a request out of its queue's waiting list.
    fn unqueue(&mut self, queue: u32, index: u32) {
        let Self { queues, requests, .. } = self;
        let queue_of = &mut queues[queue];
        let (was_first, state) = (queue_of.waiting.head == index, queue_of.state());
        queue_of.unqueue(requests, index);
        let first = queue_of.waiting.head;
        if first != NIL {
            // What stopped one stops the other; endpoints may be others.
            if !was_first || self.pool.is_none() && requests[index].waits_like(&requests[first]) {
                return;
            }
            self.settled = false;
            // The next one may not have to wait as long.
            match state {
                QueueState::Parked { .. } => self.unpark(queue),
                QueueState::Blocked | QueueState::Yielding => self.make_ready(queue),
                QueueState::Ready | QueueState::Idle => {}
            }
            return;
        }
        match state {
            QueueState::Ready => {
                // Nobody asks a limit for who isn't first in a ring.
                let is_asked = self.rings[usize::from(queues[queue].rule)].head == queue;
                let settled = self.settled && !is_asked;
                self.leave_ring(queue);
                self.settled = settled;
            }
            QueueState::Parked { .. } => {
                queues[queue].set_state(QueueState::Idle);
                let Self { timers, requests, queues, .. } = self;
                timers.note_stale(|at, due| is_live(requests, queues, at, due));
            }
            QueueState::Blocked | QueueState::Yielding | QueueState::Idle => {}
        }
        self.queues[queue].set_state(QueueState::Idle);
        self.queues[queue].extras.set_passed(0);
        if self.queues[queue].owed {
            self.clear_owed(queue);
        }
    }

    /// Returns a grant: limits and pace are as if it had never been.
    pub(super) fn give_back(&mut self, now: Instant, queue: u32, index: u32) {
        self.settled = false;
        self.leave_store(index);
        self.drop_grant(now, queue, index);
        self.requests[index].set_stage(Stage::Asleep);
        self.each_limit(index, |_, state, cost| state.refund(cost));
        self.unseat(now, index);
        self.refund_pace(index);
        self.redecide_all(self.queues[queue].key);
    }

    /// Takes a request out of its queue's grants. If it was the first, the next one's turn to claim has come.
    fn drop_grant(&mut self, now: Instant, queue: u32, index: u32) {
        let Self { queues, requests, .. } = self;
        let granted = &mut queues[queue].granted;
        let was_first = granted.head == index;
        granted.unlink(requests, index);
        let next = granted.head;
        if was_first && next != NIL {
            let waker = self.begin_lease(now, next).waker.take();
            self.wakes.extend(waker);
        }
    }

    pub(super) fn next_number(&mut self, queue: u32) -> u32 {
        let number = self.queues[queue].next_number;
        self.queues[queue].next_number = number.wrapping_add(1);
        number
    }

    fn count_in(&mut self, queue: u32, index: u32) {
        let Self { plan, requests, queues, rules, lanes, .. } = self;
        let cost = requests[index].costs().of_turn(plan.fair_by);
        let record = &mut queues[queue];
        let rule = usize::from(record.rule);
        record.in_line += 1;
        rules[rule].in_line += 1;
        lanes[plan.rules[rule].lane].joined(cost);
    }

    #[inline]
    fn count_out(&mut self, queue: u32) {
        let Self { plan, queues, rules, lanes, .. } = self;
        let record = &mut queues[queue];
        let rule = usize::from(record.rule);
        let line = &mut **record;
        line.in_line -= 1;
        let is_last = line.in_line == 0;
        rules[rule].in_line -= 1;
        lanes[plan.rules[rule].lane].left();
        if is_last {
            self.wait_no_more(queue);
            self.queues[queue].rest();
        }
        self.door.note_freed(queue);
    }

    /// An attempt of the queue starts.
    #[inline]
    fn count_running(&mut self, queue: u32) {
        let Self { queues, rules, retries, .. } = self;
        if let Some(retries) = retries {
            retries.start();
        }
        let record = &mut queues[queue];
        record.running += 1;
        rules[usize::from(record.rule)].running += 1;
    }

    fn each_clock(&mut self, index: u32, mut change: impl FnMut(&mut PaceClock, Nanos, u32)) {
        let Self { plan, requests, queues, keys, clocks, .. } = self;
        let request = &requests[index];
        let costs = request.costs();
        let queue = &queues[request.queue];
        let rule = &plan.rules[usize::from(queue.rule)];
        if rule.key_pace.is_empty() && rule.shared_pace.is_empty() {
            return;
        }
        let counted = |pace: &&PaceRef| costs.of(pace.charge) > 0;
        for pace in rule.key_pace.iter().filter(counted) {
            change(&mut keys[queue.key].extras.clocks_mut()[pace.clock], pace.interval, costs.of(pace.charge));
        }
        for pace in rule.shared_pace.iter().filter(counted) {
            change(&mut clocks[pace.clock], pace.interval, costs.of(pace.charge));
        }
    }

    /// The oldest request of a queue that waits and never started.
    fn oldest_never_started(&self, queue: u32) -> Option<u32> {
        let mut index = self.queues[queue].waiting.head;
        while index != NIL && self.requests[index].started() {
            index = self.requests[index].links.next;
        }
        (index != NIL).then_some(index)
    }
}
