//! A log, limit by limit and key by key.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::breach::Breach;
use super::limit::{Counted, Limit};
use super::rates::{self, Overdraft};
use super::start::Start;
use super::stretches::{self, Stretch};
use crate::rules::{EndpointRules, Rules};

/// Whose clock wrote a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The program's that sends.
    Own,
    /// The server's that receives.
    Server,
}

/// What the log breaks: unknown names first, then limit by limit in the order of the file, key by key and in time.
pub(super) fn breaches(rules: &Rules, starts: &[Start], clock: Clock) -> Vec<Breach> {
    let rules = &*with_endpoints_of(rules, starts);
    let mut breaches = unknown(rules, starts);
    for limit in Limit::all(rules, clock) {
        let mut of_keys: BTreeMap<Option<&str>, Vec<&Start>> = BTreeMap::new();
        for start in starts {
            if let Some(key) = limit.of(rules, start) {
                of_keys.entry(key).or_default().push(start);
            }
        }
        for (key, mut starts) in of_keys {
            starts.sort_by_key(|start| start.at);
            of_limit(&mut breaches, &limit, key, &starts);
        }
    }
    breaches
}

fn unknown(rules: &Rules, starts: &[Start]) -> Vec<Breach> {
    let no_rule = |name: &str| rules.rule(name).is_none();
    let no_endpoint = |name: &str| rules.has_pool() && !rules.endpoints().any(|known| known == name);
    let of_rules = first(starts, |start| Some(&*start.rule)).into_iter().filter(|(name, _)| no_rule(name));
    let of_endpoints =
        first(starts, |start| start.endpoint.as_deref()).into_iter().filter(|(name, _)| no_endpoint(name));
    let rules = of_rules.map(|(rule, at)| Breach::UnknownRule { rule: rule.to_owned(), at });
    rules.chain(of_endpoints.map(|(name, at)| Breach::UnknownEndpoint { endpoint: name.to_owned(), at })).collect()
}

/// Every name that starts have, and when its first one was.
fn first<'s>(starts: &'s [Start], name: impl Fn(&'s Start) -> Option<&'s str>) -> BTreeMap<&'s str, Duration> {
    let mut first = BTreeMap::new();
    for start in starts {
        let Some(name) = name(start) else { continue };
        first.entry(name).and_modify(|at: &mut Duration| *at = start.at.min(*at)).or_insert(start.at);
    }
    first
}

/// The rules, and where their pool's endpoints come from code those that the starts tell of.
pub(super) fn with_endpoints_of<'r>(rules: &'r Rules, starts: &[Start]) -> Cow<'r, Rules> {
    if !rules.has_pool() || rules.endpoints().next().is_some() {
        return Cow::Borrowed(rules);
    }
    let names: BTreeSet<&str> = starts.iter().filter_map(|start| start.endpoint.as_deref()).collect();
    let known = rules.with_endpoints(names.into_iter().map(|name| (name, EndpointRules::new())));
    // What can't be a name is none in any file.
    known.map_or(Cow::Borrowed(rules), Cow::Owned)
}

/// What the starts of one key, or of all, break of one limit. They are in order.
fn of_limit(breaches: &mut Vec<Breach>, limit: &Limit<'_>, key: Option<&str>, starts: &[&Start]) {
    let key = key.map(str::to_owned);
    let names = || (limit.path.clone(), limit.quota.clone(), key.clone());
    let too_many = |at, within, count, allowed| {
        let (limit, quota, key) = names();
        Breach::TooMany { limit, quota, key, at, within, count, allowed }
    };
    let too_early = |(at, due)| {
        let (limit, quota, key) = names();
        Breach::TooEarly { limit, quota, key, at, due }
    };
    let allowed = u64::from(limit.allowed);
    let taken: Vec<(Duration, u64)> = starts.iter().map(|start| (start.at, start.took(limit.unit))).collect();
    let within = match limit.counted {
        Counted::FromStart(period) | Counted::FromEnd(period) => period,
        Counted::WhileRunning => Duration::ZERO,
        Counted::Spaced(interval) => {
            breaches.extend(rates::too_early(&taken, interval).into_iter().map(too_early));
            return;
        }
        Counted::Bucket { burst, period } => {
            let found = rates::overdrafts(&taken, burst, limit.allowed, period).into_iter();
            breaches.extend(found.map(|over: Overdraft| too_many(over.at, over.within, over.count, over.allowed)));
            return;
        }
        Counted::Calendar(zone) => {
            let found = rates::days(&taken, allowed, zone).into_iter();
            breaches.extend(found.map(|(at, into, count)| too_many(at, into, count, allowed)));
            return;
        }
    };
    let stretches = std::iter::zip(starts, &taken);
    let stretches = stretches.filter_map(|(start, &(_, took))| Stretch::of(start, limit.counted, took));
    let found = stretches::excesses(stretches, allowed).into_iter();
    breaches.extend(found.map(|(at, count)| too_many(at, within, count, allowed)));
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
        breaches(&rules, starts, Clock::Own).iter().map(Breach::to_string).collect()
    }

    #[test]
    fn each_endpoint_has_its_own_limits() {
        let rules = "[pool]\nper_key = '1/1s'\nconcurrency = 1\n[pool.endpoints]\na = {}\nb = { concurrency = 2 }";
        let start = |at, key: u32, endpoint| Start::new(ms(at), "default", key).on(endpoint).end(ms(at + 100));
        let fine = [start(0, 1, "a"), start(0, 1, "b"), start(50, 2, "b"), start(100, 2, "a"), start(1_000, 1, "a")];
        assert_eq!(found(rules, &fine), [""; 0]);
        let log = [start(0, 1, "a"), start(50, 2, "a"), start(500, 1, "a")];
        assert_eq!(
            found(rules, &log),
            [
                "`pool.endpoints.a.per_key` 1/1s, key 1: 2 in the 1s up to 500ms, 1 allowed",
                "`pool.endpoints.a.concurrency` 1: 2 at once at 50ms, 1 allowed"
            ]
        );
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

    #[test]
    fn a_unit_is_counted_of_those_who_take_of_it() {
        let rules = "units = ['tokens']\noverall = ['2/1s', '100/1s tokens']";
        let log = starts([(0, 0), (0, 0)]).map(|start| start.units("tokens", 51));
        assert_eq!(found(rules, &log), ["`overall` 100/1s tokens: 102 in the 1s up to 0ns, 100 allowed"]);
        assert_eq!(found(rules, &starts([(0, 0), (0, 0)])), [] as [&str; 0]);
    }

    #[test]
    fn smooth_is_a_window_and_a_spacing() {
        let log = starts([(0, 0), (97, 97)]);
        assert_eq!(found("overall = '10/1s smooth'", &log), ["`overall` 10/1s smooth: one at 97ms, due at 100ms"]);
    }

    #[test]
    fn a_bucket_is_counted_since_it_was_full() {
        let log = starts([(5_000, 0), (5_000, 0), (5_050, 0), (5_100, 0)]);
        assert_eq!(
            found("overall = '10/1s burst 2'", &log),
            ["`overall` 10/1s burst 2: 3 in the 50ms up to 5.05s, 2 allowed"]
        );
    }

    #[test]
    fn a_key_with_quotas_of_its_own_is_not_counted_under_those_of_the_rule() {
        let rules = "per_key = '3/1s'\n[rules]\ndefault = '1/1s'\n[keys.1]\ndefault = '2/1s'";
        assert_eq!(found(rules, &starts([(0, 0), (0, 0)])), [] as [&str; 0]);
        assert_eq!(
            found(rules, &starts([(0, 0), (0, 0), (0, 0)])),
            ["`keys.1.default` 2/1s, key 1: 3 in the 1s up to 0ns, 2 allowed"]
        );
        let other = starts([(0, 0), (0, 0)]).map(|start| Start { key: "2".to_owned(), ..start });
        assert_eq!(found(rules, &other), ["`rules.default.per_key` 1/1s, key 2: 2 in the 1s up to 0ns, 1 allowed"]);
    }

    #[cfg(feature = "calendar")]
    #[test]
    fn a_calendar_day_ends_at_its_zones_midnight() {
        // 1970-01-01 ended in Berlin at 23:00 UTC.
        let log = [0, 22, 23, 24].map(|hours| Start::new(Duration::from_secs(hours * 3_600), "default", 1));
        assert_eq!(found("overall = '2/day Europe/Berlin'", &log), [] as [&str; 0]);
        assert_eq!(
            found("overall = '1/day Europe/Berlin'", &log),
            [
                "`overall` 1/day Europe/Berlin: 2 in the 82800s up to 79200s, 1 allowed",
                "`overall` 1/day Europe/Berlin: 2 in the 3600s up to 86400s, 1 allowed"
            ]
        );
    }
}
