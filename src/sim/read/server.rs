//! What the simulated server really allows.

use super::{Document, Field};
use crate::engine::{Charge, Nanos};
use crate::rules::{Reader, Rules, join, wording};
use crate::sim::cost::MOST_UNITS;
use crate::sim::setup::{ServerKind, ServerLimit};

const SERVER: &[&str] = &["limit", "counts", "kind", "each", "keys", "penalty", "retry_after"];
const KINDS: &[(&str, ServerKind)] = &[
    ("sliding", ServerKind::Sliding),
    ("fixed", ServerKind::Fixed),
    ("bucket", ServerKind::Bucket),
    ("paced", ServerKind::Paced),
];
const EACH: &[(&str, bool)] = &[("key", true), ("all", false)];

impl Document<'_, '_> {
    pub(super) fn server(&mut self, value: Option<Field<'_, '_>>, rules: &Rules) -> Vec<ServerLimit> {
        let Some(value) = value else { return Vec::new() };
        let mut limits = Vec::new();
        for (path, table) in self.tables(value, "server", "a list of tables, `[[server]]`") {
            let mut limit = ServerLimit {
                kind: ServerKind::Sliding,
                charge: Charge::Attempt,
                count: 1,
                period: Nanos::ZERO,
                each_key: false,
                keys: None,
                penalty: None,
                retry_after: None,
            };
            let mut limited = false;
            for (key, value) in Reader::fields(table) {
                let name = key.get_ref().as_ref();
                let path = &join(&path, name);
                match name {
                    "limit" => {
                        limited = true;
                        if let Some((count, period)) = self.rate(value, path) {
                            (limit.count, limit.period) = (count, period);
                        }
                    }
                    "counts" => limit.charge = self.counts(value, path, rules).unwrap_or(limit.charge),
                    "kind" => limit.kind = self.reader.word(value, path, KINDS).unwrap_or(limit.kind),
                    "each" => limit.each_key = self.reader.word(value, path, EACH).unwrap_or_default(),
                    "keys" => limit.keys = self.keys_of(value, path),
                    "penalty" => limit.penalty = self.reader.duration(value, path).map(|at| at.value),
                    "retry_after" => limit.retry_after = self.reader.duration(value, path).map(|at| at.value),
                    _ => self.reader.unknown(key, path, SERVER),
                }
            }
            if !limited {
                self.missing(&join(&path, "limit"), "a rate in quotes, such as `\"1/2s\"`");
            }
            limits.push(limit);
        }
        limits
    }

    /// What a limit counts of a call.
    fn counts(&mut self, value: Field<'_, '_>, path: &str, rules: &Rules) -> Option<Charge> {
        let what = self.reader.text(value, path, "`calls`, `requests` or a declared unit in quotes")?;
        if what.value == "calls" {
            return Some(Charge::Attempt);
        }
        let charge = rules.unit(&what.value).filter(|charge| match charge {
            Charge::Attempt | Charge::Requests => true,
            Charge::Unit(position) => *position < MOST_UNITS,
        });
        if charge.is_none() {
            let known: Vec<&str> = ["calls", "requests"].into_iter().chain(rules.units().take(MOST_UNITS)).collect();
            self.reader.findings.push(wording::unknown_value(&what.value, &known).at(path, what.place));
        }
        charge
    }

    fn keys_of(&mut self, value: Field<'_, '_>, path: &str) -> Option<(u32, u32)> {
        let allowed = "a list of the first and the last key, such as `[0, 9]`";
        if value.get_ref().as_array().is_none() {
            self.reader.wrong_type(value, path, allowed);
            return None;
        }
        let (first, last) =
            self.span_of(value, path, |document, value, path| Some(document.reader.number(value, path)?.value))?;
        if first > last {
            self.reader.push(wording::out_of_range(&format!("[{first}, {last}]"), allowed), path, value.span());
            return None;
        }
        Some((first, last))
    }
}
