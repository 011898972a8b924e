//! What a key is known by in every run: the same whatever built the program and wherever it runs.

use super::{Key, Repr, joined};
use crate::engine::Mark;

impl Key {
    /// What endpoints are chosen by that a key stays with.
    pub(crate) fn mark(&self) -> u64 {
        self.marked(Mark::NONE).get()
    }

    /// Goes on with the bytes of a key: its kind, the length of what has no fixed one, and the least byte of a number first.
    fn marked(&self, mark: Mark) -> Mark {
        let mark = mark.and(&[self.0.rank()]);
        let sized = |len: usize| mark.and(&(len as u64).to_le_bytes());
        match &self.0 {
            Repr::Unit => mark,
            Repr::Negative(value) => mark.and(&value.to_le_bytes()),
            Repr::Natural(value) => mark.and(&value.to_le_bytes()),
            Repr::Short(..) | Repr::Long(_) => {
                let text = self.0.text().unwrap_or_default();
                sized(text.len()).and(&text)
            }
            Repr::V4(bits) => mark.and(&[4]).and(&bits.to_be_bytes()),
            Repr::V6(words) => mark.and(&[6]).and(&joined(*words).to_be_bytes()),
            #[cfg(feature = "uuid")]
            Repr::Uuid(words) => mark.and(&joined(*words).to_be_bytes()),
            Repr::Composite(parts) => parts.iter().fold(sized(parts.len()), |mark, part| part.marked(mark)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A program built anew for another machine sent all keys elsewhere.
    #[test]
    fn a_key_is_known_by_the_same_in_every_run() {
        let known = [
            (Key::from(()), 0xaf63_bd4c_8601_b7df),
            (Key::from(-5), 0xb148_e849_b75e_eda0),
            (Key::from(5_u8), 0x71f3_49c8_1719_a340),
            (Key::from("5"), 0x15e2_512d_38e1_bb72),
            (Key::from("text that does not fit into the key itself"), 0xa233_73b6_3ab4_758e),
            (Key::from(IpAddr::from([127, 0, 0, 1])), 0xb682_189d_06eb_9fbd),
            (Key::from(("shop", 7)), 0xf1b3_6f14_2276_c3e1),
            (Key::from((("shop", 7), "a")), 0xb19d_ff37_4332_cfec),
        ];
        for (key, expected) in known {
            assert_eq!(key.mark(), expected, "{key:?}");
        }
    }
}
