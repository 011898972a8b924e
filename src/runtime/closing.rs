//! The end of a balancer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant as TokioInstant, Timeout, timeout_at};

use super::clock::from_now;
use super::shared::Shared;

/// How long attempts that were told to stop may take to notice.
const GRACE: Duration = Duration::from_millis(100);

/// What became of the requests that a balancer had when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Attempts that ran and came to their end.
    pub done: usize,
    /// Requests that stood in line, or wanted to go back there, and were refused with
    /// [`Refused::Closed`](crate::Refused::Closed).
    pub refused: usize,
    /// Attempts that were cut off: at the deadline, or by whoever dropped them.
    pub aborted: usize,
    /// Attempts that could not be ended: permits that somebody still has, futures that nobody polls.
    pub open: usize,
}

/// The count of what ended since the balancer was closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: usize,
    pub(crate) refused: usize,
    pub(crate) aborted: usize,
}

impl Shared {
    /// Refuses what waits and whatever comes, waits for what runs, and cuts it off at the deadline.
    pub(crate) async fn close(&self, deadline: Duration) -> Ended {
        let by = from_now(deadline);
        self.shut();
        if !self.emptied(by, |_| 0).await {
            self.abort();
            // Permits don't notice anything: there is no use in waiting for them.
            self.emptied(from_now(GRACE), |permits| permits).await;
        }
        self.close_desk();
        self.with(|state, _| {
            let Tally { done, refused, aborted } = state.tally.unwrap_or_default();
            Ended { done, refused, aborted, open: state.in_flight }
        })
    }

    /// Refuses what waits and whatever comes, and cuts off what runs.
    pub(crate) fn abort(&self) {
        self.shut();
        self.aborting.store(true, Ordering::Release);
        self.with(|state, _| state.machine.abort());
        self.close_desk();
    }

    /// Refuses what waits and whatever comes.
    fn shut(&self) {
        self.with(|state, now| {
            if state.tally.is_none() {
                let refused = state.machine.close(now);
                state.tally = Some(Tally { refused, ..Tally::default() });
            }
        });
    }

    /// Waits until no more attempts run than `rest` makes of the number of permits. Returns whether it came to that.
    async fn emptied(&self, by: TokioInstant, rest: impl Fn(usize) -> usize) -> bool {
        loop {
            let mut ended = pin!(self.idle.notified());
            ended.as_mut().enable();
            if self.with(|state, _| state.in_flight <= rest(state.permits)) {
                return true;
            }
            let in_time = match by_alarm(by, ended) {
                Some(ended) => ended.await.is_ok(),
                None => false,
            };
            if !in_time {
                return self.with(|state, _| state.in_flight <= rest(state.permits));
            }
        }
    }
}

/// Waits for something until an instant; `None` where nobody can, outside a runtime or on one without timers.
fn by_alarm<F: Future>(by: TokioInstant, awaited: F) -> Option<Timeout<F>> {
    Handle::try_current().ok()?;
    // That a runtime has no timers only shows in its panic.
    catch_unwind(AssertUnwindSafe(|| timeout_at(by, awaited))).ok()
}
