//! Rules and quotas as text: what loads, what it means, that it can be written back, and that no text does harm.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use request_balancer::engine::{Charge, Overflow, Scope, WaitOrder};
use request_balancer::{CountFrom, FindingCode, Lane, NamedLimit, Quota, QuotaKind, Retry, Rule, Rules, RulesBuilder};

const TELEGRAM: &str = include_str!("../examples/rules/telegram.toml");

/// Every field in every spelling.
const EVERYTHING: &str = r#"
overall = { limit = ["30/1s", { count = 1000, per = "1h", margin = "0s", count_from = "start" }], concurrency = 8 }
per_key = { count = 1, per = "1s", kind = "window" }
key_concurrency = 2
margin = "50ms"
count_from = "response"
units = ["tokens", "images"]
fair_by = "tokens"
queue = 50_000
default_rule = "list"
attempt_timeout = "30s"

[retry]
attempts = 4
backoff = "3s"
max_delay = "60s"
budget = 0.1

[rules]
"a b" = "20/60s"
list = ["20/60s", "1/1s"]
kinds = ["20/60s smooth", "5/5m burst 20", "90000/min tokens", { count = 9, per = "1s", kind = "smooth", margin = "0s", unit = "images" }]
nothing = {}
slow = { attempt_timeout = false, retry = "patient" }

[rules.all]
per_key = { limit = "10/60s", concurrency = 1 }
overall = "20/1s"
concurrency = 3
priority = 2
weight = 2
under = ["account", "overall"]
ordered = true
queue = 10_000
overflow = "drop-oldest"
max_wait = "10m"
attempt_timeout = "2m"
paused = true
retry = { attempts = 5, jitter = 0, ceiling = false, hold = "rule", order = "policy", waits = 3, min_wait = "2s" }

[limits.account]
per_key = "5000/1h"
concurrency = 4

[keys]
42 = { list = "40/1s" }

[keys."shop 1"]
all = ["40/60s", "9/1s"]
nothing = { count = 9, per = "1s", kind = "bucket", burst = 50 }

[dialects.shop]
like = "none"
scope = "global"
refused = [409, 429]
reset = "full"
bodies = "any"
named_by = "X-Shop-Counter"

[dialects.shop.windows.day]
unit = "tokens"
per = "1day"
scope = "route"
limit = "X-Shop-Limit"
remaining = "X-Shop-Left"
used = "X-Shop-Used"
reset = { header = "X-Shop-Reset", form = "milliseconds" }
length = "X-Shop-Length"

[dialects.shop.windows.other]
used_of_limit = "X-Shop-*"
spent_left_limit = "*-Units"
limits = "X-Limits"
counts = "X-Counts"

[dialects.shop.waits]
X-Shop-Wait = "milliseconds"
X-Shop-Until = "any"

[dialects.shop.words.X-Shop-Reason]
shop = "global"
"*item*" = ["refused", "key"]

[dialects.shop.body]
waits = { "error.wait" = "seconds" }
words = { "error.code" = { TOO_FAST = "refused", "OUT OF CREDIT" = "final", OTHER = "not-refused" } }

[dialects.plain_shop]
scope = "key"

[lanes.2]
name = "bulk"
share = "1/12"
overall = "25/1s"
concurrency = 5
pace = "10s"

[lanes.1]
share = 0
pace = false
"#;

#[test]
fn the_telegram_file_loads_without_findings() {
    let rules = Rules::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rules/telegram.toml")).expect("valid");
    assert_eq!(rules.warnings(), []);
    assert_eq!(rules.names().collect::<Vec<_>>(), ["individual", "group", "broadcast"]);
    assert_eq!(
        rules.to_string(),
        "overall = \"30/1s\"\nper_key = \"1/1s\"\nmargin = \"50ms\"\n\n[rules]\nindividual = {}\ngroup = \"20/60s\"\n\
         broadcast = { priority = 2 }\n"
    );
}

#[test]
fn a_file_and_code_say_the_same() {
    let built = Rules::builder()
        .overall(Quota::per_second(30))
        .per_key(Quota::per_second(1))
        .margin(Duration::from_millis(50))
        .rule("individual", Rule::new())
        .rule("group", Rule::new().per_key(Quota::new(20, Duration::from_secs(60))))
        .rule("broadcast", Rule::new().priority(2))
        .build()
        .expect("valid");
    assert_eq!(built, TELEGRAM.parse().expect("valid"));
    assert_ne!(built, "".parse().expect("valid"));
}

#[test]
fn every_field_is_read_and_written() {
    let rules: Rules = EVERYTHING.parse().unwrap_or_else(|findings| panic!("{findings}"));
    assert_eq!(rules.overall().iter().map(Quota::count).collect::<Vec<_>>(), [30, 1000]);
    assert_eq!(rules.overall()[1].own_margin(), Some(Duration::ZERO));
    assert_eq!(rules.overall()[1].own_count_from(), Some(CountFrom::Start));
    assert_eq!(rules.per_key(), [Quota::per_second(1)]);
    assert_eq!((rules.concurrency(), rules.key_concurrency()), (Some(8), Some(2)));
    assert_eq!((rules.margin(), rules.count_from()), (Duration::from_millis(50), CountFrom::Response));
    assert_eq!((rules.retry().attempts, rules.retry().waits, rules.retry_budget()), (4, 20, Some(0.1)));
    assert_eq!((rules.queue(), rules.default_rule()), (Some(50_000), Some("list")));
    let timeouts = ["all", "nothing", "slow"].map(|name| rules.rule(name).expect("a rule").attempt_timeout());
    assert_eq!(timeouts, [Some(Duration::from_secs(120)), Some(Duration::from_secs(30)), None]);
    assert_eq!(rules.attempt_timeout(), Some(Duration::from_secs(30)));
    let rule = rules.rule("all").expect("a rule");
    assert_eq!(
        (rule.per_key(), rule.overall()),
        (&[Quota::new(10, Duration::from_secs(60))][..], &[Quota::per_second(20)][..])
    );
    assert_eq!((rule.concurrency(), rule.key_concurrency()), (Some(3), Some(1)));
    assert_eq!((rule.priority(), rule.weight(), rule.ordered(), rule.paused()), (2, 2, true, true));
    assert_eq!((rule.queue(), rule.overflow()), (Some(10_000), Overflow::DropOldest));
    assert_eq!(rule.max_wait(), Some(Duration::from_secs(600)));
    assert_eq!(["overall", "per_key", "account", "x"].map(|name| rule.is_under(name)), [true, false, true, false]);
    assert_eq!((rule.retry().attempts, rule.retry().hold, rule.retry().order), (5, Scope::Rule, WaitOrder::Policy));
    let plain = rules.rule("nothing").expect("a rule");
    assert_eq!((plain.queue(), plain.max_wait(), plain.retry()), (None, None, rules.retry()));
    assert!(rules.rule("nobody").is_none());
    let kinds = rules.rule("kinds").expect("a rule").per_key();
    assert_eq!(kinds[1].kind(), &QuotaKind::Bucket { burst: 20 });
    assert_eq!(kinds.iter().map(Quota::own_unit).collect::<Vec<_>>(), [None, None, Some("tokens"), Some("images")]);
    assert_eq!(rules.units().collect::<Vec<_>>(), ["tokens", "images"]);
    assert_eq!((rules.unit("images"), rules.unit("image")), (Some(Charge::Unit(1)), None));
    assert_eq!(rules.fair_by(), "tokens");
    assert_eq!(rules.keys().collect::<Vec<_>>(), ["42", "shop 1"]);
    assert_eq!(rules.key_quotas("42", "list"), Some(&[Quota::per_second(40)][..]));
    assert_eq!((rules.key_quotas("42", "all"), rules.key_quotas("41", "list")), (None, None));
    insta::assert_snapshot!("everything", rules.to_string());
    assert_eq!(rules.to_string().parse::<Rules>().expect("valid"), rules);
}

#[test]
fn a_pace_or_a_retry_can_be_switched_off_and_on_in_code_as_in_the_file() {
    let built = Rules::builder()
        .retry(Retry::none().ceiling(None).total_wait(Duration::from_secs(1)))
        .rule("a", Rule::new().retry(Retry::aggressive()))
        .rule("b", Rule::new().priority(2))
        .lane(1, Lane::new().no_pace())
        .lane(2, Lane::new().pace(Duration::from_secs(5)))
        .build();
    let read = "retry = { attempts = 1, ceiling = false, total_wait = '1s' }\n[rules]\na = { retry = 'aggressive' }\n\
                b = { priority = 2 }\n[lanes]\n1 = { pace = false }\n2 = { pace = '5s' }";
    assert_eq!(built.expect("valid"), read.parse().expect("valid"));
}

#[test]
fn quotas_read_exactly() {
    let ms = Duration::from_millis;
    for (text, quota, written) in [
        ("20/60s", Quota::new(20, ms(60_000)), "20/60s"),
        ("30/1s", Quota::per_second(30), "30/1s"),
        ("5/500ms", Quota::new(5, ms(500)), "5/500ms"),
        ("10/1h 30m", Quota::new(10, ms(5_400_000)), "10/90m"),
        ("10/1h30m", Quota::new(10, ms(5_400_000)), "10/90m"),
        (" 20 / 60 s ", Quota::new(20, ms(60_000)), "20/60s"),
        ("30/s", Quota::per_second(30), "30/1s"),
        ("30/sec", Quota::per_second(30), "30/1s"),
        ("100/min", Quota::per_minute(100), "100/60s"),
        ("100/m", Quota::per_minute(100), "100/60s"),
        ("5000/h", Quota::per_hour(5_000), "5000/1h"),
        ("5000/hour", Quota::per_hour(5_000), "5000/1h"),
        ("9/day", Quota::per_day(9), "9/1day"),
        ("4294967295/1s", Quota::per_second(u32::MAX), "4294967295/1s"),
        ("1/1ns", Quota::new(1, Duration::from_nanos(1)), "1/1ns"),
        ("1/1.5s", Quota::new(1, ms(1_500)), "1/1500ms"),
        ("{ count = 20, per = '60s' }", Quota::new(20, ms(60_000)), "20/60s"),
        (
            "{ count = 20, per = '60s', kind = 'window', margin = '50ms', count_from = 'response' }",
            Quota::new(20, ms(60_000)).margin(ms(50)).count_from(CountFrom::Response),
            "{ count = 20, per = \"60s\", margin = \"50ms\", count_from = \"response\" }",
        ),
        ("20/60s smooth", Quota::per_minute(20).smooth(), "20/60s smooth"),
        ("5/300s  burst  20", Quota::new(5, ms(300_000)).burst(20), "5/5m burst 20"),
        ("9/5 min burst 1", Quota::new(9, ms(300_000)).burst(1), "9/5m burst 1"),
        ("90000/min tokens", Quota::per_minute(90_000).unit("tokens"), "90000/60s tokens"),
        ("90000/60s smooth tokens", Quota::per_minute(90_000).smooth().unit("tokens"), "90000/60s smooth tokens"),
        ("90000/60s tokens smooth", Quota::per_minute(90_000).smooth().unit("tokens"), "90000/60s smooth tokens"),
        ("9/s burst 5 tokens", Quota::per_second(9).burst(5).unit("tokens"), "9/1s burst 5 tokens"),
        ("9/s requests", Quota::per_second(9), "9/1s"),
        ("9/1s Tokens", Quota::per_second(9).unit("Tokens"), "9/1s Tokens"),
        ("{ count = 9, per = '1s', unit = 'requests', kind = 'smooth' }", Quota::per_second(9).smooth(), "9/1s smooth"),
        ("{ count = 9, per = '1s', kind = 'bucket', burst = 3 }", Quota::per_second(9).burst(3), "9/1s burst 3"),
        ("{ count = 9, per = '1s', burst = 3 }", Quota::per_second(9).burst(3), "9/1s burst 3"),
        (
            "{ count = 9, per = '1s', kind = 'smooth', unit = 'tokens', margin = '1ms' }",
            Quota::per_second(9).smooth().unit("tokens").margin(ms(1)),
            "{ count = 9, per = \"1s\", kind = \"smooth\", unit = \"tokens\", margin = \"1ms\" }",
        ),
    ] {
        assert_eq!(quota.to_string(), written);
        assert_eq!(text.parse(), Ok(quota.clone()), "{text}");
        assert_eq!(written.parse(), Ok(quota), "{written}");
    }
}

#[cfg(feature = "calendar")]
#[test]
fn calendar_quotas_read_exactly() {
    for (text, zone, unit, written) in [
        ("9/day UTC", "UTC", "requests", "9/day UTC"),
        ("9/1day Europe/Berlin", "Europe/Berlin", "requests", "9/day Europe/Berlin"),
        ("9/ 1 d Etc/GMT-3 tokens", "Etc/GMT-3", "tokens", "9/day Etc/GMT-3 tokens"),
        ("9/day tokens EST5EDT", "EST5EDT", "tokens", "9/day EST5EDT tokens"),
        ("{ count = 9, per = '24h', zone = 'UTC' }", "UTC", "requests", "9/day UTC"),
    ] {
        let quota = Quota::per_calendar_day(9, zone).unit(unit);
        assert_eq!(quota.to_string(), written);
        assert_eq!(text.parse(), Ok(quota.clone()), "{text}");
        assert_eq!(written.parse(), Ok(quota), "{written}");
    }
}

#[test]
fn what_is_no_quota_says_so() {
    for (text, code, nearest) in [
        ("", FindingCode::InvalidQuota, None),
        ("20", FindingCode::InvalidQuota, None),
        ("20/", FindingCode::InvalidQuota, None),
        ("/60s", FindingCode::InvalidQuota, None),
        ("20/60", FindingCode::InvalidQuota, Some("60s")),
        ("20/60s;", FindingCode::InvalidQuota, None),
        ("+20/60s", FindingCode::InvalidQuota, None),
        ("20/60secs smooth/", FindingCode::InvalidQuota, None),
        ("20/60s smooth!", FindingCode::InvalidQuota, None),
        ("20/60s burst", FindingCode::InvalidQuota, None),
        ("20/60s burst five", FindingCode::InvalidQuota, None),
        ("20/60s burst 5000000000", FindingCode::OutOfRange, None),
        ("20/60s burst 0", FindingCode::Zero, None),
        ("20/60s tokens 5", FindingCode::InvalidQuota, None),
        ("20/60s smooth smooth", FindingCode::TwoMeanings, None),
        ("20/60s smooth burst 5", FindingCode::TwoMeanings, None),
        ("20/60s tokens requests", FindingCode::TwoMeanings, None),
        ("20/24h UTC", FindingCode::InvalidQuota, None),
        ("20/2days Europe/Berlin", FindingCode::InvalidQuota, None),
        ("20/day UTC smooth", FindingCode::TwoMeanings, None),
        ("20/day Europe/Berlin Europe/Paris", FindingCode::TwoMeanings, None),
        ("20/day Grün/Rot", FindingCode::InvalidQuota, None),
        ("5/10years burst 100", FindingCode::OutOfRange, None),
        ("2/100years smooth", FindingCode::OutOfRange, None),
        ("{ count = 1, per = '1s', kind = 'bucket' }", FindingCode::Empty, None),
        ("{ count = 1, per = '1s', kind = 'window', burst = 3 }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1s', kind = 'smooth', burst = 3 }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1day', kind = 'smooth', zone = 'UTC' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1day', burst = 1, zone = 'UTC' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1h', zone = 'UTC' }", FindingCode::OutOfRange, None),
        ("{ count = 1, per = '1s', burst = 3, margin = '1ms' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1s', burst = 3, count_from = 'response' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1s', kind = 'smooth', count_from = 'response' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1day', zone = 'UTC', margin = '1ms' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1day', zone = 'UTC', count_from = 'response' }", FindingCode::TwoMeanings, None),
        ("{ count = 1, per = '1s', kind = 'smoth' }", FindingCode::UnknownValue, Some("smooth")),
        ("20/5M", FindingCode::InvalidDuration, Some("m")),
        ("20/M", FindingCode::InvalidDuration, Some("m")),
        ("4294967296/1s", FindingCode::OutOfRange, None),
        ("0/1s", FindingCode::Zero, None),
        ("1/0s", FindingCode::Zero, None),
        ("1/585y", FindingCode::DurationTooLong, None),
        ("{ count = 1 }", FindingCode::Empty, None),
        ("{ count = 1, pre = '1s' }", FindingCode::UnknownField, Some("per")),
        ("{", FindingCode::Syntax, None),
        ("{ count = 0, per = '1s' }", FindingCode::Zero, None),
    ] {
        let findings = text.parse::<Quota>().expect_err(text);
        let first = findings.iter().next().expect("never empty");
        assert_eq!((first.code(), first.nearest()), (code, nearest), "{text}: {findings}");
    }
}

#[test]
fn deep_text_is_refused_without_harm() {
    for text in [
        "overall = ".to_owned() + &"[".repeat(100_000),
        "overall = ".to_owned() + &"{a=".repeat(100_000),
        "a.".repeat(100_000) + "a = 1",
        "[".to_owned() + &"a.".repeat(100_000) + "a]",
        format!("[rules]\na = '1/{}'", "1y ".repeat(100_000)),
        format!("[rules]\na = '1/1s {}'", "x ".repeat(100_000)),
    ] {
        text.parse::<Rules>().expect_err("no rules");
    }
}

/// A length of time whose last digits are as likely to be zero as not.
fn span() -> impl Strategy<Value = Duration> {
    (1_u64..5_000, prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000]))
        .prop_map(|(number, unit)| Duration::from_nanos(number * unit))
}

fn quota() -> impl Strategy<Value = Quota> {
    let plain = || (1_u32.., span()).prop_map(|(count, period)| Quota::new(count, period));
    let count_from = of(prop::sample::select(vec![CountFrom::Start, CountFrom::Response]));
    let window = (plain(), of(span()), count_from).prop_map(|(quota, margin, count_from)| {
        let quota = margin.into_iter().fold(quota, Quota::margin);
        count_from.into_iter().fold(quota, Quota::count_from)
    });
    let start = |quota: Quota, said| if said { quota.count_from(CountFrom::Start) } else { quota };
    let smooth = (plain(), of(span()), any::<bool>())
        .prop_map(move |(quota, margin, said)| start(margin.into_iter().fold(quota.smooth(), Quota::margin), said));
    let bucket =
        (plain(), 1_u32..100, any::<bool>()).prop_map(move |(quota, burst, said)| start(quota.burst(burst), said));
    let zones = vec!["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"];
    let day = (1_u32.., prop::sample::select(zones), any::<bool>()).prop_map(move |(count, zone, said)| {
        let day = if cfg!(feature = "calendar") { Quota::per_calendar_day(count, zone) } else { Quota::per_day(count) };
        start(day, said)
    });
    let kinds = prop_oneof![3 => window, 2 => smooth, 2 => bucket, 1 => day];
    (kinds, of(prop::sample::select(UNITS.to_vec())))
        .prop_map(|(quota, unit)| unit.into_iter().fold(quota, Quota::unit))
}

/// The units that generated rules declare.
const UNITS: [&str; 2] = ["tokens", "größe_2"];

/// No two equal ones: their periods differ.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    vec(quota(), 0..3).prop_map(|mut quotas| {
        quotas.sort_by_key(Quota::period);
        quotas.dedup_by_key(|quota| quota.period());
        quotas
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_-]{1,8}", "[ -~]{1,6}", "[^\\p{Cc}]{1,4}", Just("'\"\"\"'''\\".to_owned())]
        .prop_filter("names of their own", |name| name != "overall" && name != "per_key")
}

fn names(most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set(name(), 0..most).prop_map(|names| names.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

fn retry() -> impl Strategy<Value = Retry> {
    let holds = vec![Scope::Request, Scope::Queue, Scope::Key, Scope::Rule, Scope::Overall];
    let orders = vec![WaitOrder::Max, WaitOrder::Server, WaitOrder::Policy];
    let spans = (of(span()), of(span()), of(span()), of(span()), of(of(span())), of(of(span())));
    let words = (of(prop::sample::select(holds)), of(prop::sample::select(orders)));
    (of(1_u32..), of(0.0..=1.0), of(any::<u32>()), spans, words).prop_map(
        |(attempts, jitter, waits, (backoff, max_delay, min_wait, bare_wait, ceiling, total_wait), (hold, order))| {
            let mut retry = Retry::new();
            retry = attempts.into_iter().fold(retry, Retry::attempts);
            retry = jitter.into_iter().fold(retry, Retry::jitter);
            retry = waits.into_iter().fold(retry, Retry::waits);
            retry = backoff.into_iter().fold(retry, Retry::backoff);
            retry = max_delay.into_iter().fold(retry, Retry::max_delay);
            retry = min_wait.into_iter().fold(retry, Retry::min_wait);
            retry = bare_wait.into_iter().fold(retry, Retry::bare_wait);
            retry = ceiling.into_iter().fold(retry, Retry::ceiling);
            retry = total_wait.into_iter().fold(retry, Retry::total_wait);
            retry = hold.into_iter().fold(retry, Retry::hold);
            order.into_iter().fold(retry, Retry::order)
        },
    )
}

fn time_to_run() -> impl Strategy<Value = Duration> {
    span().prop_map(|span| span.max(Duration::from_nanos(1)))
}

fn rule(limits: Vec<String>) -> impl Strategy<Value = Rule> {
    let outer: Vec<String> = limits.into_iter().chain(["overall".to_owned(), "per_key".to_owned()]).collect();
    let under = of(prop::sample::subsequence(outer.clone(), 0..=outer.len()).prop_shuffle());
    let caps = (quotas(), quotas(), of(1_u32..), of(1_u32..));
    let spans = (of(span()), of(of(time_to_run())));
    (caps, 0_u32..4, 1_u32.., under, any::<(bool, bool, bool)>(), of(1_u32..), spans, retry()).prop_map(
        |((overall, per_key, concurrency, key_concurrency), priority, weight, under, flags, queue, spans, retry)| {
            let (max_wait, attempt_timeout) = spans;
            let (ordered, paused, drop_oldest) = flags;
            let overflow = if drop_oldest { Overflow::DropOldest } else { Overflow::Reject };
            let mut rule = Rule::new().priority(priority).weight(weight).paused(paused).overflow(overflow).retry(retry);
            rule = overall.into_iter().fold(rule, Rule::overall);
            rule = per_key.into_iter().fold(rule, Rule::per_key);
            rule = concurrency.into_iter().fold(rule, Rule::concurrency);
            rule = key_concurrency.into_iter().fold(rule, Rule::key_concurrency);
            rule = queue.into_iter().fold(rule, Rule::queue);
            rule = max_wait.into_iter().fold(rule, Rule::max_wait);
            rule = attempt_timeout.into_iter().fold(rule, Rule::attempt_timeout);
            rule = under.into_iter().fold(rule, Rule::under);
            rule.ordered(ordered && key_concurrency.is_none())
        },
    )
}

fn lane() -> impl Strategy<Value = Lane> {
    (of((0_u32..2, 12_u32..100)), quotas(), of(1_u32..), of(of(span()))).prop_map(
        |(share, overall, concurrency, pace)| {
            let mut lane = Lane::new();
            lane = share.into_iter().fold(lane, |lane, (part, of)| lane.share(part, of));
            lane = overall.into_iter().fold(lane, Lane::overall);
            lane = concurrency.into_iter().fold(lane, Lane::concurrency);
            pace.into_iter()
                .fold(lane, |lane, pace| pace.map_or_else(|| lane.clone().no_pace(), |to| lane.clone().pace(to)))
        },
    )
}

fn builder() -> impl Strategy<Value = RulesBuilder> {
    names(3).prop_flat_map(|limits| {
        let rules = names(5).prop_flat_map({
            let limits = limits.clone();
            move |names| {
                let rules = vec(rule(limits.clone()), names.len());
                (Just(names), rules)
            }
        });
        let limits: Vec<_> = limits.into_iter().map(|name| (Just(name), quotas(), 1_u32.., of(1_u32..))).collect();
        let lanes = prop::collection::btree_map(0_u32..6, lane(), 0..4);
        let count_from = of(prop::sample::select(vec![CountFrom::Start, CountFrom::Response]));
        let top = (quotas(), quotas(), of(1_u32..), of(1_u32..), of(span()), count_from, retry());
        let own = vec((".{0,6}", any::<prop::sample::Index>(), quota()), 0..4);
        let fair_by = of(prop::sample::select(UNITS.to_vec()));
        let line = (of(1_u32..), of(any::<prop::sample::Index>()), of(time_to_run()), of((1_u32..9, 9_u32..)));
        let more = (fair_by, line);
        (top, rules, limits, lanes, own, more).prop_map(|(top, (names, rules), limits, lanes, own, (fair_by, line))| {
            let (overall, per_key, concurrency, key_concurrency, margin, count_from, retry) = top;
            let mut builder = Rules::builder().retry(retry).units(UNITS);
            builder = fair_by.into_iter().fold(builder, RulesBuilder::fair_by);
            for (number, (key, rule, quota)) in own.into_iter().enumerate() {
                // Keys of their own: one quota twice would be found.
                let rule = if names.is_empty() { "default" } else { rule.get(&names) };
                builder = builder.key(format!("{key}{number}"), rule, quota);
            }
            let (queue, default_rule, attempt_timeout, budget) = line;
            builder = queue.into_iter().fold(builder, RulesBuilder::queue);
            builder = attempt_timeout.into_iter().fold(builder, RulesBuilder::attempt_timeout);
            builder = budget.into_iter().fold(builder, |builder, (part, of)| builder.retry_budget(part, of));
            let default_rule = default_rule.map(|rule| if names.is_empty() { "default" } else { rule.get(&names) });
            builder = default_rule.into_iter().fold(builder, RulesBuilder::default_rule);
            builder = overall.into_iter().fold(builder, RulesBuilder::overall);
            builder = per_key.into_iter().fold(builder, RulesBuilder::per_key);
            builder = concurrency.into_iter().fold(builder, RulesBuilder::concurrency);
            builder = key_concurrency.into_iter().fold(builder, RulesBuilder::key_concurrency);
            builder = margin.into_iter().fold(builder, RulesBuilder::margin);
            builder = count_from.into_iter().fold(builder, RulesBuilder::count_from);
            for (name, rule) in names.into_iter().zip(rules) {
                builder = builder.rule(name, rule);
            }
            for (name, quotas, concurrency, key_concurrency) in limits {
                let mut limit = NamedLimit::new().concurrency(concurrency);
                limit = quotas.into_iter().fold(limit, NamedLimit::per_key);
                limit = key_concurrency.into_iter().fold(limit, NamedLimit::key_concurrency);
                builder = builder.limit(name, limit);
            }
            for (number, (priority, lane)) in lanes.into_iter().enumerate() {
                builder = builder.lane(priority, if number == 0 { lane.name("bulk \"1\"") } else { lane });
            }
            builder
        })
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_as_the_same_rules(builder in builder()) {
        let rules = builder.build().expect("all values are in range");
        let text = rules.to_string();
        let read: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}\n{text}"));
        prop_assert_eq!(&read, &rules, "{}", text);
        prop_assert_eq!(format!("{:?}", read.plan()), format!("{:?}", rules.plan()));
        for key in rules.keys() {
            prop_assert!(!rules.own_numbers(key).is_empty());
            prop_assert_eq!(read.own_numbers(key), rules.own_numbers(key));
        }
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn a_quota_reads_back(quota in quota()) {
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
    }

    #[test]
    fn no_text_does_harm(text in ".{0,200}", quota in "[0-9a-zA-Z/ .µ{}='-]{0,40}") {
        let _ = text.parse::<Rules>().map(|rules| rules.to_string()).map_err(|findings| findings.to_string());
        let _ = quota.parse::<Quota>().map(|quota| quota.to_string()).map_err(|findings| findings.to_string());
        let file = format!("[rules]\na = '''{text}'''\n[retry]\nbackoff = \"{quota}\"");
        let _ = file.parse::<Rules>().map_err(|findings| findings.to_string());
    }

    #[test]
    fn no_mutilated_file_does_harm(
        edits in vec((0..EVERYTHING.len(), prop_oneof![Just(None), any::<char>().prop_map(Some), "[0-9\"'={}.,/\\[\\]\n-]".prop_map(|text| text.chars().next())]), 1..4),
    ) {
        let mut text: Vec<char> = EVERYTHING.chars().collect();
        for (at, edit) in edits {
            let at = at.min(text.len() - 1);
            match edit {
                Some(c) => text[at] = c,
                None => drop(text.remove(at)),
            }
        }
        let text: String = text.into_iter().collect();
        match text.parse::<Rules>() {
            Ok(rules) => prop_assert_eq!(rules.to_string().parse::<Rules>().expect("written by us"), rules),
            Err(findings) => {
                for finding in &findings {
                    // Syntax errors at the very end of a file have no place.
                    prop_assert!(finding.line().is_some() || finding.code() == FindingCode::Syntax, "{}", finding);
                    let lines = u32::try_from(text.lines().count()).expect("a short file");
                    prop_assert!(finding.line() <= Some(lines + 1), "{}", finding);
                }
            }
        }
    }

    #[test]
    fn shares_that_mean_the_same_are_equal(part in 0_u32..50, times in 1_u32..1000) {
        let rules = |part, of| Rules::builder().rule("a", Rule::new()).lane(1, Lane::new().share(part, of)).build();
        prop_assert_eq!(rules(part, 100).expect("valid"), rules(part * times, 100 * times).expect("valid"));
    }
}

#[test]
fn what_a_rule_makes_of_what_the_server_says_is_written_back() {
    let text = "[rules]\nread = { per_key = \"5/1s\", under = [\"overall\", \"account\"], observe = { dialect = \"shop\", \
                windows = { Core = \"account\", day = \"overall\", search = \"none\", x = \"per_key\" }, \
                learn = \"30/1s\" } }\n\n[limits]\naccount = { per_key = \"9/1s\" }\n\n[dialects.shop]\nscope = \"global\"\n";
    let rules: Rules = text.parse().expect("valid");
    assert_eq!(rules.to_string(), text);
    let read = rules.rule("read").expect("there");
    assert_eq!((read.dialect(), read.learn()), ("shop", Some(&Quota::per_second(30))));
    // The default need not be said.
    let said: Rules = "[rules.a]\nobserve = { dialect = 'auto' }".parse().expect("valid");
    assert_eq!(said, "[rules.a]".parse().expect("valid"));
    assert_eq!(said.rule("a").expect("there").dialect(), "auto");
}
