//! `explain RULES --rule RULE --key KEY --history FILE`: what makes the next start wait, limit by limit.

use std::path::Path;
use std::time::Duration;

use request_balancer::{Headroom, LogHold, Opens, Outlook, Rules, Start, explain_log};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Wrong};
use crate::check::load;
use crate::lanes::Paces;
use crate::log;

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

pub(crate) fn run(file: &Path, asked: &Asked<'_>, history: Option<&Path>, json: bool) -> Result<Answer, Wrong> {
    let rules = load(file)?;
    let name = file.display().to_string();
    let Some(rule) = rules.rule(asked.rule) else {
        return Err(Wrong::unknown("rule", asked.rule, &name, rules.names()));
    };
    if let Some((unit, _)) = asked.units.iter().find(|(unit, _)| !rules.units().any(|known| known == unit)) {
        return Err(Wrong::unknown("unit", unit, &name, rules.units()));
    }
    let log = history.map(|history| log::read(history, &rules)).transpose()?;
    let unknown = log.as_ref().map_or_else(Vec::new, |log| log.silent_of(&rules));
    let starts = log.map_or_else(Vec::new, |log| log.starts);
    let last = starts.iter().map(|start| start.at).max().unwrap_or_default();
    let next = Start::new(asked.at.unwrap_or(last), asked.rule, asked.key).cost(asked.cost);
    let next = asked.units.iter().fold(next, |next, (unit, cost)| next.units(unit, *cost));
    let next = asked.on.into_iter().fold(next, Start::on);
    let outlook = explain_log(&rules, &starts, &next);
    if let Some(endpoint) = asked.on.filter(|_| outlook.endpoints.is_empty()) {
        return Err(Wrong::unknown("endpoint", endpoint, &name, rules.endpoints()));
    }
    let outcome = Outcome::found_if(outlook.opens() != Opens::Now || rule.paused());
    if json {
        let mut said = as_json(&next, &outlook, rule.paused());
        said["not_known"] = unknown.into();
        return Ok(Answer::json(&said, outcome));
    }
    let mut lines = in_words(&rules, &next, &outlook, rule.paused());
    lines.extend(unknown.into_iter().map(|what| format!("  not known: {what}")));
    Ok(Answer { text: lines.join("\n") + "\n", outcome })
}

fn in_words(rules: &Rules, next: &Start, outlook: &Outlook, paused: bool) -> Vec<String> {
    let Start { at, rule, key, .. } = next;
    let said = match outlook.opens() {
        Opens::At(opens) => format!("at {opens:?}, after {:?}", opens.saturating_sub(*at)),
        opens @ (Opens::Now | Opens::WhenOneEnds | Opens::Never) => opens.to_string(),
    };
    let said = if paused { "never: the rule is paused".to_owned() } else { said };
    let mut lines = vec![format!("rule {rule}, key {key}, asked at {at:?}: may start {said}")];
    // What it waits for longest.
    let binding = outlook.opens();
    let mark = |opens: Opens| if opens == binding && opens != Opens::Now { '>' } else { ' ' };
    lines.extend(outlook.holds.iter().map(|hold| format!("{} {hold}", mark(Opens::At(hold.until)))));
    lines.extend(outlook.limits.iter().map(|limit| format!("{} {limit}", mark(limit.opens))));
    for of in &outlook.endpoints {
        lines.push(format!("{} endpoint {}: room {}", mark(of.opens()), of.endpoint, of.opens()));
        lines.extend(of.holds.iter().map(|hold| format!("    {hold}")));
        lines.extend(of.limits.iter().map(|limit| format!("    {limit}")));
    }
    lines.extend(Paces::of(rules, rule).in_words().map(|said| format!("  besides, its lane {said}")));
    lines
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
                "left_free": limit.left_free,
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
