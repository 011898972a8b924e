//! JSON walked once: only what the dialect looks for is kept, however large the rest is.

use std::fmt::{self, Write as _};

use arrayvec::{ArrayString, ArrayVec};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::collect::Collected;
use super::dialect::{Form, Word, fits};
use super::json::{On, Pick, What};
use super::moment::{self, Told};
use super::number::Number;
use super::observation::{NoteKind, Observation};

/// Longer bodies are not looked into.
const LONGEST: usize = 1 << 20;
/// More values than any dialect looks for.
const FOUND: usize = 32;

/// Takes what JSON in the fields and in the body says. Whether a wait was told that counts whatever the status is.
pub(super) fn take<'d>(
    collected: &mut Collected<'d, '_>,
    body: Option<&[u8]>,
    refusal: bool,
    observation: &mut Observation,
) -> bool {
    let mut always = false;
    for (json, value) in std::mem::take(&mut collected.json) {
        match found(json.picks.iter(), value) {
            Some(all) => all.into_iter().for_each(|one| always |= one.apply(collected)),
            None => observation.note(json.header, NoteKind::Unreadable),
        }
    }
    let dialect = collected.dialect;
    let Some(body) = body.filter(|_| refusal || dialect.layers().any(|layer| layer.any_status)) else { return always };
    if body.len() > LONGEST {
        observation.note("body", NoteKind::TooMany);
        return always;
    }
    match found(dialect.layers().flat_map(|layer| layer.body.iter()), body) {
        Some(all) => all.into_iter().for_each(|one| always |= one.apply(collected)),
        // Pages for people are no JSON and were not meant to be.
        None if body.first() == Some(&b'{') => observation.note("body", NoteKind::Unreadable),
        None => {}
    }
    always
}

/// A value that was looked for, as far as it can mean something.
struct Found<'d> {
    pick: &'d Pick,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    Number(Number),
    Told(Told),
    /// Which of the words it is.
    Word(usize),
}

impl<'d> Found<'d> {
    /// Whether it is a wait that counts whatever the status is.
    fn apply(self, collected: &mut Collected<'d, '_>) -> bool {
        match (&self.pick.what, self.value) {
            (What::Wait { on, .. }, Value::Told(told)) => {
                collected.waits.add(told);
                return *on == On::Any;
            }
            (What::WaitBehind { .. }, Value::Told(told)) => collected.waits.add(told),
            (What::Words(words), Value::Word(place)) => {
                if let Some(word) = words.get(place) {
                    collected.verdict.take(word.meaning);
                }
            }
            (What::Count { window, unit, count }, Value::Number(number)) => {
                if let Some(slot) = collected.json_slot(window, unit) {
                    slot.take_count(*count, number);
                }
            }
            (What::Wait { .. } | What::WaitBehind { .. } | What::Words(_) | What::Count { .. }, _) => {}
        }
        false
    }
}

/// `None`: `text` is no JSON.
fn found<'d>(picks: impl Iterator<Item = &'d Pick>, text: &[u8]) -> Option<ArrayVec<Found<'d>, FOUND>> {
    let mut all = ArrayVec::new();
    let active: Vec<_> = picks.map(|pick| (pick, &*pick.path)).collect();
    let mut found = |one| drop(all.try_push(one));
    let mut reader = serde_json::Deserializer::from_slice(text);
    Walk { active: &active, found: &mut found }.deserialize(&mut reader).and_then(|()| reader.end()).ok()?;
    Some(all)
}

/// What is looked for here and below: each with the rest of its path.
struct Walk<'a, 'd> {
    active: &'a [(&'d Pick, &'d str)],
    found: &'a mut dyn FnMut(Found<'d>),
}

impl Walk<'_, '_> {
    fn number(self, number: Number) {
        let mut text = ArrayString::<24>::new();
        // A fraction is no code.
        if let Some(integer) = number.integer() {
            let _ = write!(text, "{integer}");
        }
        self.scalar(text.as_bytes(), Some(number));
    }

    fn scalar(mut self, text: &[u8], number: Option<Number>) {
        for (pick, path) in self.active {
            if !path.is_empty() {
                continue;
            }
            let moment = |form: Form| match number {
                Some(number) => Some(moment::from_number(number, form)),
                None => moment::read(moment::trim(text), form),
            };
            match &pick.what {
                What::Wait { form, .. } => self.tell(pick, moment(*form).map(Value::Told)),
                What::WaitBehind { words, form } => self.tell(pick, behind(text, words, *form).map(Value::Told)),
                What::Count { .. } => self.tell(pick, number.or_else(|| Number::read(text)).map(Value::Number)),
                What::Words(words) => {
                    let fitting = |(place, word): (usize, &Word)| fits(&word.value, text).then_some(place);
                    for place in words.iter().enumerate().filter_map(fitting) {
                        (self.found)(Found { pick, value: Value::Word(place) });
                    }
                }
            }
        }
    }
}

impl<'d> Walk<'_, 'd> {
    fn tell(&mut self, pick: &'d Pick, value: Option<Value>) {
        if let Some(value) = value {
            (self.found)(Found { pick, value });
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.active.is_empty() {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(below) = map.next_key_seed(Below(self.active))? {
            map.next_value_seed(Walk { active: &below, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Walk { active: self.active, found: &mut *self.found })?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.scalar(text.as_bytes(), None);
        Ok(())
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        self.scalar(if flag { b"true" } else { b"false" }, None);
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.number(Number::from_int(number));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.number(Number::from_uint(number));
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if let Some(number) = Number::from_f64(number) {
            self.number(number);
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads the name of a member: what is looked for in it.
struct Below<'a, 'd>(&'a [(&'d Pick, &'d str)]);

impl<'de, 'd> DeserializeSeed<'de> for Below<'_, 'd> {
    type Value = Vec<(&'d Pick, &'d str)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, 'd> Visitor<'de> for Below<'_, 'd> {
    type Value = Vec<(&'d Pick, &'d str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let below = self.0.iter().filter_map(|(pick, path)| {
            let (first, rest) = path.split_once('.').unwrap_or((path, ""));
            (!path.is_empty() && (first == name || first == "*")).then_some((*pick, rest))
        });
        Ok(below.collect())
    }
}

/// The number behind some words of a text.
fn behind(text: &[u8], words: &str, form: Form) -> Option<Told> {
    let place = text.windows(words.len().max(1)).position(|part| part.eq_ignore_ascii_case(words.as_bytes()))?;
    let rest = &text[place + words.len()..];
    let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(rest.len());
    // A full stop behind the number is no point in it.
    let number = rest[..end].strip_suffix(b".").unwrap_or(&rest[..end]);
    Number::read(number).map(|number| moment::from_number(number, form))
}
