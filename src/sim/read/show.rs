//! What a scenario shows of its runs.

use ::toml::de::DeValue;

use super::{Document, Field, named, number};
use crate::engine::Nanos;
use crate::rules::{At, Reader, Rules, join, wording};
use crate::sim::measure::{Bound, Value, WHOLE};
use crate::sim::metric::{Clock, Length, Metric, Of, On, Stat, Window, overshoot};
use crate::sim::setup::{Show, Traffic};

const SHOW: &[&str] = &[
    "metric", "what", "of", "on", "stat", "from", "rounds", "starts", "limit", "at", "optimum", "exact", "at_most",
    "at_least", "within",
];
const STATS: &[(&str, Stat)] = &[
    ("mean", Stat::Mean),
    ("p10", Stat::P(10)),
    ("p20", Stat::P(20)),
    ("p30", Stat::P(30)),
    ("p40", Stat::P(40)),
    ("p50", Stat::P(50)),
    ("p60", Stat::P(60)),
    ("p70", Stat::P(70)),
    ("p80", Stat::P(80)),
    ("p90", Stat::P(90)),
    ("p95", Stat::P(95)),
    ("p99", Stat::P(99)),
    ("max", Stat::Max),
    ("p99-of-keys", Stat::P99OfKeys),
];
const CLOCKS: &[(&str, Clock)] = &[("starts", Clock::Starts), ("server", Clock::Server)];

/// What a line may be about: traffic, and endpoints of the rules.
type Known<'k> = (&'k [Traffic], &'k Rules);

/// What a metric can be told besides.
#[derive(Clone, Debug)]
struct Details {
    of: Of,
    on: On,
    stat: Stat,
    from: Nanos,
    length: Length,
    limit: Option<String>,
    clock: Clock,
}

type Make = fn(Details) -> Metric;

/// The name of each metric, the fields that it takes besides, and whether it must be told of which traffic.
const METRICS: &[(&str, &[&str], bool, Make)] = &[
    ("started", &["of", "on"], false, |told| Metric::Started { of: told.of, on: told.on }),
    ("finished", &["of"], false, |told| Metric::Finished { of: told.of }),
    ("first-service", &["of"], false, |told| Metric::FirstService { of: told.of }),
    ("last-start", &["of", "on"], false, |told| Metric::LastStart { of: told.of, on: told.on }),
    ("at-once", &["of", "on"], false, |told| Metric::AtOnce { of: told.of, on: told.on }),
    ("share", &["of"], true, |told| Metric::Share { of: told.of }),
    ("wait", &["of", "stat"], false, |told| Metric::Wait { of: told.of, stat: told.stat }),
    ("induced-wait", &["of", "stat"], false, |told| Metric::InducedWait { of: told.of, stat: told.stat }),
    ("inversion-time", &["of"], true, |told| Metric::InversionTime { of: told.of }),
    ("gap", &["of"], false, |told| Metric::Gap { of: told.of }),
    ("round-overrun", &["of"], false, |told| Metric::RoundOverrun { of: told.of }),
    ("key-bypass", &["of"], true, |told| Metric::KeyBypass { of: told.of }),
    ("jain", WINDOW, false, |told| Metric::Jain(window(&told))),
    ("least-served", WINDOW, false, |told| Metric::LeastServed(window(&told))),
    ("most-served", WINDOW, false, |told| Metric::MostServed(window(&told))),
    ("pair-gap", &["of"], false, |told| Metric::PairGap { of: told.of }),
    ("lag", &[], false, |_| Metric::Lag),
    ("lead", &[], false, |_| Metric::Lead),
    ("max-min-distance", &[], false, |_| Metric::MaxMinDistance),
    ("overshoot", &["limit", "at"], false, |told| Metric::Overshoot { limit: told.limit, clock: told.clock }),
    ("utilisation", &[], false, |_| Metric::Utilisation),
    ("makespan", &[], false, |_| Metric::Makespan),
    ("fair-makespan", &[], false, |_| Metric::FairMakespan),
    ("bypass", &["of"], true, |told| Metric::Bypass { of: told.of }),
    ("inversions", &[], false, |_| Metric::Inversions),
    ("idle-while-ready", &[], false, |_| Metric::IdleWhileReady),
    ("order-inversions", &[], false, |_| Metric::OrderInversions),
    ("turned-away", &["of"], false, |told| Metric::TurnedAway { of: told.of }),
    ("refusals", &["on"], false, |told| Metric::Refusals { on: told.on }),
    ("refusals-per-success", &[], false, |_| Metric::RefusalsPerSuccess),
];
const LENGTHS: &[&str] = &["rounds", "starts"];
const WINDOW: &[&str] = &["of", "from", "rounds", "starts"];

fn window(told: &Details) -> Window {
    Window { of: told.of, from: told.from, length: told.length }
}

impl Document<'_, '_> {
    pub(super) fn shows(&mut self, value: Option<Field<'_, '_>>, path: &str, known: Known<'_>) -> Vec<Show> {
        let Some(value) = value else { return Vec::new() };
        let tables = self.tables(value, path, "a list of tables, `[[show]]`");
        tables.into_iter().filter_map(|(path, table)| self.show(table, &path, known)).collect()
    }

    fn show(&mut self, table: &::toml::de::DeTable<'_>, path: &str, (traffic, rules): Known<'_>) -> Option<Show> {
        let mut told = Details {
            of: None,
            on: None,
            stat: Stat::Mean,
            from: Nanos::ZERO,
            length: Length::Rounds(1),
            limit: None,
            clock: Clock::Starts,
        };
        let (mut name, mut what, mut said) = (None, None, Vec::new());
        let mut bounds = Vec::new();
        for (key, value) in Reader::fields(table) {
            let field = key.get_ref().as_ref();
            let path = join(path, field);
            match field {
                "metric" => name = self.reader.text(value, &path, "the name of a metric in quotes"),
                "what" => what = self.reader.text(value, &path, "words for the report in quotes"),
                "of" => told.of = self.of(value, &path, traffic),
                "on" => {
                    let name = self.reader.text(value, &path, "the name of an endpoint in quotes");
                    told.on = name.and_then(|name| self.endpoint(name, &path, rules));
                }
                "stat" => told.stat = self.reader.word(value, &path, STATS).unwrap_or(told.stat),
                "from" => told.from = self.reader.duration(value, &path).map_or(Nanos::ZERO, |at| at.value),
                "rounds" => told.length = self.positive(value, &path).map_or(told.length, Length::Rounds),
                "starts" => told.length = self.positive(value, &path).map_or(told.length, Length::Starts),
                "limit" => {
                    let allowed = "the place of a limit in the rules, such as `\"rules.group.per_key\"`";
                    let limit = self.reader.text(value, &path, allowed);
                    told.limit = limit.and_then(|limit| self.limit(limit, &path, rules));
                }
                "at" => told.clock = self.reader.word(value, &path, CLOCKS).unwrap_or(told.clock),
                "optimum" | "exact" | "at_most" | "at_least" | "within" => {
                    bounds.push((field, value, path));
                    continue;
                }
                _ => self.reader.unknown(key, &path, SHOW),
            }
            said.push((field, path));
        }
        let Some(At { value: name, place }) = name else {
            if table.get("metric").is_none() {
                self.missing(&join(path, "metric"), "the name of a metric in quotes");
            }
            return None;
        };
        let Some((_, takes, must, make)) = METRICS.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = METRICS.iter().map(|(known, ..)| *known).collect();
            self.reader.findings.push(wording::unknown_value(&name, &known).at(join(path, "metric"), place));
            return None;
        };
        for (field, path) in &said {
            if !["metric", "what"].contains(field) && !takes.contains(field) {
                let finding = wording::two_meanings(&format!("`metric = \"{name}\"`"), &format!("`{field}`"));
                self.reader.findings.push(finding.at(path, None));
            }
        }
        if let [(_, path), ..] =
            said.iter().filter(|(field, _)| LENGTHS.contains(field)).skip(1).collect::<Vec<_>>()[..]
        {
            self.reader.findings.push(wording::two_meanings("`rounds`", "`starts`").at(path, None));
        }
        if *must && table.get("of").is_none() {
            self.missing(&join(path, "of"), "the name of some traffic in quotes");
        }
        let of = told.of.map(|of| format!(" of {}", traffic[usize::from(of)].name));
        let on = told.on.and_then(|on| rules.endpoints().nth(on.0.into())).map(|name| format!(" on {name}"));
        let stat = STATS.iter().find(|(_, stat)| takes.contains(&"stat") && *stat == told.stat);
        let stat = stat.map_or_else(String::new, |(stat, _)| format!("{stat} "));
        let metric = make(told);
        let (optimum, bound) = self.bound(&metric, path, bounds);
        let whose = [of, on].map(Option::unwrap_or_default).concat();
        let what = what.map_or_else(|| format!("{stat}{name}{whose}"), |at| at.value);
        Some(Show { what, metric, optimum, bound })
    }

    fn of(&mut self, value: Field<'_, '_>, path: &str, traffic: &[Traffic]) -> Of {
        let name = self.reader.text(value, path, "the name of some traffic in quotes")?;
        let of = named(traffic, &name.value);
        if of.is_none() {
            let known: Vec<&str> = traffic.iter().map(|traffic| &*traffic.name).collect();
            self.reader.findings.push(wording::unknown_value(&name.value, &known).at(path, name.place));
        }
        of
    }

    /// The place of a limit that is counted.
    fn limit(&mut self, limit: At<String>, path: &str, rules: &Rules) -> Option<String> {
        let known = overshoot::known(rules);
        if known.contains(&limit.value) {
            return Some(limit.value);
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.reader.findings.push(wording::unknown_value(&limit.value, &known).at(path, limit.place));
        None
    }

    /// The optimum and the bound, from what is said of them and what is known of the metric.
    fn bound(
        &mut self,
        metric: &Metric,
        path: &str,
        said: Vec<(&str, Field<'_, '_>, String)>,
    ) -> (Option<Value>, Option<Bound>) {
        let mut optimum = metric.best();
        let (mut low, mut high, mut within, mut exact) = (None, None, None, false);
        let bounds: Vec<&str> = said.iter().map(|(field, ..)| *field).filter(|field| *field != "optimum").collect();
        let whole = bounds.iter().find(|field| ["exact", "within"].contains(*field)).filter(|_| bounds.len() > 1);
        if let Some(whole) = whole {
            let others = bounds.iter().filter(|field| *field != whole).map(|field| format!("`{field}`"));
            let finding = wording::two_meanings(&format!("`{whole}`"), &others.collect::<Vec<_>>().join(", "));
            self.reader.findings.push(finding.at(join(path, whole), None));
        }
        for (field, value, path) in said {
            match field {
                "optimum" => optimum = self.value(metric, value, &path).or(optimum),
                "at_most" => high = self.value(metric, value, &path),
                "at_least" => low = self.value(metric, value, &path),
                "within" => within = self.millionths(value, &path),
                _ => exact = self.reader.flag(value, &path).is_some_and(|at| at.value),
            }
        }
        if optimum.is_none() && (exact || within.is_some()) {
            self.missing(&join(path, "optimum"), "the number that `exact` and `within` refer to");
        }
        let zero = metric.zero();
        let bound = match (optimum, exact, within) {
            (Some(optimum), true, _) => Some(Bound { low: optimum, high: Some(optimum) }),
            (Some(optimum), false, Some(part)) => {
                let number = u128::from(optimum.number());
                let apart = number * u128::from(part) / u128::from(WHOLE);
                let at = |number: u128| optimum.with_number(u64::try_from(number).unwrap_or(u64::MAX));
                Some(Bound { low: at(number.saturating_sub(apart)), high: Some(at(number + apart)) })
            }
            _ if low.is_some() || high.is_some() => Some(Bound { low: low.unwrap_or(zero), high }),
            _ => None,
        };
        (optimum, bound)
    }

    /// A number in the metric's unit.
    fn value(&mut self, metric: &Metric, value: Field<'_, '_>, path: &str) -> Option<Value> {
        match metric.zero() {
            Value::Time(_) => self.reader.duration(value, path).map(|at| Value::Time(at.value)),
            Value::Count(_) => self.reader.number(value, path).map(|at| Value::Count(at.value.into())),
            unit @ (Value::Share(_) | Value::Ratio(_)) => {
                self.millionths(value, path).map(|number| unit.with_number(number))
            }
        }
    }

    /// `0.99`, `3`, `"1/30"`, `"3%"`.
    pub(super) fn millionths(&mut self, value: Field<'_, '_>, path: &str) -> Option<u64> {
        const ALLOWED: &str = "a number such as `0.99`, a fraction such as `\"1/30\"`, or per cent such as `\"3%\"`";
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                self.reader.wrong_type(value, path, ALLOWED);
                return None;
            }
        };
        let number = number::millionths(&text);
        if number.is_none() {
            self.reader.push(wording::out_of_range(&text, ALLOWED), path, value.span());
        }
        number
    }
}
