//! The store in a file, on redb.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process;

use redb::{
    Builder, CommitError, CompactionError, Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition,
    TableError, TransactionError,
};

use super::{Change, Store, StoreError, Table};
use crate::outbox::record::{FORMAT, FORMAT_KEY};

/// Bytes of the file that are kept in memory.
const CACHE: usize = 16 << 20;

type Entries = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// A store in one file, without a server: crash-safe, open in one process at a time.
///
/// Each commit is one sync of the disk. At most 16 MiB of the file are kept in memory.
pub struct RedbStore {
    /// `None` after an error, until it is reopened.
    database: Option<Database>,
    open: Box<dyn FnMut() -> Result<Database, StoreError> + Send>,
    path: Option<PathBuf>,
}

impl RedbStore {
    /// Opens the file, or makes it if there is none.
    ///
    /// A new file is made under another name, synced, and only then given its own, so that a crash never leaves half a
    /// file there.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] at once if it is open elsewhere; others if it can't be read, written or made.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if !path.try_exists()? {
            return Self::make(path);
        }
        Self::open_existing(path)
    }

    /// Opens the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if there is none; others as [`open`](Self::open).
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if !path.try_exists()? {
            return Err(StoreError::Missing { path: path.display().to_string() });
        }
        let mut open = opener(path);
        let database = open()?;
        Ok(Self { database: Some(database), open: Box::new(open), path: Some(path.to_owned()) })
    }

    /// A store on a disk of the caller's own; `open` makes databases on it, one after the other.
    #[cfg(test)]
    pub(crate) fn with(
        mut open: impl FnMut() -> Result<Database, DatabaseError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let mut open = move || -> Result<Database, StoreError> {
            let database = open().map_err(|error| of_database(error, Path::new("memory")))?;
            if database.begin_read()?.list_tables()?.next().is_none() {
                lay(&database)?;
            }
            check(&database)?;
            Ok(database)
        };
        let database = open()?;
        Ok(Self { database: Some(database), open: Box::new(open), path: None })
    }

    fn make(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
        let mut fresh_name = name.to_owned();
        fresh_name.push(format!(".{}.new", process::id()));
        let fresh = path.with_file_name(fresh_name);
        // One makes a file at a time, where folders can be locked. Whoever comes second finds it made.
        let folder = File::open(folder(path)).ok();
        let _ = folder.as_ref().map(File::lock);
        if path.try_exists()? {
            return Self::open_existing(path);
        }
        clear_away(path, name)?;
        let database = builder().create(&fresh).map_err(|error| of_database(error, path))?;
        lay(&database)?;
        // From here on its lock goes with the file, whatever the name. Whoever comes second finds the name taken.
        match fs::hard_link(&fresh, path) {
            Ok(()) => fs::remove_file(&fresh)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                drop(database);
                fs::remove_file(&fresh)?;
                return Self::open_existing(path);
            }
            // No hard links on this file system: the lock alone keeps others from making it meanwhile.
            Err(_) => fs::rename(&fresh, path)?,
        }
        sync_folder(path)?;
        Ok(Self { database: Some(database), open: Box::new(opener(path)), path: Some(path.to_owned()) })
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or(StoreError::Closed)
    }
}

impl Store for RedbStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let entries = self.database()?.begin_read()?.open_table(name(table))?;
        Ok(entries.get(key)?.map(|value| value.value().to_vec()))
    }

    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let entries = self.database()?.begin_read()?.open_table(name(table))?;
        for entry in entries.range::<&[u8]>((from, Bound::Unbounded))? {
            let (key, value) = entry?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let transaction = self.database()?.begin_write()?;
        for table in Table::ALL {
            let mut changes = changes.iter().filter(|change| change.table == table).peekable();
            if changes.peek().is_none() {
                continue;
            }
            let mut entries = transaction.open_table(name(table))?;
            for Change { key, value, .. } in changes {
                match value {
                    Some(value) => drop(entries.insert(key.as_slice(), value.as_slice())?),
                    None => drop(entries.remove(key.as_slice())?),
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        // The old one first: it has the lock.
        self.database = None;
        self.database = Some((self.open)()?);
        Ok(())
    }

    fn size(&self) -> Option<u64> {
        fs::metadata(self.path.as_ref()?).ok().map(|data| data.len())
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        let Some(database) = &mut self.database else { return Err(StoreError::Closed) };
        while database.compact()? {}
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let Some(database) = self.database.take() else { return Ok(()) };
        let nowhere = PathBuf::new();
        database.close().map_err(|error| of_database(error, self.path.as_ref().unwrap_or(&nowhere)))
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.path).finish_non_exhaustive()
    }
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

fn opener(path: &Path) -> impl FnMut() -> Result<Database, StoreError> + Send + use<> {
    let path = path.to_owned();
    move || {
        let database = builder().open(&path).map_err(|error| of_database(error, &path))?;
        check(&database)?;
        Ok(database)
    }
}

/// Makes all tables, so that readers find them, and says that they are an outbox's.
fn lay(database: &Database) -> Result<(), StoreError> {
    let transaction = database.begin_write()?;
    for table in Table::ALL {
        transaction.open_table(name(table))?;
    }
    transaction.open_table(name(Table::Meta))?.insert(FORMAT_KEY, FORMAT.to_be_bytes().as_slice())?;
    Ok(transaction.commit()?)
}

/// Others use redb, too.
fn check(database: &Database) -> Result<(), StoreError> {
    let there = database.begin_read()?;
    let is_outbox = match there.open_table(name(Table::Meta)) {
        Ok(meta) => meta.get(FORMAT_KEY)?.is_some(),
        Err(TableError::Storage(error)) => return Err(error.into()),
        Err(_) => false,
    };
    if is_outbox { Ok(()) } else { Err(StoreError::Damaged { message: "a database of another kind".to_owned() }) }
}

const fn name(table: Table) -> Entries {
    TableDefinition::new(match table {
        Table::Messages => "messages",
        Table::Progress => "progress",
        Table::Later => "later",
        Table::Dead => "dead",
        Table::Names => "names",
        Table::Forget => "forget",
        Table::Holds => "holds",
        Table::Meta => "meta",
    })
}

/// Removes what processes left that were killed while they made the file.
fn clear_away(path: &Path, name: &OsStr) -> io::Result<()> {
    let (name, folder) = (name.as_encoded_bytes(), folder(path));
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let sibling = entry.file_name();
        let rest = sibling.as_encoded_bytes().strip_prefix(name).and_then(|rest| rest.strip_suffix(b".new"));
        if rest.is_none_or(|rest| !rest.starts_with(b".") || !rest[1..].iter().all(u8::is_ascii_digit)) {
            continue;
        }
        // Whoever is about to make one has it locked.
        if !matches!(builder().open(entry.path()), Err(DatabaseError::DatabaseAlreadyOpen)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Makes a new name in a folder outlive a power failure, where folders can be synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder(path))?.sync_all() } else { Ok(()) }
}

fn of_database(error: DatabaseError, path: &Path) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.display().to_string() },
        DatabaseError::Storage(error) => error.into(),
        error => StoreError::Damaged { message: error.to_string() },
    }
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        match error {
            // So redb says that a file is of another kind.
            StorageError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Damaged { message: error.to_string() }
            }
            StorageError::Io(error) => error.into(),
            error @ (StorageError::PreviousIo | StorageError::Backend(_)) => {
                Self::Io { kind: io::ErrorKind::Other, message: error.to_string() }
            }
            error => Self::Damaged { message: error.to_string() },
        }
    }
}

impl From<TransactionError> for StoreError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Storage(error) => error.into(),
            error => Self::Damaged { message: error.to_string() },
        }
    }
}

impl From<TableError> for StoreError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            error => Self::Damaged { message: error.to_string() },
        }
    }
}

impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Storage(error) => error.into(),
            error => Self::Damaged { message: error.to_string() },
        }
    }
}

impl From<CompactionError> for StoreError {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Storage(error) => error.into(),
            error => Self::Damaged { message: error.to_string() },
        }
    }
}
