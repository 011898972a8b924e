//! Holds as they are stored.

use std::ops::Bound;
use std::sync::Arc;

use super::bytes::{Reader, Writer};
use super::draft::Draft;
use super::record::{Record, Unix};
use super::store::{StoreError, Table};
use crate::engine::Scope;
use crate::key::Key;
use crate::runtime::Target;

/// What is held when a message of this rule and key, on this endpoint, is told to wait with this scope; `None`: only itself.
pub(super) fn write(scope: Scope, rule: &str, key: &Key, endpoint: Option<&Arc<str>>) -> Option<Vec<u8>> {
    let key = || key.to_text();
    let target = match (scope, endpoint) {
        (Scope::Request, _) => return None,
        (Scope::Queue, _) => Writer::default().u8(0).text(rule).text(&key()),
        (Scope::Key, _) | (Scope::Endpoint, None) => Writer::default().u8(1).text(&key()),
        (Scope::Rule, _) => Writer::default().u8(2).text(rule),
        (Scope::Overall, _) => Writer::default().u8(3),
        (Scope::Endpoint, Some(endpoint)) => Writer::default().u8(4).text(endpoint),
    };
    Some(target.done())
}

/// What was held.
pub(super) fn read(bytes: &[u8]) -> Result<Target, StoreError> {
    let damaged = |message: String| StoreError::Damaged { message };
    let mut reader = Reader::new(bytes);
    let key = |text: &str| Key::from_text(text).ok_or_else(|| damaged(format!("no key is written `{text}`")));
    Ok(match reader.u8()? {
        0 => {
            let rule = reader.text()?;
            Target::queue(rule, key(reader.text()?)?)
        }
        1 => Target::key(key(reader.text()?)?),
        2 => Target::rule(reader.text()?),
        3 => Target::overall(),
        4 => Target::endpoint(reader.text()?),
        other => return Err(damaged(format!("a hold is of kind {other}"))),
    })
}

/// How many other holds are looked at with each that is written.
const OTHERS: usize = 4;

impl Draft<'_> {
    /// Something is held from now until then. Some holds that are over are forgotten.
    pub(super) fn hold(&mut self, target: Vec<u8>, until: Unix, now: Unix) -> Result<(), StoreError> {
        for (other, until) in self.scan(Table::Holds, Bound::Excluded(&target), OTHERS)? {
            if Reader::new(&until).u64()? <= now {
                self.remove(Table::Holds, other);
            }
        }
        let before = self.get(Table::Holds, &target)?;
        let before = before.map_or(Ok(0), |bytes| Reader::new(&bytes).u64())?;
        if until > before {
            self.set(Table::Holds, target, Writer::default().u64(until).u64(now).done());
        }
        Ok(())
    }

    /// Nothing is held so any more.
    pub(super) fn release(&mut self, target: Vec<u8>) {
        self.remove(Table::Holds, target);
    }

    /// An attempt began then: whatever would have kept it from that was ended before.
    pub(super) fn release_before(
        &mut self,
        began: Unix,
        record: &Record,
        endpoint: Option<&Arc<str>>,
    ) -> Result<(), StoreError> {
        if self.scan(Table::Holds, Bound::Unbounded, 1)?.is_empty() {
            return Ok(());
        }
        for scope in [Scope::Queue, Scope::Key, Scope::Rule, Scope::Overall, Scope::Endpoint] {
            let Some(target) = write(scope, &record.rule, &record.key, endpoint) else { continue };
            let Some(held) = self.get(Table::Holds, &target)? else { continue };
            let mut held = Reader::new(&held);
            let _until = held.u64()?;
            // Files that an earlier version wrote do not say since when.
            if held.u64().unwrap_or_default() < began {
                self.release(target);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_reads_as_it_was_written() {
        let (key, endpoint) = (Key::from(("shop", 7)), Arc::from("bot-a"));
        let written = |scope, endpoint| write(scope, "send", &key, endpoint).map(|bytes| read(&bytes));
        for (scope, target) in [
            (Scope::Queue, Target::queue("send", key.clone())),
            (Scope::Key, Target::key(key.clone())),
            (Scope::Endpoint, Target::endpoint("bot-a")),
            (Scope::Rule, Target::rule("send")),
            (Scope::Overall, Target::overall()),
        ] {
            assert_eq!(written(scope, Some(&endpoint)), Some(Ok(target)));
        }
        assert_eq!(written(Scope::Endpoint, None), Some(Ok(Target::key(key.clone()))));
        assert_eq!(written(Scope::Request, Some(&endpoint)), None);
        assert!(matches!(read(&[9]), Err(StoreError::Damaged { .. })));
    }
}
