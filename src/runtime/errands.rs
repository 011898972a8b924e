//! What follows from a call of the machine: wake-ups, events, an earlier alarm. Done outside the lock, in batches.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::Notify;

use super::event::Event;
use super::shared::{Shared, State};
use super::sync::{MutexGuard, thread_local};
use crate::engine::{Instant, Word};

/// How many wake-ups are carried out of the lock without memory of their own.
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
    let _turn = OwnersTurn::of(shared);
    loop {
        let mut errands = Errands::default();
        errands.collect(&mut state, now);
        drop(state);
        if !errands.carry_out(shared) {
            break;
        }
        state = shared.lock();
    }
}

/// Whether this thread runs this balancer's errands already, further up the stack.
#[cold]
pub(super) fn are_run_for(shared: &Shared) -> bool {
    OWNER.try_with(|owner| owner.get() == shared.address()).unwrap_or_default()
}

/// While a thread runs a balancer's errands. Ends however they end, or nothing on this thread would run any again.
struct OwnersTurn {
    outer: usize,
}

impl OwnersTurn {
    fn of(shared: &Shared) -> Self {
        Self { outer: OWNER.try_with(|owner| owner.replace(shared.address())).unwrap_or_default() }
    }
}

impl Drop for OwnersTurn {
    fn drop(&mut self) {
        let _ = OWNER.try_with(|owner| owner.set(self.outer));
    }
}

/// Runs code that is not the balancer's own: a panic of it, which the panic hook has shown, must not keep the others
/// from being woken.
fn apart(run: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(run));
}

/// What is to be done after the lock was let go.
#[derive(Default)]
struct Errands {
    wakes: [Option<Waker>; BATCH],
    /// All of them instead, where they are more than that: taking them bit by bit would move the rest each time.
    many_wakes: Vec<Waker>,
    events: Vec<Event>,
    words: Vec<Word>,
    driver: Option<Arc<Notify>>,
    bells: Option<Arc<[Arc<Notify>]>>,
    became_idle: bool,
    more: bool,
}

impl Errands {
    fn collect(&mut self, state: &mut State, now: Instant) {
        let wakes = state.machine.take_wakes();
        if wakes.len() > BATCH {
            self.many_wakes = std::mem::take(wakes);
        }
        for (place, wake) in self.wakes.iter_mut().zip(wakes.drain(..)) {
            *place = Some(wake);
        }
        let State { machine, keys, desk, .. } = state;
        for gone in machine.take_evicted().drain(..) {
            desk.forget(&gone);
            keys.forget(gone);
        }
        let notices = std::mem::take(state.machine.take_notices());
        self.events.extend(notices.into_iter().map(|notice| Event::of(notice, now, state)));
        self.words = state.machine.take_words();
        self.became_idle = std::mem::take(&mut state.became_idle);
        self.bells = state.call_afar();
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
        for event in self.events {
            apart(|| shared.tell(event));
        }
        if let Some(afar) = shared.afar.get() {
            self.words.into_iter().for_each(|word| apart(|| afar.pass_on(word)));
        }
        if let Some(driver) = self.driver {
            apart(|| driver.notify_one());
        }
        for bell in self.bells.iter().flat_map(|bells| bells.iter()) {
            apart(|| bell.notify_one());
        }
        if self.became_idle {
            apart(|| shared.idle.notify_waiters());
            apart(|| shared.close_desk());
        }
        let mut more = self.more;
        for wake in self.wakes.into_iter().flatten().chain(self.many_wakes) {
            apart(|| wake.wake());
            more = true;
        }
        more
    }
}
