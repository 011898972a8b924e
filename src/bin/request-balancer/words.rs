//! What rules mean, in plain words.

use std::time::Duration;

use request_balancer::{CheckedRule, Quota, QuotaKind, Rules, Start, explain_log};

use crate::pool;

/// A line for everything that the rules say.
pub(crate) fn reading(rules: &Rules) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(rules.overall().iter().map(|quota| format!("all calls together: {}", of_quota(quota))));
    lines.extend(rules.concurrency().map(|most| format!("all calls together: at most {most} at a time")));
    lines.extend(rules.per_key().iter().map(|quota| format!("each key, whatever the rule: {}", of_quota(quota))));
    lines.extend(rules.key_concurrency().map(|most| format!("each key, whatever the rule: at most {most} at a time")));
    if !rules.margin().is_zero() {
        let margin = rules.margin();
        lines.push(format!("windows are {margin:?} longer, so that network delays may differ by that much"));
    }
    let mut by_priority: Vec<&CheckedRule> = rules.iter().collect();
    by_priority.sort_by_key(|rule| rule.priority());
    let several = by_priority.first().map(|rule| rule.priority()) != by_priority.last().map(|rule| rule.priority());
    for rule in by_priority {
        let mut said: Vec<String> = Vec::new();
        if several {
            said.push(format!("priority {}", rule.priority()));
        }
        said.extend(rule.per_key().iter().map(|quota| format!("each key {}", of_quota(quota))));
        said.extend(rule.key_concurrency().map(|most| format!("each key at most {most} at a time")));
        said.extend(rule.overall().iter().map(|quota| format!("all its calls together {}", of_quota(quota))));
        said.extend(rule.concurrency().map(|most| format!("all its calls together at most {most} at a time")));
        for (limit, whose) in [("overall", "all calls"), ("per_key", "each key")] {
            let has = if limit == "overall" { !rules.overall().is_empty() } else { !rules.per_key().is_empty() };
            if has && !rule.is_under(limit) {
                said.push(format!("not under what holds for {whose}"));
            }
        }
        said.extend(wider(rules, rule.name()));
        if rule.weight() > 1 {
            said.push(format!("{} turns where others have one", rule.weight()));
        }
        if rule.ordered() {
            said.push("each key one at a time, in order".to_owned());
        }
        said.extend(rule.queue().map(|most| format!("at most {most} of a key wait")));
        said.extend(rule.max_wait().map(|most| format!("nobody waits longer than {most:?}")));
        if rule.paused() {
            said.push("paused".to_owned());
        }
        if said.is_empty() {
            said.push("nothing but what holds for all".to_owned());
        }
        lines.push(format!("rule {}: {}", rule.name(), said.join("; ")));
    }
    lines.extend(pool::reading(rules));
    for key in rules.keys() {
        for rule in rules {
            let own = rules.key_quotas(key, rule.name()).unwrap_or_default();
            lines.extend(own.iter().map(|quota| format!("key {key} under {}: {}", rule.name(), of_quota(quota))));
        }
    }
    lines
}

/// The limits of a rule that are neither its own nor the file's: those with names, and those of its lane.
fn wider(rules: &Rules, rule: &str) -> Vec<String> {
    let one = Start::new(Duration::ZERO, rule, "");
    let one = rules.units().fold(one, |one, unit| one.units(unit, 1));
    let limits = explain_log(rules, &[], &one).limits.into_iter();
    let wider = limits.filter(|limit| limit.limit.starts_with("limits.") || limit.limit.starts_with("lanes."));
    let mut wider: Vec<String> = wider.map(|limit| format!("under `{}` {}", limit.limit, limit.quota)).collect();
    // An even spread is a window and a spacing, and one line of the file.
    wider.dedup();
    wider
}

pub(crate) fn of_quota(quota: &Quota) -> String {
    let (count, period) = (quota.count(), quota.period());
    let unit = quota.own_unit().map_or_else(String::new, |unit| format!(" {unit}"));
    match quota.kind() {
        QuotaKind::Window => format!("at most {count}{unit} in any {period:?}"),
        QuotaKind::Smooth => format!("at most {count}{unit} in any {period:?}, one every {:?}", each(period, count)),
        QuotaKind::Bucket { burst } => format!("{burst}{unit} at once, then one every {:?}", each(period, count)),
        QuotaKind::Calendar { zone } => format!("at most {count}{unit} a day, midnight to midnight in {zone}"),
        other => format!("{count}{unit} in {period:?}, {other:?}"),
    }
}

fn each(period: Duration, count: u32) -> Duration {
    period.checked_div(count).unwrap_or(period)
}
