//! Where messages are kept: tables of bytes in the order of their keys, changed all or nothing.

mod memory;
mod redb;

use std::fmt;
use std::io;
use std::ops::Bound;

pub use self::memory::MemoryStore;
pub use self::redb::RedbStore;

/// What is kept apart from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Table {
    /// Messages in line, queue by queue in their order.
    Messages,
    /// What is behind them: attempts, waits.
    Progress,
    /// Messages that enter the line later, by when.
    Later,
    /// Messages that nobody tries to deliver any more, by id.
    Dead,
    /// What became of messages that were put with a name, by the name.
    Names,
    /// The same names, by when they are forgotten.
    Forget,
    /// Holds, by what is held.
    Holds,
    /// Counts and the version of the format.
    Meta,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Messages, Self::Progress, Self::Later, Self::Dead, Self::Names, Self::Forget, Self::Holds, Self::Meta];
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which table.
    pub table: Table,
    /// Which entry.
    pub key: Vec<u8>,
    /// Its new value; `None` removes it, if it is there.
    pub value: Option<Vec<u8>>,
}

/// Keeps an outbox's tables.
///
/// What it owes the outbox:
///
/// - [`commit`](Self::commit) makes all the changes or none, in their order, and returns `Ok` only when they would outlive a
///   power failure (or, for a store that promises less, its owner).
/// - After an error of `commit` it may not be known whether the changes were made, until [`reopen`](Self::reopen)
///   returned `Ok`: from then on they were made entirely or not at all.
/// - Readers see everything that was committed, and nothing else, in the order of the keys' bytes.
/// - Nobody else changes the tables meanwhile.
///
/// All calls come one after the other, from threads that may block.
pub trait Store: fmt::Debug + Send + 'static {
    /// The value of an entry.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it can't be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Shows the entries from `from` on, in order, until `visit` returns false.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if they can't be read.
    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Makes all the changes or none.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; then they may have been made or not, which shows after [`reopen`](Self::reopen).
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Makes itself usable again after an error.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it still is not.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// How many bytes it takes, where that can be said.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Gives back what it takes and does not need. Default: does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; what was committed is still there.
    fn compact(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Lets go of everything it holds, such as a lock. No call follows. Default: does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; what was committed is still there.
    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Why a store could not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another outbox of this one, has the file open.
    #[error("{path} is in use by another outbox; only one may have it open")]
    InUse {
        /// The file.
        path: String,
    },
    /// There is no file, where one was to be opened and none made.
    #[error("there is no outbox {path}")]
    Missing {
        /// The file.
        path: String,
    },
    /// The disk is full.
    #[error("no space left for the outbox: {message}")]
    Full {
        /// What the system says.
        message: String,
    },
    /// Reading or writing failed.
    #[error("the outbox can't be read or written: {message}")]
    Io {
        /// What kind of failure it was.
        kind: io::ErrorKind,
        /// What the system says.
        message: String,
    },
    /// The file, or something in it, is not what an outbox writes.
    #[error("not an outbox, or a damaged one: {message}")]
    Damaged {
        /// What was found.
        message: String,
    },
    /// The file was written by a version of this crate that this one does not know.
    #[error("the outbox has format version {found}, this program knows versions up to {known}")]
    Version {
        /// The file's.
        found: u32,
        /// The newest one that is known.
        known: u32,
    },
    /// The outbox was closed.
    #[error("the outbox is closed")]
    Closed,
    /// No tokio runtime is current, where an outbox was to be opened.
    #[error("no tokio runtime is current here")]
    NoRuntime,
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        let (kind, message) = (error.kind(), error.to_string());
        match kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { message },
            _ => Self::Io { kind, message },
        }
    }
}
