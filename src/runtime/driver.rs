//! The tasks that sleep until the engine wants to be called, one on each runtime on which something waits.
//!
//! One would do if every runtime that exists were also being run. A `current_thread` runtime that nobody blocks on
//! stands still, and a driver on it would let everybody wait for ever.

use std::sync::{Arc, Weak};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant as TokioInstant, timeout_at};

use super::shared::Shared;
use crate::engine::Instant;

/// What the machine's owner knows of the drivers.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    runtime: Id,
    condition: Condition,
    wake: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// It calls the engine at this instant, if not before.
    Armed(Instant),
    /// Its runtime has no timers.
    Useless,
}

impl Drivers {
    /// Whether somebody on this runtime can wait.
    pub(crate) fn serve(&self, runtime: Id) -> bool {
        self.slots.iter().any(|slot| slot.runtime == runtime && slot.condition != Condition::Useless)
    }

    pub(crate) fn any(&self) -> bool {
        self.slots.iter().any(|slot| slot.condition != Condition::Useless)
    }

    /// Whether somebody must be woken to be in time for `next`.
    pub(crate) fn late_for(&self, next: Instant) -> bool {
        self.slots.iter().any(|slot| slot.late_for(next))
    }

    /// Arms the first driver that would be late for `next`; it is to be woken.
    pub(crate) fn hasten(&mut self, next: Instant) -> Option<Arc<Notify>> {
        let slot = self.slots.iter_mut().find(|slot| slot.late_for(next))?;
        slot.condition = Condition::Armed(next);
        Some(Arc::clone(&slot.wake))
    }

    pub(super) fn arm(&mut self, runtime: Id, next: Instant) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.runtime == runtime) {
            slot.condition = Condition::Armed(next);
        }
    }

    pub(super) fn wake_all(&self) {
        for slot in &self.slots {
            slot.wake.notify_one();
        }
    }

    /// A place for a driver that is about to be spawned; `None` if there is one.
    pub(super) fn add(&mut self, runtime: Id) -> Option<Arc<Notify>> {
        if self.slots.iter().any(|slot| slot.runtime == runtime) {
            return None;
        }
        let wake = Arc::new(Notify::new());
        // It looks at the engine first of all, so there is no need to wake it for anything.
        self.slots.push(Slot { runtime, condition: Condition::Armed(Instant::ZERO), wake: Arc::clone(&wake) });
        Some(wake)
    }

    pub(super) fn remove(&mut self, runtime: Id) {
        self.slots.retain(|slot| slot.runtime != runtime);
    }

    pub(super) fn give_up(&mut self, runtime: Id) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.runtime == runtime) {
            slot.condition = Condition::Useless;
        }
    }
}

impl Slot {
    fn late_for(&self, next: Instant) -> bool {
        matches!(self.condition, Condition::Armed(instant) if instant > next)
    }
}

/// When a driver is to call again.
#[derive(Debug)]
pub(crate) enum Next {
    /// At once: the engine has more to do.
    Now,
    At(TokioInstant),
    /// When it is woken.
    Idle,
}

/// Starts a driver on this runtime. It ends with the balancer's last handle or with the runtime.
pub(crate) fn start(shared: &Arc<Shared>, runtime: &Handle, wake: Arc<Notify>) {
    let post = Post { shared: Arc::downgrade(shared), runtime: runtime.id(), sets_timer: false };
    drop(runtime.spawn(drive(post, wake)));
}

async fn drive(mut post: Post, wake: Arc<Notify>) {
    while let Some(shared) = post.shared.upgrade() {
        let next = shared.turn(post.runtime);
        drop(shared);
        match next {
            Next::Now => yield_now().await,
            // Whether it slept to the end does not matter: the next turn looks at the clock.
            Next::At(instant) => {
                post.sets_timer = true;
                let nap = timeout_at(instant, wake.notified());
                post.sets_timer = false;
                drop(nap.await);
            }
            Next::Idle => wake.notified().await,
        }
    }
}

/// Reports a driver's end, however it comes about.
struct Post {
    shared: Weak<Shared>,
    runtime: Id,
    /// A runtime that was built without timers panics over that, and will again.
    sets_timer: bool,
}

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.driver_ended(self.runtime, self.sets_timer);
        }
    }
}
