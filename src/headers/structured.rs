//! Structured field values (RFC 9651), as far as rate limits use them: lists and dictionaries of items with parameters.
//!
//! What breaks the grammar anywhere is no value at all, as the standard has it.

/// An item without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'v> {
    Integer(i64),
    /// A string without its quotes, escapes left as they are, or a token.
    Text(&'v [u8]),
    /// Everything that no rate limit is told with.
    Other,
}

impl Item<'_> {
    /// An integer that is not negative.
    pub(super) fn count(self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(number).ok(),
            Self::Text(_) | Self::Other => None,
        }
    }
}

/// What a parameter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<T> {
    Absent,
    Value(T),
    /// It is there and not what it should be.
    Wrong,
}

/// A member of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'v> {
    pub(super) item: Item<'v>,
    /// Sound, semicolons included.
    parameters: &'v [u8],
}

impl<'v> Member<'v> {
    /// The parameter of this name; the last one if there are several.
    pub(super) fn parameter(&self, name: &str) -> Option<Item<'v>> {
        let mut found = None;
        let mut cursor = Cursor(self.parameters);
        cursor.parameters(|key, item| {
            if key == name.as_bytes() {
                found = Some(item);
            }
        });
        found
    }

    /// The same where it has to be an integer that is not negative.
    pub(super) fn count(&self, name: &str) -> Told<u64> {
        match self.parameter(name).map(Item::count) {
            None => Told::Absent,
            Some(None) => Told::Wrong,
            Some(Some(count)) => Told::Value(count),
        }
    }
}

/// The members of a list. `None`, and nothing found, if `value` is none.
pub(super) fn list<'v>(value: &'v [u8], mut found: impl FnMut(Member<'v>)) -> Option<()> {
    // Once to see whether it is one.
    Cursor(value).members(Cursor::member, |_| ())?;
    Cursor(value).members(Cursor::member, &mut found)
}

/// The members of a dictionary, each with its item. `None`, and nothing found, if `value` is none.
pub(super) fn dictionary<'v>(value: &'v [u8], mut found: impl FnMut(&'v [u8], Item<'v>)) -> Option<()> {
    fn member<'v>(cursor: &mut Cursor<'v>) -> Option<(&'v [u8], Item<'v>)> {
        let key = cursor.key()?;
        if cursor.skip(b'=') {
            return Some((key, cursor.member()?.item));
        }
        cursor.parameters(|_, _| ())?;
        Some((key, Item::Other))
    }
    Cursor(value).members(member, |_| ())?;
    Cursor(value).members(member, |(key, item)| found(key, item))
}

/// What is left to read.
#[derive(Clone, Copy)]
struct Cursor<'v>(&'v [u8]);

impl<'v> Cursor<'v> {
    fn members<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>, mut found: impl FnMut(T)) -> Option<()> {
        self.skip_all(b" ");
        if self.0.is_empty() {
            return Some(());
        }
        loop {
            found(read(self)?);
            self.skip_all(b" \t");
            if self.0.is_empty() {
                return Some(());
            }
            if !self.skip(b',') {
                return None;
            }
            self.skip_all(b" \t");
            if self.0.is_empty() {
                return None;
            }
        }
    }

    fn member(&mut self) -> Option<Member<'v>> {
        let item = if self.skip(b'(') { self.inner_list()? } else { self.item()? };
        let begin = self.0;
        self.parameters(|_, _| ())?;
        Some(Member { item, parameters: &begin[..begin.len() - self.0.len()] })
    }

    fn inner_list(&mut self) -> Option<Item<'v>> {
        loop {
            self.skip_all(b" ");
            if self.skip(b')') {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters(|_, _| ())?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self, mut found: impl FnMut(&'v [u8], Item<'v>)) -> Option<()> {
        while self.skip(b';') {
            self.skip_all(b" ");
            let key = self.key()?;
            let item = if self.skip(b'=') { self.item()? } else { Item::Other };
            found(key, item);
        }
        Some(())
    }

    fn key(&mut self) -> Option<&'v [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.take(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    fn item(&mut self) -> Option<Item<'v>> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => Some(Item::Text(self.take(is_token))),
            b':' => {
                self.0 = &self.0[1..];
                self.take(|byte| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'/' | b'='));
                self.skip(b':').then_some(Item::Other)
            }
            b'?' => {
                self.0 = &self.0[1..];
                (self.skip(b'0') || self.skip(b'1')).then_some(Item::Other)
            }
            b'@' => {
                self.0 = &self.0[1..];
                matches!(self.number()?, Item::Integer(_)).then_some(Item::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Item<'v>> {
        let negative = self.skip(b'-');
        let whole = self.take(|byte| byte.is_ascii_digit());
        if whole.is_empty() {
            return None;
        }
        if self.skip(b'.') {
            let behind = self.take(|byte| byte.is_ascii_digit());
            return (whole.len() <= 12 && (1..=3).contains(&behind.len())).then_some(Item::Other);
        }
        if whole.len() > 15 {
            return None;
        }
        let number = whole.iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
        Some(Item::Integer(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Item<'v>> {
        let text = self.0.get(1..)?;
        let mut at = 0;
        loop {
            match text.get(at)? {
                b'"' => break,
                b'\\' => {
                    if !matches!(text.get(at + 1)?, b'"' | b'\\') {
                        return None;
                    }
                    at += 2;
                }
                b' '..=b'~' => at += 1,
                _ => return None,
            }
        }
        self.0 = &text[at + 1..];
        Some(Item::Text(&text[..at]))
    }

    fn take(&mut self, fits: impl Fn(u8) -> bool) -> &'v [u8] {
        let end = self.0.iter().position(|byte| !fits(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn skip(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn skip_all(&mut self, bytes: &[u8]) {
        self.take(|byte| bytes.contains(&byte));
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

    use super::*;

    const PIECES: &[&str] = &[
        "\"a\"",
        "\"b c\"",
        "\"",
        "a",
        "quota",
        ";r=5",
        ";t=30",
        "; w=60",
        " ;q=1",
        ";pk=:YQ==:",
        ";x",
        ";r=-1",
        ";r=1.5",
        ";r=abc",
        ";w=\"1\"",
        ",",
        ", ",
        " , ",
        " ",
        "\t",
        "limit=10",
        "remaining=5",
        "reset=1",
        "limit",
        "=",
        "100",
        "-1",
        "1.25",
        "1.2345",
        "1234567890123456",
        "123456789012.5",
        "(a b)",
        "(1;x 2);w=5",
        "(",
        ")",
        "?1",
        "?2",
        "@5",
        "@1.5",
        "*x",
        "A/b:c",
        "\\\"",
        "é",
        ";R=1",
        ";r=1;r=2",
        "\"a\\\\\"",
        "10;w=1",
    ];

    const LISTS: usize = 200_000;

    /// What is told apart here of the other reader's item.
    fn item(item: &BareItem) -> Result<i64, Option<String>> {
        match item {
            BareItem::Integer(number) => Ok(i64::from(*number)),
            BareItem::Token(token) => Err(Some(token.as_str().to_owned())),
            BareItem::String(text) => Err(Some(text.as_str().replace('\\', "\\\\").replace('"', "\\\""))),
            _ => Err(None),
        }
    }

    fn ours(item: Item<'_>) -> Result<i64, Option<String>> {
        match item {
            Item::Integer(number) => Ok(number),
            Item::Text(text) => Err(Some(String::from_utf8(text.to_vec()).expect("ASCII"))),
            Item::Other => Err(None),
        }
    }

    fn random(seed: u64) -> String {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..random.usize(1..9)).map(|_| PIECES[random.usize(..PIECES.len())]).collect()
    }

    #[test]
    fn lists_are_read_as_another_reader_reads_them() {
        let mut sound = 0;
        for seed in 0..LISTS as u64 {
            let text = random(seed);
            let mut members = Vec::new();
            let read = list(text.as_bytes(), |member| members.push(member));
            let theirs = Parser::new(&text).parse::<List>();
            assert_eq!(read.is_some(), theirs.is_ok(), "{text:?}: {theirs:?}");
            let theirs = theirs.unwrap_or_default();
            sound += usize::from(!theirs.is_empty());
            assert_eq!(members.len(), theirs.len(), "{text:?}");
            for (member, their) in members.iter().zip(&theirs) {
                let (their_item, parameters) = match their {
                    ListEntry::Item(entry) => (item(&entry.bare_item), &entry.params),
                    ListEntry::InnerList(entry) => (Err(None), &entry.params),
                };
                assert_eq!(ours(member.item), their_item, "{text:?}");
                for name in ["r", "t", "w", "q", "x", "pk"] {
                    let their = parameters.get(name).map(item);
                    assert_eq!(member.parameter(name).map(ours), their, "{name} in {text:?}");
                }
            }
        }
        assert!(sound > LISTS / 50, "only {sound} sound ones");
    }

    #[test]
    fn dictionaries_are_read_as_another_reader_reads_them() {
        let mut sound = 0;
        for seed in 0..LISTS as u64 {
            let text = random(seed);
            let mut members = std::collections::BTreeMap::new();
            let read = dictionary(text.as_bytes(), |key, item| {
                members.insert(String::from_utf8(key.to_vec()).expect("ASCII"), ours(item));
            });
            let theirs = Parser::new(&text).parse::<Dictionary>();
            assert_eq!(read.is_some(), theirs.is_ok(), "{text:?}: {theirs:?}");
            let theirs = theirs.unwrap_or_default();
            sound += usize::from(!theirs.is_empty());
            assert_eq!(members.len(), theirs.len(), "{text:?}");
            for (key, their) in &theirs {
                let their = match their {
                    ListEntry::Item(entry) => item(&entry.bare_item),
                    ListEntry::InnerList(_) => Err(None),
                };
                assert_eq!(members.get(key.as_str()), Some(&their), "{key:?} in {text:?}");
            }
        }
        assert!(sound > LISTS / 50, "only {sound} sound ones");
    }
}
