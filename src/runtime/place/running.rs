//! A request whose attempt runs: its end, in all ways.

use std::borrow::Borrow;
use std::sync::Arc;
use std::task::Context;

use tokio::runtime::Handle;

use super::{Known, Place, Stage, Watcher, deadline};
use crate::engine::{
    Decision, Elsewhere, EndpointId, FailureKind, GiveUp, HoldCause, Instant, KeyId, Nanos, Report, RequestId, RuleId,
    Scope, Spent, Target,
};
use crate::error::{EndpointFate, Refused};
use crate::runtime::event::Holding;
use crate::runtime::shared::{Shared, State};
use crate::runtime::watch::Cause;

impl<H: Borrow<Arc<Shared>>> Place<H> {
    /// While it runs: lets `poll` poll the attempt's future.
    #[inline]
    pub(crate) fn polling<R>(&self, poll: impl FnOnce() -> R) -> R {
        match self.stage {
            Stage::Running { known, .. } => self.shared().polling(known.id, poll),
            Stage::Hopeless(_) | Stage::Outside | Stage::Waiting(_) | Stage::Over => poll(),
        }
    }

    /// Whether the running attempt was told to stop.
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        match self.stage {
            Stage::Running { known, .. } => self.shared().is_aborting() && self.was_told_to_stop(known.id),
            Stage::Hopeless(_) | Stage::Outside | Stage::Waiting(_) | Stage::Over => false,
        }
    }

    #[cold]
    fn was_told_to_stop(&self, id: RequestId) -> bool {
        self.shared().with(|state, _| state.machine.is_aborted(id))
    }

    /// Sees to it that the task is woken should its running attempt be told to stop. Says whether it was already.
    pub(crate) fn watch(&mut self, context: &Context<'_>) -> Watched {
        let Stage::Running { known: Known { id, .. }, ref mut watcher, limited, .. } = self.stage else {
            return Watched::MayGoOn;
        };
        let shared: &Arc<Shared> = self.shared.borrow();
        let waker = context.waker();
        if limited {
            // A driver that goes takes the waker along, so the machine is looked at each time.
            let driven = Handle::try_current().is_ok_and(|runtime| shared.is_driven(&runtime));
            let (mut spare, mut old) = (Some(waker.clone()), None);
            return shared.with(|state, _| {
                if state.machine.is_aborted(id) {
                    Watched::Aborted
                } else if state.machine.is_overdue(id) {
                    Watched::Overdue
                } else if !driven {
                    Watched::Stranded
                } else {
                    if !state.machine.waker(id).is_some_and(|set| set.will_wake(waker))
                        && let Some(spare) = spare.take()
                    {
                        old = state.machine.set_waker(id, spare);
                    }
                    Watched::MayGoOn
                }
            });
        }
        let current = Watcher { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() };
        if *watcher == current {
            return Watched::MayGoOn;
        }
        *watcher = current;
        let waker = waker.clone();
        let (aborted, _old) =
            shared.with(|state, _| (state.machine.is_aborted(id), state.machine.set_waker(id, waker)));
        if aborted { Watched::Aborted } else { Watched::MayGoOn }
    }

    /// The attempt succeeded and so does the request.
    #[inline]
    pub(crate) fn succeed(&mut self) {
        if let Stage::Running { known: Known { id, .. }, .. } = self.stage {
            self.end("done", |state, now| {
                state.machine.report(now, id, Report::Success, 0);
                state.machine.succeed(id);
            });
        }
    }

    /// The server counts the running attempt as an invalid one.
    pub(crate) const fn set_invalid(&mut self) {
        if let Stage::Running { invalid, .. } = &mut self.stage {
            *invalid = true;
        }
    }

    /// The attempt ended and so does the request: `outcome` says how.
    pub(crate) fn finish(&mut self, outcome: &'static str) {
        self.end(outcome, |_, _| ());
    }

    /// The attempt panicked, and so does the request end: its endpoint may well have to do with that.
    pub(crate) fn panicked(&mut self) {
        if let Stage::Running { known: Known { id, .. }, .. } = self.stage {
            self.end("panicked", |state, now| {
                let seed = state.draw();
                state.machine.report(now, id, Report::Failure, seed);
            });
        }
    }

    /// The attempt is over: the request waits for the next one, having spent so much of its policy, or is over, too.
    fn leave_attempt(&mut self, known: Known, spent: Option<Spent>) {
        self.stage = match spent {
            Some(spent) => {
                self.wishes.special().spent = spent;
                Stage::Waiting(known)
            }
            None => Stage::Over,
        };
    }

    /// The attempt's endpoint is of no use any more: the request goes to another one, or ends with a reason.
    pub(crate) fn turn_away(&mut self, fate: EndpointFate) -> Result<(), Refused> {
        let Stage::Running { known, invalid, .. } = self.stage else { return Err(Refused::Aborted) };
        let id = known.id;
        let live = self.shared().live.load_full();
        let policy = self.wishes.policy().unwrap_or_else(|| &live.rule(self.rule).retry);
        let max_wait = self.wishes.max_wait.over(|| live.rule(self.rule).max_wait);
        let (waited, is_permit) = (self.waited, self.is_permit);
        let shared = Arc::clone(self.shared());
        let mut spent = self.wishes.spent();
        let mut waker = None;
        let outcome = shared.with(|state, now| {
            waker = state.machine.take_waker(id);
            state.ended(is_permit);
            if invalid {
                state.machine.count_invalid(now);
            }
            state.machine.report(now, id, Report::Neutral, 0);
            // One that came behind the same name meanwhile has done nothing.
            if let Some(endpoint) = state.machine.lasting_endpoint_of(id) {
                match fate {
                    EndpointFate::Disabled => drop(state.machine.disable_endpoint(now, endpoint)),
                    EndpointFate::Exhausted => drop(state.machine.exhaust_endpoint(now, endpoint)),
                    EndpointFate::Stays => {}
                }
            }
            if let Decision::GiveUp { reason, .. } = policy.turn_away(&mut spent) {
                state.machine.finish(now, id);
                state.count(|tally| tally.done += 1);
                return Err(End::GaveUp(reason.into()));
            }
            if state.machine.fail_over(now, id, now, deadline(now, max_wait, waited)) {
                return Ok(());
            }
            state.count(|tally| tally.refused += 1);
            Err(End::Closed)
        });
        self.leave_attempt(known, outcome.is_ok().then_some(spent));
        match outcome {
            Ok(()) => {
                #[cfg(feature = "outbox")]
                self.tell_witness(Nanos::ZERO, None);
                self.tell_retry(Cause::TurnedAway, Nanos::ZERO);
                Ok(())
            }
            Err(End::GaveUp(reason)) => Err(self.tell_gave_up(reason)),
            Err(End::Closed) => Err(self.turned_away_running(Refused::Closed)),
        }
    }

    #[inline]
    fn end(&mut self, outcome: &'static str, before: impl FnOnce(&mut State, Instant)) {
        if let Stage::Running { known: Known { id, .. }, invalid, .. } = self.stage {
            self.stage = Stage::Over;
            let _waker = self.shared().with_end(id, self.is_permit, invalid, |state, now| {
                before(state, now);
                if invalid {
                    state.machine.count_invalid(now);
                }
                let waker = state.machine.finish(now, id);
                state.ended(self.is_permit);
                state.count(|tally| tally.done += 1);
                waker
            });
            self.tell_end(outcome);
        }
    }

    /// The attempt was cut off.
    pub(crate) fn cut_off(&mut self) {
        if let Stage::Running { known: Known { id, .. }, .. } = self.stage {
            self.stage = Stage::Over;
            let _waker = self.shared().with(|state, now| {
                let waker = state.machine.take_waker(id);
                state.machine.withdraw(now, id);
                state.ended(self.is_permit);
                state.count(|tally| tally.aborted += 1);
                waker
            });
            self.tell_end("cut off");
        }
    }

    /// The attempt failed: back in line, or an end with a reason.
    pub(crate) fn fail(&mut self, kind: FailureKind, hold: Option<Scope>) -> Result<(), Refused> {
        let Stage::Running { known, invalid, .. } = self.stage else { return Err(Refused::Aborted) };
        let id = known.id;
        let live = self.shared().live.load_full();
        let policy = self.wishes.policy().unwrap_or_else(|| &live.rule(self.rule).retry);
        let scope = match kind {
            FailureKind::Transient | FailureKind::Ambiguous | FailureKind::TimedOut => hold,
            FailureKind::Retry { .. } => Some(hold.unwrap_or(policy.hold)),
        };
        let rule = self.rule;
        let max_wait = self.wishes.max_wait.over(|| live.rule(self.rule).max_wait);
        let waited = self.waited;
        let shared = Arc::clone(self.shared());
        let is_permit = self.is_permit;
        let mut spent = self.wishes.spent();
        let idempotent = self.wishes.idempotent;
        let mut waker = None;
        let mut held = None;
        let mut whose = None;
        let outcome = shared.with(|state, now| {
            waker = state.machine.take_waker(id);
            // The key may have become another's since the request entered.
            let record = state.machine.key_of(id).unwrap_or(known.record);
            let endpoint = state.machine.endpoint_of(id);
            let target = scope.map(|scope| aim(scope, rule, record, endpoint));
            let is_gone = endpoint != state.machine.lasting_endpoint_of(id);
            whose = endpoint.filter(|endpoint| target == Some(Target::Endpoint(*endpoint)));
            let is_about = !(is_gone && whose.is_some());
            let deadline = deadline(now, max_wait, waited);
            state.ended(is_permit);
            if invalid {
                state.machine.count_invalid(now);
            }
            let seed = state.draw();
            if let (FailureKind::Retry { after: None }, Some(target)) = (kind, target)
                && target != Target::Request
                && is_about
            {
                spent.bare = state.machine.slow_down(now, id, target);
            }
            let report = match kind {
                FailureKind::Transient | FailureKind::Ambiguous | FailureKind::TimedOut => Report::Failure,
                FailureKind::Retry { .. } if state.counts_retries() => Report::Failure,
                FailureKind::Retry { .. } => Report::Neutral,
            };
            state.machine.report(now, id, report, seed);
            let rest = |wait| match target {
                Some(Target::Endpoint(_)) => state.machine.rest_elsewhere(now, id, wait),
                Some(_) | None => wait,
            };
            let decision = policy.decide_in_pool(&mut spent, kind, idempotent, seed, rest);
            let decision = within_budget(state, kind, decision);
            let (back, wait, holding) = match (decision, target) {
                (Decision::GiveUp { reason, hold }, target) => {
                    let target = target.filter(|_| is_about);
                    let holding = target.zip(hold).map(|(target, wait)| Holding::new(state, now, target, wait));
                    if let (Some(wait), Some(target)) = (hold, target) {
                        let until = now.saturating_add(wait);
                        state.machine.hold_because(now, target, until, HoldCause::Retry);
                    }
                    state.machine.finish(now, id);
                    state.count(|tally| tally.done += 1);
                    held = holding.and_then(|holding| holding.done(state, now));
                    return Err(End::GaveUp(reason.into()));
                }
                (Decision::BackOff(delay), None) if state.machine.elsewhere(now, id) == Elsewhere::AtOnce => {
                    (state.machine.fail_over(now, id, now.saturating_add(delay), deadline), Nanos::ZERO, None)
                }
                (Decision::BackOff(delay), None) => {
                    (state.machine.back_off(now, id, now.saturating_add(delay), deadline), delay, None)
                }
                (Decision::BackOff(wait) | Decision::Retry { wait }, target) => {
                    let holding = target.map(|target| Holding::new(state, now, target, wait));
                    let target = target.unwrap_or(Target::Request);
                    (state.machine.retry(now, id, target, now.saturating_add(wait), deadline), wait, holding)
                }
            };
            held = holding.and_then(|holding| holding.done(state, now));
            if back {
                return Ok(wait);
            }
            state.count(|tally| tally.refused += 1);
            Err(End::Closed)
        });
        self.leave_attempt(known, outcome.is_ok().then_some(spent));
        match (scope, whose) {
            (_, Some(endpoint)) => shared.tell_endpoint_hold(held, live.endpoint(endpoint)),
            // Without a pool it is the key's.
            (Some(Scope::Endpoint), None) => {
                shared.tell_hold(held, Scope::Key, || (Some(self.rule_name()), Some(self.key.clone())));
            }
            (Some(scope), None) => {
                shared.tell_hold(held, scope, || (Some(self.rule_name()), Some(self.key.clone())));
            }
            (None, None) => {}
        }
        match outcome {
            Ok(wait) => {
                #[cfg(feature = "outbox")]
                self.tell_witness(wait, scope);
                self.tell_retry(kind.into(), wait);
                Ok(())
            }
            Err(End::GaveUp(reason)) => Err(self.tell_gave_up(reason)),
            Err(End::Closed) => Err(self.turned_away_running(Refused::Closed)),
        }
    }
}

/// Why no other attempt follows.
enum End {
    GaveUp(Refused),
    Closed,
}

/// What a running attempt's owner learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    MayGoOn,
    Aborted,
    /// It ran for as long as it may.
    Overdue,
    /// It may only run for so long, and nobody would tell when that is over.
    Stranded,
}

/// Takes the retry that was decided on out of what everybody has together. A wait of the server's own choosing takes
/// nothing.
fn within_budget(state: &mut State, kind: FailureKind, decision: Decision) -> Decision {
    let hold = match (decision, kind) {
        (Decision::GiveUp { .. }, _) | (Decision::Retry { .. }, FailureKind::Retry { after: Some(_) }) => {
            return decision;
        }
        (Decision::Retry { wait }, _) => Some(wait),
        (Decision::BackOff(_), _) => None,
    };
    if state.machine.take_retry() { decision } else { Decision::GiveUp { reason: GiveUp::RetryBudget, hold } }
}

impl From<GiveUp> for Refused {
    fn from(reason: GiveUp) -> Self {
        match reason {
            GiveUp::Attempts => Self::Attempts,
            GiveUp::Waits => Self::Waits,
            GiveUp::WaitTooLong { wait, ceiling } => Self::WaitTooLong { wait: wait.into(), ceiling: ceiling.into() },
            GiveUp::NotAllowed => Self::RetryNotAllowed,
            GiveUp::TimedOut => Self::TimedOut,
            GiveUp::RetryBudget => Self::RetryBudget,
        }
    }
}

/// What a scope means for a request of this rule and key.
pub(crate) const fn aim(scope: Scope, rule: RuleId, record: KeyId, endpoint: Option<EndpointId>) -> Target {
    match scope {
        Scope::Request => Target::Request,
        Scope::Queue => Target::Queue(rule, record),
        Scope::Key => Target::Key(record),
        Scope::Endpoint => match endpoint {
            Some(endpoint) => Target::Endpoint(endpoint),
            None => Target::Key(record),
        },
        Scope::Rule => Target::Rule(rule),
        Scope::Overall => Target::Overall,
    }
}
