//! The limits of a rules file, read from what the file says and not from what the engine makes of it.

use std::time::Duration;

use super::{Clock, Counted};
use crate::rules::{CheckedRule, CountFrom, Level, Quota, QuotaKind, Rules, Whose};

/// One number of the file.
#[derive(Debug)]
pub(super) struct Limit<'r> {
    level: Level<'r>,
    /// Where the file says so.
    pub(super) path: String,
    /// What it says there.
    pub(super) quota: String,
    /// One for each key, or one in all.
    pub(super) each_key: bool,
    pub(super) allowed: u32,
    pub(super) counted: Counted,
}

impl Limit<'_> {
    /// Whether it binds a rule.
    pub(super) fn binds(&self, rule: &CheckedRule) -> bool {
        if self.each_key { self.level.binds_per_key(rule) } else { self.level.binds_overall(rule) }
    }

    /// All limits of the rules.
    pub(super) fn all(rules: &Rules, clock: Clock) -> Vec<Limit<'_>> {
        let mut all = Vec::new();
        for level in rules.levels() {
            let mut push = |field: &str, quota: String, each_key, allowed, counted| {
                all.push(Limit { level, path: level.path(field), quota, each_key, allowed, counted });
            };
            for (field, quotas, each_key) in [("overall", level.overall(), false), ("per_key", level.per_key(), true)] {
                for quota in quotas {
                    push(field, quota.to_string(), each_key, quota.count(), window(rules, quota, clock));
                }
            }
            let caps =
                [("concurrency", level.concurrency(), false), ("key_concurrency", level.key_concurrency(), true)];
            for (field, cap, each_key) in caps {
                if let Some(cap) = cap {
                    push(field, cap.to_string(), each_key, cap, Counted::WhileRunning);
                }
            }
            if let Whose::Rule(rule) = level.whose
                && rule.ordered()
                && level.key_concurrency().is_none()
            {
                push("ordered", "one at a time".to_owned(), true, 1, Counted::WhileRunning);
            }
        }
        all
    }
}

/// How a quota counts at a clock.
fn window(rules: &Rules, quota: &Quota, clock: Clock) -> Counted {
    match quota.kind() {
        QuotaKind::Window => {}
    }
    let margin = match clock {
        Clock::Own => quota.own_margin().unwrap_or_else(|| rules.margin()),
        Clock::Server => Duration::ZERO,
    };
    let period = quota.period().saturating_add(margin);
    match (clock, quota.own_count_from().unwrap_or_else(|| rules.count_from())) {
        (Clock::Own, CountFrom::Response) => Counted::FromEnd(period),
        (Clock::Own, CountFrom::Start) | (Clock::Server, CountFrom::Start | CountFrom::Response) => {
            Counted::FromStart(period)
        }
    }
}
