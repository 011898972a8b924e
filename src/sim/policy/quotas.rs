//! The quotas of a rules file as libraries know them that have neither windows nor margins: so many at once, and then one
//! every so often.

use std::collections::BTreeMap;

use crate::engine::{Charge, Nanos};
use crate::rules::{CheckedRule, Quota, QuotaKind, Rules, Whose};

/// Which counter: one for each key of a rule, one for each key, or one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    Own { rule: u16, key: u32, limit: usize },
    Key { key: u32, limit: usize },
    Shared { limit: usize },
}

/// How a quota lets calls go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) charge: Charge,
    /// T/N.
    pub(crate) interval: Nanos,
    /// So many at once.
    pub(crate) burst: u32,
}

/// Those of each rule, and those that keys have of their own.
#[derive(Debug)]
pub(crate) struct Quotas {
    rules: Vec<OfRule>,
    own: BTreeMap<(u16, u32), Vec<Shape>>,
}

#[derive(Debug, Default)]
struct OfRule {
    own: Vec<Shape>,
    keyed: Vec<(usize, Shape)>,
    shared: Vec<(usize, Shape)>,
}

impl Quotas {
    pub(crate) fn new(rules: &Rules) -> Self {
        let shapes = |quotas: &[Quota]| quotas.iter().filter_map(|quota| Shape::of(rules, quota)).collect();
        let numbered = || (0_u16..).zip(rules);
        let own = rules.keys().filter_map(|name| Some((name, name.parse().ok()?)));
        let own = own.flat_map(|(name, key): (&str, u32)| {
            let quotas = numbered().filter_map(move |(id, rule)| Some((id, rules.key_quotas(name, rule.name())?)));
            quotas.map(move |(id, quotas)| ((id, key), shapes(quotas)))
        });
        Self { rules: rules.iter().map(|rule| OfRule::new(rules, rule)).collect(), own: own.collect() }
    }

    /// What a call of a key under a rule has to get past, in this order.
    pub(crate) fn of(&self, rule: u16, key: u32) -> impl Iterator<Item = (Which, Shape)> {
        let of_rule = &self.rules[usize::from(rule)];
        let own = self.own.get(&(rule, key)).unwrap_or(&of_rule.own).iter().enumerate();
        let own = own.map(move |(limit, &shape)| (Which::Own { rule, key, limit }, shape));
        let keyed = of_rule.keyed.iter().map(move |&(limit, shape)| (Which::Key { key, limit }, shape));
        let shared = of_rule.shared.iter().map(|&(limit, shape)| (Which::Shared { limit }, shape));
        own.chain(keyed).chain(shared)
    }
}

impl OfRule {
    fn new(rules: &Rules, rule: &CheckedRule) -> Self {
        let mut of_rule = Self::default();
        let mut limit = 0;
        for level in rules.levels() {
            let is_own = matches!(level.whose, Whose::Rule(_));
            for shape in level.per_key().iter().filter_map(|quota| Shape::of(rules, quota)) {
                match (level.binds_per_key(rule), is_own) {
                    (true, true) => of_rule.own.push(shape),
                    (true, false) => of_rule.keyed.push((limit, shape)),
                    (false, _) => {}
                }
                limit += 1;
            }
            for shape in level.overall().iter().filter_map(|quota| Shape::of(rules, quota)) {
                if level.binds_overall(rule) {
                    of_rule.shared.push((limit, shape));
                }
                limit += 1;
            }
        }
        of_rule
    }
}

impl Shape {
    fn of(rules: &Rules, quota: &Quota) -> Option<Self> {
        let count = u64::from(quota.count().max(1));
        let period = Nanos::from(quota.period());
        let (interval, burst) = match quota.kind() {
            QuotaKind::Window => (Nanos::new(period.get() / count), quota.count()),
            QuotaKind::Smooth => (period.div_ceil(count), 1),
            QuotaKind::Bucket { burst } => (period.div_ceil(count), *burst),
            QuotaKind::Calendar { .. } => (Nanos::new(period.get() / count), quota.count()),
        };
        let charge = quota.own_unit().map_or(Some(Charge::Requests), |unit| rules.unit(unit))?;
        Some(Self { charge, interval, burst })
    }
}
