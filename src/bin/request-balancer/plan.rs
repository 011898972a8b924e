//! `plan RULES --rule RULE --keys N`: how long a broadcast takes, and what more urgent calls wait meanwhile.

use std::fmt::Write;
use std::path::Path;

use request_balancer::Rules;
use request_balancer::sim::{Measure, Policy, Scenario, Value};
use serde_json::json;

use crate::Outcome;
use crate::check::load;

pub(crate) fn run(file: &Path, rule: &str, keys: u32, json: bool) -> Outcome {
    let Some(rules) = load(file, json) else { return Outcome::Found };
    let Some(broadcast) = rules.rule(rule) else {
        let names: Vec<&str> = rules.names().collect();
        eprintln!("no rule `{rule}` in {}: there are {}", file.display(), names.join(", "));
        return Outcome::Found;
    };
    let tenths: String =
        (1..=9).map(|tenth| format!("[[show]]\nmetric = 'wait'\nstat = 'p{tenth}0'\nof = 'broadcast'\n")).collect();
    let last = "[[show]]\nmetric = 'last-start'\nof = 'broadcast'\n";
    let alone = scenario(&rules, &format!("{}{tenths}{last}", traffic(rule, keys)));
    let Some(alone) = alone else { return Outcome::Found };
    let Some(takes) = alone.last().and_then(|measure| measure.measured) else {
        eprintln!("nothing of the rule `{rule}` ever starts");
        return Outcome::Found;
    };
    // Somebody calls now and then meanwhile, never two of them at a time.
    let urgent = rules.iter().filter(|other| other.priority() < broadcast.priority());
    let calls = (takes.number() / 7_000_000_000).clamp(1, 10_000);
    let mut waits: Vec<Measure> = Vec::new();
    for other in urgent {
        let mut text = traffic(rule, keys);
        let name = text_of(other.name());
        // It writes into a string.
        let _ = write!(
            text,
            "[[traffic]]\nname = 'urgent'\nrule = {name}\nkeys = 'own'\narrivals = 'poisson'\nrate = '1/7s'\ncalls = {calls}\n"
        );
        for stat in ["mean", "p99", "max"] {
            let what = text_of(&format!("{} {stat}", other.name()));
            let _ = write!(text, "[[show]]\nmetric = 'wait'\nstat = '{stat}'\nof = 'urgent'\nwhat = {what}\n");
        }
        waits.extend(scenario(&rules, &text).unwrap_or_default());
    }
    if json {
        let seconds = |measure: &Measure| measure.measured.map(Value::as_f64);
        let waits = waits.chunks(3).map(|of_rule| {
            let name = of_rule[0].metric.trim_end_matches(" mean");
            json!({ "rule": name, "mean": seconds(&of_rule[0]), "p99": seconds(&of_rule[1]), "max": seconds(&of_rule[2]) })
        });
        let tenths: Vec<_> = alone.iter().map(seconds).collect();
        println!("{:#}", json!({ "rule": rule, "keys": keys, "tenths": tenths, "waits": waits.collect::<Vec<_>>() }));
        return Outcome::Fine;
    }
    let shown = |measure: &Measure| measure.measured.map_or_else(|| "-".to_owned(), |value| value.to_string());
    println!("{keys} calls of {rule}, one for each key, are out after {takes}");
    for (tenth, measure) in (1..).zip(&alone) {
        println!("  {:>3} %  {:>14}", tenth * 10, shown(measure));
    }
    for of_rule in waits.chunks(3) {
        let name = of_rule[0].metric.trim_end_matches(" mean");
        let [mean, most, max] = [0, 1, 2].map(|stat| of_rule.get(stat).map_or_else(String::new, shown));
        println!("a call of {name} waits {mean} meanwhile; 99 % up to {most}, at most {max}");
    }
    Outcome::Fine
}

fn traffic(rule: &str, keys: u32) -> String {
    let rule = text_of(rule);
    format!("[[traffic]]\nname = 'broadcast'\nrule = {rule}\nkeys = {keys}\ncalls = {keys}\n")
}

fn scenario(rules: &Rules, rest: &str) -> Option<Vec<Measure>> {
    let text = format!("title = 'plan'\nrules = {}\n{rest}", text_of(&rules.to_string()));
    match text.parse::<Scenario>() {
        Ok(scenario) => Some(scenario.run(Policy::Balancer)),
        Err(findings) => {
            eprintln!("{findings}");
            None
        }
    }
}

/// Text as TOML writes it.
fn text_of(text: &str) -> String {
    use toml_writer::ToTomlValue as _;
    text.to_toml_value()
}
