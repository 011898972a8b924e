//! What follows for endpoints and requests from how attempts end, and changing endpoints by hand.

use super::{EndpointId, Failover, Standing};
use crate::engine::answer::{RequestId, Target};
use crate::engine::breaker::{Breaker, BreakerState, Report};
use crate::engine::guard::Notice;
use crate::engine::hold::HoldCause;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};

/// Where a request may go whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// To an endpoint where it was not since its last backoff, or once more to the same, at once.
    AtOnce,
    /// Nowhere before its backoff is over.
    Nowhere,
}

impl<W> Scheduler<W> {
    /// The endpoint of a granted or running request.
    #[must_use]
    pub fn endpoint_of(&self, id: RequestId) -> Option<EndpointId> {
        self.requests.get(id.index, id.generation)?.route()?.at
    }

    /// The endpoints that a request may use; empty: all.
    #[must_use]
    pub fn among(&self, id: RequestId) -> &[EndpointId] {
        self.requests.get(id.index, id.generation).map_or(&[], |request| request.among())
    }

    /// The endpoint of a running request, unless another one [came](Self::renew_endpoint) behind its name since the attempt
    /// began: then nothing that comes of the attempt is about the one that is there.
    #[must_use]
    pub fn lasting_endpoint_of(&self, id: RequestId) -> Option<EndpointId> {
        let route = self.requests.get(id.index, id.generation)?.route()?;
        let endpoint = self.pool.as_ref()?.endpoints.get(usize::from(route.at?.0))?;
        route.at.filter(|_| route.life == endpoint.life)
    }

    /// A running attempt ended so, as far as its endpoint is concerned; it runs until [`finish`](Self::finish) or what
    /// else ends it. `seed` is what the breaker's jitter is drawn from.
    ///
    /// A failure is charged to the endpoint where the request failed first; further ones elsewhere speak against the
    /// request and against nobody else. Without a pool, for an unknown request and for one that has reported, nothing
    /// happens.
    pub fn report(&mut self, now: Instant, id: RequestId, report: Report, seed: u64) {
        if self.pool.is_none() {
            return;
        }
        let now = self.tick(now);
        let Self { plan, pool, requests, notices, .. } = self;
        let (Some(pool), true) = (pool, requests.contains(id.index, id.generation)) else { return };
        let plan = plan.pooled();
        let slowest = pool.slowest(now);
        let request = &mut requests[id.index];
        let took = now.since(request.since);
        let (true, Some(route)) = (request.stage().may_go_on(), request.route_mut()) else { return };
        let (Some(at), Some(ticket)) = (route.at, route.ticket.take()) else { return };
        let endpoint = &mut pool.endpoints[usize::from(at.0)];
        let is_the_same = route.life == endpoint.life;
        let report = match (report, route.charged) {
            (Report::Failure, Some(charged)) if charged != at => Report::Neutral,
            (Report::Failure, _) => {
                route.charged = Some(at);
                if is_the_same {
                    endpoint.latency.fail(took, slowest);
                }
                Report::Failure
            }
            (Report::Success, _) => {
                if is_the_same {
                    endpoint.latency.succeed(took);
                }
                Report::Success
            }
            (Report::Neutral, _) => Report::Neutral,
        };
        let before = endpoint.breaker.state(now);
        let opened = endpoint.breaker.end(&plan.breaker, now, ticket, report, seed);
        match (before, endpoint.breaker.state(now)) {
            (_, BreakerState::Open { until }) if opened => {
                notices.push(Notice::BreakerOpened { endpoint: at, until });
                self.tell_opened(now, at);
                self.desert(now);
            }
            (BreakerState::HalfOpen, BreakerState::Closed) => {
                notices.push(Notice::BreakerClosed { endpoint: at });
                self.tell_closed(at);
                self.review_homes();
            }
            (BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen, _) => {}
        }
        // A probe's end makes place for another.
        self.pool_event();
    }

    /// How long a running request would have to wait if its endpoint were held for `wait`: not at all if there is another
    /// one, else until the first comes back. Without a pool: so long.
    #[must_use]
    pub fn rest_elsewhere(&self, now: Instant, id: RequestId, wait: Nanos) -> Nanos {
        let (Some(pool), Some(request)) = (&self.pool, self.requests.get(id.index, id.generation)) else { return wait };
        let Some(route) = request.route() else { return wait };
        let plan = self.plan.pooled();
        let lasting = self.lasting_endpoint_of(id);
        let mut shortest: Option<Nanos> = None;
        for (at, endpoint) in EndpointId::all().zip(&pool.endpoints) {
            let plan_of = &plan.endpoints[usize::from(at.0)];
            if !route.allows(at) || plan_of.must_fit(request.costs()).is_err() {
                continue;
            }
            let own = if lasting == Some(at) { wait } else { Nanos::ZERO };
            let rest = match endpoint.standing(plan_of, &plan.breaker, now) {
                Standing::Gone | Standing::Open(_) => continue,
                Standing::Held(until) => own.max(until.since(now)),
                Standing::Usable { .. } | Standing::Probed(_) => own,
            };
            shortest = Some(shortest.map_or(rest, |other| other.min(rest)));
        }
        shortest.unwrap_or(wait)
    }

    /// Where a running request may go that failed. Looks at holds, breakers and where it was, not at room.
    #[must_use]
    pub fn elsewhere(&self, now: Instant, id: RequestId) -> Elsewhere {
        let (Some(pool), Some(request)) = (&self.pool, self.requests.get(id.index, id.generation)) else {
            return Elsewhere::Nowhere;
        };
        let Some(route) = request.route() else { return Elsewhere::Nowhere };
        let plan = self.plan.pooled();
        let usable = |at: EndpointId| {
            let (endpoint, plan_of) = (&pool.endpoints[usize::from(at.0)], &plan.endpoints[usize::from(at.0)]);
            let standing = endpoint.standing(plan_of, &plan.breaker, now);
            matches!(standing, Standing::Usable { .. }) && plan_of.must_fit(request.costs()).is_ok()
        };
        let same_again = |at: EndpointId| plan.failover == Failover::SameFirst && !route.was_at(at) && usable(at);
        let fresh = |at: EndpointId| route.at != Some(at) && route.allows(at) && !route.was_at(at) && usable(at);
        let any = EndpointId::all().take(pool.endpoints.len()).any(fresh);
        if any || route.at.is_some_and(same_again) { Elsewhere::AtOnce } else { Elsewhere::Nowhere }
    }

    /// The attempt failed; the request goes back to its place and may start at once, but before `until` not where it
    /// was. Returns as [`retry`](Self::retry).
    pub fn fail_over(&mut self, now: Instant, id: RequestId, until: Instant, deadline: Option<Instant>) -> bool {
        let now = self.tick(now);
        self.note_failed_at(id, until);
        self.retry(now, id, Target::Request, now, deadline)
    }

    /// Notes where a running request was when it failed.
    fn note_failed_at(&mut self, id: RequestId, until: Instant) {
        if self.pool.is_none() || !self.requests.contains(id.index, id.generation) {
            return;
        }
        let same_first = self.plan.pooled().failover == Failover::SameFirst;
        let route = self.route(id.index);
        if let Some(at) = route.at {
            route.again = (same_first && !route.was_at(at)).then_some(at);
            route.note_tried(at);
            route.barred = until;
        }
    }

    /// A request whose attempt was turned away goes on; those where it was come last from now on.
    pub(in crate::engine) fn note_turned_away(&mut self, index: u32) {
        if self.pool.is_some() {
            let route = self.route(index);
            if let Some(at) = route.at {
                route.note_tried(at);
            }
        }
    }

    /// A request that backs off was everywhere: it begins anew.
    pub(in crate::engine) fn forget_tried(&mut self, index: u32) {
        if let Some(route) = self.requests[index].route_mut() {
            route.tried.clear();
            route.barred = Instant::ZERO;
        }
    }

    /// Starts nothing on an endpoint until it is [enabled](Self::enable_endpoint). What runs there goes on. Returns whether
    /// it was enabled.
    pub fn disable_endpoint(&mut self, now: Instant, endpoint: EndpointId) -> bool {
        let now = self.tick(now);
        let Some(state) = self.endpoint_mut(endpoint) else { return false };
        let was_enabled = !std::mem::replace(&mut state.disabled, true);
        if was_enabled {
            self.notices.push(Notice::EndpointDisabled { endpoint });
            self.desert(now);
            self.dispatch(now);
        }
        was_enabled
    }

    /// Uses an endpoint again that was [disabled](Self::disable_endpoint). Returns whether it was.
    pub fn enable_endpoint(&mut self, now: Instant, endpoint: EndpointId) -> bool {
        let now = self.tick(now);
        let Some(state) = self.endpoint_mut(endpoint) else { return false };
        let was_disabled = std::mem::replace(&mut state.disabled, false);
        if was_disabled {
            self.notices.push(Notice::EndpointEnabled { endpoint });
            self.review_pool(now);
            self.dispatch(now);
        }
        was_disabled
    }

    /// Another one comes behind the name of an endpoint: a token that was renewed. It is enabled and not held, its breaker is
    /// closed, and what comes of attempts that began before does nothing to it. Starts that its limits know stay counted.
    /// Returns false for an unknown endpoint.
    pub fn renew_endpoint(&mut self, now: Instant, endpoint: EndpointId) -> bool {
        let now = self.tick(now);
        let Some(state) = self.endpoint_mut(endpoint) else { return false };
        let was_disabled = state.disabled;
        let was_closed = state.breaker.state(now) == BreakerState::Closed;
        // Whoever never used the old one knows of none: it is new to this machine alone.
        let was_used = state.was_used;
        state.renew();
        self.forget_told_of_keys(endpoint);
        self.streaks.forget_endpoint(endpoint);
        if was_used {
            self.forget_servers_of(now, endpoint);
        }
        if was_disabled {
            self.notices.push(Notice::EndpointEnabled { endpoint });
        }
        if !was_closed {
            self.notices.push(Notice::BreakerClosed { endpoint });
        }
        self.review_pool(now);
        self.dispatch(now);
        true
    }

    /// Uses all endpoints again that were [disabled](Self::disable_endpoint).
    pub fn enable_endpoints(&mut self, now: Instant) {
        let disabled: Vec<EndpointId> = match &self.pool {
            None => return,
            Some(pool) => {
                let all = EndpointId::all().zip(&pool.endpoints);
                all.filter(|(_, endpoint)| endpoint.disabled).map(|(id, _)| id).collect()
            }
        };
        for endpoint in disabled {
            self.enable_endpoint(now, endpoint);
        }
    }

    /// The endpoint's quota is spent, and nobody knows until when: its breaker opens for as long as the plan says, then
    /// one request probes it. Returns false for an unknown endpoint.
    pub fn exhaust_endpoint(&mut self, now: Instant, endpoint: EndpointId) -> bool {
        let length = self.plan.pool.as_ref().map_or(Nanos::ZERO, |pool| pool.exhausted);
        let is_known = self.rest_endpoint(now, endpoint, length, |breaker, now| breaker.exhaust(now, length));
        self.tell_opened(now, endpoint);
        is_known
    }

    /// Opens an endpoint's breaker for `length`, and for as long again whenever a probe fails. Returns false for an
    /// unknown endpoint.
    pub fn open_breaker(&mut self, now: Instant, endpoint: EndpointId, length: Nanos) -> bool {
        let is_known = self.rest_endpoint(now, endpoint, length, |breaker, now| breaker.open(now, length));
        self.tell_opened(now, endpoint);
        is_known
    }

    pub(in crate::engine) fn rest_endpoint(
        &mut self,
        now: Instant,
        endpoint: EndpointId,
        length: Nanos,
        open: impl FnOnce(&mut Breaker, Instant),
    ) -> bool {
        let now = self.tick(now);
        let Some(state) = self.endpoint_mut(endpoint) else { return false };
        let was_closed = state.breaker.state(now) == BreakerState::Closed;
        open(&mut state.breaker, now);
        self.notices.push(Notice::BreakerOpened { endpoint, until: now.saturating_add(length) });
        if was_closed {
            self.desert(now);
        } else {
            // It may be back earlier than it was to be.
            self.review_pool(now);
        }
        self.dispatch(now);
        true
    }

    /// Closes an endpoint's breaker, whatever it knows. Returns false for an unknown endpoint.
    pub fn close_breaker(&mut self, now: Instant, endpoint: EndpointId) -> bool {
        let ended = self.end_rest(now, endpoint);
        if ended == Some(true) {
            self.tell_closed(endpoint);
        }
        ended.is_some()
    }

    /// The same. Returns whether it was open, if there is such an endpoint.
    pub(in crate::engine) fn end_rest(&mut self, now: Instant, endpoint: EndpointId) -> Option<bool> {
        let now = self.tick(now);
        let state = self.endpoint_mut(endpoint)?;
        let was_open = state.breaker.state(now) != BreakerState::Closed;
        if was_open {
            state.breaker.close();
            self.notices.push(Notice::BreakerClosed { endpoint });
            self.review_pool(now);
            self.dispatch(now);
        }
        Some(was_open)
    }

    /// The hold of an endpoint, if there is such an endpoint.
    pub(in crate::engine) fn endpoint_hold(&self, endpoint: EndpointId) -> Option<(Instant, HoldCause)> {
        let state = self.pool.as_ref()?.endpoints.get(usize::from(endpoint.0))?;
        Some((state.hold, state.hold_cause))
    }

    pub(in crate::engine) fn endpoint_mut(&mut self, endpoint: EndpointId) -> Option<&mut super::Endpoint> {
        self.pool.as_mut()?.endpoints.get_mut(usize::from(endpoint.0))
    }
}
