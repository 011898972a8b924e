//! Endpoints in numbers, and what each says to a request.

use std::sync::Arc;

use super::choose::kept_for_others;
use super::route::{KeySeat, Route};
use super::{EndpointId, Standing};
use crate::engine::answer::{KeyId, RequestId};
use crate::engine::breaker::BreakerState;
use crate::engine::cost::Costs;
use crate::engine::limit::{Ask, LimitState, LimitStates, Spec};
use crate::engine::plan::{Charge, LimitSpec};
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSnapshot {
    /// Its position in the plan.
    pub endpoint: EndpointId,
    /// Its name in the rules file.
    pub name: Arc<str>,
    /// Attempts that it has: running, or granted and not claimed.
    pub live: u32,
    /// Those of them that run.
    pub in_flight: u32,
    /// Grants that it got since it was added.
    pub starts: u64,
    /// End of its hold, if one is on.
    pub held_until: Option<Instant>,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Whether it is disabled.
    pub disabled: bool,
    /// How long its attempts take of late, failures counted as slow ones. `None`: nothing is known.
    pub latency: Option<Nanos>,
}

/// What one endpoint says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAnswer {
    /// Its name in the rules file.
    pub name: Arc<str>,
    /// Whether it can be used.
    pub room: EndpointRoom,
}

/// Whether an endpoint can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRoom {
    /// It can.
    Now,
    /// Its limits have room at this instant, if nobody else comes first.
    At(Instant),
    /// When an attempt on it ends.
    WhenOneEnds,
    /// It is held until then.
    Held(Instant),
    /// Its breaker is open until then.
    Open(Instant),
    /// Its breaker is half-open, and as many try it as may.
    Probed,
    /// It is disabled.
    Disabled,
}

impl<W> Scheduler<W> {
    /// Every endpoint that there is.
    #[must_use]
    pub fn endpoints(&self, now: Instant) -> Vec<EndpointSnapshot> {
        let (Some(pool), Some(plan)) = (&self.pool, &self.plan.pool) else { return Vec::new() };
        let snapshot = |(endpoint, plan): (EndpointId, &super::EndpointPlan)| {
            let state = &pool.endpoints[usize::from(endpoint.0)];
            EndpointSnapshot {
                endpoint,
                name: Arc::clone(&plan.name),
                live: state.live,
                in_flight: state.running,
                starts: state.starts,
                held_until: (state.hold > now).then_some(state.hold),
                breaker: state.breaker.state(now),
                disabled: state.disabled,
                latency: state.latency.estimate(now),
            }
        };
        plan.listed().map(snapshot).collect()
    }

    /// What each endpoint that a request may use says to it; without a request, to a new one of cost 1 of this key. Where keys
    /// stay with an endpoint, only that one.
    pub fn explain_endpoints(
        &mut self,
        now: Instant,
        id: Option<RequestId>,
        key: Option<KeyId>,
    ) -> Vec<EndpointAnswer> {
        let now = self.tick(now);
        let id = id.filter(|id| self.requests.contains(id.index, id.generation));
        let queue = id.map(|id| self.requests[id.index].queue);
        let key = match queue {
            Some(queue) => Some(self.queues[queue].key),
            None => key.filter(|key| self.knows(*key)).map(|key| key.index),
        };
        let kept = queue.map_or_else(Vec::new, |queue| self.kept_from(queue));
        let Self { plan, pool: Some(pool), requests, keys, days, .. } = self else { return Vec::new() };
        let request = id.map(|id| &requests[id.index]);
        let costs = request.map_or(Costs::ONE, |request| request.costs());
        let route = request.and_then(|request| request.route());
        let mark = key.map(|key| keys[key].mark());
        let mut seat: Option<&mut KeySeat> = key.and_then(|key| keys[key].extras.seat_mut());
        let plan = plan.pooled();
        let mut answers = Vec::new();
        let fresh = Route::default();
        let way = route.unwrap_or(&fresh);
        let home = mark.filter(|_| plan.sticky).and_then(|mark| pool.home(plan, now, (way, costs), mark));
        let is_meant = |(id, plan_of): &(EndpointId, &super::EndpointPlan)| {
            way.allows(*id) && plan_of.must_fit(costs).is_ok() && home.is_none_or(|home| home == *id)
        };
        for (endpoint, plan_of) in plan.listed().filter(is_meant) {
            let state = &mut pool.endpoints[usize::from(endpoint.0)];
            let room = match state.standing(plan_of, &plan.breaker, now) {
                Standing::Gone => EndpointRoom::Disabled,
                Standing::Open(until) => EndpointRoom::Open(until),
                Standing::Held(until) => EndpointRoom::Held(until),
                Standing::Probed(_) => EndpointRoom::Probed,
                Standing::Usable { .. } if way.is_barred(endpoint, now) => EndpointRoom::At(way.barred),
                Standing::Usable { .. } => {
                    let all = state.limits.ask_all(&plan_of.limits, days, now, costs);
                    let mut asked = kept_for_others(&kept, endpoint, now).map_or(all, |kept| all.and(kept));
                    if let Some(limits) =
                        seat.as_deref_mut().and_then(|seat| seat.limits.get_mut(usize::from(endpoint.0)))
                    {
                        asked = asked.and(limits.ask_all(&plan_of.key_limits, days, now, costs));
                    }
                    match asked {
                        Ask::Room => EndpointRoom::Now,
                        Ask::At(at) | Ask::Unclaimed(at) => EndpointRoom::At(at),
                        Ask::Busy => EndpointRoom::WhenOneEnds,
                    }
                }
            };
            answers.push(EndpointAnswer { name: Arc::clone(&plan_of.name), room });
        }
        answers
    }

    /// A running attempt cost another amount than was asked for.
    pub(in crate::engine) fn settle_endpoint(&mut self, index: u32, charge: Charge, before: u32, actual: u32) {
        let Self { plan, pool: Some(pool), requests, queues, keys, days, .. } = self else { return };
        let request = &requests[index];
        let Some(at) = request.route().and_then(|route| route.at) else { return };
        let plan = &plan.pooled().endpoints[usize::from(at.0)];
        let settle = |specs: &[LimitSpec], states: &mut LimitStates| {
            for (spec, state) in specs.iter().zip(states.as_mut_slice()).filter(|(spec, _)| spec.charge == charge) {
                state.settle(Spec::new(spec.kind, days), request.since, before, actual, request.is_read());
            }
        };
        settle(&plan.limits, &mut pool.endpoints[usize::from(at.0)].limits);
        if let Some(seat) = keys[queues[request.queue].key].extras.seat_mut()
            && let Some(limits) = seat.limits.get_mut(usize::from(at.0))
        {
            settle(&plan.key_limits, limits);
        }
        self.pool_event();
    }

    /// Applies `change` to the limits of a request's endpoint, and of its key there.
    pub(in crate::engine) fn each_endpoint_limit(
        &mut self,
        index: u32,
        mut change: impl FnMut(Spec<'_>, &mut LimitState, u32),
    ) {
        let Self { plan, pool: Some(pool), requests, queues, keys, days, .. } = self else { return };
        let request = &requests[index];
        let Some(at) = request.route().and_then(|route| route.at) else { return };
        let plan = &plan.pooled().endpoints[usize::from(at.0)];
        let costs = request.costs();
        pool.endpoints[usize::from(at.0)].limits.for_all(&plan.limits, days, costs, &mut change);
        if let Some(seat) = keys[queues[request.queue].key].extras.seat_mut()
            && let Some(limits) = seat.limits.get_mut(usize::from(at.0))
        {
            limits.for_all(&plan.key_limits, days, costs, &mut change);
        }
    }
}
