//! A store that forgets everything with its owner: for tests, and for programs that want the rest of an outbox.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Change, Store, StoreError, Table};

/// A store in memory.
///
/// Clones are one store: a clone that is kept shows what an outbox left, and another outbox can go on with it, as after a
/// restart.
///
/// ```
/// use request_balancer::outbox::{Change, MemoryStore, Store, Table};
///
/// let mut store = MemoryStore::new();
/// let kept = store.clone();
/// store.commit(&[Change { table: Table::Meta, key: b"a".to_vec(), value: Some(b"1".to_vec()) }])?;
/// assert_eq!(kept.get(Table::Meta, b"a")?, Some(b"1".to_vec()));
/// # Ok::<(), request_balancer::outbox::StoreError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

type Tables = BTreeMap<Table, BTreeMap<Vec<u8>, Vec<u8>>>;

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // No change is left half made by a panic: maps do not panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock().get(&table).and_then(|entries| entries.get(key).cloned()))
    }

    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let tables = self.lock();
        let entries =
            tables.get(&table).into_iter().flat_map(|entries| entries.range::<[u8], _>((from, Bound::Unbounded)));
        for (key, value) in entries {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut tables = self.lock();
        for Change { table, key, value } in changes {
            let entries = tables.entry(*table).or_default();
            match value {
                Some(value) => drop(entries.insert(key.clone(), value.clone())),
                None => drop(entries.remove(key)),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
