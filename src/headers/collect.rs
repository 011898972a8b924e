//! One pass over a response's fields: each goes to what it tells something of.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::dialect::{Dialect, Family, Form, Meaning, ServerScope, WindowSpec, fits};
use super::family::{self, Named, Role};
use super::moment::{self, Ahead, HORIZON, Moment, Told};
use super::name::Name;
use super::number::Number;
use super::observation::{NoteKind, Observation, WINDOWS};
use super::slot::Slot;

/// More lines of a list than anybody sends.
const LINES: usize = 4;

/// What the fields of a response said, before it is put together.
#[derive(Debug)]
pub(super) struct Collected<'d, 'h> {
    pub(super) dialect: &'d Dialect,
    families: &'d [Family],
    /// The field that names the windows of the families.
    named_by: Option<&'d str>,
    name: Name,
    pub(super) slots: ArrayVec<Slot<'d, 'h>, WINDOWS>,
    /// In nanoseconds since 1970.
    pub(super) date: Option<i64>,
    pub(super) cached: bool,
    pub(super) waits: Waits,
    pub(super) verdict: Verdict,
    /// Structured lists of states.
    pub(super) states: ArrayVec<&'h [u8], LINES>,
    pub(super) policies: ArrayVec<&'h [u8], LINES>,
    #[cfg(feature = "json")]
    pub(super) json: ArrayVec<(&'d super::json::JsonHeader, &'h [u8]), LINES>,
}

impl<'d, 'h> Collected<'d, 'h> {
    pub(super) fn new(dialect: &'d Dialect) -> Self {
        let families = dialect.layers().map(|layer| &*layer.families).find(|families| !families.is_empty());
        Self {
            dialect,
            families: families.unwrap_or_default(),
            named_by: dialect.layers().find_map(|layer| layer.named_by.as_deref()),
            name: Name::default(),
            slots: ArrayVec::new(),
            date: None,
            cached: false,
            waits: Waits::default(),
            verdict: Verdict::default(),
            states: ArrayVec::new(),
            policies: ArrayVec::new(),
            #[cfg(feature = "json")]
            json: ArrayVec::new(),
        }
    }

    /// Takes one field in, or leaves it.
    pub(super) fn take(&mut self, header: &'h [u8], value: &'h [u8], observation: &mut Observation) {
        let value = moment::trim(value);
        let understood = match header.len() {
            3 if header.eq_ignore_ascii_case(b"age") => {
                self.cached |= Number::read(value).is_some_and(Number::is_positive);
                true
            }
            4 if header.eq_ignore_ascii_case(b"date") => {
                self.date = self.date.or_else(|| moment::http_date(value));
                true
            }
            _ if self.named_by.is_some_and(|field| header.eq_ignore_ascii_case(field.as_bytes())) => {
                self.name = Name::lower(value);
                true
            }
            _ => self.take_generic(header, value, observation) & self.take_own(header, value, observation),
        };
        if !understood {
            observation.note(header, NoteKind::Unreadable);
        }
    }

    /// Gives the windows of the families, as far as their fields have no words of their own, the name that was told.
    pub(super) fn name_windows(&mut self) {
        let is_plain = |slot: &&mut Slot<'_, '_>| {
            slot.word.is_empty() && self.families.iter().any(|family| family.prefix == slot.group)
        };
        self.slots.iter_mut().filter(is_plain).for_each(|slot| slot.word = self.name);
    }

    fn take_generic(&mut self, header: &'h [u8], value: &'h [u8], observation: &mut Observation) -> bool {
        for family in self.families {
            let Some(Named { role, word, unit, per }) = family::named(family, header) else { continue };
            match role {
                // A draft before the lists wrote a dictionary into the same field; both are kept for later.
                Role::List => drop(self.states.try_push(value)),
                Role::Policy => drop(self.policies.try_push(value)),
                Role::Wait => return self.waits.take(value, Form::Any),
                Role::Limit | Role::Remaining | Role::Used | Role::Reset | Role::ResetAfter | Role::Next => {
                    let (word, form) = (Name::new(word), family.form);
                    let slot = self.slot(family.prefix, word, || Slot::new(family.prefix, word, unit, None, per));
                    return match slot {
                        Some(slot) => slot.take_role(role, value, form),
                        None => too_many(observation),
                    };
                }
            }
        }
        true
    }

    fn take_own(&mut self, header: &'h [u8], value: &'h [u8], observation: &mut Observation) -> bool {
        let mut understood = true;
        for layer in self.dialect.layers() {
            for wait in layer.waits.iter().filter(|wait| fits(&wait.header, header)) {
                understood &= self.waits.take(value, wait.form);
            }
            for spec in layer.windows.iter() {
                for field in spec.fields.iter().filter(|field| fits(&field.header, header)) {
                    let word = if field.header.contains('*') { rest(&field.header, header) } else { Name::default() };
                    understood &= match self.own_slot(spec, word) {
                        Some(slot) => slot.take_part(field.part, value),
                        None => too_many(observation),
                    };
                }
            }
            for words in layer.words.iter().filter(|words| fits(&words.header, header)) {
                for word in words.words.iter().filter(|word| fits(&word.value, value)) {
                    self.verdict.take(word.meaning);
                }
            }
            #[cfg(feature = "json")]
            for json in layer.json_headers.iter().filter(|json| fits(json.header, header)) {
                let _ = self.json.try_push((json, value));
            }
        }
        understood
    }

    fn own_slot(&mut self, spec: &'d WindowSpec, word: Name) -> Option<&mut Slot<'d, 'h>> {
        self.slot(&spec.name, word, || Slot::new(&spec.name, word, &spec.unit, spec.scope, spec.per))
    }

    /// A window that JSON tells of.
    #[cfg(feature = "json")]
    pub(super) fn json_slot(&mut self, window: &'d str, unit: &'d str) -> Option<&mut Slot<'d, 'h>> {
        self.slot(window, Name::default(), || Slot::new(window, Name::default(), unit, None, None))
    }

    fn slot(&mut self, group: &str, word: Name, new: impl FnOnce() -> Slot<'d, 'h>) -> Option<&mut Slot<'d, 'h>> {
        let place = match self.slots.iter().position(|slot| slot.group == group && slot.word == word) {
            Some(place) => place,
            None => {
                self.slots.try_push(new()).ok()?;
                self.slots.len() - 1
            }
        };
        self.slots.get_mut(place)
    }
}

/// What words said about a refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    pub(super) refused: bool,
    pub(super) not_refused: bool,
    pub(super) is_final: bool,
    /// The widest of all.
    pub(super) scope: Option<ServerScope>,
}

impl Verdict {
    pub(super) fn take(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Refused => self.refused = true,
            Meaning::NotRefused => self.not_refused = true,
            Meaning::Final => self.is_final = true,
            Meaning::Scope(scope) => self.scope = self.scope.max(Some(scope)),
        }
    }
}

/// How long to wait, told in several ways.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    after: Option<Duration>,
    at: Option<i64>,
}

impl Waits {
    /// Whether a wait was understood.
    pub(super) fn take(&mut self, value: &[u8], form: Form) -> bool {
        let mut any = false;
        moment::each(value, form, |told| {
            any = true;
            self.add(told);
        });
        any
    }

    pub(super) fn add(&mut self, told: Told) {
        match told.moment {
            Moment::After(wait) => self.after = both(self.after, Some(wait)),
            Moment::Before => self.after = both(self.after, Some(Duration::ZERO)),
            Moment::At(at) => self.at = self.at.max(Some(at)),
        }
    }

    /// Seen from the moment at which the response was sent.
    pub(super) fn resolve(self, base: i64) -> Option<Duration> {
        let at = self.at.map(|at| match Moment::At(at).ahead(base) {
            Ahead::Over => Duration::ZERO,
            Ahead::In(wait) => wait,
        });
        both(self.after, at).map(|wait| wait.min(HORIZON))
    }
}

/// The finer of two that say the same, one of them in whole seconds; else the longer.
fn both(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let (short, long) = (one.min(other), one.max(other));
    let rounded_up = short.as_secs().checked_add(u64::from(short.subsec_nanos() > 0)).map(Duration::from_secs);
    Some(if rounded_up == Some(long) { short } else { long })
}

/// What a pattern's `*` stands for.
fn rest(pattern: &str, header: &[u8]) -> Name {
    let length = pattern.len() - 1;
    let rest = if pattern.starts_with('*') {
        header.len().checked_sub(length).and_then(|end| header.get(..end))
    } else {
        header.get(length..)
    };
    Name::lower(rest.unwrap_or_default())
}

fn too_many(observation: &mut Observation) -> bool {
    observation.note("windows", NoteKind::TooMany);
    true
}
