//! What follows from a call of the machine: wake-ups, evictions, an earlier alarm. Done outside the lock, in batches.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::Notify;

use super::event::Event;
use super::shared::{Shared, State};
use super::sync::{MutexGuard, thread_local};
use crate::engine::{Evicted, Instant};

/// How many wake-ups are carried out of the lock at a time.
const BATCH: usize = 32;

thread_local! {
    /// The balancer whose errands this thread runs.
    static OWNER: Cell<usize> = const { Cell::new(0) };
}

/// Runs the machine's errands until there are none.
#[cold]
pub(super) fn run<'a>(shared: &'a Shared, mut state: MutexGuard<'a, State>, now: Instant) {
    // A waker may call the machine. What follows from that is left to the loop below, or wakers that wake wakers would
    // pile up on the stack.
    let outer = OWNER.try_with(|owner| owner.replace(shared.address())).unwrap_or_default();
    loop {
        let mut errands = Errands::default();
        errands.collect(&mut state, now);
        drop(state);
        if !errands.carry_out(shared) {
            break;
        }
        state = shared.lock();
    }
    let _ = OWNER.try_with(|owner| owner.set(outer));
}

/// Whether this thread runs this balancer's errands already, further up the stack.
#[cold]
pub(super) fn are_run_for(shared: &Shared) -> bool {
    OWNER.try_with(|owner| owner.get() == shared.address()).unwrap_or_default()
}

/// What is to be done after the lock was let go.
#[derive(Default)]
struct Errands {
    wakes: [Option<Waker>; BATCH],
    evicted: [Option<Evicted>; BATCH],
    events: Vec<Event>,
    driver: Option<Arc<Notify>>,
    became_idle: bool,
    more: bool,
}

impl Errands {
    fn collect(&mut self, state: &mut State, now: Instant) {
        let wakes = state.machine.take_wakes();
        let count = wakes.len().min(BATCH);
        for (place, wake) in self.wakes.iter_mut().zip(wakes.drain(..count)) {
            *place = Some(wake);
        }
        self.more |= !wakes.is_empty();
        let evicted = state.machine.take_evicted();
        let count = evicted.len().min(BATCH);
        for (place, gone) in self.evicted.iter_mut().zip(evicted.drain(..count)) {
            *place = Some(gone);
        }
        self.more |= !evicted.is_empty();
        let notices = std::mem::take(state.machine.take_notices());
        self.events.extend(notices.into_iter().map(|notice| Event::of(notice, state)));
        self.became_idle = std::mem::take(&mut state.became_idle);
        let next = state.next_wake();
        self.driver = state.drivers.hasten(next);
        self.more |= self.driver.is_some();
        if next <= now && !state.drivers.any() {
            state.machine.dispatch(now);
            self.more = true;
        }
    }

    /// Returns whether there is more to collect.
    fn carry_out(self, shared: &Shared) -> bool {
        for gone in self.evicted.into_iter().flatten() {
            shared.keys.forget(gone);
        }
        for event in self.events {
            shared.tell(event);
        }
        if let Some(driver) = self.driver {
            driver.notify_one();
        }
        if self.became_idle {
            shared.idle.notify_waiters();
        }
        let mut more = self.more;
        for wake in self.wakes.into_iter().flatten() {
            // One owner's panic must not keep the others from being woken.
            let _ = catch_unwind(AssertUnwindSafe(|| wake.wake()));
            more = true;
        }
        more
    }
}
