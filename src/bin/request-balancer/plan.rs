//! `plan RULES --rule RULE --keys N`: how long a broadcast takes, what another endpoint would add, and what more urgent
//! calls wait meanwhile.

use std::fmt::Write;
use std::path::Path;

use request_balancer::sim::{Measure, Policy, Scenario, Value};
use request_balancer::{EndpointRules, Nanos, Rules};
use serde_json::{Value as Json, json};

use crate::Outcome;
use crate::check::load;

/// What is planned.
pub(crate) struct Broadcast<'a> {
    pub(crate) rule: &'a str,
    /// How many keys get one call each.
    pub(crate) keys: u32,
    /// How long an attempt takes.
    pub(crate) takes: Nanos,
    /// Of how many endpoints the pool is to be. Default: of those that the file lists.
    pub(crate) endpoints: Option<u16>,
}

/// When the broadcast is out.
struct Alone {
    tenths: Vec<Measure>,
    takes: Value,
}

pub(crate) fn run(file: &Path, broadcast: &Broadcast<'_>, json: bool) -> Outcome {
    let Some(rules) = load(file, json) else { return Outcome::Found };
    let Broadcast { rule, keys, .. } = *broadcast;
    let Some(priority) = rules.rule(rule).map(|rule| rule.priority()) else {
        let names: Vec<&str> = rules.names().collect();
        eprintln!("no rule `{rule}` in {}: there are {}", file.display(), names.join(", "));
        return Outcome::Found;
    };
    let urgent: Vec<&str> =
        rules.iter().filter(|other| other.priority() < priority).map(|other| other.name()).collect();
    let planned = broadcast.planned(&rules, &urgent);
    let Planned { rules, alone, more, waits } = match planned {
        Ok(planned) => planned,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return Outcome::Found;
        }
    };
    if json {
        println!("{:#}", as_json(broadcast, &rules, &alone, more.as_ref(), &waits));
        return Outcome::Fine;
    }
    println!("{keys} calls of {rule}, one for each key, are out after {}{}", alone.takes, over_endpoints(&rules));
    for (tenth, measure) in (1..).zip(&alone.tenths) {
        println!("  {:>3} %  {:>14}", tenth * 10, shown(measure));
    }
    if let Some(more) = more {
        println!("with one endpoint more they are out after {}", more.takes);
    }
    for Waits { rule, stats } in &waits {
        let [mean, most, max] = [0, 1, 2].map(|stat| stats.get(stat).map_or_else(String::new, shown));
        println!("a call of {rule} waits {mean} meanwhile; 99 % up to {most}, at most {max}");
    }
    Outcome::Fine
}

struct Planned<'r> {
    rules: Rules,
    alone: Alone,
    /// With another endpoint.
    more: Option<Alone>,
    waits: Vec<Waits<'r>>,
}

/// What calls of another rule wait meanwhile: mean, 99th percentile, maximum.
struct Waits<'r> {
    rule: &'r str,
    stats: Vec<Measure>,
}

impl Broadcast<'_> {
    fn planned<'r>(&self, rules: &Rules, urgent: &[&'r str]) -> Result<Planned<'r>, String> {
        let rules = resized(rules, self.endpoints)?;
        let alone = self.alone(&rules)?.ok_or_else(|| format!("nothing of the rule `{}` ever starts", self.rule))?;
        let more = if rules.has_pool() { self.alone(&one_more(&rules)?)? } else { None };
        // Somebody calls now and then meanwhile, never two of them at a time.
        let calls = (alone.takes.number() / 7_000_000_000).clamp(1, 10_000);
        let waits = urgent.iter().map(|other| self.waits(&rules, other, calls)).collect::<Result<_, _>>()?;
        Ok(Planned { rules, alone, more, waits })
    }

    /// `None`: nothing of it ever starts.
    fn alone(&self, rules: &Rules) -> Result<Option<Alone>, String> {
        let tenths: String =
            (1..=9).map(|tenth| format!("[[show]]\nmetric = 'wait'\nstat = 'p{tenth}0'\nof = 'broadcast'\n")).collect();
        let last = "[[show]]\nmetric = 'last-start'\nof = 'broadcast'\n";
        let tenths = measured(rules, &format!("{}{tenths}{last}", self.traffic()))?;
        let takes = tenths.last().and_then(|measure| measure.measured);
        Ok(takes.map(|takes| Alone { tenths, takes }))
    }

    fn waits<'r>(&self, rules: &Rules, other: &'r str, calls: u64) -> Result<Waits<'r>, String> {
        let (mut text, name, takes) = (self.traffic(), text_of(other), self.takes.get());
        // It writes into a string.
        let _ = write!(
            text,
            "[[traffic]]\nname = 'urgent'\nrule = {name}\nkeys = 'own'\narrivals = 'poisson'\nrate = '1/7s'\n\
             calls = {calls}\ntakes = '{takes}ns'\n"
        );
        for stat in ["mean", "p99", "max"] {
            let _ = write!(text, "[[show]]\nmetric = 'wait'\nstat = '{stat}'\nof = 'urgent'\n");
        }
        Ok(Waits { rule: other, stats: measured(rules, &text)? })
    }

    fn traffic(&self) -> String {
        let Self { rule, keys, takes, .. } = self;
        let (rule, takes) = (text_of(rule), takes.get());
        format!("[[traffic]]\nname = 'broadcast'\nrule = {rule}\nkeys = {keys}\ncalls = {keys}\ntakes = '{takes}ns'\n")
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

fn measured(rules: &Rules, rest: &str) -> Result<Vec<Measure>, String> {
    let text = format!("title = 'plan'\nrules = {}\n{rest}", text_of(&rules.to_string()));
    let scenario = text.parse::<Scenario>().map_err(|findings| findings.to_string())?;
    Ok(scenario.run(Policy::Balancer))
}

fn as_json(broadcast: &Broadcast<'_>, rules: &Rules, alone: &Alone, more: Option<&Alone>, waits: &[Waits<'_>]) -> Json {
    let seconds = |measure: &Measure| measure.measured.map(Value::as_f64);
    let waits = waits.iter().map(|Waits { rule, stats }| {
        let [mean, p99, max] = [0, 1, 2].map(|stat| stats.get(stat).and_then(seconds));
        json!({ "rule": rule, "mean": mean, "p99": p99, "max": max })
    });
    json!({
        "rule": broadcast.rule,
        "keys": broadcast.keys,
        "endpoints": rules.endpoints().count(),
        "tenths": alone.tenths.iter().map(seconds).collect::<Json>(),
        "one_more_endpoint": more.map(|more| more.takes.as_f64()),
        "waits": waits.collect::<Json>(),
    })
}

fn over_endpoints(rules: &Rules) -> String {
    match rules.endpoints().count() {
        0 => String::new(),
        1 => " over 1 endpoint".to_owned(),
        count => format!(" over {count} endpoints"),
    }
}

fn shown(measure: &Measure) -> String {
    measure.measured.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Text as TOML writes it.
fn text_of(text: &str) -> String {
    use toml_writer::ToTomlValue as _;
    text.to_toml_value()
}
