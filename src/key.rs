//! Whose turn it is: the key of a request.

#[cfg(feature = "tokio")]
mod mark;
mod short;
#[cfg(feature = "serde")]
mod text;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use self::short::Text;

/// Whose turn it is: a chat id, an account, a host.
///
/// Made from integers, text, IP addresses, `()` (for calls that belong to nobody), tuples of two to four of these, and,
/// with the feature `uuid`, `Uuid`. An integer is the same key whatever its type; `5` and `"5"` are different keys.
///
/// With the feature `serde` it is written as text that reads as the same key again.
///
/// Cloning is cheap. Integers, addresses and text of up to 22 bytes allocate nothing, unless a zero byte ends it.
///
/// ```
/// use request_balancer::Key;
///
/// assert_eq!(Key::from(5_u8), Key::from(5_i64));
/// assert_ne!(Key::from(5), Key::from("5"));
/// assert_eq!(Key::from(("shop", 7)).to_string(), "(shop, 7)");
/// ```
#[derive(Clone)]
pub struct Key(Repr);

/// Everything but what is shared is whole words and parts of words, each where it belongs, and the kind takes two bytes: so keys
/// are copied in registers. Bytes would be written to the stack and read again in other pieces, for which the processor has to
/// wait, and so would the seven that are left beside a kind of one.
#[derive(Clone)]
#[repr(u16)]
enum Repr {
    Unit,
    Negative(i64),
    Natural(u64),
    /// Text of at most [`INLINE`] bytes, the last of which is not zero: it ends where only zeros follow. All other text is
    /// `Long`, so that equal text has one form.
    Short(u16, u32, [u64; 2]),
    Long(Arc<str>),
    V4(u32),
    V6([u64; 2]),
    #[cfg(feature = "uuid")]
    Uuid([u64; 2]),
    Composite(Arc<[Key]>),
}

const _: () = assert!(size_of::<Key>() == 24, "a key is three words");

impl Key {
    #[inline]
    fn natural(value: u64) -> Self {
        Self(Repr::Natural(value))
    }

    #[inline]
    fn integer(value: i64) -> Self {
        match u64::try_from(value) {
            Ok(value) => Self::natural(value),
            Err(_) => Self(Repr::Negative(value)),
        }
    }

    fn short(text: &str) -> Option<Self> {
        short::pack(text.as_bytes()).map(Self)
    }
}

impl Repr {
    /// The order of the kinds among each other; both forms of text are one kind.
    const fn rank(&self) -> u8 {
        match self {
            Self::Unit => 0,
            Self::Negative(_) => 1,
            Self::Natural(_) => 2,
            Self::Short(..) | Self::Long(_) => 3,
            Self::V4(_) | Self::V6(_) => 4,
            #[cfg(feature = "uuid")]
            Self::Uuid(_) => 5,
            Self::Composite(_) => 6,
        }
    }

    fn text(&self) -> Option<Text<'_>> {
        match self {
            Self::Short(end, middle, words) => Some(Text::unpack(*end, *middle, *words)),
            Self::Long(text) => Some(Text::Long(text)),
            Self::Unit | Self::Negative(_) | Self::Natural(_) | Self::V4(_) | Self::V6(_) | Self::Composite(_) => None,
            #[cfg(feature = "uuid")]
            Self::Uuid(_) => None,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::V4(bits) => Some(Ipv4Addr::from_bits(*bits).into()),
            Self::V6(words) => Some(Ipv6Addr::from_bits(joined(*words)).into()),
            Self::Unit
            | Self::Negative(_)
            | Self::Natural(_)
            | Self::Short(..)
            | Self::Long(_)
            | Self::Composite(_) => None,
            #[cfg(feature = "uuid")]
            Self::Uuid(_) => None,
        }
    }
}

const fn joined([high, low]: [u64; 2]) -> u128 {
    (high as u128) << u64::BITS | low as u128
}

const fn halves(whole: u128) -> [u64; 2] {
    [(whole >> u64::BITS) as u64, whole as u64]
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Natural(a), Repr::Natural(b)) => a == b,
            (Repr::Short(end, middle, words), Repr::Short(end2, middle2, words2)) => {
                words == words2 && (end, middle) == (end2, middle2)
            }
            _ => self.cmp(other).is_eq(),
        }
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Negative(a), Repr::Negative(b)) => a.cmp(b),
            (Repr::Natural(a), Repr::Natural(b)) => a.cmp(b),
            #[cfg(feature = "uuid")]
            (Repr::Uuid(a), Repr::Uuid(b)) => a.cmp(b),
            (Repr::Composite(a), Repr::Composite(b)) => a.cmp(b),
            (a, b) => {
                let of_text = || a.text().as_deref().cmp(&b.text().as_deref());
                a.rank().cmp(&b.rank()).then_with(of_text).then_with(|| a.address().cmp(&b.address()))
            }
        }
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let rank = u128::from(self.0.rank()) << u64::BITS;
        match &self.0 {
            // Most keys: kind and number in one go.
            Repr::Natural(value) => return state.write_u128(rank | u128::from(*value)),
            Repr::Short(end, middle, words) => {
                state.write_u128(joined(*words));
                let rest = u64::from(*end) << 32 | u64::from(*middle);
                return state.write_u128(rank | u128::from(rest));
            }
            Repr::Unit => {}
            Repr::Negative(value) => state.write_i64(*value),
            Repr::Long(text) => state.write(text.as_bytes()),
            Repr::V4(bits) => state.write_u32(*bits),
            Repr::V6(words) => state.write_u128(joined(*words)),
            #[cfg(feature = "uuid")]
            Repr::Uuid(words) => state.write_u128(joined(*words)),
            Repr::Composite(parts) => parts.hash(state),
        }
        state.write_u8(self.0.rank());
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Unit => f.write_str("()"),
            Repr::Negative(value) => write!(f, "{value}"),
            Repr::Natural(value) => write!(f, "{value}"),
            Repr::Short(..) | Repr::Long(_) => f.pad(self.0.text().unwrap_or_default().as_str()),
            Repr::V4(bits) => write!(f, "{}", Ipv4Addr::from_bits(*bits)),
            Repr::V6(words) => write!(f, "{}", Ipv6Addr::from_bits(joined(*words))),
            #[cfg(feature = "uuid")]
            Repr::Uuid(words) => write!(f, "{}", uuid::Uuid::from_u128(joined(*words))),
            Repr::Composite(parts) => {
                f.write_str("(")?;
                for (position, part) in parts.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{part}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Short(..) | Repr::Long(_) => write!(f, "{:?}", self.0.text().unwrap_or_default().as_str()),
            Repr::Composite(parts) => {
                let mut tuple = f.debug_tuple("");
                for part in parts.iter() {
                    tuple.field(part);
                }
                tuple.finish()
            }
            Repr::Unit | Repr::Negative(_) | Repr::Natural(_) | Repr::V4(_) | Repr::V6(_) => write!(f, "{self}"),
            #[cfg(feature = "uuid")]
            Repr::Uuid(_) => write!(f, "{self}"),
        }
    }
}

macro_rules! from_integer {
    ($make:ident, $wide:ty: $($integer:ty),+) => {
        $(impl From<$integer> for Key {
            #[inline]
            fn from(value: $integer) -> Self {
                Self::$make(value as $wide)
            }
        })+
    };
}

from_integer!(natural, u64: u8, u16, u32, u64, usize);
from_integer!(integer, i64: i8, i16, i32, i64, isize);

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::short(text).unwrap_or_else(|| Self(Repr::Long(text.into())))
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::short(&text).unwrap_or_else(|| Self(Repr::Long(text.into())))
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<Arc<str>> for Key {
    fn from(text: Arc<str>) -> Self {
        Self::short(&text).unwrap_or(Self(Repr::Long(text)))
    }
}

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
    }
}

impl From<&Self> for Key {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl From<()> for Key {
    fn from((): ()) -> Self {
        Self(Repr::Unit)
    }
}

impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Ipv4Addr> for Key {
    fn from(address: Ipv4Addr) -> Self {
        Self(Repr::V4(address.to_bits()))
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self(Repr::V6(halves(address.to_bits())))
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    fn from(id: uuid::Uuid) -> Self {
        Self(Repr::Uuid(halves(id.as_u128())))
    }
}

macro_rules! from_tuple {
    ($($part:ident),+) => {
        impl<$($part: Into<Key>),+> From<($($part,)+)> for Key {
            fn from(parts: ($($part,)+)) -> Self {
                #[expect(non_snake_case, reason = "each part is named after its type parameter")]
                let ($($part,)+) = parts;
                Self(Repr::Composite(Arc::new([$($part.into()),+])))
            }
        }
    };
}

from_tuple!(A, B);
from_tuple!(A, B, C);
from_tuple!(A, B, C, D);

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn hash(key: &Key) -> u64 {
        std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(key)
    }

    #[test]
    fn equal_integers_of_any_type_are_one_key() {
        let fives = [
            Key::from(5_u8),
            Key::from(5_u16),
            Key::from(5_u32),
            Key::from(5_u64),
            Key::from(5_usize),
            Key::from(5_i8),
            Key::from(5_i16),
            Key::from(5_i32),
            Key::from(5_i64),
            Key::from(5_isize),
        ];
        for five in &fives {
            assert_eq!(five, &fives[0]);
            assert_eq!(hash(five), hash(&fives[0]));
        }
        assert_ne!(Key::from(-1_i64), Key::from(u64::MAX));
        assert_eq!(Key::from(i64::MIN).to_string(), "-9223372036854775808");
    }

    #[test]
    fn text_of_any_type_and_length_is_one_key() {
        let of_length = |len: usize| "ж".repeat(len / 2) + if len % 2 == 1 { "a" } else { "" };
        let ends_in_zeros = ["\0", "a\0", "a\0\0", "a text of 22 bytes, a\0"].map(str::to_owned);
        for text in [0, 1, 15, 16, 17, 20, 21, 22, 23, 200].map(of_length).into_iter().chain(ends_in_zeros) {
            let key = Key::from(text.as_str());
            for same in [
                Key::from(text.clone()),
                Key::from(&text),
                Key::from(Arc::<str>::from(text.as_str())),
                Key::from(Cow::Borrowed(text.as_str())),
                Key::from(Cow::<str>::Owned(text.clone())),
                Key::from(&key),
            ] {
                assert_eq!(same, key);
                assert_eq!(hash(&same), hash(&key));
                assert_eq!(same.to_string(), text);
            }
        }
    }

    #[test]
    fn kinds_differ_though_they_look_alike() {
        let keys = [
            Key::from(()),
            Key::from(-5),
            Key::from(5),
            Key::from(""),
            Key::from("5"),
            Key::from("5\0"),
            Key::from("a longer text than fits inline"),
            Key::from(Ipv4Addr::LOCALHOST),
            Key::from(Ipv6Addr::LOCALHOST),
            Key::from((1, 2)),
            Key::from((1, 2, 3)),
            Key::from(((1, 2), 3)),
        ];
        for (left, a) in keys.iter().enumerate() {
            for (right, b) in keys.iter().enumerate() {
                assert_eq!(a == b, left == right, "{a:?} and {b:?}");
                assert_eq!(a.cmp(b), b.cmp(a).reverse());
            }
        }
    }

    #[test]
    fn order_is_by_kind_and_then_by_value() {
        let long = "b".repeat(30);
        let mut keys =
            [Key::from("c"), Key::from(long.as_str()), Key::from("a"), Key::from(7), Key::from(-7), Key::from(())];
        keys.sort();
        let shown: Vec<_> = keys.iter().map(Key::to_string).collect();
        assert_eq!(shown, ["()", "-7", "7", "a", &long, "c"]);

        let addresses = [IpAddr::from([9, 0, 0, 1]), IpAddr::from([10, 0, 0, 0])].map(Key::from);
        let longer =
            ["::1", "::2", "2001::", "2001::1"].map(|text| text.parse::<IpAddr>().expect("an address")).map(Key::from);
        let texts = ["", "a", "a\0", "aa", "ab", "abcdefghijklmnop", "abcdefghijklmnopq"].map(Key::from);
        for ordered in [&addresses[..], &longer[..], &texts[..], &[addresses[1].clone(), longer[0].clone()]] {
            for (place, pair) in ordered.windows(2).enumerate() {
                assert!(pair[0] < pair[1] && pair[0] != pair[1], "pair {place}: {pair:?}");
            }
        }
    }

    #[test]
    fn debug_tells_numbers_from_text() {
        assert_eq!(format!("{:?}", Key::from(("5", 5, "x".repeat(23)))), format!("(\"5\", 5, {:?})", "x".repeat(23)));
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn ids_are_keys_of_their_own_kind() {
        let id = uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let key = Key::from(id);
        assert_eq!(key.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(format!("{key:?}"), key.to_string());
        assert_ne!(key, Key::from(id.to_string()));
        assert_eq!(hash(&key), hash(&Key::from(id)));
        assert!(key > Key::from(uuid::Uuid::nil()));
        assert!(key < Key::from(uuid::Uuid::from_u128(id.as_u128() + 1)));
        assert!(key < Key::from(uuid::Uuid::from_u128(id.as_u128() + (1 << 64))));
    }
}
