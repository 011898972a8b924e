//! The store as readers see it: whether it failed them is remembered, so that it is opened anew before it is used again.

use std::cell::Cell;
use std::ops::Bound;

use super::store::{Store, StoreError, Table};

/// A store that is read.
#[derive(Debug)]
pub(super) struct View<'a> {
    store: &'a dyn Store,
    failed: Cell<bool>,
}

impl<'a> View<'a> {
    pub(super) const fn new(store: &'a dyn Store) -> Self {
        Self { store, failed: Cell::new(false) }
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.watch(self.store.get(table, key))
    }

    pub(super) fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.watch(self.store.scan(table, from, visit))
    }

    /// Whether the store failed, which says nothing of what is in it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    fn watch<R>(&self, read: Result<R, StoreError>) -> Result<R, StoreError> {
        if read.is_err() {
            self.failed.set(true);
        }
        read
    }
}
