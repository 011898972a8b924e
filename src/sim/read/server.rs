//! What the simulated server really allows.

use super::{Document, Field};
use crate::engine::{Charge, EndpointId, Nanos};
use crate::rules::{At, Reader, Rules, join, wording};
use crate::sim::cost::MOST_UNITS;
use crate::sim::setup::{Each, ServerKind, ServerLimit};

const SERVER: &[&str] = &["limit", "at_once", "counts", "kind", "each", "keys", "endpoints", "penalty", "retry_after"];
const KINDS: &[(&str, ServerKind)] = &[
    ("sliding", ServerKind::Sliding),
    ("fixed", ServerKind::Fixed),
    ("bucket", ServerKind::Bucket),
    ("paced", ServerKind::Paced),
];
const EACH: &[(&str, Each)] =
    &[("key", Each::Key), ("all", Each::All), ("endpoint", Each::Endpoint), ("key-on-endpoint", Each::KeyOnEndpoint)];

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
                each: Each::All,
                keys: None,
                endpoints: None,
                penalty: None,
                retry_after: None,
            };
            let (mut limited, mut at_once, mut kind) = (false, None, None);
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
                    "at_once" => at_once = Some(self.positive(value, path).unwrap_or(1)),
                    "kind" => kind = self.reader.word(value, path, KINDS),
                    "each" => limit.each = self.reader.word(value, path, EACH).unwrap_or(limit.each),
                    "keys" => limit.keys = self.keys_of(value, path),
                    "endpoints" => {
                        let endpoints = self.endpoints(value, path, rules);
                        limit.endpoints = Some(endpoints.iter().map(|endpoint| endpoint.0).collect());
                    }
                    "penalty" => limit.penalty = self.reader.duration(value, path).map(|at| at.value),
                    "retry_after" => limit.retry_after = self.reader.duration(value, path).map(|at| at.value),
                    _ => self.reader.unknown(key, path, SERVER),
                }
            }
            match at_once {
                None if !limited => {
                    let allowed = "a rate in quotes, such as `\"1/2s\"`, or `at_once`, how many calls it works on";
                    self.missing(&join(&path, "limit"), allowed);
                }
                None => limit.kind = kind.unwrap_or(limit.kind),
                Some(most) => {
                    for (field, is_there) in [("limit", limited), ("kind", kind.is_some())] {
                        if is_there {
                            let finding = wording::two_meanings("`at_once`", &wording::quote(field));
                            self.reader.findings.push(finding.at(join(&path, field), None));
                        }
                    }
                    (limit.kind, limit.count) = (ServerKind::AtOnce, most);
                }
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

    /// Endpoints of the pool by their names.
    pub(super) fn endpoints(&mut self, value: Field<'_, '_>, path: &str, rules: &Rules) -> Box<[EndpointId]> {
        let names = self.reader.names(value, path, "a list of endpoints such as `[\"bot-a\"]`").unwrap_or_default();
        names.into_iter().filter_map(|name| self.endpoint(name, path, rules)).collect()
    }

    pub(super) fn endpoint(&mut self, name: At<String>, path: &str, rules: &Rules) -> Option<EndpointId> {
        let known: Vec<&str> = rules.endpoints().collect();
        let position = known.iter().position(|known| *known == name.value);
        if position.is_none() {
            self.reader.findings.push(wording::unknown_value(&name.value, &known).at(path, name.place));
        }
        position.map(|position| EndpointId(position as u16))
    }

    fn keys_of(&mut self, value: Field<'_, '_>, path: &str) -> Option<(u32, u32)> {
        let allowed = "a list of the first and the last key, such as `[0, 9]`";
        if value.get_ref().as_array().is_none() {
            self.reader.wrong_type(value, path, allowed);
            return None;
        }
        self.span_of(value, path, |document, value, path| Some(document.reader.number(value, path)?.value))
    }
}
