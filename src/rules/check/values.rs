//! Single values: numbers, lengths of time, quotas, retry policies.

use std::collections::BTreeSet;

use super::Checker;
use crate::engine::{Nanos, RetryPolicy};
use crate::rules::builder::{At, Caps};
use crate::rules::duration;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::CheckedCaps;
use crate::rules::quota::Quota;
use crate::rules::retry::Retry;
use crate::rules::toml::join;
use crate::rules::wording::{self, quote};

pub(in crate::rules) const COUNTS: &str = "a count from 1 to 4294967295";

/// What timers resolve.
const GRAIN: Nanos = Nanos::from_millis(1);

/// Says what keeps a quota from being one, wherever it stands.
pub(in crate::rules) fn quota(quota: &Quota, push: &mut dyn FnMut(Finding)) {
    let shown = short(quota);
    if quota.count() == 0 {
        push(wording::zero(format!("{shown}, a count of zero"), COUNTS));
    }
    if quota.nanos().is_zero() {
        push(wording::zero(format!("{shown}, a period of zero"), "a period longer than zero"));
    }
    if quota.nanos() == Nanos::MAX {
        push(wording::too_long_in_code("a period"));
    }
    if quota.margin_nanos() == Some(Nanos::MAX) {
        push(wording::too_long_in_code("a margin"));
    }
}

fn short(quota: &Quota) -> String {
    quote(&quota.with(None, None).to_string())
}

impl Checker<'_> {
    pub(super) fn caps(&mut self, caps: &Caps, path: &str) -> CheckedCaps {
        CheckedCaps {
            overall: self.quotas(&caps.overall, &join(path, "overall")),
            per_key: self.quotas(&caps.per_key, &join(path, "per_key")),
            concurrency: self.at_least_one(caps.concurrency.as_ref(), &join(path, "concurrency")),
            key_concurrency: self.at_least_one(caps.key_concurrency.as_ref(), &join(path, "key_concurrency")),
        }
    }

    /// The quotas of one list, in which a margin or an anchor that is that of the file anyhow is not said.
    fn quotas(&mut self, quotas: &[At<Quota>], path: &str) -> Vec<Quota> {
        let margin = self.builder.margin.map_or(Nanos::ZERO, |at| at.value);
        let count_from = self.builder.count_from.unwrap_or_default();
        let mut seen = BTreeSet::new();
        let mut checked = Vec::with_capacity(quotas.len());
        for (number, At { value, place }) in quotas.iter().enumerate() {
            let path = if quotas.len() > 1 { format!("{path}[{number}]") } else { path.to_owned() };
            let own_margin = value.margin_nanos().filter(|own| *own != margin);
            let own_count_from = value.own_count_from().filter(|own| *own != count_from);
            let plain = value.with(own_margin, own_count_from);
            let before = self.findings.len();
            quota(&plain, &mut |finding| self.findings.push(finding.at(&path, *place)));
            if self.findings.len() == before {
                for finding in doubts(&plain, own_margin.unwrap_or(margin)) {
                    self.push(finding, &path, *place);
                }
            }
            if !seen.insert(plain.to_string()) {
                let finding =
                    Finding::new(FindingCode::DuplicateQuota, format!("{} twice", short(value)), "each quota once");
                self.push(finding, &path, *place);
            }
            checked.push(plain);
        }
        checked
    }

    pub(super) fn at_least_one(&mut self, number: Option<&At<u32>>, path: &str) -> Option<u32> {
        let At { value, place } = number?;
        if *value == 0 {
            self.push(wording::zero("`0`", "a number from 1 to 4294967295"), path, *place);
        }
        Some(*value)
    }

    pub(super) fn span(&mut self, span: Option<&At<Nanos>>, path: &str) -> Option<Nanos> {
        let At { value, place } = span?;
        // Longer ones from code arrive here cut to this.
        if *value == Nanos::MAX {
            self.push(wording::too_long_in_code("a length of time"), path, *place);
        }
        Some(*value)
    }

    pub(super) fn retry(&mut self, retry: &Retry, path: &str, base: &RetryPolicy) -> RetryPolicy {
        self.at_least_one(retry.attempts.as_ref(), &join(path, "attempts"));
        self.span(retry.backoff.as_ref(), &join(path, "backoff"));
        self.span(retry.max_delay.as_ref(), &join(path, "max_delay"));
        self.span(retry.min_wait.as_ref(), &join(path, "min_wait"));
        self.span(retry.bare_wait.as_ref(), &join(path, "bare_wait"));
        for (name, limit) in [("ceiling", &retry.ceiling), ("total_wait", &retry.total_wait)] {
            let limit = limit.as_ref().and_then(|at| Some(At { value: at.value?, place: at.place }));
            self.span(limit.as_ref(), &join(path, name));
        }
        if let Some(At { value, place }) = &retry.jitter
            && !(0.0..=1.0).contains(value)
        {
            let finding = wording::out_of_range(&value.to_string(), "a number from 0 to 1");
            self.push(finding, join(path, "jitter"), *place);
        }
        let policy = retry.over(base);
        // Said once, where one of the two is set.
        if let Some(place) = retry.backoff.as_ref().or(retry.max_delay.as_ref()).map(|at| at.place)
            && policy.backoff > policy.max_delay
        {
            let found = format!("a backoff of {}", duration::format(policy.backoff));
            let allowed = format!("up to {}, the `max_delay`", duration::format(policy.max_delay));
            self.push(Finding::new(FindingCode::DelayCut, found, allowed), join(path, "backoff"), place);
        }
        policy
    }
}

/// What is doubtful about a quota that works.
fn doubts(quota: &Quota, margin: Nanos) -> impl Iterator<Item = Finding> {
    let (shown, period) = (short(quota), quota.nanos());
    let together = (period.saturating_add(margin) == Nanos::MAX)
        .then(|| wording::too_long(format!("{shown} with a margin of {}", duration::format(margin))));
    let margin = (margin >= period && together.is_none()).then(|| {
        let found = format!("a margin of {} for {shown}", duration::format(margin));
        Finding::new(FindingCode::MarginTooLong, found, format!("less than {}", duration::format(period)))
    });
    let fine = (period < GRAIN.saturating_mul(quota.count().into())).then(|| {
        let apart = duration::format(period.div_ceil(quota.count().into()));
        let found = format!("{shown}, one start in {apart}");
        Finding::new(FindingCode::BeyondTimers, found, "one start in 1ms or more: timers resolve 1 ms")
    });
    [together, margin, fine].into_iter().flatten()
}
