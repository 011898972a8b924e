//! The limits of a rules file, read from what the file says and not from what the engine makes of it.

use std::time::Duration;

use super::log::Clock;
use super::start::Start;
use crate::rules::{CheckedRule, CountFrom, EndpointLimits, Level, Quota, QuotaKind, Rules, Whose};

/// One number of the file.
#[derive(Debug)]
pub(super) struct Limit<'r> {
    binds: Binds<'r>,
    /// Where the file says so.
    pub(super) path: String,
    /// What it says there.
    pub(super) quota: String,
    pub(super) allowed: u32,
    /// `None`: requests.
    pub(super) unit: Option<&'r str>,
    pub(super) counted: Counted<'r>,
}

/// Whom a limit binds.
#[derive(Clone, Copy, Debug)]
enum Binds<'r> {
    /// All keys together.
    All(Level<'r>),
    /// Each key, but where it gives way those that have quotas of their own.
    Each(Level<'r>, OwnQuotas),
    /// One key under one rule.
    Key(&'r str, &'r CheckedRule),
    /// All keys together on one endpoint.
    On(&'r str),
    /// Each key on one endpoint.
    EachOn(&'r str),
}

/// What quotas of a single key mean for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnQuotas {
    /// They take its place.
    Replace,
    /// Nothing.
    Leave,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted<'r> {
    /// An attempt counts from its start on, for a period.
    FromStart(Duration),
    /// An attempt counts from its start until a period after its end.
    FromEnd(Duration),
    /// An attempt counts from its start to its end, and as one, whatever it costs.
    WhileRunning,
    /// Each start is followed by so much time per unit of its cost.
    Spaced(Duration),
    /// A bucket, full at first, gets back the allowed number in each period.
    Bucket { burst: u32, period: Duration },
    /// A start counts from one midnight of a zone to the next.
    Calendar(&'r str),
}

impl<'r> Limit<'r> {
    /// Whose start it counts: nobody's, that of a key, or of all keys together.
    pub(super) fn of<'s>(&self, rules: &Rules, start: &'s Start) -> Option<Option<&'s str>> {
        let rule = rules.rule(&start.rule)?;
        let key = Some(&*start.key);
        match self.binds {
            Binds::All(level) => level.binds_overall(rule).then_some(None),
            Binds::Each(level, own) => {
                let replaced = own == OwnQuotas::Replace && rules.key_quotas(&start.key, rule.name()).is_some();
                (level.binds_per_key(rule) && !replaced).then_some(key)
            }
            Binds::On(endpoint) => (start.endpoint.as_deref() == Some(endpoint)).then_some(None),
            Binds::EachOn(endpoint) => (start.endpoint.as_deref() == Some(endpoint)).then_some(key),
            Binds::Key(only, under) => (start.key == only && under.name() == rule.name()).then_some(key),
        }
    }

    /// Whether it limits starts on an endpoint.
    pub(super) const fn is_of_endpoint(&self) -> bool {
        match self.binds {
            Binds::On(_) | Binds::EachOn(_) => true,
            Binds::All(_) | Binds::Each(..) | Binds::Key(..) => false,
        }
    }

    /// All limits of the rules.
    pub(super) fn all(rules: &'r Rules, clock: Clock) -> Vec<Self> {
        let mut all = Vec::new();
        for level in rules.levels() {
            let own = if matches!(level.whose, Whose::Rule(_)) { OwnQuotas::Replace } else { OwnQuotas::Leave };
            for quota in level.overall() {
                of_quota(&mut all, rules, quota, Binds::All(level), level.path("overall"), clock);
            }
            for quota in level.per_key() {
                of_quota(&mut all, rules, quota, Binds::Each(level, own), level.path("per_key"), clock);
            }
            let mut cap = |binds, field: &str, quota: String, allowed| {
                let (path, counted) = (level.path(field), Counted::WhileRunning);
                all.push(Limit { binds, path, quota, allowed, unit: None, counted });
            };
            if let Some(most) = level.concurrency() {
                cap(Binds::All(level), "concurrency", most.to_string(), most);
            }
            let each = Binds::Each(level, OwnQuotas::Leave);
            if let Some(most) = level.key_concurrency() {
                cap(each, "key_concurrency", most.to_string(), most);
            } else if matches!(level.whose, Whose::Rule(rule) if rule.ordered()) {
                cap(each, "ordered", "one at a time".to_owned(), 1);
            }
        }
        for endpoint in rules.endpoint_limits() {
            of_endpoint(&mut all, rules, endpoint, clock);
        }
        for key in rules.keys() {
            for rule in rules {
                for quota in rules.key_quotas(key, rule.name()).unwrap_or_default() {
                    let path = Level::path_of_key(key, rule);
                    of_quota(&mut all, rules, quota, Binds::Key(key, rule), path, clock);
                }
            }
        }
        all
    }
}

/// The limits of one endpoint.
fn of_endpoint<'r>(all: &mut Vec<Limit<'r>>, rules: &'r Rules, endpoint: EndpointLimits<'r>, clock: Clock) {
    let EndpointLimits { name, overall, per_key, concurrency, key_concurrency } = endpoint;
    let path = |field: &str| Level::path_of_endpoint(name, field);
    let (together, each) = (Binds::On(name), Binds::EachOn(name));
    for (binds, quotas, field) in [(together, overall, "overall"), (each, per_key, "per_key")] {
        for quota in quotas {
            of_quota(all, rules, quota, binds, path(field), clock);
        }
    }
    let caps = [(together, concurrency, "concurrency"), (each, key_concurrency, "key_concurrency")];
    for (binds, cap, field) in caps {
        all.extend(cap.map(|most| Limit {
            binds,
            path: path(field),
            quota: most.to_string(),
            allowed: most,
            unit: None,
            counted: Counted::WhileRunning,
        }));
    }
}

/// What one quota limits, at a clock: even spacing is a window too.
fn of_quota<'r>(
    all: &mut Vec<Limit<'r>>,
    rules: &'r Rules,
    quota: &'r Quota,
    binds: Binds<'r>,
    path: String,
    clock: Clock,
) {
    let mut push = |counted| {
        let (path, shown) = (path.clone(), quota.to_string());
        all.push(Limit { binds, path, quota: shown, allowed: quota.count(), unit: quota.own_unit(), counted });
    };
    let margin = match clock {
        Clock::Own => quota.own_margin().unwrap_or_else(|| rules.margin()),
        Clock::Server => Duration::ZERO,
    };
    let period = quota.period().saturating_add(margin);
    let from = quota.own_count_from().unwrap_or_else(|| rules.count_from());
    match (quota.kind(), clock, from) {
        (QuotaKind::Window, Clock::Own, CountFrom::Response) => push(Counted::FromEnd(period)),
        (QuotaKind::Window, Clock::Own, CountFrom::Start)
        | (QuotaKind::Window | QuotaKind::Smooth, Clock::Server, CountFrom::Start | CountFrom::Response) => {
            push(Counted::FromStart(period));
        }
        (QuotaKind::Smooth, Clock::Own, CountFrom::Start | CountFrom::Response) => {
            push(Counted::FromStart(period));
            // A window of one spaces by itself, and lets nothing off.
            if quota.count() > 1 {
                let nanos = period.as_nanos().div_ceil(u128::from(quota.count()));
                push(Counted::Spaced(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))));
            }
        }
        (QuotaKind::Bucket { burst }, Clock::Own, CountFrom::Start | CountFrom::Response) => {
            push(Counted::Bucket { burst: *burst, period: quota.period() });
        }
        (QuotaKind::Bucket { .. }, Clock::Server, CountFrom::Start | CountFrom::Response) => {}
        (QuotaKind::Calendar { zone }, Clock::Own | Clock::Server, CountFrom::Start | CountFrom::Response) => {
            push(Counted::Calendar(zone));
        }
    }
}
