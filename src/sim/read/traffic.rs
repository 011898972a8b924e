//! Who calls, how often, and when.

use super::{Document, Field, named, names};
use crate::engine::{Nanos, RuleId};
use crate::rules::{Reader, Rules, join, wording};
use crate::sim::cost::MOST_UNITS;
use crate::sim::setup::{Arrivals, Cancel, Keys, MOST_CALLS, MOST_KEYS, Traffic, Who};

const TRAFFIC: &[&str] = &[
    "name",
    "rule",
    "keys",
    "first_key",
    "who",
    "arrivals",
    "calls",
    "rate",
    "burst",
    "every",
    "think",
    "file",
    "start",
    "cost",
    "units",
    "takes",
    "endpoints",
    "cancel",
];
const CANCEL: &[&str] = &["at", "share"];
const WHO: &[(&str, Who)] = &[("in-turn", Who::InTurn), ("random", Who::Random), ("zipf", Who::Zipf)];
const ARRIVALS: &[(&str, Kind)] = &[
    ("backlog", Kind::Backlog),
    ("even", Kind::Even),
    ("poisson", Kind::Poisson),
    ("bursts", Kind::Bursts),
    ("closed", Kind::Closed),
    ("trace", Kind::Trace),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Backlog,
    Even,
    Poisson,
    Bursts,
    Closed,
    Trace,
}

impl Kind {
    /// The fields that say how, of those that not all kinds have: those that must be there, and then the others.
    const fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Backlog => (&["calls"], &[]),
            Self::Even | Self::Poisson => (&["rate"], &["calls"]),
            Self::Bursts => (&["burst", "every"], &["calls"]),
            Self::Closed => (&["think"], &[]),
            Self::Trace => (&["file"], &[]),
        }
    }
}

/// What a table says of arrivals, before it is known what belongs together.
#[derive(Default)]
struct How<'a, 'i> {
    calls: Option<u64>,
    rate: Option<(u32, Nanos)>,
    burst: Option<u32>,
    every: Option<Nanos>,
    think: Option<Nanos>,
    file: Option<Field<'a, 'i>>,
}

impl Document<'_, '_> {
    pub(super) fn traffic(&mut self, value: Option<Field<'_, '_>>, rules: &Rules, until: Nanos) -> Vec<Traffic> {
        let Some(value) = value else {
            self.missing("traffic", "at least one `[[traffic]]`");
            return Vec::new();
        };
        let mut all: Vec<Traffic> = Vec::new();
        for (path, table) in self.tables(value, "traffic", "a list of tables, `[[traffic]]`") {
            let mut traffic = Traffic {
                name: "".into(),
                rule: RuleId(0),
                keys: Keys::Some { first: 0, count: 1, who: Who::InTurn },
                arrivals: Arrivals::Backlog { calls: 0 },
                start: Nanos::ZERO,
                cost: (1, 1),
                units: [(0, 0); MOST_UNITS],
                takes: (Nanos::ZERO, Nanos::ZERO),
                endpoints: Box::default(),
                cancel: None,
            };
            let (mut kind, mut how, mut said) = (Kind::Backlog, How::default(), Vec::new());
            let (mut name, mut rule) = (None, None);
            let (mut own, mut first, mut count, mut who) = (false, 0, 1, Who::InTurn);
            for (key, value) in Reader::fields(table) {
                let field = key.get_ref().as_ref();
                let path = &join(&path, field);
                said.push(field);
                match field {
                    "name" => name = self.reader.text(value, path, "a name in quotes"),
                    "rule" => rule = self.reader.text(value, path, "the name of a rule in quotes"),
                    "keys" if value.get_ref().as_str() == Some("own") => own = true,
                    "keys" if value.get_ref().as_integer().is_none() => {
                        self.reader.wrong_type(value, path, "how many keys, or `\"own\"`: one for each call");
                    }
                    "keys" => count = self.positive(value, path).unwrap_or(1),
                    "first_key" => first = self.reader.number(value, path).map_or(0, |at| at.value),
                    "who" => who = self.reader.word(value, path, WHO).unwrap_or(who),
                    "arrivals" => kind = self.reader.word(value, path, ARRIVALS).unwrap_or(kind),
                    "calls" => how.calls = self.positive(value, path).map(u64::from),
                    "rate" => how.rate = self.rate(value, path),
                    "burst" => how.burst = self.positive(value, path),
                    "every" => {
                        how.every = self.reader.duration(value, path).map(|at| at.value);
                        if how.every.is_some_and(Nanos::is_zero) {
                            let finding = wording::zero("`0s`", "a length of time between bursts");
                            self.reader.push(finding, path, value.span());
                            how.every = None;
                        }
                    }
                    "think" => how.think = self.reader.duration(value, path).map(|at| at.value),
                    "file" => how.file = Some(value),
                    "start" => traffic.start = self.reader.duration(value, path).map_or(Nanos::ZERO, |at| at.value),
                    "cost" => {
                        let cost = self.span_of(value, path, |document, value, path| document.positive(value, path));
                        traffic.cost = cost.unwrap_or((1, 1));
                    }
                    "units" => traffic.units = self.units(value, path, rules),
                    "takes" => {
                        let takes = self.span_of(value, path, |document, value, path| {
                            Some(document.reader.duration(value, path)?.value)
                        });
                        traffic.takes = takes.unwrap_or_default();
                    }
                    "endpoints" => traffic.endpoints = self.endpoints(value, path, rules),
                    "cancel" => traffic.cancel = self.cancel(value, path),
                    _ => self.reader.unknown(key, path, TRAFFIC),
                }
            }
            traffic.keys = if own { Keys::Own } else { Keys::Some { first, count, who } };
            if let Some(rule) = &rule {
                match rules.names().position(|known| known == rule.value) {
                    Some(position) => traffic.rule = RuleId(position as u16),
                    None => {
                        let finding = wording::unknown_rule(&rule.value, names(rules));
                        self.reader.findings.push(finding.at(join(&path, "rule"), rule.place));
                    }
                }
            } else if rules.names().len() > 1 {
                self.missing(&join(&path, "rule"), "the name of a rule in quotes");
            }
            let place = name.as_ref().and_then(|name| name.place);
            traffic.name = match (name, rule) {
                (Some(name), _) | (None, Some(name)) => name.value.into(),
                (None, None) => names(rules)[0].into(),
            };
            if named(&all, &traffic.name).is_some() {
                let finding = wording::duplicate_name(&traffic.name, "name of traffic");
                self.reader.findings.push(finding.at(join(&path, "name"), place));
            }
            self.fit(&path, kind, &said);
            if let Some(arrivals) = self.arrivals(&path, kind, how, until, traffic.start) {
                traffic.arrivals = arrivals;
            }
            all.push(traffic);
        }
        self.size(&all);
        all
    }

    /// Whether all of it has room in memory.
    fn size(&mut self, traffic: &[Traffic]) {
        let calls = traffic.iter().map(|traffic| traffic.arrivals.calls()).fold(0, u64::saturating_add);
        let own = traffic.iter().filter(|traffic| traffic.keys == Keys::Own);
        let own = own.map(|traffic| traffic.arrivals.calls()).fold(0, u64::saturating_add);
        let keys = traffic.iter().map(Traffic::keys_end).max().map_or(0, u64::from).saturating_add(own);
        let mut refuse = |found: String, most: u64, what: &str| {
            let finding = wording::out_of_range(&found, &format!("up to {most} {what} in all"));
            self.reader.findings.push(finding.at("traffic", None));
        };
        if calls > MOST_CALLS {
            refuse(format!("{calls} calls"), MOST_CALLS, "calls");
        }
        if keys > MOST_KEYS {
            refuse(format!("{keys} keys"), MOST_KEYS, "keys, counted from key 0 to the last one");
        }
    }

    /// Whether what the table says of arrivals belongs to its kind.
    fn fit(&mut self, path: &str, kind: Kind, said: &[&str]) {
        let (must, may) = kind.fields();
        let word = ARRIVALS.iter().find(|(_, known)| *known == kind).map_or("", |(word, _)| word);
        for field in must.iter().filter(|field| !said.contains(field)) {
            self.missing(&join(path, field), &format!("what `arrivals = \"{word}\"` needs"));
        }
        let special = ["calls", "rate", "burst", "every", "think", "file"];
        for field in special.iter().filter(|field| said.contains(field)) {
            if !must.contains(field) && !may.contains(field) {
                let finding = wording::two_meanings(&format!("`arrivals = \"{word}\"`"), &format!("`{field}`"));
                self.reader.findings.push(finding.at(join(path, field), None));
            }
        }
    }

    fn arrivals(&mut self, path: &str, kind: Kind, how: How<'_, '_>, until: Nanos, start: Nanos) -> Option<Arrivals> {
        let How { calls, rate, burst, every, think, file } = how;
        // As many as come until the end.
        let lasts = Nanos::new(until.get().saturating_sub(start.get()));
        let mut until_end = |count: u32, period: Nanos| {
            if calls.is_some() {
                return calls;
            }
            if until == Nanos::MAX {
                self.missing(&join(path, "calls"), "how many calls, or `until` at the top");
                return None;
            }
            let count = u128::from(count) * u128::from(lasts.get()) / u128::from(period.get().max(1));
            if count > u128::from(MOST_CALLS) {
                let (found, allowed) = (format!("{count} calls"), format!("up to {MOST_CALLS} calls until the end"));
                self.reader.findings.push(wording::out_of_range(&found, &allowed).at(path, None));
                return None;
            }
            u64::try_from(count).ok()
        };
        match kind {
            Kind::Backlog => Some(Arrivals::Backlog { calls: calls? }),
            Kind::Even => {
                let (count, period) = rate?;
                let calls = until_end(count, period)?;
                Some(Arrivals::Even { calls, every: period.div_ceil(count.into()) })
            }
            Kind::Poisson => {
                let (count, period) = rate?;
                let span = calls.map(|calls| u128::from(calls) * u128::from(period.get()) / u128::from(count));
                let Ok(span) = u64::try_from(span.unwrap_or_else(|| lasts.get().into())) else {
                    let finding =
                        wording::out_of_range("calls that come over more than 584 years", "fewer or more often");
                    self.reader.findings.push(finding.at(path, None));
                    return None;
                };
                Some(Arrivals::Poisson { calls: until_end(count, period)?, span: Nanos::new(span) })
            }
            Kind::Bursts => {
                let (size, every) = (burst?, every?);
                Some(Arrivals::Bursts { calls: until_end(size, every)?, size: size.into(), every })
            }
            Kind::Closed => {
                if until == Nanos::MAX {
                    self.missing("until", "the end of the run: a closed loop has none");
                }
                Some(Arrivals::Closed { think: think? })
            }
            Kind::Trace => Some(Arrivals::Trace(self.trace(file?, &join(path, "file"))?)),
        }
    }

    /// What a call costs in each declared unit.
    fn units(&mut self, value: Field<'_, '_>, path: &str, rules: &Rules) -> [(u32, u32); MOST_UNITS] {
        let mut units = [(0, 0); MOST_UNITS];
        let table = self.reader.table(value, path, "a table of declared units, such as `{ tokens = [100, 900] }`");
        for (key, value) in table.into_iter().flat_map(Reader::fields) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            let position = rules.units().position(|unit| unit == name);
            let Some(cost) = position.and_then(|position| units.get_mut(position)) else {
                let known: Vec<&str> = rules.units().take(MOST_UNITS).collect();
                self.reader.push(wording::unknown_value(name, &known), path, key.span());
                continue;
            };
            let whole = |document: &mut Self, value: Field<'_, '_>, path: &str| {
                Some(document.reader.number(value, path)?.value)
            };
            *cost = self.span_of(value, path, whole).unwrap_or_default();
        }
        units
    }

    fn cancel(&mut self, value: Field<'_, '_>, path: &str) -> Option<Cancel> {
        let table = self.reader.table(value, path, "a table with `at` and `share`")?;
        let (mut at, mut share) = (None, None);
        for (key, value) in Reader::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "at" => at = self.reader.duration(value, path).map(|at| at.value),
                "share" => share = self.millionths(value, path),
                _ => self.reader.unknown(key, path, CANCEL),
            }
        }
        if table.get("at").is_none() || table.get("share").is_none() {
            self.missing(path, "both `at` and `share`");
        }
        Some(Cancel { at: at?, share: share? })
    }
}
