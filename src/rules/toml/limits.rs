//! Quotas and concurrency caps in all their spellings.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::join;
use super::value::Reader;
use crate::rules::builder::{At, Caps};
use crate::rules::quota::{self, CountFrom, Quota};
use crate::rules::wording;

const LONG: &[&str] = &["count", "per", "kind", "margin", "count_from"];
const TABLE: &[&str] = &["limit", "concurrency"];
const LATER: &[&str] = &["burst", "unit"];
const KINDS: &[&str] = &["window"];
const LATER_KINDS: &[&str] = &["smooth", "bucket"];

impl Reader<'_> {
    /// One of the four words that mean the same at every level.
    pub(super) fn cap(&mut self, name: &str, value: &Spanned<DeValue<'_>>, path: &str, caps: &mut Caps) {
        let Caps { per_key, overall, concurrency, key_concurrency } = caps;
        match name {
            "overall" => self.limit(value, path, overall, concurrency, ["overall.concurrency", "concurrency"]),
            "per_key" => {
                self.limit(value, path, per_key, key_concurrency, ["per_key.concurrency", "key_concurrency"]);
            }
            "concurrency" => self.concurrency(value, path, concurrency, ["concurrency", "overall.concurrency"]),
            _ => self.concurrency(value, path, key_concurrency, ["key_concurrency", "per_key.concurrency"]),
        }
    }

    /// `overall` or `per_key`: quotas, or a table of quotas and a concurrency cap.
    fn limit(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        quotas: &mut Vec<At<Quota>>,
        concurrency: &mut Option<At<u32>>,
        spellings: [&str; 2],
    ) {
        let Some(table) = value.get_ref().as_table() else {
            quotas.extend(self.quotas(value, path));
            return;
        };
        if table.is_empty() {
            self.push(wording::empty("an empty table", "`limit`, `concurrency` or both"), path, value.span());
            return;
        }
        if !TABLE.iter().any(|name| table.contains_key(*name)) {
            quotas.extend(self.quota(value, path));
            return;
        }
        let says_limit = table.contains_key("limit");
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "limit" => quotas.extend(self.quotas(value, path)),
                "concurrency" => self.concurrency(value, path, concurrency, spellings),
                _ if says_limit && LONG.contains(&name) => {
                    self.push(wording::two_meanings("`limit`", &wording::quote(name)), path, key.span());
                }
                _ => self.unknown(key, path, TABLE),
            }
        }
    }

    /// A concurrency cap in the first of two spellings; only one may be used.
    fn concurrency(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        concurrency: &mut Option<At<u32>>,
        [here, other]: [&str; 2],
    ) {
        if concurrency.is_some() {
            self.push(wording::two_meanings(&wording::quote(other), &wording::quote(here)), path, value.span());
        } else {
            *concurrency = self.number(value, path);
        }
    }

    /// A quota or a list of them.
    pub(super) fn quotas(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Vec<At<Quota>> {
        let Some(list) = value.get_ref().as_array() else { return self.quota(value, path).into_iter().collect() };
        if list.is_empty() {
            self.push(wording::empty("an empty list", "at least one quota, or no such field"), path, value.span());
        }
        let read =
            list.iter().enumerate().filter_map(|(number, value)| self.quota(value, &format!("{path}[{number}]")));
        read.collect()
    }

    /// One quota, short or long.
    pub(super) fn quota(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<At<Quota>> {
        let quota = match value.get_ref() {
            DeValue::String(text) => match quota::parse(text) {
                Ok(quota) => Some(quota),
                Err(finding) => {
                    self.push(finding, path, value.span());
                    None
                }
            },
            DeValue::Table(table) => self.long_quota(table, value, path),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                self.wrong_type(value, path, "a quota such as `\"20/60s\"`");
                None
            }
        };
        quota.map(|quota| self.at(value, quota))
    }

    fn long_quota(&mut self, table: &DeTable<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Quota> {
        let before = self.findings.len();
        let mut later = false;
        let (mut count, mut period, mut margin, mut count_from) = (None, None, None, None);
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "count" => count = self.number(value, path),
                "per" => period = self.duration(value, path),
                "margin" => margin = self.duration(value, path),
                "count_from" => count_from = self.word(value, path, CountFrom::WORDS),
                "kind" => later |= !self.kind(value, path),
                _ if LATER.contains(&name) => {
                    later = true;
                    self.push(quota::unsupported(name), path, key.span());
                }
                _ => self.unknown(key, path, LONG),
            }
        }
        if later {
            // Whatever else it says, it is not the window that it would pass for.
            return None;
        }
        match (count, period) {
            (Some(count), Some(period)) => {
                Some(Quota::window(count.value, period.value).with(margin.map(|at| at.value), count_from))
            }
            // Only what was left out: what could not be read is found already.
            (None, _) if !table.contains_key("count") => self.incomplete(before, value, path),
            (_, None) if !table.contains_key("per") => self.incomplete(before, value, path),
            (None, _) | (_, None) => None,
        }
    }

    /// A long form without `count` or `per`, unless a misspelt field already says why.
    fn incomplete(&mut self, before: usize, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Quota> {
        if self.findings.len() == before {
            let finding =
                wording::empty("a quota without `count` or `per`", "both, as in `{ count = 20, per = \"60s\" }`");
            self.push(finding, path, value.span());
        }
        None
    }

    /// Whether it is a window.
    fn kind(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> bool {
        match value.get_ref().as_str() {
            Some(kind) if KINDS.contains(&kind) => return true,
            Some(kind) if LATER_KINDS.contains(&kind) => self.push(quota::unsupported(kind), path, value.span()),
            Some(kind) => self.push(wording::unknown_value(kind, KINDS), path, value.span()),
            None => self.wrong_type(value, path, &wording::list(KINDS.iter().copied())),
        }
        false
    }
}
