//! By how much the fullest window of a limit is over, and the most that ran at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Clock, On, Run};
use crate::engine::{Charge, EndpointId, Instant, Nanos};
use crate::rules::{CheckedRule, CountFrom, Level, Quota, QuotaKind, Rules, Whose};
use crate::sim::measure::Value;
use crate::sim::own::OwnNumbers;
use crate::sim::world::Start;

/// The quotas at one place in the file.
struct Place<'r> {
    path: String,
    binds: Binds<'r>,
    each_key: bool,
    quotas: &'r [Quota],
}

impl Place<'_> {
    /// What the pool says of each endpoint is at the place of each.
    fn is_at(&self, limit: &str) -> bool {
        let of_each = match self.binds {
            Binds::Level(_) | Binds::Key(..) => None,
            Binds::Endpoint(_) => limit.strip_prefix("pool."),
        };
        limit == self.path || of_each == Some(if self.each_key { "per_key" } else { "overall" })
    }
}

#[derive(Clone, Copy)]
enum Binds<'r> {
    Level(Level<'r>),
    Endpoint(EndpointId),
    /// A key's own numbers under a rule.
    Key(u32, &'r CheckedRule),
}

/// Of all windows of the rules, or of those at one place in the file. What starts sums up to is the cost in the limit's unit; buckets and
/// calendar days are not windows.
pub(super) fn most(run: &Run<'_>, limit: Option<&str>, clock: Clock) -> Option<Value> {
    let rules = &run.setup.rules;
    let mut most = None;
    for place in places(rules).filter(|place| limit.is_none_or(|limit| place.is_at(limit))) {
        for quota in place.quotas.iter().filter(|quota| is_window(quota)) {
            let from = quota.own_count_from().unwrap_or_else(|| rules.count_from());
            let margin = match (clock, from) {
                (Clock::Starts, CountFrom::Start) => quota.own_margin().unwrap_or_else(|| rules.margin()),
                (Clock::Starts, CountFrom::Response) | (Clock::Server, _) => Duration::ZERO,
            };
            let period = quota.period().saturating_add(margin).into();
            let charge = quota.own_unit().map_or(Some(Charge::Requests), |unit| rules.unit(unit));
            let Some(charge) = charge else { continue };
            let fullest = fullest(run, &place, charge, period, clock);
            most = most.max(Some(fullest.saturating_sub(quota.count().into())));
        }
    }
    most.map(Value::Count)
}

/// The most attempts that ran at once, an attempt until its answer was back.
pub(super) fn at_once<'s>(starts: impl Iterator<Item = &'s Start>, on: On) -> u64 {
    // Who is answered in the instant in which another one starts made place for it.
    let mut changes: BTreeMap<Instant, (u64, u64)> = BTreeMap::new();
    let mut passing = 0;
    for start in starts.filter(|start| start.is_on(on)) {
        if start.answered == start.at {
            passing = 1;
            continue;
        }
        changes.entry(start.at).or_default().0 += 1;
        changes.entry(start.answered).or_default().1 += 1;
    }
    let (mut running, mut most) = (0, passing);
    for (begun, ended) in changes.into_values() {
        running = running + begun - ended;
        most = most.max(running);
    }
    most
}

/// Every place in the file that has quotas.
fn places(rules: &Rules) -> impl Iterator<Item = Place<'_>> {
    let levels = rules.levels().flat_map(|level| {
        let fields = [("overall", level.overall(), false), ("per_key", level.per_key(), true)];
        let binds = Binds::Level(level);
        fields.map(|(field, quotas, each_key)| Place { path: level.path(field), binds, each_key, quotas })
    });
    let endpoints = EndpointId::all().zip(rules.endpoint_limits()).flat_map(|(id, limits)| {
        let fields = [("overall", limits.overall, false), ("per_key", limits.per_key, true)];
        let path = |field| Level::path_of_endpoint(limits.name, field);
        let binds = Binds::Endpoint(id);
        fields.map(|(field, quotas, each_key)| Place { path: path(field), binds, each_key, quotas })
    });
    let keys = rules.keys().filter_map(|name| Some((name, name.parse().ok()?)));
    let keys = keys.flat_map(move |(name, key)| {
        rules.iter().filter_map(move |rule| {
            let (path, binds) = (Level::path_of_key(name, rule), Binds::Key(key, rule));
            Some(Place { path, binds, each_key: true, quotas: rules.key_quotas(name, rule.name())? })
        })
    });
    levels.chain(endpoints).chain(keys)
}

/// The places of limits that have windows.
pub(crate) fn known(rules: &Rules) -> Vec<String> {
    let has_windows = |place: &Place<'_>| place.quotas.iter().any(is_window);
    let mut known: Vec<String> = places(rules).filter(has_windows).map(|place| place.path).collect();
    for field in ["pool.overall", "pool.per_key"] {
        if places(rules).any(|place| has_windows(&place) && place.path != field && place.is_at(field)) {
            known.push(field.to_owned());
        }
    }
    known
}

fn is_window(quota: &Quota) -> bool {
    match quota.kind() {
        QuotaKind::Window | QuotaKind::Smooth => true,
        QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => false,
    }
}

/// The most that starts, or arrives at the server, in any half-open interval of a length.
fn fullest(run: &Run<'_>, place: &Place<'_>, charge: Charge, period: Nanos, clock: Clock) -> u64 {
    let rules = run.setup.rules.iter();
    let rules_bound: Vec<bool> = match place.binds {
        Binds::Level(level) if place.each_key => rules.map(|rule| level.binds_per_key(rule)).collect(),
        Binds::Level(level) => rules.map(|rule| level.binds_overall(rule)).collect(),
        Binds::Endpoint(_) => rules.map(|_| true).collect(),
        Binds::Key(_, under) => rules.map(|rule| rule.name() == under.name()).collect(),
    };
    let (endpoint, only) = match place.binds {
        Binds::Level(_) => (None, None),
        Binds::Endpoint(id) => (Some(id), None),
        Binds::Key(key, _) => (None, Some(key)),
    };
    // Keys with numbers of their own under a rule are not under those of the rule.
    let own: BTreeSet<(u16, u32)> = match place.binds {
        Binds::Level(level) if place.each_key && matches!(level.whose, Whose::Rule(_)) => {
            OwnNumbers::new(&run.setup.rules).iter().map(|(rule, key, _)| (rule, key)).collect()
        }
        Binds::Level(_) | Binds::Endpoint(_) | Binds::Key(..) => BTreeSet::new(),
    };
    let is_under = |start: &&Start| {
        let (rule, key) = (run.rule(start.call), run.log.calls[start.call as usize].key);
        rules_bound[usize::from(rule)] && only.is_none_or(|only| only == key) && !own.contains(&(rule, key))
    };
    let mut instants: Vec<(u32, Instant, u32)> = run
        .log
        .starts
        .iter()
        .filter(|start| is_under(start) && start.is_on(endpoint))
        .map(|start| {
            let call = run.log.calls[start.call as usize];
            let at = match clock {
                Clock::Starts => start.at,
                Clock::Server => start.arrived,
            };
            (if place.each_key { call.key } else { 0 }, at, call.cost.of(charge))
        })
        .filter(|&(_, at, _)| at != Instant::NEVER)
        .collect();
    instants.sort_unstable();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for &(key, at, cost) in &instants {
        while let (first_key, first_at, first_cost) = instants[first]
            && (first_key != key || first_at.saturating_add(period) <= at)
        {
            sum -= u64::from(first_cost);
            first += 1;
        }
        sum += u64::from(cost);
        most = most.max(sum);
    }
    most
}
