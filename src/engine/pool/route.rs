//! The way of one request from endpoint to endpoint, and what a key knows of endpoints.

use super::plan::{EndpointId, PoolPlan};
use crate::engine::breaker::Ticket;
use crate::engine::limit::LimitStates;
use crate::engine::time::Instant;

/// Where a request may go, where it is, and where it was.
#[derive(Debug, Default)]
pub(in crate::engine) struct Route {
    /// The endpoint of its grant or its attempt.
    pub(in crate::engine) at: Option<EndpointId>,
    /// What its attempt has to show to the breaker; `None` once it has reported.
    pub(super) ticket: Option<Ticket>,
    /// Those that it may use; empty: all.
    pub(in crate::engine) among: Box<[EndpointId]>,
    /// Those where it was since its last backoff.
    pub(super) tried: Vec<EndpointId>,
    /// It does not go back to those before this.
    pub(super) barred: Instant,
    /// But to this one.
    pub(super) again: Option<EndpointId>,
    /// The one that a failure was charged to: further ones elsewhere speak against the request.
    pub(super) charged: Option<EndpointId>,
    /// Which of the endpoints that were at its place one after the other its attempt began with.
    pub(super) life: u32,
}

impl Route {
    pub(in crate::engine) fn among(among: &[EndpointId]) -> Self {
        Self { among: among.into(), ..Self::default() }
    }

    pub(super) fn allows(&self, endpoint: EndpointId) -> bool {
        self.among.is_empty() || self.among.contains(&endpoint)
    }

    pub(super) fn was_at(&self, endpoint: EndpointId) -> bool {
        self.tried.contains(&endpoint)
    }

    /// The endpoints that it knows of.
    pub(super) fn named(&self) -> impl Iterator<Item = EndpointId> {
        let others = [self.at, self.again, self.charged].into_iter().flatten();
        self.among.iter().chain(&self.tried).copied().chain(others)
    }

    /// Whether it is not to go back to an endpoint for now.
    pub(super) fn is_barred(&self, endpoint: EndpointId, now: Instant) -> bool {
        self.barred > now && self.was_at(endpoint) && self.again != Some(endpoint)
    }

    pub(super) fn note_tried(&mut self, endpoint: EndpointId) {
        if !self.was_at(endpoint) {
            self.tried.push(endpoint);
        }
    }
}

/// What a key's record knows of endpoints.
#[derive(Debug, Default)]
pub(in crate::engine) struct KeySeat {
    /// Its limits on each of them, as far as it was there.
    pub(in crate::engine) limits: Vec<LimitStates>,
}

impl KeySeat {
    /// Its limits on one endpoint, made if there are none.
    pub(super) fn limits_on(&mut self, plan: &PoolPlan, endpoint: EndpointId) -> &mut LimitStates {
        let position = usize::from(endpoint.0);
        while self.limits.len() <= position {
            self.limits.push(LimitStates::new(&plan.endpoints[self.limits.len()].key_limits));
        }
        &mut self.limits[position]
    }
}
