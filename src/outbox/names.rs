//! Names under which messages were put, as long as they are remembered.

use std::ops::Bound;

use super::bytes::{Reader, Writer};
use super::draft::{Draft, Stored};
use super::record::{Named, Unix};
use super::store::{StoreError, Table};

/// How many names are forgotten at most with each one that is put, and with each whose message is sent.
pub(super) const EACH: usize = 2;

/// How many are forgotten at a time where nobody puts any.
const TOGETHER: usize = 1_024;

impl Draft<'_> {
    /// What is known of a name.
    pub(super) fn named(&self, name: &str, now: Unix) -> Result<Option<Named>, StoreError> {
        let Some(bytes) = self.get(Table::Names, name.as_bytes())? else { return Ok(None) };
        Ok(match Named::read(&bytes)? {
            Named::Sent(_, until, _) if until <= now => None,
            known @ (Named::Pending(_) | Named::Promised(_) | Named::Sent(..) | Named::Dead(_)) => Some(known),
        })
    }

    /// The message of a name came to its end. `value`: what the name is to be remembered with, and until when.
    pub(super) fn settle_name(&mut self, message: &Stored, value: Option<(Vec<u8>, Unix)>) -> Result<(), StoreError> {
        let name = message.record.name.as_bytes();
        if name.is_empty() {
            return Ok(());
        }
        match value {
            Some((value, until)) => {
                self.set(Table::Forget, Writer::default().u64(until).rest(name).done(), Vec::new());
                self.set(Table::Names, name.to_vec(), Named::Sent(message.record.id, until, value).write());
                self.counts.names += 1;
                // Only those that are too many: of the time nobody asks here.
                self.forget(0, EACH).map(|_| ())
            }
            None => {
                self.remove(Table::Names, name.to_vec());
                Ok(())
            }
        }
    }

    /// Forgets names whose time is over or that are too many, a part of them. Returns whether there may be others.
    pub(super) fn forget_some(&mut self, now: Unix) -> Result<bool, StoreError> {
        Ok(self.forget(now, TOGETHER)? == TOGETHER)
    }

    /// Forgets up to so many names whose time is over, or that are too many. Returns how many.
    pub(super) fn forget(&mut self, now: Unix, most: usize) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        for (key, _) in self.scan(Table::Forget, Bound::Unbounded, most)? {
            let mut reader = Reader::new(&key);
            let until = reader.u64()?;
            if until > now && self.counts.names <= self.bounds.names {
                break;
            }
            let name = std::str::from_utf8(reader.rest()).unwrap_or_default().as_bytes();
            let known = self.get(Table::Names, name)?.map(|bytes| Named::read(&bytes)).transpose()?;
            // Put again meanwhile, it is another message's.
            if matches!(known, Some(Named::Sent(_, at, _)) if at == until) {
                self.remove(Table::Names, name.to_vec());
            }
            self.remove(Table::Forget, key);
            self.counts.names = self.counts.names.saturating_sub(1);
            forgotten += 1;
        }
        Ok(forgotten)
    }
}
