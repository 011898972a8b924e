//! What balancers tell each other through a store: holds, breakers of endpoints, and what became of limits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tokio::time::{Instant as TokioInstant, sleep, timeout, timeout_at};

use super::driver::{Link, PATIENCE, PROBE};
use super::guarded::call;
use super::ledger::Ledger;
use super::store::{HeldPart, News};
use crate::engine::{HoldCause, Instant, KeyId, Opening, Reach, Scope, Site, Target, Turned, Word};
use crate::key::Key;
use crate::runtime::{Event, Locked as State, Shared};

impl Link {
    /// Something happened that others may have to know.
    pub(super) fn note_news(&self, shared: &Shared, event: &Event) {
        let is_shared = |rule: &Option<Arc<str>>| {
            let live = shared.live.load();
            match rule.as_ref().and_then(|rule| live.find(rule).ok()) {
                Some(rule) => live.plan.is_shared_by(live.rule(rule)),
                None => live.plan.is_shared(),
            }
        };
        let endpoint = |endpoint: &Arc<str>| HeldPart {
            scope: Scope::Endpoint,
            rule: None,
            key: None,
            endpoint: Some(Arc::clone(endpoint)),
        };
        let news = match event {
            Event::HoldStarted { scope, rule, key, lasts, .. } if is_shared(rule) => {
                News::Hold { held: held_part(*scope, rule, key), lasts: *lasts }
            }
            Event::HoldReleased { scope, rule, key } if is_shared(rule) => {
                News::Released { held: held_part(*scope, rule, key) }
            }
            Event::EndpointHeld { endpoint: name, lasts, .. } if is_shared(&None) => {
                News::Hold { held: endpoint(name), lasts: *lasts }
            }
            Event::EndpointReleased { endpoint: name } if is_shared(&None) => News::Released { held: endpoint(name) },
            Event::HoldStarted { .. }
            | Event::HoldReleased { .. }
            | Event::EndpointHeld { .. }
            | Event::EndpointReleased { .. }
            | Event::HoldCut { .. }
            | Event::BreakerOpened { .. }
            | Event::BreakerClosed { .. }
            | Event::EndpointDisabled { .. }
            | Event::EndpointEnabled { .. }
            | Event::RetryGaveUp { .. }
            | Event::NoRoom { .. }
            | Event::BanAhead { .. }
            | Event::BanOver
            | Event::LimitDiffers(_)
            | Event::StoreLost { .. }
            | Event::StoreBack
            | Event::StoreForgot { .. }
            | Event::RulesTaken { .. }
            | Event::RulesDiffer { .. }
            | Event::RulesUnreadable { .. }
            | Event::Missed { .. } => return,
        };
        self.note(news);
    }

    /// The others are to be told.
    pub(super) fn note(&self, news: News) {
        self.ledger().note(TokioInstant::now(), news);
        self.told.send_replace(());
    }

    /// Tells the others what is to be told, each thing until the store took it or it is over.
    pub(super) async fn tell_all(&self, shared: &Weak<Shared>) {
        let mut told = self.told.subscribe();
        loop {
            told.borrow_and_update();
            loop {
                let now = TokioInstant::now();
                let (next, aside) = self.ledger().next(now, now + PATIENCE * 2);
                self.heed_all(shared, aside);
                let Some(untold) = next else { break };
                let at = call(PATIENCE, || self.store.tell(self.process, untold.left())).await.ok();
                let aside = self.ledger().told(&untold, at);
                self.heed_all(shared, aside);
                if at.is_none() {
                    sleep(PROBE).await;
                }
            }
            // What another runtime tells may have stopped with it.
            let out = self.ledger().out_until();
            let changed = match out {
                Some(until) => timeout_at(until, told.changed()).await.unwrap_or(Ok(())),
                None => told.changed().await,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Tells what is untold, as far as there is time.
    pub(super) async fn tell_the_rest(&self) {
        self.ledger().give_up();
        let tell = async {
            loop {
                let now = TokioInstant::now();
                let (next, _) = self.ledger().next(now, now + PATIENCE * 2);
                let Some(untold) = next else { return };
                let Ok(at) = call(PATIENCE, || self.store.tell(self.process, untold.left())).await else { return };
                self.ledger().told(&untold, Some(at));
            }
        };
        let _ = timeout(PATIENCE, tell).await;
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what others tell. Where that breaks off the others may be without the store as well, though nothing was asked of
    /// it meanwhile that would have shown it: what they start of their parts it knows only after a while.
    pub(super) async fn hear_all(&self, shared: &Weak<Shared>) {
        while shared.strong_count() > 0 {
            if let Ok(mut ears) = call(PATIENCE * 5, || self.store.hear(self.process)).await {
                let hearing = self.begin_to_hear(shared);
                while let Some(heard) = ears.recv().await {
                    let news = self.ledger().hear(heard);
                    self.heed_all(shared, news);
                }
                self.hear_no_more(shared, hearing);
            }
            sleep(PROBE).await;
        }
    }

    /// News are heard, on one runtime more.
    fn begin_to_hear(&self, shared: &Weak<Shared>) -> Hearing<'_> {
        set_reach(shared, |reach, now| {
            self.hearing.fetch_add(1, Ordering::Relaxed);
            (reach == Reach::Back(Instant::NEVER)).then_some(Reach::Back(now))
        });
        if let Some(shared) = shared.upgrade() {
            // That there is room again may have been told while nobody heard it.
            shared.with(|state, now| state.machine.reopen_all(now));
        }
        Hearing(&self.hearing)
    }

    /// That broke off. If nobody else hears any, and parts are what others go on with, there is no more than a part here.
    fn hear_no_more(&self, shared: &Weak<Shared>, hearing: Hearing<'_>) {
        let goes_on = shared.upgrade().is_some_and(|shared| Self::reach_without(&shared) == Reach::Alone);
        set_reach(shared, move |reach, _| {
            drop(hearing);
            let is_last = self.hearing.load(Ordering::Relaxed) == 0;
            match reach {
                Reach::Asked | Reach::Back(_) if is_last && goes_on => Some(Reach::Back(Instant::NEVER)),
                Reach::Asked | Reach::Back(_) | Reach::Nowhere | Reach::Alone | Reach::Open | Reach::Closed => None,
            }
        });
    }

    fn heed_all(&self, shared: &Weak<Shared>, all: impl IntoIterator<Item = News>) {
        for news in all {
            if let Some(shared) = shared.upgrade() {
                self.heed(&shared, news);
            }
        }
    }

    /// The place of a limit of which the store said something of late.
    fn site(&self, name: &str) -> Option<Site> {
        self.memory().site(name)
    }

    /// Does what another process tells.
    fn heed(&self, shared: &Arc<Shared>, news: News) {
        match news {
            News::Hold { held, lasts } => at_target(shared, &held, true, |state, now, target| {
                state.machine.hold_because(now, target, now.saturating_add(lasts.into()), HoldCause::Retry)
            }),
            News::Released { held } => {
                at_target(shared, &held, false, |state, now, target| state.machine.release(now, target));
            }
            News::BreakerOpened { endpoint, lasts, rest, alone } => {
                let opening = Opening { lasts: lasts.into(), rest: rest.into(), alone };
                shared.with(|state, now| state.machine.heed(now, &Word::Opened { endpoint, opening }));
            }
            News::BreakerClosed { endpoint } => {
                shared.with(|state, now| state.machine.heed(now, &Word::Closed { endpoint }));
            }
            News::Ruled { .. } => {
                self.ruled.send_replace(());
            }
            News::Freed { name } => {
                if let Some(site) = self.site(&name) {
                    shared.with(|state, now| state.machine.reopen(now, site));
                }
            }
            News::Forgot { name, epoch } => {
                if self.memory().is_untold_to_all(&name, epoch)
                    && let Some(site) = self.site(&name)
                {
                    shared.with(|state, _| state.machine.recount(site));
                }
            }
        }
    }
}

/// Somebody hears news; not any more, when it goes.
struct Hearing<'a>(&'a AtomicUsize);

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Decides under the balancer's lock how it stands with the store.
fn set_reach(shared: &Weak<Shared>, decide: impl FnOnce(Reach, Instant) -> Option<Reach>) {
    if let Some(shared) = shared.upgrade() {
        shared.with(|state, now| {
            if let Some(reach) = decide(state.machine.reach(), now) {
                state.machine.set_reach(now, reach);
            }
        });
    }
}

fn held_part(scope: Scope, rule: &Option<Arc<str>>, key: &Option<Key>) -> HeldPart {
    let rule = rule.clone().filter(|_| matches!(scope, Scope::Rule | Scope::Queue));
    let key = key.clone().filter(|_| matches!(scope, Scope::Key | Scope::Queue));
    HeldPart { scope, rule, key, endpoint: None }
}

/// Calls the machine with what is held, if there is such a thing here. A key without a record gets one only `to_hold`.
fn at_target(shared: &Arc<Shared>, held: &HeldPart, to_hold: bool, act: impl Fn(&mut State, Instant, Target) -> bool) {
    let rule = held.rule.as_ref().and_then(|rule| shared.find(rule).ok());
    let at_key =
        |target: &dyn Fn(KeyId) -> Target| {
            let Some(key) = &held.key else { return };
            if to_hold {
                let _: Result<(), Turned> = shared.with_record(key, |state, now, record| {
                    if act(state, now, target(record)) { Ok(()) } else { Err(Turned::StaleKey) }
                });
            } else if let Some(record) = shared.record(key) {
                shared.with(|state, now| act(state, now, target(record)));
            }
        };
    match (held.scope, rule) {
        (Scope::Overall, _) => drop(shared.with(|state, now| act(state, now, Target::Overall))),
        (Scope::Rule, Some(rule)) => drop(shared.with(|state, now| act(state, now, Target::Rule(rule)))),
        (Scope::Endpoint, _) => shared.with(|state, now| {
            // Under the lock: its place may be another's the next time.
            if let Some(Ok(id)) = held.endpoint.as_ref().map(|name| shared.live.load().find_endpoint(name)) {
                act(state, now, Target::Endpoint(id));
            }
        }),
        (Scope::Key, _) => at_key(&Target::Key),
        (Scope::Queue, Some(rule)) => at_key(&|record| Target::Queue(rule, record)),
        (Scope::Rule | Scope::Queue, None) | (Scope::Request, _) => {}
    }
}
