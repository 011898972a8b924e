//! What may start now, and what is in the way of what may not.

use super::answer::KeyId;
use super::cost::Costs;
use super::limit::{Ask, PaceClock};
use super::plan::{LimitRef, PaceRef, RuleId};
use super::pool::EndpointId;
use super::queue::Queue;
use super::request::Request;
use super::scheduler::Scheduler;
use super::slab::{Entry, Slab};
use super::store::{Lets, Site};
use super::time::Instant;

/// What the gate before a rule's ring says: everything that is not the key's own affair.
pub(super) enum Gate {
    Open,
    /// The limits have room, but not for as costly a request as this before the instant or an event.
    TooCostly(Option<Instant>),
    /// Closed, and may open at the instant, or with an event.
    Closed(Option<Instant>),
    /// A costly request whose turn it is waits for one of the limits, or somebody who is to be asked for.
    Reserved,
    /// All that is here has room, and the store is to be asked for the rest: nobody takes the room meanwhile who comes later.
    ToAsk,
}

/// Why the first request of a queue may not start.
pub(super) enum Refusal {
    /// Not before this instant.
    Until(Instant),
    /// Not before an event of its key.
    Event,
    /// Not before a sibling has had what is owed to it.
    Owed,
    /// Its siblings used up the key's room, and did so often enough.
    Passed(Ask),
    /// No endpoint has room for it: not before the instant, if there is one, or an event at an endpoint, and first on the
    /// nearest.
    Pool { at: Option<Instant>, on_event: bool, nearest: Option<EndpointId> },
    /// It has no endpoint to wait for.
    NoEndpoint,
}

/// Whose costs are asked for.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    /// Those of a queue's first request.
    First(u32),
    /// Those of a request that is not in the machine.
    New(Costs<'a>),
}

impl<'a> Whose<'a> {
    #[inline(always)]
    pub(super) fn costs<W>(self, requests: &'a Slab<Request<W>>, queues: &Slab<Queue>) -> Costs<'a> {
        match self {
            Self::First(queue) => requests[queues[queue].waiting.head].costs(),
            Self::New(costs) => costs,
        }
    }
}

impl<W> Scheduler<W> {
    /// Asks everything about a rule that is not the key's own affair: pause, holds, shared limits, pace.
    ///
    /// An overdue lane is let off the pace and what it would leave to others.
    pub(super) fn gate(&mut self, now: Instant, rule: usize, whose: Whose<'_>, waived: bool) -> Gate {
        let Self { plan, quick, rules, shared, clocks, reserved, pool, requests, queues, days, store, .. } = self;
        let costs = whose.costs(requests, queues);
        let state = &rules[rule];
        if self.paused || state.paused {
            return Gate::Closed(None);
        }
        let hold = self.hold.max(state.hold).max(self.guard.closed_until());
        if hold > now {
            return Gate::Closed(Some(hold));
        }
        if costs.is_plain() && reserved.is_empty() {
            // Such a rule has no pace, no pool, and nothing in a store.
            let quick = quick[rule].as_ref();
            if quick.is_some_and(|quick| quick.has_room_for_all(shared, now)) {
                return Gate::Open;
            }
        }
        let plan_of_rule = &plan.rules[rule];
        let takes = |limit: usize| costs.of(plan.shared_limits[limit].charge) > 0;
        if plan_of_rule.shared.iter().any(|bound| reserved.contains(&bound.limit) && takes(bound.limit)) {
            return Gate::Reserved;
        }
        let mut ask = |costs| {
            let answer = shared.ask_refs(&plan.shared_limits, &plan_of_rule.shared, days, now, costs, waived);
            match pool {
                None => answer,
                Some(pool) => answer.and(pool.room(plan.pooled(), days, now, costs)),
            }
        };
        let answer = ask(costs);
        let of_one = if answer != Ask::Room && !costs.is_plain() { ask(Costs::ONE) } else { answer };
        let too_costly = answer != Ask::Room && of_one == Ask::Room;
        if let Some(store) = store.as_deref().filter(|store| store.closes_any()) {
            let bound = plan_of_rule.shared.iter().filter(|bound| takes(bound.limit));
            let until = bound.map(|&LimitRef { limit, reserve }| {
                store.closed_until(Site::Shared(limit), if waived { 0 } else { reserve })
            });
            let until = until.max().unwrap_or(Instant::ZERO);
            // Whoever comes waits for it, whatever it costs.
            if until > now {
                return Gate::Closed(Some(until));
            }
        }
        // An endpoint is kept for it once one has room for anybody; those behind it may use the others.
        let answer = if pool.is_some() && !too_costly { answer.or(of_one) } else { answer };
        let due = if waived { Instant::ZERO } else { pace_due(&plan_of_rule.shared_pace, clocks, costs) };
        match answer {
            _ if due > now && (too_costly || answer == Ask::Room) => Gate::Closed(Some(due)),
            Ask::At(at) | Ask::Unclaimed(at) if too_costly => Gate::TooCostly(Some(at)),
            Ask::Room | Ask::Busy if too_costly => Gate::TooCostly(None),
            Ask::Room => match store.as_deref_mut().map_or(Lets::Grant, |store| store.lets(rule)) {
                Lets::Grant => Gate::Open,
                Lets::Ask => Gate::ToAsk,
                // Until the store is there again.
                Lets::Nothing => Gate::Closed(None),
            },
            Ask::At(at) => Gate::Closed(Some(at.max(due))),
            Ask::Unclaimed(at) => {
                self.hangs_on_grants = true;
                Gate::Closed(Some(at.max(due)))
            }
            Ask::Busy => {
                self.hangs_on_grants = true;
                Gate::Closed(None)
            }
        }
    }

    /// Asks everything that is the key's own affair: holds, whose room it is, the queue's and the key's limits, pace.
    pub(super) fn check(&mut self, now: Instant, id: u32, whose: Whose<'_>, waived: bool) -> Result<(), Refusal> {
        self.leave_what_is_owed(now, id, whose)?;
        self.check_all_but_owed(now, id, whose, waived)
    }

    /// The same without what is owed to siblings.
    pub(super) fn check_all_but_owed(
        &mut self,
        now: Instant,
        id: u32,
        whose: Whose<'_>,
        waived: bool,
    ) -> Result<(), Refusal> {
        let Self { plan, quick, requests, queues, keys, days, store, .. } = self;
        let (costs, not_before) = match whose {
            Whose::New(costs) => (costs, Instant::ZERO),
            Whose::First(queue) => {
                let first = &requests[queues[queue].waiting.head];
                (first.costs(), first.not_before())
            }
        };
        let queue = &mut queues[id];
        let key = &mut keys[queue.key];
        let hold = not_before.max(queue.extras.hold()).max(key.extras.hold());
        if hold > now {
            return Err(Refusal::Until(hold));
        }
        if costs.is_plain() && queue.extras.numbers().is_none() {
            // Such a rule has no pace, no pool, and nothing in a store.
            let quick = quick[usize::from(queue.rule)].as_ref();
            if quick.is_some_and(|quick| quick.has_room_for_key(&mut queue.limits, &mut key.limits, now)) {
                return Ok(());
            }
        }
        let rule = &plan.rules[usize::from(queue.rule)];
        let own = queue.limits.ask_all(Queue::own(&queue.extras, rule), days, now, costs);
        if own != Ask::Room {
            return Err(Refusal::from(own));
        }
        if let Some(store) = store.as_deref().filter(|store| store.closes_any()) {
            let id_of_key = KeyId { index: queue.key, generation: key.generation() };
            let own = (0..Queue::own(&queue.extras, rule).len())
                .map(|limit| (Site::Own(RuleId(queue.rule), id_of_key, limit), 0));
            let is_waived = waived || queue.owed;
            let of_key = rule
                .key
                .iter()
                .map(|bound| (Site::Key(id_of_key, bound.limit), if is_waived { 0 } else { bound.reserve }));
            let until = own.chain(of_key).map(|(site, reserve)| store.closed_until(site, reserve));
            let until = until.max().unwrap_or(Instant::ZERO);
            if until > now {
                return Err(Refusal::Until(until));
            }
        }
        let waived = waived || queue.owed;
        let of_key = key.limits.ask_refs(&plan.key_limits, &rule.key, days, now, costs, waived);
        if of_key == Ask::Room {
            let due = pace_due(&rule.key_pace, key.extras.clocks(), costs);
            return if due > now && !waived { Err(Refusal::Until(due)) } else { self.ask_pool(now, id, whose) };
        }
        let (passed, owed) = (queue.extras.passed(), queue.owed);
        if (owed || self.patience(id).is_some_and(|need| passed >= need)) && self.waits_for_siblings(now, id, of_key) {
            return Err(Refusal::Passed(of_key));
        }
        Err(Refusal::from(of_key))
    }
}

impl From<Ask> for Refusal {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::At(at) | Ask::Unclaimed(at) => Self::Until(at),
            Ask::Room | Ask::Busy => Self::Event,
        }
    }
}

/// What counts nothing of a request does not pace it.
pub(super) fn pace_due(paces: &[PaceRef], clocks: &[PaceClock], costs: Costs<'_>) -> Instant {
    let counted = paces.iter().filter(|pace| costs.of(pace.charge) > 0);
    counted.map(|pace| clocks[pace.clock].due()).max().unwrap_or(Instant::ZERO)
}
