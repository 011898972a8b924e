//! From the text of a rules file to rules in the making, with places.
//!
//! The tables are walked by hand, so that every finding knows its line and column and one wrong field hides no other.

mod dialects;
mod limits;
mod observe;
mod pool;
mod shared;
mod value;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

pub(super) use self::dialects::{BODIES, FORMS, MEANINGS, NONE, RESETS, SCOPES, part_name};
pub(crate) use self::value::Reader;
use super::builder::{At, Lane, NamedLimit, OwnQuotas, Rule, RulesBuilder};
use super::check::Read;
use super::finding::{Finding, FindingCode, Findings};
use super::model::{Pace, Share};
use super::quota::{CountFrom, Quota};
use super::retry::{HOLDS, ORDERS, PRESETS, Retry};
use super::wording;
use crate::engine::Overflow;

const TOP: &[&str] = &[
    "overall",
    "per_key",
    "concurrency",
    "key_concurrency",
    "margin",
    "count_from",
    "units",
    "fair_by",
    "ban_guard",
    "queue",
    "default_rule",
    "attempt_timeout",
    "rules",
    "limits",
    "lanes",
    "keys",
    "dialects",
    "retry",
    "pool",
    "shared",
];
const RULE: &[&str] = &[
    "per_key",
    "overall",
    "concurrency",
    "key_concurrency",
    "priority",
    "weight",
    "under",
    "ordered",
    "queue",
    "overflow",
    "max_wait",
    "attempt_timeout",
    "paused",
    "retry",
    "observe",
    "shared",
];
const LIMIT: &[&str] = &["per_key", "overall", "concurrency", "key_concurrency"];
const NAMED: &[&str] = &["per_key", "overall", "concurrency", "key_concurrency", "shared"];
const LANE: &[&str] = &["name", "share", "overall", "concurrency", "pace"];
const RETRY: &[&str] = &[
    "attempts",
    "backoff",
    "max_delay",
    "jitter",
    "min_wait",
    "bare_wait",
    "waits",
    "ceiling",
    "total_wait",
    "hold",
    "order",
    // Only where it is said for all rules: it comes last, so that rules can go without.
    "budget",
];
const OVERFLOWS: &[(&str, Overflow)] = &[("reject", Overflow::Reject), ("drop-oldest", Overflow::DropOldest)];

/// Reads a rules file. What is not TOML at all is an error; everything else is found and read on.
pub(super) fn read(text: &str) -> Result<(RulesBuilder, Read), Findings> {
    let mut reader = Reader::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(reader.syntax(errors));
    }
    let builder = reader.document(document.get_ref());
    Ok((builder, reader.into_read()))
}

/// Reads the long form of a quota that stands alone.
pub(super) fn read_quota(text: &str) -> Result<Quota, Findings> {
    let mut reader = Reader::new(text);
    let (value, errors) = DeValue::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(reader.syntax(errors));
    }
    match (reader.quota(&value, ""), reader.into_read().findings) {
        (Some(quota), findings) if findings.is_empty() => Ok(quota.value),
        (None, findings) if findings.is_empty() => {
            Err(Finding::new(FindingCode::InvalidQuota, wording::quote(text), "a quota").into())
        }
        (_, findings) => Err(Findings::new(findings)),
    }
}

impl Reader<'_> {
    fn document(&mut self, table: &DeTable<'_>) -> RulesBuilder {
        let mut builder = RulesBuilder::default();
        for (key, value) in Self::fields(table) {
            let path = key.get_ref().as_ref();
            match path {
                "margin" => builder.margin = self.duration(value, path),
                "count_from" => builder.count_from = self.word(value, path, CountFrom::WORDS),
                "units" => {
                    let allowed = "a list of names such as `[\"tokens\"]`";
                    builder.units = self.names(value, path, allowed).unwrap_or_default();
                }
                "ban_guard" => builder.ban_guard = self.quota(value, path),
                "queue" => builder.queue = self.number(value, path),
                "default_rule" => {
                    builder.default_rule = self.text(value, path, "the name of a rule in quotes");
                }
                "attempt_timeout" => builder.attempt_timeout = self.duration(value, path),
                "fair_by" => builder.fair_by = self.text(value, path, "the name of a unit in quotes"),
                "rules" => {
                    builder.rules = self.named(value, path, "at least one rule", |reader, value, path, _| {
                        Some(reader.rule(value, path))
                    });
                }
                "limits" => {
                    builder.limits = self.named(value, path, "at least one limit", |reader, value, path, _| {
                        Some(reader.named_limit(value, path))
                    });
                }
                "lanes" => builder.lanes = self.lanes(value, path),
                "keys" => {
                    builder.keys = self.named(value, path, "at least one key", |reader, value, path, _| {
                        Some(reader.own_quotas(value, path))
                    });
                }
                "pool" => builder.pool = self.pool(value, path),
                "shared" => builder.shared = self.shared(value, path),
                "dialects" => builder.dialects = self.dialects(value, path),
                "retry" => (builder.retry, builder.retry_budget) = self.retry_of_all(value, path),
                _ if LIMIT.contains(&path) => self.cap(path, value, path, &mut builder.caps),
                _ => self.unknown(key, path, TOP),
            }
        }
        builder
    }

    /// A table of things with names of the user's choice.
    pub(super) fn named<T>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        allowed: &str,
        mut read: impl FnMut(&mut Self, &Spanned<DeValue<'_>>, &str, &At<String>) -> Option<T>,
    ) -> Vec<(At<String>, T)> {
        let Some(table) = self.table(value, path, &format!("a table with {allowed}")) else { return Vec::new() };
        if table.is_empty() {
            self.push(wording::empty("an empty table", allowed), path, value.span());
        }
        Self::fields(table)
            .into_iter()
            .filter_map(|(key, value)| {
                let name = At { value: key.get_ref().to_string(), place: Some(self.place(key.span())) };
                let path = join(path, &name.value);
                read(self, value, &path, &name).map(|thing| (name, thing))
            })
            .collect()
    }

    fn rule(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Rule {
        let mut rule = Rule::default();
        let table = match value.get_ref() {
            DeValue::Table(table) => table,
            DeValue::String(_) | DeValue::Array(_) => {
                rule.caps.per_key = self.quotas(value, path);
                return rule;
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                self.wrong_type(value, path, "a quota for each key, a list of them, or a table");
                return rule;
            }
        };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "priority" => rule.priority = self.number(value, path).map(|at| at.value),
                "weight" => rule.weight = self.number(value, path),
                "under" => {
                    rule.under = self.names(value, path, "a list of names such as `[\"overall\", \"per_key\"]`");
                }
                "ordered" => rule.ordered = self.flag(value, path),
                "queue" => rule.queue = self.number(value, path),
                "overflow" => rule.overflow = self.word(value, path, OVERFLOWS).unwrap_or_default(),
                "max_wait" => rule.max_wait = self.duration(value, path),
                "attempt_timeout" => rule.attempt_timeout = self.duration_or_false(value, path),
                "paused" => rule.paused = self.flag(value, path).is_some_and(|at| at.value),
                "retry" => rule.retry = self.retry(value, path),
                "observe" => rule.observe = self.observe(value, path),
                "shared" => self.share_all(value, path, &mut rule.caps),
                _ if LIMIT.contains(&name) => self.cap(name, value, path, &mut rule.caps),
                _ => self.unknown(key, path, RULE),
            }
        }
        rule
    }

    fn named_limit(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> NamedLimit {
        let mut limit = NamedLimit::default();
        let Some(table) = self.table(value, path, "a table with `per_key`, `overall` or both") else {
            self.unsure = true;
            return limit;
        };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "shared" => self.share_all(value, path, &mut limit.caps),
                _ if LIMIT.contains(&name) => self.cap(name, value, path, &mut limit.caps),
                _ => self.unknown(key, path, NAMED),
            }
        }
        limit
    }

    /// What one key has of its own, by rule.
    fn own_quotas(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> OwnQuotas {
        self.named(value, path, "at least one rule, such as `read = \"40/1s\"`", |reader, value, path, _| {
            Some(reader.quotas(value, path))
        })
    }

    fn lanes(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Vec<(At<u32>, Lane)> {
        let lanes = self.named(value, path, "at least one lane", |reader, value, path, name| {
            let lane = reader.lane(value, path);
            // `02` and `2` would be two names of one lane.
            let priority = name.value.parse().ok().filter(|number: &u32| number.to_string() == name.value);
            if priority.is_none() {
                let finding = Finding::new(
                    FindingCode::InvalidLane,
                    wording::quote(&name.value),
                    "the priority of the lane's rules as a number, such as `[lanes.2]`",
                );
                reader.findings.push(finding.at(path, name.place));
            }
            priority.map(|priority| (priority, lane))
        });
        lanes.into_iter().map(|(name, (value, lane))| (At { value, place: name.place }, lane)).collect()
    }

    fn lane(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Lane {
        let mut lane = Lane::default();
        let Some(table) = self.table(value, path, "a table") else { return lane };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "name" => lane.name = self.text(value, path, "a name in quotes"),
                "share" => lane.share = self.share(value, path),
                "overall" | "concurrency" => self.cap(name, value, path, &mut lane.caps),
                "pace" => {
                    lane.pace = self
                        .duration_or_false(value, path)
                        .map(|at| At { value: at.value.map_or(Pace::Off, Pace::UpTo), place: at.place });
                }
                _ => self.unknown(key, path, LANE),
            }
        }
        lane
    }

    /// What a rule says of retries.
    fn retry(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Retry {
        self.retry_fields(value, path, RETRY.split_last().map_or(RETRY, |(_, of_rule)| of_rule)).0
    }

    /// What the file says of retries, for all rules.
    fn retry_of_all(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> (Retry, Option<At<Share>>) {
        self.retry_fields(value, path, RETRY)
    }

    fn retry_fields(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        allowed: &[&str],
    ) -> (Retry, Option<At<Share>>) {
        let (mut retry, mut budget) = (Retry::default(), None);
        if matches!(value.get_ref(), DeValue::String(_)) {
            return (self.word(value, path, PRESETS).map_or(retry, |preset| preset()), budget);
        }
        let Some(table) = self.table(value, path, "a preset or a table") else { return (retry, budget) };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "attempts" => retry.attempts = self.number(value, path),
                "backoff" => retry.backoff = self.duration(value, path),
                "max_delay" => retry.max_delay = self.duration(value, path),
                "jitter" => retry.jitter = self.float(value, path),
                "min_wait" => retry.min_wait = self.duration(value, path),
                "bare_wait" => retry.bare_wait = self.duration(value, path),
                "waits" => retry.waits = self.number(value, path).map(|at| at.value),
                "ceiling" => retry.ceiling = self.duration_or_false(value, path),
                "total_wait" => retry.total_wait = self.duration_or_false(value, path),
                "hold" => retry.hold = self.word(value, path, HOLDS),
                "order" => retry.order = self.word(value, path, ORDERS),
                "budget" if allowed.contains(&name) => budget = self.share(value, path),
                _ => self.unknown(key, path, allowed),
            }
        }
        (retry, budget)
    }
}

/// The path of a field, its name quoted if TOML would quote it.
pub(crate) fn join(path: &str, name: &str) -> String {
    use toml_writer::ToTomlKey as _;
    let name = name.to_toml_key();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
