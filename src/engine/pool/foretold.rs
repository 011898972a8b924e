//! When a new request could get an endpoint.

use super::plan::PoolPlan;
use super::route::{KeySeat, Route};
use super::{EndpointId, Pool, Standing};
use crate::engine::cost::Costs;
use crate::engine::limit::{Ask, Days, LimitState, LimitStates, Spec};
use crate::engine::plan::LimitSpec;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

impl<W> Scheduler<W> {
    /// A lower bound for when a new request of a key gets an endpoint, behind `ahead` others of its queue. `Err`: for the
    /// time being none can be used, and not before the instant, if there is one.
    pub(in crate::engine) fn next_endpoint(
        &mut self,
        now: Instant,
        (key, ahead): (Option<u32>, u64),
        among: &[EndpointId],
        costs: Costs<'_>,
    ) -> Result<Ask, Option<Instant>> {
        let Self { plan, pool: Some(pool), keys, days, .. } = self else { return Ok(Ask::Room) };
        let plan = plan.pooled();
        let mut key = key.map(|key| &mut keys[key]);
        let mark = key.as_ref().map(|key| key.mark());
        let seat = key.as_mut().and_then(|key| key.extras.seat_mut());
        // Those ahead may use every endpoint: one of them has as many of those starts as make it even, or more. Of those
        // that only this one may not use nothing is known.
        let ahead = match plan.listed().count() as u64 {
            1 => ahead,
            all if among.is_empty() => ahead / all.max(1),
            _ => 0,
        };
        let route = Route::among(among);
        pool.foretell(plan, days, now, (&route, seat, mark.filter(|_| plan.sticky), ahead), costs)
    }
}

impl Pool {
    fn foretell(
        &mut self,
        plan: &PoolPlan,
        days: &Days,
        now: Instant,
        (route, mut seat, mark, ahead): (&Route, Option<&mut KeySeat>, Option<u64>, u64),
        costs: Costs<'_>,
    ) -> Result<Ask, Option<Instant>> {
        let home = mark.and_then(|mark| self.home(plan, now, (route, costs), mark));
        let (mut best, mut opens): (Option<Ask>, Option<Instant>) = (None, None);
        for (id, endpoint) in EndpointId::all().zip(&mut self.endpoints) {
            let plan_of = &plan.endpoints[usize::from(id.0)];
            if !route.allows(id) || plan_of.must_fit(costs).is_err() {
                continue;
            }
            let is_home = home.is_none_or(|home| home == id);
            let held = match endpoint.standing(plan_of, &plan.breaker, now) {
                Standing::Gone => continue,
                Standing::Open(until) => {
                    opens = Some(opens.map_or(until, |other| other.min(until)));
                    continue;
                }
                // It may be where the key belongs, once it is healthy again.
                Standing::Held(until) => until,
                Standing::Probed(_) => {
                    // A probe may end at any time, and well.
                    best = Some(first(best, Ask::Busy));
                    continue;
                }
                Standing::Usable { .. } if is_home => Instant::ZERO,
                Standing::Usable { .. } => continue,
            };
            let mut asked = if held > now { Ask::At(held) } else { Ask::Room };
            let mut ask = |specs: &[LimitSpec], states: &mut LimitStates| {
                states.for_all(specs, days, costs, |spec: Spec<'_>, state: &mut LimitState, cost| {
                    asked = asked.and(state.earliest(spec, now, ahead, cost));
                });
            };
            ask(&plan_of.limits, &mut endpoint.limits);
            if let Some(limits) = seat.as_deref_mut().and_then(|seat| seat.limits.get_mut(usize::from(id.0))) {
                ask(&plan_of.key_limits, limits);
            }
            best = Some(first(best, asked));
        }
        match (best, opens) {
            (Some(best), Some(at)) => Ok(first(Some(best), Ask::At(at))),
            (Some(best), None) => Ok(best),
            (None, opens) => Err(opens),
        }
    }
}

/// What comes first of two. Of an end nobody knows when: it may be now.
fn first(one: Option<Ask>, other: Ask) -> Ask {
    match (one, other) {
        (None, ask) => ask,
        (Some(Ask::Room), _) | (_, Ask::Room) => Ask::Room,
        (Some(Ask::Busy), _) | (_, Ask::Busy) => Ask::Busy,
        (Some(one), other) => one.or(other),
    }
}
