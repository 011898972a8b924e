//! The numbers that keys have of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Checker, Read};
use crate::engine::{LimitSpec, RuleId};
use crate::rules::builder::{At, RulesBuilder};
use crate::rules::compile;
use crate::rules::finding::{Finding, FindingCode, Findings, Severity};
use crate::rules::model::Model;
use crate::rules::own::KeyQuotas;
use crate::rules::quota::Quota;
use crate::rules::toml::join;
use crate::rules::wording;

impl Checker<'_> {
    /// The quotas of `keys`; `rules` are the names of all rules.
    pub(super) fn key_quotas(&mut self, rules: &[Arc<str>]) -> KeyQuotas {
        let unread = self.builder.rules.is_empty() && self.found_inside("rules");
        let mut checked = KeyQuotas::new();
        for (key, own) in &self.builder.keys {
            let path = join("keys", &key.value);
            let mut by_rule = BTreeMap::new();
            for (rule, quotas) in own {
                let path = join(&path, &rule.value);
                if !unread && !rules.iter().any(|known| **known == *rule.value) {
                    self.push(wording::unknown_rule(&rule.value, rules.iter().map(|name| &**name)), &path, rule.place);
                }
                let is_known = |(name, _): &&(At<String>, _)| name.value == rule.value;
                if let Some((_, outer)) = self.builder.rules.iter().find(is_known)
                    && outer.caps.share_per_key.as_ref().is_some_and(|at| at.value)
                {
                    self.shared_quotas(quotas, &path, rule.place);
                }
                by_rule.insert(rule.value.as_str().into(), self.quotas(quotas, &path));
            }
            checked.insert(key.value.as_str().into(), by_rule);
        }
        checked
    }
}

/// Checks and compiles quotas that a key gets under a rule of rules that were checked.
pub(in crate::rules) fn own(
    model: &Model,
    rule: &str,
    quotas: &[Quota],
) -> Result<(RuleId, Arc<[LimitSpec]>), Findings> {
    let outer = RulesBuilder {
        margin: Some(model.margin.into()),
        count_from: Some(model.count_from),
        units: model.units.iter().map(|unit| unit.to_string().into()).collect(),
        ..RulesBuilder::default()
    };
    let mut checker = Checker::new(&outer, Read::default());
    let path = join(&join("rules", rule), "per_key");
    let known = model.rule(rule);
    if known.is_none() {
        checker.push(wording::unknown_rule(rule, model.rules.iter().map(|rule| &*rule.name)), &path, None);
    }
    if quotas.is_empty() {
        checker.push(wording::empty("an empty list", "at least one quota"), &path, None);
    }
    let list: Vec<At<Quota>> = quotas.iter().cloned().map(At::from).collect();
    let checked = checker.quotas(&list, &path);
    if known.as_ref().is_some_and(|(_, rule)| rule.caps.share_per_key) {
        checker.shared_quotas(&list, &path, None);
    }
    let found = checker.findings.len();
    for zone in std::mem::take(&mut checker.zones) {
        // A zone that does not exist is found already.
        if found == 0 && !model.zones.contains(&zone) {
            let allowed = match model.zones.as_slice() {
                [] => "a time zone that a quota of the rules has; there is none".to_owned(),
                zones => wording::list(zones.iter().map(|zone| &**zone)),
            };
            checker.push(Finding::new(FindingCode::UnknownZone, wording::quote(&zone), allowed), &path, None);
        }
    }
    checker.findings.retain(|finding| finding.severity() == Severity::Error);
    match known {
        Some((id, rule)) if checker.findings.is_empty() => Ok((id, compile::own(model, rule, &checked).into())),
        Some(_) | None => Err(Findings::new(checker.findings)),
    }
}
