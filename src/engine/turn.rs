//! A turn: what is due becomes ready, and what is ready and fits is granted.

use std::cmp::Reverse;

use super::answer::{RequestId, Why};
use super::cost::Costs;
use super::gate::{Gate, Refusal, Whose, pace_due};
use super::limit::Ask;
use super::plan::{LimitRef, RulePlan};
use super::queue::{Credit, Queue, QueueState};
use super::request::{Request, Stage};
use super::scheduler::{Due, Scheduler, Whom};
use super::slab::{Entry, NIL, Slab};
use super::time::Instant;

/// Grants and demotions of one turn. The owner holds a lock meanwhile: a hundred thousand keys that become due
/// together must not stop everybody else for as long as it takes to grant them.
const PER_TURN: usize = 64;

/// Parked queues that one turn takes out of the timers; they only change lists.
const DUE_PER_TURN: usize = 1_024;

/// How the first of a ring stands, if it may have its turn.
#[derive(Clone, Copy)]
enum Fit {
    Fits,
    TooCostly,
    ToAsk,
}

/// What one step of a turn did.
enum Step {
    Granted,
    Demoted,
    /// Nothing can go before the instant or an event.
    Nothing(Option<Instant>),
}

impl<W> Scheduler<W> {
    /// One turn: what is due becomes ready, and what is ready is granted, at most 64 grants and demotions.
    ///
    /// If more is left, [`next_wake`](Self::next_wake) is now.
    pub fn dispatch(&mut self, now: Instant) {
        let now = self.tick(now);
        self.look_at_guard(now);
        let mut finished = self.advance(now);
        // Before those who are ready: some of them may have come later.
        self.settle_pool(now);
        let mut steps = 0;
        loop {
            self.opens = None;
            self.let_in(now);
            finished &= self.serve(now, &mut steps);
            if !finished {
                break;
            }
            if self.settle_pool(now) {
                continue;
            }
            // Only now: who may start at the very end of the time it would wait, starts.
            let refused = self.expire(now, PER_TURN - steps);
            steps += refused;
            finished = !self.has_expired(now);
            // Whoever stood behind the refused may go now.
            if refused == 0 {
                finished = finished && self.sweep(now, PER_TURN);
                break;
            }
        }
        if !finished {
            self.opens = Some(now);
        }
        self.settled = finished;
        self.trim();
    }

    /// When to call [`dispatch`](Self::dispatch) again. `None`: not before another call.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let next = self.next_but_sweeps().min(self.sweeps.next());
        (next != Instant::NEVER).then_some(next)
    }

    /// Whether a turn is due now, as far as instants say.
    pub(super) fn is_to_wake(&self, now: Instant) -> bool {
        self.next_wake().is_some_and(|wake| wake <= now)
    }

    /// The same as [`next_wake`](Self::next_wake) without keys to look at.
    fn next_but_sweeps(&self) -> Instant {
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::NEVER);
        let lease = or_never(self.leases.front().map(|&(at, _)| at));
        let pool = or_never(self.pool.as_ref().and_then(|pool| pool.opens));
        let next = self.timers.next().min(self.deadlines.next()).min(lease);
        next.min(or_never(self.opens)).min(or_never(self.guard.wake())).min(pool)
    }

    /// Drops some keys that are busy from the list of idle ones, if nothing but they would wake the owner.
    fn trim_sweeps(&mut self) {
        let next = self.next_but_sweeps();
        for _ in 0..PER_TURN {
            let Some((_, key)) = self.sweeps.peek().filter(|&(at, _)| at < next) else { return };
            if self.sweeps.has(key) && !self.is_busy(key) {
                return;
            }
            self.sweeps.pop_due(next);
        }
    }

    /// After an event: a turn, if there is anything to do.
    pub(super) fn after_event(&mut self, now: Instant) {
        self.let_in(now);
        if self.anything_ready() || self.is_due(now) || self.is_pool_unsettled() {
            self.dispatch(now);
        } else {
            self.opens = None;
            self.trim();
        }
    }

    /// After a claim, or an end that gave nothing back: as [`after_event`](Self::after_event), but what the last turn found
    /// is not looked for again.
    ///
    /// What is granted counts as much as what started, so a claim changes no answer but those that hang on its instant.
    pub(super) fn after_minor_event(&mut self, now: Instant) {
        if self.hangs_on_grants { self.after_event(now) } else { self.after_departure(now) }
    }

    /// The same after somebody left who was granted nothing: not even what hangs on grants changes.
    pub(super) fn after_departure(&mut self, now: Instant) {
        let is_known = self.settled && self.pool.is_none() && self.door.is_empty() && !self.is_to_wake(now);
        if is_known {
            self.trim();
        } else {
            self.after_event(now);
        }
    }

    /// Whether a new request of this cost may start at once: nobody is ready, nothing is due, nobody of its queue is
    /// before it, and every limit has room.
    pub(super) fn is_clear(&mut self, now: Instant, queue: u32, costs: Costs<'_>) -> bool {
        if self.anything_ready() || self.is_due(now) || self.is_pool_unsettled() {
            return false;
        }
        let record = &self.queues[queue];
        record.waiting.is_empty()
            && record.granted.is_empty()
            && !self.door.is_before(queue)
            && matches!(self.gate(now, usize::from(self.queues[queue].rule), Whose::New(costs), false), Gate::Open)
            && self.check(now, queue, Whose::New(costs), false).is_ok()
            // What was owed in vain is given up, and siblings are ready that came before.
            && !self.anything_ready()
    }

    /// A grant's lease begins. Returns its request.
    pub(super) fn begin_lease(&mut self, now: Instant, index: u32) -> &mut Request<W> {
        let lease = now.saturating_add(self.plan.lease);
        let request = &mut self.requests[index];
        request.set_stage(Stage::Granted { lease });
        self.leases.push_back((lease, RequestId { index, generation: request.generation() }));
        request
    }

    pub(super) fn anything_ready(&self) -> bool {
        self.lanes.iter().any(|lane| lane.ready > 0)
    }

    /// When something that waits for an instant is due: a queue, a request, a lease, a key to look at.
    pub(super) fn next_due(&self) -> Instant {
        let lease = self.leases.front().map_or(Instant::NEVER, |&(at, _)| at);
        self.timers.next().min(self.sweeps.next()).min(lease)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.timers.peek().is_some_and(|(at, _)| at <= now) || self.leases.front().is_some_and(|&(at, _)| at <= now)
    }

    /// Moves what is due back into line. Returns false if more is due.
    fn advance(&mut self, now: Instant) -> bool {
        while let Some(&(lease, id)) = self.leases.front().filter(|&&(lease, _)| lease <= now) {
            self.leases.pop_front();
            if self.holds_lease(lease, id) {
                self.revoke(now, id.index);
            }
        }
        for _ in 0..DUE_PER_TURN {
            let Some((at, due)) = self.timers.pop_due(now) else { return true };
            if !is_live(&self.requests, &self.queues, at, due) {
                continue;
            }
            match due.whom() {
                Whom::Queue(queue) => self.make_ready(queue),
                Whom::Request(request) if self.refuse_if_stranded(now, request) => {}
                Whom::Request(request) => self.requeue(request, Instant::ZERO),
            }
        }
        self.timers.peek().is_none_or(|(at, _)| at > now)
    }

    /// Grants what is ready and fits. Returns false if the turn's steps are used up before that.
    fn serve(&mut self, now: Instant, steps: &mut usize) -> bool {
        while self.anything_ready() {
            if *steps >= PER_TURN {
                return false;
            }
            match self.step(now) {
                Step::Granted | Step::Demoted => *steps += 1,
                Step::Nothing(opens) => {
                    self.opens = opens;
                    return true;
                }
            }
        }
        true
    }

    /// Refuses those whose time in line is over, and gives up attempts that ran for as long as they may. Returns how many
    /// it were.
    fn expire(&mut self, now: Instant, at_most: usize) -> usize {
        let mut refused = 0;
        while let Some((at, id)) = self.deadlines.peek().filter(|&(at, _)| at <= now && refused < at_most) {
            self.deadlines.pop_due(now);
            if !has_deadline(&self.requests, at, id) {
                continue;
            }
            match self.requests[id.index].stage() {
                Stage::Running => self.give_up_attempt(id.index),
                Stage::Queued { .. } | Stage::Asleep | Stage::Out { .. } => {
                    self.refuse(now, id.index, Why::MaxWait);
                }
                // It may still claim. The others have no deadline.
                Stage::Asked
                | Stage::Granted { .. }
                | Stage::Outside { .. }
                | Stage::Overdue
                | Stage::Aborted
                | Stage::Refused { .. } => {
                    continue;
                }
            }
            refused += 1;
        }
        refused
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.deadlines.peek().is_some_and(|(at, _)| at <= now)
    }

    /// Grants one request, or moves one queue that may not start, or finds that nothing can go.
    fn step(&mut self, now: Instant) -> Step {
        let mut opens: Option<Instant> = None;
        let mut reserved_until: Option<Instant> = None;
        let mut asking: Vec<usize> = Vec::new();
        self.reserved.clear();
        self.hangs_on_grants = !self.only_windows;
        self.set_serving_order();
        let mut place = 0;
        while let Some(&lane) = self.order.get(place) {
            let waived = self.lanes[lane].overdue().is_some();
            let mut first: Option<(i64, usize, Fit)> = None;
            for position in 0..self.lanes[lane].rules.len() {
                let rule = self.lanes[lane].rules[position];
                let head = self.rings[rule].head;
                if head == NIL || asking.contains(&rule) {
                    continue;
                }
                let fits = match self.gate(now, rule, Whose::First(head), waived) {
                    Gate::Open => Fit::Fits,
                    Gate::TooCostly(_) => Fit::TooCostly,
                    Gate::ToAsk => Fit::ToAsk,
                    Gate::Reserved => {
                        if self.forfeit(now, rule, reserved_until) {
                            return Step::Demoted;
                        }
                        continue;
                    }
                    Gate::Closed(at) => {
                        if self.forfeit(now, rule, at) {
                            return Step::Demoted;
                        }
                        opens = [opens, at].into_iter().flatten().min();
                        continue;
                    }
                };
                let ticket = self.queues[head].ticket;
                if first.is_none_or(|(smallest, ..)| ticket < smallest) {
                    first = Some((ticket, rule, fits));
                }
            }
            let Some((_, rule, fits)) = first else {
                place += 1;
                continue;
            };
            let head = self.rings[rule].head;
            let cost = self.cost_of_turn(head);
            let worth = self.worth(head, cost);
            if worth < cost {
                self.next_round(head);
            } else if let Err(refusal) = self.check(now, head, Whose::First(head), waived) {
                self.demote(now, head, refusal);
            } else if let Fit::Fits = fits {
                self.grant(now, head, worth - cost);
                return Step::Granted;
            } else if let Fit::ToAsk = fits {
                // Whoever comes after it leaves it what it needs, until it is asked for.
                self.leave_room(rule, head);
                asking.push(rule);
                continue;
            } else {
                // It waits for room, and with it whoever comes after it, in this lane or below, and needs the same.
                let at = self.wait_for_room(now, rule, head, waived);
                reserved_until = at;
                if self.forfeit(now, rule, at) {
                    return Step::Demoted;
                }
                opens = [opens, at].into_iter().flatten().min();
                continue;
            }
            return Step::Demoted;
        }
        Step::Nothing(opens)
    }

    /// Reserves all limits that a request whose turn it is draws on.
    fn leave_room(&mut self, rule: usize, head: u32) {
        let Self { plan, requests, queues, reserved, .. } = self;
        let costs = Whose::First(head).costs(requests, queues);
        let limits = plan.rules[rule].shared.iter().map(|bound| bound.limit);
        reserved.extend(limits.filter(|&limit| costs.of(plan.shared_limits[limit].charge) > 0));
    }

    /// Lists the lanes with ready queues in the order in which they are served: the most overdue first, then by urgency.
    fn set_serving_order(&mut self) {
        let Self { order, lanes, .. } = self;
        order.clear();
        order.extend((0..lanes.len()).filter(|&lane| lanes[lane].ready > 0));
        if order.iter().any(|&lane| lanes[lane].overdue().is_some()) {
            order.sort_by_key(|&lane| Reverse(lanes[lane].overdue()));
        }
    }

    /// Moves a queue that may not start out of its ring.
    fn demote(&mut self, now: Instant, id: u32, refusal: Refusal) {
        if let Refusal::NoEndpoint = refusal {
            return self.refuse(now, self.queues[id].waiting.head, Why::NoEndpoint);
        }
        self.leave_ring(id);
        if !matches!(refusal, Refusal::Pool { .. }) {
            self.unreserve(id);
        }
        match refusal {
            Refusal::Until(until) => self.park(id, until),
            Refusal::Event | Refusal::NoEndpoint => self.queues[id].set_state(QueueState::Blocked),
            Refusal::Pool { at, on_event, nearest } => {
                self.reserve(id, nearest, at);
                match at {
                    Some(at) => self.park(id, at),
                    None => self.queues[id].set_state(QueueState::Blocked),
                }
                if on_event {
                    self.wait_for_pool(id);
                }
            }
            Refusal::Owed => self.queues[id].set_state(QueueState::Yielding),
            Refusal::Passed(ask) => {
                if self.queues[id].owed {
                    // It waits for longer than it seemed: that may be too long for its siblings.
                    self.redecide(id, |state| state == QueueState::Yielding);
                }
                self.owe(id);
                match ask {
                    Ask::At(at) | Ask::Unclaimed(at) => self.park(id, at),
                    Ask::Room | Ask::Busy => self.queues[id].set_state(QueueState::Blocked),
                }
                return;
            }
        }
        if self.queues[id].owed {
            // Something other than the key's room stops it: its siblings need not wait for that.
            self.clear_owed(id);
        }
    }

    /// Grants a queue's first request, after which so much is left of its turn.
    fn grant(&mut self, now: Instant, id: u32, left: u32) {
        let rule = usize::from(self.queues[id].rule);
        let lane = self.plan.rules[rule].lane;
        let before =
            self.store.as_ref().is_some_and(|store| store.asks_for(rule)).then(|| self.before_asking(id, lane));
        self.count_bypass(now, lane);
        let Self { queues, requests, wakes, .. } = self;
        let index = queues[id].waiting.head;
        queues[id].unqueue(requests, index);
        if before.is_some() {
            requests[index].set_stage(Stage::Asked);
        } else {
            let line = &mut *queues[id];
            let is_first = line.granted.is_empty();
            line.granted.push_back(requests, index);
            let request = &mut requests[index];
            request.set_stage(Stage::Granted { lease: Instant::NEVER });
            wakes.extend(request.waker.take());
            if is_first {
                self.begin_lease(now, index);
            }
        }
        self.seat(now, index);
        // What has a short list is not paced.
        if !self.each_window(index, |spec, state| state.grant_one(spec, now)) {
            self.each_limit(index, |spec, state, cost| state.grant(spec, now, cost));
            self.charge_pace(now, index);
        }
        match before {
            Some(before) => self.ask_for(index, before),
            None => {
                self.note_alone(index);
                self.note_passed(id);
            }
        }
        // It must not be the first of its key to be told that the key is kept: it would be the first to come back.
        let left = if left > 0 && self.is_kept_by_its_key(now, id) { 0 } else { left };
        let record = &mut self.queues[id];
        let owed = record.owed;
        record.set_credit(Credit::Left(left));
        if record.waiting.is_empty() {
            record.set_state(QueueState::Idle);
            self.leave_ring(id);
        } else if left == 0 || left < self.cost_of_turn(id) {
            self.next_round(id);
        }
        if owed {
            self.clear_owed(id);
        }
    }

    /// Whether the pace of its key, which siblings wait for, keeps a queue for longer than that of its lane.
    fn is_kept_by_its_key(&self, now: Instant, id: u32) -> bool {
        let queue = &self.queues[id];
        let rule = &self.plan.rules[usize::from(queue.rule)];
        let due = pace_due(&rule.key_pace, self.keys[queue.key].extras.clocks(), Costs::ONE);
        let siblings = || std::iter::successors(Some(queue.sibling), |&sibling| Some(self.queues[sibling].sibling));
        due > now.max(pace_due(&rule.shared_pace, &self.clocks, Costs::ONE))
            && siblings().take_while(|&sibling| sibling != id).any(|sibling| {
                let sibling = &self.queues[sibling];
                !sibling.waiting.is_empty() && !self.plan.rules[usize::from(sibling.rule)].key_pace.is_empty()
            })
    }

    /// Counts a grant of `lane` against the other lanes that are ready.
    fn count_bypass(&mut self, now: Instant, lane: usize) {
        for other in 0..self.lanes.len() {
            if other != lane && self.lanes[other].ready > 0 && self.is_open(now, other) {
                self.lanes[other].bypassed += 1;
            }
        }
        self.lanes[lane].bypassed = 0;
    }

    /// Whether a lane has a ready queue that only its turn or its pace keeps from starting.
    fn is_open(&mut self, now: Instant, lane: usize) -> bool {
        (0..self.lanes[lane].rules.len()).any(|position| {
            let rule = self.lanes[lane].rules[position];
            self.rings[rule].head != NIL
                && matches!(
                    self.gate(now, rule, Whose::New(Costs::ONE), true),
                    Gate::Open | Gate::Reserved | Gate::ToAsk
                )
        })
    }

    /// What a queue may start if its turn is now and its first request takes `cost` of it.
    fn worth(&self, id: u32, cost: u32) -> u32 {
        let queue = &self.queues[id];
        let RulePlan { lane, weight, .. } = self.plan.rules[usize::from(queue.rule)];
        self.lanes[lane].worth(queue.credit(), weight, cost)
    }

    /// A queue's turn is over: it goes last, with what it did not start in this one.
    fn next_round(&mut self, id: u32) {
        let Self { plan, queues, lanes, rings, .. } = self;
        let record = &queues[id];
        let (Credit::Due(saved) | Credit::Left(saved)) = record.credit();
        let rule = usize::from(record.rule);
        let RulePlan { lane, weight, .. } = plan.rules[rule];
        let (lane, ring) = (&mut lanes[lane], &mut rings[rule]);
        let worth = saved.saturating_add(lane.quantum(weight));
        lane.unlink(ring, queues, id);
        lane.push_back(ring, queues, id, worth);
    }

    /// Reserves the widest of the limits that have no room for a costly request, and what lies inside that one: a limit
    /// that binds nobody but its rule makes nobody else wait. Returns when there is room in all of them.
    fn wait_for_room(&mut self, now: Instant, rule: usize, head: u32, waived: bool) -> Option<Instant> {
        let Self { plan, shared, requests, queues, days, reserved, .. } = self;
        let costs = Whose::First(head).costs(requests, queues);
        let bounds = &plan.rules[rule].shared;
        let breadth = |bound: &LimitRef| plan.shared_limits[bound.limit].origin.breadth();
        let mut all = Ask::Room;
        let mut widest = None;
        for bound in bounds {
            let answer = shared.ask_refs(&plan.shared_limits, std::slice::from_ref(bound), days, now, costs, waived);
            if answer != Ask::Room {
                widest = widest.max(Some(breadth(bound)));
            }
            all = all.and(answer);
        }
        let takes = |bound: &LimitRef| costs.of(plan.shared_limits[bound.limit].charge) > 0;
        let inside = bounds.iter().filter(|&bound| Some(breadth(bound)) <= widest && takes(bound));
        reserved.extend(inside.map(|bound| bound.limit));
        self.hangs_on_grants |= matches!(all, Ask::Unclaimed(_) | Ask::Busy);
        match all {
            Ask::At(at) | Ask::Unclaimed(at) => Some(at),
            Ask::Room | Ask::Busy => None,
        }
    }

    /// What the first request of a queue takes of its turn.
    fn cost_of_turn(&self, id: u32) -> u32 {
        Whose::First(id).costs(&self.requests, &self.queues).of_turn(self.plan.fair_by)
    }

    pub(super) fn holds_lease(&self, lease: Instant, id: RequestId) -> bool {
        self.requests.get(id.index, id.generation).is_some_and(|request| request.stage() == Stage::Granted { lease })
    }

    /// Drops what is no longer due from the tops of the lists, so that nothing wakes the owner for nothing.
    fn trim(&mut self) {
        while let Some(&(lease, id)) = self.leases.front() {
            if self.holds_lease(lease, id) {
                break;
            }
            self.leases.pop_front();
        }
        let (len, capacity) = (self.leases.len(), self.leases.capacity());
        if capacity > PER_TURN && len < capacity / 8 {
            self.leases.shrink_to(len * 2);
        }
        let Self { timers, deadlines, requests, queues, .. } = self;
        timers.trim(|at, due| is_live(requests, queues, at, due));
        deadlines.trim(|at, id| has_deadline(requests, at, id));
        self.trim_sweeps();
    }
}

/// Whether a timer's target still waits for it.
pub(super) fn is_live<W>(requests: &Slab<Request<W>>, queues: &Slab<Queue>, at: Instant, due: Due) -> bool {
    match due.whom() {
        Whom::Queue(queue) => queues.find(queue).is_some_and(|queue| queue.state() == QueueState::Parked { until: at }),
        Whom::Request(request) => {
            requests.find(request).is_some_and(|request| request.stage() == Stage::Out { until: at })
        }
    }
}

/// Whether a request still stands in line, or its attempt still runs, under this deadline.
pub(super) fn has_deadline<W>(requests: &Slab<Request<W>>, at: Instant, id: RequestId) -> bool {
    requests.get(id.index, id.generation).is_some_and(|request| {
        request.deadline() == at && (request.stage().in_line() || request.stage() == Stage::Running)
    })
}
