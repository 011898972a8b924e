//! Random jobs for a store, and what is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, mpsc};

use redb::Database;

use super::disk::Disk;
use crate::key::Key;
use crate::outbox::books::{Books, Bounds, Job, Overflow, Then};
use crate::outbox::draft::{Draft, New, Stored};
use crate::outbox::record::{Buried, Counts, FORMAT, MessageId, Named, Progress, Record};
use crate::outbox::shelf;
use crate::outbox::store::{Change, MemoryStore, RedbStore, Store, StoreError, Table};
use crate::outbox::view::View;

pub(super) const BOUNDS: Bounds =
    Bounds { messages: 60, bytes: 20_000, dead: 6, dead_bytes: 4_000, names: 4, overflow: Overflow::DropOldest };

/// A small source of draws.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    pub(super) const fn coin(&mut self) -> bool {
        self.below(1 << 20) & 1 == 0
    }
}

/// One thing that an outbox does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put {
        key: u64,
        name: String,
        body: Vec<u8>,
        due: Option<u64>,
    },
    /// What it does with a message in line: the one of this number.
    Note(u64),
    Erase(u64),
    EraseNamed(u64),
    Bury(u64),
    GiveBack(u64),
    Park(u64, u64),
    EnterDue(u64),
    Redrive(u64),
    Purge(u64),
    Take(usize),
    Hold(u64, u64),
}

impl Step {
    pub(super) fn random(rng: &mut Rng, now: u64) -> Self {
        let pick = rng.below(1_000);
        match rng.below(20) {
            0..8 => Self::Put {
                key: rng.below(4),
                name: if rng.below(4) == 0 { format!("name {}", rng.below(6)) } else { String::new() },
                body: vec![b'x'; rng.below(600) as usize],
                due: (rng.below(6) == 0).then(|| now + rng.below(30)),
            },
            8..10 => Self::Note(pick),
            10..13 => Self::Erase(pick),
            13 => Self::EraseNamed(pick),
            14 => Self::Bury(pick),
            15 if pick.is_multiple_of(2) => Self::Bury(pick),
            15 => Self::GiveBack(pick),
            16 => Self::Park(pick, now + rng.below(20)),
            17 => Self::EnterDue(now),
            18 => match rng.below(8) {
                0 => Self::Take(1 + rng.below(5) as usize),
                1..3 => Self::Purge(pick),
                _ => Self::Redrive(pick),
            },
            _ => Self::Hold(pick % 3, now + rng.below(20)),
        }
    }

    fn draft(self, page: &mut Draft<'_>, line: &[Stored], dead: &[MessageId], now: u64) -> Result<(), StoreError> {
        let nth = |number: u64| line.get(number as usize % line.len().max(1));
        let dead = |number: u64| dead.get(number as usize % dead.len().max(1)).copied();
        match self {
            Self::Put { key, name, body, due } => {
                let new = New { rule: "send".into(), key: Key::from(key), name, body, due };
                page.put(new, now)?;
            }
            Self::Note(number) => {
                if let Some(stored) = nth(number) {
                    page.note(stored, &Progress { starts: now as u32, in_flight: true, ..stored.progress });
                }
            }
            Self::Erase(number) => {
                if let Some(stored) = nth(number) {
                    page.erase(stored, None)?;
                }
            }
            Self::EraseNamed(number) => {
                if let Some(stored) = nth(number) {
                    page.erase(stored, Some((b"7".to_vec(), now + 40)))?;
                }
            }
            Self::Bury(number) => {
                if let Some(stored) = nth(number) {
                    page.bury(stored, buried(stored, now))?;
                }
            }
            Self::GiveBack(number) => {
                if let Some(stored) = nth(number) {
                    page.give_back(stored, buried(stored, now))?;
                }
            }
            Self::Park(number, due) => {
                if let Some(stored) = nth(number) {
                    page.park(stored, due);
                }
            }
            Self::EnterDue(now) => drop(page.enter_due(now, 100)?),
            Self::Redrive(number) => {
                if let Some(id) = dead(number) {
                    page.redrive(id)?;
                }
            }
            Self::Purge(number) => {
                if let Some(id) = dead(number) {
                    page.purge(id)?;
                }
            }
            Self::Take(most) => drop(page.take(most)?),
            Self::Hold(target, until) => page.hold(vec![3, target as u8], until, now)?,
        }
        Ok(())
    }

    /// Whether it is taken back where nobody knows whether it was done.
    pub(super) const fn is_undone(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Take(_))
    }

    /// Whether messages come to their end by it.
    pub(super) const fn ends_some(&self) -> bool {
        matches!(self, Self::Erase(_) | Self::EraseNamed(_) | Self::Bury(_) | Self::GiveBack(_))
    }
}

fn buried(stored: &Stored, now: u64) -> Buried {
    let (reason, record) = ("it was time".to_owned(), (*stored.record).clone());
    Buried { died_at: now, starts: 1, maybe_delivered: false, reason, record }
}

/// A store that is worked on, and one in memory that has been through the same.
pub(super) struct Pair {
    pub(super) books: Books,
    model: Books,
    kept: MemoryStore,
    now: u64,
}

impl Pair {
    /// A new store on a disk.
    pub(super) fn new(disk: &Disk) -> Self {
        let books = open(disk).expect("a disk in order");
        let kept = MemoryStore::new();
        let model = Books::open(Box::new(kept.clone()), BOUNDS).expect("memory");
        Self { books, model, kept, now: 0 }
    }

    /// Does the steps as one transaction. Returns what is there if they were done, and what became of them.
    pub(super) fn run(&mut self, steps: &[Step]) -> (Dump, Result<(), StoreError>) {
        self.now += 1;
        let (line, dead) = (self.line(), self.dead());
        let now = self.now;
        let done = run(&mut self.model, steps, &line, &dead, now);
        assert_eq!(done, Ok(()));
        let after = dump(&View::new(&self.kept));
        (after, run(&mut self.books, steps, &line, &dead, now))
    }

    /// The model goes on from what was found.
    pub(super) fn go_on_from(&mut self, found: &Dump) {
        let kept = MemoryStore::new();
        found.restore(&mut kept.clone());
        self.model = Books::open(Box::new(kept.clone()), BOUNDS).expect("memory");
        self.kept = kept;
    }

    pub(super) fn model(&self) -> Dump {
        dump(&View::new(&self.kept))
    }

    fn line(&self) -> Vec<Stored> {
        let queues = shelf::queues(&View::new(&self.kept), None, 100, |_| true).expect("memory");
        let found = queues.found.iter();
        found
            .flat_map(|(queue, _)| {
                shelf::load(&View::new(&self.kept), queue, &Default::default(), 100, u64::MAX).expect("memory").0
            })
            .collect()
    }

    fn dead(&self) -> Vec<MessageId> {
        shelf::dead(&View::new(&self.kept), None, 100).expect("memory").iter().map(|buried| buried.record.id).collect()
    }
}

fn run(books: &mut Books, steps: &[Step], line: &[Stored], dead: &[MessageId], now: u64) -> Result<(), StoreError> {
    let (sender, answers) = mpsc::channel();
    let gone = Arc::new(Mutex::new(BTreeSet::new()));
    let jobs = steps.iter().cloned().map(|step| {
        let (sender, line, dead, gone) = (sender.clone(), line.to_vec(), dead.to_vec(), Arc::clone(&gone));
        Job::Write(Box::new(move |page: Option<&mut Draft<'_>>| -> Then {
            // An outbox does nothing with a message that it has done with.
            let mut gone = gone.lock().expect("no panic");
            let line: Vec<Stored> = line.into_iter().filter(|stored| !gone.contains(&stored.place)).collect();
            let picked = match step {
                Step::Erase(number)
                | Step::EraseNamed(number)
                | Step::Bury(number)
                | Step::GiveBack(number)
                | Step::Park(number, _) => line.get(number as usize % line.len().max(1)).map(|stored| stored.place),
                Step::Put { .. }
                | Step::Note(_)
                | Step::EnterDue(_)
                | Step::Redrive(_)
                | Step::Purge(_)
                | Step::Take(_)
                | Step::Hold(..) => None,
            };
            gone.extend(picked);
            if let Step::Take(_) = step {
                gone.extend(line.iter().map(|stored| stored.place));
            }
            let drafted =
                page.map_or(Err(StoreError::Closed), |page| page.job(|page| step.draft(page, &line, &dead, now)));
            Box::new(move |made| drop(sender.send(made.and(drafted))))
        }))
    });
    let jobs = jobs.collect();
    books.run(jobs);
    drop(sender);
    answers.into_iter().collect()
}

/// Opens what is on a disk.
pub(super) fn open(disk: &Disk) -> Result<Books, StoreError> {
    let disk = disk.clone();
    let store = RedbStore::with(move || Database::builder().create_with_backend(disk.clone()))?;
    Books::open(Box::new(store), BOUNDS)
}

/// All that is in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    tables: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    /// Without what differs from store to store.
    counts: Counts,
}

impl Dump {
    fn restore(&self, store: &mut MemoryStore) {
        let set = |table, key: &[u8], value| Change { table, key: key.to_vec(), value: Some(value) };
        let mut changes: Vec<_> =
            self.tables.iter().map(|((table, key), value)| set(*table, key, value.clone())).collect();
        changes.push(set(Table::Meta, b"counts", self.counts.write()));
        changes.push(set(Table::Meta, b"format", FORMAT.to_be_bytes().to_vec()));
        store.commit(&changes).expect("memory");
    }

    /// Panics unless the counts and the names are those of the messages.
    pub(super) fn check(&self, context: &str) {
        let (mut bytes, mut dead_bytes) = (0, 0);
        let (ids, dead) = (self.ids(), self.of(Table::Dead));
        for record in self.records() {
            bytes += Stored { place: 0, record: Arc::new(record), progress: Progress::default() }.size();
        }
        for (_, value) in &dead {
            dead_bytes += (value.len() + size_of::<u64>()) as u64;
        }
        let Counts { messages, bytes: counted, dead: counted_dead, dead_bytes: counted_dead_bytes, .. } = self.counts;
        assert_eq!((messages, counted), (ids.len() as u64, bytes), "{context}");
        assert_eq!((counted_dead, counted_dead_bytes), (dead.len() as u64, dead_bytes), "{context}");
        assert_eq!(self.counts.names, self.of(Table::Forget).len() as u64, "{context}");
        for (name, value) in self.of(Table::Names) {
            let known = match Named::read(value).expect("a sound name") {
                Named::Pending(id) | Named::Promised(id) => ids.contains(&id.get()),
                Named::Dead(id) => dead.iter().any(|(key, _)| **key == id.get().to_be_bytes()),
                Named::Sent(..) => true,
            };
            assert!(known, "{context}: a name of no message: {}", String::from_utf8_lossy(name));
        }
    }

    /// Of the messages that are neither sent nor dead.
    pub(super) fn ids(&self) -> BTreeSet<u64> {
        self.records().map(|record| record.id.get()).collect()
    }

    /// The id that comes next.
    pub(super) const fn next(&self) -> u64 {
        self.counts.next
    }

    fn records(&self) -> impl Iterator<Item = Record> + use<'_> {
        let later = self.of(Table::Later).into_iter().map(|(_, value)| &value[1..]);
        let all = self.of(Table::Messages).into_iter().map(|(_, value)| value).chain(later);
        all.map(|bytes| Record::read(bytes).expect("a sound message"))
    }

    fn of(&self, table: Table) -> Vec<(&[u8], &[u8])> {
        let entries = self.tables.iter().filter(|((of, _), _)| *of == table);
        entries.map(|((_, key), value)| (&**key, &**value)).collect()
    }

    /// The same, whichever ids come next: those that nobody got are not given again.
    pub(super) fn whatever_comes_next(mut self) -> Self {
        self.counts.next = 0;
        self
    }
}

pub(super) fn dump(store: &View<'_>) -> Dump {
    let mut tables = BTreeMap::new();
    let mut counts = Counts::default();
    for table in Table::ALL {
        store
            .scan(table, Bound::Unbounded, &mut |key, value| {
                if table != Table::Meta {
                    tables.insert((table, key.to_vec()), value.to_vec());
                } else if key == b"counts" {
                    counts = Counts { serial: 0, birth: 0, ..Counts::read(value).expect("sound counts") };
                }
                true
            })
            .expect("a store in order");
    }
    Dump { tables, counts }
}

/// All that is in the books' store.
pub(super) fn dump_of(books: &mut Books) -> Result<Dump, StoreError> {
    let (sender, answer) = mpsc::channel();
    books.run(vec![Job::Read(Box::new(move |store| drop(sender.send(store.map(dump)))))]);
    answer.recv().expect("an answer")
}
