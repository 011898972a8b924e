//! `[pool]`: names, shares, breakers.

use super::{Checker, Read};
use crate::engine::{BreakerPlan, Choose, Nanos, RatioPlan};
use crate::rules::builder::{At, RulesBuilder};
use crate::rules::finding::{Finding, FindingCode, Findings, Severity};
use crate::rules::model::{Model, Share};
use crate::rules::pool::{BreakerRules, CheckedEndpoint, CheckedPool, EndpointRules, PoolRules};
use crate::rules::toml::join;
use crate::rules::wording;

const MINIMUM: u32 = 10;
const OVER: Nanos = Nanos::from_secs(30);
/// A share beyond this is of no use, and turns would be too fine to count.
const HEAVIEST: u32 = 1_000_000;

impl Checker<'_> {
    pub(super) fn pool(&mut self) -> Option<CheckedPool> {
        let pool = self.builder.pool.as_ref()?;
        self.shared_seat(&pool.caps, "pool");
        let caps = self.caps(&pool.caps, "pool");
        let breaker = match &pool.breaker {
            None => Some(BreakerPlan::default()),
            Some(None) => None,
            Some(Some(breaker)) => Some(self.breaker(breaker)),
        };
        self.without_effect(pool);
        let exhausted = self.time_to_run(pool.exhausted.as_ref(), "pool.exhausted").unwrap_or(CheckedPool::EXHAUSTED);
        Some(CheckedPool {
            endpoints: self.endpoints(&pool.endpoints, pool.endpoints.len()),
            given: false,
            caps,
            choose: pool.choose,
            failover: pool.failover,
            breaker,
            sticky: pool.sticky.is_some_and(|at| at.value),
            exhausted,
        })
    }

    /// What changes nothing beside the rest.
    fn without_effect(&mut self, pool: &PoolRules) {
        let mut say = |found: String, allowed: &str, path: String, place| {
            self.push(Finding::new(FindingCode::NoEffect, found, allowed), path, place);
        };
        if let (Some(At { value: true, place }), [_]) = (pool.sticky, &*pool.endpoints) {
            say("`sticky` with one endpoint".to_owned(), "two or more endpoints", "pool.sticky".to_owned(), place);
        }
        if pool.choose == Choose::InOrder && !pool.sticky.is_some_and(|at| at.value) {
            for (name, endpoint) in &pool.endpoints {
                let Some(At { place, .. }) = endpoint.weight else { continue };
                let path = join(&join("pool.endpoints", &name.value), "weight");
                let allowed = "no weight, or another `choose`";
                say("`weight` with `choose = \"in-order\"`".to_owned(), allowed, path, place);
            }
        }
    }

    /// `all`: how many there are then.
    fn endpoints(&mut self, endpoints: &[(At<String>, EndpointRules)], all: usize) -> Vec<CheckedEndpoint> {
        self.size("endpoints", all);
        self.unique(endpoints.iter().map(|(name, _)| name), "pool.endpoints", "endpoint");
        let checked = endpoints.iter().map(|(name, endpoint)| {
            let path = join("pool.endpoints", &name.value);
            self.name(name, &path, "a name of visible characters");
            let weight = self.at_least_one(endpoint.weight.as_ref(), &join(&path, "weight")).unwrap_or(1);
            if weight > HEAVIEST {
                let finding = wording::out_of_range(&weight.to_string(), &format!("a number from 1 to {HEAVIEST}"));
                self.push(finding, join(&path, "weight"), endpoint.weight.as_ref().and_then(|at| at.place));
            }
            self.shared_seat(&endpoint.caps, &path);
            CheckedEndpoint { name: name.value.as_str().into(), weight, caps: self.caps(&endpoint.caps, &path) }
        });
        checked.collect()
    }

    fn breaker(&mut self, breaker: &BreakerRules) -> BreakerPlan {
        let base = BreakerPlan::default();
        let path = |field: &str| join("pool.breaker", field);
        let failures = self.at_least_one(breaker.failures.as_ref(), &path("failures"));
        let minimum = self.at_least_one(breaker.minimum.as_ref(), &path("minimum"));
        let over = self.time_to_run(breaker.over.as_ref(), &path("over"));
        let ratio = breaker.ratio.map(|At { value: Share { part, of }, place }| {
            let allowed = "a share above 0, up to 1";
            if part == 0 && of > 0 {
                self.push(wording::zero("`0`", allowed), path("ratio"), place);
            } else if part > of || of == 0 {
                self.push(wording::out_of_range(&format!("{part}/{of}"), allowed), path("ratio"), place);
            }
            RatioPlan { part, of, minimum: minimum.unwrap_or(MINIMUM), over: over.unwrap_or(OVER) }
        });
        if ratio.is_none() {
            let without = [
                ("minimum", breaker.minimum.as_ref().map(|at| at.place)),
                ("over", breaker.over.as_ref().map(|at| at.place)),
            ];
            for (field, place) in without {
                if let Some(place) = place {
                    let finding = wording::empty(&format!("`{field}` without `ratio`"), "`ratio` beside it");
                    self.push(finding, path(field), place);
                }
            }
        }
        let jitter = breaker.jitter.map_or(base.jitter, |At { value, place }| {
            if !(0.0..=1.0).contains(&value) {
                self.push(wording::out_of_range(&value.to_string(), "a number from 0 to 1"), path("jitter"), place);
            }
            value
        });
        BreakerPlan {
            failures: failures.or_else(|| if ratio.is_none() { base.failures } else { None }),
            ratio,
            reset: self.time_to_run(breaker.reset.as_ref(), &path("reset")).unwrap_or(base.reset),
            jitter,
            probes: self.at_least_one(breaker.probes.as_ref(), &path("probes")).unwrap_or(base.probes),
            counts_retries: breaker.count_retries,
        }
    }
}

/// Checks endpoints that come to rules that were checked, which have `all` then.
pub(in crate::rules) fn endpoints(
    model: &Model,
    list: &[(At<String>, EndpointRules)],
    all: usize,
) -> Result<Vec<CheckedEndpoint>, Findings> {
    let outer = RulesBuilder {
        margin: Some(model.margin.into()),
        count_from: Some(model.count_from),
        units: model.units.iter().map(|unit| unit.to_string().into()).collect(),
        ..RulesBuilder::default()
    };
    let mut checker = Checker::new(&outer, Read::default());
    let checked = checker.endpoints(list, all);
    let found = checker.findings.len();
    for zone in std::mem::take(&mut checker.zones) {
        // A zone that does not exist is found already.
        if found == 0 && !model.zones.contains(&zone) {
            let allowed = "a time zone that a quota of the rules has";
            let finding = Finding::new(FindingCode::UnknownZone, wording::quote(&zone), allowed);
            checker.push(finding, "pool.endpoints", None);
        }
    }
    checker.findings.retain(|finding| finding.severity() == Severity::Error);
    if checker.findings.is_empty() { Ok(checked) } else { Err(Findings::new(checker.findings)) }
}
