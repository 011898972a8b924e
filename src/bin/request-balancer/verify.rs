//! `verify RULES STARTS.csv`: breaches in anybody's log of starts, and what it can't tell.

use std::path::Path;

use request_balancer::{Breach, verify};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Wrong};
use crate::check::load;
use crate::log;

pub(crate) fn run(rules: &Path, starts: &Path, json: bool) -> Result<Answer, Wrong> {
    let rules = load(rules)?;
    let log = log::read(starts, &rules)?;
    let breaches = verify(&rules, &log.starts);
    let unchecked = log.silent_of(&rules);
    let outcome = Outcome::found_if(!breaches.is_empty());
    if json {
        let breaches: Value = breaches.iter().map(as_json).collect();
        let said = json!({ "starts": log.starts.len(), "breaches": breaches, "not_checked": unchecked });
        return Ok(Answer::json(&said, outcome));
    }
    let mut lines: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    lines.extend(unchecked.into_iter().map(|what| format!("not checked: {what}")));
    let plural = if breaches.len() == 1 { "breach" } else { "breaches" };
    lines.push(format!("{} starts, {} {plural}\n", log.starts.len(), breaches.len()));
    Ok(Answer { text: lines.join("\n"), outcome })
}

fn as_json(breach: &Breach) -> Value {
    let text = breach.to_string();
    match breach {
        Breach::TooMany { limit, quota, key, at, within, count, allowed, .. } => json!({
            "kind": "too-many",
            "limit": limit,
            "quota": quota,
            "key": key,
            "at": at.as_secs_f64(),
            "within": within.as_secs_f64(),
            "count": count,
            "allowed": allowed,
            "text": text,
        }),
        Breach::TooEarly { limit, quota, key, at, due, .. } => json!({
            "kind": "too-early",
            "limit": limit,
            "quota": quota,
            "key": key,
            "at": at.as_secs_f64(),
            "due": due.as_secs_f64(),
            "text": text,
        }),
        Breach::UnknownRule { rule, at, .. } => {
            json!({ "kind": "unknown-rule", "rule": rule, "at": at.as_secs_f64(), "text": text })
        }
        Breach::UnknownEndpoint { endpoint, at, .. } => {
            json!({ "kind": "unknown-endpoint", "endpoint": endpoint, "at": at.as_secs_f64(), "text": text })
        }
        // The library may learn to say more.
        other => json!({ "kind": "other", "text": other.to_string() }),
    }
}
