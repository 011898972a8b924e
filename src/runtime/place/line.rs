//! A request in line: taking up its grant, learning that it is refused, seeing to it that somebody wakes it.

use std::borrow::Borrow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, Id};

use super::{Known, Place, Stage};
use crate::engine::{Claim, Nanos, Why};
use crate::error::Refused;
use crate::runtime::shared::{Began, Shared};

impl<H: Borrow<Arc<Shared>>> Place<H> {
    /// Looks how it stands in line: whether it was granted, or else that `waker` is woken when something becomes of it.
    pub(crate) fn look(&mut self, runtime: Id, waker: impl FnOnce() -> Waker) -> Result<bool, Refused> {
        let Stage::Waiting(known) = self.stage else { return Ok(false) };
        let id = known.id;
        let term = self.term();
        let mut waker = Some(waker());
        let mut old = None;
        let look = self.shared().with(|state, now| {
            if state.machine.is_granted(id) {
                return Look::Granted;
            }
            match state.machine.claim(now, id) {
                Claim::Waiting if !state.serves(runtime) => Look::Undriven,
                Claim::Waiting => {
                    if let Some(waker) = waker.take() {
                        old = state.machine.set_waker(id, waker);
                    }
                    Look::Settled
                }
                claim => Look::of(claim, || state.began(id, term)),
            }
        });
        match look {
            Look::Granted => Ok(true),
            Look::Settled | Look::Stranger => Ok(false),
            Look::Started { waited, began } => {
                self.begin(known, waited, began);
                Ok(true)
            }
            Look::Refused { why, waited } => Err(self.refused(known, why, waited)),
            Look::Undriven => {
                self.leave(known);
                Err(self.turned_away(Refused::Aborted))
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
        let hopeless = self.shared().with(|state, _| {
            let machine = &state.machine;
            !machine.is_granted(id) && machine.would_deadlock(rule, record, machine.among(id), &ancestors)
        });
        if hopeless {
            self.leave(known);
            return Err(self.turned_away(Refused::WouldDeadlock));
        }
        Ok(())
    }

    /// Takes up a grant if there is one; else sees to it that it is woken.
    pub(super) fn take_up(&mut self, known: Known, context: &Context<'_>) -> Poll<Result<(), Refused>> {
        // The first look needs no new waker if the machine has this one; the second brings one along; a third is only
        // needed where no driver was at work yet.
        let mut runtime = None;
        let mut waker = None;
        let mut old = None;
        let mut tried = false;
        let id = known.id;
        let term = self.term();
        loop {
            let look = self.shared().with(|state, now| match state.machine.claim(now, id) {
                Claim::Waiting => match (&runtime, state.machine.waker(id)) {
                    (_, Some(set)) if set.will_wake(context.waker()) => Look::Settled,
                    (None, _) => Look::Stranger,
                    (Some(runtime), _) if !state.serves(*runtime) => Look::Undriven,
                    (Some(_), _) => {
                        if let Some(waker) = waker.take() {
                            old = state.machine.set_waker(id, waker);
                        }
                        Look::Settled
                    }
                },
                claim => Look::of(claim, || state.began(id, term)),
            });
            match look {
                Look::Started { waited, began } => {
                    self.begin(known, waited, began);
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

    pub(super) fn stranded(&mut self, known: Known) -> Refused {
        self.leave(known);
        self.turned_away(Refused::NoRuntime)
    }

    pub(super) fn refused(&mut self, known: Known, why: Why, waited: Nanos) -> Refused {
        self.stage = Stage::Over;
        self.waited = self.waited.saturating_add(waited);
        let reason = match why {
            Why::MaxWait if self.wishes.fail_fast => Refused::NotNow { next_start: self.next_start(known.record) },
            Why::MaxWait => Refused::MaxWait { waited: self.waited(), next_start: self.next_start(known.record) },
            Why::Displaced => Refused::Displaced,
            Why::RuleRemoved => Refused::RuleRemoved,
            Why::CostTooHigh { cost, capacity } => Refused::CostTooHigh { cost, capacity },
            Why::NoEndpoint => Refused::NoEndpoint { next_start: self.next_start(known.record) },
            Why::Closed => Refused::Closed,
            Why::Aborted => Refused::Aborted,
        };
        self.turned_away(reason)
    }
}

/// What a look into the machine showed to a request in line.
enum Look {
    /// A claim would start it.
    Granted,
    Started {
        waited: Nanos,
        began: Began,
    },
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
    fn of(claim: Claim, began: impl FnOnce() -> Began) -> Self {
        match claim {
            Claim::Started { waited } => Self::Started { waited, began: began() },
            Claim::Running => Self::Started { waited: Nanos::ZERO, began: Began::default() },
            Claim::Waiting => Self::Settled,
            Claim::Refused { why, waited } => Self::Refused { why, waited },
            // No answer of the machine leads here.
            Claim::Unknown => Self::Refused { why: Why::Aborted, waited: Nanos::ZERO },
        }
    }
}
