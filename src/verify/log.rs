//! Counting: each attempt counts against a limit for a stretch of time, and all stretches are gone through in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Breach, Clock, Limit, Start};
use crate::rules::Rules;

/// For how long an attempt counts against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// From its start on, for a period.
    FromStart(Duration),
    /// From its start until a period after its end.
    FromEnd(Duration),
    /// From its start to its end, and as one, whatever it costs.
    WhileRunning,
}

impl Counted {
    /// The first instant at which it no longer counts. `None`: it still ran when the log ended.
    fn until(self, start: &Start) -> Option<Duration> {
        // A clock that went back during an attempt makes it none shorter than nothing.
        let end = start.end.map(|end| end.max(start.at));
        match self {
            Self::FromStart(period) => Some(start.at.saturating_add(period)),
            Self::FromEnd(period) => end.map(|end| end.saturating_add(period)),
            Self::WhileRunning => end,
        }
    }

    fn weight(self, start: &Start) -> u64 {
        match self {
            Self::FromStart(_) | Self::FromEnd(_) => start.cost.max(1).into(),
            Self::WhileRunning => 1,
        }
    }

    const fn within(self) -> Duration {
        match self {
            Self::FromStart(period) | Self::FromEnd(period) => period,
            Self::WhileRunning => Duration::ZERO,
        }
    }
}

/// What the log breaks: unknown rules first, then limit by limit in the order of the file, key by key and in time.
pub(super) fn breaches(rules: &Rules, starts: &[Start], clock: Clock) -> Vec<Breach> {
    let mut breaches = unknown(rules, starts);
    for limit in Limit::all(rules, clock) {
        let bound = |start: &&Start| rules.rule(&start.rule).is_some_and(|rule| limit.binds(rule));
        let mut of_keys: BTreeMap<Option<&str>, Vec<&Start>> = BTreeMap::new();
        for start in starts.iter().filter(bound) {
            of_keys.entry(limit.each_key.then_some(&*start.key)).or_default().push(start);
        }
        for (key, starts) in of_keys {
            for (at, count) in excesses(&starts, limit.counted, limit.allowed.into()) {
                breaches.push(Breach::TooMany {
                    limit: limit.path.clone(),
                    quota: limit.quota.clone(),
                    key: key.map(str::to_owned),
                    at,
                    within: limit.counted.within(),
                    count,
                    allowed: limit.allowed,
                });
            }
        }
    }
    breaches
}

fn unknown(rules: &Rules, starts: &[Start]) -> Vec<Breach> {
    let unknown: BTreeSet<&str> =
        starts.iter().map(|start| &*start.rule).filter(|name| rules.rule(name).is_none()).collect();
    let breach = |name: &str| {
        let first = starts.iter().filter(|start| start.rule == name).map(|start| start.at).min();
        Breach::UnknownRule { rule: name.to_owned(), at: first.unwrap_or_default() }
    };
    unknown.into_iter().map(breach).collect()
}

/// The stretches in which more than `allowed` counts, each by its worst instant and what counts then.
fn excesses(starts: &[&Start], counted: Counted, allowed: u64) -> Vec<(Duration, u64)> {
    /// What happens at one instant: what no longer counts goes before what begins to.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Change {
        Less(u64),
        More(u64),
    }
    let mut changes = Vec::with_capacity(starts.len() * 2);
    for start in starts {
        let weight = counted.weight(start);
        match counted.until(start) {
            // It takes no time, so it is never there together with another.
            Some(until) if until <= start.at => {}
            Some(until) => changes.extend([(start.at, Change::More(weight)), (until, Change::Less(weight))]),
            None => changes.push((start.at, Change::More(weight))),
        }
    }
    changes.sort_unstable();
    let mut count = 0;
    let mut worst: Option<(Duration, u64)> = None;
    let mut found = Vec::new();
    for (at, change) in changes {
        match change {
            Change::More(weight) => count += weight,
            Change::Less(weight) => count -= weight,
        }
        if count <= allowed {
            found.extend(worst.take());
        } else if worst.is_none_or(|(_, before)| count > before) {
            worst = Some((at, count));
        }
    }
    found.extend(worst);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn starts<const N: usize>(spans: [(u64, u64); N]) -> [Start; N] {
        spans.map(|(at, end)| Start::new(ms(at), "default", 1).end(ms(end)))
    }

    fn found(rules: &str, starts: &[Start]) -> Vec<String> {
        let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}"));
        super::super::verify(&rules, starts).iter().map(Breach::to_string).collect()
    }

    #[test]
    fn one_stretch_is_one_breach_told_at_its_worst() {
        let log = starts([(0, 0), (0, 0), (10, 10), (50, 50), (2_000, 2_000), (2_999, 2_999)]);
        assert_eq!(
            found("overall = '1/1s'", &log),
            [
                "`overall` 1/1s: 4 in the 1s up to 50ms, 1 allowed",
                "`overall` 1/1s: 2 in the 1s up to 2.999s, 1 allowed"
            ]
        );
    }

    #[test]
    fn every_level_of_the_file_is_looked_at() {
        let rules = "
            overall = '3/1s'
            per_key = '2/1s'
            concurrency = 2
            key_concurrency = 1
            [rules.default]
            overall = '1/1s'
            per_key = ['1/2s', '2/1m']
            priority = 2
            under = ['overall', 'per_key', 'account']
            ordered = true
            [limits.account]
            overall = '1/5s'
            key_concurrency = 1
            [lanes.2]
            overall = '1/3s'
            concurrency = 1";
        let log =
            [(0, 100), (0, 100), (0, 100), (0, 100)].map(|(at, end)| Start::new(ms(at), "default", "k").end(ms(end)));
        assert_eq!(
            found(rules, &log),
            [
                "`overall` 3/1s: 4 in the 1s up to 0ns, 3 allowed",
                "`per_key` 2/1s, key k: 4 in the 1s up to 0ns, 2 allowed",
                "`concurrency` 2: 4 at once at 0ns, 2 allowed",
                "`key_concurrency` 1, key k: 4 at once at 0ns, 1 allowed",
                "`limits.account.overall` 1/5s: 4 in the 5s up to 0ns, 1 allowed",
                "`limits.account.key_concurrency` 1, key k: 4 at once at 0ns, 1 allowed",
                "`lanes.2.overall` 1/3s: 4 in the 3s up to 0ns, 1 allowed",
                "`lanes.2.concurrency` 1: 4 at once at 0ns, 1 allowed",
                "`rules.default.overall` 1/1s: 4 in the 1s up to 0ns, 1 allowed",
                "`rules.default.per_key` 1/2s, key k: 4 in the 2s up to 0ns, 1 allowed",
                "`rules.default.per_key` 2/60s, key k: 4 in the 60s up to 0ns, 2 allowed",
                "`rules.default.ordered` one at a time, key k: 4 at once at 0ns, 1 allowed",
            ]
        );
    }

    #[test]
    fn a_rule_outside_an_outer_limit_is_not_counted_there() {
        let rules = "overall = '1/1s'\nper_key = '1/1s'\n[rules]\ndefault = {}\nfree = { under = ['per_key'] }";
        let mut log = starts([(0, 0), (0, 0)]).to_vec();
        log[1].rule = "free".to_owned();
        assert_eq!(found(rules, &log), ["`per_key` 1/1s, key 1: 2 in the 1s up to 0ns, 1 allowed"]);
        log[1].key = "2".to_owned();
        assert_eq!(found(rules, &log), [] as [&str; 0]);
    }

    #[test]
    fn counted_from_the_response_an_attempt_counts_until_a_period_after_its_end() {
        let rules = "per_key = { count = 1, per = '1s', count_from = 'response' }";
        assert_eq!(found(rules, &starts([(0, 500), (1_500, 1_600)])), [] as [&str; 0]);
        assert_eq!(found(rules, &starts([(0, 501), (1_500, 1_600)])).len(), 1);
        let open = [Start::new(ms(0), "default", 1), Start::new(ms(900_000), "default", 1)];
        assert_eq!(found(rules, &open).len(), 1);
    }

    #[test]
    fn costs_count_in_windows_and_attempts_in_caps() {
        let log = starts([(0, 10), (0, 10)]).map(|start| start.cost(2));
        assert_eq!(found("overall = '4/1s'\nconcurrency = 2", &log), [] as [&str; 0]);
        assert_eq!(found("overall = '3/1s'\nconcurrency = 1", &log).len(), 2);
    }

    #[test]
    fn what_ends_at_an_instant_is_not_there_with_what_begins_then() {
        assert_eq!(found("concurrency = 1", &starts([(0, 10), (10, 20), (20, 20), (20, 30)])), [] as [&str; 0]);
        assert_eq!(found("concurrency = 1", &starts([(0, 10), (9, 20)])).len(), 1);
    }

    #[test]
    fn the_longest_times_do_no_harm() {
        let log = [Start::new(Duration::MAX, "default", 1), Start::new(Duration::MAX, "default", 1)];
        assert_eq!(found("overall = '1/1s'", &log), [] as [&str; 0]);
    }
}
