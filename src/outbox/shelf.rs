//! What is read from the store: pages of it, so that nobody has all of it in memory.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::bytes::Reader;
use super::draft::Stored;
use super::record::{Buried, MessageId, Progress, Queue, Record, Unix, split};
use super::store::{StoreError, Table};
use super::view::View;

/// Messages of a queue, the first ones that are not in `skip`, until they have so many bytes, and whether there are more.
pub(super) fn load(
    store: &View<'_>,
    queue: &Queue,
    skip: &BTreeSet<u64>,
    most: usize,
    bytes: u64,
) -> Result<(Vec<Stored>, bool), StoreError> {
    let (mut found, mut taken) = (Vec::new(), 0);
    let mut more = false;
    store.scan(Table::Messages, Bound::Included(&queue.at(0)), &mut |key, value| {
        let Ok((prefix, place)) = split(key) else { return true };
        if prefix != queue.prefix() {
            return false;
        }
        if skip.contains(&place) {
            return true;
        }
        more = found.len() == most || taken >= bytes;
        if !more {
            taken += value.len() as u64;
            found.push((place, key.to_vec(), Record::read(value)));
        }
        !more
    })?;
    let stored = found.into_iter().map(|(place, key, record)| {
        let progress = progress(store, &key)?;
        Ok(Stored { place, record: Arc::new(record?), progress })
    });
    Ok((stored.collect::<Result<_, StoreError>>()?, more))
}

/// Some queues that have messages, in the order of their names.
#[derive(Debug)]
pub(super) struct Queues {
    /// Those that are wanted, and where the first message of each stands.
    pub(super) found: Vec<(Queue, u64)>,
    /// The last one that was looked at; `None`: there is none behind them.
    pub(super) last: Option<Queue>,
}

/// So many queues are looked at for a page of those that are wanted: others wait for the store meanwhile.
const LOOKS: usize = 4 * PAGE;

/// Queues after one: those of which `wanted` says so, which says the same of all queues of a rule.
pub(super) fn queues(
    store: &View<'_>,
    after: Option<&Queue>,
    most: usize,
    wanted: impl Fn(&Queue) -> bool,
) -> Result<Queues, StoreError> {
    let mut queues = Queues { found: Vec::new(), last: after.cloned() };
    let mut behind = after.map(|queue| queue.at(u64::MAX));
    for _ in 0..LOOKS {
        if queues.found.len() == most {
            break;
        }
        let from = behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = None;
        store.scan(Table::Messages, from, &mut |key, _| {
            next = Some(split(key).and_then(|(_, place)| Ok((Queue::of(key)?, place))));
            false
        })?;
        let Some(next) = next else {
            queues.last = None;
            break;
        };
        let (queue, first) = next?;
        queues.last = Some(queue.clone());
        if wanted(&queue) {
            behind = Some(queue.at(u64::MAX));
            queues.found.push((queue, first));
        } else {
            behind = Some(queue.behind_rule());
        }
    }
    Ok(queues)
}

/// When the first of the messages that are not in line enters it.
pub(super) fn next_due(store: &View<'_>) -> Result<Option<Unix>, StoreError> {
    let mut due = None;
    store.scan(Table::Later, Bound::Unbounded, &mut |key, _| {
        due = Some(Reader::new(key).u64());
        false
    })?;
    due.transpose()
}

/// When the message of a page of queues was put that was put first, and the page's last queue.
pub(super) fn oldest(store: &View<'_>, after: Option<&Queue>) -> Result<Option<(Unix, Queue)>, StoreError> {
    let page = queues(store, after, PAGE, |_| true)?.found;
    let mut oldest = Unix::MAX;
    for (queue, _) in &page {
        let (first, _) = load(store, queue, &BTreeSet::new(), 1, u64::MAX)?;
        oldest = first.first().map_or(oldest, |message| oldest.min(message.record.put_at));
    }
    Ok(page.last().map(|(last, _)| (oldest, last.clone())))
}

/// Everything that was held, and until when.
pub(super) fn holds(store: &View<'_>) -> Result<Vec<(Vec<u8>, Unix)>, StoreError> {
    let mut holds = Vec::new();
    store.scan(Table::Holds, Bound::Unbounded, &mut |target, until| {
        holds.push((target.to_vec(), Reader::new(until).u64()));
        true
    })?;
    holds.into_iter().map(|(target, until)| Ok((target, until?))).collect()
}

/// Dead messages after one, oldest first.
pub(super) fn dead(store: &View<'_>, after: Option<MessageId>, most: usize) -> Result<Vec<Buried>, StoreError> {
    let after = after.map(|id| id.get().to_be_bytes());
    let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_slice()));
    page(store, Table::Dead, from, most)?.iter().map(|(_, value)| Buried::read(value)).collect()
}

/// A page of messages: those in line, or those that enter it later.
pub(super) fn messages(
    store: &View<'_>,
    table: Table,
    after: Option<&[u8]>,
    most: usize,
) -> Result<Vec<Listed>, StoreError> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let listed = page(store, table, from, most)?.into_iter().map(|(key, value)| {
        let (record, due, message) = if table == Table::Later {
            let mut reader = Reader::new(&key);
            let (due, place) = (reader.u64()?, reader.u64()?);
            let record = Record::read(value.get(1..).unwrap_or_default())?;
            let message = record.queue().at(place);
            (record, Some(due), message)
        } else {
            (Record::read(&value)?, None, key.clone())
        };
        Ok(Listed { record, due, progress: progress(store, &message)?, key })
    });
    listed.collect()
}

/// A message as it is listed.
#[derive(Debug)]
pub(super) struct Listed {
    /// Where the next page begins.
    pub(super) key: Vec<u8>,
    pub(super) record: Record,
    pub(super) progress: Progress,
    /// When it enters the line; `None`: it is there.
    pub(super) due: Option<Unix>,
}

/// How many entries make a page.
pub(super) const PAGE: usize = 256;

fn page(store: &View<'_>, table: Table, from: Bound<&[u8]>, most: usize) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    if most > 0 {
        store.scan(table, from, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            entries.len() < most
        })?;
    }
    Ok(entries)
}

type Entry = (Vec<u8>, Vec<u8>);

fn progress(store: &View<'_>, message: &[u8]) -> Result<Progress, StoreError> {
    store.get(Table::Progress, message)?.map_or_else(|| Ok(Progress::default()), |bytes| Progress::read(&bytes))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::key::Key;
    use crate::outbox::{Change, MemoryStore, Store};

    /// Each rule of another lane costs a look, and there may be as many as somebody names: all of them were looked at while
    /// nobody could write.
    #[test]
    fn a_page_looks_at_so_many_rules_and_the_next_one_goes_on() {
        let mut store = MemoryStore::new();
        let queue = |rule: usize| Queue::new(&format!("rule {rule:06}"), &Key::from(1));
        let rules = 3 * LOOKS / 2;
        let put = |rule| Change { table: Table::Messages, key: queue(rule).at(7), value: Some(Vec::new()) };
        store.commit(&(0..=rules).map(put).collect::<Vec<_>>()).unwrap();
        let (last, looks) = (queue(rules), Cell::new(0));
        let page = |after: Option<&Queue>| {
            looks.set(0);
            let wanted = |queue: &Queue| {
                looks.set(looks.get() + 1);
                *queue == last
            };
            queues(&View::new(&store), after, PAGE, wanted).unwrap()
        };
        let first = page(None);
        assert_eq!((first.found, first.last.as_ref(), looks.get()), (Vec::new(), Some(&queue(LOOKS - 1)), LOOKS));
        let second = page(first.last.as_ref());
        assert_eq!((second.found, second.last, looks.get()), (vec![(last.clone(), 7)], None, LOOKS / 2 + 1));
    }
}
