//! Which endpoint a request gets.

use super::plan::{Choose, EndpointId, PoolPlan};
use super::route::{KeySeat, Route};
use super::{Endpoint, Pool, Reservation, Standing};
use crate::engine::cost::Costs;
use crate::engine::limit::{Ask, Days};
use crate::engine::time::{Instant, Nanos};

/// What a pool has for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Choice {
    /// This endpoint has room.
    Take(EndpointId),
    /// None has: not before the instant, if there is one, or something happens at an endpoint, if that may help. `nearest` is
    /// the one whose limits will have room first.
    Wait { at: Option<Instant>, on_event: bool, nearest: Option<EndpointId> },
    /// All that it may use are disabled, or have an open breaker at least until the instant.
    Out(Option<Instant>),
}

/// By what endpoints with room are compared; the smallest is used.
type Rank = (bool, bool, u64, u64);

impl Pool {
    /// Chooses an endpoint for a request that knows its way, of a key that knows its own, from those that are not kept for
    /// somebody else.
    pub(in crate::engine) fn choose(
        &mut self,
        plan: &PoolPlan,
        days: &Days,
        now: Instant,
        (route, mut seat, mark): (Option<&Route>, Option<&mut KeySeat>, Option<u64>),
        kept: &[Reservation],
        costs: Costs<'_>,
    ) -> Choice {
        let fresh = Route::default();
        let route = route.unwrap_or(&fresh);
        let only = mark.filter(|_| plan.sticky).and_then(|mark| self.home(plan, now, (route, costs), mark));
        let unknown = match plan.choose {
            Choose::Fastest => self.fastest(now),
            Choose::LeastLoaded | Choose::InOrder | Choose::Weighted => Nanos::ZERO,
        };
        let pass = self.pass;
        let (mut best, mut wait, mut opens): (Option<(Rank, EndpointId)>, Option<Ask>, Option<Instant>) =
            (None, None, None);
        let mut on_event = false;
        let mut nearest: Option<(Ask, EndpointId)> = None;
        for (id, endpoint) in EndpointId::all().zip(&mut self.endpoints) {
            let plan_of = &plan.endpoints[usize::from(id.0)];
            if !route.allows(id) || plan_of.must_fit(costs).is_err() {
                continue;
            }
            let standing = endpoint.standing(plan_of, &plan.breaker, now);
            if only.is_some_and(|only| only != id) {
                // It may be where the key belongs, once it is healthy again or to be tried.
                let asked = match standing {
                    Standing::Held(until) => Ask::At(until),
                    Standing::Probed(lost) => Ask::Unclaimed(lost),
                    Standing::Open(until) => {
                        opens = Some(opens.map_or(until, |other| other.min(until)));
                        continue;
                    }
                    Standing::Usable { .. } | Standing::Gone => continue,
                };
                on_event |= matches!(asked, Ask::Unclaimed(_));
                wait = Some(wait.map_or(asked, |best| best.or(asked)));
                continue;
            }
            let tried = route.was_at(id);
            let mut is_probe = false;
            let asked = match standing {
                Standing::Gone => continue,
                Standing::Open(until) => {
                    opens = Some(opens.map_or(until, |other| other.min(until)));
                    continue;
                }
                Standing::Held(until) => Ask::At(until),
                Standing::Probed(lost) => Ask::Unclaimed(lost),
                Standing::Usable { .. } if route.is_barred(id, now) => Ask::At(route.barred),
                Standing::Usable { probe } => {
                    is_probe = probe;
                    let all = endpoint.limits.ask_all(&plan_of.limits, days, now, costs);
                    let of_key = match seat.as_deref_mut().and_then(|seat| seat.limits.get_mut(usize::from(id.0))) {
                        Some(limits) => limits.ask_all(&plan_of.key_limits, days, now, costs),
                        None => Ask::Room,
                    };
                    let others = kept_for_others(kept, id, now).map_or(all, |kept| all.and(kept));
                    // Whatever the instant, a grant that is given back or a cost that is settled may make room before.
                    on_event |= others != Ask::Room;
                    // Unless it is the key's own limits there that make it wait.
                    let stops = others != Ask::Room && all.and(of_key) == all;
                    if stops && nearest.is_none_or(|(ask, _)| others.or(ask) != ask) {
                        nearest = Some((others, id));
                    }
                    others.and(of_key)
                }
            };
            on_event |= matches!(asked, Ask::Busy | Ask::Unclaimed(_));
            if asked != Ask::Room {
                wait = Some(wait.map_or(asked, |best| best.or(asked)));
                continue;
            }
            if route.again == Some(id) {
                return Choice::Take(id);
            }
            let score = endpoint.score(plan.choose, plan_of.weight, (now, unknown, pass), u64::from(id.0));
            let rank = (tried, !is_probe, score, endpoint.used);
            if best.is_none_or(|(smallest, _)| rank < smallest) {
                best = Some((rank, id));
            }
        }
        // One whose breaker is open may be tried then, and nobody waits for that alone.
        let wait = wait.map(|wait| opens.map_or(wait, |at| wait.or(Ask::At(at))));
        let nearest = nearest.map(|(_, id)| id);
        match (best, wait) {
            (Some((_, id)), _) => Choice::Take(id),
            (None, Some(Ask::At(at) | Ask::Unclaimed(at))) => Choice::Wait { at: Some(at), on_event, nearest },
            (None, Some(Ask::Room | Ask::Busy)) => Choice::Wait { at: None, on_event, nearest },
            (None, None) => Choice::Out(opens),
        }
    }

    /// What those are taken to need of which nothing is known: as long as the fastest.
    fn fastest(&self, now: Instant) -> Nanos {
        self.endpoints.iter().filter_map(|endpoint| endpoint.latency.estimate(now)).min().unwrap_or(Nanos::new(1))
    }

    /// How long the slowest takes.
    pub(super) fn slowest(&self, now: Instant) -> Nanos {
        self.endpoints.iter().filter_map(|endpoint| endpoint.latency.estimate(now)).max().unwrap_or(Nanos::ZERO)
    }

    /// An endpoint was chosen: the next time it stands behind its equals.
    pub(super) fn note_used(&mut self, plan: &PoolPlan, id: EndpointId) {
        const STRIDE: u64 = 1 << 24;
        self.grants += 1;
        let endpoint = &mut self.endpoints[usize::from(id.0)];
        endpoint.used = self.grants;
        endpoint.starts += 1;
        endpoint.was_used = true;
        // Who was away has no claim to what went past it.
        let pass = endpoint.pass.max(self.pass);
        self.pass = pass;
        endpoint.pass =
            pass.saturating_add((STRIDE / u64::from(plan.endpoints[usize::from(id.0)].weight.max(1))).max(1));
    }
}

/// When an endpoint is no longer kept for somebody else; `None`: it is not.
pub(super) fn kept_for_others(kept: &[Reservation], id: EndpointId, now: Instant) -> Option<Ask> {
    let of_it = || kept.iter().filter(|kept| kept.endpoint == id);
    of_it().next()?;
    let until = of_it().filter_map(|kept| kept.until).max();
    Some(until.filter(|until| *until > now).map_or(Ask::Busy, Ask::At))
}

impl Endpoint {
    fn score(&self, choose: Choose, weight: u32, (now, unknown, pass): (Instant, Nanos, u64), position: u64) -> u64 {
        let weight = u64::from(weight.max(1));
        match choose {
            Choose::LeastLoaded => (u64::from(self.live) << 31) / weight,
            Choose::Fastest => {
                let estimate = self.latency.estimate(now).unwrap_or(unknown);
                estimate.saturating_mul(u64::from(self.live) + 1).get() / weight
            }
            Choose::InOrder => position,
            Choose::Weighted => self.pass.max(pass),
        }
    }
}
