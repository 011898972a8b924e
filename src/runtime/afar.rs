//! What keeps limits for many processes, as far as a balancer knows of it: somebody to be called when there is something
//! to ask, and to be told of holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use super::event::Event;
use super::shared::{Shared, State};
use crate::engine::{Evicted, Instant, KeyId, Word};
use crate::key::Key;
use crate::rules::Rules;

/// Makes what asks a store: each balancer has one of its own.
pub(crate) trait Afield: fmt::Debug + Send + Sync {
    /// For a balancer with these rules.
    fn afar(&self, rules: &Rules) -> Arc<dyn Afar>;
}

/// Asks a store on a balancer's behalf, in tasks of its own.
pub(crate) trait Afar: fmt::Debug + Send + Sync {
    /// Starts its tasks on a runtime, where the bell is rung when there is something to ask. They end with the balancer.
    fn start(&self, shared: &Arc<Shared>, runtime: &Handle, bell: Arc<Notify>);

    /// Something happened that others may have to know.
    fn tell(&self, shared: &Shared, event: &Event);

    /// The machine has something to tell the others.
    fn pass_on(&self, word: Word);

    /// Other rules are in force.
    fn rules_changed(&self);

    /// The last handle of the balancer is gone, or it is closed and nothing runs any more.
    fn end(&self);
}

/// What the machine's owner knows of it.
///
/// There are tasks on each runtime on which something waits, as there are drivers: one that nobody blocks on stands still.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    open: bool,
    /// The bells were rung, and nobody has looked yet.
    rung: bool,
    /// The runtimes on which tasks run.
    posts: Vec<Id>,
    /// Whom to wake there, in the same order.
    bells: Arc<[Arc<Notify>]>,
    /// The question that is on its way.
    out: Option<Out>,
    sent: u64,
    /// The keys of records.
    pub(crate) keys: HashMap<KeyId, Key>,
}

#[derive(Debug)]
struct Out {
    number: u64,
    runtime: Id,
    /// When it is given up by whoever looks.
    until: Instant,
}

impl Desk {
    pub(super) const fn is_there(&self) -> bool {
        self.open
    }

    /// A question goes out from a runtime. Returns its number.
    pub(crate) fn send(&mut self, runtime: Id, until: Instant) -> u64 {
        self.sent += 1;
        self.out = Some(Out { number: self.sent, runtime, until });
        self.sent
    }

    /// Whether a question has not been given up since it went out; it is not out any more.
    pub(crate) fn takes_back(&mut self, number: u64) -> bool {
        self.out.take_if(|out| out.number == number).is_some()
    }

    /// The question that is out is given up.
    pub(crate) fn give_up(&mut self) {
        self.out = None;
    }

    /// Until when there is a question out.
    pub(crate) fn out_until(&self) -> Option<Instant> {
        self.out.as_ref().map(|out| out.until)
    }

    /// A bell for a runtime on which there is none.
    fn man(&mut self, runtime: Id) -> Option<Arc<Notify>> {
        if !self.open || self.posts.contains(&runtime) {
            return None;
        }
        let bell = Arc::new(Notify::new());
        self.posts.push(runtime);
        self.bells = self.bells.iter().cloned().chain([Arc::clone(&bell)]).collect();
        Some(bell)
    }

    fn leave(&mut self, runtime: Id) {
        if let Some(position) = self.posts.iter().position(|post| *post == runtime) {
            self.posts.remove(position);
            let bells = self.bells.iter().enumerate().filter(|(at, _)| *at != position);
            self.bells = bells.map(|(_, bell)| Arc::clone(bell)).collect();
        }
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
        self.desk.open && !self.desk.rung && self.machine.wants_store()
    }

    /// Who is to be told so, if it has not been done.
    pub(super) fn call_afar(&mut self) -> Option<Arc<[Arc<Notify>]>> {
        if !self.calls_afar() {
            return None;
        }
        self.desk.rung = true;
        Some(Arc::clone(&self.desk.bells))
    }

    /// Somebody looks what there is to ask.
    pub(crate) const fn answer_bell(&mut self) {
        self.desk.rung = false;
    }

    /// Whether everything that waits on a runtime can be served there.
    pub(super) fn serves(&self, runtime: Id) -> bool {
        self.drivers.serve(runtime) && (!self.desk.open || self.desk.posts.contains(&runtime))
    }
}

impl Shared {
    /// From now on limits that the rules share are kept by a store.
    pub(super) fn attach(&self, afar: Arc<dyn Afar>) {
        self.with(|state, now| {
            state.desk.open = true;
            state.machine.set_reach(now, crate::engine::Reach::Asked);
        });
        let _ = self.afar.set(afar);
    }

    /// Starts its tasks on a runtime, unless they run.
    pub(super) fn man_desk(self: &Arc<Self>, runtime: &Handle) {
        let Some(afar) = self.afar.get() else { return };
        let bell = self.lock().desk.man(runtime.id());
        if let Some(bell) = bell {
            afar.start(self, runtime, bell);
        }
    }

    /// The same on this runtime, if there is one and anything is shared: what is so from now on is told to the store before
    /// anybody asks for it.
    pub(super) fn man_desk_here(self: &Arc<Self>) {
        if self.live.load().plan.is_shared()
            && let Ok(runtime) = Handle::try_current()
        {
            self.man_desk(&runtime);
        }
    }

    /// Its tasks on a runtime ended, perhaps with a question out: whoever waits must start them anew.
    pub(crate) fn desk_left(&self, runtime: Id) {
        self.with(|state, now| {
            state.desk.leave(runtime);
            if state.desk.out.take_if(|out| out.runtime == runtime).is_some() {
                state.machine.fail(now);
            }
            state.machine.wake_waiting();
        });
    }

    /// Ends its tasks if the balancer is closed and nothing runs.
    pub(super) fn close_desk(&self) {
        let Some(afar) = self.afar.get() else { return };
        let is_over = self.with(|state, _| {
            let is_over = state.tally.is_some() && state.in_flight == 0;
            state.desk.open &= !is_over;
            is_over
        });
        if is_over {
            afar.end();
        }
    }
}
