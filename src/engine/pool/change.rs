//! What becomes of endpoints' state when the rules or the keys change.

use super::route::KeySeat;
use super::{Endpoint, EndpointId, Pool};
use crate::engine::limit::{Days, LimitStates};
use crate::engine::plan::Plan;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

impl<W> Scheduler<W> {
    /// Goes over to the endpoints of the present plan.
    pub(in crate::engine) fn change_pool(&mut self, now: Instant, old: &Plan, before: &Days) {
        let Self { plan, pool, requests, queues, keys, days, streaks, differences, .. } = self;
        match (&plan.pool, &old.pool) {
            (Some(new), Some(was)) => {
                let Some(pool) = pool else { return };
                pool.reserved.clear();
                for (position, plan) in new.endpoints.iter().enumerate() {
                    match (pool.endpoints.get_mut(position), was.endpoints.get(position)) {
                        (Some(endpoint), Some(was)) if was.name == plan.name => {
                            endpoint.limits.change_to(now, (&was.limits, before), (&plan.limits, days));
                            if was.removed && !plan.removed {
                                endpoint.renew();
                                streaks.forget_endpoint(EndpointId(position as u16));
                            }
                        }
                        (Some(endpoint), Some(was)) => {
                            let (live, running) = (endpoint.live, endpoint.running);
                            *endpoint = Endpoint { live, running, ..Endpoint::new(plan) };
                            streaks.forget_endpoint(EndpointId(position as u16));
                            differences.retain(|difference| !difference.origin.is_of_endpoint(&was.name));
                        }
                        (None, _) | (_, None) => pool.endpoints.push(Endpoint::new(plan)),
                    }
                }
                let indices: Vec<u32> = keys.indices().collect();
                for index in indices {
                    let Some(seat) = keys[index].extras.seat_mut() else { continue };
                    for ((limits, plan), was) in seat.limits.iter_mut().zip(&new.endpoints).zip(&was.endpoints) {
                        if was.name == plan.name {
                            limits.change_to(now, (&was.key_limits, before), (&plan.key_limits, days));
                            if was.removed && !plan.removed {
                                limits.forget_told();
                            }
                        } else {
                            *limits = LimitStates::new(&plan.key_limits);
                        }
                    }
                }
                // What runs counts in limits, too, of which its key knew nothing.
                for index in requests.indices() {
                    let request = &requests[index];
                    let at = request.route().and_then(|route| route.at);
                    if let Some(id) = at.filter(|id| !new.endpoints[usize::from(id.0)].key_limits.is_empty()) {
                        keys[queues[request.queue].key].extras.seat_or_new().limits_on(new, id);
                    }
                }
            }
            (new, _) => {
                *pool = new.as_ref().map(|plan| Box::new(Pool::new(plan)));
                let indices: Vec<u32> = requests.indices().collect();
                for index in indices {
                    requests[index].set_route(None);
                }
                let indices: Vec<u32> = keys.indices().collect();
                for index in indices {
                    keys[index].extras.take_seat();
                }
            }
        }
    }

    /// Another endpoint comes behind the same name: what the server said of keys on the old one is not about it.
    pub(super) fn forget_told_of_keys(&mut self, endpoint: EndpointId) {
        let indices: Vec<u32> = self.keys.indices().collect();
        for index in indices {
            let seat = self.keys[index].extras.seat_mut();
            if let Some(limits) = seat.and_then(|seat| seat.limits.get_mut(usize::from(endpoint.0))) {
                limits.forget_told();
            }
        }
    }

    /// Joins what two keys know of endpoints.
    pub(in crate::engine) fn merge_seats(&mut self, now: Instant, into: u32, from: Option<KeySeat>) {
        let Some(mut from) = from else { return };
        let Self { plan, keys, .. } = self;
        let Some(plan) = &plan.pool else { return };
        let seat = keys[into].extras.seat_or_new();
        for (id, limits) in EndpointId::all().zip(from.limits.drain(..)) {
            seat.limits_on(plan, id).merge(now, &limits);
        }
    }

    /// When nothing is left of what a key knows of endpoints; `None` while something is outstanding.
    pub(in crate::engine) fn seat_free_at(&self, key: u32) -> Option<Instant> {
        let (Some(seat), Some(plan)) = (self.keys[key].extras.seat(), &self.plan.pool) else {
            return Some(Instant::ZERO);
        };
        let mut latest = Instant::ZERO;
        for (limits, plan) in seat.limits.iter().zip(&plan.endpoints) {
            latest = latest.max(limits.free_at(&plan.key_limits, &self.days)?);
        }
        Some(latest)
    }
}
