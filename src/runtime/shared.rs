//! What all handles of a balancer share: the machine behind its lock, the keys, the drivers.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::Instant as TokioInstant;

use super::afar::{Afar, Desk};
use super::aliases::Aliases;
use super::attempt::Endpoint;
use super::clock::{BEGIN, Clock};
use super::closing::Tally;
use super::driver::{self, Drivers, Next};
use super::event::Announcer;
use super::keys::{Hasher, Keys};
use super::live::{Live, Numbers};
use super::sync::{AtomicBool, Mutex, MutexGuard};
use super::{errands, nesting, wall};
use crate::engine::{self, EndpointId, Evicted, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, Turned};
use crate::error::{NextStart, Refused};
use crate::key::Key;
use crate::rules::Rules;

/// Everything behind the handles.
///
/// User code (wakers, drops of futures) never runs under the machine's lock.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The rules in force.
    pub(crate) live: ArcSwap<Live>,
    /// What the rules in force say of it: looked up at every poll.
    pub(super) nests: AtomicBool,
    pub(crate) numbers: Numbers,
    hasher: Hasher,
    pub(crate) aliases: Aliases,
    /// Whether endpoints come with values of the program's own.
    pub(crate) typed: AtomicBool,
    /// Whether endpoints came from code.
    pub(crate) coded: AtomicBool,
    pub(super) announcer: Announcer,
    /// What keeps limits for many processes.
    pub(super) afar: OnceLock<Arc<dyn Afar>>,
    /// Set once, before running attempts are told to stop: saves them a look into the machine at every poll.
    pub(crate) aborting: AtomicBool,
    /// Somebody who waits for the last attempt to end may look again.
    pub(crate) idle: Notify,
}

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) machine: Scheduler<Waker>,
    pub(crate) keys: Keys,
    pub(crate) drivers: Drivers,
    /// Attempts that run.
    pub(crate) in_flight: usize,
    /// Those of them that no future stands behind.
    pub(crate) permits: usize,
    /// What became of the requests since the balancer was closed.
    pub(crate) tally: Option<Tally>,
    pub(crate) desk: Desk,
    clock: Clock,
    seed: u64,
    pub(super) became_idle: bool,
}

impl Shared {
    pub(crate) fn new(rules: Rules, seed: u64) -> Self {
        let live = Live::new(rules);
        let mut machine = Scheduler::beginning_at(BEGIN, Arc::clone(&live.plan));
        machine.set_wall_clock(BEGIN, wall::now());
        let hasher = Hasher::default();
        Self {
            state: Mutex::new(State {
                machine,
                keys: Keys::new(hasher.clone()),
                drivers: Drivers::default(),
                in_flight: 0,
                permits: 0,
                tally: None,
                desk: Desk::default(),
                clock: Clock::new(),
                seed,
                became_idle: false,
            }),
            nests: AtomicBool::new(live.nests),
            live: ArcSwap::from_pointee(live),
            numbers: Numbers::default(),
            hasher,
            aliases: Aliases::default(),
            typed: AtomicBool::new(false),
            coded: AtomicBool::new(false),
            announcer: Announcer::default(),
            afar: OnceLock::new(),
            aborting: AtomicBool::new(false),
            idle: Notify::new(),
        }
    }

    /// The rule of this name.
    pub(crate) fn find(&self, name: &str) -> Result<RuleId, Refused> {
        self.live.load().find(name)
    }

    /// The rule of this name, or else the one for names that are none.
    pub(crate) fn find_or_default(&self, name: &str) -> Result<RuleId, Refused> {
        self.live.load().find_or_default(name)
    }

    /// The name of a rule.
    pub(crate) fn rule_name(&self, rule: RuleId) -> Arc<str> {
        Arc::clone(&self.live.load().rule(rule).name)
    }

    /// An endpoint, as attempts are told of it.
    #[cold]
    pub(crate) fn endpoint(&self, endpoint: EndpointId) -> Endpoint {
        Endpoint::new(self.live.load().endpoint(endpoint))
    }

    /// A running attempt cost another amount than was asked for.
    pub(crate) fn settle(&self, attempt: Option<RequestId>, unit: &str, actual: u32) -> Result<(), Refused> {
        let charge = self.live.load().unit(unit)?;
        if let Some(id) = attempt {
            self.with(|state, now| state.machine.settle(now, id, charge, actual));
        }
        Ok(())
    }

    /// Calls the machine at the present instant and sees to what follows.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.clock.read();
        // Whatever is due by now is seen to, even by who only looks.
        state.machine.stir();
        self.call(state, now, call)
    }

    /// The same for a call that most of the time leaves nothing to see to.
    #[cfg(feature = "headers")]
    pub(crate) fn with_quietly<R>(&self, call: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = state.clock.read();
        self.call(state, now, call)
    }

    /// The same at the end of an attempt, for a call that ends the request and says whom it would have woken. Where it does
    /// not `matter` how that ended, it may end without the call. The clock is read only if it matters, or for a limit that
    /// counts from there.
    pub(crate) fn with_end(
        &self,
        id: RequestId,
        is_permit: bool,
        matters: bool,
        call: impl FnOnce(&mut State, Instant) -> Option<Waker>,
    ) -> Option<Waker> {
        let mut state = self.lock();
        if let Some(waker) = state.end_at_once(id, is_permit, matters) {
            if state.machine.is_stirred() {
                let now = state.clock.latest();
                self.call(state, now, |_, _| ());
            }
            return waker;
        }
        let now = if matters || state.machine.counts_end(id) { state.clock.read() } else { state.clock.latest() };
        self.call(state, now, call)
    }

    fn call<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        now: Instant,
        call: impl FnOnce(&mut State, Instant) -> R,
    ) -> R {
        let result = call(&mut state, now);
        if state.has_news(now) && !errands::are_run_for(self) {
            // One turn is the caller's share; what is left is a driver's.
            if state.next_wake() <= now {
                state.machine.dispatch(now);
            }
            errands::run(self, state, now);
        }
        result
    }

    /// Starts a request that nothing is in the way of, if that can be seen at once, and says what the key's record is.
    /// `None` says nothing.
    pub(crate) fn start_at_once(&self, key: &Key, rule: RuleId, is_permit: bool) -> Option<(KeyId, RequestId)> {
        if self.nests.load(Ordering::Relaxed) || self.aliases.any() {
            return None;
        }
        let hash = self.hasher.hash(key);
        let mut state = self.lock();
        let record = state.keys.get(hash, key)?;
        let now = state.clock.read();
        // Whether anybody will tell when its time is over is found out the long way.
        if !is_permit && state.machine.plan().rules[usize::from(rule.0)].attempt_timeout.is_some() {
            return None;
        }
        let id = state.machine.start_at_once(now, record, rule)?;
        state.in_flight += 1;
        if is_permit {
            state.permits += 1;
        }
        Some((record, id))
    }

    /// Calls the machine with a key's record, made anew if the engine does not know it any more.
    pub(crate) fn with_record<R>(
        &self,
        key: &Key,
        mut call: impl FnMut(&mut State, Instant, KeyId) -> Result<R, Turned>,
    ) -> Result<R, Turned> {
        loop {
            let key = &*self.aliases.resolve(key);
            let hash = self.hasher.hash(key);
            let done = self.with(|state, now| {
                if let Some(known) = state.keys.get(hash, key) {
                    match call(state, now, known) {
                        Err(Turned::StaleKey) => {}
                        done => return Some(done),
                    }
                }
                // It may have become an alias meanwhile, and that may be why its record is gone. Who makes it one later
                // finds the record that is made here.
                if *self.aliases.resolve(key) != *key {
                    return None;
                }
                let record = state.machine.add_key(now, hash);
                state.keys.set(hash, key, record);
                if state.desk.is_there() {
                    state.desk.keys.insert(record, key.clone());
                }
                self.tell_own(state, now, key, record);
                Some(call(state, now, record))
            });
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// A record was joined with another one: its key has none any more.
    pub(super) fn forget_record(&self, key: &Key, record: KeyId) {
        let tag = self.hasher.hash(key);
        self.with(|state, _| state.forget(Evicted { tag, id: record }));
    }

    /// The keys that have a record.
    pub(crate) fn known_keys(&self) -> Vec<Key> {
        // Each table under a lock of its own: others get on between them.
        (0..).map_while(|part| self.lock().keys.of_part(part)).flatten().collect()
    }

    /// Asks the machine about a key and its record, if it has one. Where it stays with an endpoint it always has one, if
    /// only for a moment, as with which is known of a record.
    pub(super) fn ask_about<R>(&self, key: &Key, mut ask: impl FnMut(&mut State, Instant, Option<KeyId>) -> R) -> R {
        if self.live.load().is_sticky()
            && let Ok(answer) = self.with_record(key, |state, now, record| Ok(ask(state, now, Some(record))))
        {
            return answer;
        }
        let record = self.record(key);
        self.with(|state, now| ask(state, now, record))
    }

    /// The key's record if it has one.
    pub(crate) fn record(&self, key: &Key) -> Option<KeyId> {
        self.record_of(&self.aliases.resolve(key))
    }

    /// The record of a key that is no alias, if it has one.
    pub(super) fn record_of(&self, key: &Key) -> Option<KeyId> {
        let hash = self.hasher.hash(key);
        self.lock().keys.get(hash, key)
    }

    /// Whether somebody on this runtime can wait, now that a driver was started there if there was none.
    pub(crate) fn start_driver(self: &Arc<Self>, runtime: &Handle) -> bool {
        let id = runtime.id();
        let wake = self.lock().drivers.add(id);
        if let Some(wake) = wake {
            driver::start(self, runtime, wake);
        }
        self.man_desk(runtime);
        self.lock().serves(id)
    }

    /// The same, where there mostly is one.
    pub(crate) fn is_driven(self: &Arc<Self>, runtime: &Handle) -> bool {
        let served = self.lock().serves(runtime.id());
        served || self.start_driver(runtime)
    }

    /// A driver's turn.
    pub(crate) fn turn(&self, runtime: Id) -> Next {
        let mut state = self.lock();
        let now = state.clock.read();
        if state.next_wake() <= now {
            state.machine.dispatch(now);
        }
        let instant = state.next_wake();
        state.drivers.arm(runtime, instant);
        let next = match instant {
            Instant::NEVER => Next::Idle,
            _ if instant <= now => Next::Now,
            _ => Next::At(state.clock.at(instant)),
        };
        errands::run(self, state, now);
        next
    }

    /// A driver is gone: whoever waited for it must start another.
    pub(crate) fn driver_ended(&self, runtime: Id, useless: bool) {
        self.with(|state, _| {
            if useless {
                state.drivers.give_up(runtime);
            } else {
                state.drivers.remove(runtime);
            }
            state.machine.wake_waiting();
        });
    }

    /// The attempts of this balancer that are being polled on this thread, outermost first.
    pub(crate) fn ancestors(&self) -> Vec<RequestId> {
        if self.nests.load(Ordering::Relaxed) { nesting::ancestors(self.address()) } else { Vec::new() }
    }

    /// Remembers an attempt while `poll` polls it.
    pub(crate) fn polling<R>(&self, id: RequestId, poll: impl FnOnce() -> R) -> R {
        if self.nests.load(Ordering::Relaxed) { nesting::polling(self.address(), id, poll) } else { poll() }
    }

    pub(crate) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::Acquire)
    }

    /// What tells this balancer from all others that are alive.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // The machine stays usable after a panic: it is never left half changed by anything but a bug of its own.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.lock().drivers.wake_all();
        if let Some(afar) = self.afar.get() {
            afar.end();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("rules", &self.live.load().plan.rules.len()).finish_non_exhaustive()
    }
}

/// What there is to know of an attempt that begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Began {
    /// Whether it may only run for so long.
    pub(crate) limited: bool,
    /// What it uses, if there is a pool.
    pub(crate) endpoint: Option<EndpointId>,
}

/// For how long an attempt may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// It is a permit, behind which no future stands that could be dropped.
    Open,
    /// As its rule says.
    OfRule(RuleId),
    /// As the request says.
    Own(Nanos),
}

impl State {
    /// A seed for the next random draw: every one is another, and all follow from the balancer's.
    pub(crate) const fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.seed
    }

    /// An attempt began.
    pub(crate) fn began(&mut self, id: RequestId, term: Term) -> Began {
        self.in_flight += 1;
        let limited = match term {
            Term::Open => {
                self.permits += 1;
                false
            }
            Term::OfRule(rule) => match self.machine.plan().rules[usize::from(rule.0)].attempt_timeout {
                Some(longest) => self.limit(id, longest),
                None => false,
            },
            Term::Own(longest) => self.limit(id, longest),
        };
        Began { limited, endpoint: self.machine.endpoint_of(id) }
    }

    fn limit(&mut self, id: RequestId, longest: Nanos) -> bool {
        let is_limited = longest != Nanos::MAX;
        if is_limited {
            self.machine.limit_attempt(id, longest);
        }
        is_limited
    }

    /// Ends a request whose attempt ended and says whom it would have woken, if that is all there is to do.
    #[inline(always)]
    fn end_at_once(&mut self, id: RequestId, is_permit: bool, matters: bool) -> Option<Option<Waker>> {
        // Once it is closed somebody may wait for the last one to end.
        if matters || self.tally.is_some() {
            return None;
        }
        let waker = self.machine.end_at_once(id)?;
        self.ended(is_permit);
        Some(waker)
    }

    /// An attempt ended.
    #[inline]
    pub(crate) fn ended(&mut self, is_permit: bool) {
        self.in_flight -= 1;
        if is_permit {
            self.permits -= 1;
        }
        self.became_idle |= self.tally.is_some();
    }

    /// Counts what became of a request, once the balancer is closed.
    pub(crate) fn count(&mut self, how: impl FnOnce(&mut Tally)) {
        if let Some(tally) = &mut self.tally {
            how(tally);
        }
    }

    /// A record is gone.
    pub(super) fn forget(&mut self, gone: Evicted) {
        self.desk.forget(&gone);
        self.keys.forget(gone);
    }

    /// When it will be `instant`, on tokio's clock.
    pub(super) fn at(&self, instant: Instant) -> TokioInstant {
        self.clock.at(instant)
    }

    /// Whether "slow down" speaks against an endpoint.
    pub(crate) fn counts_retries(&self) -> bool {
        self.machine.plan().pool.as_ref().is_some_and(|pool| pool.breaker.counts_retries)
    }

    /// The name of an endpoint.
    pub(super) fn endpoint_name(&self, endpoint: EndpointId) -> Arc<str> {
        let plan = self.machine.plan().pool.as_ref();
        plan.and_then(|pool| pool.endpoints.get(usize::from(endpoint.0)))
            .map_or_else(|| "".into(), |endpoint| Arc::clone(&endpoint.name))
    }

    pub(super) fn next_wake(&self) -> Instant {
        self.machine.next_wake().unwrap_or(Instant::NEVER)
    }

    fn has_news(&mut self, now: Instant) -> bool {
        if !self.machine.is_stirred() && !self.became_idle {
            return false;
        }
        let next = self.next_wake();
        let news = next <= now
            || self.became_idle
            || self.drivers.late_for(next)
            || !self.machine.take_wakes().is_empty()
            || !self.machine.take_evicted().is_empty()
            || !self.machine.take_notices().is_empty()
            || self.calls_afar();
        if !news {
            self.machine.calm();
        }
        news
    }
}

impl NextStart {
    /// The engine's answer, counted from `now`.
    pub(crate) fn since(now: Instant, next: engine::NextStart) -> Self {
        match next {
            engine::NextStart::Now => Self::Now,
            engine::NextStart::At(instant) => match instant.since(now) {
                span if span.is_zero() => Self::Now,
                span => Self::After(span.into()),
            },
            engine::NextStart::WhenOneEnds => Self::WhenOneEnds,
            engine::NextStart::Never => Self::Never,
        }
    }
}
