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
