//! Dialects that users add: `[dialects.x]`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ::toml::Spanned;
use ::toml::de::DeValue;

use super::join;
use super::value::Reader;
use crate::headers::{
    Dialect, Field, Form, Meaning, Part, Pick, ServerScope, WaitField, What, WindowSpec, Word, Words,
};
use crate::rules::builder::{At, OwnDialect};
use crate::rules::finding::Place;
use crate::rules::wording;

const DIALECT: &[&str] =
    &["like", "scope", "refused", "reset", "bodies", "named_by", "windows", "waits", "words", "body"];
const WINDOW: &[&str] = &[
    "unit",
    "per",
    "scope",
    "limit",
    "remaining",
    "used",
    "reset",
    "length",
    "used_of_limit",
    "spent_left_limit",
    "limits",
    "counts",
];
const MOMENT: &[&str] = &["header", "form"];
const BODY: &[&str] = &["waits", "words"];

/// The name of having no dialect below.
pub(in crate::rules) const NONE: &str = "none";

pub(in crate::rules) const SCOPES: &[(&str, ServerScope)] =
    &[("key", ServerScope::Key), ("route", ServerScope::Route), ("global", ServerScope::Global)];

pub(in crate::rules) const FORMS: &[(&str, Form)] = &[
    ("any", Form::Any),
    ("seconds", Form::Seconds),
    ("milliseconds", Form::Milliseconds),
    ("minutes", Form::Minutes),
    ("retry-after", Form::RetryAfter),
];

pub(in crate::rules) const MEANINGS: &[(&str, Meaning)] = &[
    ("refused", Meaning::Refused),
    ("not-refused", Meaning::NotRefused),
    ("final", Meaning::Final),
    ("key", Meaning::Scope(ServerScope::Key)),
    ("route", Meaning::Scope(ServerScope::Route)),
    ("global", Meaning::Scope(ServerScope::Global)),
];

/// Whether resets are the moments of full quotas.
pub(in crate::rules) const RESETS: &[(&str, bool)] = &[("window", false), ("full", true)];

/// Whether bodies are read whatever the status.
pub(in crate::rules) const BODIES: &[(&str, bool)] = &[("refused", false), ("any", true)];

impl Reader<'_> {
    pub(super) fn dialects(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Vec<(At<String>, OwnDialect)> {
        self.named(value, path, "at least one dialect", |reader, value, path, name| {
            reader.dialect(value, path, &name.value)
        })
    }

    fn dialect(&mut self, value: &Spanned<DeValue<'_>>, path: &str, name: &str) -> Option<OwnDialect> {
        let table = self.table(value, path, "a table")?;
        let mut dialect = Dialect::new("").like(Dialect::auto());
        dialect.name = Cow::Owned(name.to_owned());
        let mut places = BTreeMap::new();
        for (key, value) in Self::fields(table) {
            let field = key.get_ref().as_ref();
            let path = &join(path, field);
            places.insert(path.clone(), self.place(value.span()));
            match field {
                "like" => dialect.like = self.like(value, path),
                "scope" => dialect.scope = self.word(value, path, SCOPES),
                "refused" => dialect.refused = Cow::Owned(self.statuses(value, path, &mut places)),
                "reset" => dialect.full_refill = self.word(value, path, RESETS).unwrap_or_default(),
                "bodies" => dialect.any_status = self.word(value, path, BODIES).unwrap_or_default(),
                "named_by" => {
                    let header = self.text(value, path, "the name of a header field in quotes");
                    dialect.named_by = header.map(|at| Cow::Owned(at.value));
                }
                "windows" => dialect.windows = Cow::Owned(self.windows(value, path, &mut places)),
                "waits" => {
                    let waits = self.forms(value, path, &mut places);
                    let waits = waits.into_iter().map(|(header, form)| WaitField { header: header.into(), form });
                    dialect.waits = waits.collect();
                }
                "words" => {
                    let words = self.words(value, path, &mut places);
                    let words =
                        words.into_iter().map(|(header, words)| Words { header: header.into(), words: words.into() });
                    dialect.words = words.collect();
                }
                "body" => dialect.body = Cow::Owned(self.body(value, path, &mut places)),
                _ => self.unknown(key, path, DIALECT),
            }
        }
        Some(OwnDialect { dialect, places })
    }

    fn like(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<&'static Dialect> {
        let At { value: name, .. } = self.text(value, path, "the name of a dialect in quotes")?;
        let known = Dialect::named(&name);
        if known.is_none() && name != NONE {
            self.push(wording::unknown_dialect(&name), path, value.span());
        }
        known
    }

    fn statuses(&mut self, value: &Spanned<DeValue<'_>>, path: &str, places: &mut BTreeMap<String, Place>) -> Vec<u16> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(value, path, "a list of statuses such as `[429, 503]`");
            return Vec::new();
        };
        let mut statuses = Vec::new();
        for value in array.iter() {
            let Some(At { value: number, place }) = self.number(value, path) else { continue };
            match u16::try_from(number) {
                Ok(status) => {
                    places.extend(place.map(|place| (join(path, &statuses.len().to_string()), place)));
                    statuses.push(status);
                }
                Err(_) => self.push(wording::no_status(number), path, value.span()),
            }
        }
        statuses
    }

    fn windows(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        places: &mut BTreeMap<String, Place>,
    ) -> Vec<WindowSpec> {
        let windows = self.named(value, path, "at least one window", |reader, value, path, name| {
            let window = reader.window(value, path, &name.value, places);
            places.extend(name.place.map(|place| (path.to_owned(), place)));
            window
        });
        windows.into_iter().map(|(_, window)| window).collect()
    }

    fn window(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        name: &str,
        places: &mut BTreeMap<String, Place>,
    ) -> Option<WindowSpec> {
        let table = self.table(value, path, "a table")?;
        let mut window = WindowSpec::new("");
        window.name = Cow::Owned(name.to_owned());
        let mut fields = Vec::new();
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            places.insert(path.clone(), self.place(value.span()));
            match name {
                "unit" => {
                    if let Some(unit) = self.text(value, path, "the name of a unit in quotes") {
                        window.unit = Cow::Owned(unit.value);
                    }
                }
                "per" => window.per = self.duration(value, path).map(|at| at.value.into()),
                "scope" => window.scope = self.word(value, path, SCOPES),
                _ => match part(name) {
                    Some(part) => fields.extend(self.field(value, path, part)),
                    None => self.unknown(key, path, WINDOW),
                },
            }
        }
        window.fields = Cow::Owned(fields);
        Some(window)
    }

    /// A header's name; for moments perhaps with their form.
    fn field(&mut self, value: &Spanned<DeValue<'_>>, path: &str, part: Part) -> Option<Field> {
        let allowed = "the name of a header field in quotes";
        let timed = matches!(part, Part::Reset(_) | Part::Length(_));
        let Some(table) = value.get_ref().as_table().filter(|_| timed) else {
            let allowed = if timed { "the name of a header field in quotes, or a table" } else { allowed };
            return self.text(value, path, allowed).map(|at| Field { header: at.value.into(), part });
        };
        let (mut header, mut form) = (None, Form::Any);
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "header" => header = self.text(value, path, allowed),
                "form" => form = self.word(value, path, FORMS).unwrap_or_default(),
                _ => self.unknown(key, path, MOMENT),
            }
        }
        if !table.contains_key("header") {
            self.push(wording::empty("a table without `header`", allowed), path, value.span());
        }
        let part = if matches!(part, Part::Reset(_)) { Part::Reset(form) } else { Part::Length(form) };
        header.map(|at| Field { header: at.value.into(), part })
    }

    /// Names with how their moments are written.
    fn forms(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        places: &mut BTreeMap<String, Place>,
    ) -> Vec<(String, Form)> {
        let forms = self.named(value, path, "at least one field", |reader, value, path, name| {
            places.extend(name.place.map(|place| (path.to_owned(), place)));
            reader.word(value, path, FORMS)
        });
        forms.into_iter().map(|(name, form)| (name.value, form)).collect()
    }

    /// Names with what their values mean.
    fn words(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        places: &mut BTreeMap<String, Place>,
    ) -> Vec<(String, Vec<Word>)> {
        let all = self.named(value, path, "at least one field", |reader, value, path, name| {
            places.extend(name.place.map(|place| (path.to_owned(), place)));
            let words = reader
                .named(value, path, "at least one value", |reader, value, path, _| Some(reader.meanings(value, path)));
            let words = words.into_iter().flat_map(|(value, meanings)| {
                meanings.into_iter().map(move |meaning| Word { value: value.value.clone().into(), meaning })
            });
            Some(words.collect())
        });
        all.into_iter().map(|(name, words)| (name.value, words)).collect()
    }

    fn meanings(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Vec<Meaning> {
        match value.get_ref().as_array() {
            Some(list) => list.iter().filter_map(|value| self.word(value, path, MEANINGS)).collect(),
            None => self.word(value, path, MEANINGS).into_iter().collect(),
        }
    }

    fn body(&mut self, value: &Spanned<DeValue<'_>>, path: &str, places: &mut BTreeMap<String, Place>) -> Vec<Pick> {
        let Some(table) = self.table(value, path, "a table with `waits`, `words` or both") else { return Vec::new() };
        let mut picks = Vec::new();
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "waits" => picks
                    .extend(self.forms(value, path, places).into_iter().map(|(path, form)| Pick::wait_at(path, form))),
                "words" => picks.extend(
                    self.words(value, path, places)
                        .into_iter()
                        .map(|(path, words)| Pick { path: path.into(), what: What::Words(words.into()) }),
                ),
                _ => self.unknown(key, path, BODY),
            }
        }
        picks
    }
}

/// What of a window a field of this name in the rules file stands for.
fn part(name: &str) -> Option<Part> {
    Some(match name {
        "limit" => Part::Limit,
        "remaining" => Part::Remaining,
        "used" => Part::Used,
        "reset" => Part::Reset(Form::Any),
        "length" => Part::Length(Form::Any),
        "used_of_limit" => Part::UsedOfLimit,
        "spent_left_limit" => Part::SpentLeftLimit,
        "limits" => Part::Limits,
        "counts" => Part::Counts,
        _ => return None,
    })
}

/// The name in the rules file of what a field tells.
pub(in crate::rules) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Limit => "limit",
        Part::Remaining => "remaining",
        Part::Used => "used",
        Part::Reset(_) => "reset",
        Part::Length(_) => "length",
        Part::UsedOfLimit => "used_of_limit",
        Part::SpentLeftLimit => "spent_left_limit",
        Part::Limits => "limits",
        Part::Counts => "counts",
    }
}
