//! Quotas and concurrency caps in all their spellings.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::join;
use super::value::Reader;
use crate::rules::builder::{At, Caps};
use crate::rules::finding::Finding;
use crate::rules::quota::{self, CountFrom, Quota, QuotaKind};
use crate::rules::wording;

const LONG: &[&str] = &["count", "per", "kind", "burst", "unit", "zone", "margin", "count_from"];
const TABLE: &[&str] = &["limit", "concurrency", "shared"];
/// What makes a table one of these and no quota.
const OF_TABLE: &[&str] = &["limit", "concurrency"];
const KINDS: &[(&str, Kind)] = &[("window", Kind::Window), ("smooth", Kind::Smooth), ("bucket", Kind::Bucket)];

/// A word of `kind`.
#[derive(Clone, Copy)]
enum Kind {
    Window,
    Smooth,
    Bucket,
}

impl Reader<'_> {
    /// One of the four words that mean the same at every level.
    pub(super) fn cap(&mut self, name: &str, value: &Spanned<DeValue<'_>>, path: &str, caps: &mut Caps) {
        let Caps { per_key, overall, concurrency, key_concurrency, share_overall, share_per_key } = caps;
        match name {
            "overall" => {
                self.limit(value, path, (overall, share_overall), concurrency, ["overall.concurrency", "concurrency"]);
            }
            "per_key" => {
                self.limit(
                    value,
                    path,
                    (per_key, share_per_key),
                    key_concurrency,
                    ["per_key.concurrency", "key_concurrency"],
                );
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
        (quotas, shared): (&mut Vec<At<Quota>>, &mut Option<At<bool>>),
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
        if !OF_TABLE.iter().any(|name| table.contains_key(*name)) {
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
                "shared" => *shared = self.flag(value, path),
                _ if says_limit && LONG.contains(&name) => {
                    self.push(wording::two_meanings("`limit`", &wording::quote(name)), path, key.span());
                }
                _ => self.unknown(key, path, TABLE),
            }
        }
    }

    /// `shared` of a table of limits: all of them.
    pub(super) fn share_all(&mut self, value: &Spanned<DeValue<'_>>, path: &str, caps: &mut Caps) {
        let shared = self.flag(value, path);
        caps.share_overall = caps.share_overall.or(shared);
        caps.share_per_key = caps.share_per_key.or(shared);
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
        let (mut count, mut period, mut margin, mut count_from) = (None, None, None, None);
        let (mut kind, mut burst, mut unit, mut zone) = (None, None, None, None);
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "count" => count = self.number(value, path),
                "per" => period = self.duration(value, path),
                "margin" => margin = self.duration(value, path),
                "count_from" => count_from = self.word(value, path, CountFrom::WORDS),
                "kind" => kind = self.word(value, path, KINDS),
                "burst" => burst = self.number(value, path),
                "unit" => unit = self.text(value, path, "the name of a unit in quotes"),
                "zone" => zone = self.text(value, path, "the name of a time zone in quotes"),
                _ => self.unknown(key, path, LONG),
            }
        }
        let count_and_per = match (count, period) {
            (Some(count), Some(period)) => (count.value, period.value),
            // Only what was left out: what could not be read is found already.
            (None, _) if !table.contains_key("count") => return self.incomplete(before, value, path),
            (_, None) if !table.contains_key("per") => return self.incomplete(before, value, path),
            (None, _) | (_, None) => return None,
        };
        if ["kind", "burst", "zone", "unit"].iter().any(|name| table.contains_key(*name))
            && self.findings.len() > before
        {
            // What it would pass for is not what it says.
            return None;
        }
        let kind = match self::kind(kind, burst.map(|at| at.value), zone.map(|at| at.value)) {
            Ok(kind) => kind,
            Err(finding) => {
                self.push(finding, path, value.span());
                return None;
            }
        };
        let (count, period) = count_and_per;
        let quota = Quota::window(count, period).of_kind(kind).with(margin.map(|at| at.value), count_from);
        Some(unit.into_iter().fold(quota, |quota, unit| quota.unit(unit.value)))
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
}

/// What `kind`, `burst` and `zone` say together.
fn kind(kind: Option<Kind>, burst: Option<u32>, zone: Option<String>) -> Result<QuotaKind, Finding> {
    match (kind, burst, zone) {
        (None | Some(Kind::Window), None, None) => Ok(QuotaKind::Window),
        (Some(Kind::Smooth), None, None) => Ok(QuotaKind::Smooth),
        (None | Some(Kind::Bucket), Some(burst), None) => Ok(QuotaKind::Bucket { burst }),
        (None, None, Some(zone)) => Ok(QuotaKind::Calendar { zone: zone.into() }),
        (Some(Kind::Bucket), None, None) => {
            Err(wording::empty("a bucket without `burst`", "`burst`, the number that may go at once"))
        }
        (Some(Kind::Window), Some(_), None) => Err(wording::two_meanings("`kind = \"window\"`", "`burst`")),
        (Some(Kind::Smooth), Some(_), None) => Err(wording::two_meanings("`kind = \"smooth\"`", "`burst`")),
        (Some(_), _, Some(_)) => Err(wording::two_meanings("`kind`", "`zone`")),
        (None, Some(_), Some(_)) => Err(wording::two_meanings("`burst`", "`zone`")),
    }
}
