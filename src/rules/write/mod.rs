//! From checked rules back to a file that reads as the same rules.

mod dialects;
mod pool;

use std::fmt::{self, Write as _};

use toml_writer::TomlWrite as _;

use crate::engine::{Nanos, Overflow, RetryPolicy};
use crate::rules::duration;
use crate::rules::model::{CheckedCaps, CheckedLane, CheckedRule, Model, Pace, Rules, Share, Under};
use crate::rules::observe::{CheckedObserve, narrows_word};
use crate::rules::quota::{CountFrom, Quota};
use crate::rules::retry::{hold_word, order_word};
use crate::rules::shared::{CheckedShared, OUTAGES};

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
        if self.queue != u32::MAX {
            top.raw("queue", &self.queue.to_string())?;
        }
        if let Some(rule) = &self.default_rule {
            top.text("default_rule", rule)?;
        }
        if let Some(longest) = self.attempt_timeout {
            top.span("attempt_timeout", longest)?;
        }
        let mut text = top.lines();
        let mut section = |heading: &str, fields: Fields| {
            let gap = if text.is_empty() { "" } else { "\n" };
            write!(text, "{gap}[{heading}]\n{}", fields.lines())
        };
        let mut rules = Fields::default();
        for rule in &self.rules {
            rules.raw(&rule.name, &rule.value(&self.retry, self.attempt_timeout)?)?;
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
        for dialect in &self.dialects {
            let mut heading = "dialects.".to_owned();
            heading.key(dialect.name())?;
            section(&heading, dialects::fields(dialect)?)?;
        }
        if let Some(pool) = &self.pool {
            let (fields, endpoints) = pool.fields()?;
            section("pool", fields)?;
            if let Some(endpoints) = endpoints {
                section("pool.endpoints", endpoints)?;
            }
        }
        let shared = shared(&self.shared)?;
        if !shared.list.is_empty() {
            section("shared", shared)?;
        }
        let mut retry = retry(&self.retry, &RetryPolicy::default())?;
        if let Some(Share { part, of }) = self.retry_budget {
            retry.text("budget", &format!("{part}/{of}"))?;
        }
        if !retry.list.is_empty() {
            section("retry", retry)?;
        }
        Ok(text)
    }
}

impl CheckedRule {
    /// The short form where it says everything.
    fn value(&self, outer: &RetryPolicy, attempt_timeout: Option<Nanos>) -> Result<String, fmt::Error> {
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
        if self.attempt_timeout != attempt_timeout {
            match self.attempt_timeout {
                Some(longest) => fields.span("attempt_timeout", longest)?,
                None => fields.raw("attempt_timeout", "false")?,
            }
        }
        if self.paused {
            fields.raw("paused", "true")?;
        }
        let retry = retry(&self.retry, outer)?;
        if !retry.list.is_empty() {
            fields.raw("retry", &retry.inline())?;
        }
        let observe = observe(&self.observe)?;
        if !observe.list.is_empty() {
            fields.raw("observe", &observe.inline())?;
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

fn observe(observe: &CheckedObserve) -> Result<Fields, fmt::Error> {
    let mut fields = Fields::default();
    if let Some(dialect) = &observe.dialect {
        fields.text("dialect", dialect)?;
    }
    if !observe.windows.is_empty() {
        let mut windows = Fields::default();
        for (window, narrows) in &observe.windows {
            windows.text(window, narrows_word(narrows))?;
        }
        fields.raw("windows", &windows.inline())?;
    }
    if let Some(most) = &observe.learn {
        fields.raw("learn", &quota(most)?)?;
    }
    Ok(fields)
}

/// What differs from the defaults.
fn shared(shared: &CheckedShared) -> Result<Fields, fmt::Error> {
    let plain = CheckedShared::default();
    let mut fields = Fields::default();
    if let Some(url) = &shared.url {
        fields.text("url", url)?;
    }
    if shared.prefix != plain.prefix {
        fields.text("prefix", &shared.prefix)?;
    }
    if shared.lease != plain.lease {
        fields.span("lease", shared.lease)?;
    }
    if let Some((word, _)) = OUTAGES.iter().find(|(_, way)| *way == shared.on_outage && *way != plain.on_outage) {
        fields.text("on_outage", word)?;
    }
    if shared.processes != plain.processes {
        fields.raw("processes", &shared.processes.to_string())?;
    }
    if let Some(version) = shared.version {
        fields.raw("version", &version.to_string())?;
    }
    Ok(fields)
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
        let levels = [
            ("overall", &caps.overall, ("concurrency", caps.concurrency), caps.share_overall),
            ("per_key", &caps.per_key, ("key_concurrency", caps.key_concurrency), caps.share_per_key),
        ];
        for (name, quotas, (_, cap), shared) in levels {
            if shared {
                let mut fields = Self::default();
                fields.quotas("limit", quotas)?;
                if let Some(cap) = cap {
                    fields.raw("concurrency", &cap.to_string())?;
                }
                fields.raw("shared", "true")?;
                // What says nothing is shared in vain.
                if fields.list.len() > 1 {
                    self.raw(name, &fields.inline())?;
                }
            } else {
                self.quotas(name, quotas)?;
            }
        }
        for (_, _, (name, cap), shared) in levels {
            if let Some(cap) = cap.filter(|_| !shared) {
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
