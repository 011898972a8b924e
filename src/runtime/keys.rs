//! From keys to the engine's records of them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::engine::{Evicted, KeyId};
use crate::key::Key;

/// How many tables there are. When one grows, only its own entries move: the machine's lock is held for no longer.
const PARTS: usize = 64;

/// Below this many places a table is not worth shrinking.
const SMALL: usize = 8;

/// Hashes keys, before the machine is locked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hasher(RandomState);

impl Hasher {
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.0.hash_one(key)
    }
}

/// Which record a key has, behind the machine's lock.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: Hasher,
    parts: Box<[HashTable<(Key, KeyId)>]>,
}

impl Keys {
    pub(super) fn new(hasher: Hasher) -> Self {
        Self { hasher, parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }

    /// The key's record, as far as is known: the engine may have evicted it meanwhile.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &Key) -> Option<KeyId> {
        self.parts[part(hash)].find(hash, |(known, _)| known == key).map(|(_, id)| *id)
    }

    /// Makes this the key's record.
    pub(super) fn set(&mut self, hash: u64, key: &Key, id: KeyId) {
        let Self { hasher, parts } = self;
        let part = &mut parts[part(hash)];
        match part.find_mut(hash, |(known, _)| known == key) {
            Some((_, known)) => *known = id,
            None => {
                part.insert_unique(hash, (key.clone(), id), |(key, _)| hasher.hash(key));
            }
        }
    }

    /// Forgets a record that is gone, unless the key has a new one by now.
    pub(super) fn forget(&mut self, gone: Evicted) {
        let Self { hasher, parts } = self;
        let part = &mut parts[part(gone.tag)];
        if let Ok(entry) = part.find_entry(gone.tag, |(_, known)| *known == gone.id) {
            entry.remove();
        }
        if part.capacity() > SMALL && part.len() < part.capacity() / 8 {
            part.shrink_to(part.len() * 2, |(key, _)| hasher.hash(key));
        }
    }

    /// The keys of one of the tables that have a record; `None` after the last one.
    pub(super) fn of_part(&self, part: usize) -> Option<Vec<Key>> {
        self.parts.get(part).map(|part| part.iter().map(|(key, _)| key.clone()).collect())
    }
}

/// Bits in the middle: a table goes by the upper and the lower ones itself.
const fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::engine::{Instant, Scheduler};
    use crate::rules::Rules;
    use crate::runtime::live::Live;

    #[test]
    fn keys_are_found_as_in_a_map_however_many_come_and_go() {
        let rules: Rules = "[rules]\na = '1/1s'".parse().expect("rules");
        let mut machine = Scheduler::<()>::new(Live::new(rules).plan);
        let hasher = Hasher::default();
        let (mut keys, mut model) = (Keys::new(hasher.clone()), HashMap::new());
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..40_000_u64 {
            // Many at first, few in the end.
            let key = Key::from(random.u64(..20_000));
            let hash = hasher.hash(&key);
            if random.u64(..40_000) > round {
                let id = machine.add_key(Instant::ZERO, hash);
                keys.set(hash, &key, id);
                if let Some(before) = model.insert(key.clone(), id) {
                    // The end of an earlier record comes late.
                    keys.forget(Evicted { tag: hash, id: before });
                }
            }
            if random.u64(..40_000) < round
                && let Some(id) = model.remove(&key)
            {
                keys.forget(Evicted { tag: hash, id });
            }
            assert_eq!(keys.get(hash, &key), model.get(&key).copied());
        }
        let mut known: Vec<Key> = (0..).map_while(|part| keys.of_part(part)).flatten().collect();
        let mut expected: Vec<Key> = model.into_keys().collect();
        known.sort_unstable();
        expected.sort_unstable();
        assert_eq!(known, expected);
        let places: usize = keys.parts.iter().map(HashTable::capacity).sum();
        assert!(places <= known.len() * 8 + PARTS * SMALL * 2, "{places} places for {} keys", known.len());
    }
}
