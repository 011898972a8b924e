//! Pools: interchangeable endpoints behind one line of requests.
//!
//! A request stands in line without an endpoint and gets one when it is granted, together with the room of all other
//! limits: one line, many counters. What follows from how its attempt ends is in `failover.rs`.

mod change;
mod choose;
mod endpoint;
mod failover;
mod foretold;
mod home;
mod memory;
mod places;
mod plan;
mod reserve;
mod route;
mod seat;
mod state;

use std::collections::BTreeSet;

use super::cost::Costs;
use super::limit::{Ask, Days};
use super::plan::Plan;
use super::time::Instant;

pub(super) use self::choose::Choice;
pub(super) use self::endpoint::Endpoint;
pub use self::failover::Elsewhere;
pub(crate) use self::home::Mark;
pub use self::plan::{Choose, EndpointId, EndpointPlan, Failover, PoolPlan};
use self::reserve::Reservation;
pub(super) use self::route::{KeySeat, Route};
pub use self::state::{EndpointAnswer, EndpointRoom, EndpointSnapshot};

/// A queue that waits: its lane, its turn, its index.
pub(super) type Waiting = (usize, i64, u32);

/// The endpoints of a machine. One whose plan has none keeps nothing.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) endpoints: Vec<Endpoint>,
    /// Grants so far.
    grants: u64,
    /// How far those that are used by weight have come.
    pass: u64,
    /// Queues that wait for something to happen at an endpoint, by lane and turn.
    waiting: BTreeSet<Waiting>,
    /// Something happened: of each of these lanes those after this one have yet to look whether it is of use to them.
    unsettled: Vec<Waiting>,
    /// What is kept for costly requests, of each lane for one.
    reserved: Vec<Reservation>,
    /// When there is room for those.
    pub(super) opens: Option<Instant>,
}

impl Pool {
    pub(super) fn new(plan: &PoolPlan) -> Self {
        Self {
            endpoints: plan.endpoints.iter().map(Endpoint::new).collect(),
            grants: 0,
            pass: 0,
            waiting: BTreeSet::new(),
            unsettled: Vec::new(),
            reserved: Vec::new(),
            opens: None,
        }
    }

    /// Whether any endpoint has room, whoever asks. Where none can be used at all, there is room: for a refusal.
    pub(super) fn room(&mut self, plan: &PoolPlan, days: &Days, now: Instant, costs: Costs<'_>) -> Ask {
        let (mut best, mut opens): (Option<Ask>, Option<Instant>) = (None, None);
        for (endpoint, plan_of) in self.endpoints.iter_mut().zip(&plan.endpoints) {
            if plan_of.must_fit(costs).is_err() {
                continue;
            }
            let asked = match endpoint.standing(plan_of, &plan.breaker, now) {
                Standing::Usable { .. } => endpoint.limits.ask_all(&plan_of.limits, days, now, costs),
                Standing::Held(until) => Ask::At(until),
                Standing::Probed(lost) => Ask::Unclaimed(lost),
                Standing::Open(until) => {
                    opens = Some(opens.map_or(until, |other| other.min(until)));
                    continue;
                }
                Standing::Gone => continue,
            };
            if asked == Ask::Room {
                return Ask::Room;
            }
            best = Some(best.map_or(asked, |best| best.or(asked)));
        }
        best.map_or(Ask::Room, |best| opens.map_or(best, |at| best.or(Ask::At(at))))
    }
}

/// Whether an endpoint may be used, whatever its limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may; as a probe, perhaps.
    Usable { probe: bool },
    /// Not before its hold ends.
    Held(Instant),
    /// Not before a probe ends, or this instant.
    Probed(Instant),
    /// Its breaker is open until then.
    Open(Instant),
    /// It is disabled or removed.
    Gone,
}

impl Endpoint {
    pub(super) fn standing(
        &self,
        plan: &EndpointPlan,
        breaker: &super::breaker::BreakerPlan,
        now: Instant,
    ) -> Standing {
        use super::breaker::Admission;
        if plan.removed || self.disabled {
            return Standing::Gone;
        }
        let probe = match self.breaker.admits(breaker, now) {
            Admission::Closed(until) => return Standing::Open(until.max(self.hold)),
            Admission::Probed(lost) => return Standing::Probed(lost),
            Admission::Probe => true,
            Admission::Free => false,
        };
        let hold = self.hold.max(self.closed);
        if hold > now { Standing::Held(hold) } else { Standing::Usable { probe } }
    }
}

impl Plan {
    /// The endpoints' plan, where a machine has endpoints.
    pub(super) fn pooled(&self) -> &PoolPlan {
        match &self.pool {
            Some(pool) => pool,
            None => unreachable!("a machine has endpoints exactly where its plan has some"),
        }
    }
}
