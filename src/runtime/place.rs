//! A request's place with the machine, from before it enters until it is answered. Dropped, it gives back everything.

use std::borrow::Borrow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use super::attempt::Attempt;
use super::shared::{Shared, State};
use crate::engine::{
    Claim, Decision, Enter, Entry, FailureKind, GiveUp, Instant, KeyId, Nanos, RequestId, RetryPolicy, RuleId, Scope,
    Spent, Target, Turned, Why,
};
use crate::error::{NextStart, Refused};
use crate::key::Key;

/// What a request asks for beside its rule and key.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) not_before: Nanos,
    /// [`Nanos::MAX`]: for as long as it takes.
    pub(crate) max_wait: Nanos,
    /// `None`: the rule's.
    pub(crate) policy: Option<Box<RetryPolicy>>,
    pub(crate) idempotent: bool,
    pub(crate) fail_fast: bool,
}

/// A request's place. `H` is how it holds on to what all handles share.
#[derive(Debug)]
pub(crate) struct Place<H: Borrow<Arc<Shared>>> {
    shared: H,
    key: Key,
    rule: RuleId,
    stage: Stage,
    wishes: Wishes,
    spent: Spent,
    starts: u32,
    waited: Nanos,
    /// Whether its attempts are permits: no future stands behind them that could be told to stop.
    is_permit: bool,
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
    pub(crate) fn new(shared: H, rule: Result<RuleId, Box<Refused>>, key: Key, wishes: Wishes) -> Self {
        let (rule, stage) = match rule {
            Ok(rule) => (rule, Stage::Outside),
            Err(reason) => (RuleId(0), Stage::Hopeless(reason)),
        };
        Self {
            shared,
            key,
            rule,
            stage,
            wishes,
            spent: Spent::default(),
            starts: 0,
            waited: Nanos::ZERO,
            is_permit: false,
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

    pub(crate) fn rule_name(&self) -> &str {
        &self.shared().rule(self.rule).name
    }

    /// The attempt that begins now.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt {
            shared: Arc::clone(self.shared()),
            rule: self.rule,
            key: self.key.clone(),
            number: self.starts,
            is_last: self.spent.failures.saturating_add(1) >= self.policy().attempts,
            waited: self.waited(),
        }
    }

    /// Enters if it has not, and waits for its start. After an error the place is empty.
    pub(crate) fn poll_start(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refused>> {
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

    /// Enters and starts at once, or waits in line.
    pub(crate) fn enter(&mut self) -> Result<(), Refused> {
        let is_permit = self.is_permit;
        let ancestors = self.shared().ancestors();
        let entered = self.knock(&ancestors, |state, now, record, rule, entry| {
            let entered = state.machine.enter(now, record, rule, entry)?;
            if let Enter::Started(_) = entered {
                state.began(is_permit);
            }
            Ok((entered, record))
        })?;
        match entered {
            (Enter::Started(id), record) => self.begin(Known { id, record }, Nanos::ZERO),
            (Enter::Waiting(id), record) => {
                let known = Known { id, record };
                self.stage = Stage::Waiting(known);
                if self.wishes.fail_fast {
                    return Err(self.not_now(known));
                }
            }
        }
        Ok(())
    }

    /// Enters without starting; `waker` is woken at the grant, which may have been given already.
    pub(crate) fn enter_in_line(&mut self, waker: Waker) -> Result<(), Refused> {
        let mut waker = Some(waker);
        // Nobody waits for it yet: an attempt may well leave something behind that starts after it.
        let (known, granted) = self.knock(&[], |state, now, record, rule, entry| {
            let id = state.machine.enqueue(now, record, rule, entry)?;
            if let Some(waker) = waker.take() {
                state.machine.set_waker(id, waker);
            }
            state.machine.dispatch(now);
            Ok((Known { id, record }, state.machine.is_granted(id)))
        })?;
        self.stage = Stage::Waiting(known);
        if self.wishes.fail_fast && !granted {
            return Err(self.not_now(known));
        }
        Ok(())
    }

    /// Looks how it stands in line: whether it was granted, or else that `waker` is woken when something becomes of it.
    pub(crate) fn look(&mut self, runtime: Id, waker: impl FnOnce() -> Waker) -> Result<bool, Refused> {
        let Stage::Waiting(known) = self.stage else { return Ok(false) };
        let id = known.id;
        let is_permit = self.is_permit;
        let mut waker = Some(waker());
        let mut old = None;
        let look = self.shared().with(|state, now| {
            if state.machine.is_granted(id) {
                return Look::Granted;
            }
            match state.machine.claim(now, id) {
                Claim::Waiting if !state.drivers.serve(runtime) => Look::Undriven,
                Claim::Waiting => {
                    if let Some(waker) = waker.take() {
                        old = state.machine.set_waker(id, waker);
                    }
                    Look::Settled
                }
                claim => Look::of(claim, || state.began(is_permit)),
            }
        });
        match look {
            Look::Granted => Ok(true),
            Look::Settled | Look::Stranger => Ok(false),
            Look::Started(waited) => {
                self.begin(known, waited);
                Ok(true)
            }
            Look::Refused { why, waited } => Err(self.refused(known, why, waited)),
            Look::Undriven => {
                self.leave(known);
                Err(Refused::Aborted)
            }
        }
    }

    /// Refuses it if it waits for a slot of an attempt that is being polled on this thread.
    pub(crate) fn check_nesting(&mut self) -> Result<(), Refused> {
        let Stage::Waiting(known) = self.stage else { return Ok(()) };
        let ancestors = self.shared().ancestors();
        if ancestors.is_empty() {
            return Ok(());
        }
        let (rule, Known { id, record }) = (self.rule, known);
        let hopeless = self
            .shared()
            .with(|state, _| !state.machine.is_granted(id) && state.machine.would_deadlock(rule, record, &ancestors));
        if hopeless {
            self.leave(known);
            return Err(Refused::WouldDeadlock);
        }
        Ok(())
    }

    /// While it runs: lets `poll` poll the attempt's future.
    pub(crate) fn polling<R>(&self, poll: impl FnOnce() -> R) -> R {
        match self.stage {
            Stage::Running { known, .. } => self.shared().polling(known.id, poll),
            Stage::Hopeless(_) | Stage::Outside | Stage::Waiting(_) | Stage::Over => poll(),
        }
    }

    /// Whether the running attempt was told to stop.
    pub(crate) fn is_aborted(&self) -> bool {
        match self.stage {
            Stage::Running { known, .. } => {
                self.shared().is_aborting() && self.shared().with(|state, _| state.machine.is_aborted(known.id))
            }
            Stage::Hopeless(_) | Stage::Outside | Stage::Waiting(_) | Stage::Over => false,
        }
    }

    /// Sees to it that the task is woken should its running attempt be told to stop. Returns whether it was already.
    pub(crate) fn watch(&mut self, context: &Context<'_>) -> bool {
        let Stage::Running { known: Known { id, .. }, ref mut watcher } = self.stage else { return false };
        let waker = context.waker();
        let current = Watcher { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() };
        if *watcher == current {
            return false;
        }
        *watcher = current;
        let waker = waker.clone();
        let shared: &Arc<Shared> = self.shared.borrow();
        let (aborted, _old) =
            shared.with(|state, _| (state.machine.is_aborted(id), state.machine.set_waker(id, waker)));
        aborted
    }

    /// The attempt ended and so does the request.
    pub(crate) fn finish(&mut self) {
        if let Stage::Running { known: Known { id, .. }, .. } = self.stage {
            self.stage = Stage::Over;
            let _waker = self.shared().with(|state, now| {
                let waker = state.machine.take_waker(id);
                state.machine.finish(now, id);
                state.ended(self.is_permit);
                state.count(|tally| tally.done += 1);
                waker
            });
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
        }
    }

    /// The attempt failed: back in line, or an end with a reason.
    pub(crate) fn fail(&mut self, kind: FailureKind, hold: Option<Scope>) -> Result<(), Refused> {
        let Stage::Running { known, .. } = self.stage else { return Err(Refused::Aborted) };
        let id = known.id;
        let scope = match kind {
            FailureKind::Transient | FailureKind::Ambiguous => hold,
            FailureKind::Retry { .. } => Some(hold.unwrap_or(self.policy().hold)),
        };
        let target = scope.map(|scope| self.target(scope, known.record));
        let max_wait = self.wishes.max_wait;
        let waited = self.waited;
        let shared = Arc::clone(self.shared());
        let policy = self.wishes.policy.as_deref().unwrap_or(&shared.rule(self.rule).retry);
        let is_permit = self.is_permit;
        let spent = &mut self.spent;
        let idempotent = self.wishes.idempotent;
        let mut waker = None;
        let outcome = shared.with(|state, now| {
            waker = state.machine.take_waker(id);
            let deadline = deadline(now, max_wait, waited);
            state.ended(is_permit);
            let seed = state.draw();
            let back = match (policy.decide(spent, kind, idempotent, seed), target) {
                (Decision::GiveUp { reason, hold }, target) => {
                    if let (Some(wait), Some(target)) = (hold, target)
                        && target != Target::Request
                    {
                        state.machine.hold(now, target, now.saturating_add(wait));
                    }
                    state.machine.finish(now, id);
                    state.count(|tally| tally.done += 1);
                    return Err(reason.into());
                }
                (Decision::BackOff(delay), None) => {
                    state.machine.back_off(now, id, now.saturating_add(delay), deadline)
                }
                (Decision::BackOff(wait) | Decision::Retry { wait }, target) => {
                    let target = target.unwrap_or(Target::Request);
                    state.machine.retry(now, id, target, now.saturating_add(wait), deadline)
                }
            };
            if back {
                return Ok(());
            }
            state.count(|tally| tally.refused += 1);
            Err(Refused::Closed)
        });
        self.stage = if outcome.is_ok() { Stage::Waiting(known) } else { Stage::Over };
        outcome
    }

    fn policy(&self) -> &RetryPolicy {
        self.wishes.policy.as_deref().unwrap_or(&self.shared().rule(self.rule).retry)
    }

    const fn target(&self, scope: Scope, record: KeyId) -> Target {
        match scope {
            Scope::Request => Target::Request,
            Scope::Queue => Target::Queue(self.rule, record),
            Scope::Key => Target::Key(record),
            Scope::Rule => Target::Rule(self.rule),
            Scope::Overall => Target::Overall,
        }
    }

    fn begin(&mut self, known: Known, waited: Nanos) {
        self.stage = Stage::Running { known, watcher: Watcher::default() };
        self.starts = self.starts.saturating_add(1);
        self.waited = self.waited.saturating_add(waited);
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
        let (rule, wishes) = (self.rule, &self.wishes);
        let shared: &Arc<Shared> = self.shared.borrow();
        shared.with_record(&self.key, |state, now, record| {
            if !ancestors.is_empty() && state.machine.would_deadlock(rule, record, ancestors) {
                return Ok(Err(Refused::WouldDeadlock));
            }
            if wishes.fail_fast {
                let next = state.machine.next_start(now, rule, Some(record));
                match NextStart::since(now, next) {
                    NextStart::Now => {}
                    next_start => return Ok(Err(Refused::NotNow { next_start })),
                }
            }
            let entry = Entry {
                cost: 1,
                units: &[],
                not_before: (!wishes.not_before.is_zero()).then(|| now.saturating_add(wishes.not_before)),
                deadline: deadline(now, wishes.max_wait, Nanos::ZERO),
            };
            ask(state, now, record, rule, entry).map(Ok)
        })?
    }

    /// Leaves the line it was not to stand in.
    fn not_now(&mut self, known: Known) -> Refused {
        self.leave(known);
        Refused::NotNow { next_start: self.next_start(known.record) }
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

    fn next_start(&self, record: KeyId) -> NextStart {
        let rule = self.rule;
        self.shared().with(|state, now| NextStart::since(now, state.machine.next_start(now, rule, Some(record))))
    }

    /// Takes up a grant if there is one; else sees to it that it is woken.
    fn take_up(&mut self, known: Known, context: &Context<'_>) -> Poll<Result<(), Refused>> {
        // The first look needs no new waker if the machine has this one; the second brings one along; a third is only
        // needed where no driver was at work yet.
        let mut runtime = None;
        let mut waker = None;
        let mut old = None;
        let mut tried = false;
        let id = known.id;
        let is_permit = self.is_permit;
        loop {
            let look = self.shared().with(|state, now| match state.machine.claim(now, id) {
                Claim::Waiting => match (&runtime, state.machine.waker(id)) {
                    (_, Some(set)) if set.will_wake(context.waker()) => Look::Settled,
                    (None, _) => Look::Stranger,
                    (Some(runtime), _) if !state.drivers.serve(*runtime) => Look::Undriven,
                    (Some(_), _) => {
                        if let Some(waker) = waker.take() {
                            old = state.machine.set_waker(id, waker);
                        }
                        Look::Settled
                    }
                },
                claim => Look::of(claim, || state.began(is_permit)),
            });
            match look {
                Look::Started(waited) => {
                    self.begin(known, waited);
                    return Poll::Ready(Ok(()));
                }
                Look::Refused { why, waited } => return Poll::Ready(Err(self.refused(known, why, waited))),
                Look::Settled | Look::Granted => return Poll::Pending,
                Look::Stranger => {
                    let Ok(current) = Handle::try_current() else { return Poll::Ready(Err(self.stranded(known))) };
                    runtime = Some(current.id());
                    waker = Some(context.waker().clone());
                }
                Look::Undriven => {
                    let driven = !tried && Handle::try_current().is_ok_and(|it| self.shared().start_driver(&it));
                    if !driven {
                        return Poll::Ready(Err(self.stranded(known)));
                    }
                    tried = true;
                }
            }
        }
    }

    fn stranded(&mut self, known: Known) -> Refused {
        self.leave(known);
        Refused::NoRuntime
    }

    fn refused(&mut self, known: Known, why: Why, waited: Nanos) -> Refused {
        self.stage = Stage::Over;
        self.waited = self.waited.saturating_add(waited);
        match why {
            Why::MaxWait => Refused::MaxWait { waited: self.waited(), next_start: self.next_start(known.record) },
            Why::Displaced => Refused::Displaced,
            Why::Closed => Refused::Closed,
            Why::Aborted => Refused::Aborted,
        }
    }
}

impl<H: Borrow<Arc<Shared>>> Drop for Place<H> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Waiting(known) => self.leave(known),
            Stage::Running { .. } => self.cut_off(),
            Stage::Hopeless(_) | Stage::Outside | Stage::Over => {}
        }
    }
}

/// What a look into the machine showed to a request in line.
enum Look {
    /// A claim would start it.
    Granted,
    Started(Nanos),
    Refused {
        why: Why,
        waited: Nanos,
    },
    /// It stands in line and the machine has its waker.
    Settled,
    /// It stands in line and the machine lacks its waker.
    Stranger,
    /// Nobody would wake it on this runtime.
    Undriven,
}

impl Look {
    fn of(claim: Claim, began: impl FnOnce()) -> Self {
        match claim {
            Claim::Started { waited } => {
                began();
                Self::Started(waited)
            }
            Claim::Running => Self::Started(Nanos::ZERO),
            Claim::Waiting => Self::Settled,
            Claim::Refused { why, waited } => Self::Refused { why, waited },
            // No answer of the machine leads here.
            Claim::Unknown => Self::Refused { why: Why::Aborted, waited: Nanos::ZERO },
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
            Turned::Closed => Self::Closed,
        }
    }
}

impl From<GiveUp> for Refused {
    fn from(reason: GiveUp) -> Self {
        match reason {
            GiveUp::Attempts => Self::Attempts,
            GiveUp::Waits => Self::Waits,
            GiveUp::WaitTooLong { wait, ceiling } => Self::WaitTooLong { wait: wait.into(), ceiling: ceiling.into() },
            GiveUp::NotAllowed => Self::RetryNotAllowed,
        }
    }
}

/// When a request has stood in line for `max_wait`, if it has for `waited` already.
fn deadline(now: Instant, max_wait: Nanos, waited: Nanos) -> Option<Instant> {
    (max_wait != Nanos::MAX).then(|| now.saturating_add(Nanos::new(max_wait.get().saturating_sub(waited.get()))))
}
