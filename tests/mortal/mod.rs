//! A store whose process dies at a transaction.

use std::ops::Bound;

use request_balancer::outbox::{Change, MemoryStore, Store, StoreError, Table};

/// When exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Nothing of the transaction is written.
    Before,
    /// All of it is, and nobody learns of it.
    After,
}

/// A store that writes so many transactions, and then never anything again.
#[derive(Debug)]
pub(crate) struct Mortal {
    inner: MemoryStore,
    left: usize,
    death: Death,
    dead: bool,
}

impl Mortal {
    pub(crate) const fn new(inner: MemoryStore, left: usize, death: Death) -> Self {
        Self { inner, left, death, dead: false }
    }
}

fn gone() -> StoreError {
    std::io::Error::other("the process is dead").into()
}

impl Store for Mortal {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.inner.scan(table, from, visit)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if self.dead {
            return Err(gone());
        }
        if self.left == 0 {
            self.dead = true;
            if self.death == Death::After {
                self.inner.commit(changes)?;
            }
            return Err(gone());
        }
        self.left -= 1;
        self.inner.commit(changes)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.dead { Err(gone()) } else { Ok(()) }
    }
}
