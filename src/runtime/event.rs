//! What a balancer tells whoever wants to hear it: holds, requests given up, a ban ahead.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant as TokioInstant;

use super::observe::LimitDifference;
use super::shared::{Shared, State};
use super::{meters, watch};
use crate::engine::{self, HoldCause, Instant, Nanos, Notice, Scope};
use crate::error::Refused;
use crate::key::Key;

/// How many events a receiver may be behind.
const KEPT: usize = 256;

/// What a balancer tells of its own accord.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A hold began, or one that was on became longer. It ends at `until` unless it is released or extended.
    HoldStarted {
        /// What is held.
        scope: Scope,
        /// The rule that is held, or that of the attempt that brought it about.
        rule: Option<Arc<str>>,
        /// The key that is held, or that of the attempt that brought it about.
        key: Option<Key>,
        /// Who wanted it.
        cause: HoldCause,
        /// How long it is from now.
        lasts: Duration,
        /// When it ends.
        until: TokioInstant,
    },
    /// A hold was wanted that is longer than any may be; it was cut to that.
    HoldCut {
        /// What is held.
        scope: Scope,
        /// As in [`HoldStarted`](Self::HoldStarted).
        rule: Option<Arc<str>>,
        /// As in [`HoldStarted`](Self::HoldStarted).
        key: Option<Key>,
        /// How long it should have been.
        wanted: Duration,
        /// The longest there may be.
        allowed: Duration,
    },
    /// A hold was ended by [`release`](crate::Balancer::release).
    HoldReleased {
        /// What was held.
        scope: Scope,
        /// The rule that was held.
        rule: Option<Arc<str>>,
        /// The key that was held.
        key: Option<Key>,
    },
    /// An endpoint is held, or for longer than it was: nothing starts on it before `until` unless it is released.
    EndpointHeld {
        /// Its name.
        endpoint: Arc<str>,
        /// Who wanted it.
        cause: HoldCause,
        /// How long it is from now.
        lasts: Duration,
        /// When it ends.
        until: TokioInstant,
    },
    /// The hold of an endpoint was ended by [`release`](crate::Balancer::release).
    EndpointReleased {
        /// Its name.
        endpoint: Arc<str>,
    },
    /// An endpoint gets a rest: its attempts failed, its quota is spent, or somebody wants it.
    BreakerOpened {
        /// Its name.
        endpoint: Arc<str>,
        /// How long from now.
        lasts: Duration,
        /// When it is tried again.
        until: TokioInstant,
    },
    /// An endpoint works again.
    BreakerClosed {
        /// Its name.
        endpoint: Arc<str>,
    },
    /// An endpoint is used no more until it is enabled.
    EndpointDisabled {
        /// Its name.
        endpoint: Arc<str>,
    },
    /// An endpoint that was disabled is used again.
    EndpointEnabled {
        /// Its name.
        endpoint: Arc<str>,
    },
    /// An attempt failed and no other follows, as the retry policy has it.
    RetryGaveUp {
        /// The request's rule.
        rule: Arc<str>,
        /// Its key.
        key: Key,
        /// How many attempts were made.
        attempts: u32,
        /// Why no other follows.
        reason: Refused,
    },
    /// A request found no room in line, or lost its place there to a newer one.
    NoRoom {
        /// The request's rule.
        rule: Arc<str>,
        /// Its key.
        key: Key,
        /// [`QueueFull`](Refused::QueueFull) or [`Displaced`](Refused::Displaced).
        reason: Refused,
    },
    /// So many attempts were invalid that nothing starts any more: the level of `ban_guard` is reached.
    BanAhead {
        /// The level.
        level: u32,
        /// In how long so many attempts were invalid.
        period: Duration,
        /// When they will be fewer, if no more come.
        until: TokioInstant,
    },
    /// The invalid attempts of late are below the level of `ban_guard` again.
    BanOver,
    /// The server has another number for a limit than the rules, seen for the first time for this limit and this window of
    /// the server's; further numbers stand in the snapshot.
    LimitDiffers(LimitDifference),
    /// The store that keeps shared limits does not answer; the balancer does what `on_outage` says.
    StoreLost {
        /// Why, as far as is known.
        why: Arc<str>,
    },
    /// The store answers again.
    StoreBack,
    /// The store forgot a limit: its window began anew, with what this balancer remembers.
    StoreForgot {
        /// The limit's name in the store.
        limit: Arc<str>,
    },
    /// Another process has rules of a higher version, which are in force from now on.
    RulesTaken {
        /// Their version.
        version: u64,
    },
    /// Another process has other rules of the same version; nothing changes.
    RulesDiffer {
        /// The version.
        version: u64,
    },
    /// What the store keeps as rules can't be read, or says another version of itself; nothing changes.
    RulesUnreadable {
        /// The version that it is kept under.
        version: u64,
        /// What is wrong with it.
        why: Arc<str>,
    },
    /// The receiver was too slow: so many events are lost to it.
    Missed {
        /// How many.
        events: u64,
    },
}

/// Receives what a balancer tells, from [`Balancer::events`](crate::Balancer::events) on.
///
/// The balancer never waits for a receiver: one that is more than 256 events behind loses the oldest and gets
/// [`Event::Missed`] in their place.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
}

impl Events {
    /// The next event; `None` once the balancer is gone and everything was received.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, it loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(events)) => Some(Event::Missed { events }),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next event if it is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(events)) => Some(Event::Missed { events }),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Where events go.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    /// Made for the first receiver.
    sender: std::sync::OnceLock<broadcast::Sender<Event>>,
}

impl Announcer {
    fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::Sender::new(KEPT));
        Events { receiver: sender.subscribe() }
    }

    /// Whether anybody has ever wanted to hear anything.
    pub(super) fn is_heard(&self) -> bool {
        self.sender.get().is_some()
    }

    fn announce(&self, event: Event) {
        if let Some(sender) = self.sender.get() {
            // Nobody listens any more: nothing is lost.
            let _ = sender.send(event);
        }
    }
}

impl Shared {
    pub(crate) fn events(self: &Arc<Self>) -> Events {
        // The end of a ban guard comes by itself, whether anything waits or not.
        if let Ok(runtime) = Handle::try_current() {
            self.start_driver(&runtime);
        }
        self.announcer.subscribe()
    }

    /// Tells an event. Not under the lock.
    pub(crate) fn tell(&self, event: Event) {
        watch::log(&event);
        meters::count(&event);
        if let Some(afar) = self.afar.get() {
            afar.tell(self, &event);
        }
        self.announcer.announce(event);
    }

    /// Tells of a hold, if there is anything new about it.
    pub(crate) fn tell_hold(
        &self,
        held: Option<NewHold>,
        scope: Scope,
        whose: impl FnOnce() -> (Option<Arc<str>>, Option<Key>),
    ) {
        let Some(NewHold { started, cut }) = held else { return };
        let (rule, key) = whose();
        if let Some((lasts, until, cause)) = started {
            let (rule, key) = (rule.clone(), key.clone());
            self.tell(Event::HoldStarted { scope, rule, key, cause, lasts, until });
        }
        if let Some((wanted, allowed)) = cut {
            self.tell(Event::HoldCut { scope, rule, key, wanted, allowed });
        }
    }
}

impl Shared {
    /// Tells of the hold of an endpoint, if there is anything new about it.
    pub(crate) fn tell_endpoint_hold(&self, held: Option<NewHold>, endpoint: Arc<str>) {
        let Some(NewHold { started, cut }) = held else { return };
        if let Some((lasts, until, cause)) = started {
            self.tell(Event::EndpointHeld { endpoint, cause, lasts, until });
        }
        if let Some((wanted, allowed)) = cut {
            self.tell(Event::HoldCut { scope: Scope::Endpoint, rule: None, key: None, wanted, allowed });
        }
    }
}

/// A hold that is about to be set.
pub(crate) struct Holding {
    target: engine::Target,
    before: Option<Instant>,
    wanted: Nanos,
}

/// What was new about a hold.
pub(crate) struct NewHold {
    started: Option<(Duration, TokioInstant, HoldCause)>,
    cut: Option<(Duration, Duration)>,
}

impl Holding {
    /// Looks at the target before it is held for the span that is wanted.
    pub(crate) fn new(state: &State, now: Instant, target: engine::Target, wanted: Nanos) -> Self {
        let before = state.machine.held(now, target).map(|held| held.until);
        Self { target, before, wanted }
    }

    /// What is new now that it is held.
    pub(crate) fn done(self, state: &State, now: Instant) -> Option<NewHold> {
        let Self { target, before, wanted } = self;
        let held = state.machine.held(now, target).filter(|held| Some(held.until) > before);
        let started = held.map(|held| (held.until.since(now).into(), state.at(held.until), held.cause));
        let allowed = state.machine.plan().max_hold;
        let cut = (target != engine::Target::Request && wanted > allowed).then(|| (wanted.into(), allowed.into()));
        (started.is_some() || cut.is_some()).then_some(NewHold { started, cut })
    }
}

impl Event {
    pub(super) fn of(notice: Notice, now: Instant, state: &State) -> Self {
        match notice {
            Notice::BanAhead { level, period, until } => {
                Self::BanAhead { level, period: period.into(), until: state.at(until) }
            }
            Notice::BanOver => Self::BanOver,
            Notice::BreakerOpened { endpoint, until } => {
                let lasts = until.since(now).into();
                Self::BreakerOpened { endpoint: state.endpoint_name(endpoint), lasts, until: state.at(until) }
            }
            Notice::BreakerClosed { endpoint } => Self::BreakerClosed { endpoint: state.endpoint_name(endpoint) },
            Notice::EndpointDisabled { endpoint } => Self::EndpointDisabled { endpoint: state.endpoint_name(endpoint) },
            Notice::EndpointEnabled { endpoint } => Self::EndpointEnabled { endpoint: state.endpoint_name(endpoint) },
            Notice::LimitDiffers(difference) => Self::LimitDiffers(LimitDifference::from(&*difference)),
        }
    }
}
