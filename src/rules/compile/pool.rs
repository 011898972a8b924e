//! From a checked pool to the plan that the engine chooses endpoints by.

use std::sync::Arc;

use super::limits::Place;
use crate::engine::{BreakerPlan, EndpointPlan, LimitSpec, Mark, Nanos, Origin, PoolPlan};
use crate::rules::model::{CheckedCaps, CheckedLane, Model, Pace};
use crate::rules::pool::CheckedPool;
use crate::rules::quota::{Quota, QuotaKind};

impl Model {
    /// The pool, if it has endpoints, or might have had some.
    pub(super) fn pool_plan(&self) -> Option<Box<PoolPlan>> {
        let pool = self.pool.as_ref().filter(|pool| pool.given || !pool.endpoints.is_empty())?;
        let endpoints = pool.endpoints.iter().map(|endpoint| {
            let CheckedCaps { overall, per_key, concurrency, key_concurrency, share_overall, .. } =
                endpoint.over(&pool.caps);
            let specs = |quotas: &[Quota], cap, origin: Origin, place, shared| -> Box<[LimitSpec]> {
                self.specs(quotas, cap, &origin, place, shared).collect()
            };
            let name = || Arc::clone(&endpoint.name);
            EndpointPlan {
                mark: Mark::NONE.and(endpoint.name.as_bytes()).get(),
                name: name(),
                weight: endpoint.weight,
                limits: specs(&overall, concurrency, Origin::EndpointOverall(name()), Place::Shared, share_overall),
                key_limits: specs(&per_key, key_concurrency, Origin::EndpointPerKey(name()), Place::Keyed, false),
                removed: false,
            }
        });
        let endpoints = endpoints.collect();
        let &CheckedPool { choose, failover, sticky, exhausted, .. } = pool;
        let none = || BreakerPlan { failures: None, ..BreakerPlan::default() };
        let breaker = pool.breaker.clone().unwrap_or_else(none);
        Some(Box::new(PoolPlan { endpoints, choose, failover, breaker, sticky, exhausted }))
    }

    /// The time between two starts that use all endpoints evenly up, by their windows up to the horizon of a lane.
    pub(super) fn pool_interval(&self, lane: &CheckedLane) -> Option<Nanos> {
        /// In so many nanoseconds the starts of all endpoints are added up.
        const SPAN: u64 = 1_000_000_000_000_000;
        let Pace::UpTo(horizon) = lane.pace else { return None };
        let pool = self.pool.as_ref().filter(|pool| !pool.endpoints.is_empty())?;
        let mut starts = 0_u64;
        for endpoint in &pool.endpoints {
            let caps = endpoint.over(&pool.caps);
            let windows = caps.overall.iter().filter(|quota| {
                *quota.kind() == QuotaKind::Window && quota.own_unit().is_none() && quota.nanos() <= horizon
            });
            // One that nothing limits limits nobody.
            let slowest = windows.map(|quota| self.period(quota).div_ceil(quota.count().into())).max()?;
            starts = starts.saturating_add(SPAN / slowest.get().max(1));
        }
        Some(Nanos::new(SPAN).div_ceil(starts))
    }
}
