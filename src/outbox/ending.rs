//! How messages come to their ends: erased, kept among the dead, or stored to be tried again.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;

use super::draft::{Burial, Draft, Stored};
use super::error::Error;
use super::event::OutboxEvent;
use super::letter::{Delivery, End, Fault, Letter, PATIENCE, Phase, REST, Undelivered, answer, lock};
use super::line::Pause;
use super::note::Note;
use super::record::{Buried, Progress};
use super::store::StoreError;
use crate::error::{Error as Ended, NextStart, Refused};

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Letter<T, E> {
    /// The request is over.
    pub(super) async fn settle(&self, answer: Result<T, Ended<Undelivered<E>>>) -> End {
        let end = match answer {
            Ok(value) => self.sent(value).await,
            Err(Ended::Failed(error)) => self.failed(error).await,
            Err(Ended::Panicked(message)) => self.panicked(message).await,
            Err(Ended::GaveUp { reason, last, .. }) => match reason {
                Refused::Attempts | Refused::TimedOut | Refused::RetryNotAllowed | Refused::Waits => {
                    self.gave_up(reason, last).await
                }
                Refused::UnknownRule { .. }
                | Refused::UnknownUnit { .. }
                | Refused::UnknownEndpoint { .. }
                | Refused::AliasCycle { .. }
                | Refused::QueueFull { .. }
                | Refused::Displaced
                | Refused::CostTooHigh { .. }
                | Refused::NotNow { .. }
                | Refused::MaxWait { .. }
                | Refused::WaitTooLong { .. }
                | Refused::RetryBudget
                | Refused::NoEndpoint { .. }
                | Refused::WouldDeadlock
                | Refused::RuleRemoved
                | Refused::Aborted
                | Refused::Closed
                | Refused::NoRuntime
                | Refused::Panicked { .. } => self.cut_short(reason, last).await,
            },
        };
        match end {
            End::Sent | End::Dead | End::Parked => self.turn.end(self.stored.place),
            End::Again { .. } | End::Stopped => {}
        }
        end
    }

    /// A message that is to be tried no more finds its place among the dead, or none.
    pub(super) async fn bury_again(self: Arc<Self>) -> End {
        {
            let mut state = lock(&self.state);
            if state.phase == Phase::Withdrawn {
                return End::again(Pause::Told, Duration::ZERO);
            }
            state.phase = Phase::Running;
        }
        self.bury("tried as often as may be, or failed for good; there was no room among the dead".to_owned()).await
    }

    async fn sent(&self, value: T) -> End {
        let kept = (!self.stored.record.name.is_empty()).then(|| {
            let until = self.office.clock.after(self.office.retention);
            ((self.office.keep)(&value), until)
        });
        let erased = self.erase(kept.clone()).await;
        answer(lock(&self.state).reply.take(), Ok(Delivery::Sent(value)));
        if erased.is_err() && self.insist(move |stored, draft| draft.erase(stored, kept.clone())).await.is_err() {
            return End::Stopped;
        }
        End::Sent
    }

    async fn failed(&self, error: Undelivered<E>) -> End {
        match error {
            Undelivered::Own(error) => self.end(words(&error), Error::Failed(error)).await,
            Undelivered::Unreadable(_) => self.bury(words(&error)).await,
        }
    }

    async fn gave_up(&self, reason: Refused, last: Option<Undelivered<E>>) -> End {
        let told =
            last.as_ref().map_or_else(|| reason.to_string(), |last| format!("{reason}; last error: {}", words(last)));
        let last = last.and_then(|last| match last {
            Undelivered::Own(error) => Some(error),
            Undelivered::Unreadable(_) => None,
        });
        self.end(told, Error::GaveUp { reason, last }).await
    }

    /// What a panic left behind nobody knows.
    async fn panicked(&self, message: String) -> End {
        {
            let progress = &mut lock(&self.state).progress;
            progress.in_flight = false;
            progress.maybe_delivered = true;
        }
        self.failed_again(Refused::Panicked { message }, None).await
    }

    /// The balancer did not start it, or not again, and that is not the message's fault.
    async fn cut_short(&self, reason: Refused, last: Option<Undelivered<E>>) -> End {
        let (began, fault) = {
            let state = lock(&self.state);
            (state.phase == Phase::Running, state.fault)
        };
        match (began, fault) {
            (false, _) => {}
            (true, Some(Fault::Wait(after))) => {
                let wait = after.unwrap_or_else(|| self.terms().policy.bare_wait.into());
                if !self.note(wait).await {
                    return End::Stopped;
                }
            }
            (true, Some(Fault::Failed)) => return self.failed_once_more(reason, last).await,
            // It ran for too long: what came of it nobody knows, as is written down.
            (true, None) if reason == Refused::RetryBudget => return self.failed_once_more(reason, last).await,
            (true, None) => {}
        }
        self.queued();
        refused(&reason)
    }

    /// A failure that the balancer follows with no attempt costs one all the same.
    async fn failed_once_more(&self, reason: Refused, last: Option<Undelivered<E>>) -> End {
        match self.failed_again(Refused::Attempts, last).await {
            End::Again { .. } => match refused(&reason) {
                End::Stopped => End::Stopped,
                End::Sent | End::Dead | End::Again { .. } | End::Parked => self.steps_out(),
            },
            end @ (End::Sent | End::Dead | End::Parked | End::Stopped) => end,
        }
    }

    /// An attempt failed: it is written down and comes again, or it was the last one.
    async fn failed_again(&self, reason: Refused, last: Option<Undelivered<E>>) -> End {
        let policy = self.terms().policy;
        let failures = {
            let spent = &mut lock(&self.state).progress.spent;
            spent.failures = spent.failures.saturating_add(1);
            spent.failures
        };
        if failures >= policy.attempts {
            return self.gave_up(reason, last).await;
        }
        self.queued();
        if self.note(policy.delay(failures, self.stored.record.id.0).into()).await {
            self.steps_out()
        } else {
            End::Stopped
        }
    }

    /// It comes again after its backoff, as is written down; others may pass, unless they are to be in order.
    fn steps_out(&self) -> End {
        End::Again { pause: Pause::Told, span: Duration::ZERO, in_order: self.terms().ordered }
    }

    /// Writes down how it went so far, and that it is to wait. Returns whether that is written.
    async fn note(&self, wait: Duration) -> bool {
        let progress = {
            let progress = &mut lock(&self.state).progress;
            progress.not_before = self.office.clock.after(wait);
            *progress
        };
        let noted = self.insist(move |stored, draft| {
            draft.note(stored, &progress);
            Ok(())
        });
        noted.await.is_ok()
    }

    /// No other attempt follows: whoever waits for it is told, or else it is kept among the dead.
    async fn end(&self, reason: String, error: Error<E>) -> End {
        // Whoever waited may have gone away, and relies on its being delivered or kept.
        let reply = lock(&self.state).reply.take().filter(|reply| !reply.is_closed());
        let Some(reply) = reply else { return self.bury(reason).await };
        let buried = self.buried(reason);
        let dead = buried.clone();
        match self.insist_on_burial(move |stored, draft| draft.give_back(stored, dead.clone())).await {
            Ok(burial) => {
                if reply.send(Err(error)).is_err() && burial == Burial::Erased {
                    // Whoever waited went away while it was erased.
                    self.office.events.tell(OutboxEvent::lost(&buried));
                }
                self.laid(burial, &buried).await
            }
            Err(_) => End::Stopped,
        }
    }

    async fn bury(&self, reason: String) -> End {
        let buried = self.buried(reason);
        let dead = buried.clone();
        match self.insist_on_burial(move |stored, draft| draft.bury(stored, dead.clone())).await {
            Ok(burial) => self.laid(burial, &buried).await,
            Err(_) => End::Stopped,
        }
    }

    fn buried(&self, reason: String) -> Buried {
        let progress = lock(&self.state).progress;
        let maybe_delivered = progress.maybe_delivered || progress.in_flight;
        let (died_at, record) = (self.office.clock.now(), (*self.stored.record).clone());
        Buried { died_at, starts: progress.starts, maybe_delivered, reason, record }
    }

    /// It is among the dead, or there was no room.
    async fn laid(&self, burial: Burial, buried: &Buried) -> End {
        match burial {
            Burial::Done(lost) => {
                if lost.iter().all(|lost| lost.record.id != buried.record.id) {
                    self.office.events.tell(OutboxEvent::died(buried));
                }
                lost.iter().for_each(|lost| self.office.events.tell(OutboxEvent::lost(lost)));
                self.unread(buried);
                End::Dead
            }
            Burial::Erased => End::Dead,
            Burial::Blocked => {
                self.office.events.tell(OutboxEvent::blocked(buried));
                self.unread(buried);
                let progress = lock(&self.state).progress;
                let maybe_delivered = buried.maybe_delivered;
                let progress = Progress { doomed: true, in_flight: false, maybe_delivered, ..progress };
                let wait: Duration = self.terms().policy.max_delay.into();
                let due = self.office.clock.after(wait.max(REST));
                let parked = self.insist(move |stored, draft| {
                    draft.note(stored, &progress);
                    draft.park(stored, due);
                    Ok(())
                });
                if parked.await.is_err() {
                    return End::Stopped;
                }
                let _ = self.office.inbox.send(Note::Due(due));
                End::Parked
            }
        }
    }

    /// Whoever waits for a message that can't even be read is told that it is stored, as it is.
    fn unread(&self, buried: &Buried) {
        answer(lock(&self.state).reply.take(), Ok(Delivery::Queued(buried.record.id)));
    }

    async fn erase(&self, kept: Option<(Vec<u8>, u64)>) -> Result<(), StoreError> {
        let stored = self.stored.clone();
        self.office.desk.write(move |draft| draft.erase(&stored, kept)).await
    }

    /// Buries it until that is written. What was told as failed may have been made: a second burial finds nothing to do
    /// then, and what was lost is what the first one lost.
    async fn insist_on_burial(
        &self,
        bury: impl Fn(&Stored, &mut Draft<'_>) -> Result<Option<Burial>, StoreError> + Clone + Send + 'static,
    ) -> Result<Burial, StoreError> {
        let known = Arc::new(Mutex::new(Burial::Done(Vec::new())));
        self.insist(move |stored, draft| {
            let burial = bury(stored, draft)?;
            let mut known = lock(&known);
            if let Some(burial) = burial {
                *known = burial;
            }
            Ok(known.clone())
        })
        .await
    }

    /// Writes until it is written, or nobody writes any more.
    async fn insist<R: Send + 'static>(
        &self,
        draft: impl Fn(&Stored, &mut Draft<'_>) -> Result<R, StoreError> + Clone + Send + 'static,
    ) -> Result<R, StoreError> {
        loop {
            let (stored, draft) = (self.stored.clone(), draft.clone());
            match self.office.desk.write(move |page| draft(&stored, page)).await {
                Err(StoreError::Closed) => return Err(StoreError::Closed),
                Err(error) => self.office.events.tell(OutboxEvent::StoreFailed { error }),
                Ok(done) => return Ok(done),
            }
            sleep(REST).await;
        }
    }
}

/// What follows from the balancer's not taking a message, or not again.
pub(super) fn refused(reason: &Refused) -> End {
    let again = |next_start| match next_start {
        NextStart::After(span) => End::again(Pause::Told, span),
        NextStart::Now | NextStart::WhenOneEnds => End::again(Pause::Told, REST),
        NextStart::Never => End::again(Pause::Told, PATIENCE),
    };
    match reason {
        Refused::Closed | Refused::Aborted | Refused::NoRuntime => End::Stopped,
        Refused::NoEndpoint { next_start } | Refused::NotNow { next_start } | Refused::MaxWait { next_start, .. } => {
            again(*next_start)
        }
        Refused::QueueFull { .. } | Refused::Displaced => End::again(Pause::Limits, REST),
        Refused::RetryBudget => End::again(Pause::Told, REST),
        Refused::UnknownRule { .. }
        | Refused::UnknownUnit { .. }
        | Refused::UnknownEndpoint { .. }
        | Refused::AliasCycle { .. }
        | Refused::RuleRemoved
        | Refused::CostTooHigh { .. }
        | Refused::Attempts
        | Refused::Waits
        | Refused::WaitTooLong { .. }
        | Refused::TimedOut
        | Refused::RetryNotAllowed
        | Refused::WouldDeadlock
        | Refused::Panicked { .. } => End::again(Pause::Told, PATIENCE),
    }
}

/// How an error shows itself, if it does.
fn words(error: &impl fmt::Display) -> String {
    // It is not used again if it panics.
    catch_unwind(AssertUnwindSafe(|| error.to_string())).unwrap_or_else(|_| "an error that can't be shown".to_owned())
}
