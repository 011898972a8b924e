//! Rates that an outer limit never lets a rule reach.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Checker;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::{CheckedCaps, CheckedRule, Model};
use crate::rules::quota::Quota;
use crate::rules::toml::join;

/// What a list of quotas lets through in the long run, and where it stands.
#[derive(Clone)]
struct Rate {
    quota: Quota,
    /// With the margin.
    period: u128,
    path: String,
    /// Which of the list it is.
    nth: usize,
}

impl Rate {
    /// That of the tightest quota of the list.
    fn of(quotas: &[Quota], model: &Model, path: &str, name: &str) -> Option<Self> {
        let rate = |(nth, quota): (usize, &Quota)| Self {
            quota: *quota,
            period: model.period(quota).get().into(),
            path: String::new(),
            nth,
        };
        let tightest = quotas.iter().enumerate().map(rate).min_by(Self::cmp)?;
        let list = join(path, name);
        let path = if quotas.len() > 1 { format!("{list}[{}]", tightest.nth) } else { list };
        Some(Self { path, ..tightest })
    }

    /// Exact: counts are below 2^32 and periods below 2^64.
    fn cmp(&self, other: &Self) -> Ordering {
        let own = u128::from(self.quota.count()) * other.period;
        own.cmp(&(u128::from(other.quota.count()) * self.period))
    }
}

/// The rates of what is outside the rules.
struct Outer {
    overall: Option<Rate>,
    per_key: Option<Rate>,
    /// By name: overall, per key.
    limits: BTreeMap<String, [Option<Rate>; 2]>,
    lanes: BTreeMap<u32, Option<Rate>>,
}

impl Checker<'_> {
    /// Not said if a rule could not be read: it may not be under what it seems to be under.
    pub(super) fn rates(&mut self, model: &Model) {
        if self.unsure {
            return;
        }
        let outer = Outer::of(model);
        for (number, rule) in model.rules.iter().enumerate() {
            let path = join("rules", &rule.name);
            let [overall, per_key] = rates(&rule.caps, model, &path);
            let above = outer.overall(rule);
            let wider = above.clone().chain(overall.as_ref()).chain(outer.per_key(rule));
            let findings = [unreachable(overall.as_ref(), above), unreachable(per_key.as_ref(), wider)];
            let caps = self.builder.rules.get(number).map(|(_, rule)| &rule.caps);
            let lists = caps.map(|caps| [&caps.overall, &caps.per_key]);
            for (kind, found) in findings.into_iter().enumerate() {
                let Some((finding, rate)) = found else { continue };
                let place = lists.and_then(|lists| lists[kind].get(rate.nth)).and_then(|quota| quota.place);
                self.push(finding, &rate.path, place);
            }
        }
    }
}

impl Outer {
    fn of(model: &Model) -> Self {
        let [overall, per_key] = rates(&model.caps, model, "");
        let limits = model
            .limits
            .iter()
            .map(|limit| (limit.name.to_string(), rates(&limit.caps, model, &join("limits", &limit.name))));
        let lanes = model.lanes.iter().map(|lane| {
            let [overall, _] = rates(&lane.caps, model, &join("lanes", &lane.priority.to_string()));
            (lane.priority, overall)
        });
        Self { overall, per_key, limits: limits.collect(), lanes: lanes.collect() }
    }

    /// What limits all keys of the rule together, besides itself.
    fn overall<'a>(&'a self, rule: &'a CheckedRule) -> impl Iterator<Item = &'a Rate> + Clone {
        let file = self.overall.as_ref().filter(|_| rule.under.overall);
        file.into_iter().chain(self.named(rule, 0)).chain(self.lanes.get(&rule.priority).and_then(Option::as_ref))
    }

    /// What limits each key of the rule, besides itself.
    fn per_key<'a>(&'a self, rule: &'a CheckedRule) -> impl Iterator<Item = &'a Rate> + Clone {
        self.per_key.as_ref().filter(|_| rule.under.per_key).into_iter().chain(self.named(rule, 1))
    }

    fn named<'a>(&'a self, rule: &'a CheckedRule, kind: usize) -> impl Iterator<Item = &'a Rate> + Clone {
        rule.under.limits.iter().filter_map(move |name| self.limits.get(&**name)?[kind].as_ref())
    }
}

/// The rates of `overall` and `per_key`.
fn rates(caps: &CheckedCaps, model: &Model, path: &str) -> [Option<Rate>; 2] {
    [Rate::of(&caps.overall, model, path, "overall"), Rate::of(&caps.per_key, model, path, "per_key")]
}

/// Whether one of the `outer` rates is below `own`: the finding about the lowest of them.
fn unreachable<'a>(own: Option<&'a Rate>, outer: impl Iterator<Item = &'a Rate>) -> Option<(Finding, &'a Rate)> {
    let own = own?;
    let tightest = outer.min_by(|a, b| Rate::cmp(a, b))?;
    if own.cmp(tightest) != Ordering::Greater {
        return None;
    }
    let found = format!("`{}`, a rate above that of `{}`", own.quota, tightest.path);
    let allowed = format!("up to the rate of `{}`", tightest.quota);
    Some((Finding::new(FindingCode::UnreachableRate, found, allowed), own))
}
