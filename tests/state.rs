//! What is exported and imported: units, costs, other rules, wrong clocks, other versions.
#![cfg(all(feature = "tokio", feature = "serde"))]

mod diary;

use std::time::{Duration, SystemTime};

use diary::balancer;
use request_balancer::{Balancer, Key, NextStart, Refused, State, Target};

const HOUR: Duration = Duration::from_secs(3_600);
const WALL: SystemTime = SystemTime::UNIX_EPOCH;

fn noon() -> SystemTime {
    WALL + 500_000 * HOUR
}

fn start(balancer: &Balancer, rule: &str, key: impl Into<Key>) {
    drop(balancer.request(rule, key).try_acquire().expect("room for a start"));
}

fn next(balancer: &Balancer, rule: &str, key: impl Into<Key>) -> NextStart {
    balancer.next_start(rule, key).expect("a rule of the test")
}

#[tokio::test(start_paused = true)]
async fn a_state_is_the_same_after_it_was_written_and_read() {
    let rules = "units = ['tokens']\noverall = ['500/24h', '1000/2h tokens']\nper_key = '5/2h smooth'\n\
                 [limits.account]\nper_key = '7/3h'\n[lanes.1]\noverall = '300/2h'\n\
                 [rules.send]\nunder = ['overall', 'per_key', 'account']\nper_key = '3/1h'\noverall = '100/1h'";
    let balancer = balancer(rules);
    for key in [Key::from(5), Key::from("5"), Key::from(("shop", 7))] {
        drop(balancer.request("send", key).cost_of("tokens", 40).try_acquire().expect("room for a start"));
    }
    balancer.hold(Target::overall(), HOUR / 2).expect("a hold on everything");
    let state = balancer.export_state_at(noon());
    let text = serde_json::to_string(&state).expect("a state can be written");
    assert_eq!(serde_json::from_str::<State>(&text).expect("a state can be read"), state);
    assert_eq!(state, balancer.export_state_at(noon()), "nothing changes by looking");

    let again = self::balancer(rules);
    let imported = again.import_state_at(&state, noon());
    // A hold; overall in two units, lane, rule; of each of three keys its window and spacing, the named and the rule's own.
    assert_eq!((imported.taken, imported.ignored), (1 + 4 + 3 * 4, 0));
    assert_eq!(again.export_state_at(noon()), state);
    let later = noon() + Duration::from_secs(10);
    let after = again.export_state_at(later);
    let once_more = self::balancer(rules);
    once_more.import_state_at(&after, later);
    assert_eq!(once_more.export_state_at(later), after);
}

#[tokio::test(start_paused = true)]
async fn costs_in_units_are_kept_by_the_unit_s_name() {
    let before = balancer("units = ['tokens']\noverall = '1000/24h tokens'");
    drop(before.request("default", "a").cost_of("tokens", 900).try_acquire().expect("room for a start"));
    let state = before.export_state_at(noon());

    let after = balancer("units = ['images', 'tokens']\noverall = ['1000/24h tokens', '50/24h images']");
    after.import_state_at(&state, noon() + HOUR);
    let ask = |cost| after.request("default", "a").cost_of("tokens", cost).try_acquire();
    let refused = ask(101).expect_err("only 100 are left");
    assert!(matches!(refused, Refused::NotNow { .. }), "{refused}");
    drop(ask(100).expect("100 are left"));
    tokio::time::advance(23 * HOUR).await;
    drop(ask(900).expect("what was spent before is a day old"));

    let without = balancer("overall = '1000/24h'");
    let imported = without.import_state_at(&state, noon());
    assert_eq!((imported.taken, imported.ignored), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_rules_do_not_know_any_more_is_ignored_and_counted() {
    let before = balancer(
        "per_key = '9/1h'\n[limits.account]\noverall = '9/1h'\n[rules]\nsend = '9/1h'\n\
                           [rules.read]\nper_key = '9/1h'\nunder = ['account']",
    );
    start(&before, "send", "a");
    start(&before, "read", "a");
    before.hold(Target::rule("send"), HOUR).expect("a rule of the test");
    before.hold(Target::queue("send", "b"), HOUR).expect("a rule of the test");
    let state = before.export_state_at(noon());

    let after = balancer("[rules]\nread = '1/1h'");
    let imported = after.import_state_at(&state, noon());
    // Ignored: the account, both holds of `send`, the key's own limit and that of `send`.
    assert_eq!((imported.taken, imported.ignored), (1, 5));
    assert_eq!(next(&after, "read", "a"), NextStart::After(HOUR));
    assert_eq!(next(&after, "read", "b"), NextStart::Now);
}

#[tokio::test(start_paused = true)]
async fn other_numbers_count_the_known_starts() {
    let before = balancer("per_key = ['4/2h', '9/24h']");
    (0..4).for_each(|_| start(&before, "default", "a"));
    let state = before.export_state_at(noon());
    for (rules, expected) in [
        ("per_key = '4/24h'", NextStart::After(23 * HOUR)),
        ("per_key = ['4/2h', '9/24h']", NextStart::After(HOUR)),
        ("per_key = '5/24h'", NextStart::Now),
        ("per_key = '6/24h smooth'", NextStart::After(15 * HOUR)),
        ("per_key = '4/24h burst 4'", NextStart::After(5 * HOUR)),
        ("per_key = '2/30m'", NextStart::Now),
    ] {
        let after = balancer(rules);
        after.import_state_at(&state, noon() + HOUR);
        assert_eq!(next(&after, "default", "a"), expected, "{rules}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_window_finds_its_starts_in_a_longer_one() {
    let rules = "per_key = ['2/10s', '100/1h']";
    let before = balancer(rules);
    start(&before, "default", "a");
    start(&before, "default", "a");
    let after = balancer(rules);
    after.import_state_at(&before.export_state_at(noon()), noon() + Duration::from_secs(4));
    assert_eq!(next(&after, "default", "a"), NextStart::After(Duration::from_secs(6)));
}

#[tokio::test(start_paused = true)]
async fn an_import_is_counted_beside_what_is_known_and_never_loosens() {
    let rules = "per_key = '3/1h'";
    let before = balancer(rules);
    start(&before, "default", "a");
    before.hold(Target::key("a"), HOUR / 4).expect("a hold on a key");
    let state = before.export_state_at(noon());

    tokio::time::advance(HOUR / 2).await;
    let used = balancer(rules);
    start(&used, "default", "a");
    used.hold(Target::key("a"), HOUR / 2).expect("a hold on a key");
    tokio::time::advance(HOUR / 4).await;
    used.import_state_at(&state, noon() + 3 * (HOUR / 4));
    // The hold that was on stands, though the imported one is over.
    assert_eq!(next(&used, "default", "a"), NextStart::After(HOUR / 4));
    used.release(Target::key("a")).expect("a hold on a key");
    // One start of each run and a third: the oldest leaves a quarter of an hour from now.
    start(&used, "default", "a");
    assert_eq!(next(&used, "default", "a"), NextStart::After(HOUR / 4));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_makes_wait_longer_but_not_for_ever() {
    let rules = "per_key = '1/2h'\n[rules.default]\n[rules.bucket]\nunder = []\nper_key = '1/10m burst 12'";
    let before = balancer(rules);
    start(&before, "default", "a");
    (0..12).for_each(|_| start(&before, "bucket", "a"));
    before.hold(Target::key("b"), HOUR / 2).expect("a hold on a key");
    let state = before.export_state_at(noon());

    // Set back by a year: a start counts from now, a hold is as long as the longest, a bucket empty.
    let after = balancer(rules);
    after.import_state_at(&state, noon() - 8_760 * HOUR);
    assert_eq!(next(&after, "default", "a"), NextStart::After(2 * HOUR));
    assert_eq!(next(&after, "default", "b"), NextStart::After(HOUR));
    assert_eq!(next(&after, "bucket", "a"), NextStart::After(HOUR / 6));

    // Put forward, or really long ago: everything is free, and the keys are forgotten.
    let after = balancer(rules);
    after.import_state_at(&state, noon() + 8_760 * HOUR);
    assert_eq!(next(&after, "default", "a"), NextStart::Now);
    assert_eq!(next(&after, "default", "b"), NextStart::Now);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(after.snapshot().keys, 0);

    for wall in [SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH - HOUR, SystemTime::UNIX_EPOCH + 20_000_000 * HOUR] {
        let state = before.export_state_at(wall);
        balancer(rules).import_state_at(&state, wall);
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_run_count_from_the_export_where_responses_count() {
    let rules = "per_key = '1/1h'\ncount_from = 'response'";
    let before = balancer(rules);
    let running = before.request("default", "a").acquire().await.expect("room for a start");
    tokio::time::advance(HOUR / 4).await;
    let state = before.export_state_at(noon());
    drop(running);
    let after = balancer(rules);
    after.import_state_at(&state, noon() + HOUR / 2);
    assert_eq!(next(&after, "default", "a"), NextStart::After(HOUR / 2));
}

#[tokio::test(start_paused = true)]
async fn text_that_is_no_state_is_an_error_and_what_is_out_of_bounds_does_no_harm() {
    for (text, expected) in [
        (r#"{"v2":{}}"#, "unknown variant `v2`, expected `v1`"),
        (
            r#"{"v1":{"overall":{"held_until":null,"rules_held_until":[],"limits":[]},"keys":[["a",{}]]}}"#,
            "a key as text",
        ),
        ("{}", "expected value"),
    ] {
        let error = serde_json::from_str::<State>(text).expect_err("no state").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let text = r#"{"v1":{
        "overall":{"held_until":18446744073709551615,"rules_held_until":[["default",18446744073709551615]],"limits":[
            {"of":"overall","unit":"requests","past":{"starts":{"per":1,"count_from":"start","starts":
                [[18446744073709551615,4294967295],[0,4294967295],[5,0],[1800000000000000000,4294967295]]}}},
            {"of":"overall","unit":"requests","past":{"owed":{"until":18446744073709551615}}},
            {"of":"overall","unit":"requests","past":{"today":{"zone":"Nowhere","latest":0,"cost":4294967295}}}]},
        "keys":[["5",{"held_until":0,"rules_held_until":[],"limits":[
            {"of":"per_key","unit":"requests","past":{"starts":{"per":7200000000000,"count_from":"start","starts":
                [[1800000000000000000,4294967295],[1800000000000000001,4294967295]]}}}]}]]}}"#;
    let state: State = serde_json::from_str(text).expect("a state");
    let balancer = balancer("overall = ['5/2h', '4294967295/3h', '5/1h burst 7']\nper_key = '4294967295/2h'");
    start(&balancer, "default", 5);
    let imported = balancer.import_state_at(&state, noon());
    assert_eq!((imported.taken, imported.ignored), (7, 0));
    assert_eq!(next(&balancer, "default", 5), NextStart::After(2 * HOUR));
    tokio::time::advance(3 * HOUR).await;
    start(&balancer, "default", 5);
}

#[cfg(feature = "calendar")]
#[tokio::test(start_paused = true)]
async fn a_calendar_day_goes_on_until_its_midnight() {
    // 2027-01-15 08:00 UTC.
    let morning = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let rules = "per_key = '3/day UTC'";
    let before = balancer(rules);
    before.import_state_at(&before.export_state_at(morning), morning);
    (0..2).for_each(|_| start(&before, "default", "a"));
    let state = before.export_state_at(morning);

    let after = balancer(rules);
    after.import_state_at(&state, morning + 2 * HOUR);
    start(&after, "default", "a");
    assert_eq!(next(&after, "default", "a"), NextStart::After(14 * HOUR));

    let tomorrow = balancer(rules);
    tomorrow.import_state_at(&state, morning + 16 * HOUR);
    (0..3).for_each(|_| start(&tomorrow, "default", "a"));
    assert_eq!(next(&tomorrow, "default", "a"), NextStart::After(24 * HOUR));
}

#[cfg(feature = "calendar")]
#[tokio::test(start_paused = true)]
async fn real_clock_a_day_ends_at_the_midnight_of_the_clock_on_the_wall() {
    let day = 24 * HOUR;
    let left = || {
        let since = WALL.elapsed().expect("a clock after 1970");
        day - Duration::from_nanos((since.as_nanos() % day.as_nanos()) as u64)
    };
    let at_most = left();
    let balancer = balancer("overall = '1/day UTC'");
    let at_least = left();
    start(&balancer, "default", "a");
    let NextStart::After(span) = next(&balancer, "default", "a") else { panic!("the day's only start is spent") };
    // Unless midnight passed meanwhile.
    assert!((at_least..=at_most).contains(&span) || at_least > at_most, "{span:?}");
}

#[tokio::test(start_paused = true)]
async fn what_endpoints_and_keys_on_them_used_up_outlives_a_restart() {
    let rules = "[pool]\nendpoints = ['a', 'b']\noverall = '2/24h'\nper_key = '1/24h'";
    let before = balancer(rules);
    let on = |balancer: &Balancer, endpoint: &str, key: u32| {
        balancer.request("default", key).on(endpoint).try_acquire().map(drop)
    };
    assert_eq!((on(&before, "a", 1), on(&before, "a", 2), on(&before, "b", 1)), (Ok(()), Ok(()), Ok(())));
    let state = before.export_state_at(noon());

    let after = balancer(rules);
    let imported = after.import_state_at(&state, noon() + HOUR);
    // Two endpoints, and of each key what it did on them.
    assert_eq!((imported.taken, imported.ignored), (2 + 3, 0));
    assert_eq!(after.export_state_at(noon() + HOUR), state);
    assert!(on(&after, "a", 3).is_err() && on(&after, "b", 1).is_err());
    assert_eq!(on(&after, "b", 2), Ok(()));
    // An endpoint that is gone is told.
    let fewer = balancer("[pool]\nendpoints = ['b']\noverall = '2/24h'\nper_key = '1/24h'");
    let imported = fewer.import_state_at(&state, noon() + HOUR);
    assert_eq!((imported.taken, imported.ignored), (2, 3));
}

/// The waits that a key's server brings about by saying "slow down" without a number, so many times in a row.
async fn slowed_down(balancer: &Balancer, key: &str, times: u32) -> Vec<u64> {
    let mut permit = balancer.request("read", key).acquire().await.expect("a start");
    let mut waits = Vec::new();
    for _ in 0..times {
        let begin = tokio::time::Instant::now();
        permit = permit.retry(None).await.expect("another start");
        waits.push(begin.elapsed().as_secs());
    }
    // It ends without having succeeded.
    let refused = permit.fail(request_balancer::Failure::permanent(())).await;
    assert!(refused.is_err());
    waits
}

#[tokio::test(start_paused = true)]
async fn waits_grow_on_after_a_restart() {
    let rules = "retry = { bare_wait = '5s', attempts = 10 }\n[rules]\nread = '100/1s'";
    let (before, begin) = (balancer(rules), tokio::time::Instant::now());
    assert_eq!(slowed_down(&before, "a", 2).await, [5, 10]);
    let state = before.export_state_at(noon() + begin.elapsed());
    let text = serde_json::to_string(&state).expect("a state can be written");
    let state = serde_json::from_str::<State>(&text).expect("a state can be read");

    let after = balancer(rules);
    let imported = after.import_state_at(&state, noon() + begin.elapsed());
    assert_eq!((imported.taken, imported.ignored), (1, 0));
    assert_eq!(after.export_state_at(noon() + begin.elapsed()), state);
    // It is longer than the key would be kept for its limits.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(slowed_down(&after, "a", 1).await, [20]);
    assert_eq!(slowed_down(&after, "b", 1).await, [5]);

    // The last hold was one of 10 s: after as long again nobody would remember it.
    let late = balancer(rules);
    late.import_state_at(&state, noon() + Duration::from_secs(15 + 10));
    assert_eq!(slowed_down(&late, "a", 1).await, [5]);
}

#[tokio::test(start_paused = true)]
async fn a_ban_ahead_is_not_forgotten_by_a_restart() {
    let rules = "ban_guard = '3/600s'\n[rules]\nread = '100/1s'";
    let before = balancer(rules);
    for _ in 0..3 {
        before.request("read", "a").try_acquire().expect("a start").invalid();
    }
    let state = before.export_state_at(noon());

    let after = balancer(rules);
    let mut events = after.events();
    let imported = after.import_state_at(&state, noon() + Duration::from_secs(100));
    assert_eq!((imported.taken, imported.ignored), (1, 0));
    assert_eq!(next(&after, "read", "a"), NextStart::After(Duration::from_secs(500)));
    assert!(matches!(events.try_next(), Some(request_balancer::Event::BanAhead { level: 3, .. })));
    let begin = tokio::time::Instant::now();
    drop(after.request("read", "a").acquire().await.expect("a start"));
    assert_eq!(begin.elapsed(), Duration::from_secs(500));

    let without = balancer("[rules]\nread = '100/1s'").import_state_at(&state, noon());
    assert_eq!((without.taken, without.ignored), (0, 1));
}

#[cfg(feature = "headers")]
mod told {
    use request_balancer::headers::{self, Dialect, Observation};

    use super::*;

    fn says(left: &str, reset: &str) -> Observation {
        let fields = [("RateLimit-Remaining", left), ("RateLimit-Reset", reset)];
        headers::read(200, fields, None, WALL, Dialect::auto())
    }

    fn observe(balancer: &Balancer, key: &str, left: &str, reset: &str) {
        let permit = balancer.request("read", key).try_acquire().expect("room for a start");
        permit.observe(&says(left, reset));
    }

    const RULES: &str = "[limits.account]\noverall = '5000/1h'\n[rules.read]\nper_key = '50/60s'\nunder = ['account']";

    #[tokio::test(start_paused = true)]
    async fn what_the_server_said_counts_until_its_reset_by_the_clock_on_the_wall() {
        let before = balancer(RULES);
        observe(&before, "none-left", "0", "3600");
        observe(&before, "two-left", "2", "3600");
        observe(&before, "soon", "2", "30");
        let text = serde_json::to_string(&before.export_state_at(noon())).expect("a state can be written");
        let state: State = serde_json::from_str(&text).expect("a state can be read");

        let after = balancer(RULES);
        let imported = after.import_state_at(&state, noon() + HOUR / 2);
        // The account's starts; what the server said of two keys.
        assert_eq!((imported.taken, imported.ignored), (3, 0));
        assert_eq!(next(&after, "read", "none-left"), NextStart::After(HOUR / 2));
        let permits: Vec<_> = (0..2).map(|_| after.request("read", "two-left").try_acquire().expect("two")).collect();
        assert!(after.request("read", "two-left").try_acquire().is_err());
        permits.into_iter().for_each(drop);
        assert_eq!(next(&after, "read", "two-left"), NextStart::After(HOUR / 2));
        assert_eq!(next(&after, "read", "soon"), NextStart::Now);
        tokio::time::advance(HOUR / 2).await;
        start(&after, "read", "none-left");
        start(&after, "read", "two-left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_that_is_over_says_nothing_and_one_that_is_news_replaces() {
        let before = balancer(RULES);
        observe(&before, "k", "0", "3600");
        let state = before.export_state_at(noon());
        let late = balancer(RULES);
        late.import_state_at(&state, noon() + HOUR);
        assert_eq!(next(&late, "read", "k"), NextStart::Now);

        // Other numbers for the same place: it is another limit, of which nothing was said.
        let other = balancer(&RULES.replace("50/60s", "50/90s"));
        let imported = other.import_state_at(&state, noon());
        assert_eq!((imported.taken, imported.ignored), (1, 1));
        assert_eq!(next(&other, "read", "k"), NextStart::Now);

        let before = balancer(RULES);
        observe(&before, "k", "1", "3600");
        let state = before.export_state_at(noon());
        let after = balancer(RULES);
        after.import_state_at(&state, noon());
        // The server has begun a new hour meanwhile.
        observe(&after, "k", "40", "7000");
        assert!((0..40).all(|_| after.request("read", "k").try_acquire().is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_when_it_is_written_may_be_counted_already() {
        let before = balancer(RULES);
        let _runs = before.request("read", "k").try_acquire().expect("room for a start");
        observe(&before, "k", "2", "3600");
        let state = before.export_state_at(noon());
        let after = balancer(RULES);
        after.import_state_at(&state, noon());
        start(&after, "read", "k");
        assert_eq!(next(&after, "read", "k"), NextStart::After(HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn two_windows_of_one_name_stay_two_and_a_state_without_lengths_is_read() {
        let rules = "[rules.read]\nper_key = '50/60s'\nobserve = { dialect = 'riot' }";
        let before = balancer(rules);
        let permit = before.request("read", "k").try_acquire().expect("room for a start");
        let fields = [("X-App-Rate-Limit", "20:600,100:1800"), ("X-App-Rate-Limit-Count", "18:600,98:1800")];
        permit.check::<_, _, ()>(200, fields, None).expect("no refusal");
        drop(permit);
        let text = serde_json::to_string(&before.export_state_at(noon())).expect("a state can be written");
        let after = balancer(rules);
        let imported = after.import_state_at(&serde_json::from_str(&text).expect("a state"), noon());
        assert_eq!((imported.taken, imported.ignored), (2, 0));
        // The shorter is news of the shorter alone.
        let permit = after.request("read", "k").try_acquire().expect("room for a start");
        let fields = [("X-App-Rate-Limit", "20:600"), ("X-App-Rate-Limit-Count", "0:600")];
        permit.check::<_, _, ()>(200, fields, None).expect("no refusal");
        drop(permit);
        assert_eq!(next(&after, "read", "k"), NextStart::Now);
        start(&after, "read", "k");
        assert_eq!(next(&after, "read", "k"), NextStart::After(HOUR / 2));

        let old = r#"{"v1":{"overall":{"held_until":null,"rules_held_until":[],"limits":[]},"keys":[["\"k\"",
            {"held_until":null,"rules_held_until":[],"limits":[{"of":{"rule_per_key":"read"},"unit":"requests",
            "past":{"told":{"per":60000000000,"window":"application","left":0,"until":UNTIL}}}]}]]}}"#;
        let until = (noon() + HOUR).duration_since(std::time::UNIX_EPOCH).expect("later").as_nanos();
        let after = balancer(rules);
        let state: State = serde_json::from_str(&old.replace("UNTIL", &until.to_string())).expect("a state");
        assert_eq!(after.import_state_at(&state, noon()).taken, 1);
        assert_eq!(next(&after, "read", "k"), NextStart::After(HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_with_nothing_left_stays_so_beside_one_of_its_name_that_ends_later() {
        let before = balancer(RULES);
        let permits = [(); 2].map(|()| before.request("read", "k").try_acquire().expect("room for a start"));
        tokio::time::advance(HOUR / 3_600).await;
        for (permit, (left, reset)) in permits.into_iter().zip([("0", "120"), ("15", "3000")]) {
            permit.observe(&says(left, reset));
        }
        assert_eq!(next(&before, "read", "k"), NextStart::After(HOUR / 30));
        let state = before.export_state_at(noon());
        let after = balancer(RULES);
        after.import_state_at(&state, noon());
        assert_eq!(next(&after, "read", "k"), NextStart::After(HOUR / 30));
    }

    /// A server that tells no resets, of a limit of an hour: whatever it says next counts, as it would without the restart.
    #[tokio::test(start_paused = true)]
    async fn a_window_whose_end_was_never_told_is_replaced_by_the_next_word() {
        let rules = "[rules.read]\nper_key = '100/3600s'";
        let says = |left| {
            let fields = [("RateLimit-Remaining", left)];
            headers::read(200, fields, None, WALL, Dialect::auto())
        };
        let before = balancer(rules);
        let permit = before.request("read", "k").try_acquire().expect("room for a start");
        permit.observe(&says("1"));
        drop(permit);
        let text = serde_json::to_string(&before.export_state_at(noon())).expect("a state can be written");
        let after = balancer(rules);
        after.import_state_at(&serde_json::from_str(&text).expect("a state"), noon());
        let permit = after.request("read", "k").try_acquire().expect("one is left");
        assert!(after.request("read", "k").try_acquire().is_err());
        permit.observe(&says("50"));
        drop(permit);
        let started = std::iter::from_fn(|| after.request("read", "k").try_acquire().ok());
        assert_eq!(started.take(99).collect::<Vec<_>>().len(), 50);

        // Nor does it outlast the next word where another one came before it was imported.
        let after = balancer(rules);
        let permit = after.request("read", "k").try_acquire().expect("room for a start");
        permit.observe(&says("60"));
        drop(permit);
        after.import_state_at(&serde_json::from_str(&text).expect("a state"), noon());
        let permit = after.request("read", "k").try_acquire().expect("one is left");
        permit.observe(&says("50"));
        drop(permit);
        let started = std::iter::from_fn(|| after.request("read", "k").try_acquire().ok());
        assert_eq!(started.take(99).collect::<Vec<_>>().len(), 50);
    }
}
