//! From keys to the engine's records of them.

use std::hash::BuildHasher;

use dashmap::{DashMap, SharedValue};
use foldhash::fast::RandomState;

use crate::engine::{Evicted, KeyId};
use crate::key::Key;

/// Below this many places a shard is not worth shrinking.
const SMALL: usize = 64;

/// Which record a key has. Hashing, comparing and cloning of keys happen here, outside the machine's lock.
///
/// Locks are taken in one order: a shard, then the machine.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    map: DashMap<Key, KeyId, RandomState>,
}

impl Keys {
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.map.hasher().hash_one(key)
    }

    /// The key's record, as far as is known: the engine may have evicted it meanwhile.
    pub(crate) fn get(&self, hash: u64, key: &Key) -> Option<KeyId> {
        self.map.shards()[self.shard(hash)].read().get(hash, |(known, _)| known == key).map(|(_, id)| *id.get())
    }

    /// Lets `renew` replace the key's record while nobody else can.
    ///
    /// `renew` gets the record that is known, and says which one is to be known from now on; `None` leaves it at that.
    pub(crate) fn renew<R>(&self, hash: u64, key: &Key, renew: impl FnOnce(Option<KeyId>) -> (Option<KeyId>, R)) -> R {
        let mut shard = self.map.shards()[self.shard(hash)].write();
        if let Some((_, id)) = shard.get_mut(hash, |(known, _)| known == key) {
            let (renewed, result) = renew(Some(*id.get()));
            if let Some(renewed) = renewed {
                *id.get_mut() = renewed;
            }
            return result;
        }
        let (id, result) = renew(None);
        if let Some(id) = id {
            shard.insert(hash, (key.clone(), SharedValue::new(id)), |(key, _)| self.hash(key));
        }
        result
    }

    /// The keys that have a record.
    pub(crate) fn known(&self) -> Vec<Key> {
        self.map.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Forgets a key whose record is gone, unless it has a new one by now.
    pub(crate) fn remove(&self, key: &Key, id: KeyId) {
        self.forget(Evicted { tag: self.hash(key), id });
    }

    /// Forgets a record that the engine evicted, unless the key has a new one by now.
    pub(crate) fn forget(&self, evicted: Evicted) {
        let Evicted { tag: hash, id } = evicted;
        let mut shard = self.map.shards()[self.shard(hash)].write();
        let gone = shard.remove_entry(hash, |(_, known)| *known.get() == id);
        if shard.capacity() > SMALL && shard.len() < shard.capacity() / 8 {
            let len = shard.len();
            shard.shrink_to(len * 2, |(key, _)| self.hash(key));
        }
        drop(shard);
        drop(gone);
    }

    /// Only the upper bits of a hash choose its shard; what a 32-bit machine cuts off, it cuts off everywhere.
    fn shard(&self, hash: u64) -> usize {
        self.map.determine_shard(hash as usize)
    }
}
