//! Keys as text that reads as the same key again: how serde writes them (feature `serde`).

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Key, Repr};

/// Tuples within tuples that are read; a program's keys have two or three levels.
const DEPTH: usize = 64;

impl Serialize for Key {
    /// Writes the key as text: `5`, `"5"` in quotes, `127.0.0.1`, `("shop", 7)`, `()`.
    ///
    /// Different keys have different texts, so they may stand where a format wants strings, as in the keys of a map.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Written(self))
    }
}

impl<'de> Deserialize<'de> for Key {
    /// Reads what was written by [`serialize`](Serialize::serialize).
    ///
    /// # Errors
    ///
    /// Text that no key has; text of a UUID without the feature `uuid`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

#[cfg(any(feature = "outbox", feature = "shared"))]
impl Key {
    /// As serde writes it: text that no other key has.
    pub(crate) fn to_text(&self) -> String {
        Written(self).to_string()
    }

    /// The key that is written so, if any is.
    #[cfg(any(feature = "outbox", feature = "redis"))]
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        read(text)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key as text, such as `5`, `\"5\"` or `(\"shop\", 7)`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
        read(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

/// A key as text that reads as the same key.
struct Written<'a>(&'a Key);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.0 {
            Repr::Short(..) | Repr::Long(_) => {
                f.write_char('"')?;
                for c in self.0.0.text().unwrap_or_default().as_str().chars() {
                    if matches!(c, '"' | '\\') {
                        f.write_char('\\')?;
                    }
                    f.write_char(c)?;
                }
                f.write_char('"')
            }
            Repr::Composite(parts) => {
                f.write_char('(')?;
                for (position, part) in parts.iter().enumerate() {
                    f.write_str(if position > 0 { ", " } else { "" })?;
                    write!(f, "{}", Written(part))?;
                }
                f.write_char(')')
            }
            Repr::Unit | Repr::Negative(_) | Repr::Natural(_) | Repr::V4(_) | Repr::V6(_) => write!(f, "{}", self.0),
            #[cfg(feature = "uuid")]
            Repr::Uuid(_) => write!(f, "{}", self.0),
        }
    }
}

/// The key that is written so, if any is.
fn read(text: &str) -> Option<Key> {
    let (key, rest) = part(text, DEPTH)?;
    rest.is_empty().then_some(key)
}

/// Reads one key from the front of a text, and returns what follows it.
fn part(text: &str, depth: usize) -> Option<(Key, &str)> {
    if let Some(rest) = text.strip_prefix('"') {
        return quoted(rest);
    }
    if let Some(rest) = text.strip_prefix('(') {
        return tuple(rest, depth.checked_sub(1)?);
    }
    let (word, rest) = text.split_at(text.find([',', ')']).unwrap_or(text.len()));
    Some((word_key(word)?, rest))
}

fn quoted(text: &str) -> Option<(Key, &str)> {
    let mut content = Cow::Borrowed("");
    let mut from = 0;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                content += &text[from..at];
                return Some((content.into(), &text[at + 1..]));
            }
            '\\' => {
                content += &text[from..at];
                let (next, c) = chars.next()?;
                if !matches!(c, '"' | '\\') {
                    return None;
                }
                from = next;
            }
            _ => {}
        }
    }
    None
}

fn tuple(text: &str, depth: usize) -> Option<(Key, &str)> {
    if let Some(rest) = text.strip_prefix(')') {
        return Some((().into(), rest));
    }
    let mut parts = Vec::new();
    let mut text = text;
    loop {
        let (key, rest) = part(text, depth)?;
        parts.push(key);
        if let Some(rest) = rest.strip_prefix(')') {
            // No tuple of one is ever written.
            return (parts.len() > 1).then(|| (Key(Repr::Composite(Arc::from(parts))), rest));
        }
        text = rest.strip_prefix(", ")?;
    }
}

fn word_key(word: &str) -> Option<Key> {
    if let Ok(natural) = word.parse::<u64>() {
        return Some(natural.into());
    }
    if let Ok(integer) = word.parse::<i64>() {
        return Some(integer.into());
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(address.into());
    }
    #[cfg(feature = "uuid")]
    if let Ok(id) = word.parse::<uuid::Uuid>() {
        return Some(id.into());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn written(key: &Key) -> String {
        Written(key).to_string()
    }

    #[test]
    fn every_key_reads_as_it_was_written() {
        let texts = ["", "5", "a \"quoted\" \\ one", "a, (b)", "()", "\\", "\"", "жук\n", &"long ".repeat(20)];
        let mut keys: Vec<Key> = texts.into_iter().map(Key::from).collect();
        keys.extend([
            Key::from(()),
            Key::from(0),
            Key::from(u64::MAX),
            Key::from(i64::MIN),
            Key::from(Ipv4Addr::LOCALHOST),
            Key::from(Ipv6Addr::LOCALHOST),
            Key::from(Ipv6Addr::UNSPECIFIED),
            Key::from(("shop", 7)),
            Key::from(((), ("a, \"b\")", -1), Ipv6Addr::LOCALHOST)),
        ]);
        #[cfg(feature = "uuid")]
        keys.extend([Key::from(uuid::Uuid::nil()), Key::from((uuid::Uuid::max(), 1))]);
        for key in keys {
            assert_eq!(read(&written(&key)).as_ref(), Some(&key), "{}", written(&key));
        }
    }

    #[test]
    fn the_forms_are_these() {
        for (key, text) in [
            (Key::from(-5), "-5"),
            (Key::from("5"), "\"5\""),
            (Key::from(("a\"b", (1, ()))), r#"("a\"b", (1, ()))"#),
            (Key::from(Ipv6Addr::LOCALHOST), "::1"),
        ] {
            assert_eq!(written(&key), text);
        }
    }

    #[test]
    fn what_no_key_has_is_refused() {
        let deep = "(1, ".repeat(100_000);
        for text in [
            "",
            "a",
            "\"a",
            "a\"",
            "(1)",
            "(1,2)",
            "(1, 2",
            "1 ",
            "\"\\n\"",
            "1, 2",
            ")",
            "(, 1)",
            "1.5",
            deep.as_str(),
        ] {
            assert_eq!(read(text), None, "{}", &text[..text.len().min(20)]);
        }
        let error = serde_json::from_str::<Key>("\"a\"").unwrap_err().to_string();
        assert!(error.starts_with("invalid value: string \"a\", expected a key as text, such as"), "{error}");
    }
}
