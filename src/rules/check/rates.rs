//! Rates that an outer limit never lets a rule reach.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Checker;
use crate::rules::builder::At;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::{CheckedCaps, CheckedRule, Model};
use crate::rules::pool::CheckedPool;
use crate::rules::quota::{Quota, QuotaKind};
use crate::rules::toml::join;

/// What a list of quotas lets through of one unit in the long run, and where it stands.
#[derive(Clone)]
struct Rate {
    quota: Quota,
    /// With the margin.
    period: u128,
    path: String,
    /// Which of the list it is.
    nth: usize,
}

/// The rates of a list, one for each unit that it counts.
type Rates = Vec<Rate>;

impl Rate {
    /// Those of the tightest quota of each unit.
    fn of(quotas: &[Quota], model: &Model, list: &str) -> Rates {
        let mut tightest: Rates = Vec::new();
        for (nth, quota) in quotas.iter().enumerate() {
            let path = if quotas.len() > 1 { format!("{list}[{nth}]") } else { list.to_owned() };
            let rate = Self { quota: quota.clone(), period: model.period(quota).get().into(), path, nth };
            match tightest.iter_mut().find(|known| known.quota.own_unit() == quota.own_unit()) {
                Some(known) if rate.cmp(known) == Ordering::Less => *known = rate,
                Some(_) => {}
                None => tightest.push(rate),
            }
        }
        tightest
    }

    /// Whether `outer` keeps this rate from ever being reached.
    fn is_out_of_reach(&self, outer: &Self) -> bool {
        let comparable = match outer.quota.kind() {
            // A day's budget may be spent in a minute, and what is below it then spreads it.
            QuotaKind::Calendar { .. } => matches!(self.quota.kind(), QuotaKind::Calendar { .. }),
            // So may what is in store: a rate alone says little beside it.
            QuotaKind::Bucket { .. } => outer.at_once() <= self.at_once(),
            QuotaKind::Window | QuotaKind::Smooth => {
                !matches!(self.quota.kind(), QuotaKind::Bucket { .. }) || outer.at_once() <= self.at_once()
            }
        };
        comparable && self.quota.own_unit() == outer.quota.own_unit() && self.cmp(outer) == Ordering::Greater
    }

    /// How many may go at once.
    fn at_once(&self) -> u32 {
        match self.quota.kind() {
            QuotaKind::Window | QuotaKind::Calendar { .. } => self.quota.count(),
            QuotaKind::Smooth => 1,
            QuotaKind::Bucket { burst } => *burst,
        }
    }

    /// How many in a length of time that all can be compared by, less than one left out.
    fn in_a_while(&self) -> u128 {
        const WHILE: u128 = 1 << 90;
        u128::from(self.quota.count()) * (WHILE / self.period.max(1))
    }

    /// Exact: counts are below 2^32 and periods below 2^64.
    fn cmp(&self, other: &Self) -> Ordering {
        let own = u128::from(self.quota.count()) * other.period;
        own.cmp(&(u128::from(other.quota.count()) * self.period))
    }
}

/// The rates of what is outside the rules.
struct Outer {
    overall: Rates,
    per_key: Rates,
    /// By name: overall, per key.
    limits: BTreeMap<String, [Rates; 2]>,
    lanes: BTreeMap<u32, Rates>,
}

impl Checker<'_> {
    /// Not said if a rule could not be read: it may not be under what it seems to be under.
    pub(super) fn rates(&mut self, model: &Model) {
        if self.unsure {
            return;
        }
        let outer = Outer::of(model);
        self.rates_of_pool(model, &outer);
        for (number, rule) in model.rules.iter().enumerate() {
            let path = join("rules", &rule.name);
            let [overall, per_key] = rates(&rule.caps, model, &path);
            let above: Vec<&Rate> = outer.overall(rule).collect();
            let wider: Vec<&Rate> = above.iter().copied().chain(&overall).chain(outer.per_key(rule)).collect();
            let caps = self.builder.rules.get(number).map(|(_, rule)| &rule.caps);
            self.unreachable(&overall, &above, caps.map(|caps| &caps.overall));
            self.unreachable(&per_key, &wider, caps.map(|caps| &caps.per_key));
            for (key, own) in &self.builder.keys {
                for (_, quotas) in own.iter().filter(|(name, _)| *name.value == *rule.name) {
                    let checked = model.keys.get(&*key.value).and_then(|own| own.get(&*rule.name));
                    let path = join(&join("keys", &key.value), &rule.name);
                    let own = checked.map_or_else(Rates::new, |checked| Rate::of(checked, model, &path));
                    self.unreachable(&own, &wider, Some(quotas));
                }
            }
        }
    }

    /// A key's rate above that of its endpoint, and endpoints that together may do more than all calls.
    fn rates_of_pool(&mut self, model: &Model, outer: &Outer) {
        let (Some(pool), Some(said)) = (&model.pool, &self.builder.pool) else { return };
        let [overall, per_key] = rates(&pool.caps, model, "pool");
        self.unreachable(&per_key, &overall.iter().collect::<Vec<_>>(), Some(&said.caps.per_key));
        for (endpoint, (_, said)) in pool.endpoints.iter().zip(&said.endpoints) {
            let path = join("pool.endpoints", &endpoint.name);
            let [overall, _] = rates(&endpoint.over(&pool.caps), model, &path);
            let [_, per_key] = rates(&endpoint.caps, model, &path);
            self.unreachable(&per_key, &overall.iter().collect::<Vec<_>>(), Some(&said.caps.per_key));
        }
        if model.rules.iter().all(|rule| rule.under.overall) {
            for all in &outer.overall {
                self.wider_than(all, pool, model);
            }
        }
    }

    /// Says that endpoints together may do more than all calls.
    fn wider_than(&mut self, all: &Rate, pool: &CheckedPool, model: &Model) {
        if !matches!(all.quota.kind(), QuotaKind::Window | QuotaKind::Smooth) {
            return;
        }
        let rates: Option<Vec<Rate>> = pool
            .endpoints
            .iter()
            .map(|endpoint| {
                let rates = Rate::of(&endpoint.over(&pool.caps).overall, model, "pool.overall");
                rates.into_iter().find(|rate| rate.quota.own_unit() == all.quota.own_unit())
            })
            .collect();
        // Without a rate of one of them they may do anything, which is what `overall` is for.
        let Some(rates) = rates.filter(|rates| !rates.is_empty()) else { return };
        if rates.iter().map(Rate::in_a_while).sum::<u128>() <= all.in_a_while() {
            return;
        }
        let found = match rates.as_slice() {
            [only] => format!("`{}`", only.quota),
            [first, others @ ..] if others.iter().all(|other| other.quota == first.quota) => {
                format!("`{}` on each of {} endpoints", first.quota, rates.len())
            }
            [..] => format!("{} endpoints", rates.len()),
        };
        let found = format!("{found}, a rate above that of `{}`", all.path);
        let allowed = format!("up to the rate of `{}` in all", all.quota);
        let said = self.builder.pool.as_ref().and_then(|pool| pool.caps.overall.get(rates[0].nth));
        let place = said.and_then(|quota| quota.place);
        let path = if said.is_some() { &rates[0].path } else { "pool.endpoints" };
        self.push(Finding::new(FindingCode::UnreachableRate, found, allowed), path, place);
    }

    /// Says which of the `own` rates of a list one of the `outer` ones keeps from being reached.
    fn unreachable(&mut self, own: &Rates, outer: &[&Rate], list: Option<&Vec<At<Quota>>>) {
        for rate in own {
            let above = outer.iter().filter(|outer| rate.is_out_of_reach(outer));
            let Some(tightest) = above.min_by(|a, b| a.cmp(b)) else { continue };
            let found = format!("`{}`, a rate above that of `{}`", rate.quota, tightest.path);
            let allowed = format!("up to the rate of `{}`", tightest.quota);
            let place = list.and_then(|list| list.get(rate.nth)).and_then(|quota| quota.place);
            self.push(Finding::new(FindingCode::UnreachableRate, found, allowed), &rate.path, place);
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
    fn overall<'a>(&'a self, rule: &'a CheckedRule) -> impl Iterator<Item = &'a Rate> {
        let file = self.overall.iter().filter(|_| rule.under.overall);
        file.chain(self.named(rule, 0)).chain(self.lanes.get(&rule.priority).into_iter().flatten())
    }

    /// What limits each key of the rule, besides itself.
    fn per_key<'a>(&'a self, rule: &'a CheckedRule) -> impl Iterator<Item = &'a Rate> {
        self.per_key.iter().filter(|_| rule.under.per_key).chain(self.named(rule, 1))
    }

    fn named<'a>(&'a self, rule: &'a CheckedRule, kind: usize) -> impl Iterator<Item = &'a Rate> {
        rule.under.limits.iter().filter_map(move |name| Some(&self.limits.get(&**name)?[kind])).flatten()
    }
}

/// The rates of `overall` and `per_key`.
fn rates(caps: &CheckedCaps, model: &Model, path: &str) -> [Rates; 2] {
    [Rate::of(&caps.overall, model, &join(path, "overall")), Rate::of(&caps.per_key, model, &join(path, "per_key"))]
}
