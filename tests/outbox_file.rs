//! The file of an outbox: who gets it where several want it, and that no other database is taken for one.
#![cfg(feature = "outbox")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use redb::{Database, ReadableDatabase, ReadableTableMetadata, TableDefinition, TableHandle};
use request_balancer::outbox::{OutboxFile, RedbStore, StoreError};

/// A folder of its own with nothing in it.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Others keep things in redb, too. It was taken for a new outbox, and written to.
#[test]
fn a_database_of_another_kind_is_not_touched() {
    const THEIRS: TableDefinition<'static, u64, u64> = TableDefinition::new("theirs");
    let path = folder("another kind").join("theirs.redb");
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(THEIRS).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let damaged = StoreError::Damaged { message: "a database of another kind".to_owned() };
    assert_eq!(RedbStore::open(&path).unwrap_err(), damaged);
    assert_eq!(OutboxFile::open(&path).unwrap_err(), damaged);
    let database = Database::open(&path).unwrap();
    let there = database.begin_read().unwrap();
    let tables: Vec<String> = there.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    assert_eq!((tables, there.open_table(THEIRS).unwrap().len().unwrap()), (vec!["theirs".to_owned()], 1));
}

/// One that was about to make it found its half-made file removed by another.
#[test]
fn of_many_who_make_it_at_once_one_gets_it() {
    for _ in 0..20 {
        let folder = folder("made at once");
        let path = folder.join("outbox.redb");
        let makers: Vec<_> = (0..6)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || RedbStore::open(path))
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        let errors: Vec<_> = made.iter().filter_map(|made| made.as_ref().err()).collect();
        assert_eq!(errors.len(), 5, "{made:?}");
        assert!(errors.iter().all(|error| matches!(error, StoreError::InUse { .. })), "{errors:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
