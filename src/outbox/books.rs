//! The store's owner: transactions of many jobs, and what follows where one fails.

use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use super::draft::{Draft, Undo};
use super::record::{Counts, FORMAT, FORMAT_KEY};
use super::store::{Change, Store, StoreError, Table};
use super::view::View;

const COUNTS_KEY: &[u8] = b"counts";

/// How many bytes one transaction changes at most, unless a single job changes more.
const TRANSACTION: usize = 1 << 20;

/// An empty store that takes more than this is compacted, and so is one that takes several times what is in it and this.
const SLACK: u64 = 8 << 20;

/// How much may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) dead: u64,
    pub(super) dead_bytes: u64,
    pub(super) names: u64,
    pub(super) overflow: Overflow,
}

/// What happens to a message that is to be tried no more where there is no room among the dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The oldest dead ones are lost.
    #[default]
    DropOldest,
    /// It is lost itself.
    RefuseNew,
    /// It stays in line, without being tried, until there is room.
    Block,
}

/// What is to be done with the store.
pub(super) enum Job {
    Write(Work),
    Read(Look),
    /// Everything is done, and nothing follows.
    Close(Box<dyn FnOnce(Result<(), StoreError>) + Send>),
}

/// Is shown the store, or told why there is no seeing it.
pub(super) type Look = Box<dyn FnOnce(Result<&View<'_>, StoreError>) + Send>;
/// Says what is to change, unless the store can't be used; is then told what became of it.
pub(super) type Work = Box<dyn FnOnce(Option<&mut Draft<'_>>) -> Then + Send>;
pub(super) type Then = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The store's owner.
#[derive(Debug)]
pub(super) struct Books {
    store: Box<dyn Store>,
    counts: Counts,
    /// The same, for everybody to see before they are told what became of their jobs.
    shown: Arc<Mutex<Counts>>,
    bounds: Bounds,
    /// An error of the store that nobody has got over yet.
    trouble: Option<Trouble>,
    /// What the store took when it was compacted last.
    compacted: u64,
    closed: bool,
}

/// What is not known since the store failed.
#[derive(Debug)]
struct Trouble {
    /// The transaction that may have been made.
    serial: u64,
    /// What its callers were told is not there.
    undo: Undo,
}

impl Books {
    /// Reads what is there, or begins anew.
    pub(super) fn open(store: Box<dyn Store>, bounds: Bounds) -> Result<Self, StoreError> {
        let mut books = Self {
            store,
            counts: Counts::default(),
            shown: Arc::default(),
            bounds,
            trouble: None,
            compacted: 0,
            closed: false,
        };
        let format = books.store.get(Table::Meta, FORMAT_KEY)?;
        match format.map(|bytes| bytes.try_into().map(u32::from_be_bytes)) {
            None | Some(Ok(FORMAT)) => {}
            Some(Ok(found)) => return Err(StoreError::Version { found, known: FORMAT }),
            Some(Err(_)) => return Err(StoreError::Damaged { message: "its format is no number".to_owned() }),
        }
        if is_blank(&*books.store)? {
            let counts = Counts { birth: RandomState::new().hash_one("birth"), next: 1, ..Counts::default() };
            let format = meta(FORMAT_KEY, FORMAT.to_be_bytes().to_vec());
            books.store.commit(&[format, meta(COUNTS_KEY, counts.write())])?;
        }
        books.count()?;
        books.compact_if_it_pays(true);
        Ok(books)
    }

    pub(super) fn shown(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.shown)
    }

    /// Does jobs in their order, as few transactions as may be. Reads come last.
    pub(super) fn run(&mut self, jobs: Vec<Job>) {
        let (mut works, mut reads, mut close) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Write(work) => works.push(work),
                Job::Read(read) => reads.push(read),
                Job::Close(then) => close.push(then),
            }
        }
        let mut works = works.into_iter().peekable();
        while works.peek().is_some() {
            if let Err(error) = self.usable() {
                works.by_ref().for_each(|work| work(None)(Err(error.clone())));
                break;
            }
            let view = View::new(&*self.store);
            let mut draft = Draft::new(&view, &self.bounds, self.counts);
            let mut thens = Vec::new();
            while draft.bytes() < TRANSACTION
                && let Some(work) = works.next()
            {
                thens.push(work(Some(&mut draft)));
            }
            let (changes, counts, undo) = draft.done();
            let failed = view.has_failed();
            let made = self.commit(changes, counts, undo);
            if failed {
                self.doubt();
            }
            thens.into_iter().for_each(|then| then(made.clone()));
        }
        for read in reads {
            let usable = self.usable();
            let view = View::new(&*self.store);
            read(usable.map(|()| &view));
            if view.has_failed() {
                self.doubt();
            }
        }
        if close.is_empty() {
            self.compact_if_it_pays(false);
        }
        for then in close {
            then(self.close());
        }
    }

    /// A second time there is nothing to do.
    fn close(&mut self) -> Result<(), StoreError> {
        if self.closed {
            return Ok(());
        }
        let usable = self.usable();
        self.compact_if_it_pays(true);
        self.closed = true;
        let closed = self.store.close();
        usable.and(closed)
    }

    /// The store failed, though nothing was to change: it is opened anew before it is used again.
    fn doubt(&mut self) {
        self.trouble.get_or_insert_with(|| Trouble { serial: self.counts.serial, undo: Undo::default() });
    }

    fn commit(&mut self, mut changes: Vec<Change>, mut counts: Counts, undo: Undo) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        counts.serial = self.counts.serial + 1;
        changes.push(meta(COUNTS_KEY, counts.write()));
        let Err(error) = self.store.commit(&changes) else {
            self.show(counts);
            return Ok(());
        };
        self.trouble = Some(Trouble { serial: counts.serial, undo: Undo::default() });
        match self.usable() {
            // It was made all the same.
            Ok(()) if self.counts.serial == counts.serial => Ok(()),
            Ok(()) => Err(error),
            Err(_) => {
                self.trouble = Some(Trouble { serial: counts.serial, undo });
                Err(error)
            }
        }
    }

    /// Gets over an earlier error, if there was one.
    fn usable(&mut self) -> Result<(), StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let Some(trouble) = &self.trouble else { return Ok(()) };
        self.store.reopen()?;
        let counts = read_counts(&*self.store)?;
        if counts.serial == trouble.serial && !trouble.undo.is_empty() {
            let (mut changes, mut counts) = trouble.undo.apply(counts);
            counts.serial += 1;
            changes.push(meta(COUNTS_KEY, counts.write()));
            self.store.commit(&changes)?;
        }
        self.count()?;
        self.trouble = None;
        Ok(())
    }

    fn count(&mut self) -> Result<(), StoreError> {
        self.show(read_counts(&*self.store)?);
        Ok(())
    }

    fn show(&mut self, counts: Counts) {
        self.counts = counts;
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// `thoroughly`: nobody waits meanwhile. It only gives back space: a store that fails here is opened anew.
    fn compact_if_it_pays(&mut self, thoroughly: bool) {
        if self.trouble.is_some() || self.closed {
            return;
        }
        let Counts { messages, bytes, dead, dead_bytes, .. } = self.counts;
        let Some(size) = self.store.size() else { return };
        let is_empty = messages == 0 && dead == 0;
        let has_grown = size > 2 * self.compacted + SLACK;
        let pays = has_grown && (is_empty || thoroughly && size > 4 * (bytes + dead_bytes) + SLACK);
        if pays {
            if self.store.compact().is_err() {
                self.doubt();
            }
            // Where that failed it is not tried again before the store has grown.
            self.compacted = self.store.size().unwrap_or(size);
        }
    }
}

/// Whether nothing was ever kept in it.
fn is_blank(store: &dyn Store) -> Result<bool, StoreError> {
    let mut is_blank = store.get(Table::Meta, COUNTS_KEY)?.is_none();
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Meta) {
        store.scan(table, Bound::Unbounded, &mut |_, _| {
            is_blank = false;
            false
        })?;
    }
    Ok(is_blank)
}

fn read_counts(store: &dyn Store) -> Result<Counts, StoreError> {
    let bytes = store.get(Table::Meta, COUNTS_KEY)?;
    Counts::read(&bytes.ok_or_else(|| StoreError::Damaged { message: "it has no counts".to_owned() })?)
}

fn meta(key: &[u8], value: Vec<u8>) -> Change {
    Change { table: Table::Meta, key: key.to_vec(), value: Some(value) }
}
