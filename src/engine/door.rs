//! Before the line: requests that wait for room in it.
//!
//! They are let in by the machine itself, in the order in which they came, the moment a place becomes free: nobody who
//! comes later can take it. Only who comes to a full queue is passed by those whose queues have room.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Entry, KeyId, RequestId, Turned, Why};
use super::cost::Costs;
use super::plan::RuleId;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::{Instant, Nanos};

/// Who waits before the line.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// By queue, and there in the order of arrival: by ticket.
    outside: BTreeMap<(u32, u64), Outsider>,
    /// Queues that have room themselves while the line as a whole has none, by the ticket of the first before them.
    open: BTreeSet<(u64, u32)>,
    /// Queues that somebody left.
    freed: Vec<u32>,
    tickets: u64,
}

/// What a request asks for once it is in line, counted from then.
#[derive(Clone, Copy, Debug)]
struct Outsider {
    id: RequestId,
    not_before: Option<Nanos>,
    longest: Option<Nanos>,
}

impl Door {
    /// A place in a queue became free.
    pub(super) fn note_freed(&mut self, queue: u32) {
        if !self.outside.is_empty() {
            self.freed.push(queue);
        }
    }

    /// Whether nobody waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.outside.is_empty()
    }

    /// Whether somebody waits for room in this queue.
    pub(super) fn is_before(&self, queue: u32) -> bool {
        !self.outside.is_empty() && self.first(queue).is_some()
    }

    fn first(&self, queue: u32) -> Option<u64> {
        self.outside.range((queue, 0)..=(queue, u64::MAX)).next().map(|((_, ticket), _)| *ticket)
    }

    fn remove(&mut self, queue: u32, ticket: u64) -> Option<Outsider> {
        self.open.remove(&(ticket, queue));
        let outsider = self.outside.remove(&(queue, ticket));
        if self.outside.is_empty() {
            *self = Self { tickets: self.tickets, ..Self::default() };
        }
        outsider
    }
}

impl<W> Scheduler<W> {
    /// As [`enqueue`](Self::enqueue), but where there is no room in line the request waits before it until there is, and
    /// displaces nobody. Its waker is woken once it is in; [`is_outside`](Self::is_outside) tells which it is.
    ///
    /// Those who wait are let in in the order in which they came, as far as their queues have room. Time before the line
    /// is no time in it: `not_before` and `deadline` move by it.
    ///
    /// # Errors
    /// Says why the request was turned away; nothing is kept of it then.
    pub fn enqueue_patiently(
        &mut self,
        now: Instant,
        key: KeyId,
        rule: RuleId,
        entry: Entry<'_>,
    ) -> Result<RequestId, Turned> {
        let now = self.tick(now);
        let queue = self.admit(key, rule, entry)?;
        if self.crowd(now, queue, entry).is_none() {
            return self.join(now, queue, entry);
        }
        let ticket = self.door.tickets;
        self.door.tickets += 1;
        // It gets a number when it comes into the line.
        let costs = Costs::new(entry.cost, entry.units);
        let route = self.route_among(entry);
        let id = self.add(queue, 0, now, Stage::Outside { ticket }, costs);
        self.requests[id.index].set_route(route);
        self.note_request(queue);
        let span = |until: Instant| until.since(now);
        let outsider = Outsider { id, not_before: entry.not_before.map(span), longest: entry.deadline.map(span) };
        self.door.outside.insert((queue, ticket), outsider);
        self.door.note_freed(queue);
        Ok(id)
    }

    /// Whether the request waits before the line for room in it.
    #[must_use]
    pub fn is_outside(&self, id: RequestId) -> bool {
        self.requests
            .get(id.index, id.generation)
            .is_some_and(|request| matches!(request.stage(), Stage::Outside { .. }))
    }

    /// How many wait before the line.
    #[must_use]
    pub fn outside(&self) -> usize {
        self.door.outside.len()
    }

    /// How many of them are of a key, over all rules; none for a stale id.
    #[must_use]
    pub fn outside_of(&self, key: KeyId) -> usize {
        let Some(record) = self.keys.get(key.index, key.generation).filter(|_| self.outside() > 0) else { return 0 };
        let (first, mut queue, mut count) = (record.queues, record.queues, 0);
        while queue != NIL {
            count += self.door.outside.range((queue, 0)..=(queue, u64::MAX)).count();
            let next = self.queues[queue].sibling;
            queue = if next == first { NIL } else { next };
        }
        count
    }

    /// Whether the request was refused, so that a [`claim`](Self::claim) says why.
    #[must_use]
    pub fn is_refused(&self, id: RequestId) -> bool {
        self.requests
            .get(id.index, id.generation)
            .is_some_and(|request| matches!(request.stage(), Stage::Refused { .. }))
    }

    /// Whether the queue of a rule and a key has no room, whatever there is in line as a whole.
    #[must_use]
    pub fn is_full(&self, key: KeyId, rule: RuleId) -> bool {
        self.knows(key) && self.find_queue(key.index, rule).is_some_and(|queue| !self.has_room(queue))
    }

    /// How many stand in a queue that is full, or in the line as a whole if that is. `None`: there is room for a new
    /// request. One that can start at once takes no room of others.
    pub(super) fn crowd(&mut self, now: Instant, queue: u32, entry: Entry<'_>) -> Option<u32> {
        if !self.has_room(queue) {
            return Some(self.queues[queue].in_line);
        }
        let in_all = self.crowd_in_all()?;
        (!self.needs_no_wait(now, queue, entry)).then_some(in_all)
    }

    /// Lets in whom there is room for.
    pub(super) fn let_in(&mut self, now: Instant) {
        while let Some(queue) = self.door.freed.pop() {
            self.open_for(queue);
        }
        while self.crowd_in_all().is_none()
            && let Some((ticket, queue)) = self.door.open.pop_first()
        {
            // Those that were put back need no room, and may have taken what there was.
            if !self.has_room(queue) {
                continue;
            }
            let Some(outsider) = self.door.remove(queue, ticket) else { continue };
            self.enter_line(now, queue, outsider);
            self.open_for(queue);
        }
    }

    /// Takes a request away that waits before the line.
    pub(super) fn leave_door(&mut self, queue: u32, ticket: u64) {
        self.door.remove(queue, ticket);
        self.door.note_freed(queue);
    }

    /// Refuses all who wait before the line. Returns how many it were.
    pub(super) fn close_door(&mut self, now: Instant) -> usize {
        let outside = std::mem::take(&mut self.door.outside);
        for outsider in outside.values() {
            self.refuse(now, outsider.id.index, Why::Closed);
        }
        self.door = Door::default();
        outside.len()
    }

    /// Looks at everybody anew: how many may wait where is no longer what it was.
    pub(super) fn review_door(&mut self, now: Instant) {
        let outside: Vec<(u32, RequestId)> =
            self.door.outside.iter().map(|((queue, _), outsider)| (*queue, outsider.id)).collect();
        self.door.open.clear();
        for (queue, id) in outside {
            if self.plan.rules[usize::from(self.queues[queue].rule)].removed {
                self.refuse(now, id.index, Why::RuleRemoved);
            } else if let Err((cost, capacity)) =
                self.must_fit(queue, self.requests[id.index].among(), self.requests[id.index].costs())
            {
                self.refuse(now, id.index, Why::CostTooHigh { cost, capacity });
            } else {
                self.door.note_freed(queue);
            }
        }
    }

    /// A queue was dissolved into another: so is who waits before it, in order of arrival.
    pub(super) fn move_door(&mut self, from: u32, into: u32) {
        let moved: Vec<u64> =
            self.door.outside.range((from, 0)..=(from, u64::MAX)).map(|((_, ticket), _)| *ticket).collect();
        for ticket in moved {
            self.door.open.remove(&(ticket, from));
            if let Some(outsider) = self.door.outside.remove(&(from, ticket)) {
                self.door.outside.insert((into, ticket), outsider);
            }
        }
        if let Some(first) = self.door.first(into) {
            self.door.open.retain(|&(ticket, queue)| queue != into || ticket == first);
        }
        self.door.note_freed(into);
    }

    /// Whoever is first before a queue may come in as soon as the line as a whole has room, if the queue has.
    fn open_for(&mut self, queue: u32) {
        let Some(first) = self.door.first(queue) else { return };
        if self.has_room(queue) {
            self.door.open.insert((first, queue));
        }
    }

    fn has_room(&self, queue: u32) -> bool {
        let record = &self.queues[queue];
        record.in_line < self.plan.rules[usize::from(record.rule)].queue
    }

    /// A request that waited before the line is in it now.
    fn enter_line(&mut self, now: Instant, queue: u32, outsider: Outsider) {
        let Outsider { id, not_before, longest } = outsider;
        let number = self.next_number(queue);
        let request = &mut self.requests[id.index];
        request.number = number;
        request.since = now;
        request.set_stage(Stage::Asleep);
        self.wakes.extend(request.waker.take());
        let after = |span| now.saturating_add(span);
        self.take_place(now, id, not_before.map(after), longest.map_or(Instant::NEVER, after));
    }

    /// How many stand in line if that is all that may.
    fn crowd_in_all(&self) -> Option<u32> {
        if self.plan.queue == u32::MAX {
            return None;
        }
        let in_line: usize = self.lanes.iter().map(|lane| lane.in_line).sum();
        let in_line = u32::try_from(in_line).unwrap_or(u32::MAX);
        (in_line >= self.plan.queue).then_some(in_line)
    }
}
