//! Rules with a version: the highest one is in force in all processes. In a store in memory, on the paused clock.
#![cfg(feature = "shared")]

use std::time::Duration;

use request_balancer::shared::{MemoryStore, Store as _, VersionedRules};
use request_balancer::{Balancer, EndpointRules, Event, Events, Failure, Rules, SharedRules};
use tokio::time::{Instant, sleep};

const MILLI: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Rules that let so many start a second.
fn rules(count: u32, version: Option<u64>) -> Rules {
    let version = version.map_or_else(String::new, |version| format!("version = {version}"));
    format!("overall = {{ limit = '{count}/1s', shared = true }}\n[shared]\nprocesses = 1\n{version}").parse().unwrap()
}

fn process(rules: &Rules, store: &MemoryStore) -> Balancer {
    Balancer::builder(rules.clone()).shared(store.clone()).build()
}

async fn start(balancer: &Balancer) {
    balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    sleep(MILLI).await;
}

/// How many start at once.
async fn limit(balancer: &Balancer) -> usize {
    sleep(2 * SEC).await;
    let begin = Instant::now();
    let all = (0..100).map(|_| async {
        balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(begin.elapsed() < 500 * MILLI)).await.unwrap()
    });
    futures::future::join_all(all).await.into_iter().filter(|&is_early| is_early).count()
}

fn all(events: &mut Events) -> Vec<Event> {
    std::iter::from_fn(|| events.try_next()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_higher_version_is_taken_over_and_the_lower_never() {
    let store = MemoryStore::new();
    let old = process(&rules(10, Some(7)), &store);
    let mut events = old.events();
    start(&old).await;
    let new = process(&rules(20, Some(8)), &store);
    start(&new).await;
    assert_eq!(all(&mut events), [Event::RulesTaken { version: 8 }]);
    assert_eq!([limit(&old).await, limit(&new).await], [20; 2]);
    // One of the old version that begins in the middle of it, as in a rolling deploy, changes nothing for the others.
    let mut new_events = new.events();
    let late = process(&rules(10, Some(7)), &store);
    let mut late_events = late.events();
    start(&late).await;
    sleep(60 * SEC).await;
    assert_eq!(all(&mut late_events), [Event::RulesTaken { version: 8 }]);
    assert_eq!([all(&mut events), all(&mut new_events)], [vec![], vec![]]);
    assert_eq!(limit(&late).await, 20);
    // Nor does the program itself go back.
    late.replace_rules(rules(5, Some(6)));
    sleep(MILLI).await;
    assert_eq!(all(&mut late_events), [Event::RulesTaken { version: 8 }]);
    // But on: each process once, and all of them.
    late.replace_rules(rules(30, Some(9)));
    sleep(MILLI).await;
    for events in [&mut events, &mut new_events] {
        assert_eq!(all(events), [Event::RulesTaken { version: 9 }]);
    }
    assert_eq!([limit(&old).await, limit(&new).await, limit(&late).await], [30; 3]);
    assert_eq!(all(&mut late_events), []);
}

#[tokio::test(start_paused = true)]
async fn other_rules_of_the_same_version_are_told_and_change_nothing() {
    let store = MemoryStore::new();
    let [one, other] = [rules(10, Some(7)), rules(20, Some(7))].map(|rules| process(&rules, &store));
    let mut events = other.events();
    start(&one).await;
    start(&other).await;
    sleep(60 * SEC).await;
    assert_eq!(all(&mut events), [Event::RulesDiffer { version: 7 }]);
    assert_eq!(limit(&other).await, 20);
}

#[tokio::test(start_paused = true)]
async fn without_a_version_each_has_its_own_rules() {
    let store = MemoryStore::new();
    let [one, other] = [rules(10, None), rules(20, Some(7))].map(|rules| process(&rules, &store));
    let mut events = one.events();
    start(&one).await;
    start(&other).await;
    sleep(60 * SEC).await;
    assert_eq!(all(&mut events), []);
    assert_eq!(limit(&one).await, 10);
}

/// Where the store is and what names begin with are each process's own, and no reason to differ.
#[tokio::test(start_paused = true)]
async fn the_address_is_each_process_s_own() {
    let store = MemoryStore::new();
    let at = |url: &str, version: u64, count: u32| -> Rules {
        let text = "overall = {{ limit = '{count}/1s', shared = true }}\n[shared]\nurl = '{url}'\nversion = {version}";
        text.replace("{{", "{")
            .replace("}}", "}")
            .replace("{count}", &count.to_string())
            .replace("{url}", url)
            .replace("{version}", &version.to_string())
            .parse()
            .unwrap()
    };
    let [one, other] =
        [at("redis://u:secret@one", 7, 10), at("redis://other", 7, 10)].map(|rules| process(&rules, &store));
    let mut events = other.events();
    start(&one).await;
    start(&other).await;
    sleep(60 * SEC).await;
    assert_eq!(all(&mut events), []);
    let none = VersionedRules { version: 0, text: "".into() };
    let kept = store.keep_rules(0, none, SEC).await.unwrap();
    assert_eq!(kept.version, 7);
    assert!(!kept.text.contains("secret"), "{}", kept.text);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_rules_is_told_once_and_changes_nothing() {
    for text in [
        "",
        "\u{0}{[",
        "overall = '9/1s'",
        "[rules]\na = 'x'",
        "overall = { limit = '9/1s', shared = true }\n[shared]\nversion = 5",
    ] {
        let store = MemoryStore::new();
        let foreign = VersionedRules { version: 9, text: text.into() };
        store.keep_rules(1, foreign, 30 * SEC).await.unwrap();
        let balancer = process(&rules(10, Some(7)), &store);
        let mut events = balancer.events();
        start(&balancer).await;
        sleep(20 * SEC).await;
        let events = all(&mut events);
        assert!(matches!(&events[..], [Event::RulesUnreadable { version: 9, why }] if !why.is_empty()), "{events:?}");
        assert_eq!(limit(&balancer).await, 10);
    }
}

/// The store keeps them for as long as anybody has them, and a lease.
#[tokio::test(start_paused = true)]
async fn they_outlive_the_last_process_by_a_lease() {
    let store = MemoryStore::new();
    let new = process(&rules(20, Some(8)), &store);
    start(&new).await;
    sleep(300 * SEC).await;
    drop(new);
    sleep(10 * SEC).await;
    let old = process(&rules(10, Some(7)), &store);
    start(&old).await;
    assert_eq!(limit(&old).await, 20);
    drop(old);
    sleep(31 * SEC).await;
    let old = process(&rules(10, Some(7)), &store);
    start(&old).await;
    assert_eq!(limit(&old).await, 10);
}

/// Endpoints that a program gives stay its own, as `replace_rules` has it, and make no difference.
#[tokio::test(start_paused = true)]
async fn endpoints_of_code_are_not_among_them() {
    let store = MemoryStore::new();
    let with_pool = |count: u32, version: u64| -> Rules {
        let text = format!("{}\n[pool]\nconcurrency = 9", rules(count, Some(version)));
        text.parse().unwrap()
    };
    let process = |rules: Rules, names: &[&str]| {
        let endpoints = names.iter().map(|name| (name.to_string(), EndpointRules::new()));
        Balancer::builder(rules).endpoints(endpoints).unwrap().shared(store.clone()).build()
    };
    let one = process(with_pool(10, 7), &["a", "b"]);
    let other = process(with_pool(10, 7), &["c"]);
    let (mut events, mut other_events) = (one.events(), other.events());
    start(&one).await;
    start(&other).await;
    other.replace_rules(with_pool(20, 8));
    sleep(60 * SEC).await;
    assert_eq!(all(&mut events), [Event::RulesTaken { version: 8 }]);
    assert_eq!(all(&mut other_events), []);
    assert_eq!([one.snapshot().endpoints.len(), other.snapshot().endpoints.len()], [2, 1]);
}

#[test]
fn a_version_is_a_number_of_64_bits() {
    let text = "overall = { limit = '9/1s', shared = true }\n[shared]\nversion = ";
    for version in [0, 7, u64::MAX] {
        let rules: Rules = format!("{text}{version}").parse().unwrap();
        assert_eq!(rules.shared().version(), Some(version));
        assert_eq!(rules.to_string().parse::<Rules>().unwrap(), rules);
    }
    assert_eq!(format!("{text}1").parse::<Rules>().unwrap().shared().processes(), 4);
    for wrong in ["-1", "1.5", "'7'", "18446744073709551616"] {
        let findings = format!("{text}{wrong}").parse::<Rules>().unwrap_err();
        assert_eq!(findings.iter().count(), 1, "{findings}");
    }
    let quota = request_balancer::Quota::per_second(9);
    let built = Rules::builder().overall(quota).share_overall().shared(SharedRules::new().version(7)).build().unwrap();
    assert_eq!(built.shared().version(), Some(7));
}
