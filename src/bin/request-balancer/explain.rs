//! `explain RULES --rule RULE --key KEY --history FILE`: what makes the next start wait, limit by limit.

use std::path::Path;
use std::time::Duration;

use request_balancer::engine::PaceRef;
use request_balancer::{Headroom, LogHold, Opens, Outlook, Rules, Start, explain_log};
use serde_json::{Value, json};

use crate::check::load;
use crate::{Outcome, log};

/// The start that is asked about.
pub(crate) struct Asked<'a> {
    pub(crate) rule: &'a str,
    pub(crate) key: &'a str,
    pub(crate) cost: u32,
    pub(crate) units: &'a [(String, u32)],
    /// Default: the last start of the history.
    pub(crate) at: Option<Duration>,
    /// Default: the endpoint where it may start first.
    pub(crate) on: Option<&'a str>,
}

pub(crate) fn run(file: &Path, asked: &Asked<'_>, history: Option<&Path>, json: bool) -> Outcome {
    let Some(rules) = load(file, json) else { return Outcome::Found };
    let names: Vec<&str> = rules.names().collect();
    let Some(rule) = rules.rule(asked.rule) else {
        eprintln!("no rule `{}` in {}: there are {}", asked.rule, file.display(), names.join(", "));
        return Outcome::Found;
    };
    if let Some((unit, _)) = asked.units.iter().find(|(unit, _)| !rules.units().any(|known| known == unit)) {
        let known: Vec<&str> = rules.units().collect();
        eprintln!("no unit `{unit}` in {}: there are {}", file.display(), known.join(", "));
        return Outcome::Found;
    }
    let starts = match history.map_or_else(|| Ok(Vec::new()), |history| log::read(history, &rules)) {
        Ok(starts) => starts,
        Err(error) => {
            eprintln!("{error}");
            return Outcome::Found;
        }
    };
    let last = starts.iter().map(|start| start.at).max().unwrap_or_default();
    let next = Start::new(asked.at.unwrap_or(last), asked.rule, asked.key).cost(asked.cost);
    let next = asked.units.iter().fold(next, |next, (unit, cost)| next.units(unit, *cost));
    let next = asked.on.into_iter().fold(next, Start::on);
    let outlook = explain_log(&rules, &starts, &next);
    if let Some(endpoint) = asked.on.filter(|_| outlook.endpoints.is_empty()) {
        let known: Vec<&str> = rules.endpoints().collect();
        eprintln!("no endpoint `{endpoint}` in {}: there are {}", file.display(), known.join(", "));
        return Outcome::Found;
    }
    if json {
        println!("{:#}", as_json(&next, &outlook, rule.paused()));
    } else {
        print(&rules, &next, &outlook, rule.paused());
    }
    if outlook.opens() == Opens::Now && !rule.paused() { Outcome::Fine } else { Outcome::Found }
}

fn print(rules: &Rules, next: &Start, outlook: &Outlook, paused: bool) {
    let Start { at, rule, key, .. } = next;
    let said = match outlook.opens() {
        Opens::At(opens) => format!("at {opens:?}, after {:?}", opens.saturating_sub(*at)),
        opens @ (Opens::Now | Opens::WhenOneEnds | Opens::Never) => opens.to_string(),
    };
    let said = if paused { "never: the rule is paused".to_owned() } else { said };
    println!("rule {rule}, key {key}, asked at {at:?}: may start {said}");
    // What it waits for longest.
    let binding = outlook.opens();
    let mark = |opens: Opens| if opens == binding && opens != Opens::Now { '>' } else { ' ' };
    outlook.holds.iter().for_each(|hold| println!("{} {hold}", mark(Opens::At(hold.until))));
    outlook.limits.iter().for_each(|limit| println!("{} {limit}", mark(limit.opens)));
    for of in &outlook.endpoints {
        println!("{} endpoint {}: room {}", mark(of.opens()), of.endpoint, of.opens());
        of.holds.iter().for_each(|hold| println!("    {hold}"));
        of.limits.iter().for_each(|limit| println!("    {limit}"));
    }
    let (of_all, of_key) = paces(rules, rule);
    let apart = |pace: Option<Duration>, whose: &str| pace.map(|pace| format!("up to {pace:?} apart{whose}"));
    let said: Vec<String> = [apart(of_all, ""), apart(of_key, " of this key")].into_iter().flatten().collect();
    if !said.is_empty() {
        println!("  besides, its lane leaves room for more urgent calls: starts {}", said.join(", "));
    }
}

/// How far apart starts of a lower lane are where nothing but its pace makes them wait: all of them, and those of a key.
fn paces(rules: &Rules, rule: &str) -> (Option<Duration>, Option<Duration>) {
    let plan = rules.plan();
    let longest = |paces: &[PaceRef]| paces.iter().map(|pace| pace.interval).max().map(Duration::from);
    let rule = plan.rules.iter().find(|known| *known.name == *rule);
    rule.map_or((None, None), |rule| (longest(&rule.shared_pace), longest(&rule.key_pace)))
}

fn as_json(next: &Start, outlook: &Outlook, paused: bool) -> Value {
    let seconds = |opens: Opens| match opens {
        Opens::At(at) => Some(at.as_secs_f64()),
        Opens::Now | Opens::WhenOneEnds | Opens::Never => None,
    };
    let word = |opens: Opens| match opens {
        Opens::Now => "now",
        Opens::At(_) => "at",
        Opens::WhenOneEnds => "when-one-ends",
        Opens::Never => "never",
    };
    let limits = |limits: &[Headroom]| {
        let limits = limits.iter().map(|limit| {
            json!({
                "limit": limit.limit,
                "quota": limit.quota,
                "key": limit.key,
                "used": limit.used,
                "allowed": limit.allowed,
                "opens": word(limit.opens),
                "at": seconds(limit.opens),
            })
        });
        limits.collect::<Value>()
    };
    let holds = |holds: &[LogHold]| {
        let holds = holds.iter().map(|hold| {
            let scope = format!("{:?}", hold.scope).to_lowercase();
            json!({ "scope": scope, "refused": hold.refused.as_secs_f64(), "until": hold.until.as_secs_f64() })
        });
        holds.collect::<Value>()
    };
    let endpoints = outlook.endpoints.iter().map(|of| {
        json!({
            "endpoint": of.endpoint,
            "opens": word(of.opens()),
            "at": seconds(of.opens()),
            "holds": holds(&of.holds),
            "limits": limits(&of.limits),
        })
    });
    let opens = outlook.opens();
    json!({
        "rule": next.rule,
        "key": next.key,
        "asked": next.at.as_secs_f64(),
        "opens": if paused { "never" } else { word(opens) },
        "at": if paused { None } else { seconds(opens) },
        "paused": paused,
        "holds": holds(&outlook.holds),
        "limits": limits(&outlook.limits),
        "endpoints": endpoints.collect::<Value>(),
    })
}
