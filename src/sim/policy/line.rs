//! One line for all, in order of arrival or of age: its first call, or the first whose limits have room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

use super::Balancing;
use super::limiters::Limiters;
use crate::engine::{Instant, Nanos};
use crate::sim::cost::Cost;
use crate::sim::meter::Room;
use crate::sim::setup::Setup;
use crate::sim::traffic::Call;

/// What the line is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Arrival { head_only: bool },
    Ageing,
}

/// A place in line: the instant it is sorted by, and then who came first.
type Place = (Instant, u64);

/// Calls of one rule and key. Of those only the first can be the first in line whose limits have room.
type QueueId = (u16, u32);

pub(crate) struct Line {
    order: Order,
    limiters: Limiters,
    rules: Vec<u16>,
    handicaps: Vec<Nanos>,
    calls: BTreeMap<u32, Waiting>,
    queues: BTreeMap<QueueId, BTreeMap<Place, u32>>,
    /// Per rule: queues whose own limits may have room, by the place of their first call.
    ready: Vec<BTreeSet<(Place, u32)>>,
    /// Per rule: no call of it that ever came costs less.
    least: Vec<Option<Cost>>,
    /// Queues whose own limits have none before an instant.
    parked: BinaryHeap<Reverse<(Instant, QueueId)>>,
    /// Queues that wait for an attempt to end.
    blocked: BTreeMap<u32, Vec<QueueId>>,
    /// Refused calls, until they come back.
    out: BinaryHeap<Reverse<(Instant, u32)>>,
    next_place: u64,
    /// When the limits that stopped the last turn have room.
    opens: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: u32,
    cost: Cost,
    rule: u16,
    /// `None`: it runs, or waits for its time after a refusal.
    place: Option<Place>,
}

/// What a turn found no room for among the calls of a rule.
#[derive(Clone, Debug, Default)]
struct Stopped {
    costs: Vec<Cost>,
    looked_at: Option<(Place, u32)>,
}

impl Line {
    pub(crate) fn new(setup: &Setup, order: Order) -> Self {
        let plan = setup.rules.plan();
        let handicap = |lane: usize| match (order, lane) {
            (Order::Arrival { .. }, _) | (Order::Ageing, 0) => Nanos::ZERO,
            (Order::Ageing, lane) => Nanos::from_secs(10).saturating_mul(6_u64.saturating_pow(lane as u32 - 1)),
        };
        Self {
            order,
            rules: setup.traffic.iter().map(|traffic| traffic.rule.0).collect(),
            handicaps: plan.rules.iter().map(|rule| handicap(rule.lane)).collect(),
            ready: vec![BTreeSet::new(); plan.rules.len()],
            least: vec![None; plan.rules.len()],
            limiters: Limiters::new(&setup.rules),
            calls: BTreeMap::new(),
            queues: BTreeMap::new(),
            parked: BinaryHeap::new(),
            blocked: BTreeMap::new(),
            out: BinaryHeap::new(),
            next_place: 0,
            opens: None,
        }
    }

    fn join(&mut self, now: Instant, index: u32) {
        let Some(call) = self.calls.get_mut(&index) else { return };
        let place = (now.saturating_add(self.handicaps[usize::from(call.rule)]), self.next_place);
        self.next_place += 1;
        call.place = Some(place);
        let id = (call.rule, call.key);
        let queue = self.queues.entry(id).or_default();
        queue.insert(place, index);
        // Behind others it changes nothing; alone it is to be looked at.
        if queue.len() == 1 {
            self.ready[usize::from(id.0)].insert((place, id.1));
        }
    }

    /// Takes a call out of its queue; the next one is to be looked at if this was the first.
    fn leave(&mut self, index: u32) -> Option<Waiting> {
        let call = self.calls.get_mut(&index)?;
        let place = call.place.take()?;
        let (call, id) = (*call, (call.rule, call.key));
        let ready = &mut self.ready[usize::from(id.0)];
        let queue = self.queues.get_mut(&id)?;
        queue.remove(&place);
        if ready.remove(&(place, id.1)) {
            match queue.first_key_value() {
                Some((&next, _)) => {
                    ready.insert((next, id.1));
                }
                None => {
                    self.queues.remove(&id);
                }
            }
        } else if queue.is_empty() {
            self.queues.remove(&id);
        }
        Some(call)
    }

    fn make_ready(&mut self, id: QueueId) {
        if let Some((&place, _)) = self.queues.get(&id).and_then(|queue| queue.first_key_value()) {
            self.ready[usize::from(id.0)].insert((place, id.1));
        }
    }

    /// The first queue of a rule that was not looked at and may have room.
    fn next_of(&self, rule: usize, stopped: &Stopped) -> Option<(Place, u32)> {
        let none_costs_less =
            self.least[rule].is_some_and(|least| stopped.costs.iter().any(|cost| cost.fits_like(least)));
        let after = stopped.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        self.ready[rule].range((after, Bound::Unbounded)).next().copied().filter(|_| !none_costs_less)
    }

    fn later(&mut self, at: Instant) {
        self.opens = Some(self.opens.map_or(at, |opens| opens.min(at)));
    }
}

impl Balancing for Line {
    fn arrive(&mut self, now: Instant, index: u32, call: &Call, _alone: bool) {
        let rule = self.rules[usize::from(call.traffic)];
        let least = &mut self.least[usize::from(rule)];
        *least = Some(least.map_or(call.cost, |least| least.least(call.cost)));
        self.calls.insert(index, Waiting { key: call.key, cost: call.cost, rule, place: None });
        self.join(now, index);
    }

    fn turn(&mut self, now: Instant, starts: &mut Vec<u32>) {
        while let Some(&Reverse((at, index))) = self.out.peek()
            && at <= now
        {
            self.out.pop();
            self.join(now, index);
        }
        while let Some(&Reverse((at, id))) = self.parked.peek()
            && at <= now
        {
            self.parked.pop();
            self.make_ready(id);
        }
        self.opens = None;
        let head_only = self.order == Order::Arrival { head_only: true };
        // Shared limits only fill up during a turn: what they have no room for, and what costs more, is not looked at again.
        let mut stopped = vec![Stopped::default(); self.ready.len()];
        loop {
            let first =
                (0..self.ready.len()).filter_map(|rule| Some((self.next_of(rule, &stopped[rule])?, rule as u16)));
            let Some(((place, key), rule)) = first.min() else { break };
            let id = (rule, key);
            let Some(&index) = self.queues.get(&id).and_then(|queue| queue.get(&place)) else { break };
            let cost = self.calls.get(&index).map_or(Cost::ONE, |call| call.cost);
            let stopped = &mut stopped[usize::from(rule)];
            if stopped.costs.iter().any(|too_much| too_much.fits_like(cost)) {
                stopped.looked_at = Some((place, key));
                continue;
            }
            let own = self.limiters.key_room(now, rule, key, cost);
            let shared = self.limiters.shared_room(now, rule, cost);
            if head_only {
                match own.max(shared) {
                    Room::At(at) if at <= now => {}
                    Room::At(at) => {
                        self.later(at);
                        break;
                    }
                    Room::AtAnEnd => break,
                }
            }
            match (own, shared) {
                (Room::At(own), Room::At(shared)) if own.max(shared) <= now => {
                    self.leave(index);
                    self.limiters.start(now, rule, key, cost);
                    starts.push(index);
                }
                (Room::At(at), _) if at > now => {
                    self.ready[usize::from(rule)].remove(&(place, key));
                    self.parked.push(Reverse((at, id)));
                }
                (Room::AtAnEnd, _) => {
                    self.ready[usize::from(rule)].remove(&(place, key));
                    self.blocked.entry(key).or_default().push(id);
                }
                (Room::At(_), shared) => {
                    stopped.looked_at = Some((place, key));
                    stopped.costs.push(cost);
                    if let Room::At(at) = shared {
                        self.later(at);
                    }
                }
            }
        }
    }

    fn ended(&mut self, now: Instant, index: u32) {
        if let Some(call) = self.calls.remove(&index) {
            self.limiters.end(now, call.rule, call.key, call.cost);
            for id in self.blocked.remove(&call.key).unwrap_or_default() {
                self.make_ready(id);
            }
        }
    }

    fn refused(&mut self, now: Instant, index: u32, after: Nanos) {
        if let Some(call) = self.calls.get(&index).copied() {
            self.limiters.end(now, call.rule, call.key, call.cost);
            for id in self.blocked.remove(&call.key).unwrap_or_default() {
                self.make_ready(id);
            }
            self.out.push(Reverse((now.saturating_add(after), index)));
        }
    }

    fn withdraw(&mut self, _now: Instant, index: u32) {
        self.leave(index);
        self.calls.remove(&index);
    }

    fn next_wake(&self) -> Option<Instant> {
        let parked = self.parked.peek().map(|&Reverse((at, _))| at);
        let out = self.out.peek().map(|&Reverse((at, _))| at);
        [self.opens, parked, out].into_iter().flatten().min()
    }
}
