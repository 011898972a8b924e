//! From checked rules to the plan that the engine runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::model::{CheckedCaps, CheckedLane, CheckedRule, Model, Pace, Share};
use super::quota::Quota;
use crate::engine::{Anchor, Charge, LanePlan, LimitKind, LimitRef, LimitSpec, Nanos, Origin, PaceRef, Plan, RulePlan};

/// How long a granted request may leave its grant unclaimed.
const LEASE: Nanos = Nanos::from_secs(1);
/// The longest hold.
const MAX_HOLD: Nanos = Nanos::from_secs(3_600);
/// From this count on lower lanes leave one in so many free.
const RESERVE_FROM: u32 = 50;

impl Model {
    /// The lanes that rules are in, most urgent first, whether the file says something about them or not.
    pub(super) fn used_lanes(&self) -> Vec<CheckedLane> {
        let said: BTreeMap<u32, &CheckedLane> = self.lanes.iter().map(|lane| (lane.priority, lane)).collect();
        let used: BTreeSet<u32> = self.rules.iter().map(|rule| rule.priority).collect();
        used.into_iter()
            .map(|priority| said.get(&priority).map_or_else(|| CheckedLane::unsaid(priority), |lane| (*lane).clone()))
            .collect()
    }

    /// How long a start counts against `quota`: its period and its margin.
    pub(super) fn period(&self, quota: &Quota) -> Nanos {
        quota.nanos().saturating_add(quota.margin_nanos().unwrap_or(self.margin))
    }

    fn window(&self, quota: &Quota, origin: &Origin) -> LimitSpec {
        let anchor = quota.own_count_from().unwrap_or(self.count_from).anchor();
        let kind = LimitKind::Window { count: quota.count(), period: self.period(quota), anchor, grain: Nanos::ZERO };
        LimitSpec { origin: origin.clone(), kind, charge: Charge::Requests }
    }

    /// What one `overall` or `per_key` with its concurrency cap enforces.
    fn specs<'a>(
        &'a self,
        quotas: &'a [Quota],
        concurrency: Option<u32>,
        origin: &'a Origin,
    ) -> impl Iterator<Item = LimitSpec> + 'a {
        quotas.iter().map(|quota| self.window(quota, origin)).chain(concurrency.map(|count| cap(count, origin)))
    }
}

fn cap(count: u32, origin: &Origin) -> LimitSpec {
    let kind = LimitKind::Window { count, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO };
    LimitSpec { origin: origin.clone(), kind, charge: Charge::Attempt }
}

/// Compiles rules that were checked; of others it makes a plan that nobody sees.
pub(super) fn plan(model: &Model) -> Plan {
    let lanes = model.used_lanes();
    let mut keyed = Side::default();
    let mut shared = Side::default();
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
        let all = shared.group(model, &caps.overall, caps.concurrency, overall, all);
        let each = keyed.group(model, &caps.per_key, caps.key_concurrency, per_key, each);
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
            let CheckedCaps { overall, concurrency, .. } = &lane.caps;
            shared.group(model, overall, *concurrency, Origin::Lane(lane.shown_name()), BTreeSet::new())
        })
        .collect();

    let rules = model.rules.iter().map(|rule| {
        let own = Origin::RuleOverall(Arc::clone(&rule.name));
        let own = shared.group(model, &rule.caps.overall, rule.caps.concurrency, own, BTreeSet::new());
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
        rule_plan(model, rule, at, [key, shared], [key_pace, shared_pace])
    });
    let rules = rules.collect();
    let lane_count = lanes.len();
    Plan {
        rules,
        lanes: lanes.iter().map(|lane| lane_plan(lane, lane_count)).collect(),
        zones: Box::default(),
        key_clocks: keyed.clocks,
        shared_clocks: shared.clocks,
        key_limits: keyed.limits.into(),
        shared_limits: shared.limits.into(),
        lease: LEASE,
        max_hold: MAX_HOLD,
        fair_by: Charge::Requests,
        ban_guard: None,
    }
}

fn rule_plan(
    model: &Model,
    rule: &CheckedRule,
    lane: usize,
    [key, shared]: [Box<[LimitRef]>; 2],
    [key_pace, shared_pace]: [Box<[PaceRef]>; 2],
) -> RulePlan {
    let origin = Origin::RulePerKey(Arc::clone(&rule.name));
    let one_at_a_time = rule.ordered.then_some(1);
    let own = model.specs(&rule.caps.per_key, rule.caps.key_concurrency.or(one_at_a_time), &origin);
    RulePlan {
        name: Arc::clone(&rule.name),
        lane,
        weight: rule.weight,
        own: own.collect(),
        key,
        shared,
        key_pace,
        shared_pace,
        ordered: rule.ordered,
        queue: rule.queue,
        overflow: rule.overflow,
        max_wait: rule.max_wait,
        paused: rule.paused,
        removed: false,
        retry: rule.retry.clone(),
    }
}

fn lane_plan(lane: &CheckedLane, lanes: usize) -> LanePlan {
    let Share { part, of } = lane.share;
    let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
    let bypass = (part > 0).then(|| of.div_ceil(part).saturating_sub(lanes).max(1));
    LanePlan { priority: lane.priority, name: lane.shown_name(), bypass }
}

/// One side of the plan: the limits in the keys' records, or those beside them.
#[derive(Default)]
struct Side {
    limits: Vec<LimitSpec>,
    groups: Vec<Group>,
    clocks: usize,
}

/// The limits that stand under one name in the rules.
struct Group {
    limits: std::ops::Range<usize>,
    windows: Vec<Window>,
    /// Positions of the lanes that draw on it.
    lanes: BTreeSet<usize>,
    /// Made when the first rule goes by it.
    clock: Option<usize>,
}

struct Window {
    count: u32,
    /// Without the margin: it is what the pace horizon is compared with.
    period: Nanos,
    /// Time between two starts that use the window evenly up.
    interval: Nanos,
}

impl Side {
    fn group(
        &mut self,
        model: &Model,
        quotas: &[Quota],
        concurrency: Option<u32>,
        origin: Origin,
        lanes: BTreeSet<usize>,
    ) -> usize {
        let begin = self.limits.len();
        self.limits.extend(model.specs(quotas, concurrency, &origin));
        let windows = quotas.iter().map(|quota| Window {
            count: quota.count(),
            period: quota.nanos(),
            interval: model.period(quota).div_ceil(quota.count().into()),
        });
        let limits = begin..self.limits.len();
        self.groups.push(Group { limits, windows: windows.collect(), lanes, clock: None });
        self.groups.len() - 1
    }

    /// What the groups mean for a rule of the lane at position `lane`.
    fn bind(&mut self, groups: &[usize], lane: usize, lanes: &[CheckedLane]) -> (Box<[LimitRef]>, Box<[PaceRef]>) {
        let mut refs = Vec::new();
        let mut paces = Vec::new();
        for number in groups {
            let group = &mut self.groups[*number];
            let horizon = match lanes[lane].pace {
                Pace::UpTo(horizon) if group.lanes.first().is_some_and(|first| *first < lane) => Some(horizon),
                Pace::UpTo(_) | Pace::Off => None,
            };
            refs.extend(group.limits.clone().enumerate().map(|(nth, limit)| {
                let count = group.windows.get(nth).map(|window| window.count);
                let reserve = count.filter(|count| horizon.is_some() && *count >= RESERVE_FROM);
                LimitRef { limit, reserve: reserve.map_or(0, |count| count.div_ceil(RESERVE_FROM)) }
            }));
            let interval = horizon.and_then(|horizon| {
                let short = group.windows.iter().filter(|window| window.period <= horizon);
                short.map(|window| window.interval).max()
            });
            if let Some(interval) = interval {
                let clock = *group.clock.get_or_insert_with(|| {
                    self.clocks += 1;
                    self.clocks - 1
                });
                paces.push(PaceRef { clock, interval, charge: Charge::Requests });
            }
        }
        (refs.into(), paces.into())
    }
}
