//! An outbox's file without its program: for tools that show it and put it right.

use std::path::Path;

use super::books::{Books, Bounds, Job, Overflow};
use super::draft::{Draft, Redriven};
use super::record::{Counts, MessageId};
use super::shelf::{self, PAGE};
use super::store::{RedbStore, StoreError, Table};
use super::stored::{DeadMessage, StoredMessage};
use super::view::View;

/// An outbox's file that is open without being delivered from.
///
/// Calls block. While it is open no [`Outbox`](super::Outbox) can have the file, nor the other way round.
///
/// ```
/// use request_balancer::outbox::{OutboxFile, StoreError};
///
/// let missing = OutboxFile::open("no such folder/outbox.redb").unwrap_err();
/// assert_eq!(missing, StoreError::Missing { path: "no such folder/outbox.redb".into() });
/// ```
#[derive(Debug)]
pub struct OutboxFile {
    books: Books,
}

impl OutboxFile {
    /// Opens a file that there is.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: there is none, it is in use, or is no outbox.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        // Nobody puts anything: bounds are those of the program.
        let bounds = Bounds {
            messages: u64::MAX,
            bytes: u64::MAX,
            dead: u64::MAX,
            dead_bytes: u64::MAX,
            names: u64::MAX,
            overflow: Overflow::DropOldest,
        };
        Ok(Self { books: Books::open(Box::new(RedbStore::open_existing(path)?), bounds)? })
    }

    /// How many messages are neither sent nor dead.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts().messages
    }

    /// Whether all messages are sent or dead.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages are dead.
    #[must_use]
    pub fn dead_len(&self) -> u64 {
        self.counts().dead
    }

    /// Shows messages that are neither sent nor dead: those in line queue by queue, then those that enter it later; until
    /// `visit` returns false.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if they can't be read.
    pub fn list(&mut self, mut visit: impl FnMut(StoredMessage) -> bool) -> Result<(), StoreError> {
        for table in [Table::Messages, Table::Later] {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let from = after.take();
                let page = self.read(move |store| shelf::messages(store, table, from.as_deref(), PAGE))?;
                let Some(last) = page.last() else { break };
                after = Some(last.key.clone());
                for listed in page {
                    if !visit(StoredMessage::new(&listed.record, &listed.progress, listed.due)) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The messages that are tried no more, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if they can't be read.
    pub fn dead(&mut self) -> Result<Vec<DeadMessage>, StoreError> {
        let mut all: Vec<DeadMessage> = Vec::new();
        loop {
            let after = all.last().map(|dead| dead.id);
            let page = self.read(move |store| shelf::dead(store, after, PAGE))?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.iter().map(DeadMessage::new));
        }
    }

    /// Puts a dead message back in line, for the next start of the program. Returns false if there is no such one.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; it may still be among the dead.
    pub fn redrive(&mut self, id: MessageId) -> Result<bool, StoreError> {
        let redriven = self.write(move |draft| draft.redrive(id))?;
        Ok(matches!(redriven, Redriven::Done(_)))
    }

    /// Forgets a dead message. Returns false if there is none such.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; it may still be among the dead.
    pub fn purge(&mut self, id: MessageId) -> Result<bool, StoreError> {
        self.write(move |draft| draft.purge(id))
    }

    fn counts(&self) -> Counts {
        *self.books.shown().lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read<R: Send + 'static>(
        &mut self,
        read: impl FnOnce(&View<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (sender, answer) = std::sync::mpsc::channel();
        self.books.run(vec![Job::Read(Box::new(move |store| drop(sender.send(store.and_then(read)))))]);
        answer.recv().unwrap_or(Err(StoreError::Closed))
    }

    fn write<R: Send + 'static>(
        &mut self,
        draft: impl FnOnce(&mut Draft<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (sender, answer) = std::sync::mpsc::channel();
        let work = Box::new(move |page: Option<&mut Draft<'_>>| -> super::books::Then {
            let drafted = page.map_or(Err(StoreError::Closed), |page| page.job(draft));
            Box::new(move |made| drop(sender.send(made.and(drafted))))
        });
        self.books.run(vec![Job::Write(work)]);
        answer.recv().unwrap_or(Err(StoreError::Closed))
    }
}
