//! The arithmetic of limits, the slow way: every question is answered from the list of all attempts.

use super::server::Done;
use super::spec::{Caps, Quota, Spec};

/// One attempt, as it went.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) rule: usize,
    pub(crate) key: u64,
    pub(crate) cost: u64,
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
    /// When it was answered, or else ended.
    pub(crate) done: Option<Done>,
}

/// One number of the rules file and whom it binds.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// Per rule, whether it is bound.
    pub(crate) binds: Vec<bool>,
    /// One for each key, or one in all.
    pub(crate) each_key: bool,
    pub(crate) count: u64,
    pub(crate) kind: Kind,
    /// Whether it belongs to a rule or a lane alone, so that nobody more urgent draws on it.
    pub(crate) private: bool,
    /// Without the margin.
    pub(crate) period: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counted for so long from the start.
    Starts(u64),
    /// Counted while it runs and for so long from its end.
    Responses(u64),
    /// Counted while it runs.
    Running,
}

impl Kind {
    /// When an attempt is no longer counted. `None`: not as long as it runs.
    pub(crate) fn until(self, start: u64, end: Option<u64>) -> Option<u64> {
        match self {
            Self::Starts(period) => Some(start + period),
            Self::Responses(period) => end.map(|end| end + period),
            Self::Running => end,
        }
    }
}

impl Limit {
    pub(crate) fn all(spec: &Spec) -> Vec<Self> {
        let mut all = Vec::new();
        let rules = spec.rules.iter();
        let overall: Vec<bool> = rules.clone().map(|rule| rule.under_overall).collect();
        let per_key: Vec<bool> = rules.clone().map(|rule| rule.under_per_key).collect();
        add(spec, &mut all, "", &spec.caps, &overall, &per_key, false);
        for (number, caps) in spec.limits.iter().enumerate() {
            let under: Vec<bool> = rules.clone().map(|rule| rule.under.contains(&number)).collect();
            add(spec, &mut all, &format!("limits.n{number}."), caps, &under, &under, false);
        }
        for (number, rule) in rules.clone().enumerate() {
            let only: Vec<bool> = (0..spec.rules.len()).map(|other| other == number).collect();
            let mut caps = rule.caps.clone();
            caps.key_concurrency = caps.key_concurrency.or_else(|| rule.ordered.then_some(1));
            add(spec, &mut all, &format!("rules.r{number}."), &caps, &only, &only, true);
        }
        for (position, lane) in spec.lanes.iter().enumerate() {
            let within: Vec<bool> = rules.clone().map(|rule| rule.lane == position).collect();
            let caps = Caps { overall: lane.overall.clone(), concurrency: lane.concurrency, ..Caps::default() };
            add(spec, &mut all, &format!("lanes.{}.", position + 1), &caps, &within, &[], true);
        }
        all
    }

    pub(crate) fn concerns(&self, of: Option<u64>, rule: usize, key: u64) -> bool {
        self.binds[rule] && (!self.each_key || of == Some(key))
    }

    /// What a request of this cost takes: concurrency caps count attempts.
    pub(crate) const fn takes(&self, cost: u64) -> u64 {
        match self.kind {
            Kind::Starts(_) | Kind::Responses(_) => cost,
            Kind::Running => 1,
        }
    }

    /// What of the attempts counts at an instant. `key` is whose limit is meant, where each key has its own.
    pub(crate) fn used(&self, attempts: &[Attempt], key: u64, now: u64) -> u64 {
        attempts
            .iter()
            .filter(|attempt| self.concerns(Some(key), attempt.rule, attempt.key) && attempt.start <= now)
            .filter(|attempt| self.kind.until(attempt.start, attempt.end).is_none_or(|until| now < until))
            .map(|attempt| self.takes(attempt.cost))
            .sum()
    }

    /// When a cost fits beside `outstanding`, if nothing else happens. `None`: not before an event.
    pub(crate) fn fits_at(&self, attempts: &[Attempt], key: u64, now: u64, outstanding: u64, cost: u64) -> Option<u64> {
        let fits = |at| self.used(attempts, key, at) + outstanding + self.takes(cost) <= self.count;
        let ends = attempts.iter().filter_map(|attempt| self.kind.until(attempt.start, attempt.end));
        ends.chain([now]).filter(|&at| at >= now && fits(at)).min()
    }
}

fn add(spec: &Spec, all: &mut Vec<Limit>, path: &str, caps: &Caps, overall: &[bool], per_key: &[bool], private: bool) {
    let mut push = |name: String, binds: &[bool], each_key, count, kind, period| {
        all.push(Limit {
            name: format!("{path}{name}"),
            binds: binds.to_vec(),
            each_key,
            count,
            kind,
            private,
            period,
        });
    };
    for quota in &caps.overall {
        push(format!("overall {quota}"), overall, false, quota.count, kind(spec, quota), quota.period);
    }
    for quota in &caps.per_key {
        push(format!("per_key {quota}"), per_key, true, quota.count, kind(spec, quota), quota.period);
    }
    if let Some(count) = caps.concurrency {
        push(format!("concurrency {count}"), overall, false, count, Kind::Running, 0);
    }
    if let Some(count) = caps.key_concurrency {
        push(format!("key_concurrency {count}"), per_key, true, count, Kind::Running, 0);
    }
}

fn kind(spec: &Spec, quota: &Quota) -> Kind {
    let period = quota.period + quota.margin.unwrap_or(spec.margin);
    if quota.response.unwrap_or(spec.response) { Kind::Responses(period) } else { Kind::Starts(period) }
}
