//! What outlives a restart of what endpoints' limits know.

use crate::engine::limit::{Days, LimitStates, Spec};
use crate::engine::plan::LimitSpec;
use crate::engine::scheduler::Scheduler;
use crate::engine::state::Memory;
use crate::engine::time::Instant;

impl<W> Scheduler<W> {
    /// Adds what the limits of the endpoints know.
    pub(in crate::engine) fn export_endpoints(&mut self, now: Instant, memory: &mut Memory) {
        let (Some(pool), Some(plan)) = (&mut self.pool, &self.plan.pool) else { return };
        for (id, plan) in plan.listed() {
            remember(now, &self.days, &plan.limits, &mut pool.endpoints[usize::from(id.0)].limits, memory);
        }
    }

    /// Adds what the limits of a key on the endpoints know.
    pub(in crate::engine) fn export_seat(&mut self, now: Instant, key: u32, memory: &mut Memory) {
        let (Some(seat), Some(plan)) = (self.keys[key].extras.seat_mut(), &self.plan.pool) else { return };
        for (plan, limits) in plan.endpoints.iter().zip(&mut seat.limits).filter(|(plan, _)| !plan.removed) {
            remember(now, &self.days, &plan.key_limits, limits, memory);
        }
    }

    /// Tells the limits of the endpoints. Returns how many things were told.
    pub(in crate::engine) fn import_endpoints(&mut self, now: Instant, memory: &Memory) -> usize {
        let Self { plan, pool: Some(pool), days, .. } = self else { return 0 };
        let mut counted = 0;
        for (id, endpoint) in plan.pooled().listed() {
            counted += memory.count_in(&endpoint.limits);
            let states = pool.endpoints[usize::from(id.0)].limits.as_mut_slice();
            for (spec, state) in endpoint.limits.iter().zip(states) {
                state.recall(Spec::new(spec.kind, days), now, plan.max_hold, &memory.of(spec));
            }
        }
        counted
    }

    /// Tells the limits of a key on the endpoints. Returns how many things were told.
    pub(in crate::engine) fn import_seat(&mut self, now: Instant, key: u32, memory: &Memory) -> usize {
        let Self { plan, pool: Some(_), keys, days, .. } = self else { return 0 };
        let mut counted = 0;
        for (id, endpoint) in plan.pooled().listed() {
            let known = memory.count_in(&endpoint.key_limits);
            if known == 0 {
                continue;
            }
            counted += known;
            let limits = keys[key].extras.seat_or_new().limits_on(plan.pooled(), id);
            for (spec, state) in endpoint.key_limits.iter().zip(limits.as_mut_slice()) {
                state.recall(Spec::new(spec.kind, days), now, plan.max_hold, &memory.of(spec));
            }
        }
        counted
    }
}

fn remember(now: Instant, days: &Days, specs: &[LimitSpec], states: &mut LimitStates, memory: &mut Memory) {
    for (spec, state) in specs.iter().zip(states.as_mut_slice()) {
        memory.remember(spec, state.pasts(spec.kind, days, now));
    }
}
