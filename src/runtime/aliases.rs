//! Keys that turned out to be another key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::shared::Shared;
use crate::engine::Turned;
use crate::error::Refused;
use crate::key::Key;

/// Which key stands for which.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// Most programs have none, and should not pay for that.
    any: AtomicBool,
    known: RwLock<HashMap<Key, Key>>,
}

impl Aliases {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The key that stands for this one.
    pub(crate) fn resolve<'a>(&self, key: &'a Key) -> Cow<'a, Key> {
        if !self.any() {
            return Cow::Borrowed(key);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Cow::Borrowed(key);
        // No circle is ever let in.
        while let Some(next) = known.get(&*found) {
            found = Cow::Owned(next.clone());
        }
        found
    }

    /// Makes what stands for `old` another name of `new`. Returns it; `None` if it was that already.
    fn add(&self, old: &Key, new: &Key) -> Result<Option<Key>, Refused> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let stands_for = |mut key| {
            while let Some(next) = known.get(key) {
                key = next;
            }
            key
        };
        let before = stands_for(old);
        if before != stands_for(new) {
            let before = before.clone();
            known.insert(before.clone(), new.clone());
            self.any.store(true, Ordering::Release);
            return Ok(Some(before));
        }
        if before == old {
            return Err(Refused::AliasCycle { old: old.to_string(), new: new.to_string() });
        }
        Ok(None)
    }

    fn remove(&self, old: &Key) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let removed = known.remove(old).is_some();
        self.any.store(!known.is_empty(), Ordering::Release);
        removed
    }
}

impl Shared {
    /// From now on `old` is another name of `new`.
    pub(crate) fn alias(&self, old: &Key, new: &Key) -> Result<(), Refused> {
        let Some(before) = self.aliases.add(old, new)? else { return Ok(()) };
        let Some(from) = self.record_of(&before) else { return Ok(()) };
        self.with_record(new, |state, now, into| {
            // A record that was evicted meanwhile had nothing to give.
            state.machine.alias(now, from, into);
            if state.machine.knows(into) { Ok(()) } else { Err(Turned::StaleKey) }
        })?;
        self.forget_record(&before, from);
        Ok(())
    }

    /// `old` is a key of its own again.
    pub(crate) fn unalias(&self, old: &Key) -> bool {
        self.aliases.remove(old)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_becomes_another_ones_name_while_its_record_is_looked_for_is_that_other_one() {
        let shared = Shared::new("[rules]\na = '1/1s'".parse().expect("rules"), 0);
        let (old, new) = (Key::from("old"), Key::from("new"));
        let stale = shared.with_record(&old, |_, _, record| Ok(record)).expect("a record");
        let mut looks = 0;
        let found = shared.with_record(&old, |_, _, record| {
            looks += 1;
            if looks == 1 {
                shared.aliases.add(&old, &new).expect("no circle");
                return Err(Turned::StaleKey);
            }
            Ok(record)
        });
        assert_ne!(found, Ok(stale));
        assert_eq!(found.ok(), shared.record_of(&new));
    }
}
