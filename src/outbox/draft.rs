//! A transaction in the making: what becomes of messages, in terms of tables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::books::{Bounds, Overflow};
use super::bytes::{Reader, Writer};
use super::names::EACH;
use super::record::{Buried, Counts, MessageId, Named, Progress, Queue, Record, Unix, split};
use super::store::{Change, StoreError, Table};
use super::view::View;
use crate::key::Key;

/// A transaction in the making: reads see what it will have changed.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    store: &'a View<'a>,
    pub(super) bounds: &'a Bounds,
    pub(super) counts: Counts,
    changes: BTreeMap<Table, Changes>,
    bytes: usize,
    undo: Undo,
    /// What the job at hand replaced, to put it back.
    replaced: Vec<Replaced>,
}

/// New values; `None`: removed.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An entry as it was before a job.
type Replaced = ((Table, Vec<u8>), Option<Option<Vec<u8>>>);

/// What takes back that messages were put or taken, should it turn out that they were though their caller was told they
/// were not.
#[derive(Debug, Default)]
pub(super) struct Undo {
    changes: Vec<Undone>,
    messages: i64,
    bytes: i64,
}

#[derive(Debug)]
enum Undone {
    /// The entry is to be as it was.
    Set(Change),
    /// What became of the entry since is not taken back.
    Keep(Table, Vec<u8>),
}

/// A message that is to be put.
#[derive(Debug)]
pub(super) struct New {
    pub(super) rule: Arc<str>,
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) body: Vec<u8>,
    /// Enters the line then.
    pub(super) due: Option<Unix>,
}

/// A message in line.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) place: u64,
    pub(super) record: Arc<Record>,
    pub(super) progress: Progress,
}

impl Stored {
    pub(super) fn size(&self) -> u64 {
        size_of_message(&self.record.write(), &self.record.queue())
    }
}

/// What became of a message that was to be put.
#[derive(Debug)]
pub(super) enum Put {
    InLine(Stored),
    Later(MessageId, Unix),
    /// It was put before, under the same name.
    Known(Named),
    Full(Full),
}

/// How much there is, where no more fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Where a message went that is tried no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Burial {
    /// Among the dead; these were lost for it, or it was lost itself.
    Done(Vec<Buried>),
    /// Nowhere: there is no room.
    Blocked,
    /// Nowhere: whoever waits for it is told.
    Erased,
}

impl Undo {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn apply(&self, counts: Counts) -> (Vec<Change>, Counts) {
        let counts = Counts {
            messages: counts.messages.saturating_add_signed(self.messages),
            bytes: counts.bytes.saturating_add_signed(self.bytes),
            ..counts
        };
        let (mut changes, mut kept) = (Vec::new(), BTreeSet::new());
        // What was put and then taken is not there.
        for undone in self.changes.iter().rev() {
            match undone {
                Undone::Set(change) if kept.contains(&(change.table, &*change.key)) => {}
                Undone::Set(change) => changes.push(change.clone()),
                Undone::Keep(table, key) => drop(kept.insert((*table, &**key))),
            }
        }
        (changes, counts)
    }

    fn set(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) {
        self.changes.push(Undone::Set(Change { table, key: key.to_vec(), value: value.map(<[u8]>::to_vec) }));
    }

    /// The entry was changed by what is not taken back.
    fn keep(&mut self, table: Table, key: &[u8]) {
        if self.sets(table, key) {
            self.changes.push(Undone::Keep(table, key.to_vec()));
        }
    }

    fn sets(&self, table: Table, key: &[u8]) -> bool {
        self.changes.iter().any(|undone| match undone {
            Undone::Set(change) => change.table == table && change.key == key,
            Undone::Keep(..) => false,
        })
    }

    const fn mark(&self) -> (usize, i64, i64) {
        (self.changes.len(), self.messages, self.bytes)
    }

    fn back_to(&mut self, (changes, messages, bytes): (usize, i64, i64)) {
        self.changes.truncate(changes);
        (self.messages, self.bytes) = (messages, bytes);
    }

    const fn count(&mut self, messages: i64, bytes: u64) {
        self.messages += messages;
        self.bytes += messages.signum() * bytes.cast_signed();
    }
}

impl<'a> Draft<'a> {
    pub(super) fn new(store: &'a View<'a>, bounds: &'a Bounds, counts: Counts) -> Self {
        Self { store, bounds, counts, changes: BTreeMap::new(), bytes: 0, undo: Undo::default(), replaced: Vec::new() }
    }

    /// Does a job entirely or not at all.
    pub(super) fn job<R, E>(&mut self, job: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E> {
        self.replaced.clear();
        let (counts, undo) = (self.counts, self.undo.mark());
        let done = job(self);
        if done.is_err() {
            self.counts = counts;
            self.undo.back_to(undo);
            while let Some(((table, key), before)) = self.replaced.pop() {
                let changes = self.changes.entry(table).or_default();
                match before {
                    Some(before) => drop(changes.insert(key, before)),
                    None => drop(changes.remove(&key)),
                }
            }
        }
        done
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn done(self) -> (Vec<Change>, Counts, Undo) {
        let changes = self
            .changes
            .into_iter()
            .flat_map(|(table, changes)| changes.into_iter().map(move |(key, value)| Change { table, key, value }));
        (changes.collect(), self.counts, self.undo)
    }

    /// Puts a message in line, unless there is no room or it is known.
    pub(super) fn put(&mut self, new: New, now: Unix) -> Result<Put, StoreError> {
        if !new.name.is_empty() {
            self.forget(now, EACH)?;
            if let Some(known) = self.named(&new.name, now)? {
                if let Named::Pending(id) = known {
                    // From now on not only whoever put it first relies on it.
                    self.undo.set(Table::Names, new.name.as_bytes(), Some(&known.write()));
                    self.set(Table::Names, new.name.as_bytes().to_vec(), Named::Promised(id).write());
                }
                return Ok(Put::Known(known));
            }
        }
        let New { rule, key, name, body, due } = new;
        let id = MessageId(self.counts.next);
        let record = Record { id, put_at: now, rule, key, name, body };
        let (queue, written) = (record.queue(), record.write());
        let size = size_of_message(&written, &queue);
        if let Err(full) = self.room(1, size) {
            return Ok(Put::Full(full));
        }
        self.counts.next += 1;
        self.counts.messages += 1;
        self.counts.bytes += size;
        self.undo.count(-1, size);
        if !record.name.is_empty() {
            self.undo.set(Table::Names, record.name.as_bytes(), None);
            self.set(Table::Names, record.name.as_bytes().to_vec(), Named::Pending(id).write());
        }
        if let Some(due) = due {
            let key = later(due, id.0);
            self.undo.set(Table::Later, &key, None);
            self.set(Table::Later, key, Writer::default().u8(1).rest(&written).done());
            return Ok(Put::Later(id, due));
        }
        let key = queue.at(id.0);
        self.undo.set(Table::Messages, &key, None);
        self.set(Table::Messages, key, written);
        Ok(Put::InLine(Stored { place: id.0, record: Arc::new(record), progress: Progress::default() }))
    }

    /// Whether so much more fits.
    pub(super) const fn room(&self, messages: u64, bytes: u64) -> Result<(), Full> {
        let Counts { messages: kept, bytes: kept_bytes, .. } = self.counts;
        if kept + messages > self.bounds.messages || kept_bytes + bytes > self.bounds.bytes {
            return Err(Full { messages: kept, bytes: kept_bytes });
        }
        Ok(())
    }

    /// Writes down what is behind a message.
    pub(super) fn note(&mut self, message: &Stored, progress: &Progress) {
        self.set(Table::Progress, message.record.queue().at(message.place), progress.write());
    }

    /// The message was sent, or its caller was told that it can't be. `value`: what a name is to be remembered with, and
    /// until when. Where it is not in line any more this has been done before.
    pub(super) fn erase(&mut self, message: &Stored, value: Option<(Vec<u8>, Unix)>) -> Result<(), StoreError> {
        if self.is_in_line(message)? {
            self.leave(message);
            self.undo.keep(Table::Names, message.record.name.as_bytes());
            self.settle_name(message, value)?;
        }
        Ok(())
    }

    /// The message failed for good, and whoever put it is told. It is erased, unless somebody else relies on it. `None`: it
    /// is not in line any more, this has been done before.
    pub(super) fn give_back(&mut self, message: &Stored, buried: Buried) -> Result<Option<Burial>, StoreError> {
        if !self.is_in_line(message)? {
            return Ok(None);
        }
        let name = self.get(Table::Names, message.record.name.as_bytes())?;
        let named = name.map(|bytes| Named::read(&bytes)).transpose()?;
        if named == Some(Named::Promised(message.record.id)) {
            return self.bury(message, buried);
        }
        self.erase(message, None)?;
        Ok(Some(Burial::Erased))
    }

    /// The message is to be tried no more. `None`: it is not in line any more, this has been done before.
    pub(super) fn bury(&mut self, message: &Stored, mut buried: Buried) -> Result<Option<Burial>, StoreError> {
        if !self.is_in_line(message)? {
            return Ok(None);
        }
        let size = size_of_dead(&buried.write());
        let fits_alone = size <= self.bounds.dead_bytes && self.bounds.dead > 0;
        let mut lost = Vec::new();
        while self.counts.dead + 1 > self.bounds.dead || self.counts.dead_bytes + size > self.bounds.dead_bytes {
            let oldest = match self.bounds.overflow {
                Overflow::Block if fits_alone => return Ok(Some(Burial::Blocked)),
                Overflow::DropOldest if fits_alone => self.dead(None, 1)?.pop(),
                Overflow::Block | Overflow::DropOldest | Overflow::RefuseNew => None,
            };
            let Some(oldest) = oldest else {
                self.erase(message, None)?;
                lost.push(buried);
                return Ok(Some(Burial::Done(lost)));
            };
            self.exhume(&oldest);
            if !oldest.record.name.is_empty() {
                self.remove(Table::Names, oldest.record.name.as_bytes().to_vec());
            }
            lost.push(oldest);
        }
        self.leave(message);
        buried.starts = buried.starts.max(message.progress.starts);
        self.counts.dead += 1;
        self.counts.dead_bytes += size;
        if !buried.record.name.is_empty() {
            let name = buried.record.name.as_bytes().to_vec();
            self.undo.keep(Table::Names, &name);
            self.set(Table::Names, name, Named::Dead(buried.record.id).write());
        }
        self.set(Table::Dead, buried.record.id.0.to_be_bytes().to_vec(), buried.write());
        Ok(Some(Burial::Done(lost)))
    }

    /// The message leaves the line until `due`, and then has its place again.
    pub(super) fn park(&mut self, message: &Stored, due: Unix) {
        let key = message.record.queue().at(message.place);
        self.remove(Table::Messages, key);
        let value = Writer::default().u8(0).rest(&message.record.write()).done();
        self.set(Table::Later, later(due, message.place), value);
    }

    /// What is due enters the line: whose line, and whether there is more that is due.
    pub(super) fn enter_due(&mut self, now: Unix, most: usize) -> Result<(Vec<Queue>, bool), StoreError> {
        let due = self.scan(Table::Later, Bound::Unbounded, most + 1)?;
        let mut queues = Vec::new();
        for (position, (key, value)) in due.into_iter().enumerate() {
            let mut parts = Reader::new(&key);
            let (at, mut place) = (parts.u64()?, parts.u64()?);
            if at > now {
                return Ok((queues, false));
            }
            if position == most {
                return Ok((queues, true));
            }
            let mut reader = Reader::new(&value);
            if reader.u8()? != 0 {
                place = self.next_place();
            }
            let queue = Record::read(reader.rest())?.queue();
            if self.undo.sets(Table::Later, &key) {
                // It was put in this very transaction.
                self.undo.set(Table::Messages, &queue.at(place), None);
            }
            self.remove(Table::Later, key);
            self.set(Table::Messages, queue.at(place), reader.rest().to_vec());
            queues.push(queue);
        }
        Ok((queues, false))
    }

    /// A dead message goes back in line, as if it had failed never; its id and the number of its attempts stay.
    pub(super) fn redrive(&mut self, id: MessageId) -> Result<Redriven, StoreError> {
        let Some(bytes) = self.get(Table::Dead, &id.0.to_be_bytes())? else { return Ok(Redriven::Unknown) };
        let buried = Buried::read(&bytes)?;
        let (queue, written) = (buried.record.queue(), buried.record.write());
        let size = size_of_message(&written, &queue);
        if let Err(full) = self.room(1, size) {
            return Ok(Redriven::Full(full));
        }
        self.exhume(&buried);
        let place = self.next_place();
        self.counts.messages += 1;
        self.counts.bytes += size;
        let Buried { starts, maybe_delivered, record, .. } = buried;
        let progress = Progress { starts, maybe_delivered, ..Progress::default() };
        self.set(Table::Messages, queue.at(place), written);
        self.set(Table::Progress, queue.at(place), progress.write());
        if !record.name.is_empty() {
            self.set(Table::Names, record.name.as_bytes().to_vec(), Named::Pending(id).write());
        }
        Ok(Redriven::Done(queue))
    }

    /// A dead message is forgotten. Returns whether there was one.
    pub(super) fn purge(&mut self, id: MessageId) -> Result<bool, StoreError> {
        let Some(bytes) = self.get(Table::Dead, &id.0.to_be_bytes())? else { return Ok(false) };
        let buried = Buried::read(&bytes)?;
        self.exhume(&buried);
        if !buried.record.name.is_empty() {
            self.remove(Table::Names, buried.record.name.as_bytes().to_vec());
        }
        Ok(true)
    }

    /// Takes messages out of the line, and then those that were to enter it: all of them, if called until none is left.
    pub(super) fn take(&mut self, most: usize) -> Result<Vec<Taken>, StoreError> {
        let mut taken = Vec::new();
        for (key, value) in self.scan(Table::Messages, Bound::Unbounded, most)? {
            let record = Arc::new(Record::read(&value)?);
            let progress = self.progress(&key)?;
            let message = Stored { place: split(&key)?.1, record, progress };
            self.undo.set(Table::Messages, &key, Some(&value));
            self.take_one(&message)?;
            taken.push(Taken { record: message.record, progress, due: None });
        }
        if !taken.is_empty() {
            return Ok(taken);
        }
        for (key, value) in self.scan(Table::Later, Bound::Unbounded, most)? {
            let mut reader = Reader::new(&key);
            let (due, place) = (reader.u64()?, reader.u64()?);
            let record = Arc::new(Record::read(value.get(1..).unwrap_or_default())?);
            let progress = self.progress(&record.queue().at(place))?;
            let message = Stored { place, record, progress };
            self.undo.set(Table::Later, &key, Some(&value));
            self.take_one(&message)?;
            self.remove(Table::Later, key);
            taken.push(Taken { record: message.record, progress, due: Some(due) });
        }
        Ok(taken)
    }

    fn take_one(&mut self, message: &Stored) -> Result<(), StoreError> {
        let Stored { place, record, .. } = message;
        self.undo.count(1, message.size());
        let key = record.queue().at(*place);
        let progress = self.get(Table::Progress, &key)?;
        self.undo.set(Table::Progress, &key, progress.as_deref());
        if !record.name.is_empty() {
            let named = self.get(Table::Names, record.name.as_bytes())?;
            self.undo.set(Table::Names, record.name.as_bytes(), named.as_deref());
        }
        self.leave(message);
        self.settle_name(message, None)
    }

    fn progress(&self, key: &[u8]) -> Result<Progress, StoreError> {
        self.get(Table::Progress, key)?.map_or_else(|| Ok(Progress::default()), |bytes| Progress::read(&bytes))
    }

    /// Dead messages after one, oldest first.
    fn dead(&self, after: Option<MessageId>, most: usize) -> Result<Vec<Buried>, StoreError> {
        let after = after.map(|id| id.0.to_be_bytes());
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_slice()));
        self.scan(Table::Dead, from, most)?.iter().map(|(_, value)| Buried::read(value)).collect()
    }

    fn exhume(&mut self, buried: &Buried) {
        self.counts.dead = self.counts.dead.saturating_sub(1);
        self.counts.dead_bytes = self.counts.dead_bytes.saturating_sub(size_of_dead(&buried.write()));
        self.remove(Table::Dead, buried.record.id.0.to_be_bytes().to_vec());
    }

    fn is_in_line(&self, message: &Stored) -> Result<bool, StoreError> {
        Ok(self.get(Table::Messages, &message.record.queue().at(message.place))?.is_some())
    }

    fn leave(&mut self, message: &Stored) {
        let key = message.record.queue().at(message.place);
        self.counts.messages = self.counts.messages.saturating_sub(1);
        self.counts.bytes = self.counts.bytes.saturating_sub(message.size());
        self.remove(Table::Messages, key.clone());
        self.remove(Table::Progress, key);
    }

    const fn next_place(&mut self) -> u64 {
        self.counts.next += 1;
        self.counts.next - 1
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(&table).and_then(|changes| changes.get(key)) {
            Some(changed) => Ok(changed.clone()),
            None => self.store.get(table, key),
        }
    }

    /// Up to so many entries from there on.
    pub(super) fn scan(&self, table: Table, from: Bound<&[u8]>, most: usize) -> Result<Vec<Entry>, StoreError> {
        let changes = self.changes.get(&table);
        let mut entries = BTreeMap::new();
        self.store.scan(table, from, &mut |key, value| {
            if changes.is_none_or(|changes| !changes.contains_key(key)) {
                entries.insert(key.to_vec(), value.to_vec());
            }
            entries.len() < most
        })?;
        let changed = changes.into_iter().flat_map(|changes| changes.range::<[u8], _>((from, Bound::Unbounded)));
        let set = changed.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        entries.extend(set.take(most));
        Ok(entries.into_iter().take(most).collect())
    }

    pub(super) fn set(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.change(table, key, Some(value));
    }

    pub(super) fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.change(table, key, None);
    }

    fn change(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        let before = self.changes.entry(table).or_default().insert(key.clone(), value);
        self.replaced.push(((table, key), before));
    }
}

/// A message that was taken out.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) record: Arc<Record>,
    pub(super) progress: Progress,
    /// When it was to enter the line, if it was not there.
    pub(super) due: Option<Unix>,
}

/// What became of a dead message that was to be tried again.
#[derive(Debug)]
pub(super) enum Redriven {
    Done(Queue),
    Unknown,
    Full(Full),
}

type Entry = (Vec<u8>, Vec<u8>);

fn later(due: Unix, place: u64) -> Vec<u8> {
    Writer::default().u64(due).u64(place).done()
}

fn size_of_message(written: &[u8], queue: &Queue) -> u64 {
    (written.len() + queue.prefix().len() + size_of::<u64>()) as u64
}

fn size_of_dead(written: &[u8]) -> u64 {
    (written.len() + size_of::<u64>()) as u64
}
