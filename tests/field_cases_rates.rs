//! Cases from the field: limits that were broken, waits that nobody needed, numbers that did not come out right.
#![cfg(feature = "tokio")]

mod field;

use std::time::Duration;

use field::{End, Field, Script, every, most_in, ms};
use futures::future::join_all;
use request_balancer::{Error, FindingCode, NextStart, Quota, Refused, Retry, Rule, Rules};

#[tokio::test(start_paused = true)]
async fn fr_037_twenty_a_minute_is_twenty_in_any_minute() {
    let field = Field::new("[rules]\ngroup = '20/60s'");
    let mut tasks = Vec::new();
    for second in 0..60 {
        field.at(second * 1_000).await;
        tasks.push(field.go("group", "G", "G"));
    }
    field.all_ok(tasks).await;
    let expected = [0, 60_000, 120_000].map(|begin| every(begin, 1_000, 20)).concat();
    assert_eq!(field.diary.times(), expected);
    assert_eq!(most_in(&expected, 60_000), 20);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_045_a_concurrency_cap_does_not_loosen_the_rate() {
    let field = Field::new("overall = { limit = '50/1s', concurrency = 10 }\n[rules]\nr = {}");
    let tasks: Vec<_> = (0..500).map(|key| field.play("r", key, "r", Script::takes(3))).collect();
    field.all_ok(tasks).await;
    let expected: Vec<u64> = (0..500).map(|number| number / 50 * 1_000 + number % 50 / 10 * 3).collect();
    assert_eq!(field.diary.times(), expected);
    assert_eq!(most_in(&expected, 1_000), 50);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_049_a_backoff_touches_nothing_that_succeeds() {
    let field = Field::new("[rules]\nr = '2/1s'\n[retry]\nbackoff = '5m'\nmax_delay = '5m'");
    field.all_ok(field.go_many("r", "A", "r", 10)).await;
    assert_eq!(field.diary.times(), [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 4_000, 4_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_053_a_thousand_take_ninety_nine_windows_to_the_millisecond() {
    let field = Field::new("[rules]\nr = '10/60s'");
    field.all_ok(field.go_many("r", "A", "r", 1_000)).await;
    let expected: Vec<u64> = (0..1_000).map(|number| number / 10 * 60_000).collect();
    assert_eq!(field.diary.times(), expected);
    assert_eq!(field.now(), 5_940_000);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_055_two_quotas_of_one_key_hold_together() {
    let field = Field::new("[rules]\nr = ['1/7s', '5/60s']");
    field.all_ok(field.go_many("r", "A", "r", 10)).await;
    let expected: Vec<u64> = [0, 7, 14, 21, 28, 60, 67, 74, 81, 88].iter().map(|second| second * 1_000).collect();
    assert_eq!(field.diary.times(), expected);
    field.assert_quiet();
}

// With real time: field_cases_real_clock.
#[tokio::test(start_paused = true)]
async fn fr_059_a_rate_beyond_the_timers_goes_as_fast_as_they_do() {
    let field = Field::new("[rules]\nr = '1/500us'");
    field.all_ok(field.go_many("r", "A", "r", 1_000)).await;
    // One for each millisecond that a timer resolves: within the 0.4995 to 2.5 s that are asked for.
    assert_eq!(field.diary.times(), every(0, 1, 1_000));
    let field = Field::new("[rules]\nr = '1000/1s'");
    field.all_ok(field.go_many("r", "A", "r", 1_001)).await;
    let starts = field.diary.times();
    assert_eq!((starts[999], starts[1_000]), (0, 1_000));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_061_zero_and_nonsense_are_found_where_they_stand() {
    let codes = |quota: &str| {
        let findings = format!("[rules]\nbad = '{quota}'").parse::<Rules>().expect_err(quota);
        for finding in findings.iter() {
            assert!(finding.line() == Some(2) && finding.path().starts_with("rules.bad"), "{quota}: {finding}");
        }
        findings.iter().map(request_balancer::Finding::code).collect::<Vec<_>>()
    };
    assert_eq!(codes("0/1s"), [FindingCode::Zero]);
    assert_eq!(codes("1/0s"), [FindingCode::Zero]);
    for nonsense in ["-1/1s", "NaN/1s", "1/-1s", "1/NaN", "inf/1s", "0.5/1s"] {
        assert_eq!(codes(nonsense), [FindingCode::InvalidQuota], "{nonsense}");
    }
    for quota in [Quota::new(0, ms(1_000)), Quota::new(1, Duration::ZERO)] {
        let built = Rules::builder().rule("bad", Rule::new().per_key(quota)).build();
        let findings = built.expect_err("nothing could ever start");
        let found: Vec<_> = findings.iter().map(|finding| (finding.code(), finding.path())).collect();
        assert_eq!(found, [(FindingCode::Zero, "rules.bad.per_key")]);
    }
    // Never is said with a word of its own.
    let field = Field::new("[rules]\nnever = { paused = true, max_wait = '7s' }");
    assert_eq!(field.balancer.next_start("never", "A"), Ok(NextStart::Never));
    let answer = field.go("never", "A", "never").await.unwrap();
    let reason = Refused::MaxWait { waited: ms(7_000), next_start: NextStart::Never };
    assert_eq!(answer, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    assert_eq!((field.now(), field.diary.times()), (7_000, vec![]));
    let waits =
        field.balancer.request("never", "A").max_wait(Duration::MAX).run(field.script("late", Script::takes(0)));
    let resume = async {
        field.at(1_000_000).await;
        field.balancer.resume("never").unwrap();
    };
    assert_eq!(tokio::join!(waits, resume).0, Ok(1));
    field.diary.assert(&[("late", 1_000_000)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_063_the_largest_numbers_are_cut_and_do_no_harm() {
    let field = Field::new("[rules]\nr = {}\n[retry]\njitter = 0");
    let longest = field.balancer.run("r", "A", async |attempt| {
        field.diary.note("A");
        Err::<(), request_balancer::Failure<&str>>(attempt.retry(Duration::MAX))
    });
    // 2^64 nanoseconds are all that there is.
    let reason = Refused::WaitTooLong { wait: Duration::from_nanos(u64::MAX), ceiling: ms(300_000) };
    assert_eq!(longest.await, Err(Error::GaveUp { reason, attempts: 1, last: None }));
    let huge = Duration::from_secs(1 << 63);
    let overflow = Retry::new().backoff(huge).max_delay(huge).attempts(u32::MAX);
    let stepped_out = field.play_as("r", "B", "B", Script::ends([End::Transient]), overflow);
    let bare = Retry::new().bare_wait(huge).max_delay(huge).attempts(u32::MAX);
    let held = field.play_as("r", "C", "C", Script::ends([End::Bare]), bare);
    // Whoever brought such a policy waits as it says. No hold is longer than `max_hold`, one hour; the key is as usable
    // as ever after it.
    field.all_ok([field.go("r", "A", "next"), field.go("r", "B", "other"), field.go("r", "C", "third")]).await;
    assert_eq!(field.starts("A"), [0]);
    assert_eq!(field.starts("next"), [3_600_000]);
    assert_eq!(field.starts("other"), [0]);
    assert_eq!(field.starts("third"), [3_600_000]);
    for endless in [stepped_out, held] {
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
    }
    assert_eq!((field.starts("B"), field.starts("C")), (vec![0], vec![0]));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_064_delays_double_up_to_the_longest() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nattempts = 8\nbackoff = '10s'\nmax_delay = '300s'\njitter = 0");
    let answer = field.play("r", "A", "r", Script::ends([End::Transient])).await.unwrap();
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 8, last: Some("transient") }));
    let starts = field.diary.times();
    let delays: Vec<_> = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
    assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_094_requests_that_were_put_off_keep_the_rate_when_they_come() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let put_off = (0..10).map(|number| {
        let request = field.balancer.request("r", "A").not_before(ms(1_000));
        request.run(field.script(&number.to_string(), Script::takes(0)))
    });
    assert!(join_all(put_off).await.iter().all(|answer| *answer == Ok(1)));
    let expected: Vec<_> = (0..10).map(|number| (number.to_string(), (number + 1) * 1_000)).collect();
    assert_eq!(field.diary.read(), expected);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_095_a_retry_pays_every_limit_again() {
    let field = Field::new("overall = '2/1s'\n[rules]\nr = '1/1s'");
    let mut tasks = vec![field.play("r", "A", "r1", Script::ends([End::Retry(2_000), End::Ok]))];
    tasks.extend(field.go_many("r", "A", "A", 29));
    // Two other keys take what the overall limit leaves.
    tasks.extend(field.go_many("r", "B", "B", 40));
    tasks.extend(field.go_many("r", "C", "C", 40));
    field.all_ok(tasks).await;
    // When the hold ends two keys stand in line already: one round.
    assert_eq!(field.starts("r1"), [0, 3_000]);
    let of_a = [field.starts("r1"), field.starts("A")].concat();
    assert_eq!((of_a.len(), most_in(&of_a, 1_000)), (31, 1));
    let all = field.diary.times();
    assert_eq!(most_in(&all, 1_000), 2);
    // 111 starts at two a second, as long as two keys have work.
    assert_eq!(all[..100], (0..100).map(|number| number / 2 * 1_000).collect::<Vec<_>>());
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_095_the_queue_goes_on_at_its_pace_behind_a_retry() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let mut tasks = vec![field.play("r", "A", "r", Script::ends([End::Retry(2_000), End::Ok]))];
    tasks.extend((2..=30).map(|number| field.go("r", "A", &number.to_string())));
    field.all_ok(tasks).await;
    let mut expected = vec![("r".to_owned(), 0), ("r".to_owned(), 2_000)];
    expected.extend((2..=30).map(|number| (number.to_string(), (number + 1) * 1_000)));
    assert_eq!(field.diary.read(), expected);
}
