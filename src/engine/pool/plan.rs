//! Pools compiled to ids: what the scheduler reads when it chooses an endpoint. Immutable.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::breaker::BreakerPlan;
use crate::engine::cost::Costs;
use crate::engine::limit;
use crate::engine::plan::LimitSpec;
use crate::engine::time::Nanos;

/// Interchangeable endpoints, of which every start uses one.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    /// The endpoints in order. [`EndpointId`] is a position in this list.
    pub endpoints: Box<[EndpointPlan]>,
    /// Which of those that have room is used.
    pub choose: Choose,
    /// Where a request goes after a transient failure.
    pub failover: Failover,
    /// When an endpoint is given a rest because it fails.
    pub breaker: BreakerPlan,
    /// Whether a key stays with one endpoint for as long as that is healthy.
    pub sticky: bool,
    /// How long an endpoint rests whose quota is spent until nobody knows when.
    pub exhausted: Nanos,
}

/// The position of an endpoint in its [`PoolPlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u16);

impl EndpointId {
    /// All that there can be.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX).map(Self)
    }
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPlan {
    /// Its name in the rules file.
    pub name: Arc<str>,
    /// What keys that stay with an endpoint know it by: it follows from the name alone.
    pub mark: u64,
    /// Its share among the others; at least 1.
    pub weight: u32,
    /// Limits of all its starts: its `overall` and `concurrency`.
    pub limits: Box<[LimitSpec]>,
    /// Limits of each key's starts on it.
    pub key_limits: Box<[LimitSpec]>,
    /// Gone from the pool: only keeps its place in the list.
    pub removed: bool,
}

/// Which endpoint is used of those that have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choose {
    /// The one with the fewest attempts under way for its weight; among equals the least recently used.
    #[default]
    LeastLoaded,
    /// The one that would answer first, from how long it took of late and what it has under way.
    Fastest,
    /// The first in order.
    InOrder,
    /// By weight, in turns.
    Weighted,
}

/// Where a request goes after a transient failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Failover {
    /// To an endpoint that it was not at, and once it was at all of them, wherever there is room after its backoff.
    #[default]
    Next,
    /// To the same one once more, then as [`Next`](Self::Next).
    SameFirst,
}

impl EndpointPlan {
    /// What a request costs and what there is room for at most, if the endpoint never has room for it.
    pub(in crate::engine) fn must_fit(&self, costs: Costs<'_>) -> Result<(), (u32, u32)> {
        if costs.is_plain() {
            return Ok(());
        }
        let specs = self.limits.iter().chain(&self.key_limits);
        let mut sizes = specs.map(|spec| (costs.of(spec.charge), limit::capacity(spec.kind)));
        sizes.find(|(cost, capacity)| cost > capacity).map_or(Ok(()), Err)
    }
}

impl PoolPlan {
    /// The endpoints that there are.
    pub fn listed(&self) -> impl Iterator<Item = (EndpointId, &EndpointPlan)> {
        EndpointId::all().zip(&self.endpoints).filter(|(_, endpoint)| !endpoint.removed)
    }

    /// The endpoint of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<EndpointId> {
        self.listed().find(|(_, endpoint)| *endpoint.name == *name).map(|(id, _)| id)
    }

    /// This plan with the ids of `old`: an endpoint keeps its position, and one that is gone keeps its place, unless that is
    /// vacant and somebody new needs one.
    #[must_use]
    pub(in crate::engine) fn succeeding(self, old: Option<&Self>, vacant: &BTreeSet<EndpointId>) -> Self {
        let Some(old) = old else { return self };
        let mut fresh: Vec<Option<EndpointPlan>> = Vec::from(self.endpoints).into_iter().map(Some).collect();
        let mut endpoints = Vec::with_capacity(old.endpoints.len().max(fresh.len()));
        for before in &old.endpoints {
            let same = fresh.iter_mut().find(|new| new.as_ref().is_some_and(|new| new.name == before.name));
            let gone = || EndpointPlan { removed: true, ..before.clone() };
            endpoints.push(same.and_then(Option::take).unwrap_or_else(gone));
        }
        let mut fresh = fresh.into_iter().flatten();
        for place in vacant.iter().map(|id| usize::from(id.0)).filter(|place| old.endpoints[*place].removed) {
            // Whoever was there may be back.
            if endpoints[place].removed
                && let Some(new) = fresh.next()
            {
                endpoints[place] = new;
            }
        }
        endpoints.extend(fresh);
        // More than there can be are not found.
        endpoints.truncate(EndpointId::all().count());
        Self { endpoints: endpoints.into(), ..self }
    }
}
