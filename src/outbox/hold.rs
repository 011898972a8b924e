//! Holds as they are stored.

use std::sync::Arc;

use super::bytes::{Reader, Writer};
use super::store::StoreError;
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
