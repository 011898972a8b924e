//! From rules in the making to checked ones, or to everything that is wrong with them.

mod dialects;
mod guard;
mod lanes;
mod observe;
mod own;
mod pool;
mod quotas;
mod rates;
mod shared;
mod units;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::builder::{At, NamedLimit, Rule, RulesBuilder};
use super::compile;
use super::finding::{self, Finding, FindingCode, Findings, Place, Severity};
use super::model::{CheckedLimit, CheckedRule, Model, Rules, Under};
use super::toml::join;
use super::wording;
use crate::engine::{Nanos, RetryPolicy};

pub(super) use own::own;
pub(super) use pool::endpoints;
pub(super) use quotas::{COUNTS, quota};

/// What was found before the check.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) findings: Vec<Finding>,
    /// Something that other parts refer to could not be read: what would follow from its absence is not said.
    pub(super) unsure: bool,
}

/// How many rules, and limits of each kind, can be numbered.
const MOST: usize = u16::MAX as usize;

/// The names of the outer limits that every file has.
const OUTER: [&str; 2] = ["overall", "per_key"];

/// Checks `builder` as a whole and compiles it.
pub(super) fn rules(builder: &RulesBuilder, read: Read) -> Result<Rules, Findings> {
    let mut checker = Checker::new(builder, read);
    let model = checker.model();
    checker.lanes(&model);
    checker.rates(&model);
    checker.unused_units();
    checker.shared_as_a_whole(&model);
    let plan = compile::plan(&model);
    checker.size("limits per key", plan.key_limits.len());
    checker.size("limits in all", plan.shared_limits.len());
    let Checker { mut findings, .. } = checker;
    if findings.iter().any(|finding| finding.severity() == Severity::Error) {
        return Err(Findings::new(findings));
    }
    finding::sort(&mut findings);
    Ok(Rules::new(model, plan, findings))
}

struct Checker<'b> {
    builder: &'b RulesBuilder,
    findings: Vec<Finding>,
    unsure: bool,
    /// Something in `units` could not be read.
    unread_units: bool,
    /// Whether any limit is shared.
    any_shared: bool,
    /// Units that something counts.
    units: BTreeSet<String>,
    /// Time zones that quotas have.
    zones: BTreeSet<Arc<str>>,
}

impl<'b> Checker<'b> {
    fn new(builder: &'b RulesBuilder, read: Read) -> Self {
        let Read { findings, unsure } = read;
        let unread_units = findings.iter().any(|finding| finding.path() == "units");
        Self {
            builder,
            findings,
            unsure,
            unread_units,
            any_shared: false,
            units: BTreeSet::new(),
            zones: BTreeSet::new(),
        }
    }
}

impl Checker<'_> {
    fn push(&mut self, finding: Finding, path: impl Into<String>, place: Option<Place>) {
        self.findings.push(finding.at(path, place));
    }

    fn model(&mut self) -> Model {
        let builder = self.builder;
        let margin = self.span(builder.margin.as_ref(), "margin").unwrap_or(Nanos::ZERO);
        let units = self.declared_units();
        let fair_by = self.fair_by();
        let caps = self.caps(&builder.caps, "");
        let retry = self.retry(&builder.retry, "retry", &RetryPolicy::default());
        let retry_budget = self.retry_budget();
        let attempt_timeout = self.time_to_run(builder.attempt_timeout.as_ref(), "attempt_timeout");
        let queue = self.at_least_one(builder.queue.as_ref(), "queue").unwrap_or(u32::MAX);
        self.size("rules", builder.rules.len());
        self.unique(builder.rules.iter().map(|(name, _)| name), "rules", "rule");
        self.unique(builder.limits.iter().map(|(name, _)| name), "limits", "limit");
        let limits = builder.limits.iter().map(|(name, limit)| self.limit(name, limit)).collect();
        let known: BTreeSet<&str> = builder.limits.iter().map(|(name, _)| name.value.as_str()).collect();
        let mut rules: Vec<_> =
            builder.rules.iter().map(|(name, rule)| self.rule(name, rule, &retry, &known)).collect();
        if rules.is_empty() {
            rules.push(self.rule(&At::from("default".to_owned()), &Rule::new(), &retry, &known));
        }
        self.unused_limits(&rules);
        let lanes = self.said_lanes();
        let names: Vec<_> = rules.iter().map(|rule| Arc::clone(&rule.name)).collect();
        let keys = self.key_quotas(&names);
        let default_rule = self.default_rule(&names);
        let ban_guard = self.ban_guard();
        let pool = self.pool();
        let shared = self.shared();
        let zones = std::mem::take(&mut self.zones).into_iter().collect();
        let count_from = builder.count_from.unwrap_or_default();
        let dialects = self.dialects();
        Model {
            caps,
            margin,
            count_from,
            units,
            zones,
            fair_by,
            ban_guard,
            queue,
            default_rule,
            attempt_timeout,
            retry,
            retry_budget,
            rules,
            limits,
            lanes,
            keys,
            dialects,
            pool,
            shared,
        }
    }

    fn rule(&mut self, name: &At<String>, rule: &Rule, outer: &RetryPolicy, limits: &BTreeSet<&str>) -> CheckedRule {
        let path = join("rules", &name.value);
        self.name(name, &path, "a name of visible characters");
        let caps = self.caps(&rule.caps, &path);
        if let (Some(At { value: true, place }), Some(cap @ 2..)) = (&rule.ordered, caps.key_concurrency) {
            let finding = wording::two_meanings("`ordered = true`", &format!("`key_concurrency = {cap}`"));
            self.push(finding, join(&path, "ordered"), *place);
        }
        let under = self.under(rule.under.as_deref(), &join(&path, "under"), limits);
        let observe = self.observe(rule, &path, &under);
        CheckedRule {
            name: name.value.as_str().into(),
            priority: rule.priority.unwrap_or(1),
            weight: self.at_least_one(rule.weight.as_ref(), &join(&path, "weight")).unwrap_or(1),
            under,
            observe,
            ordered: rule.ordered.as_ref().is_some_and(|at| at.value),
            queue: self.at_least_one(rule.queue.as_ref(), &join(&path, "queue")).unwrap_or(u32::MAX),
            overflow: rule.overflow,
            max_wait: self.span(rule.max_wait.as_ref(), &join(&path, "max_wait")),
            attempt_timeout: match &rule.attempt_timeout {
                None => self.builder.attempt_timeout.as_ref().map(|outer| outer.value),
                Some(At { value: None, .. }) => None,
                Some(At { value: Some(longest), place }) => {
                    self.time_to_run(Some(&At { value: *longest, place: *place }), &join(&path, "attempt_timeout"))
                }
            },
            paused: rule.paused,
            retry: self.retry(&rule.retry, &join(&path, "retry"), outer),
            caps,
        }
    }

    fn limit(&mut self, name: &At<String>, limit: &NamedLimit) -> CheckedLimit {
        let path = join("limits", &name.value);
        let allowed = "a name of visible characters, neither `overall` nor `per_key`";
        if OUTER.contains(&name.value.as_str()) {
            let found = format!("{}, which `under` knows already", wording::quote(&name.value));
            self.push(Finding::new(FindingCode::InvalidName, found, allowed), &path, name.place);
        }
        self.name(name, &path, allowed);
        let caps = self.caps(&limit.caps, &path);
        let says_nothing = caps.per_key.is_empty()
            && caps.overall.is_empty()
            && caps.concurrency.is_none()
            && caps.key_concurrency.is_none();
        if says_nothing && !self.found_inside(&path) {
            let allowed = "at least one of `per_key`, `overall`, `concurrency`, `key_concurrency`";
            self.push(wording::empty("a limit that limits nothing", allowed), &path, name.place);
        }
        CheckedLimit { name: name.value.as_str().into(), caps }
    }

    fn under(&mut self, names: Option<&[At<String>]>, path: &str, limits: &BTreeSet<&str>) -> Under {
        let Some(names) = names else { return Under::default() };
        let mut under = Under { overall: false, per_key: false, limits: Vec::new() };
        let mut seen = BTreeSet::new();
        for At { value: name, place } in names {
            if !seen.insert(name.as_str()) {
                self.push(wording::duplicate_name(name, "limit"), path, *place);
                continue;
            }
            match name.as_str() {
                "overall" => under.overall = true,
                "per_key" => under.per_key = true,
                name if limits.contains(name) => under.limits.push(name.into()),
                name => {
                    let known = OUTER.iter().copied().chain(limits.iter().copied());
                    self.push(wording::unknown_limit(name, known), path, *place);
                }
            }
        }
        // Sorted, so that equal rules are equal whatever the order in which they name their limits.
        under.limits.sort_unstable();
        under
    }

    fn unused_limits(&mut self, rules: &[CheckedRule]) {
        if self.unsure {
            return;
        }
        let used: BTreeSet<&Arc<str>> = rules.iter().flat_map(|rule| &rule.under.limits).collect();
        for (name, _) in &self.builder.limits {
            if !used.contains(&Arc::from(name.value.as_str())) {
                let found = format!("{}, which no rule is under", wording::quote(&name.value));
                let finding = Finding::new(FindingCode::UnusedLimit, found, "limits that `under` of a rule names");
                self.push(finding, join("limits", &name.value), name.place);
            }
        }
    }

    fn name(&mut self, name: &At<String>, path: &str, allowed: &str) {
        if name.value.is_empty() || name.value.chars().any(char::is_control) {
            self.push(Finding::new(FindingCode::InvalidName, wording::quote(&name.value), allowed), path, name.place);
        }
    }

    /// Names that come twice. In a file that is a matter of syntax.
    fn unique<'a>(&mut self, names: impl Iterator<Item = &'a At<String>>, path: &str, what: &str) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.value.as_str()) {
                self.push(wording::duplicate_name(&name.value, what), join(path, &name.value), name.place);
            }
        }
    }

    fn size(&mut self, what: &str, found: usize) {
        if found > MOST {
            let finding = Finding::new(FindingCode::TooMany, format!("{found} {what}"), format!("up to {MOST} {what}"));
            self.push(finding, "", None);
        }
    }

    /// Whether something inside `path` was found already.
    fn found_inside(&self, path: &str) -> bool {
        let inside =
            |found: &str| found.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.findings.iter().any(|finding| inside(finding.path()))
    }
}
