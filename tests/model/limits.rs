//! The arithmetic of limits, the slow way: every question is answered from the list of all attempts.

use super::history::Entry;
use super::server::Done;
use super::spec::{Caps, Cost, DAY, MS, Quota, Shape, Spec};

/// One attempt, as it went.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) rule: usize,
    pub(crate) key: u64,
    pub(crate) cost: Cost,
    /// The least that it seemed to cost at any time.
    pub(crate) least: Cost,
    /// What spacing and buckets charged, and in which order of all charges: at the start, and what it cost more later.
    pub(crate) charges: Vec<(u64, Cost)>,
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
    binds: Vec<bool>,
    whom: Whom,
    /// One for each key, or one in all.
    pub(crate) each_key: bool,
    pub(crate) count: u64,
    pub(crate) kind: Kind,
    /// Whether it belongs to a rule or a lane alone, so that nobody more urgent draws on it.
    pub(crate) private: bool,
    /// Without the margin. Zero where no lower lane is spread by it: only plain windows do that.
    pub(crate) period: u64,
    /// It counts tokens.
    tokens: bool,
}

/// Which keys a limit binds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whom {
    All,
    /// Not those that have their own numbers.
    AllBut(Vec<u64>),
    Only(u64),
}

/// Lateness that even spacing catches up.
const CATCH_UP: u64 = 2 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counted for so long from the start, as of the next multiple of the grain.
    Starts(u64, Grain),
    /// Counted while it runs and for so long from its end, as of the next multiple of the grain.
    Responses(u64, Grain),
    /// Counted while it runs.
    Running,
    /// Counted until midnight, so long after the beginning of the day that the clock begins in.
    Day(u64),
    /// Each start is followed by so much time per unit.
    Spaced(u64),
    /// A bucket, full at first, gets back one in so much time.
    Bucket(u64),
}

/// What starts are written down by: a large count of a key needs little memory then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grain(u64);

impl Grain {
    const NONE: Self = Self(1);

    /// Windows of keys that hold more than 4,096 know a thousandth of their length.
    fn of(period: u64, count: u64, each_key: bool) -> Self {
        if each_key && count > 4_096 { Self(period.div_ceil(1_024)) } else { Self::NONE }
    }

    const fn up(self, at: u64) -> u64 {
        at.div_ceil(self.0) * self.0
    }
}

impl Kind {
    /// When an attempt is no longer counted. `None`: not as long as it runs.
    pub(crate) fn until(self, start: u64, end: Option<u64>) -> Option<u64> {
        match self {
            Self::Starts(period, grain) => Some(grain.up(start) + period),
            Self::Responses(period, grain) => end.map(|end| grain.up(end) + period),
            Self::Running => end,
            Self::Day(into) => Some(((start + into) / DAY + 1) * DAY - into),
            Self::Spaced(_) | Self::Bucket(_) => Some(start),
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
            let own: Vec<u64> =
                spec.own.iter().filter(|((of, _), _)| *of == number).map(|((_, key), _)| *key).collect();
            let mut caps = rule.caps.clone();
            caps.key_concurrency = caps.key_concurrency.or_else(|| rule.ordered.then_some(1));
            let first = all.len();
            add(spec, &mut all, &format!("rules.r{number}."), &caps, &only, &only, true);
            for limit in all[first..].iter_mut().filter(|limit| limit.each_key && limit.kind != Kind::Running) {
                limit.whom = Whom::AllBut(own.clone());
            }
            for key in own {
                let first = all.len();
                let caps = Caps { per_key: spec.own(number, key).cloned().unwrap_or_default(), ..Caps::default() };
                add(spec, &mut all, &format!("keys.{key}.r{number} "), &caps, &only, &only, true);
                all[first..].iter_mut().for_each(|limit| limit.whom = Whom::Only(key));
            }
        }
        for (position, lane) in spec.lanes.iter().enumerate() {
            let within: Vec<bool> = rules.clone().map(|rule| rule.lane == position).collect();
            let caps = Caps { overall: lane.overall.clone(), concurrency: lane.concurrency, ..Caps::default() };
            add(spec, &mut all, &format!("lanes.{}.", position + 1), &caps, &within, &[], true);
        }
        all
    }

    pub(crate) fn concerns(&self, of: Option<u64>, rule: usize, key: u64) -> bool {
        self.binds(rule, key) && (!self.each_key || of == Some(key))
    }

    /// Whether a request of this rule and this key is bound.
    pub(crate) fn binds(&self, rule: usize, key: u64) -> bool {
        let whom = match &self.whom {
            Whom::All => true,
            Whom::AllBut(keys) => !keys.contains(&key),
            Whom::Only(only) => *only == key,
        };
        whom && self.binds[rule]
    }

    /// Whether a request needs room in it.
    pub(crate) fn is_taken_by(&self, entry: &Entry) -> bool {
        self.binds(entry.rule, entry.key) && self.takes(entry.cost) > 0
    }

    /// Whether requests of this rule are bound, whatever the key.
    pub(crate) fn binds_rule(&self, rule: usize) -> bool {
        self.binds[rule]
    }

    /// What a request of this cost takes: concurrency caps count attempts.
    pub(crate) const fn takes(&self, cost: Cost) -> u64 {
        match self.kind {
            Kind::Running => 1,
            Kind::Starts(..) | Kind::Responses(..) | Kind::Day(_) | Kind::Spaced(_) | Kind::Bucket(_)
                if self.tokens =>
            {
                cost.tokens
            }
            Kind::Starts(..) | Kind::Responses(..) | Kind::Day(_) | Kind::Spaced(_) | Kind::Bucket(_) => cost.requests,
        }
    }

    /// What of the attempts counts at an instant. `key` is whose limit is meant, where each key has its own.
    pub(crate) fn used(&self, attempts: &[Attempt], key: u64, now: u64) -> u64 {
        self.counted(attempts, key, now).map(|attempt| self.takes(attempt.cost)).sum()
    }

    /// The same if no attempt had turned out to cost more than it seemed to.
    pub(crate) fn used_knowingly(&self, attempts: &[Attempt], key: u64, now: u64) -> u64 {
        self.counted(attempts, key, now).map(|attempt| self.takes(attempt.least)).sum()
    }

    fn counted<'a>(&self, attempts: &'a [Attempt], key: u64, now: u64) -> impl Iterator<Item = &'a Attempt> {
        attempts
            .iter()
            .filter(move |attempt| self.concerns(Some(key), attempt.rule, attempt.key) && attempt.start <= now)
            .filter(move |attempt| self.kind.until(attempt.start, attempt.end).is_none_or(|until| now < until))
    }

    /// When everything that was taken is paid for, in spacing and buckets.
    fn due(&self, interval: u64, attempts: &[Attempt], key: u64) -> u64 {
        let bound = attempts.iter().filter(|attempt| self.concerns(Some(key), attempt.rule, attempt.key));
        let mut charges: Vec<(u64, u64, bool, u64)> = bound
            .flat_map(|attempt| {
                let each = attempt.charges.iter().enumerate();
                each.map(|(nth, &(order, cost))| (order, attempt.start, nth == 0, self.takes(cost)))
            })
            .collect();
        charges.sort_unstable();
        charges.into_iter().fold(0, |due, (_, start, is_start, taken)| {
            let late = start.saturating_sub(due);
            let caught_up = is_start && matches!(self.kind, Kind::Spaced(_)) && due > 0 && late <= CATCH_UP;
            match taken {
                0 => due,
                taken if caught_up => due + interval * taken,
                taken => due.max(start) + interval * taken,
            }
        })
    }

    /// When a cost fits beside `outstanding`, if nothing else happens: now, later or `None`, not before an event.
    pub(crate) fn fits_at(
        &self,
        attempts: &[Attempt],
        key: u64,
        now: u64,
        outstanding: u64,
        cost: Cost,
    ) -> Option<u64> {
        let wanted = outstanding + self.takes(cost);
        if self.takes(cost) == 0 {
            return Some(now);
        }
        match self.kind {
            Kind::Starts(..) | Kind::Responses(..) | Kind::Running | Kind::Day(_) => {
                let fits = |at| self.used(attempts, key, at) + wanted <= self.count;
                if fits(now) {
                    return Some(now);
                }
                let bound = attempts.iter().filter(|attempt| self.concerns(Some(key), attempt.rule, attempt.key));
                let ends = bound.filter_map(|attempt| self.kind.until(attempt.start, attempt.end));
                let mut ends: Vec<u64> = ends.filter(|&at| at > now).collect();
                ends.sort_unstable();
                ends.into_iter().find(|&at| fits(at))
            }
            // How late the one before will be decides.
            Kind::Spaced(_) if outstanding > 0 => None,
            Kind::Spaced(interval) => Some(self.due(interval, attempts, key).max(now)),
            Kind::Bucket(_) if wanted > self.count => None,
            Kind::Bucket(interval) => {
                let due = self.due(interval, attempts, key).max(now) + interval * wanted;
                Some(due.saturating_sub(interval * self.count).max(now))
            }
        }
    }

    /// When nothing that was taken counts any more. `None`: not before an event.
    pub(crate) fn free_at(&self, attempts: &[Attempt], key: u64) -> Option<u64> {
        match self.kind {
            Kind::Spaced(interval) | Kind::Bucket(interval) => Some(self.due(interval, attempts, key)),
            Kind::Starts(..) | Kind::Responses(..) | Kind::Running | Kind::Day(_) => {
                let bound = attempts.iter().filter(|attempt| self.concerns(Some(key), attempt.rule, attempt.key));
                let bound = bound.filter(|attempt| self.takes(attempt.cost) > 0);
                bound
                    .map(|attempt| self.kind.until(attempt.start, attempt.end))
                    .try_fold(0, |free, at| Some(free.max(at?)))
            }
        }
    }
}

fn add(spec: &Spec, all: &mut Vec<Limit>, path: &str, caps: &Caps, overall: &[bool], per_key: &[bool], private: bool) {
    let mut push = |name: String, binds: &[bool], each_key, (count, kind, period, tokens)| {
        all.push(Limit {
            name: format!("{path}{name}"),
            binds: binds.to_vec(),
            whom: Whom::All,
            each_key,
            count,
            kind,
            private,
            period,
            tokens,
        });
    };
    for quota in &caps.overall {
        kinds(spec, quota, false).into_iter().for_each(|kind| push(format!("overall {quota}"), overall, false, kind));
    }
    for quota in &caps.per_key {
        kinds(spec, quota, true).into_iter().for_each(|kind| push(format!("per_key {quota}"), per_key, true, kind));
    }
    if let Some(count) = caps.concurrency {
        push(format!("concurrency {count}"), overall, false, (count, Kind::Running, 0, false));
    }
    if let Some(count) = caps.key_concurrency {
        push(format!("key_concurrency {count}"), per_key, true, (count, Kind::Running, 0, false));
    }
}

/// What a quota means: how much, of what kind, for how long if lower lanes are spread by it, and whether of tokens.
fn kinds(spec: &Spec, quota: &Quota, each_key: bool) -> Vec<(u64, Kind, u64, bool)> {
    let Quota { count, period, tokens, .. } = *quota;
    let with_margin = period + quota.margin.unwrap_or(spec.margin);
    let grain = Grain::of(with_margin, count, each_key);
    match quota.shape {
        Shape::Window if quota.response.unwrap_or(spec.response) => {
            vec![(count, Kind::Responses(with_margin, grain), period, tokens)]
        }
        Shape::Window => vec![(count, Kind::Starts(with_margin, grain), period, tokens)],
        Shape::Smooth if count == 1 => vec![(count, Kind::Starts(with_margin, grain), 0, tokens)],
        Shape::Smooth => vec![
            (count, Kind::Starts(with_margin, grain), 0, tokens),
            (count, Kind::Spaced(with_margin.div_ceil(count)), 0, tokens),
        ],
        Shape::Bucket(burst) => vec![(burst, Kind::Bucket(period.div_ceil(count)), 0, tokens)],
        Shape::Day(zone) => vec![(count, Kind::Day((spec.wall + zone.ahead()) % DAY), 0, tokens)],
    }
}
