//! From checked rules back to a file that reads as the same rules.

use std::fmt::{self, Write as _};

use toml_writer::TomlWrite as _;

use super::duration;
use super::model::{CheckedCaps, CheckedLane, CheckedRule, Model, Pace, Rules, Share, Under};
use super::quota::{CountFrom, Quota};
use super::retry::{hold_word, order_word};
use crate::engine::{Nanos, Overflow, RetryPolicy};

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.model().text()?)
    }
}

impl Model {
    fn text(&self) -> Result<String, fmt::Error> {
        let mut top = Fields::default();
        top.caps(&self.caps)?;
        if !self.margin.is_zero() {
            top.span("margin", self.margin)?;
        }
        if self.count_from != CountFrom::default() {
            top.text("count_from", &self.count_from.to_string())?;
        }
        if !self.units.is_empty() {
            let units: Result<Vec<_>, _> = self.units.iter().map(|unit| string(unit)).collect();
            top.raw("units", &format!("[{}]", units?.join(", ")))?;
        }
        if let Some(unit) = &self.fair_by {
            top.text("fair_by", unit)?;
        }
        if let Some(level) = &self.ban_guard {
            top.raw("ban_guard", &quota(level)?)?;
        }
        let mut text = top.lines();
        let mut section = |heading: &str, fields: Fields| {
            let gap = if text.is_empty() { "" } else { "\n" };
            write!(text, "{gap}[{heading}]\n{}", fields.lines())
        };
        let mut rules = Fields::default();
        for rule in &self.rules {
            rules.raw(&rule.name, &rule.value(&self.retry)?)?;
        }
        section("rules", rules)?;
        if !self.limits.is_empty() {
            let mut limits = Fields::default();
            for limit in &self.limits {
                let mut fields = Fields::default();
                fields.caps(&limit.caps)?;
                limits.raw(&limit.name, &fields.inline())?;
            }
            section("limits", limits)?;
        }
        for lane in &self.lanes {
            section(&format!("lanes.{}", lane.priority), lane.fields()?)?;
        }
        if !self.keys.is_empty() {
            let mut keys = Fields::default();
            for (key, rules) in &self.keys {
                let mut fields = Fields::default();
                for (rule, quotas) in rules {
                    fields.quotas(rule, quotas)?;
                }
                keys.raw(key, &fields.inline())?;
            }
            section("keys", keys)?;
        }
        let retry = retry(&self.retry, &RetryPolicy::default())?;
        if !retry.list.is_empty() {
            section("retry", retry)?;
        }
        Ok(text)
    }
}

impl CheckedRule {
    /// The short form where it says everything.
    fn value(&self, outer: &RetryPolicy) -> Result<String, fmt::Error> {
        let mut fields = Fields::default();
        fields.caps(&self.caps)?;
        if self.priority != 1 {
            fields.raw("priority", &self.priority.to_string())?;
        }
        if self.weight != 1 {
            fields.raw("weight", &self.weight.to_string())?;
        }
        if self.under != Under::default() {
            let outer = [("overall", self.under.overall), ("per_key", self.under.per_key)];
            let outer = outer.into_iter().filter_map(|(name, under)| under.then_some(name));
            let names = outer.chain(self.under.limits.iter().map(|name| &**name)).map(string);
            fields.raw("under", &format!("[{}]", names.collect::<Result<Vec<_>, _>>()?.join(", ")))?;
        }
        if self.ordered {
            fields.raw("ordered", "true")?;
        }
        if self.queue != u32::MAX {
            fields.raw("queue", &self.queue.to_string())?;
        }
        match self.overflow {
            Overflow::Reject => {}
            Overflow::DropOldest => fields.text("overflow", "drop-oldest")?,
        }
        if let Some(max_wait) = self.max_wait {
            fields.span("max_wait", max_wait)?;
        }
        if self.paused {
            fields.raw("paused", "true")?;
        }
        let retry = retry(&self.retry, outer)?;
        if !retry.list.is_empty() {
            fields.raw("retry", &retry.inline())?;
        }
        match fields.list.as_slice() {
            [(name, value)] if name == "per_key" && value.starts_with(['"', '[']) => Ok(value.clone()),
            _ => Ok(fields.inline()),
        }
    }
}

impl CheckedLane {
    fn fields(&self) -> Result<Fields, fmt::Error> {
        let mut fields = Fields::default();
        if let Some(name) = &self.name {
            fields.text("name", name)?;
        }
        if self.share != Share::default() {
            match self.share {
                Share { part: 0, .. } => fields.raw("share", "0")?,
                Share { part, of } => fields.text("share", &format!("{part}/{of}"))?,
            }
        }
        fields.caps(&self.caps)?;
        if self.pace != Pace::default() {
            match self.pace {
                Pace::UpTo(horizon) => fields.span("pace", horizon)?,
                Pace::Off => fields.raw("pace", "false")?,
            }
        }
        Ok(fields)
    }
}

/// What differs from `base`.
fn retry(policy: &RetryPolicy, base: &RetryPolicy) -> Result<Fields, fmt::Error> {
    let mut fields = Fields::default();
    let limit =
        |span: Option<Nanos>| span.map_or_else(|| Ok("false".to_owned()), |span| string(&duration::format(span)));
    let number = |number: u32| Ok(number.to_string());
    let span = |span: Nanos| string(&duration::format(span));
    let differing = [
        ("attempts", policy.attempts != base.attempts, number(policy.attempts)),
        ("backoff", policy.backoff != base.backoff, span(policy.backoff)),
        ("max_delay", policy.max_delay != base.max_delay, span(policy.max_delay)),
        ("jitter", policy.jitter != base.jitter, Ok(format!("{:?}", policy.jitter))),
        ("min_wait", policy.min_wait != base.min_wait, span(policy.min_wait)),
        ("bare_wait", policy.bare_wait != base.bare_wait, span(policy.bare_wait)),
        ("waits", policy.waits != base.waits, number(policy.waits)),
        ("ceiling", policy.ceiling != base.ceiling, limit(policy.ceiling)),
        ("total_wait", policy.total_wait != base.total_wait, limit(policy.total_wait)),
        ("hold", policy.hold != base.hold, string(hold_word(policy.hold))),
        ("order", policy.order != base.order, string(order_word(policy.order))),
    ];
    for (name, differs, value) in differing {
        if differs {
            fields.raw(name, &value?)?;
        }
    }
    Ok(fields)
}

fn string(text: &str) -> Result<String, fmt::Error> {
    let mut written = String::new();
    written.value(text)?;
    Ok(written)
}

fn quota(quota: &Quota) -> Result<String, fmt::Error> {
    let text = quota.to_string();
    // The long form is a table already.
    if text.starts_with('{') { Ok(text) } else { string(&text) }
}

/// Fields of a table, as TOML text.
#[derive(Default)]
struct Fields {
    list: Vec<(String, String)>,
}

impl Fields {
    fn raw(&mut self, name: &str, value: &str) -> fmt::Result {
        let mut key = String::new();
        key.key(name)?;
        self.list.push((key, value.to_owned()));
        Ok(())
    }

    fn text(&mut self, name: &str, value: &str) -> fmt::Result {
        self.raw(name, &string(value)?)
    }

    fn span(&mut self, name: &str, value: Nanos) -> fmt::Result {
        self.text(name, &duration::format(value))
    }

    fn caps(&mut self, caps: &CheckedCaps) -> fmt::Result {
        self.quotas("overall", &caps.overall)?;
        self.quotas("per_key", &caps.per_key)?;
        for (name, cap) in [("concurrency", caps.concurrency), ("key_concurrency", caps.key_concurrency)] {
            if let Some(cap) = cap {
                self.raw(name, &cap.to_string())?;
            }
        }
        Ok(())
    }

    fn quotas(&mut self, name: &str, quotas: &[Quota]) -> fmt::Result {
        match quotas {
            [] => Ok(()),
            [only] => self.raw(name, &quota(only)?),
            several => {
                let several = several.iter().map(quota).collect::<Result<Vec<_>, _>>()?;
                self.raw(name, &format!("[{}]", several.join(", ")))
            }
        }
    }

    fn lines(&self) -> String {
        self.list.iter().flat_map(|(name, value)| [name, " = ", value, "\n"]).collect()
    }

    fn inline(&self) -> String {
        if self.list.is_empty() {
            return "{}".to_owned();
        }
        let fields: Vec<String> = self.list.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        format!("{{ {} }}", fields.join(", "))
    }
}
