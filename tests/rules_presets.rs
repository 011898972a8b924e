//! The rules files of `examples/rules`: they load with the warnings that are listed here, and mean what they are meant to.

use std::collections::BTreeSet;
use std::path::Path;

use request_balancer::engine::{Anchor, Charge, LimitKind, LimitSpec, Nanos, Origin, Plan, RulePlan};
use request_balancer::{Rules, Start, verify};

/// Each preset and its warnings.
const PRESETS: &[(&str, &[&str])] =
    &[("discord", &[]), ("github", &[]), ("openai", &[]), ("telegram", &[]), ("vk", &[]), ("wildberries", &[])];

const SECOND: Nanos = Nanos::from_secs(1);

fn preset(name: &str) -> Rules {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rules").join(name).with_extension("toml");
    Rules::from_file(path).unwrap_or_else(|findings| panic!("{findings}"))
}

fn rule<'a>(plan: &'a Plan, name: &str) -> &'a RulePlan {
    plan.rules.iter().find(|rule| *rule.name == *name).unwrap_or_else(|| panic!("no rule {name}"))
}

fn window(count: u32, period: Nanos) -> LimitKind {
    LimitKind::Window { count, period, anchor: Anchor::Start, grain: Nanos::ZERO }
}

/// The kinds of limits with one state for all keys that bind a rule.
fn shared(plan: &Plan, name: &str) -> Vec<LimitKind> {
    rule(plan, name).shared.iter().map(|bound| plan.shared_limits[bound.limit].kind).collect()
}

/// The kinds of limits in each key's record that bind a rule, its own ones last.
fn each_key(plan: &Plan, name: &str) -> Vec<LimitKind> {
    let rule = rule(plan, name);
    let common = rule.key.iter().map(|bound| &plan.key_limits[bound.limit]);
    common.chain(&rule.own).map(|spec| spec.kind).collect()
}

#[test]
fn every_preset_loads_with_exactly_the_warnings_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rules");
    let files: BTreeSet<String> = folder
        .read_dir()
        .expect("a readable folder")
        .map(|entry| entry.expect("a readable entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let listed: BTreeSet<String> = PRESETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, listed, "files of examples/rules and those that are checked here");
    for (name, expected) in PRESETS {
        let rules = preset(name);
        let warnings: Vec<String> = rules.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, *expected, "warnings of {name}");
        assert_eq!(rules.to_string().parse::<Rules>().as_ref(), Ok(&rules), "{name}, written and read again");
    }
}

#[test]
fn every_number_of_a_preset_says_where_it_is_from() {
    for (name, _) in PRESETS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rules").join(name).with_extension("toml");
        let text = std::fs::read_to_string(path).expect("a preset");
        assert!(text.contains("looked up on") || text.contains("looked up\n# on"), "{name} has no date");
        let mut above = "";
        for line in text.lines() {
            let (said, comment) = line.split_once('#').unwrap_or((line, ""));
            let is_number = said.contains('=') && said.contains(|c: char| c.is_ascii_digit()) && said.contains('"');
            assert!(!is_number || !comment.is_empty() || !above.is_empty(), "{name}: no source of {line}");
            // A comment stands for the lines below it, up to an empty one.
            if line.is_empty() {
                above = "";
            } else if said.trim().is_empty() {
                above = comment;
            }
        }
    }
}

#[test]
fn telegram_lets_20_messages_to_a_group_start_in_a_minute() {
    let rules = preset("telegram");
    let plan = rules.plan();
    let [chat, group] = [window(1, Nanos::from_millis(1_050)), window(20, Nanos::from_millis(60_050))];
    assert_eq!(each_key(&plan, "individual"), [chat]);
    assert_eq!(each_key(&plan, "group"), [chat, group]);
    assert_eq!(shared(&plan, "broadcast"), [window(30, Nanos::from_millis(1_050))]);
    assert!(rule(&plan, "broadcast").lane > rule(&plan, "group").lane);
    // A message every 2 s: 20 of them are right, the 21st is one too many.
    let starts = |count: u64| -> Vec<Start> {
        (0..count).map(|n| Start::new(std::time::Duration::from_secs(2 * n), "group", -100)).collect()
    };
    assert_eq!(verify(&rules, &starts(20)), []);
    assert_eq!(verify(&rules, &starts(21)).len(), 1);
}

#[test]
fn discord_shares_a_channel_between_messages_and_broadcasts() {
    let rules = preset("discord");
    assert_eq!(rules.ban_guard().map(ToString::to_string).as_deref(), Some("9500/10m"));
    let plan = rules.plan();
    assert_eq!(each_key(&plan, "message"), [window(5, Nanos::from_millis(5_050))]);
    let limits = |name| rule(&plan, name).key.iter().map(|bound| bound.limit).collect::<Vec<_>>();
    assert_eq!(limits("message"), limits("broadcast"));
    assert_eq!(shared(&plan, "message"), [window(50, Nanos::from_millis(1_050))]);
    assert_eq!(shared(&plan, "interaction"), []);
}

#[test]
fn vk_counts_a_community_and_a_user_apart() {
    let plan = preset("vk").plan();
    for name in ["reply", "broadcast", "method"] {
        assert_eq!(shared(&plan, name), [window(20, Nanos::from_millis(1_050))], "{name}");
    }
    assert_eq!(shared(&plan, "user"), []);
    assert_eq!(each_key(&plan, "user"), [window(3, Nanos::from_millis(1_050))]);
    assert_eq!(rule(&plan, "reply").retry.bare_wait, SECOND);
}

#[test]
fn github_writes_one_after_the_other_and_searches_on_a_budget_of_its_own() {
    let rules = preset("github");
    let plan = rules.plan();
    let write = rules.rule("write").expect("a rule");
    let numbers: Vec<String> = write.per_key().iter().map(ToString::to_string).collect();
    assert_eq!((numbers.join(", ").as_str(), write.key_concurrency()), ("1/1s, 80/60s, 500/1h", Some(1)));
    let core: Vec<String> = rules.per_key().iter().map(ToString::to_string).collect();
    assert_eq!(core, ["5000/1h", "500/60s"]);
    assert_eq!(each_key(&plan, "search"), [window(30, Nanos::from_millis(60_500))]);
    assert_eq!(each_key(&plan, "code_search"), [window(10, Nanos::from_millis(60_500))]);
    assert_eq!(rule(&plan, "read").retry.bare_wait, Nanos::from_secs(60));
}

#[test]
fn openai_limits_a_model_in_requests_and_in_tokens() {
    let plan = preset("openai").plan();
    let limits = |name| rule(&plan, name).key.iter().map(|bound| bound.limit).collect::<Vec<_>>();
    assert_eq!(limits("chat"), limits("batch"));
    let period = Nanos::from_millis(60_500);
    let large: Vec<&LimitSpec> = plan
        .key_limits
        .iter()
        .filter(|spec| spec.origin == Origin::NamedPerKey("large".into()) && spec.charge == Charge::Unit(0))
        .collect();
    let [LimitSpec { kind: LimitKind::Window { count: 30_000, period: tokens, .. }, .. }] = *large else {
        panic!("{large:?}")
    };
    assert_eq!(*tokens, period);
    let interval = Nanos::new(period.get() / 500);
    assert!(
        each_key(&plan, "chat")
            .iter()
            .any(|kind| matches!(kind, LimitKind::Spaced { interval: own, .. } if *own == interval))
    );
}

#[test]
fn wildberries_keeps_one_token_of_each_bucket_in_reserve() {
    let plan = preset("wildberries").plan();
    let bucket = |millis, burst| [LimitKind::Bucket { interval: Nanos::from_millis(millis), burst }];
    assert_eq!(each_key(&plan, "marketplace"), bucket(200, 19));
    for name in ["content", "prices", "promotions"] {
        assert_eq!(each_key(&plan, name), bucket(600, 4), "{name}");
    }
    assert_eq!(each_key(&plan, "other"), [window(1, Nanos::from_secs(61))]);
}
