//! Text that a key holds without allocating.

use std::ops::Deref;
use std::str;

use super::Repr;

/// How many bytes of text a key holds without allocating.
pub(super) const INLINE: usize = 22;

/// Text of a key.
pub(super) enum Text<'a> {
    Short { len: usize, bytes: [u8; INLINE] },
    Long(&'a str),
}

/// The form of text, if it has one.
pub(super) fn pack(text: &[u8]) -> Option<Repr> {
    if text.last() == Some(&0) {
        return None;
    }
    let mut bytes = [0; INLINE];
    bytes.get_mut(..text.len())?.copy_from_slice(text);
    let (&words, rest) = bytes.split_first_chunk::<16>()?;
    let (&middle, rest) = rest.split_first_chunk::<4>()?;
    let (&end, _) = rest.split_first_chunk::<2>()?;
    let words = super::halves(u128::from_be_bytes(words));
    Some(Repr::Short(u16::from_be_bytes(end), u32::from_be_bytes(middle), words))
}

impl Text<'_> {
    /// The text of such a form.
    pub(super) fn unpack(end: u16, middle: u32, words: [u64; 2]) -> Self {
        let mut bytes = [0; INLINE];
        bytes[..16].copy_from_slice(&super::joined(words).to_be_bytes());
        bytes[16..20].copy_from_slice(&middle.to_be_bytes());
        bytes[20..].copy_from_slice(&end.to_be_bytes());
        let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Self::Short { len, bytes }
    }

    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(self).unwrap_or_default()
    }
}

impl Default for Text<'_> {
    fn default() -> Self {
        Self::Long("")
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..*len).unwrap_or_default(),
            Self::Long(text) => text.as_bytes(),
        }
    }
}
