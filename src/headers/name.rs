//! Short names without an allocation.

use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayString;

use super::cut::{LONGEST, MARK, beginning, mark};

/// A short name without an allocation. One of more than 23 bytes is cut and ends in eight digits that the whole of it
/// hashes to, so that two that begin alike stay two.
///
/// ```
/// use request_balancer::headers::Name;
///
/// assert_eq!(Name::new("tokens"), "tokens");
/// let [user, team] = ["user", "team"].map(|whose| Name::new(&format!("requests-per-minute-per-{whose}")));
/// assert_eq!((user.len(), &user[..14]), (23, "requests-per-m"));
/// assert_ne!(user, team);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(ArrayString<LONGEST>);

impl Name {
    /// Cuts `text` where it must.
    #[must_use]
    pub fn new(text: &str) -> Self {
        if let Ok(name) = ArrayString::from(text) {
            return Self(name);
        }
        Self::of(text[..beginning(text)].chars().chain(mark(text.bytes())))
    }

    /// Text of header fields: small letters, and a `?` for what is not ASCII.
    pub(super) fn lower(text: &[u8]) -> Self {
        if text.len() <= LONGEST {
            return Self::of(text.iter().map(letter));
        }
        Self::of(text[..LONGEST - MARK].iter().map(letter).chain(mark(text.iter().map(byte))))
    }

    /// The beginning of a field's name: enough for people.
    pub(super) fn beginning(text: &[u8]) -> Self {
        Self::of(text.iter().map(letter))
    }

    /// As many of the letters as there is room for.
    fn of(letters: impl Iterator<Item = char>) -> Self {
        let mut name = ArrayString::new();
        for letter in letters {
            if name.try_push(letter).is_err() {
                break;
            }
        }
        Self(name)
    }
}

fn letter(byte: &u8) -> char {
    char::from(self::byte(byte))
}

/// A byte of a field as a name has it.
fn byte(byte: &u8) -> u8 {
    if byte.is_ascii_graphic() || *byte == b' ' { byte.to_ascii_lowercase() } else { b'?' }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
