//! Single values of a rules file, and what is said when they are of another type.

use std::ops::Range;

use ::toml::Spanned;
use ::toml::de::{DeString, DeTable, DeValue, Error};

use crate::engine::Nanos;
use crate::rules::builder::At;
use crate::rules::check::Read;
use crate::rules::duration;
use crate::rules::finding::{Finding, FindingCode, Findings, Place};
use crate::rules::model::Share;
use crate::rules::wording;

const FRACTION: &str = "a fraction such as `\"1/20\"`, or a number from 0 to 1";

/// Reads values, notes what is wrong with them and goes on.
pub(crate) struct Reader<'t> {
    text: &'t str,
    /// Where each line begins.
    lines: Vec<usize>,
    pub(crate) findings: Vec<Finding>,
    /// Something that other parts refer to could not be read.
    pub(super) unsure: bool,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines, findings: Vec::new(), unsure: false }
    }

    pub(in crate::rules) fn into_read(self) -> Read {
        Read { findings: self.findings, unsure: self.unsure }
    }

    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        let line = self.lines.partition_point(|begin| *begin <= span.start).max(1);
        let begin = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(begin..span.start).map_or(0, |before| before.chars().count()) + 1;
        Place { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    pub(crate) fn push(&mut self, finding: Finding, path: &str, span: Range<usize>) {
        // What a rule says wrongly may be just what another part would be judged by.
        self.unsure |= path.starts_with("rules");
        let place = self.place(span);
        self.findings.push(finding.at(path, Some(place)));
    }

    /// What keeps the text from being TOML.
    pub(crate) fn syntax(&self, errors: Vec<Error>) -> Findings {
        let list = errors.into_iter().map(|error| {
            let place = error.span().map(|span| self.place(span));
            let found = format!("text that is not TOML ({})", error.message());
            Finding::new(FindingCode::Syntax, found, "TOML 1.1").at("", place)
        });
        Findings::new(list.collect())
    }

    /// A table's fields in the order of the text.
    pub(crate) fn fields<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
        let mut fields: Vec<_> = table.iter().collect();
        fields.sort_by_key(|(key, _)| key.span().start);
        fields
    }

    pub(crate) fn unknown(&mut self, key: &Spanned<DeString<'_>>, path: &str, allowed: &[&str]) {
        self.push(wording::unknown_field(key.get_ref(), allowed), path, key.span());
    }

    pub(crate) fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, path: &str, allowed: &str) {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("the text {}", wording::quote(text)),
            DeValue::Integer(number) => format!("the number {}", wording::quote(number.as_str())),
            DeValue::Float(number) => format!("the number {}", wording::quote(number.as_str())),
            DeValue::Boolean(flag) => format!("`{flag}`"),
            DeValue::Datetime(date) => format!("the date `{date}`"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.push(wording::wrong_type(&found, allowed), path, value.span());
    }

    pub(crate) fn table<'a, 'i>(
        &mut self,
        value: &'a Spanned<DeValue<'i>>,
        path: &str,
        allowed: &str,
    ) -> Option<&'a DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, path, allowed);
        }
        table
    }

    pub(crate) fn text(&mut self, value: &Spanned<DeValue<'_>>, path: &str, allowed: &str) -> Option<At<String>> {
        let text = value.get_ref().as_str().map(|text| self.at(value, text.to_owned()));
        if text.is_none() {
            self.wrong_type(value, path, allowed);
        }
        text
    }

    /// A whole number; zero is for the check to judge, which knows what it would mean.
    pub(crate) fn number(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<u32>> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, path, "a whole number");
            return None;
        };
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        if number.is_none() {
            let finding = wording::out_of_range(&integer.to_string(), "a whole number from 0 to 4294967295");
            self.push(finding, path, value.span());
        }
        number.map(|number| self.at(value, number))
    }

    /// The same of 64 bits.
    pub(crate) fn long_number(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<u64>> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, path, "a whole number");
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        if number.is_none() {
            let allowed = "a whole number from 0 to 18446744073709551615";
            self.push(wording::out_of_range(&integer.to_string(), allowed), path, value.span());
        }
        number.map(|number| self.at(value, number))
    }

    pub(crate) fn float(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<f64>> {
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            // Beyond 32 bits it is out of every range anyhow.
            DeValue::Integer(number) => {
                Some(u32::from_str_radix(number.as_str(), number.radix()).map_or(f64::INFINITY, f64::from))
            }
            DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                None
            }
        };
        if number.is_none() {
            self.wrong_type(value, path, "a number");
        }
        number.map(|number| self.at(value, number))
    }

    pub(crate) fn flag(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<bool>> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(value, path, "`true` or `false`");
        }
        flag.map(|flag| self.at(value, flag))
    }

    pub(crate) fn duration(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<Nanos>> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(value, path, "a length of time in quotes, such as `\"60s\"`");
            return None;
        };
        match duration::parse(text) {
            Ok(span) => Some(self.at(value, span)),
            Err(finding) => {
                self.push(finding, path, value.span());
                None
            }
        }
    }

    /// A length of time, or `false` for none.
    pub(crate) fn duration_or_false(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<Option<Nanos>>> {
        match value.get_ref() {
            DeValue::Boolean(false) => Some(self.at(value, None)),
            DeValue::String(_) => self.duration(value, path).map(|at| At { value: Some(at.value), place: at.place }),
            DeValue::Boolean(true)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                self.wrong_type(value, path, "a length of time in quotes, such as `\"60s\"`, or `false`");
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, value: &Spanned<DeValue<'_>>, path: &str, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(value, path, &wording::list(names));
            return None;
        };
        let known = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if known.is_none() {
            self.push(wording::unknown_value(text, &names), path, value.span());
        }
        known
    }

    /// A list of names.
    pub(crate) fn names(&mut self, value: &Spanned<DeValue<'_>>, path: &str, allowed: &str) -> Option<Vec<At<String>>> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(value, path, allowed);
            return None;
        };
        Some(array.iter().filter_map(|value| self.text(value, path, "a name in quotes")).collect())
    }

    pub(in crate::rules) fn share(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<Share>> {
        let share = match value.get_ref() {
            DeValue::String(text) => {
                let share = text.split_once('/').and_then(|(part, of)| {
                    let (part, of) = (part.trim().parse().ok()?, of.trim().parse().ok()?);
                    Some(Share::new(part, of))
                });
                if share.is_none() {
                    self.push(wording::out_of_range(text, FRACTION), path, value.span());
                }
                share
            }
            DeValue::Integer(_) | DeValue::Float(_) => {
                let number = self.float(value, path)?.value;
                let share = share_of(number);
                if share.is_none() {
                    self.push(wording::out_of_range(&number.to_string(), FRACTION), path, value.span());
                }
                share
            }
            DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                self.wrong_type(value, path, FRACTION);
                None
            }
        };
        share.map(|share| self.at(value, share))
    }

    pub(crate) fn at<T>(&self, value: &Spanned<DeValue<'_>>, inner: T) -> At<T> {
        At { value: inner, place: Some(self.place(value.span())) }
    }
}

/// The fraction that a decimal number means, to nine digits.
fn share_of(number: f64) -> Option<Share> {
    const PARTS: u32 = 1_000_000_000;
    if !(0.0..=1.0).contains(&number) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 0 to 10^9")]
    let part = (number * f64::from(PARTS)).round() as u32;
    // A share that rounds to zero would turn into strict priority.
    (part > 0 || number == 0.0).then(|| Share::new(part, PARTS))
}
