//! What rules make of what the server says.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Checker, OUTER};
use crate::engine::{Nanos, Narrows, alike};
use crate::headers::Dialect;
use crate::rules::builder::{At, Rule};
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::Under;
use crate::rules::observe::{CheckedObserve, NONE};
use crate::rules::quota::{Quota, QuotaKind};
use crate::rules::toml::join;
use crate::rules::wording::{self, quote};

impl Checker<'_> {
    pub(super) fn observe(&mut self, rule: &Rule, path: &str, under: &Under) -> CheckedObserve {
        let path = join(path, "observe");
        let mut windows = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, narrows) in &rule.observe.windows {
            let path = join(&join(&path, "windows"), &name.value);
            self.name(name, &path, "a name of visible characters");
            if !seen.insert(name.value.to_lowercase()) {
                self.push(wording::duplicate_name(&name.value, "window"), &path, name.place);
            }
            let narrows = match narrows.value.as_str() {
                NONE => Some(Narrows::Nothing),
                "per_key" => Some(Narrows::PerKey),
                "overall" => Some(Narrows::Overall),
                limit if under.limits.iter().any(|known| **known == *limit) => Some(Narrows::Named(limit.into())),
                unknown => {
                    let known = OUTER.iter().copied().chain(under.limits.iter().map(|limit| &**limit)).chain([NONE]);
                    self.push(wording::unknown_limit(unknown, known), &path, narrows.place);
                    None
                }
            };
            windows.extend(narrows.map(|narrows| (name.value.as_str().into(), narrows)));
        }
        // Sorted, so that equal rules are equal whatever the order in which they name the windows.
        windows.sort_unstable();
        let dialect = rule.observe.dialect.as_ref().and_then(|name| self.said_dialect(name, &join(&path, "dialect")));
        CheckedObserve { dialect, windows, learn: self.learn(rule, &join(&path, "learn")) }
    }

    /// `None`: the default, said or not.
    fn said_dialect(&mut self, name: &At<String>, path: &str) -> Option<Arc<str>> {
        let is_own = self.builder.dialects.iter().any(|(own, _)| own.value == name.value);
        if !is_own && Dialect::named(&name.value).is_none() {
            let known = self.builder.dialects.iter().map(|(own, _)| own.value.as_str());
            self.push(wording::unknown_dialect_of_rule(&name.value, known), path, name.place);
        }
        (name.value != Dialect::auto().name()).then(|| name.value.as_str().into())
    }

    /// The most that a rule learns: a number in a length of time and nothing else, for a rule that has what could learn.
    fn learn(&mut self, rule: &Rule, path: &str) -> Option<Quota> {
        let most = rule.observe.learn.as_ref()?;
        let before = self.findings.len();
        let plain = Quota::new(most.value.count(), most.value.period());
        if most.value == plain {
            super::quota(&plain, Nanos::ZERO, &mut |finding| self.findings.push(finding.at(path, most.place)));
        } else {
            let found = quote(&most.value.to_string());
            let finding = Finding::new(FindingCode::InvalidQuota, found, "`N/T` alone, such as `30/1s`");
            self.push(finding, path, most.place);
        }
        if rule.caps.per_key.is_empty() {
            let finding = wording::empty("`learn` of a rule without a `per_key` of its own", "a rule with one");
            self.push(finding, path, most.place);
        } else if !rule.caps.per_key.iter().any(|own| may_learn(&own.value, &plain)) {
            let found = format!("{} for another length than each `per_key` of the rule", quote(&plain.to_string()));
            let finding = Finding::new(FindingCode::NoEffect, found, "as long as one of them");
            self.push(finding, path, most.place);
            return Some(plain);
        }
        (self.findings.len() == before).then_some(plain)
    }
}

/// Whether a quota may go by the server's number, up to this. For buckets any length tells a rate.
fn may_learn(own: &Quota, most: &Quota) -> bool {
    match own.kind() {
        QuotaKind::Bucket { .. } => true,
        QuotaKind::Window | QuotaKind::Smooth | QuotaKind::Calendar { .. } => alike(own.nanos(), most.nanos()),
    }
}
