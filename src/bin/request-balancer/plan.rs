//! `plan RULES --rule RULE --keys N`: how long a broadcast takes, what another endpoint would add, and what more urgent
//! calls wait meanwhile.

use std::fmt::Write;
use std::path::Path;

use request_balancer::sim::{Measure, Policy, Scenario, Value};
use request_balancer::{EndpointRules, Findings, Nanos, Rules};
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Outcome, Wrong};
use crate::check::load;
use crate::probe::{self, Waits};

/// What is planned.
pub(crate) struct Broadcast<'a> {
    pub(crate) rule: &'a str,
    /// How many keys get one call each.
    pub(crate) keys: u32,
    pub(crate) each: Each<'a>,
    /// Of how many endpoints the pool is to be. Default: of those that the file lists.
    pub(crate) endpoints: Option<u16>,
}

/// What each of its calls takes.
#[derive(Clone, Copy)]
pub(crate) struct Each<'a> {
    pub(crate) cost: u32,
    pub(crate) units: &'a [(String, u32)],
    pub(crate) takes: Nanos,
}

/// How far the broadcast gets.
pub(crate) struct Alone {
    /// How many of its calls start at all.
    started: u64,
    /// When each tenth is out; `None`: never.
    tenths: Vec<Option<Value>>,
    /// The last start. `None`: there is none.
    pub(crate) last: Option<Value>,
}

pub(crate) fn run(file: &Path, broadcast: &Broadcast<'_>, json: bool) -> Result<Answer, Wrong> {
    let rules = load(file)?;
    let name = file.display().to_string();
    let Broadcast { rule, keys, each, endpoints } = *broadcast;
    let Some(checked) = rules.rule(rule) else {
        return Err(Wrong::unknown("rule", rule, &name, rules.names()));
    };
    if let Some((unit, _)) = each.units.iter().find(|(unit, _)| !rules.units().any(|known| known == unit)) {
        return Err(Wrong::unknown("unit", unit, &name, rules.units()));
    }
    let in_file = |error: String| format!("{name}: {error}");
    let rules = resized(&rules, endpoints).map_err(in_file)?;
    let alone = broadcast.alone(&rules).map_err(in_file)?;
    let more = if rules.has_pool() {
        Some(one_more(&rules).and_then(|more| broadcast.alone(&more)).map_err(in_file)?)
    } else {
        None
    };
    let urgent = rules.iter().filter(|other| other.priority() < checked.priority());
    let waits = urgent.map(|other| probe::waits(&rules, broadcast, &alone, other));
    let waits: Vec<Waits<'_>> = waits.collect::<Result<_, _>>().map_err(in_file)?;
    let outcome = Outcome::found_if(alone.started < keys.into());
    if json {
        return Ok(Answer::json(&as_json(broadcast, &rules, &alone, more.as_ref(), &waits), outcome));
    }
    let mut lines =
        vec![format!("{keys} calls of {rule}, one for each key, {}{}", alone.in_words(keys), over_endpoints(&rules))];
    lines.extend((1..).zip(&alone.tenths).map(|(tenth, at)| {
        format!("  {:>3} %  {:>14}", tenth * 10, at.map_or_else(|| "never".to_owned(), |at| at.to_string()))
    }));
    lines.extend(broadcast.unsaid(&rules));
    lines.extend(more.map(|more| format!("with one endpoint more they {}", more.in_words(keys))));
    lines.extend(waits.iter().map(ToString::to_string));
    Ok(Answer { text: lines.join("\n") + "\n", outcome })
}

impl Alone {
    fn in_words(&self, keys: u32) -> String {
        match self.last {
            Some(last) if self.started == u64::from(keys) => format!("are out after {last}"),
            Some(last) => {
                let turned_away = u64::from(keys) - self.started;
                format!("are not all out: {} start up to {last}, {turned_away} never", self.started)
            }
            None => "are never out: none of them ever starts".to_owned(),
        }
    }
}

impl Broadcast<'_> {
    fn alone(&self, rules: &Rules) -> Result<Alone, String> {
        let mut text = self.traffic(rules) + "[[show]]\nmetric = 'started'\nof = 'broadcast'\n";
        for tenth in 1..=9 {
            // It writes into a string.
            let _ = write!(text, "[[show]]\nmetric = 'wait'\nstat = 'p{tenth}0'\nof = 'broadcast'\n");
        }
        text.push_str("[[show]]\nmetric = 'last-start'\nof = 'broadcast'\n");
        let scenario = scenario(rules, &text)?;
        let measures = scenario.run(Policy::Balancer);
        let value = |position: usize| measures.get(position).and_then(|measure| measure.measured);
        let started = value(0).map_or(0, Value::number);
        let last = value(10).filter(|_| started > 0);
        let tenths = if started == u64::from(self.keys) {
            (1..=10).map(value).collect()
        } else {
            // What is said of waits is not about those who never start.
            let record = scenario.record(Policy::Balancer);
            let rank = |tenth: u64| (u64::from(self.keys) * tenth).div_ceil(10) - 1;
            let started = |tenth| record.starts().get(usize::try_from(rank(tenth)).ok()?);
            (1..=10).map(|tenth| started(tenth).map(|one| Value::Time(one.start.at.into()))).collect()
        };
        Ok(Alone { started, tenths, last })
    }

    /// The broadcast as the traffic of a scenario.
    pub(crate) fn traffic(&self, rules: &Rules) -> String {
        let Self { rule, keys, each: Each { cost, units, takes }, .. } = self;
        let (rule, takes, first) = (text_of(rule), takes.get(), self.first_key(rules));
        let units: Vec<String> = units.iter().map(|(unit, cost)| format!("{} = {cost}", key_of(unit))).collect();
        format!(
            "[[traffic]]\nname = 'broadcast'\nrule = {rule}\nfirst_key = {first}\nkeys = {keys}\ncalls = {keys}\n\
             cost = {cost}\nunits = {{ {} }}\ntakes = '{takes}ns'\n",
            units.join(", ")
        )
    }

    /// Keys of which the rules know nothing: whoever is named there is not who is written to here.
    fn first_key(&self, rules: &Rules) -> u32 {
        let mut named: Vec<u32> = rules.keys().filter_map(|name| name.parse().ok()).collect();
        named.sort_unstable();
        named.into_iter().fold(0, |first, key| {
            let is_among = (first..first.saturating_add(self.keys)).contains(&key);
            if is_among { key.saturating_add(1) } else { first }
        })
    }

    /// The units of limits that bind the broadcast without a word of what it takes of them.
    fn unsaid(&self, rules: &Rules) -> Option<String> {
        let said = |unit: &str| self.each.units.iter().any(|(known, _)| known == unit);
        let unsaid: Vec<&str> = rules.units().filter(|unit| !said(unit)).collect();
        let first = unsaid.first()?;
        Some(format!("not counted: {}; say what a call costs, as in `--units {first}=900`", unsaid.join(", ")))
    }
}

/// The rules with so many endpoints in their pool.
fn resized(rules: &Rules, count: Option<u16>) -> Result<Rules, String> {
    let listed = rules.endpoints().count();
    match count {
        None if rules.has_pool() && listed == 0 => {
            Err("the pool lists no endpoints: say with `--endpoints` how many".into())
        }
        None => Ok(rules.clone()),
        Some(_) if !rules.has_pool() => Err("`--endpoints` where the file has no `[pool]`".into()),
        Some(count) => {
            let count = usize::from(count);
            let gone: Vec<&str> = rules.endpoints().skip(count).collect();
            let fewer = gone.into_iter().fold(rules.clone(), |rules, name| rules.without_endpoint(name));
            (listed..count).try_fold(fewer, |rules, _| one_more(&rules))
        }
    }
}

/// The rules with another endpoint, one that has nothing of its own.
fn one_more(rules: &Rules) -> Result<Rules, String> {
    let is_free = |name: &String| !rules.endpoints().any(|known| known == name);
    let name = (rules.endpoints().count() + 1..).map(|number| format!("endpoint {number}")).find(is_free);
    let added = rules.with_endpoint(&name.unwrap_or_default(), EndpointRules::new());
    added.map_err(|findings| findings.to_string())
}

pub(crate) fn measured(rules: &Rules, rest: &str) -> Result<Vec<Measure>, String> {
    Ok(scenario(rules, rest)?.run(Policy::Balancer))
}

fn scenario(rules: &Rules, rest: &str) -> Result<Scenario, String> {
    let text = format!("title = 'plan'\nrules = {}\n{rest}", text_of(&rules.to_string()));
    text.parse().map_err(|findings: Findings| findings.to_string())
}

fn as_json(broadcast: &Broadcast<'_>, rules: &Rules, alone: &Alone, more: Option<&Alone>, waits: &[Waits<'_>]) -> Json {
    let seconds = |value: Option<Value>| value.map(Value::as_f64);
    json!({
        "rule": broadcast.rule,
        "keys": broadcast.keys,
        "started": alone.started,
        "endpoints": rules.endpoints().count(),
        "tenths": alone.tenths.iter().map(|at| seconds(*at)).collect::<Json>(),
        "one_more_endpoint": more.and_then(|more| seconds(more.last)),
        "waits": waits.iter().map(Waits::as_json).collect::<Json>(),
    })
}

fn over_endpoints(rules: &Rules) -> String {
    match rules.endpoints().count() {
        0 => String::new(),
        1 => " over 1 endpoint".to_owned(),
        count => format!(" over {count} endpoints"),
    }
}

/// Text as TOML writes it.
pub(crate) fn text_of(text: &str) -> String {
    use toml_writer::ToTomlValue as _;
    text.to_toml_value()
}

/// The same where the name of a field stands.
fn key_of(text: &str) -> String {
    use toml_writer::ToTomlKey as _;
    text.to_toml_key()
}
