//! A request's place with the machine, from before it enters until it is answered. Dropped, it gives back everything.

use std::borrow::Borrow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

mod door;
mod line;
#[cfg(feature = "outbox")]
mod past;
mod running;
mod tell;
mod wishes;

use tracing::Span;

#[cfg(feature = "outbox")]
pub(crate) use past::{Failed, Past, Witness};
pub(crate) use running::Watched;
#[cfg(feature = "headers")]
pub(crate) use running::aim;
pub(crate) use wishes::{Patience, Wishes};

use super::attempt::{Attempt, Endpoint};
use super::meters::Meter;
use super::shared::{Began, Shared, State, Term};
use super::watch::Cause;
use crate::engine::{Claim, EndpointId, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Turned};
use crate::error::{NextStart, Refused};
use crate::key::Key;

/// A request's place. `H` is how it holds on to what all handles share.
#[derive(Debug)]
pub(crate) struct Place<H: Borrow<Arc<Shared>>> {
    shared: H,
    key: Key,
    rule: RuleId,
    stage: Stage,
    wishes: Wishes,
    starts: u32,
    waited: Nanos,
    /// Whether its attempts are permits: no future stands behind them that could be told to stop.
    is_permit: bool,
    /// What the running attempt follows from.
    after: Cause,
    /// That of the running attempt, if somebody wants it.
    span: Option<Box<Span>>,
    meter: Meter,
}

#[derive(Debug)]
enum Stage {
    /// Refused before it could ask.
    Hopeless(Box<Refused>),
    Outside,
    Waiting(Known),
    Running {
        known: Known,
        watcher: Watcher,
        /// Whether it may only run for so long.
        limited: bool,
        /// Whether it is to be counted as an invalid one.
        invalid: bool,
        /// What it uses, if there is a pool.
        endpoint: Option<EndpointId>,
    },
    /// The machine does not know it any more.
    Over,
}

/// What the machine calls the request and its key.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: RequestId,
    record: KeyId,
}

/// Which waker the machine has of a running attempt, in two words: enough to see that it is still the right one, as the
/// machine's copy keeps the original's memory from being used for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Watcher {
    data: usize,
    vtable: usize,
}

impl<H: Borrow<Arc<Shared>>> Place<H> {
    #[inline(always)]
    pub(crate) fn new(shared: H, rule: Result<RuleId, Box<Refused>>, key: Key, wishes: Wishes) -> Self {
        let (rule, stage) = match rule {
            Ok(rule) => (rule, Stage::Outside),
            Err(reason) => (RuleId(0), Stage::Hopeless(reason)),
        };
        let starts = wishes.starts();
        Self {
            shared,
            key,
            rule,
            stage,
            wishes,
            starts,
            waited: Nanos::ZERO,
            is_permit: false,
            after: Cause::First,
            span: None,
            meter: Meter::default(),
        }
    }

    /// The same, for attempts that are permits.
    pub(crate) fn into_permit(mut self) -> Self {
        self.is_permit = true;
        self
    }

    /// How often the request was started so far.
    pub(crate) const fn starts(&self) -> u32 {
        self.starts
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// Time in line so far.
    pub(crate) fn waited(&self) -> Duration {
        self.waited.into()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.shared.borrow()
    }

    pub(crate) fn rule_name(&self) -> Arc<str> {
        self.shared().rule_name(self.rule)
    }

    /// The endpoint of the running attempt, if there is a pool.
    #[inline]
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        let Stage::Running { endpoint: Some(endpoint), .. } = self.stage else { return None };
        Some(self.shared().endpoint(endpoint))
    }

    /// The attempt that begins now.
    #[inline(always)]
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt {
            key: self.key.clone(),
            id: self.running(),
            rule: self.rule,
            number: self.starts,
            failures: self.wishes.spent().failures,
            attempts: self.wishes.policy().map(|policy| policy.attempts),
            waited: self.waited,
            endpoint: self.endpoint(),
            shared: Arc::clone(self.shared()),
        }
    }

    /// The cost of the running attempt turned out to be another.
    pub(crate) fn settle(&self, unit: &str, actual: u32) -> Result<(), Refused> {
        self.shared().settle(self.running(), unit, actual)
    }

    /// Enters if it has not, and waits for its start. After an error the place is empty.
    #[inline(always)]
    pub(crate) fn poll_start(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        if self.start_at_once() { Poll::Ready(Ok(())) } else { self.poll_start_in_line(context) }
    }

    /// The same once it is known that it can't start at once.
    fn poll_start_in_line(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        loop {
            match self.stage {
                Stage::Hopeless(_) | Stage::Outside => match self.enter() {
                    Ok(()) => {}
                    Err(reason) => return Poll::Ready(Err(reason)),
                },
                Stage::Waiting(known) => return self.take_up(known, context),
                Stage::Running { .. } => return Poll::Ready(Ok(())),
                Stage::Over => return Poll::Ready(Err(Refused::Aborted)),
            }
        }
    }

    /// Enters and starts, if it is plain and can be seen to have nothing in its way.
    #[inline(always)]
    fn start_at_once(&mut self) -> bool {
        let is_plain = self.wishes.cost == 1 && self.wishes.special.is_none();
        if is_plain
            && matches!(self.stage, Stage::Outside)
            && let Some((record, id)) = self.shared().start_at_once(&self.key, self.rule, self.is_permit)
        {
            self.begin(Known { id, record }, Nanos::ZERO, Began::default());
            return true;
        }
        false
    }

    /// Enters: starts at once, or waits in line.
    fn enter(&mut self) -> Result<(), Refused> {
        if self.needs_timers() && Handle::try_current().is_err() {
            self.stage = Stage::Over;
            return Err(self.turned_away(Refused::NoRuntime));
        }
        let term = self.term();
        let ancestors = self.shared().ancestors();
        let entered = self.knock(&ancestors, |state, now, record, rule, entry| {
            Ok(match state.machine.enter(now, record, rule, entry)? {
                Enter::Started(id) => (Known { id, record }, Some(state.began(id, term))),
                Enter::Waiting(id) => (Known { id, record }, None),
            })
        });
        let (known, began) = entered.map_err(|reason| self.turned_away(reason))?;
        match began {
            Some(began) => self.begin(known, Nanos::ZERO, began),
            None => {
                self.stage = Stage::Waiting(known);
                self.tell_waiting();
                if self.wishes.fail_fast && !self.waits_for_store() {
                    return Err(self.not_now(known));
                }
            }
        }
        Ok(())
    }

    /// Whether nothing of its rule starts before a store has answered.
    fn waits_for_store(&self) -> bool {
        let plan = &self.shared().live.load().plan;
        self.shared().afar.get().is_some() && plan.is_shared_by(&plan.rules[usize::from(self.rule.0)])
    }

    /// Enters without starting; `waker` is woken at the grant, which may have been given already.
    pub(crate) fn enter_in_line(&mut self, waker: Waker) -> Result<(), Refused> {
        let mut waker = Some(waker);
        // Nobody waits for it yet: an attempt may well leave something behind that starts after it.
        let entered = self.knock(&[], |state, now, record, rule, entry| {
            let id = state.machine.enqueue(now, record, rule, entry)?;
            if let Some(waker) = waker.take() {
                state.machine.set_waker(id, waker);
            }
            state.machine.dispatch(now);
            // Refused as it entered, it is not woken for that.
            let refused = state.machine.is_refused(id).then(|| state.machine.claim(now, id));
            Ok((Known { id, record }, state.machine.is_granted(id), refused))
        });
        let (known, granted, refused) = entered.map_err(|reason| self.turned_away(reason))?;
        self.stage = Stage::Waiting(known);
        self.tell_waiting();
        if let Some(Claim::Refused { why, waited }) = refused {
            return Err(self.refused(known, why, waited));
        }
        if self.wishes.fail_fast && !granted && !self.waits_for_store() {
            return Err(self.not_now(known));
        }
        Ok(())
    }

    /// What the machine calls it, if it knows it.
    pub(crate) const fn id(&self) -> Option<RequestId> {
        match &self.stage {
            Stage::Waiting(known) | Stage::Running { known, .. } => Some(known.id),
            Stage::Hopeless(_) | Stage::Outside | Stage::Over => None,
        }
    }

    pub(crate) const fn rule(&self) -> RuleId {
        self.rule
    }

    /// What the machine calls it while an attempt runs.
    pub(crate) const fn running(&self) -> Option<RequestId> {
        match &self.stage {
            Stage::Running { known, .. } => Some(known.id),
            Stage::Hopeless(_) | Stage::Outside | Stage::Waiting(_) | Stage::Over => None,
        }
    }

    /// For how long its attempts may run.
    fn term(&self) -> Term {
        if self.is_permit {
            return Term::Open;
        }
        let own = self.wishes.special.as_ref().and_then(|special| special.attempt_timeout);
        own.map_or(Term::OfRule(self.rule), Term::Own)
    }

    /// Whether an attempt that began now would have to be told when its time is over.
    fn needs_timers(&self) -> bool {
        match self.term() {
            _ if matches!(self.stage, Stage::Hopeless(_)) => false,
            Term::Open => false,
            Term::OfRule(rule) => self.shared().live.load().rule(rule).attempt_timeout.is_some(),
            Term::Own(longest) => longest != Nanos::MAX,
        }
    }

    #[inline(always)]
    fn begin(&mut self, known: Known, waited: Nanos, Began { limited, endpoint }: Began) {
        self.stage = Stage::Running { known, watcher: Watcher::default(), limited, invalid: false, endpoint };
        self.starts = self.starts.saturating_add(1);
        self.waited = self.waited.saturating_add(waited);
        self.tell_start(waited);
    }

    /// Asks to be let in, in one way or another, while the ancestors wait for it.
    fn knock<R>(
        &mut self,
        ancestors: &[RequestId],
        mut ask: impl FnMut(&mut State, Instant, KeyId, RuleId, Entry<'_>) -> Result<R, Turned>,
    ) -> Result<R, Refused> {
        if let Stage::Hopeless(reason) = std::mem::replace(&mut self.stage, Stage::Over) {
            return Err(*reason);
        }
        let answer_by = (self.wishes.fail_fast && self.waits_for_store()).then_some(ANSWER);
        let (rule, wishes) = (self.rule, &self.wishes);
        let shared: &Arc<Shared> = self.shared.borrow();
        shared.with_record(&self.key, |state, now, record| {
            let endpoints = match wishes.endpoints(shared) {
                Ok(endpoints) => endpoints,
                Err(unknown) => return Ok(Err(unknown)),
            };
            if !ancestors.is_empty() && state.machine.would_deadlock(rule, record, &endpoints, ancestors) {
                return Ok(Err(Refused::WouldDeadlock));
            }
            let max_wait =
                answer_by.or_else(|| wishes.max_wait.over(|| state.machine.plan().rules[usize::from(rule.0)].max_wait));
            let not_before = wishes.not_before();
            let entry = Entry {
                cost: wishes.cost,
                units: wishes.units(),
                not_before: (!not_before.is_zero()).then(|| now.saturating_add(not_before)),
                deadline: deadline(now, max_wait, Nanos::ZERO),
                endpoints: &endpoints,
            };
            // What lets nobody in says why itself.
            let lets_in = state.machine.lets_in(rule);
            if wishes.fail_fast && lets_in {
                let next = state.machine.next_start_of(now, rule, Some(record), &entry);
                match NextStart::since(now, next) {
                    NextStart::Now => {}
                    next_start => return Ok(Err(Refused::NotNow { next_start })),
                }
            }
            if wishes.eager && lets_in {
                let next = state.machine.next_start_of(now, rule, Some(record), &entry);
                if let Err(reason) = wishes.are_hopeful(NextStart::since(now, next), max_wait) {
                    return Ok(Err(reason));
                }
            }
            ask(state, now, record, rule, entry).map(Ok)
        })?
    }

    /// Leaves the line it was not to stand in.
    fn not_now(&mut self, known: Known) -> Refused {
        self.leave(known);
        let next_start = self.next_start(known.record);
        self.turned_away(Refused::NotNow { next_start })
    }

    /// Leaves the line.
    fn leave(&mut self, known: Known) {
        self.stage = Stage::Over;
        let _waker = self.shared().with(|state, now| {
            let waker = state.machine.take_waker(known.id);
            state.machine.withdraw(now, known.id);
            waker
        });
    }

    /// Its owner dropped it.
    #[cold]
    fn let_go(&mut self) {
        match self.stage {
            Stage::Waiting(known) => {
                self.leave(known);
                self.tell_withdrawn();
            }
            Stage::Running { .. } => self.cut_off(),
            Stage::Hopeless(_) | Stage::Outside | Stage::Over => {}
        }
    }

    fn next_start(&self, record: KeyId) -> NextStart {
        let (rule, cost, units) = (self.rule, self.wishes.cost, self.wishes.units());
        let shared = self.shared();
        shared.with(|state, now| match self.wishes.endpoints(shared) {
            Ok(endpoints) => {
                let entry = Entry { cost, units, endpoints: &endpoints, ..Entry::default() };
                NextStart::since(now, state.machine.next_start_of(now, rule, Some(record), &entry))
            }
            Err(_) => NextStart::Never,
        })
    }
}

impl<H: Borrow<Arc<Shared>>> Drop for Place<H> {
    #[inline]
    fn drop(&mut self) {
        match self.stage {
            Stage::Waiting(_) | Stage::Running { .. } => self.let_go(),
            Stage::Hopeless(_) | Stage::Outside | Stage::Over => {}
        }
    }
}

impl From<Turned> for Refused {
    fn from(turned: Turned) -> Self {
        match turned {
            // Only if a record were evicted within one turn of the lock that made it.
            Turned::StaleKey => Self::Aborted,
            Turned::QueueFull { waiting } => Self::QueueFull { waiting },
            Turned::CostTooHigh { cost, capacity } => Self::CostTooHigh { cost, capacity },
            Turned::RuleRemoved => Self::RuleRemoved,
            Turned::Closed => Self::Closed,
        }
    }
}

/// How long a request that is not to wait gives a store to answer.
const ANSWER: Nanos = Nanos::from_millis(100);

/// When a request has stood in line for `max_wait`, if it has for `waited` already.
fn deadline(now: Instant, max_wait: Option<Nanos>, waited: Nanos) -> Option<Instant> {
    Some(now.saturating_add(Nanos::new(max_wait?.get().saturating_sub(waited.get()))))
}
