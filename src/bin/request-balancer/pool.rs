//! What a pool means, in plain words: what each endpoint may do, and what all of them together.

use std::time::Duration;

use request_balancer::{Choose, EndpointLimits, Quota, QuotaKind, Rules};

use crate::words::of_quota;

/// Lines about the pool, if there is one.
pub(crate) fn reading(rules: &Rules) -> Vec<String> {
    if !rules.has_pool() {
        return Vec::new();
    }
    let all: Vec<EndpointLimits<'_>> = rules.endpoint_limits().collect();
    let mut lines = vec![format!("pool: {}", endpoints(rules, &all))];
    if let Some(first) = all.first().filter(|first| all.iter().all(|of| is_like(first, of))) {
        lines.extend(joined("each endpoint", of_one(first)));
    } else {
        lines.extend(all.iter().filter_map(|of| joined(&format!("endpoint {}", of.name), of_one(of))));
    }
    lines.extend(joined("all endpoints together", together(&all)));
    lines
}

fn joined(whose: &str, said: Vec<String>) -> Option<String> {
    (!said.is_empty()).then(|| format!("{whose}: {}", said.join("; ")))
}

/// Which there are, and which one is used.
fn endpoints(rules: &Rules, all: &[EndpointLimits<'_>]) -> String {
    let names: Vec<&str> = all.iter().map(|of| of.name).collect();
    let listed = match names.as_slice() {
        [] => "endpoints from code".to_owned(),
        [only] => format!("1 endpoint, {only}"),
        [..] => format!("{} endpoints, {}", names.len(), names.join(", ")),
    };
    let plan = rules.plan();
    let Some(pool) = &plan.pool else { return listed };
    let chosen = match pool.choose {
        Choose::LeastLoaded => "the least loaded one is used",
        Choose::Fastest => "the one that would answer first is used",
        Choose::InOrder => "the first one with room is used",
        Choose::Weighted => "they are used by weight",
    };
    let sticky = if pool.sticky { "; a key stays with one while that is healthy" } else { "" };
    format!("{listed}; {chosen}{sticky}")
}

fn is_like(one: &EndpointLimits<'_>, other: &EndpointLimits<'_>) -> bool {
    (one.overall, one.per_key) == (other.overall, other.per_key)
        && (one.concurrency, one.key_concurrency) == (other.concurrency, other.key_concurrency)
}

/// What limits one endpoint.
fn of_one(of: &EndpointLimits<'_>) -> Vec<String> {
    let EndpointLimits { overall, per_key, concurrency, key_concurrency, .. } = of;
    let mut said: Vec<String> = overall.iter().map(of_quota).collect();
    said.extend(concurrency.map(|most| format!("at most {most} at a time")));
    said.extend(per_key.iter().map(|quota| format!("each key {}", of_quota(quota))));
    said.extend(key_concurrency.map(|most| format!("each key at most {most} at a time")));
    said
}

/// What all endpoints allow together: as far as each says something of the same unit and length of time.
fn together(all: &[EndpointLimits<'_>]) -> Vec<String> {
    let Some(first) = all.first().filter(|_| all.len() > 1) else { return Vec::new() };
    let sum = |each: &dyn Fn(&EndpointLimits<'_>) -> Option<u32>| {
        all.iter().try_fold(0_u64, |sum, of| Some(sum + u64::from(each(of)?)))
    };
    let mut said = Vec::new();
    for quota in first.overall {
        let Some(window) = Window::of(quota) else { continue };
        let count = |of: &EndpointLimits<'_>| {
            let same = of.overall.iter().filter(|other| Window::of(other) == Some(window));
            same.map(Quota::count).min()
        };
        if let Some(sum) = sum(&count) {
            let unit = window.unit.map_or_else(String::new, |unit| format!(" {unit}"));
            said.push(format!("at most {sum}{unit} in any {:?}", window.period));
        }
    }
    said.extend(sum(&|of| of.concurrency).map(|most| format!("at most {most} at a time")));
    said
}

/// What quotas have in common that can be added up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Window<'q> {
    unit: Option<&'q str>,
    period: Duration,
}

impl<'q> Window<'q> {
    fn of(quota: &'q Quota) -> Option<Self> {
        let adds_up = matches!(quota.kind(), QuotaKind::Window | QuotaKind::Smooth);
        adds_up.then(|| Self { unit: quota.own_unit(), period: quota.period() })
    }
}
