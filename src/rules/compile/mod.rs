//! From checked rules to the plan that the engine runs.

mod limits;
mod pool;
mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::limits::Place;
use self::side::Side;
use super::model::{CheckedCaps, CheckedLane, CheckedRule, Model, Share};
use super::own::OwnNumbers;
use super::quota::Quota;
use crate::engine::{
    Charge, LanePlan, LimitRef, LimitSpec, Nanos, Origin, PaceRef, Plan, RetryBudget, RuleId, RulePlan, Zone,
};

/// How long a granted request may leave its grant unclaimed.
const LEASE: Nanos = Nanos::from_secs(1);
/// The longest hold.
const MAX_HOLD: Nanos = Nanos::from_secs(3_600);

impl Model {
    /// The lanes that rules are in, most urgent first, whether the file says something about them or not.
    pub(super) fn used_lanes(&self) -> Vec<CheckedLane> {
        let said: BTreeMap<u32, &CheckedLane> = self.lanes.iter().map(|lane| (lane.priority, lane)).collect();
        let used: BTreeSet<u32> = self.rules.iter().map(|rule| rule.priority).collect();
        used.into_iter()
            .map(|priority| said.get(&priority).map_or_else(|| CheckedLane::unsaid(priority), |lane| (*lane).clone()))
            .collect()
    }

    /// The rule of this name and its position.
    pub(super) fn rule(&self, name: &str) -> Option<(RuleId, &CheckedRule)> {
        let position = self.rules.iter().position(|rule| *rule.name == *name)?;
        Some((RuleId(u16::try_from(position).ok()?), &self.rules[position]))
    }
}

/// Compiles rules that were checked; of others it makes a plan that nobody sees.
pub(super) fn plan(model: &Model) -> Plan {
    let lanes = model.used_lanes();
    let mut keyed = Side::new(Place::Keyed);
    let mut shared = Side::new(Place::Shared);
    let lane_of = |rule: &CheckedRule| lanes.partition_point(|lane| lane.priority < rule.priority);

    let [mut under_overall, mut under_per_key] = [BTreeSet::new(), BTreeSet::new()];
    let mut under_named: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for rule in &model.rules {
        let lane = lane_of(rule);
        under_overall.extend(rule.under.overall.then_some(lane));
        under_per_key.extend(rule.under.per_key.then_some(lane));
        for name in &rule.under.limits {
            under_named.entry(name).or_default().insert(lane);
        }
    }
    let mut group = |caps: &CheckedCaps, overall: Origin, per_key: Origin, drawn: [BTreeSet<usize>; 2]| {
        let [all, each] = drawn;
        let all = shared.group(model, &caps.overall, (caps.concurrency, caps.share_overall), &overall, all);
        let each = keyed.group(model, &caps.per_key, (caps.key_concurrency, caps.share_per_key), &per_key, each);
        [all, each]
    };
    let file = group(&model.caps, Origin::Overall, Origin::PerKey, [under_overall, under_per_key]);
    let named: BTreeMap<Arc<str>, [usize; 2]> = model
        .limits
        .iter()
        .map(|limit| {
            let name = || Arc::clone(&limit.name);
            let drawn = under_named.remove(&*limit.name).unwrap_or_default();
            let origins = (Origin::NamedOverall(name()), Origin::NamedPerKey(name()));
            (name(), group(&limit.caps, origins.0, origins.1, [drawn.clone(), drawn]))
        })
        .collect();
    let caps: Vec<usize> = lanes
        .iter()
        .map(|lane| {
            let CheckedCaps { overall, concurrency, share_overall, .. } = &lane.caps;
            shared.group(
                model,
                overall,
                (*concurrency, *share_overall),
                &Origin::Lane(lane.shown_name()),
                BTreeSet::new(),
            )
        })
        .collect();

    // Of several lanes the lower ones leave room on the endpoints, too.
    let pool_clock = shared.clocks;
    if lanes.iter().skip(1).any(|lane| model.pool_interval(lane).is_some()) {
        shared.clocks += 1;
    }
    let rules = model.rules.iter().map(|rule| {
        let own = Origin::RuleOverall(Arc::clone(&rule.name));
        let own = shared.group(
            model,
            &rule.caps.overall,
            (rule.caps.concurrency, rule.caps.share_overall),
            &own,
            BTreeSet::new(),
        );
        let at = lane_of(rule);
        let mut groups = [Vec::new(), Vec::new()];
        let budgets = rule.under.limits.iter().filter_map(|name| named.get(name));
        for (kind, under) in [rule.under.overall, rule.under.per_key].into_iter().enumerate() {
            groups[kind].extend(under.then_some(file[kind]));
            groups[kind].extend(budgets.clone().map(|budget| budget[kind]));
        }
        let [mut all, each] = groups;
        all.extend([own, caps[at]]);
        let (key, key_pace) = keyed.bind(&each, at, &lanes);
        let (shared, shared_pace) = shared.bind(&all, at, &lanes);
        let of_pool = lanes.first().is_some_and(|top| top.priority < rule.priority);
        let of_pool = of_pool.then(|| model.pool_interval(&lanes[at])).flatten();
        let mut shared_pace = shared_pace.into_vec();
        shared_pace.extend(of_pool.map(|interval| PaceRef { clock: pool_clock, interval, charge: Charge::Requests }));
        rule_plan(model, rule, at, [key, shared], [key_pace, shared_pace.into()])
    });
    let rules = rules.collect();
    let lane_count = lanes.len();
    Plan {
        rules,
        lanes: lanes.iter().map(|lane| lane_plan(lane, lane_count)).collect(),
        zones: model.zones.iter().filter_map(|zone| Zone::named(zone)).collect(),
        key_clocks: keyed.clocks,
        shared_clocks: shared.clocks,
        key_limits: keyed.limits.into(),
        shared_limits: shared.limits.into(),
        lease: LEASE,
        max_hold: MAX_HOLD,
        fair_by: model.fair_by.as_ref().and_then(|unit| model.charge(unit)).unwrap_or(Charge::Requests),
        queue: model.queue,
        retry_budget: model.retry_budget.map(|Share { part, of }| RetryBudget::new(part, of)),
        ban_guard: model.guard(),
        pool: model.pool_plan(),
    }
}

/// What each key has to itself under a rule, with these quotas.
pub(super) fn own(model: &Model, rule: &CheckedRule, quotas: &[Quota]) -> Vec<LimitSpec> {
    let origin = Origin::RulePerKey(Arc::clone(&rule.name));
    let one_at_a_time = rule.ordered.then_some(1);
    model
        .specs(quotas, rule.caps.key_concurrency.or(one_at_a_time), &origin, Place::Keyed, rule.caps.share_per_key)
        .collect()
}

/// The numbers of keys that have their own.
pub(super) fn own_numbers(model: &Model) -> OwnNumbers {
    let of_key = |quotas: &BTreeMap<Arc<str>, Vec<Quota>>| {
        let rules = quotas.iter().filter_map(|(rule, quotas)| {
            let (id, rule) = model.rule(rule)?;
            Some((id, own(model, rule, quotas).into()))
        });
        rules.collect()
    };
    model.keys.iter().map(|(key, quotas)| (Arc::clone(key), of_key(quotas))).collect()
}

fn rule_plan(
    model: &Model,
    rule: &CheckedRule,
    lane: usize,
    [key, shared]: [Box<[LimitRef]>; 2],
    [key_pace, shared_pace]: [Box<[PaceRef]>; 2],
) -> RulePlan {
    RulePlan {
        name: Arc::clone(&rule.name),
        lane,
        weight: rule.weight,
        own: own(model, rule, &rule.caps.per_key).into(),
        key,
        shared,
        key_pace,
        shared_pace,
        ordered: rule.ordered,
        queue: rule.queue,
        overflow: rule.overflow,
        max_wait: rule.max_wait,
        attempt_timeout: rule.attempt_timeout,
        paused: rule.paused,
        removed: false,
        retry: rule.retry.clone(),
        observe: rule.observe_refs(),
        learn: rule.learning(model),
    }
}

fn lane_plan(lane: &CheckedLane, lanes: usize) -> LanePlan {
    LanePlan { priority: lane.priority, name: lane.shown_name(), bypass: lane.share.bypass(lanes) }
}
