//! What balancers tell each other through a store: holds, and what became of limits.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tokio::time::{Instant as TokioInstant, sleep, timeout};

use super::driver::{Link, PATIENCE, PROBE};
use super::store::News;
use crate::engine::{HoldCause, Instant, Scope, Site, Target, Turned};
use crate::runtime::{Event, Locked as State, Shared};

/// News that wait to be told; what comes beyond is not told.
const UNTOLD: usize = 1_024;

/// A hold that the others are to be told of, for as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    until: TokioInstant,
    news: News,
}

impl Hold {
    /// With what is left of it.
    fn left(&self) -> News {
        let mut news = self.news.clone();
        if let News::Hold { lasts, .. } = &mut news {
            *lasts = self.until - TokioInstant::now();
        }
        news
    }
}

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
        let (lasts, news) = match event {
            Event::HoldStarted { scope, rule, key, lasts, .. } if is_shared(rule) => {
                let rule = rule.clone().filter(|_| matches!(scope, Scope::Rule | Scope::Queue));
                let key = key.clone().filter(|_| matches!(scope, Scope::Key | Scope::Queue));
                match scope {
                    Scope::Request => return,
                    Scope::Queue | Scope::Key | Scope::Rule | Scope::Overall | Scope::Endpoint => {}
                }
                (*lasts, News::Hold { scope: *scope, rule, key, endpoint: None, lasts: *lasts })
            }
            Event::EndpointHeld { endpoint, lasts, .. } if is_shared(&None) => {
                let endpoint = Some(Arc::clone(endpoint));
                (*lasts, News::Hold { scope: Scope::Endpoint, rule: None, key: None, endpoint, lasts: *lasts })
            }
            _ => return,
        };
        let hold = Hold { until: TokioInstant::now() + lasts, news };
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < UNTOLD {
            all.push_back(hold);
        }
        drop(all);
        self.told.send_replace(());
    }

    /// Tells the others what is to be told, each thing until the store took it or it is over.
    pub(super) async fn tell_all(&self) {
        let mut told = self.told.subscribe();
        loop {
            told.borrow_and_update();
            while let Some(hold) = self.first_hold() {
                if let Ok(Ok(())) = timeout(PATIENCE, self.store.tell(self.process, hold.left())).await {
                    self.news().retain(|other| *other != hold);
                } else {
                    sleep(PROBE).await;
                }
            }
            if told.changed().await.is_err() {
                return;
            }
        }
    }

    fn news(&self) -> MutexGuard<'_, VecDeque<Hold>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first hold that is to be told and is not over.
    fn first_hold(&self) -> Option<Hold> {
        let now = TokioInstant::now();
        let mut news = self.news();
        while news.front().is_some_and(|hold| hold.until <= now) {
            news.pop_front();
        }
        news.front().cloned()
    }

    /// Hears what others tell.
    pub(super) async fn hear_all(&self, shared: &Weak<Shared>) {
        while shared.strong_count() > 0 {
            if let Ok(Ok(mut ears)) = timeout(PATIENCE * 5, self.store.hear(self.process)).await {
                while let Some(news) = ears.recv().await {
                    let Some(shared) = shared.upgrade() else { return };
                    self.heed(&shared, news);
                }
            }
            sleep(PROBE).await;
        }
    }

    /// The place of a limit of which the store said something of late.
    fn site(&self, name: &str) -> Option<Site> {
        self.memory().site(name)
    }

    /// Does what another process tells.
    fn heed(&self, shared: &Arc<Shared>, news: News) {
        match news {
            News::Hold { scope, rule, key, endpoint, lasts } => {
                let hold = |state: &mut State, now: Instant, target: Target| {
                    state.machine.hold_because(now, target, now.saturating_add(lasts.into()), HoldCause::Retry)
                };
                let rule = rule.and_then(|rule| shared.find(&rule).ok());
                match (scope, rule, key) {
                    (Scope::Overall, ..) => {
                        shared.with(|state, now| hold(state, now, Target::Overall));
                    }
                    (Scope::Rule, Some(rule), _) => {
                        shared.with(|state, now| hold(state, now, Target::Rule(rule)));
                    }
                    (Scope::Endpoint, ..) => {
                        let live = shared.live.load();
                        if let Some(Ok(id)) = endpoint.map(|name| live.find_endpoint(&name)) {
                            shared.with(|state, now| hold(state, now, Target::Endpoint(id)));
                        }
                    }
                    (Scope::Key, _, Some(key)) => {
                        let _: Result<(), Turned> = shared.with_record(&key, |state, now, record| {
                            if hold(state, now, Target::Key(record)) { Ok(()) } else { Err(Turned::StaleKey) }
                        });
                    }
                    (Scope::Queue, Some(rule), Some(key)) => {
                        let _: Result<(), Turned> = shared.with_record(&key, |state, now, record| {
                            if hold(state, now, Target::Queue(rule, record)) { Ok(()) } else { Err(Turned::StaleKey) }
                        });
                    }
                    (Scope::Rule | Scope::Key | Scope::Queue | Scope::Request, ..) => {}
                }
            }
            News::Freed { name } => {
                if let Some(site) = self.site(&name) {
                    shared.with(|state, now| state.machine.reopen(now, site));
                }
            }
            News::Forgot { name, epoch } => {
                if self.memory().is_untold(&name, epoch)
                    && let Some(site) = self.site(&name)
                {
                    shared.with(|state, _| state.machine.recount(site));
                }
            }
        }
    }
}
