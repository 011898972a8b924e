//! Getting an endpoint with a grant, and leaving it.

use std::ops::Bound;

use super::route::Route;
use super::{Choice, EndpointId, Standing, Waiting};
use crate::engine::answer::Why;
use crate::engine::breaker::Report;
use crate::engine::cost::Costs;
use crate::engine::gate::{Refusal, Whose};
use crate::engine::limit::{self, Ask};
use crate::engine::plan::{LimitSpec, Plan};
use crate::engine::queue::QueueState;
use crate::engine::request::Stage;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

impl Plan {
    /// What a request costs and what there is room for at most, if no endpoint of those that it may use ever has room
    /// for it.
    pub(in crate::engine) fn must_fit_pool(&self, among: &[EndpointId], costs: Costs<'_>) -> Result<(), (u32, u32)> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let mut nearest: Option<(u32, u32)> = None;
        for (_, endpoint) in pool.listed().filter(|(id, _)| among.is_empty() || among.contains(id)) {
            match endpoint.must_fit(costs) {
                Ok(()) => return Ok(()),
                Err(over) if nearest.is_none_or(|(_, capacity)| capacity < over.1) => nearest = Some(over),
                Err(_) => {}
            }
        }
        nearest.map_or(Ok(()), Err)
    }
}

impl<W> Scheduler<W> {
    /// Whether an endpoint has room for a request.
    pub(in crate::engine) fn ask_pool(&mut self, now: Instant, queue: u32, whose: Whose<'_>) -> Result<(), Refusal> {
        if self.pool.is_none() {
            return Ok(());
        }
        match self.choose_for(now, queue, whose) {
            Choice::Take(_) => Ok(()),
            Choice::Wait { at, on_event, nearest } => Err(Refusal::Pool { at, on_event, nearest }),
            Choice::Out(_) => Err(Refusal::NoEndpoint),
        }
    }

    fn choose_for(&mut self, now: Instant, queue: u32, whose: Whose<'_>) -> Choice {
        let kept = self.kept_from(queue);
        let Self { plan, pool: Some(pool), requests, queues, keys, days, .. } = self else {
            return Choice::Out(None);
        };
        let route = match whose {
            Whose::First(queue) => requests[queues[queue].waiting.head].route(),
            Whose::New(_) => None,
        };
        let costs = whose.costs(requests, queues);
        let key = &mut keys[queues[queue].key];
        let mark = key.mark();
        pool.choose(plan.pooled(), days, now, (route, key.extras.seat_mut(), Some(mark)), &kept, costs)
    }

    /// A request without an endpoint that has just been found to have room gets one, before its limits are taken.
    pub(in crate::engine) fn seat(&mut self, now: Instant, index: u32) {
        if self.pool.is_none() {
            return;
        }
        let queue = self.requests[index].queue;
        let kept = self.kept_from(queue);
        let Self { plan, pool, requests, queues, keys, days, .. } = self;
        let Some(pool) = pool else { return };
        let plan = plan.pooled();
        let request = &mut requests[index];
        let costs = request.costs();
        let key = &mut keys[queues[request.queue].key];
        let mark = key.mark();
        let places = (request.route(), key.extras.seat_mut(), Some(mark));
        let Choice::Take(id) = pool.choose(plan, days, now, places, &kept, costs) else {
            unreachable!("the pool had room at this very instant");
        };
        pool.note_used(plan, id);
        let endpoint = &mut pool.endpoints[usize::from(id.0)];
        if endpoint.live == 0 {
            endpoint.latency.busy(now);
        }
        endpoint.live += 1;
        let route = request.route_or_new();
        route.at = Some(id);
        route.ticket = Some(endpoint.breaker.begin(&plan.breaker, now));
        let plan_of = &plan.endpoints[usize::from(id.0)];
        if !plan_of.key_limits.is_empty() {
            key.extras.seat_or_new().limits_on(plan, id);
        }
        // The last that tries it: whoever else belongs there goes elsewhere meanwhile.
        let is_probed = matches!(endpoint.standing(plan_of, &plan.breaker, now), Standing::Probed(_));
        self.unreserve(queue);
        self.note_passed_at(id);
        if is_probed {
            self.review_homes();
        }
    }

    /// A granted request, or one whose attempt ended, leaves its endpoint. What it did not report is no sign of anything.
    pub(in crate::engine) fn unseat(&mut self, now: Instant, index: u32) {
        let Self { plan, pool, requests, .. } = self;
        let Some(pool) = pool else { return };
        let running = requests[index].stage().runs();
        let Some(route) = requests[index].route_mut() else { return };
        let Some(id) = route.at.take() else { return };
        let endpoint = &mut pool.endpoints[usize::from(id.0)];
        endpoint.live -= 1;
        if endpoint.live == 0 {
            endpoint.latency.idle(now);
        }
        endpoint.running -= u32::from(running);
        if let Some(ticket) = route.ticket.take() {
            endpoint.breaker.end(&plan.pooled().breaker, now, ticket, Report::Neutral, 0);
        }
        self.pool_event();
    }

    /// An attempt begins: its endpoint has one more that runs.
    pub(in crate::engine) fn note_running(&mut self, index: u32) {
        let Self { pool: Some(pool), requests, .. } = self else { return };
        let Some(route) = requests[index].route_mut() else { return };
        route.again = None;
        if let Some(id) = route.at {
            let endpoint = &mut pool.endpoints[usize::from(id.0)];
            endpoint.running += 1;
            route.life = endpoint.life;
        }
    }

    /// Whether a granted request may still use its endpoint, which may be held, disabled or open by now.
    pub(in crate::engine) fn is_well_seated(&self, now: Instant, index: u32) -> bool {
        let Some(pool) = &self.pool else { return true };
        let plan = self.plan.pooled();
        let Some(route) = self.requests[index].route() else { return false };
        let (Some(id), Some(ticket)) = (route.at, route.ticket) else { return false };
        let endpoint = &pool.endpoints[usize::from(id.0)];
        match endpoint.standing(&plan.endpoints[usize::from(id.0)], &plan.breaker, now) {
            // As one of the probes, if there are probes.
            Standing::Usable { .. } => endpoint.breaker.lets_begin(ticket),
            // Held for others alone, where a store has no more for them.
            Standing::Probed(_) | Standing::Held(_) => endpoint.breaker.lets_begin(ticket) && endpoint.hold <= now,
            Standing::Open(_) | Standing::Gone => false,
        }
    }

    /// A queue waits for something to happen at an endpoint.
    pub(in crate::engine) fn wait_for_pool(&mut self, queue: u32) {
        let Self { plan, pool: Some(pool), queues, .. } = self else { return };
        let record = &mut queues[queue];
        record.extras.set_awaits_pool();
        let (lane, ticket) = (plan.rules[usize::from(record.rule)].lane, record.ticket);
        if let Some(place) = record.extras.set_pool_place(Some((lane, ticket))) {
            pool.waiting.remove(&(place.0, place.1, queue));
        }
        pool.waiting.insert((lane, ticket, queue));
    }

    /// Nobody stands in a queue any more, or it goes: nobody tells it anything.
    pub(in crate::engine) fn wait_no_more(&mut self, queue: u32) {
        self.unreserve(queue);
        let Self { pool: Some(pool), queues, .. } = self else { return };
        if let Some(place) = queues[queue].extras.set_pool_place(None) {
            pool.waiting.remove(&(place.0, place.1, queue));
        }
    }

    /// Something happened at an endpoint: the next turn lets those decide anew that wait for it, as long as there is room.
    pub(in crate::engine) fn pool_event(&mut self) {
        let Self { pool: Some(pool), plan, .. } = self else { return };
        pool.unsettled.clear();
        if !pool.waiting.is_empty() {
            pool.unsettled.extend((0..plan.lanes.len()).map(|lane| (lane, i64::MIN, 0)));
        }
    }

    /// Whether somebody who waits for an endpoint has yet to look whether there is room.
    pub(in crate::engine) fn is_pool_unsettled(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| !pool.unsettled.is_empty())
    }

    /// Lets a few more decide anew that wait for something to happen at an endpoint, if something did and there is room:
    /// some of each lane, so that it is seen whose lane is passed by, and of a lane those whose turn comes first. Returns
    /// false if there is nothing to do.
    pub(in crate::engine) fn settle_pool(&mut self, now: Instant) -> bool {
        /// A crowd that waits for one busy endpoint is not to be looked through for every room that there is.
        const BATCH: usize = 16;
        let Self { plan, pool: Some(pool), queues, days, .. } = self else { return false };
        pool.opens = None;
        if pool.unsettled.is_empty() {
            return false;
        }
        let asked = pool.room(plan.pooled(), days, now, Costs::ONE);
        if asked != Ask::Room {
            // They look when there is room: what they waited for may not be what they wait for now.
            pool.opens = match asked {
                Ask::At(at) | Ask::Unclaimed(at) => Some(at),
                Ask::Room | Ask::Busy => None,
            };
            return false;
        }
        let mut batch: Vec<Waiting> = Vec::new();
        let waiting = &pool.waiting;
        pool.unsettled.retain_mut(|after| {
            let of_lane = (Bound::Excluded(*after), Bound::Excluded((after.0 + 1, i64::MIN, 0)));
            let before = batch.len();
            batch.extend(waiting.range(of_lane).take(BATCH));
            *after = batch.last().copied().unwrap_or(*after);
            batch.len() > before
        });
        for place in &batch {
            pool.waiting.remove(place);
            queues[place.2].extras.set_pool_place(None);
        }
        let any = !batch.is_empty();
        // Those with the latest turns first: each goes back to its place at once, before them.
        for (.., index) in batch.into_iter().rev() {
            if !self.queues[index].extras.awaits_pool() {
                continue;
            }
            match self.queues[index].state() {
                QueueState::Parked { .. } => self.unpark(index),
                QueueState::Blocked => self.make_ready(index),
                QueueState::Idle | QueueState::Ready | QueueState::Yielding => {
                    self.queues[index].extras.take_awaits_pool();
                }
            }
        }
        any
    }

    /// Endpoints changed so that anybody may be better off: all that wait decide anew, and who has none any more is
    /// refused. Costs a look at every key and request.
    pub(in crate::engine) fn review_pool(&mut self, now: Instant) {
        if self.pool.is_none() {
            return;
        }
        let keys: Vec<u32> = self.keys.indices().collect();
        for key in keys {
            self.redecide_all(key);
        }
        self.refuse_without_endpoint(now);
    }

    /// An endpoint is not healthy any more: keys that stayed there go elsewhere, and who has no endpoint left is refused.
    pub(in crate::engine) fn desert(&mut self, now: Instant) {
        self.review_homes();
        self.refuse_without_endpoint(now);
    }

    /// Where keys stay with an endpoint while it is healthy, lets all that wait decide anew, and returns true.
    pub(in crate::engine) fn review_homes(&mut self) -> bool {
        let is_sticky = self.plan.pool.as_ref().is_some_and(|pool| pool.sticky);
        if is_sticky {
            let keys: Vec<u32> = self.keys.indices().collect();
            for key in keys {
                self.redecide_all(key);
            }
        }
        is_sticky
    }

    /// Refuses who waits and has no endpoint to wait for. Costs a look at every request.
    pub(in crate::engine) fn refuse_without_endpoint(&mut self, now: Instant) {
        if self.pool.is_none() {
            return;
        }
        let stranded = |index: &u32| {
            // Who is granted an endpoint that is no good learns of it when it claims, and who stepped out when it is back.
            matches!(self.requests[*index].stage(), Stage::Queued { .. } | Stage::Asleep)
                && self.is_stranded(now, *index)
        };
        let stranded: Vec<u32> = self.requests.indices().filter(stranded).collect();
        for index in stranded {
            self.refuse(now, index, Why::NoEndpoint);
        }
    }

    /// Refuses a request in line that has no endpoint to wait for.
    pub(in crate::engine) fn refuse_if_stranded(&mut self, now: Instant, index: u32) -> bool {
        let stranded = self.pool.is_some() && self.is_stranded(now, index);
        if stranded {
            self.refuse(now, index, Why::NoEndpoint);
        }
        stranded
    }

    /// Whether no endpoint that a request may use can be used.
    fn is_stranded(&self, now: Instant, index: u32) -> bool {
        let Some(pool) = &self.pool else { return false };
        let plan = self.plan.pooled();
        let request = &self.requests[index];
        let route = request.route();
        let all = EndpointId::all().zip(&pool.endpoints).zip(&plan.endpoints);
        let mut meant = all.filter(|((id, _), plan)| {
            route.is_none_or(|route| route.allows(*id)) && plan.must_fit(request.costs()).is_ok()
        });
        meant.all(|((_, endpoint), plan_of)| {
            let standing = endpoint.standing(plan_of, &plan.breaker, now);
            matches!(standing, Standing::Open(_) | Standing::Gone)
        })
    }

    /// Whether running requests that wait for a new one of a key fill what it needs of every endpoint that it may use.
    pub(in crate::engine) fn would_fill_pool(&self, key: Option<u32>, among: &[EndpointId], ancestors: &[u32]) -> bool {
        let Some(pool) = &self.plan.pool else { return false };
        let fills = |id: EndpointId, spec: &LimitSpec, of_key: bool| {
            let there = ancestors.iter().map(|index| &self.requests[*index]).filter(|request| {
                let is_there = request.route().and_then(|route| route.at) == Some(id);
                is_there && (!of_key || Some(self.queues[request.queue].key) == key)
            });
            let taken: u64 = there.map(|request| u64::from(request.costs().of(spec.charge))).sum();
            limit::counts_from_end(spec.kind) && taken >= u64::from(limit::capacity(spec.kind))
        };
        let mut meant = pool.listed().filter(|(id, _)| among.is_empty() || among.contains(id)).peekable();
        meant.peek().is_some()
            && meant.all(|(id, endpoint)| {
                endpoint.limits.iter().any(|spec| fills(id, spec, false))
                    || endpoint.key_limits.iter().any(|spec| fills(id, spec, true))
            })
    }

    pub(super) fn route(&mut self, index: u32) -> &mut Route {
        self.requests[index].route_or_new()
    }
}
