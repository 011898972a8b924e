//! What keeps limits for many processes, as far as a balancer knows of it: somebody to be called when there is something
//! to ask, and to be told of holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::event::Event;
use super::shared::{Shared, State};
use crate::engine::{Evicted, KeyId};
use crate::key::Key;

/// Asks a store on a balancer's behalf, in tasks of its own.
pub(crate) trait Afar: fmt::Debug + Send + Sync {
    /// Whom to wake when there is something to ask.
    fn bell(&self) -> Arc<Notify>;

    /// Starts its tasks on a runtime, unless they run. They end with the balancer.
    fn start(&self, shared: &Arc<Shared>, runtime: &Handle);

    /// Something happened that others may have to know.
    fn tell(&self, shared: &Shared, event: &Event);

    /// The last handle of the balancer is gone.
    fn end(&self);
}

/// What the machine's owner knows of it.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    bell: Option<Arc<Notify>>,
    /// It was rung, and nobody has looked yet.
    rung: bool,
    /// Its tasks run.
    pub(crate) manned: bool,
    /// The keys of records.
    pub(crate) keys: HashMap<KeyId, Key>,
}

impl Desk {
    pub(super) const fn is_there(&self) -> bool {
        self.bell.is_some()
    }

    pub(super) fn forget(&mut self, gone: &Evicted) {
        if self.is_there() {
            self.keys.remove(&gone.id);
        }
    }
}

impl State {
    /// Whether the store is to be asked, and nobody was told so yet.
    pub(super) fn calls_afar(&self) -> bool {
        self.desk.is_there() && !self.desk.rung && self.machine.wants_store()
    }

    /// Who is to be told so, if it has not been done.
    pub(super) fn call_afar(&mut self) -> Option<Arc<Notify>> {
        if !self.calls_afar() {
            return None;
        }
        self.desk.rung = true;
        self.desk.bell.clone()
    }

    /// Somebody looks what there is to ask.
    pub(crate) const fn answer_bell(&mut self) {
        self.desk.rung = false;
    }

    /// Whether everything that waits on a runtime can be served there.
    pub(super) fn serves(&self, runtime: tokio::runtime::Id) -> bool {
        self.drivers.serve(runtime) && (!self.desk.is_there() || self.desk.manned)
    }
}

impl Shared {
    /// From now on limits that the rules share are kept by a store.
    pub(super) fn attach(&self, afar: Arc<dyn Afar>) {
        self.with(|state, now| {
            state.desk.bell = Some(afar.bell());
            state.machine.set_reach(now, crate::engine::Reach::Asked);
        });
        let _ = self.afar.set(afar);
    }

    /// Its tasks ended: whoever waits must start them anew.
    pub(crate) fn desk_left(&self) {
        self.with(|state, _| {
            state.desk.manned = false;
            state.machine.wake_waiting();
        });
    }
}
