//! `[pool]`.

use ::toml::Spanned;
use ::toml::de::DeValue;

use super::join;
use super::value::Reader;
use crate::rules::builder::At;
use crate::rules::pool::{BreakerRules, CHOICES, EndpointRules, FAILOVERS, PoolRules};
use crate::rules::wording;

const POOL: &[&str] = &[
    "endpoints",
    "overall",
    "per_key",
    "concurrency",
    "key_concurrency",
    "choose",
    "failover",
    "breaker",
    "sticky",
    "exhausted",
];
const ENDPOINT: &[&str] = &["weight", "overall", "per_key", "concurrency", "key_concurrency"];
const CAPS: &[&str] = &["overall", "per_key", "concurrency", "key_concurrency"];
const BREAKER: &[&str] = &["failures", "ratio", "minimum", "over", "reset", "jitter", "probes", "count_retries"];

impl Reader<'_> {
    pub(super) fn pool(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<PoolRules> {
        let table = self.table(value, path, "a table")?;
        let mut pool = PoolRules::default();
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "endpoints" => pool.endpoints = self.endpoints(value, path),
                "choose" => pool.choose = self.word(value, path, CHOICES).unwrap_or_default(),
                "failover" => pool.failover = self.word(value, path, FAILOVERS).unwrap_or_default(),
                "breaker" => pool.breaker = self.breaker(value, path),
                "sticky" => pool.sticky = self.flag(value, path),
                "exhausted" => pool.exhausted = self.duration(value, path),
                _ if CAPS.contains(&name) => self.cap(name, value, path, &mut pool.caps),
                _ => self.unknown(key, path, POOL),
            }
        }
        Some(pool)
    }

    /// A list of names, or a table of what each has of its own.
    fn endpoints(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Vec<(At<String>, EndpointRules)> {
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                let allowed = "at least one name, or no such field where endpoints come from code";
                self.push(wording::empty("an empty list", allowed), path, value.span());
                Vec::new()
            }
            DeValue::Array(_) => {
                let names = self.names(value, path, "a list of names").unwrap_or_default();
                names.into_iter().map(|name| (name, EndpointRules::default())).collect()
            }
            DeValue::Table(_) => self.named(value, path, "at least one endpoint", |reader, value, path, _| {
                Some(reader.endpoint(value, path))
            }),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {
                self.wrong_type(value, path, "a list of names such as `[\"bot-a\"]`, or a table of endpoints");
                Vec::new()
            }
        }
    }

    fn endpoint(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> EndpointRules {
        let mut endpoint = EndpointRules::default();
        let Some(table) = self.table(value, path, "a table") else { return endpoint };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "weight" => endpoint.weight = self.number(value, path),
                _ if CAPS.contains(&name) => self.cap(name, value, path, &mut endpoint.caps),
                _ => self.unknown(key, path, ENDPOINT),
            }
        }
        endpoint
    }

    fn breaker(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Option<BreakerRules>> {
        if let DeValue::Boolean(false) = value.get_ref() {
            return Some(None);
        }
        let table = self.table(value, path, "a table, or `false` for none")?;
        let mut breaker = BreakerRules::default();
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "failures" => breaker.failures = self.number(value, path),
                "ratio" => breaker.ratio = self.share(value, path),
                "minimum" => breaker.minimum = self.number(value, path),
                "over" => breaker.over = self.duration(value, path),
                "reset" => breaker.reset = self.duration(value, path),
                "jitter" => breaker.jitter = self.float(value, path),
                "probes" => breaker.probes = self.number(value, path),
                "count_retries" => breaker.count_retries = self.flag(value, path).is_some_and(|at| at.value),
                _ => self.unknown(key, path, BREAKER),
            }
        }
        Some(Some(breaker))
    }
}
