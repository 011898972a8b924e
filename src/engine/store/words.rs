//! What machines tell each other of their endpoints: that one rests, and that it works again.
//!
//! A machine tells what it found out itself, once, and takes over what others tell. Which of two words is the newer one
//! is known to whoever carries them.

use std::sync::Arc;

use super::Store;
use crate::engine::breaker::Opening;
use crate::engine::pool::EndpointId;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

/// What one machine tells the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// An endpoint gets a rest.
    Opened {
        /// Its name.
        endpoint: Arc<str>,
        /// For how long, and what comes then.
        opening: Opening,
    },
    /// An endpoint works again.
    Closed {
        /// Its name.
        endpoint: Arc<str>,
    },
}

impl<W> Scheduler<W> {
    /// What the other machines are to be told, oldest first. There is something only while a store is there and keeps any of
    /// the plan's limits.
    #[must_use]
    pub fn take_words(&mut self) -> Vec<Word> {
        self.store.as_mut().map_or_else(Vec::new, |store| std::mem::take(&mut store.words))
    }

    /// Takes over what another machine tells, as if it had been found out here, but for telling it. Returns whether there is
    /// such an endpoint.
    pub fn heed(&mut self, now: Instant, word: &Word) -> bool {
        if !self.tells() {
            return false;
        }
        let find = |name: &str| self.plan.pool.as_ref().and_then(|pool| pool.find(name));
        match word {
            Word::Opened { endpoint, opening } => {
                let Some(id) = find(endpoint) else { return false };
                self.rest_endpoint(now, id, opening.lasts, |breaker, now| breaker.open_as(now, *opening))
            }
            Word::Closed { endpoint } => {
                let Some(id) = find(endpoint) else { return false };
                self.end_rest(now, id).is_some()
            }
        }
    }

    /// The breaker of an endpoint opened by what is known here.
    pub(in crate::engine) fn tell_opened(&mut self, now: Instant, endpoint: EndpointId) {
        self.tell_of(endpoint, |scheduler, name| {
            let state = scheduler.pool.as_ref()?.endpoints.get(usize::from(endpoint.0))?;
            let opening = state.breaker.opening(now)?;
            Some(Word::Opened { endpoint: name, opening })
        });
    }

    /// The breaker of an endpoint closed by what is known here.
    pub(in crate::engine) fn tell_closed(&mut self, endpoint: EndpointId) {
        self.tell_of(endpoint, |_, endpoint| Some(Word::Closed { endpoint }));
    }

    fn tell_of(&mut self, endpoint: EndpointId, word: impl FnOnce(&Self, Arc<str>) -> Option<Word>) {
        if !self.tells() {
            return;
        }
        let plan = self.plan.pool.as_ref().and_then(|pool| pool.endpoints.get(usize::from(endpoint.0)));
        let Some(name) = plan.map(|plan| Arc::clone(&plan.name)) else { return };
        let word = word(self, name);
        if let Some(Store { words, .. }) = self.store.as_deref_mut() {
            words.extend(word);
        }
    }

    /// Whether there are others to tell: any rule may use any endpoint, so that one limit of any rule is enough.
    fn tells(&self) -> bool {
        self.store.is_some() && self.plan.is_shared()
    }
}
