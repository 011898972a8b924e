//! Cases from the field: what the server asks for, what a failure costs, when a request gives up.
#![cfg(feature = "tokio")]

mod field;

use std::time::Duration;

use field::{Answer, End, Field, Script, every, ms, settle};
use futures::future::join_all;
use request_balancer::{Balancer, Error, Failure, Refused, Retry, Rules, Scope};
use tokio::time::timeout;

fn gave_up(reason: Refused, attempts: u32, last: Option<&'static str>) -> Answer {
    Err(Error::GaveUp { reason, attempts, last })
}

#[tokio::test(start_paused = true)]
async fn fr_075_slowing_down_without_a_number_spends_attempts() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nbare_wait = '1s'\nattempts = 3");
    let answer = field.play("r", "A", "r", Script::ends([End::Bare])).await.unwrap();
    assert_eq!(answer, gave_up(Refused::Attempts, 3, None));
    assert_eq!((field.diary.times(), field.now()), (vec![0, 1_000, 3_000], 3_000));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_076_ten_waits_that_the_server_asks_for_are_no_failures() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nattempts = 3\nmax_delay = '2s'");
    let mut ends = vec![End::Retry(5_000); 10];
    ends.push(End::Ok);
    assert_eq!(field.play("r", "A", "r", Script::ends(ends)).await.unwrap(), Ok(11));
    assert_eq!(field.diary.times(), every(0, 5_000, 11));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_077_a_wait_of_nothing_is_still_a_wait() {
    let field = Field::new("[rules]\nr = {}");
    let mut ends = vec![End::Retry(0); 5];
    ends.push(End::Ok);
    let policy = Retry::new().min_wait(ms(1_000)).backoff(ms(1));
    assert_eq!(field.play_as("r", "A", "r", Script::ends(ends), policy).await.unwrap(), Ok(6));
    assert_eq!(field.diary.times(), every(0, 1_000, 6));
    field.assert_quiet();
}

// That the gauge is 0 in between only the engine shows: fr_078 there.
#[tokio::test(start_paused = true)]
async fn fr_078_between_two_attempts_the_slot_goes_to_the_more_urgent() {
    let field = Field::new(
        "concurrency = 1\n[rules]\nhigh = {}\nlow = { priority = 2 }\n[retry]\nmin_wait = '0s'\nbackoff = '0s'",
    );
    let low = field.play("low", "L", "low", Script { takes: 1_000, ends: vec![End::Retry(0), End::Ok] });
    field.at(500).await;
    let high = field.play("high", "H", "high", Script::takes(100));
    field.all_ok([low, high]).await;
    field.diary.assert(&[("low", 0), ("high", 1_000), ("low", 1_100)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_081_a_wait_of_a_day_ends_with_its_future() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nceiling = false\ntotal_wait = false\njitter = 0");
    let day = ms(86_400_000);
    for scope in [Scope::Request, Scope::Key] {
        let request = field.balancer.run("r", "A", |attempt| {
            let failure: Failure<&str> = attempt.retry(day).hold(scope);
            std::future::ready(Err::<(), _>(failure))
        });
        assert!(timeout(ms(3_000), request).await.is_err());
        field.assert_quiet();
        assert_eq!(field.balancer.key("A").waiting, 0);
    }
    // What is left is what the server said about the key, for as long as a hold may last.
    assert_eq!((field.now(), field.balancer.key("A").held), (6_000, Some(ms(3_597_000))));
    field.all_ok([field.go("r", "A", "next")]).await;
    assert_eq!(field.starts("next"), [3_603_000]);
    field.at(3_610_000).await;
    let snapshot = field.balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
    // By default nobody waits for longer than five minutes.
    let field = Field::new("[rules]\nr = {}");
    let answer = field.play("r", "A", "r", Script::ends([End::Retry(86_400_000)])).await.unwrap();
    assert_eq!(answer, gave_up(Refused::WaitTooLong { wait: day, ceiling: ms(300_000) }, 1, None));
    assert_eq!(field.now(), 0);
}

#[tokio::test(start_paused = true)]
async fn fr_082_who_does_not_want_to_wait_fails_and_the_others_wait() {
    let field = Field::new("[rules]\nr = {}\n[retry]\njitter = 0");
    let script = Script::ends([End::Retry(3_000)]);
    let impatient = field.play_as("r", "A", "impatient", script, Retry::new().ceiling(Duration::ZERO));
    let others = field.go_many("r", "A", "other", 2);
    let answer = impatient.await.unwrap();
    assert_eq!(answer, gave_up(Refused::WaitTooLong { wait: ms(3_000), ceiling: Duration::ZERO }, 1, None));
    assert_eq!(field.now(), 0);
    field.all_ok(others).await;
    assert_eq!(field.starts("other"), [3_000, 3_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_084_a_ceiling_of_ones_own_is_ones_own() {
    let field = Field::new("[rules]\nr = {}");
    // Both run when the server refuses them.
    let script = Script { takes: 10, ends: vec![End::Retry(30_000), End::Ok] };
    let short = field.play_as("r", "A", "r1", script.clone(), Retry::new().ceiling(ms(5_000)));
    let long = field.play("r", "A", "r2", script);
    let answer = short.await.unwrap();
    assert_eq!(answer, gave_up(Refused::WaitTooLong { wait: ms(30_000), ceiling: ms(5_000) }, 1, None));
    assert_eq!(field.now(), 10);
    field.all_ok([long]).await;
    field.diary.assert(&[("r1", 0), ("r2", 0), ("r2", 30_010)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_086_waits_without_a_number_double_until_one_succeeds() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nbare_wait = '1s'\nattempts = 9");
    let mut ends = vec![End::Bare; 5];
    ends.push(End::Ok);
    field.all_ok([field.play("r", "A", "r", Script::ends(ends))]).await;
    let second = [0, 1, 3, 7, 15, 31].map(|second| second * 1_000);
    assert_eq!(field.diary.times(), second);
    field.all_ok([field.play("r", "A", "again", Script::ends([End::Bare, End::Bare, End::Ok]))]).await;
    assert_eq!(field.starts("again"), [31_000, 32_000, 34_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_087_the_order_of_own_delay_and_servers_wait_is_an_option() {
    let ends = [End::Retry(10_000), End::Retry(1_000), End::Bare, End::Ok];
    for (order, delays) in [("max", [10, 2, 2]), ("server", [10, 1, 2]), ("policy", [2, 2, 2])] {
        let field = Field::new(&format!(
            "[rules]\nr = {{}}\n[retry]\nbackoff = '2s'\nmax_delay = '2s'\nbare_wait = '2s'\njitter = 0\norder = '{order}'"
        ));
        field.all_ok([field.play("r", "A", "r", Script::ends(ends))]).await;
        let starts = field.diary.times();
        let found: Vec<_> = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
        assert_eq!(found, delays, "{order}");
    }
}

#[tokio::test(start_paused = true)]
async fn fr_090_waits_are_counted_and_come_to_an_end() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nwaits = 5\njitter = 0");
    let answer = field.play("r", "A", "r", Script::ends([End::Retry(1_000)])).await.unwrap();
    assert_eq!(answer, gave_up(Refused::Waits, 6, None));
    assert_eq!((field.diary.times(), field.now()), (every(0, 1_000, 6), 5_000));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_090_waits_and_attempts_do_not_touch_each_other() {
    let rules = "[rules]\nr = {}\n[retry]\nwaits = 5\nattempts = 4\nbackoff = '1s'\nmax_delay = '1s'\njitter = 0";
    let (wait, fail) = (End::Retry(1_000), End::Transient);
    let field = Field::new(rules);
    // Three failures among five waits: the sixth wait is one too many.
    let ends = [wait, fail, wait, fail, wait, fail, wait, wait, wait];
    let answer = field.play("r", "A", "r", Script::ends(ends)).await.unwrap();
    assert_eq!(answer, gave_up(Refused::Waits, 9, Some("transient")));
    assert_eq!(field.diary.times(), every(0, 1_000, 9));
    // Five waits among four failures: the fourth failure is one too many.
    let field = Field::new(rules);
    let ends = [wait, wait, fail, wait, fail, wait, fail, wait, fail];
    let answer = field.play("r", "A", "r", Script::ends(ends)).await.unwrap();
    assert_eq!(answer, gave_up(Refused::Attempts, 9, Some("transient")));
    assert_eq!(field.diary.times(), every(0, 1_000, 9));
}

#[tokio::test(start_paused = true)]
async fn fr_100_restarts_are_spread_and_the_same_in_every_run() {
    let run = async |seed: u64| {
        let rules = "[rules]\nr = {}\n[retry]\nattempts = 2\nbackoff = '1s'\njitter = 1";
        let balancer = Balancer::builder(rules.parse::<Rules>().unwrap()).seed(seed).build();
        let diary = field::Diary::new();
        let requests = (0..1_000).map(|key| {
            balancer.run("r", key, async |attempt| {
                if attempt.number() == 1 {
                    return Err(Failure::transient(()));
                }
                diary.note("restart");
                Ok(())
            })
        });
        assert!(join_all(requests).await.iter().all(Result::is_ok));
        field::assert_quiet(&balancer);
        diary.times()
    };
    let restarts = run(100).await;
    assert_eq!(restarts, run(100).await);
    assert_ne!(restarts, run(101).await);
    let mut tenths = [0_u32; 10];
    for at in restarts {
        // A restart may come at the very end of the second; timers round up to the millisecond.
        tenths[usize::try_from(at.min(999) / 100).unwrap()] += 1;
    }
    assert!(tenths.iter().all(|count| (60..=140).contains(count)), "{tenths:?}");
}

// With the caller's own timeout inside the closure; with the rule's: field_cases_policy.
#[tokio::test(start_paused = true)]
async fn fr_113_time_in_line_is_not_time_of_the_attempt() {
    let field = Field::new("[rules]\nr = '1/100s'");
    let attempt = |name: &'static str| {
        let field = field.clone();
        move |_| {
            let field = field.clone();
            async move {
                field.diary.note(name);
                match timeout(ms(3_000), tokio::time::sleep(ms(2_000))).await {
                    Ok(()) => Ok(field.now()),
                    Err(_) => Err(Failure::permanent("timed out")),
                }
            }
        }
    };
    let first = field.balancer.run("r", "A", attempt("first"));
    let second = field.balancer.run("r", "A", attempt("second"));
    let third = field.balancer.request("r", "A").max_wait(ms(150_000)).run(attempt("third"));
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!((first, second), (Ok(2_000), Ok(102_000)));
    let reason = Refused::MaxWait { waited: ms(150_000), next_start: request_balancer::NextStart::After(ms(50_000)) };
    assert_eq!(third, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    field.diary.assert(&[("first", 0), ("second", 100_000)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_126_what_may_have_arrived_is_not_sent_again() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nattempts = 3\njitter = 0");
    let written = Script::ends([End::Ambiguous, End::Ok]);
    let answer = field.play("r", "A", "ambiguous", written.clone()).await.unwrap();
    assert_eq!(answer, gave_up(Refused::RetryNotAllowed, 1, Some("ambiguous")));
    let not_sent = field.play("r", "B", "not sent", Script::ends([End::Transient, End::Ok])).await.unwrap();
    assert_eq!(not_sent, Ok(2));
    let idempotent = field.balancer.request("r", "C").idempotent().run(field.script("idempotent", written)).await;
    assert_eq!(idempotent, Ok(2));
    field.diary.assert(&[
        ("ambiguous", 0),
        ("not sent", 0),
        ("not sent", 1_000),
        ("idempotent", 1_000),
        ("idempotent", 2_000),
    ]);
    settle().await;
    field.assert_quiet();
}
