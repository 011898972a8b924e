//! Everything that can be said about rules, in its exact words.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use request_balancer::headers::{Dialect, Field, Form, Part, Pick, ServerScope, WaitField, WindowSpec};
use request_balancer::{
    Finding, FindingCode, Findings, Lane, NamedLimit, Quota, Retry, Rule, Rules, RulesBuilder, Severity,
};

/// Each text with all that is found in it.
const FILES: &[(&str, &str)] = &[
    ("not TOML", "overall = 30/1s\n[rules\nchat = {}"),
    ("a field twice", "overall = '30/1s'\noverall = '20/1s'"),
    ("unknown fields", "pre_key = '1/1s'\nretires = 3\n[rules.chat]\nprio = 2\nzzz = 1"),
    (
        "unknown fields, further in",
        "overall = { limit = '1/1s', concurency = 2 }\nper_key = { cont = 1, per = '1s' }\n[limits.a]\nperkey = '1/1s'\n\
         [lanes.1]\npaced = '1s'\n[retry]\nattempt = 2",
    ),
    (
        "units never declared",
        "units = ['tokens']\nfair_by = 'token'\noverall = ['9/1s smoth', '9/1s Tokens']\n\
         [rules.a]\nper_key = { count = 1, per = '1s', unit = 'images' }\noverall = '9/1s requests'",
    ),
    ("no units declared", "overall = '1000/min tokens'"),
    (
        "names of units",
        "units = ['tokens', 'requests', 'tokens', 'two words', 'Tokens', 'smooth', 'min', '5x', '', 'a/b']\n\
         overall = '9/1s tokens'",
    ),
    ("units that cannot be read", "units = 'tokens'\nfair_by = 5\noverall = '9/1s tokens'"),
    (
        "units that nothing counts",
        "units = ['tokens', 'images', 'files', 'requests']\nfair_by = 'images'\noverall = '9/1s tokens'",
    ),
    (
        "wrong types",
        "overall = 30\nper_key = [1, '1/1s']\nconcurrency = '3'\nmargin = 50\ncount_from = true\n[rules]\na = 5\n\
         b = { ordered = 'yes', under = 'overall', retry = 3, priority = 1.5, max_wait = true }\n[limits]\nx = '1/1s'\n\
         [lanes]\n1 = 'bulk'\n2 = { name = 5, share = true, pace = true }\n[retry]\njitter = 'half'\nceiling = 5",
    ),
    ("tables that are none", "rules = 'chat'\nlimits = []\nlanes = 1979-05-27\nretry = 3"),
    (
        "unknown words",
        "count_from = 'respone'\nretry = 'agressive'\n[rules.a]\noverflow = 'drop_oldest'\nretry = { hold = 'chat', order = 'min' }\n\
         overall = { count = 1, per = '1s', kind = 'windows' }",
    ),
    (
        "out of range",
        "concurrency = -1\noverall = '5000000000/1s'\n[rules.a]\npriority = -1\nweight = 4294967296\n\
         retry = { jitter = 1.5 }\n[rules.b]\npriority = 2\nretry = { jitter = nan, attempts = 99999999999999999999 }\n\
         [lanes.1]\nshare = '3/2'\n[lanes.2]\nshare = 1.01\n[lanes.3]\nshare = 'half'\n[lanes.4]\nshare = 1e-12",
    ),
    (
        "zeros",
        "overall = ['0/1s', '1/0s']\nconcurrency = 0\n[rules.a]\nper_key = { count = 0, per = '0s' }\nkey_concurrency = 0\n\
         weight = 0\nqueue = 0\nretry = { attempts = 0 }\n[lanes.1]\npace = '0s'",
    ),
    (
        "nothing said",
        "overall = {}\nper_key = []\n[rules]\na = { per_key = { count = 1 }, overall = { per = '1s' } }\n[limits.x]\n[lanes]",
    ),
    ("no rules", "[rules]"),
    (
        "what the server says",
        "[dialects.shop]\nscope = 'global'\n[rules.a]\nper_key = '1/1s'\nobserve = { dialects = 'auto', dialect = 'shpo', \
         windows = { x = 'acount', y = 'overal', Y = 'none', z = 5 }, learn = '5/1s smooth' }\n\
         [rules.b]\nobserve = { learn = '0/1s', windows = {} }\n[limits.account]\nper_key = '9/1s'\n\
         [rules.c]\nunder = ['account']\nobserve = 'auto'",
    ),
    (
        "two meanings",
        "concurrency = 3\noverall = { limit = '30/1s', concurrency = 4 }\nper_key = { limit = '1/1s', count = 1, per = '1s' }\n\
         [rules.a]\nordered = true\nkey_concurrency = 2\n[rules.b]\nper_key = { concurrency = 1 }\nkey_concurrency = 1",
    ),
    (
        "not quotas",
        "overall = ['20 per 60s', '/1s', '-1/1s', 'NaN/1s', '1.5/1s', '20/', '20/60', '20/60x', '20/60s!', '20/60S', '']\n\
         per_key = ['10/5M', '10/M']",
    ),
    (
        "two kinds in one quota",
        "overall = ['20/60s smooth burst 5', '20/60s tokens images', '20/day UTC smooth', '20/60s burst', '20/60s burst 5s', \
         '20/60s burst 5000000000', '20/24h UTC']\n\
         per_key = [{ count = 1, per = '1s', kind = 'smooth', burst = 5 }, { count = 1, per = '1s', kind = 'bucket' }, \
         { count = 1, per = '1day', zone = 'UTC', burst = 5 }]",
    ),
    (
        "what a kind does not have",
        "margin = '50ms'\ncount_from = 'response'\noverall = ['5/1s burst 5', '4/1s smooth']\n\
         per_key = [{ count = 5, per = '1s', burst = 5, margin = '1ms' }, \
         { count = 5, per = '2s', burst = 5, count_from = 'response' }, \
         { count = 5, per = '3s', kind = 'smooth', count_from = 'response', margin = '1ms' }]",
    ),
    (
        "beyond what buckets hold",
        "overall = ['5/10years burst 100', '2/80years smooth', '1/80years smooth', '5/10years burst 0']",
    ),
    (
        "numbers of keys",
        "units = ['tokens']\noverall = '30/1s'\n[rules]\nread = { key_concurrency = 1 }\nwrite = '1/1s'\n\
         [keys.'shop 1']\nraed = '40/1s'\nwrite = ['0/1s', '2/1s', '2/1s']\n[keys.'shop 2']\nread = []\nwrite = 5\n\
         [keys.'shop 3']\n[keys.'shop 4']\nread = '9/1s token'\n[keys]\nshop_5 = '9/1s'",
    ),
    (
        "a key with a rate out of reach",
        "overall = '30/1s'\n[rules]\nread = '1/1s'\n[keys.'shop 1']\nread = ['40/1s', '31/1s']",
    ),
    ("a key in a file without rules", "[keys.a]\nread = '1/1s'\ndefault = '2/1s'"),
    ("a key beside rules that cannot be read", "rules = 5\n[keys.a]\nread = '1/1s'"),
    (
        "lengths of time",
        "margin = '50'\n[rules.a]\nmax_wait = '10M'\n[rules.b]\nmax_wait = '10 minuts'\nretry = { backoff = '-1s', ceiling = '' }\n\
         [rules.c]\nmax_wait = '600years'\noverall = '1/99999999999999999999s'\n\
         per_key = { count = 1, per = '584y', margin = '200days' }",
    ),
    ("the same quota twice", "per_key = ['20/60s', '1/1s', '20/1m']"),
    ("names", "[rules]\n'' = {}\n\"a\\u0007\" = {}\n[limits.overall]\noverall = '1/1s'\n[lanes.1]\nname = ''"),
    (
        "under",
        "[limits.account]\noverall = '1/1s'\n[rules.a]\nunder = ['overall', 'acount', 'overall']\n[rules.b]\nunder = ['account', 5]",
    ),
    (
        "lanes that are no numbers",
        "[rules.a]\n[lanes.bulk]\n[lanes.02]\n[lanes.-1]\n[lanes.'1']\nname = 'b'\n[lanes.4294967296]",
    ),
    ("two lanes of one name", "[rules]\na = { priority = 1 }\nb = { priority = 2 }\n[lanes.2]\nname = '1'"),
    (
        "a share that cannot be met",
        "[rules]\na = { priority = 1 }\nb = { priority = 2 }\nc = { priority = 3 }\n[lanes.2]\nshare = '2/5'\n[lanes.1]\nshare = '1/3'",
    ),
    (
        "shares above a half",
        "[rules]\na = { priority = 1 }\nb = { priority = 2 }\nc = { priority = 3 }\n[lanes.2]\nshare = 0.25\n[lanes.3]\nshare = '26/100'",
    ),
    ("margins", "margin = '1s'\noverall = '30/1s'\nper_key = { count = 1, per = '2s', margin = '2s' }"),
    (
        "rates out of reach",
        "overall = '30/1s'\nper_key = ['1/1s', '20/60s']\n[limits.account]\nper_key = '60/1h'\noverall = '1000/1h'\n\
         [lanes.2]\noverall = '10/1s'\n[rules.a]\nper_key = '1/2s'\noverall = '31/1s'\n[rules.b]\npriority = 2\noverall = '20/1s'\n\
         [rules.c]\nunder = ['account']\nper_key = ['10/1s', '2/1m']\n[rules.d]\nunder = []\nper_key = '2/1s'\noverall = '1/1s'\n\
         [rules.e]\nunder = []\nper_key = '1000/1s'",
    ),
    (
        "rates out of reach, each unit and kind by itself",
        "units = ['tokens', 'images']\noverall = ['30/1s', '1000/1m tokens']\nper_key = '60/1m burst 20'\n\
         [limits.slow]\noverall = '20/1s smooth'\n\
         [rules.a]\noverall = ['31/1s smooth', '20/1s tokens', '1000/1s images']\nper_key = ['2/1s burst 10', '17/1s tokens']\n\
         [rules.b]\nper_key = ['2/1s burst 20', '900/1m tokens']\n[rules.c]\nper_key = '25/1s'\n\
         [rules.d]\nunder = ['slow']\nper_key = ['25/1s burst 2']",
    ),
    (
        "finer than timers, by kind",
        "units = ['tokens']\nmargin = '1s'\noverall = ['2000/1s smooth', '2001/1s smooth', '1001/1s burst 5', '90000/1s tokens']",
    ),
    ("finer than timers", "overall = '1/500us'\nper_key = '1001/1s'\n[rules.a]\noverall = '1000/1s'"),
    (
        "who may wait, for how long, and what may be tried again",
        "queue = 0\ndefault_rule = 'chta'\nattempt_timeout = '0s'\n[rules.chat]\nattempt_timeout = '0ms'\nretry = { budget = 0.1 }\n\
         [rules.page]\nattempt_timeout = true\n[retry]\nbudget = 0",
    ),
    ("more retries than starts", "queue = '9'\ndefault_rule = 5\nattempt_timeout = false\n[retry]\nbudget = 1.5"),
    ("a default rule beside rules that cannot be read", "default_rule = 'chat'\nrules = 5"),
    (
        "delays that are cut",
        "[retry]\nbackoff = '2m'\n[rules.a]\nretry = { max_delay = '3m' }\n[rules.b]\nretry = { max_delay = '5s' }\n[rules.c]",
    ),
    ("unused", "[rules.a]\n[limits.account]\noverall = '1/1s'\n[lanes.7]\nname = 'bulk'"),
    (
        "dialects",
        "[dialects.shop]\nlike = 'gitbub'\nscope = 'all'\nrefused = [429, 99, 600, 70000, 'x']\nreset = 'ful'\nbodies = true\nwaitz = 1\nnamed_by = 'X-*'\n\
         [dialects.shop.windows]\n'a' = { limt = 'X-A', limit = 5, reset = { form = 'ms' }, per = '0s', unit = 'Two words' }\n\
         b = { remaining = 'X B', reset = { header = '', form = 'seconds', x = 1 }, used = 'X-*-B' }\nc = {}\nd = 'X-D'\n\
         [dialects.shop.waits]\n'X-*' = 'seconds'\nX-Wait = 'second'\n'é' = 'any'\n\
         [dialects.shop.words]\nX-Reason = { a = 'globl', b = ['refused', 5] }\nX-Other = 'global'\n'' = { a = 'key' }\n\
         [dialects.shop.body]\nwaits = { 'a..b' = 'any' }\nwords = { 'a.' = { x = 'final' } }\nwords_ = 1",
    ),
    (
        "dialects that are none",
        "[dialects.auto]\nscope = 'key'\n[dialects.empty]\n[dialects.none]\nlike = 'none'\n[dialects.'']\nscope = 'key'\n\
         [dialects]\nshop = 'auto'\nshops = { windows = {}, refused = 429, like = 5, waits = [] }",
    ),
    (
        "what is unreadable hides no other finding and makes up none",
        "[rules.a]\npriority = 'low'\nunder = 'account'\nweight = 0\n[limits.account]\noverall = '1/1s'\n[lanes.2]",
    ),
    (
        "what of a pool is of no use",
        "overall = '20/1s'\n[pool]\noverall = '30/1s'\nper_key = '40/1s'\nsticky = true\nendpoints = ['a']",
    ),
    ("nothing shared", "overall = '30/1s'\n[shared]\nlease = '0s'\nprefix = 'a b'\nprocesses = 0\nurl = ''\nurls = 1"),
    ("a table of nothing shared", "overall = '30/1s'\n[shared]\nprocesses = 2"),
    (
        "shared what no store keeps",
        "overall = { limit = { count = 9, per = '1s', count_from = 'response' }, shared = true }\n\
         per_key = { limit = ['9/1s', '8/1s'], shared = true }\n[pool]\nper_key = { limit = '1/1s', shared = true }",
    ),
    (
        "shared under one name",
        "per_key = { limit = ['30/1s smooth', '20/1s'], shared = true }\n\
         overall = { limit = ['20/1500ms', { count = 30, per = '1s', margin = '500ms' }], shared = true }\n\
         [rules.a]\nper_key = { limit = ['20/1500ms', '30/1s'], shared = true }\n\
         overall = { limit = ['20/2s burst 5', '10/1s burst 9'], shared = true }",
    ),
    (
        "shared among more than there is",
        "overall = { limit = '3/1s', shared = true }\n[limits.a]\nconcurrency = 1\nshared = true\n[rules.b]\nunder = ['a', 'overall']",
    ),
];

/// Texts with calendar days.
const DAYS: &[(&str, &str)] = &[(
    "calendar days",
    "overall = ['100/day UTC', '100/day Mars/Olympus', '9/day europe/Berlin', '9/day Europe/Belrin']\n\
     [rules.a]\nper_key = { count = 1, per = '24h', zone = '' }\noverall = { count = 1, per = '1h', zone = 'UTC' }\n\
     [rules.b]\nper_key = { count = 1, per = '1day', zone = 'UTC', margin = '1s', count_from = 'response' }",
)];

#[test]
fn calendar_days_in_their_words() {
    let mut text = String::new();
    for (name, file) in DAYS {
        write(&mut text, name, file, &found(file.parse()), &mut BTreeSet::new());
    }
    insta::assert_snapshot!(if cfg!(feature = "calendar") { "days" } else { "days_without_the_feature" }, text);
}

#[cfg(feature = "calendar")]
#[test]
fn a_day_is_compared_with_days_and_with_what_never_fills_it() {
    let warned = |overall: &str, own: &str| {
        let rules: Rules = format!("overall = '{overall}'\n[rules]\na = '{own}'").parse().expect("only warnings");
        rules.warnings().iter().map(|finding| finding.code()).collect::<Vec<_>>()
    };
    for (overall, own, found) in [
        ("100/day UTC", "101/day UTC", true),
        ("100/day UTC", "100/day Asia/Tokyo", false),
        ("100/day UTC", "1/1s", false),
        ("100/day UTC", "200/day", false),
        ("1/1h", "100/day UTC", true),
        ("5/1h", "100/day UTC", false),
    ] {
        let code = found.then_some(FindingCode::UnreachableRate);
        assert_eq!(warned(overall, own), Vec::from_iter(code), "{own} under {overall}");
    }
}

#[test]
fn every_finding_in_its_words() {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for (name, file) in FILES {
        let findings = found(file.parse());
        write(&mut text, name, file, &findings, &mut seen);
    }
    for (name, builder) in builders() {
        write(&mut text, name, "", &found(builder.build()), &mut seen);
    }
    let missing = Rules::from_file("tests/fixtures/there-is-no-such-file.toml").expect_err("no such file");
    seen.extend(missing.iter().map(Finding::code));
    assert!(
        missing.to_string().starts_with("tests/fixtures/there-is-no-such-file.toml: error[unreadable-file]: found ")
    );
    for (_, file) in DAYS {
        seen.extend(found(file.parse()).iter().map(Finding::code));
    }
    // Each build shows one of the two.
    seen.extend([FindingCode::UnsupportedQuota, FindingCode::UnknownZone]);
    let never: Vec<_> = FindingCode::ALL.iter().filter(|code| !seen.contains(code)).collect();
    assert!(never.is_empty(), "no case shows {never:?}");
    insta::assert_snapshot!("findings", text);
}

#[test]
fn codes_are_unique_and_kebab_case() {
    let mut names = BTreeSet::new();
    let mut list = String::new();
    for code in FindingCode::ALL {
        let name = code.as_str();
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{name}");
        assert!(names.insert(name), "{name} twice");
        assert_eq!(name, code.to_string());
        writeln!(list, "{:<8}{name:<20}{}", code.severity(), code.meaning()).expect("writing to a string");
    }
    insta::assert_snapshot!("codes", list);
}

#[test]
fn the_builder_finds_what_the_file_finds() {
    let file = "overall = '0/1s'\nmargin = '1s'\n[limits.x]\n[rules.a]\nweight = 0\nper_key = '9/1s'\nunder = ['y']\n\
                retry = { attempts = 0, jitter = 2.0 }\n[lanes.1]\nshare = '2/1'";
    let built = Rules::builder()
        .overall(Quota::per_second(0))
        .margin(Duration::from_secs(1))
        .limit("x", NamedLimit::new())
        .rule(
            "a",
            Rule::new()
                .weight(0)
                .per_key(Quota::per_second(9))
                .under(["y"])
                .retry(Retry::new().attempts(0).jitter(2.0)),
        )
        .lane(1, Lane::new().share(2, 1))
        .build();
    let facts = |findings: Vec<Finding>| -> BTreeSet<_> {
        let facts = findings.into_iter().map(|finding| {
            (finding.path().to_owned(), finding.code(), finding.found().to_owned(), finding.allowed().to_owned())
        });
        facts.collect()
    };
    let (file, built) = (found(file.parse()), found(built));
    assert!(file.iter().all(|finding| finding.line().is_some() && finding.column().is_some()));
    assert!(built.iter().all(|finding| finding.line().is_none() && finding.column().is_none()));
    assert_eq!(file.len(), 9);
    assert_eq!(facts(file), facts(built));
}

#[test]
fn fr_061_a_rate_of_zero_names_rule_and_field() {
    for (quota, found) in [("0/1s", "`0/1s`, a count of zero"), ("1/0s", "`1/0s`, a period of zero")] {
        let findings = format!("[rules.chat]\nper_key = '{quota}'").parse::<Rules>().expect_err(quota);
        let [finding] = findings.iter().collect::<Vec<_>>()[..] else { panic!("{findings}") };
        assert_eq!((finding.code(), finding.path()), (FindingCode::Zero, "rules.chat.per_key"));
        assert_eq!((finding.line(), finding.column()), (Some(2), Some(11)));
        assert_eq!(finding.found(), found);
    }
    for quota in ["-1/1s", "NaN/1s", "1/-1s", "inf/1s"] {
        let findings = format!("[rules.chat]\nper_key = '{quota}'").parse::<Rules>().expect_err(quota);
        let [finding] = findings.iter().collect::<Vec<_>>()[..] else { panic!("{findings}") };
        assert_eq!((finding.code(), finding.path()), (FindingCode::InvalidQuota, "rules.chat.per_key"), "{quota}");
    }
    for quota in [Quota::new(0, Duration::from_secs(1)), Quota::new(1, Duration::ZERO)] {
        let findings = Rules::builder().rule("chat", Rule::new().overall(quota)).build().expect_err("zero");
        let [finding] = findings.iter().collect::<Vec<_>>()[..] else { panic!("{findings}") };
        assert_eq!((finding.code(), finding.path()), (FindingCode::Zero, "rules.chat.overall"));
    }
}

#[test]
fn fr_059_check_warns_that_timers_resolve_a_millisecond() {
    let rules: Rules = "overall = '1/500us'".parse().expect("only a warning");
    let [finding] = rules.warnings() else { panic!("{:?}", rules.warnings()) };
    assert_eq!((finding.code(), finding.severity()), (FindingCode::BeyondTimers, Severity::Warning));
    assert_eq!(finding.allowed(), "one start in 1ms or more: timers resolve 1 ms");
    let rules: Rules = "overall = '1000/1s'".parse().expect("valid");
    assert_eq!(rules.warnings(), []);
}

#[test]
fn positions_count_characters_and_lines_of_any_ending() {
    for text in ["# é\r\n[rules.'é']\r\n  per_key = 'x'", "# é\n[rules.'é']\n  per_key = 'x'"] {
        let findings = text.parse::<Rules>().expect_err("no quota");
        let [finding] = findings.iter().collect::<Vec<_>>()[..] else { panic!("{findings}") };
        assert_eq!((finding.line(), finding.column()), (Some(3), Some(13)));
    }
    let findings = "[rules]\n'é' = 'x'".parse::<Rules>().expect_err("no quota");
    assert_eq!(findings.iter().next().and_then(Finding::column), Some(7));
}

/// What only code can get wrong.
fn builders() -> Vec<(&'static str, RulesBuilder)> {
    let many = (0..=usize::from(u16::MAX)).fold(Rules::builder(), |builder, number| {
        builder.rule(number.to_string(), Rule::new().overall(Quota::per_second(1)))
    });
    vec![
        ("code: the same name twice", {
            let lane = || Lane::new().share(0, 0);
            let limit = || NamedLimit::new().concurrency(1);
            Rules::builder()
                .rule("a", Rule::new().under(["x"]))
                .rule("a", Rule::new())
                .limit("x", limit())
                .limit("x", limit())
                .lane(1, lane())
                .lane(1, lane())
        }),
        ("code: too long", {
            Rules::builder()
                .margin(Duration::MAX)
                .overall(Quota::new(1, Duration::MAX))
                .per_key(Quota::per_second(1).margin(Duration::MAX))
                .retry(Retry::new().ceiling(Duration::MAX).total_wait(None))
                .lane(1, Lane::new().pace(Duration::MAX))
        }),
        ("code: dialects", {
            static HOUSE: Dialect = Dialect::new("house").like(Dialect::auto()).scope(ServerScope::Key);
            static SHOP: Dialect = Dialect::new("shop")
                .like(&HOUSE)
                .windows(
                    const {
                        &[
                            WindowSpec::new("day")
                                .per(Duration::ZERO)
                                .fields(const { &[Field::new("x-a", Part::Limit), Field::new("x-b", Part::Limit)] }),
                            WindowSpec::new("day"),
                        ]
                    },
                )
                .waits(const { &[WaitField::new("x-w", Form::Any), WaitField::new("x-w", Form::Seconds)] })
                .body(const { &[Pick::wait("", Form::Any)] });
            Rules::builder().dialect(HOUSE.clone()).dialect(SHOP.clone()).dialect(SHOP.clone())
        }),
        ("code: too many rules", many),
    ]
}

fn found(result: Result<Rules, Findings>) -> Vec<Finding> {
    match result {
        Ok(rules) => {
            assert!(rules.warnings().iter().all(|finding| finding.severity() == Severity::Warning));
            rules.warnings().to_vec()
        }
        Err(findings) => {
            assert!(findings.iter().any(|finding| finding.severity() == Severity::Error), "{findings}");
            findings.iter().cloned().collect()
        }
    }
}

fn write(text: &mut String, name: &str, file: &str, findings: &[Finding], seen: &mut BTreeSet<FindingCode>) {
    assert!(!findings.is_empty(), "{name}: nothing found");
    writeln!(text, "=== {name}").expect("writing to a string");
    for (number, line) in file.lines().enumerate() {
        writeln!(text, "{:>3} | {line}", number + 1).expect("writing to a string");
    }
    for finding in findings {
        writeln!(text, "{finding}").expect("writing to a string");
        seen.insert(finding.code());
    }
    writeln!(text).expect("writing to a string");
}
