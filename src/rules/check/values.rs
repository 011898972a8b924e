//! Single values: numbers, lengths of time, retry policies.

use std::sync::Arc;

use super::Checker;
use crate::engine::{Nanos, RetryPolicy};
use crate::rules::builder::At;
use crate::rules::duration;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::Share;
use crate::rules::retry::Retry;
use crate::rules::toml::join;
use crate::rules::wording;

impl Checker<'_> {
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

    /// A length of time that is longer than nothing.
    pub(super) fn time_to_run(&mut self, longest: Option<&At<Nanos>>, path: &str) -> Option<Nanos> {
        let checked = self.span(longest, path)?;
        if checked.is_zero() {
            self.push(wording::zero("`0s`", "a longer length of time"), path, longest.and_then(|at| at.place));
        }
        Some(checked)
    }

    /// The part of all starts that may be retries.
    pub(super) fn retry_budget(&mut self) -> Option<Share> {
        let At { value: share @ Share { part, of }, place } = self.builder.retry_budget?;
        let allowed = "a share above 0, up to 1";
        if part == 0 && of > 0 {
            self.push(wording::zero("`0`", allowed), "retry.budget", place);
        } else if part > of || of == 0 {
            self.push(wording::out_of_range(&format!("{part}/{of}"), allowed), "retry.budget", place);
        }
        Some(share)
    }

    /// The rule of names that are none; `rules` are the names of all rules.
    pub(super) fn default_rule(&mut self, rules: &[Arc<str>]) -> Option<Arc<str>> {
        let At { value: name, place } = self.builder.default_rule.as_ref()?;
        let unread = self.builder.rules.is_empty() && self.found_inside("rules");
        if !unread && !rules.iter().any(|known| **known == **name) {
            self.push(wording::unknown_rule(name, rules.iter().map(|rule| &**rule)), "default_rule", *place);
        }
        Some(name.as_str().into())
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
