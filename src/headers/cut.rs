//! Names that are too long: cut, and yet told apart.

use std::borrow::Cow;

/// The longest name in bytes.
pub(super) const LONGEST: usize = 23;
/// What stands at the end of a name that was cut, in bytes: `~` and what the whole of it hashes to.
pub(super) const MARK: usize = 9;

/// A name as `Name` has it: what names in rules are compared in.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text[..beginning(text)].chars().chain(mark(text.bytes())).collect())
}

/// How many bytes of a longer text stand before the mark.
pub(super) fn beginning(text: &str) -> usize {
    (0..=LONGEST - MARK).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

/// The end of a cut name. The case of letters makes no difference, as in mappings.
pub(super) fn mark(text: impl Iterator<Item = u8>) -> impl Iterator<Item = char> {
    // FNV-1a: the same in every run, as names outlive them in an exported state.
    let hash = text
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193));
    let digits = (0..8).rev().filter_map(move |place| char::from_digit(hash >> (4 * place) & 0xf, 16));
    std::iter::once('~').chain(digits)
}
