//! Places of endpoints that are gone: who comes later gets one of them, as soon as nothing is left of who had it. Otherwise
//! a program whose tokens are renewed every hour would know of thousands after a year.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::plan::EndpointId;
use crate::engine::guard::Notice;
use crate::engine::plan::Plan;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

impl<W> Scheduler<W> {
    /// A plan that may [replace](Self::replace) the present one: it is [succeeding](Plan::succeeding) it, and endpoints that
    /// are new get the places of those that were removed before and of which nothing is left: no request that runs there,
    /// was there or is bound to it, and no start that one of its limits still counts. Costs a look at every request and
    /// key, if any was removed.
    #[must_use]
    pub fn succeeding(&self, now: Instant, plan: Plan) -> Plan {
        plan.succeeding_with(&self.plan, &self.vacant_places(now))
    }

    /// The names of the endpoints that there are, and of those removed ones that attempts still have.
    pub fn endpoints_in_use(&self) -> impl Iterator<Item = Arc<str>> {
        let states = self.pool.iter().flat_map(|pool| &pool.endpoints);
        let plans = self.plan.pool.iter().flat_map(|pool| &pool.endpoints);
        let used = states.zip(plans).filter(|(endpoint, plan)| !plan.removed || endpoint.live > 0);
        used.map(|(_, plan)| Arc::clone(&plan.name))
    }

    fn vacant_places(&self, now: Instant) -> BTreeSet<EndpointId> {
        let (Some(pool), Some(plan)) = (&self.pool, &self.plan.pool) else { return BTreeSet::new() };
        let is_left = |id: &EndpointId| {
            let (endpoint, plan_of) = (&pool.endpoints[usize::from(id.0)], &plan.endpoints[usize::from(id.0)]);
            plan_of.removed && endpoint.limits.free_at(&plan_of.limits, &self.days).is_some_and(|at| at <= now)
        };
        let mut vacant: BTreeSet<EndpointId> = EndpointId::all().take(plan.endpoints.len()).filter(is_left).collect();
        if vacant.is_empty() {
            return vacant;
        }
        for route in self.requests.indices().filter_map(|index| self.requests[index].route()) {
            vacant.retain(|id| !route.named().any(|named| named == *id));
        }
        for seat in self.keys.indices().filter_map(|index| self.keys[index].extras.seat()) {
            vacant.retain(|id| {
                let (limits, plan_of) = (seat.limits.get(usize::from(id.0)), &plan.endpoints[usize::from(id.0)]);
                limits.is_none_or(|limits| limits.free_at(&plan_of.key_limits, &self.days).is_some_and(|at| at <= now))
            });
        }
        // Who is told of it is told its name.
        for notice in &self.notices {
            match notice {
                Notice::BreakerOpened { endpoint, .. }
                | Notice::BreakerClosed { endpoint }
                | Notice::EndpointDisabled { endpoint }
                | Notice::EndpointEnabled { endpoint } => {
                    vacant.remove(endpoint);
                }
                Notice::BanAhead { .. } | Notice::BanOver | Notice::LimitDiffers(_) => {}
            }
        }
        vacant
    }
}
