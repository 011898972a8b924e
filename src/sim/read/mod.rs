//! From the text of a scenario to what is run, or to everything that is wrong with it.

mod number;
mod rules;
mod server;
mod show;
mod trace;
mod traffic;

use std::path::Path;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use toml_writer::ToTomlValue as _;

use self::rules::{Added, Source};
use super::policy::Policy;
use super::scenario::Scenario;
use super::setup::{Network, Setup, Traffic};
use crate::engine::Nanos;
use crate::rules::{At, Finding, FindingCode, Findings, Quota, QuotaKind, Reader, Rules, Severity, join, wording};

const TOP: &[&str] =
    &["title", "rules", "rules_file", "seeds", "until", "policies", "network", "server", "traffic", "show", "variants"];
const NETWORK: &[&str] = &["delay", "jitter"];
const VARIANT: &[&str] = &["title", "margin", "count_from", "delay", "jitter", "show"];

type Field<'a, 'i> = &'a Spanned<DeValue<'i>>;

/// Reads a scenario. Files that it names are beside it, in `folder`.
pub(super) fn scenario(text: &str, folder: &Path) -> Result<Scenario, Findings> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::new(text);
    if !errors.is_empty() {
        return Err(reader.syntax(errors));
    }
    let scenario = Document { reader: &mut reader, text, folder }.read(document.get_ref());
    let findings = std::mem::take(&mut reader.findings);
    match scenario {
        Some(scenario) if findings.iter().all(|finding| finding.severity() == Severity::Warning) => Ok(scenario),
        _ => Err(Findings::new(findings)),
    }
}

/// A scenario's text while it is read.
struct Document<'r, 't> {
    reader: &'r mut Reader<'t>,
    text: &'t str,
    folder: &'r Path,
}

impl Document<'_, '_> {
    fn read(&mut self, table: &DeTable<'_>) -> Option<Scenario> {
        let mut title = None;
        let mut source = Vec::new();
        let mut seeds = Vec::new();
        let mut until = None;
        let mut policies = Vec::new();
        let mut network = Network::default();
        let (mut server, mut traffic, mut shows, mut variants) = (None, None, None, None);
        for (key, value) in Reader::fields(table) {
            let path = key.get_ref().as_ref();
            match path {
                "title" => title = self.reader.text(value, path, "a title in quotes"),
                "rules" => source.extend(self.inline_rules(value, path)),
                "rules_file" => source.extend(self.rules_file(value, path)),
                "seeds" => seeds = self.seeds(value, path),
                "until" => until = self.reader.duration(value, path).map(|at| at.value),
                "policies" => policies = self.policies(value, path),
                "network" => network = self.network(value, path),
                "server" => server = Some(value),
                "traffic" => traffic = Some(value),
                "show" => shows = Some(value),
                "variants" => variants = Some(value),
                _ => self.reader.unknown(key, path, TOP),
            }
        }
        if title.is_none() {
            self.missing("title", "a title in quotes");
        }
        let source = match source.as_slice() {
            [source] => source.clone(),
            [] => {
                if table.get("rules").is_none() && table.get("rules_file").is_none() {
                    self.missing("rules", "`rules`, a rules file as text, or `rules_file`, its name");
                }
                return None;
            }
            [_, ..] => {
                let finding = wording::two_meanings("`rules`", "`rules_file`");
                self.reader.findings.push(finding.at("rules_file", None));
                return None;
            }
        };
        let rules = self.rules(&source, &[]);
        let known = rules.as_ref()?;
        if known.has_pool() && known.endpoints().next().is_none() {
            self.missing("pool.endpoints", "at least one endpoint in the rules: nothing could be sent");
        }
        let until = until.unwrap_or(Nanos::MAX);
        let traffic = self.traffic(traffic, known, until);
        let server = self.server(server, known);
        let shown = shows.is_some() || variants.is_some();
        let shows = self.shows(shows, "show", (&traffic, known));
        let base = Setup {
            title: title.map_or_else(String::new, |at| at.value),
            rules: known.clone(),
            seeds: if seeds.is_empty() { vec![1] } else { seeds },
            until,
            traffic,
            network,
            server,
            shows,
        };
        let setups = match variants {
            None => vec![base.clone()],
            Some(variants) => self.variants(variants, &source, &base),
        };
        if setups.is_empty() {
            self.missing("variants", "at least one `[[variants]]`, or none of this name");
        }
        if !shown {
            self.missing("show", "at least one `[[show]]` with a `metric`");
        }
        if policies.is_empty() {
            policies = Policy::ALL.to_vec();
        }
        Some(Scenario::new(base.title, setups, policies))
    }

    fn missing(&mut self, path: &str, allowed: &str) {
        let finding = wording::empty(&format!("no {}", wording::quote(path)), allowed);
        self.reader.findings.push(finding.at(path, None));
    }

    fn seeds(&mut self, value: Field<'_, '_>, path: &str) -> Vec<u64> {
        let Some(array) = value.get_ref().as_array() else {
            self.reader.wrong_type(value, path, "a list of whole numbers, one for each run");
            return Vec::new();
        };
        array.iter().filter_map(|value| Some(self.reader.number(value, path)?.value.into())).collect()
    }

    fn policies(&mut self, value: Field<'_, '_>, path: &str) -> Vec<Policy> {
        let names = self.reader.names(value, path, "a list of policies such as `[\"request-balancer\", \"fifo\"]`");
        let mut policies = Vec::new();
        for At { value: name, place } in names.unwrap_or_default() {
            match name.parse() {
                Ok(policy) => policies.push(policy),
                Err(_) => {
                    let finding = wording::unknown_value(&name, &Policy::ALL.map(Policy::as_str));
                    self.reader.findings.push(finding.at(path, place));
                }
            }
        }
        policies
    }

    fn network(&mut self, value: Field<'_, '_>, path: &str) -> Network {
        let mut network = Network::default();
        let Some(table) = self.reader.table(value, path, "a table with `delay`, `jitter` or both") else {
            return network;
        };
        for (key, value) in Reader::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "delay" | "jitter" => self.network_field(&mut network, name, value, path),
                _ => self.reader.unknown(key, path, NETWORK),
            }
        }
        network
    }

    fn network_field(&mut self, network: &mut Network, name: &str, value: Field<'_, '_>, path: &str) {
        if let Some(At { value: span, .. }) = self.reader.duration(value, path) {
            *(if name == "delay" { &mut network.delay } else { &mut network.jitter }) = span;
        }
    }

    fn variants(&mut self, value: Field<'_, '_>, source: &Source, base: &Setup) -> Vec<Setup> {
        let mut setups = Vec::new();
        for (path, table) in self.tables(value, "variants", "a list of tables, `[[variants]]`") {
            let mut setup = base.clone();
            let mut head = Vec::new();
            let mut titled = false;
            for (key, value) in Reader::fields(table) {
                let name = key.get_ref().as_ref();
                let path = &join(&path, name);
                match name {
                    "title" => {
                        if let Some(title) = self.reader.text(value, path, "a title in quotes") {
                            setup.title = format!("{}, {}", base.title, title.value);
                            titled = true;
                        }
                    }
                    "margin" | "count_from" => {
                        if let Some(said) = self.reader.text(value, path, "what the rules file would say, in quotes") {
                            let line = format!("{name} = {}\n", said.value.to_toml_value());
                            head.push(Added { line, path: path.clone(), place: said.place });
                        }
                    }
                    "delay" | "jitter" => self.network_field(&mut setup.network, name, value, path),
                    "show" => setup.shows.extend(self.shows(Some(value), path, (&base.traffic, &base.rules))),
                    _ => self.reader.unknown(key, path, VARIANT),
                }
            }
            if !titled {
                self.missing(&join(&path, "title"), "a title in quotes");
            }
            if !head.is_empty()
                && let Some(rules) = self.rules(source, &head)
            {
                setup.rules = rules;
            }
            setups.push(setup);
        }
        setups
    }

    /// A list of tables, each with its path.
    fn tables<'a, 'i>(&mut self, value: Field<'a, 'i>, path: &str, allowed: &str) -> Vec<(String, &'a DeTable<'i>)> {
        let Some(array) = value.get_ref().as_array() else {
            self.reader.wrong_type(value, path, allowed);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (number, value) in array.iter().enumerate() {
            let path = format!("{path}[{number}]");
            tables.extend(self.reader.table(value, &path, "a table").map(|table| (path, table)));
        }
        tables
    }

    /// A whole number of at least one.
    fn positive(&mut self, value: Field<'_, '_>, path: &str) -> Option<u32> {
        let number = self.reader.number(value, path)?.value;
        if number == 0 {
            self.reader.push(wording::zero("`0`", "a whole number from 1 on"), path, value.span());
            return None;
        }
        Some(number)
    }

    /// `5/1s`: how many in how long.
    fn rate(&mut self, value: Field<'_, '_>, path: &str) -> Option<(u32, Nanos)> {
        let text = self.reader.text(value, path, "a rate in quotes, such as `\"5/1s\"`")?;
        match text.value.parse::<Quota>() {
            Ok(quota) if quota.own_unit().is_some() || !matches!(quota.kind(), QuotaKind::Window) => {
                let finding =
                    wording::out_of_range(&wording::quote(&text.value), "how many in how long and no more: `5/1s`");
                self.reader.push(finding, path, value.span());
                None
            }
            Ok(quota) if quota.count() > 0 && !quota.period().is_zero() => Some((quota.count(), quota.period().into())),
            Ok(_) => {
                self.reader.push(wording::zero(wording::quote(&text.value), "a rate above zero"), path, value.span());
                None
            }
            Err(findings) => {
                let place = text.place;
                self.reader.findings.extend(findings.into_list().into_iter().map(|found| found.at(path, place)));
                None
            }
        }
    }

    /// One value, or the lowest and the highest of those that are drawn.
    fn span_of<T: Copy + Ord>(
        &mut self,
        value: Field<'_, '_>,
        path: &str,
        mut read: impl FnMut(&mut Self, Field<'_, '_>, &str) -> Option<T>,
    ) -> Option<(T, T)> {
        match value.get_ref().as_array() {
            None => read(self, value, path).map(|one| (one, one)),
            Some(array) if array.len() == 2 => {
                let (low, high) = (read(self, &array[0], path), read(self, &array[1], path));
                let (low, high) = (low?, high?);
                if low > high {
                    let found = self.text.get(value.span()).unwrap_or_default();
                    self.reader.push(
                        wording::out_of_range(found, "the lowest and then the highest"),
                        path,
                        value.span(),
                    );
                    return None;
                }
                Some((low, high))
            }
            Some(_) => {
                self.reader.wrong_type(value, path, "one value, or a list of the lowest and the highest");
                None
            }
        }
    }

    fn unreadable(&mut self, found: String, allowed: &str, path: &str, value: Field<'_, '_>) {
        self.reader.push(Finding::new(FindingCode::UnreadableFile, found, allowed), path, value.span());
    }
}

/// The traffic of a name.
fn named(traffic: &[Traffic], name: &str) -> Option<u16> {
    traffic.iter().position(|traffic| &*traffic.name == name).map(|index| index as u16)
}

/// The rules' names.
fn names(rules: &Rules) -> Vec<&str> {
    rules.names().collect()
}
