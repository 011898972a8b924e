//! Numbers as responses write them: ASCII digits, perhaps a minus before and a fraction behind.

use std::time::Duration;

/// A decimal number, exact to nine digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    /// Larger ones are cut to the largest.
    pub(super) whole: u64,
    pub(super) nanos: u32,
    /// Digits behind the point were written.
    pub(super) fraction: bool,
}

impl Number {
    /// Reads all of `text`, which nothing else may stand in: no plus, no exponent, no words.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
        let mut number = Self { negative, whole: 0, nanos: 0, fraction: false };
        let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
        let (whole, behind) = text.split_at(point);
        if whole.is_empty() {
            return None;
        }
        for digit in whole {
            let digit = digit_of(*digit)?;
            number.whole = number.whole.saturating_mul(10).saturating_add(digit.into());
        }
        if let [_point, behind @ ..] = behind {
            if behind.is_empty() {
                return None;
            }
            number.fraction = true;
            let mut worth = 100_000_000;
            for digit in behind {
                number.nanos += worth * digit_of(*digit)?;
                worth /= 10;
            }
        }
        Some(number)
    }

    /// A number of JSON.
    #[cfg(feature = "json")]
    pub(super) fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let size = value.abs();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "cut to the largest, never negative"
        )]
        let (whole, nanos) = (size.trunc() as u64, (size.fract() * 1e9).round() as u32);
        let (whole, nanos) = if nanos == 1_000_000_000 { (whole.saturating_add(1), 0) } else { (whole, nanos) };
        Some(Self { negative: value < 0.0, whole, nanos, fraction: true })
    }

    #[cfg(feature = "json")]
    pub(super) const fn from_int(value: i64) -> Self {
        Self { negative: value < 0, whole: value.unsigned_abs(), nanos: 0, fraction: false }
    }

    #[cfg(feature = "json")]
    pub(super) const fn from_uint(value: u64) -> Self {
        Self { negative: false, whole: value, nanos: 0, fraction: false }
    }

    pub(super) const fn is_negative(self) -> bool {
        self.negative && (self.whole > 0 || self.nanos > 0)
    }

    pub(super) const fn is_positive(self) -> bool {
        !self.negative && (self.whole > 0 || self.nanos > 0)
    }

    /// The largest whole number that is not above it.
    pub(super) fn floor(self) -> i64 {
        let whole = i64::try_from(self.whole).unwrap_or(i64::MAX);
        if !self.negative {
            return whole;
        }
        if self.nanos > 0 { (-whole).saturating_sub(1) } else { -whole }
    }

    /// `None`: it has digits other than zero behind the point.
    pub(super) fn integer(self) -> Option<i64> {
        (self.nanos == 0).then(|| self.floor())
    }

    /// As many seconds, without its sign.
    pub(super) const fn seconds(self) -> Duration {
        Duration::new(self.whole, self.nanos)
    }

    /// As many nanoseconds of the given size, without its sign.
    pub(super) fn times(self, nanos: i128) -> i128 {
        i128::from(self.whole) * nanos + i128::from(self.nanos) * nanos / 1_000_000_000
    }
}

fn digit_of(byte: u8) -> Option<u32> {
    byte.is_ascii_digit().then(|| u32::from(byte - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(bool, u64, u32)> {
        Number::read(text.as_bytes()).map(|number| (number.negative, number.whole, number.nanos))
    }

    #[test]
    fn only_whole_decimal_numbers_are_read() {
        assert_eq!(read("0"), Some((false, 0, 0)));
        assert_eq!(read("0.503"), Some((false, 0, 503_000_000)));
        assert_eq!(read("-0.2"), Some((true, 0, 200_000_000)));
        assert_eq!(read("1.0000000019"), Some((false, 1, 1)));
        assert_eq!(read("184467440737095516160"), Some((false, u64::MAX, 0)));
        for text in ["", "-", ".", "5.", ".5", "+1", "1e3", "0x1", "inf", "nan", "1 ", "--1", "1.2.3", "１"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn floors_go_down_whatever_the_sign() {
        for (text, floor) in [("98.7", 98), ("-0.2", -1), ("-3", -3), ("-0", 0), ("99999999999999999999", i64::MAX)] {
            assert_eq!(Number::read(text.as_bytes()).map(Number::floor), Some(floor), "{text}");
        }
    }
}
