//! Before the line: waiting for room in it.

use std::borrow::Borrow;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::{Known, Place, Stage};
use crate::engine::Claim;
use crate::error::Refused;
use crate::runtime::shared::Shared;

impl<H: Borrow<Arc<Shared>>> Place<H> {
    /// Stands before the line, if it has not done so yet, until there is room in it. After an error the place is empty.
    pub(crate) fn poll_room(&mut self, context: &Context<'_>) -> Poll<Result<(), Refused>> {
        loop {
            match self.stage {
                Stage::Hopeless(_) | Stage::Outside => {
                    let entered = self.knock(&[], |state, now, record, rule, entry| {
                        let id = state.machine.enqueue_patiently(now, record, rule, entry)?;
                        state.machine.dispatch(now);
                        Ok((Known { id, record }, state.machine.is_granted(id), state.machine.is_outside(id)))
                    });
                    let (known, granted, outside) = entered.map_err(|reason| self.turned_away(reason))?;
                    self.stage = Stage::Waiting(known);
                    if outside {
                        self.meter.waits_outside(self.shared.borrow(), self.rule);
                    }
                    if self.wishes.fail_fast && !granted && (outside || !self.waits_for_store()) {
                        return Poll::Ready(Err(self.not_now(known)));
                    }
                }
                Stage::Waiting(known) => return self.wait_before(known, context),
                Stage::Running { .. } => return Poll::Ready(Ok(())),
                Stage::Over => return Poll::Ready(Err(Refused::Aborted)),
            }
        }
    }

    fn wait_before(&mut self, known: Known, context: &Context<'_>) -> Poll<Result<(), Refused>> {
        let (rule, Known { id, record }) = (self.rule, known);
        let ancestors = self.shared().ancestors();
        let driven = Handle::try_current().is_ok_and(|runtime| self.shared().is_driven(&runtime));
        let (mut waker, mut old) = (Some(context.waker().clone()), None);
        let look = self.shared().with(|state, now| {
            if state.machine.is_refused(id) {
                return Look::Answered(state.machine.claim(now, id));
            }
            if !state.machine.is_outside(id) {
                return Look::InLine;
            }
            let stuck = !ancestors.is_empty()
                && state.machine.is_full(record, rule)
                && state.machine.would_deadlock(rule, record, state.machine.among(id), &ancestors);
            if stuck {
                return Look::Stuck;
            }
            if let Some(waker) = waker.take() {
                old = state.machine.set_waker(id, waker);
            }
            Look::Outside
        });
        match look {
            Look::Outside | Look::InLine if !driven => Poll::Ready(Err(self.stranded(known))),
            Look::Outside => Poll::Pending,
            Look::InLine => {
                self.tell_waiting();
                Poll::Ready(Ok(()))
            }
            Look::Stuck => {
                self.leave(known);
                Poll::Ready(Err(self.turned_away(Refused::WouldDeadlock)))
            }
            Look::Answered(Claim::Refused { why, waited }) => Poll::Ready(Err(self.refused(known, why, waited))),
            Look::Answered(Claim::Started { .. } | Claim::Waiting | Claim::Running | Claim::Unknown) => {
                unreachable!("a refused request is refused")
            }
        }
    }
}

/// How it stands.
enum Look {
    Outside,
    InLine,
    /// It waits for room that the attempt makes that waits for it.
    Stuck,
    /// It was refused.
    Answered(Claim),
}
