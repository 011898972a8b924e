//! Whether the store is asked, and what the machine does while it cannot be.

use super::{Reach, Store};
use crate::engine::limit::Alone;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

impl<W> Scheduler<W> {
    /// How the machine stands with the store that keeps its plan's [shared](super::super::Kept::InStore) limits. At first there is
    /// none.
    ///
    /// Whatever waits is decided anew. What started while the store could not be reached is told to it with the first batch
    /// afterwards; what was only granted by then is asked for like all else.
    pub fn set_reach(&mut self, now: Instant, reach: Reach) {
        let now = self.tick(now);
        if self.store.is_none() {
            if reach == Reach::Nowhere {
                return;
            }
            self.store = Some(Box::new(Store::new(&self.plan)));
        }
        self.recall_asked(now);
        let Some(store) = &mut self.store else { return };
        let was_asked = store.is_asked();
        store.reach = reach;
        if !was_asked && store.is_asked() {
            let rules = store.rules.clone();
            self.revoke_where(now, |queue| rules[usize::from(queue.rule)]);
        }
        let Some(store) = &mut self.store else { return };
        match reach {
            Reach::Alone | Reach::Open | Reach::Closed => {
                store.alone_since.get_or_insert(now);
            }
            Reach::Nowhere | Reach::Asked | Reach::Back(_) => store.alone_since = None,
        }
        store.wanted = true;
        self.days.alone = store.alone();
        let keys: Vec<u32> = self.keys.indices().collect();
        for key in keys {
            self.redecide_all(key);
        }
        self.pool_event();
        self.dispatch(now);
    }

    /// How it stands.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.store.as_ref().map_or(Reach::Nowhere, |store| store.reach)
    }

    /// Until when it keeps to its part of limits, now that the store is back.
    #[must_use]
    pub fn part_until(&self) -> Option<Instant> {
        match self.reach() {
            Reach::Back(since) => Some(since.saturating_add(Alone::PATIENCE)),
            Reach::Nowhere | Reach::Asked | Reach::Alone | Reach::Open | Reach::Closed => None,
        }
    }
}
