//! `[pool]` as a file says it.

use std::fmt;

use super::{Fields, string};
use crate::engine::{BreakerPlan, Failover};
use crate::rules::duration;
use crate::rules::model::CheckedCaps;
use crate::rules::pool::{CheckedEndpoint, CheckedPool, choose_word};

impl CheckedPool {
    /// Its fields, and the table of its endpoints if they have anything of their own.
    pub(super) fn fields(&self) -> Result<(Fields, Option<Fields>), fmt::Error> {
        let mut fields = Fields::default();
        let plain = |endpoint: &CheckedEndpoint| endpoint.weight == 1 && endpoint.caps == CheckedCaps::default();
        let mut own = None;
        if self.endpoints.iter().all(plain) {
            if !self.endpoints.is_empty() {
                let names: Result<Vec<_>, _> = self.endpoints.iter().map(|endpoint| string(&endpoint.name)).collect();
                fields.raw("endpoints", &format!("[{}]", names?.join(", ")))?;
            }
        } else {
            let mut table = Fields::default();
            for endpoint in &self.endpoints {
                let mut of_one = Fields::default();
                if endpoint.weight != 1 {
                    of_one.raw("weight", &endpoint.weight.to_string())?;
                }
                of_one.caps(&endpoint.caps)?;
                table.raw(&endpoint.name, &of_one.inline())?;
            }
            own = Some(table);
        }
        fields.caps(&self.caps)?;
        if self.choose != Default::default() {
            fields.text("choose", choose_word(self.choose))?;
        }
        match self.failover {
            Failover::Next => {}
            Failover::SameFirst => fields.text("failover", "same-first")?,
        }
        match &self.breaker {
            None => fields.raw("breaker", "false")?,
            Some(breaker) if *breaker == BreakerPlan::default() => {}
            Some(breaker) => fields.raw("breaker", &self::breaker(breaker)?.inline())?,
        }
        if self.sticky {
            fields.raw("sticky", "true")?;
        }
        if self.exhausted != Self::EXHAUSTED {
            fields.text("exhausted", &duration::format(self.exhausted))?;
        }
        Ok((fields, own))
    }
}

fn breaker(breaker: &BreakerPlan) -> Result<Fields, fmt::Error> {
    let base = BreakerPlan::default();
    let mut fields = Fields::default();
    if let Some(failures) = breaker.failures {
        fields.raw("failures", &failures.to_string())?;
    }
    if let Some(ratio) = breaker.ratio {
        fields.text("ratio", &format!("{}/{}", ratio.part, ratio.of))?;
        fields.raw("minimum", &ratio.minimum.to_string())?;
        fields.span("over", ratio.over)?;
    }
    if breaker.reset != base.reset {
        fields.span("reset", breaker.reset)?;
    }
    if (breaker.jitter - base.jitter).abs() > 0.0 {
        fields.raw("jitter", &format!("{:?}", breaker.jitter))?;
    }
    if breaker.probes != base.probes {
        fields.raw("probes", &breaker.probes.to_string())?;
    }
    if breaker.counts_retries {
        fields.raw("count_retries", "true")?;
    }
    Ok(fields)
}
