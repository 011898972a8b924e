//! Asking for what is ready, and what follows from the answer.

use std::collections::BTreeSet;

use super::{Answers, Asked, Batch, Given, Line, MOST, Serial, Site, Store, Take, Told, Wait, is_cap};
use crate::engine::answer::{KeyId, RequestId};
use crate::engine::plan::{LimitKind, LimitRef, LimitSpec, RuleId};
use crate::engine::queue::{Credit, Queue, QueueState};
use crate::engine::request::Stage;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};
use crate::engine::turn::is_live;

/// Turns that make up one batch at most: each grants or moves as many as a turn may.
const TURNS: usize = 64;

/// After that long a limit is asked for again that was told to have room before the answer came that it has none.
const SOON: Nanos = Nanos::from_millis(20);

/// How things stood before a request had its turn.
pub(in crate::engine) struct Before {
    credit: Credit,
    lane: usize,
    waived: bool,
    /// Lane by lane.
    bypassed: Vec<u32>,
}

/// What a request takes from a limit that the store keeps.
pub(super) struct Draw {
    pub(super) site: Site,
    pub(super) kind: LimitKind,
    pub(super) cost: u32,
    pub(super) reserve: u32,
}

impl<W> Scheduler<W> {
    /// Whether there is something to ask the store, or to tell it.
    #[must_use]
    pub fn wants_store(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.wanted && !store.busy && store.is_asked())
    }

    /// What is to be asked of the store, now that it may be: everything that is ready, in the order of lanes and turns.
    ///
    /// `None` if there is nothing, or a batch is on its way already. Otherwise nothing more is asked for until this batch
    /// is [answered](Self::answer), or has [failed](Self::fail).
    pub fn collect(&mut self, now: Instant) -> Option<Batch> {
        let now = self.tick(now);
        let store = self.store.as_mut().filter(|store| !store.busy && store.is_asked())?;
        store.forget(now);
        store.wanted = false;
        store.collecting = true;
        for _ in 0..TURNS {
            self.dispatch(now);
            let is_full = self.store.as_ref().is_none_or(|store| store.asked.len() >= MOST);
            if is_full || self.next_wake().is_none_or(|wake| wake > now) {
                break;
            }
        }
        self.tell_store(now);
        let store = self.store.as_mut()?;
        store.collecting = false;
        if store.asked.is_empty() && store.lines.is_empty() {
            return None;
        }
        store.busy = true;
        store.places.clear();
        let asks = store.asked.iter().map(|asked| asked.takes.clone()).collect();
        Some(Batch { lines: store.lines.clone(), asks })
    }

    /// The store's answer to the batch.
    pub fn answer(&mut self, now: Instant, answers: &Answers) {
        let Some(store) = self.store.as_mut().filter(|store| store.busy) else { return };
        store.note_counted(answers);
        self.conclude(now, answers);
    }

    /// There will be no other answer to the batch than this.
    fn conclude(&mut self, now: Instant, answers: &Answers) {
        let now = self.tick(now);
        let Some(store) = self.store.as_mut().filter(|store| store.busy) else { return };
        store.busy = false;
        store.telling.clear();
        let asked = std::mem::take(&mut store.asked);
        let lines = std::mem::take(&mut store.lines);
        let freed = std::mem::take(&mut store.freed);
        for (position, line) in lines.iter().enumerate() {
            if let Some(Some(Wait { lasts, closed_to })) = answers.waits.get(position) {
                let longest = if freed.contains(&line.site) { SOON } else { *lasts };
                let until = now.saturating_add(longest.min(*lasts));
                store.close(line.site, until, *closed_to);
                if let (Site::Endpoint(endpoint, _), Some(pool)) = (line.site, &mut self.pool) {
                    let endpoint = &mut pool.endpoints[usize::from(endpoint.0)];
                    endpoint.closed = endpoint.closed.max(until);
                }
            }
        }
        store.servers.note(lines.iter().map(|line| line.site).zip(&answers.stands));
        for (line, _) in lines.iter().zip(&answers.lost).filter(|(_, lost)| **lost) {
            self.recount(line.site);
        }
        let serials = answers.serials(&asked, &lines);
        let (mut refused, mut given) = (Vec::new(), Vec::new());
        let mut stopped = BTreeSet::new();
        for ((position, asked), serials) in asked.into_iter().enumerate().zip(serials) {
            let is_taken = answers.has_taken(position);
            let queue = self.is_asked_for(asked.id).then(|| self.requests[asked.id.index].queue);
            // What one of a queue takes is of no use while one before it waits.
            if is_taken && queue.is_none_or(|queue| !stopped.contains(&queue)) {
                given.push((asked, serials));
                continue;
            }
            stopped.extend(queue);
            if is_taken {
                self.tell_caps(asked.caps(&lines).collect());
            }
            refused.push(asked);
        }
        for (asked, serials) in given {
            self.give(now, &asked, &lines, (answers.usable_until, serials));
        }
        // The last one first: each goes to the front, and the first one is there at the end.
        for asked in refused.into_iter().rev() {
            self.put_in_front(now, &asked);
        }
        self.dispatch(now);
    }

    /// The batch has no answer. What it asked for may have been taken, and counts as lost then; the requests are where
    /// they were.
    pub fn fail(&mut self, now: Instant) {
        if let Some(store) = self.store.as_mut().filter(|store| store.busy) {
            // What it was to tell is told the next time.
            store.changed.extend(store.lines.iter().filter(|line| is_cap(line.kind)).map(|line| line.site));
            for (site, since) in std::mem::take(&mut store.telling) {
                store.untold.entry(site).or_insert(since);
            }
            store.servers.fail(now);
            store.wanted = true;
        }
        self.conclude(now, &Answers::default());
    }

    /// There may be room in a limit before the store said there would be.
    pub fn reopen(&mut self, now: Instant, site: Site) {
        let now = self.tick(now);
        let Some(store) = &mut self.store else { return };
        if store.busy {
            store.freed.insert(site);
        }
        if !store.reopen(site) {
            return;
        }
        match site {
            Site::Key(key, _) | Site::Own(_, key, _) if self.knows(key) => self.redecide_all(key.index),
            Site::Key(..) | Site::Own(..) | Site::Shared(_) => {}
            Site::Endpoint(endpoint, _) => {
                if let Some(pool) = &mut self.pool {
                    pool.endpoints[usize::from(endpoint.0)].closed = Instant::ZERO;
                }
                self.pool_event();
            }
        }
        self.dispatch(now);
    }

    /// There may be room again in any limit.
    pub fn reopen_all(&mut self, now: Instant) {
        let Some(store) = &mut self.store else { return };
        if store.busy {
            store.freed.extend(store.lines.iter().map(|line| line.site));
        }
        for site in self.closed_sites() {
            self.reopen(now, site);
        }
    }

    /// How things stand before a queue of a lane has its turn.
    pub(in crate::engine) fn before_asking(&self, queue: u32, lane: usize) -> Before {
        Before {
            credit: self.queues[queue].credit(),
            lane,
            waived: self.lanes[lane].overdue().is_some(),
            bypassed: self.lanes.iter().map(|lane| lane.bypassed).collect(),
        }
    }

    /// A request that everything in the machine has room for is asked for.
    pub(in crate::engine) fn ask_for(&mut self, index: u32, before: Before) {
        let Before { credit, lane, waived, bypassed } = before;
        let draws = self.draws(index, waived);
        let passed_by = (0..bypassed.len()).filter(|&other| self.lanes[other].bypassed > bypassed[other]).collect();
        let id = RequestId { index, generation: self.requests.generation(index) };
        let Some(store) = &mut self.store else { return };
        let mut takes = Vec::with_capacity(draws.len());
        for Draw { site, kind, cost, reserve } in draws {
            takes.push(Take { line: store.line(site, kind), cost, reserve });
        }
        store.asked.push(Asked { id, takes, credit, bypassed: bypassed[lane], passed_by });
    }

    /// What a request takes from limits that the store keeps.
    pub(super) fn draws(&self, index: u32, waived: bool) -> Vec<Draw> {
        let request = &self.requests[index];
        let costs = request.costs();
        let queue = &self.queues[request.queue];
        let rule = &self.plan.rules[usize::from(queue.rule)];
        let key = KeyId { index: queue.key, generation: self.keys.generation(queue.key) };
        let mut draws = Vec::new();
        let mut draw = |spec: &LimitSpec, site: Site, reserve: u32| {
            let cost = costs.of(spec.charge);
            if spec.is_shared() && cost > 0 {
                draws.push(Draw { site, kind: spec.kind, cost, reserve: if waived { 0 } else { reserve } });
            }
        };
        for (position, spec) in Queue::own(&queue.extras, rule).iter().enumerate() {
            draw(spec, Site::Own(RuleId(queue.rule), key, position), 0);
        }
        for &LimitRef { limit, reserve } in &rule.key {
            draw(&self.plan.key_limits[limit], Site::Key(key, limit), reserve);
        }
        for &LimitRef { limit, reserve } in &rule.shared {
            draw(&self.plan.shared_limits[limit], Site::Shared(limit), reserve);
        }
        if let (Some(pool), Some(id)) = (&self.plan.pool, request.route().and_then(|route| route.at)) {
            for (position, spec) in pool.endpoints[usize::from(id.0)].limits.iter().enumerate() {
                draw(spec, Site::Endpoint(id, position), 0);
            }
        }
        draws
    }

    /// Grants what the store gave, unless it may not start any more.
    fn give(
        &mut self,
        now: Instant,
        asked: &Asked,
        lines: &[Line],
        (usable_until, serials): (Instant, Vec<(Site, Serial)>),
    ) {
        let index = asked.id.index;
        let caps: Vec<Site> = asked.caps(lines).collect();
        if !self.is_asked_for(asked.id) {
            // The store counts slots that nobody holds.
            self.tell_caps(caps);
            return;
        }
        let queue = self.requests[index].queue;
        if self.is_stopped(now, queue) {
            self.tell_caps(caps);
            return self.put_in_front(now, asked);
        }
        if let Some(store) = &mut self.store {
            for site in &caps {
                *store.held.entry(*site).or_default() += 1;
            }
            store.given.insert(index, Given { usable_until: Some(usable_until), caps, serials });
        }
        let Self { queues, requests, .. } = self;
        let is_first = queues[queue].granted.is_empty();
        queues[queue].granted.push_back(requests, index);
        requests[index].set_stage(Stage::Granted { lease: Instant::NEVER });
        self.wakes.extend(requests[index].waker.take());
        if is_first {
            self.begin_lease(now, index);
        }
        self.note_passed(queue);
    }

    pub(super) fn is_asked_for(&self, id: RequestId) -> bool {
        self.requests.get(id.index, id.generation).is_some_and(|request| request.stage() == Stage::Asked)
    }

    /// Whether something came up that keeps a queue from starting.
    fn is_stopped(&self, now: Instant, queue: u32) -> bool {
        let queue = &self.queues[queue];
        let rule = &self.rules[usize::from(queue.rule)];
        let hold = self.hold.max(rule.hold).max(self.guard.closed_until()).max(queue.extras.hold());
        self.paused || rule.paused || hold.max(self.keys[queue.key].extras.hold()) > now
    }

    /// What was asked for in vain goes back to its place in line, and its queue to the front of its ring.
    pub(super) fn put_in_front(&mut self, now: Instant, asked: &Asked) {
        if !self.is_asked_for(asked.id) {
            return;
        }
        let index = asked.id.index;
        let queue = self.requests[index].queue;
        let lane = self.plan.rules[usize::from(self.queues[queue].rule)].lane;
        for &other in &asked.passed_by {
            self.lanes[other].bypassed = self.lanes[other].bypassed.saturating_sub(1);
        }
        self.lanes[lane].bypassed += asked.bypassed;
        self.unask(now, index);
        if self.requests[index].deadline() <= now {
            return self.refuse(now, index, crate::engine::answer::Why::MaxWait);
        }
        if self.refuse_if_stranded(now, index) {
            return;
        }
        self.requeue(index, Instant::ZERO);
        match self.queues[queue].state() {
            QueueState::Ready => self.leave_ring(queue),
            QueueState::Parked { .. } => {
                self.queues[queue].set_state(QueueState::Blocked);
                let Self { timers, requests, queues, .. } = self;
                timers.note_stale(|at, due| is_live(requests, queues, at, due));
            }
            QueueState::Blocked | QueueState::Yielding | QueueState::Idle => {}
        }
        let Self { plan, queues, lanes, rings, .. } = self;
        let rule = usize::from(queues[queue].rule);
        lanes[plan.rules[rule].lane].push_front(&mut rings[rule], queues, queue, asked.credit);
        self.settled = false;
    }

    /// A request is asked for no more: it stands in line outside its queue, and its limits are as if it had never been.
    pub(in crate::engine) fn unask(&mut self, now: Instant, index: u32) {
        self.settled = false;
        self.requests[index].set_stage(Stage::Asleep);
        self.each_limit(index, |_, state, cost| state.refund(cost));
        self.unseat(now, index);
        self.refund_pace(index);
    }
}

impl Answers {
    fn has_taken(&self, position: usize) -> bool {
        self.taken.get(position).is_some_and(|&taken| taken)
    }

    /// For each request which starts of its limits it was given: what the store says of a limit is as of the last one.
    fn serials(&self, asked: &[Asked], lines: &[Line]) -> Vec<Vec<(Site, Serial)>> {
        let mut last: Vec<_> = self.stands.iter().map(|stand| stand.as_ref().map(|stand| stand.last)).collect();
        let mut serials = vec![Vec::new(); asked.len()];
        for (position, asked) in asked.iter().enumerate().rev().filter(|(position, _)| self.has_taken(*position)) {
            for take in &asked.takes {
                if let Some(Some(last)) = last.get_mut(take.line) {
                    serials[position].push((lines[take.line].site, *last));
                    last.number = last.number.saturating_sub(take.cost.into());
                }
            }
        }
        serials
    }
}

impl Asked {
    /// The caps of which it asks for slots.
    fn caps(&self, lines: &[Line]) -> impl Iterator<Item = Site> {
        self.takes.iter().map(|take| &lines[take.line]).filter(|line| line.is_cap()).map(|line| line.site)
    }
}

impl Store {
    /// Of caps that the store was told of as unused, and that it gave nothing of, it counts nothing.
    fn note_counted(&mut self, answers: &Answers) {
        let Self { counted, lines, asked, .. } = self;
        for line in lines.iter().filter(|line| line.is_cap() && line.held == 0) {
            counted.remove(&line.site);
        }
        let taken = asked.iter().zip(&answers.taken).filter(|(_, taken)| **taken);
        counted.extend(taken.flat_map(|(asked, _)| asked.caps(lines)));
    }

    /// The position of a limit among those of the batch.
    pub(super) fn line(&mut self, site: Site, kind: LimitKind) -> usize {
        let held = self.held.get(&site).copied().unwrap_or(0);
        *self.places.entry(site).or_insert_with(|| {
            self.lines.push(Line { site, kind, held, told: Told::Nothing, said: Vec::new() });
            self.lines.len() - 1
        })
    }
}
