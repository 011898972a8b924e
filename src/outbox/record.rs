//! Messages and what is behind them, as they are stored: format version 1.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::bytes::{Reader, Writer};
use super::store::StoreError;
use crate::engine::{Nanos, Spent};
use crate::key::Key;

/// The version that is written, and the newest one that is read.
pub(super) const FORMAT: u32 = 1;

/// Where it is written.
pub(super) const FORMAT_KEY: &[u8] = b"format";

/// The name of a message for as long as its outbox exists: never given twice, the same at each attempt and after each
/// restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(super) u64);

impl MessageId {
    /// As a number; later messages have larger ones.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for MessageId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time on the wall as it is stored: nanoseconds since 1970 in UTC.
pub(super) type Unix = u64;

/// Whose line a message stands in: a rule and a key, as the front part of the messages' keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    prefix: Arc<[u8]>,
}

impl Queue {
    pub(super) fn new(rule: &str, key: &Key) -> Self {
        // Each part has its length before it: no queue's front part is that of another.
        Self { prefix: Writer::default().text(rule).text(&key.to_text()).done().into() }
    }

    /// From the key of a message, which ends with its place.
    pub(super) fn of(message: &[u8]) -> Result<Self, StoreError> {
        let (prefix, _) = split(message)?;
        Ok(Self { prefix: prefix.into() })
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The key of the message that stands there.
    pub(super) fn at(&self, place: u64) -> Vec<u8> {
        Writer::default().rest(&self.prefix).u64(place).done()
    }

    /// The rule, if it can be read.
    pub(super) fn rule(&self) -> Option<&str> {
        Reader::new(&self.prefix).text().ok()
    }

    /// A key behind all messages of the queue, and of its rule if that can be read, before those of the next one.
    pub(super) fn behind_rule(&self) -> Vec<u8> {
        let Some(rule) = self.rule() else { return self.at(u64::MAX) };
        let mut key = Writer::default().text(rule).done();
        if let Some(last) = key.last_mut() {
            // Of a text, or of the length of an empty one: neither ends with the largest byte.
            *last += 1;
        }
        key
    }

    pub(super) fn parts(&self) -> Result<(Arc<str>, Key), StoreError> {
        let mut reader = Reader::new(&self.prefix);
        let rule = reader.text()?.into();
        Ok((rule, key(reader.text()?)?))
    }
}

impl Ord for Queue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix.cmp(&other.prefix)
    }
}

impl PartialOrd for Queue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a message's key ends and its place begins.
pub(super) fn split(message: &[u8]) -> Result<(&[u8], u64), StoreError> {
    let (prefix, place) = message
        .split_last_chunk()
        .ok_or_else(|| StoreError::Damaged { message: "a message has no place".to_owned() })?;
    Ok((prefix, u64::from_be_bytes(*place)))
}

/// What is written before the first attempt and never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: MessageId,
    pub(super) put_at: Unix,
    pub(super) rule: Arc<str>,
    pub(super) key: Key,
    /// Under which it was put; empty if under none.
    pub(super) name: String,
    /// JSON.
    pub(super) body: Vec<u8>,
}

impl Record {
    pub(super) fn queue(&self) -> Queue {
        Queue::new(&self.rule, &self.key)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        Writer::default()
            .u64(self.id.0)
            .u64(self.put_at)
            .text(&self.rule)
            .text(&self.key.to_text())
            .text(&self.name)
            .rest(&self.body)
            .done()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            id: MessageId(reader.u64()?),
            put_at: reader.u64()?,
            rule: reader.text()?.into(),
            key: key(reader.text()?)?,
            name: reader.text()?.to_owned(),
            body: reader.rest().to_vec(),
        })
    }
}

fn key(text: &str) -> Result<Key, StoreError> {
    Key::from_text(text).ok_or_else(|| StoreError::Damaged { message: format!("no key is written `{text}`") })
}

/// What is behind a message: changes with its attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// How often it was started.
    pub(super) starts: u32,
    pub(super) spent: Spent,
    /// Outages in a row that it met.
    pub(super) outages: u32,
    /// Does not start before; zero if it may.
    pub(super) not_before: Unix,
    /// An attempt began, and nobody knows how it ended.
    pub(super) in_flight: bool,
    /// One of its attempts may have had its effect.
    pub(super) maybe_delivered: bool,
    /// It is to be tried no more, but there is no room among the dead.
    pub(super) doomed: bool,
}

impl Progress {
    pub(super) fn write(&self) -> Vec<u8> {
        let Spent { failures, waits, total_wait, bare } = self.spent;
        let flag = |is_set, bit: u8| if is_set { bit } else { 0 };
        Writer::default()
            .u8(flag(self.in_flight, 1) | flag(self.maybe_delivered, 2) | flag(self.doomed, 4))
            .u32(self.starts)
            .u32(failures)
            .u32(waits)
            .u64(total_wait.get())
            .u32(bare)
            .u32(self.outages)
            .u64(self.not_before)
            .done()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        Ok(Self {
            in_flight: flags & 1 != 0,
            maybe_delivered: flags & 2 != 0,
            doomed: flags & 4 != 0,
            starts: reader.u32()?,
            spent: Spent {
                failures: reader.u32()?,
                waits: reader.u32()?,
                total_wait: Nanos::new(reader.u64()?),
                bare: reader.u32()?,
            },
            outages: reader.u32()?,
            not_before: reader.u64()?,
        })
    }
}

/// A message that nobody tries to deliver any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Buried {
    pub(super) died_at: Unix,
    pub(super) starts: u32,
    pub(super) maybe_delivered: bool,
    pub(super) reason: String,
    pub(super) record: Record,
}

impl Buried {
    pub(super) fn write(&self) -> Vec<u8> {
        Writer::default()
            .u64(self.died_at)
            .u32(self.starts)
            .u8(u8::from(self.maybe_delivered))
            .text(&self.reason)
            .rest(&self.record.write())
            .done()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            died_at: reader.u64()?,
            starts: reader.u32()?,
            maybe_delivered: reader.u8()? != 0,
            reason: reader.text()?.to_owned(),
            record: Record::read(reader.rest())?,
        })
    }
}

/// What is known of a message that was put under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Whoever put it may be told that it failed for good.
    Pending(MessageId),
    /// Somebody was told that it is stored, and nothing else.
    Promised(MessageId),
    /// Until when it is remembered, and what its attempt returned, in JSON.
    Sent(MessageId, Unix, Vec<u8>),
    Dead(MessageId),
}

impl Named {
    pub(super) fn write(&self) -> Vec<u8> {
        match self {
            Self::Pending(id) => Writer::default().u8(0).u64(id.0).done(),
            Self::Sent(id, until, value) => Writer::default().u8(1).u64(id.0).u64(*until).rest(value).done(),
            Self::Dead(id) => Writer::default().u8(2).u64(id.0).done(),
            Self::Promised(id) => Writer::default().u8(3).u64(id.0).done(),
        }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader::new(bytes);
        let (kind, id) = (reader.u8()?, MessageId(reader.u64()?));
        match kind {
            0 => Ok(Self::Pending(id)),
            1 => Ok(Self::Sent(id, reader.u64()?, reader.rest().to_vec())),
            2 => Ok(Self::Dead(id)),
            3 => Ok(Self::Promised(id)),
            other => Err(StoreError::Damaged { message: format!("a name is of kind {other}") }),
        }
    }
}

/// What an outbox counts of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// How many transactions there were.
    pub(super) serial: u64,
    /// The next id, which is the next place as well.
    pub(super) next: u64,
    /// Messages that are neither sent nor dead, and their bytes.
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) dead: u64,
    pub(super) dead_bytes: u64,
    /// What tells this outbox from others.
    pub(super) birth: u64,
    /// Names that are remembered though their messages were sent.
    pub(super) names: u64,
}

impl Counts {
    pub(super) fn write(&self) -> Vec<u8> {
        let Self { serial, next, messages, bytes, dead, dead_bytes, birth, names } = *self;
        [serial, next, messages, bytes, dead, dead_bytes, birth, names]
            .into_iter()
            .fold(Writer::default(), Writer::u64)
            .done()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            serial: reader.u64()?,
            next: reader.u64()?,
            messages: reader.u64()?,
            bytes: reader.u64()?,
            dead: reader.u64()?,
            dead_bytes: reader.u64()?,
            birth: reader.u64()?,
            // Not everybody wrote it.
            names: reader.u64().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let key = Key::from(("shop", 7));
        Record { id: MessageId(5), put_at: 9, rule: "send".into(), key, name: "order 1".into(), body: b"{}".to_vec() }
    }

    #[test]
    fn what_is_behind_a_rule_is_before_the_next_one() {
        let queue = |rule| Queue::new(rule, &Key::from("\u{10ffff}"));
        for (rule, next) in [("", "a"), ("a", "b"), ("ж", "aaa"), ("\u{10ffff}", "aaaaa")] {
            let behind = queue(rule).behind_rule();
            assert!(queue(rule).at(u64::MAX) < behind, "{rule}");
            assert!(behind <= Queue::new(next, &Key::from("")).at(0), "{rule}");
        }
        let torn = Queue::of(&[0, 0, 0, 9, 7, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        assert_eq!((torn.rule(), torn.behind_rule()), (None, torn.at(u64::MAX)));
    }

    #[test]
    fn everything_reads_as_it_was_written() {
        let spent = Spent { failures: 1, waits: 2, total_wait: Nanos::new(3), bare: 4 };
        let progress = Progress { starts: 6, spent, outages: 5, not_before: 7, doomed: true, ..Progress::default() };
        for flags in [(false, false), (true, false), (false, true), (true, true)] {
            let progress = Progress { in_flight: flags.0, maybe_delivered: flags.1, ..progress };
            assert_eq!(Progress::read(&progress.write()), Ok(progress));
        }
        assert_eq!(Record::read(&record().write()), Ok(record()));
        let buried =
            Buried { died_at: 1, starts: 2, maybe_delivered: true, reason: "no such chat".into(), record: record() };
        assert_eq!(Buried::read(&buried.write()), Ok(buried));
        let id = MessageId(3);
        for named in [Named::Pending(id), Named::Promised(id), Named::Sent(id, 4, b"5".to_vec()), Named::Dead(id)] {
            assert_eq!(Named::read(&named.write()), Ok(named));
        }
        let counts = Counts { serial: 1, next: 2, messages: 3, bytes: 4, dead: 5, dead_bytes: 6, birth: 7, names: 8 };
        assert_eq!(Counts::read(&counts.write()), Ok(counts));
    }

    #[test]
    fn queues_that_look_alike_differ_and_messages_sort_by_place() {
        let queue = record().queue();
        assert_eq!(Queue::of(&queue.at(u64::MAX)), Ok(queue.clone()));
        assert_eq!(queue.parts(), Ok(("send".into(), Key::from(("shop", 7)))));
        assert!(queue.at(255) < queue.at(256) && queue.at(256) < queue.at(u64::MAX));
        assert_ne!(Queue::new("ab", &"c".into()).prefix(), Queue::new("a", &"bc".into()).prefix());
        assert_ne!(Queue::new("a", &5.into()), Queue::new("a", &"5".into()));
    }

    #[test]
    fn what_is_cut_short_is_damaged() {
        for len in 0..record().write().len() - 2 {
            assert!(matches!(Record::read(&record().write()[..len]), Err(StoreError::Damaged { .. })), "{len}");
        }
        assert!(matches!(Named::read(&[9; 9]), Err(StoreError::Damaged { .. })));
        assert!(matches!(Queue::of(&[1, 2, 3]), Err(StoreError::Damaged { .. })));
    }
}
