//! Cases from the field: attempts that never return, waits that grow for a key, lines that are full.
#![cfg(feature = "tokio")]

mod field;

use std::collections::BTreeMap;
use std::future::pending;
use std::panic::resume_unwind;

use field::{Answer, End, Field, Rng, Script, ms, settle};
use request_balancer::{Attempt, Error, Failure, NextStart, Outcome, Refused};
use tokio::time::{sleep, timeout};

fn timed_out(attempts: u32) -> Answer {
    Err(Error::GaveUp { reason: Refused::TimedOut, attempts, last: None })
}

async fn never(_: Attempt) -> Outcome<u32, &'static str> {
    pending().await
}

// Handlers that never return are ended by the rules' timeout alone; a million requests are in field_cases_engine.
#[tokio::test(start_paused = true)]
async fn fr_005_no_attempt_that_never_returns_keeps_its_slot_beyond_its_time() {
    let field = Field::new(
        "concurrency = 2\nattempt_timeout = '15s'\n[rules]\n1 = { queue = 32 }\n2 = { queue = 32, priority = 2 }\n3 = { \
         queue = 32, priority = 3 }\n4 = { queue = 32, priority = 4 }",
    );
    let mut random = Rng::new(5);
    let mut tasks = Vec::new();
    for _ in 0..4_000 {
        sleep(ms(random.below(9_000))).await;
        let (rule, key) = ((random.below(4) + 1).to_string(), random.below(9));
        let (fate, takes, patience) = (random.below(5), random.below(12_000), random.below(100_000));
        let balancer = field.balancer.clone();
        tasks.push(tokio::spawn(async move {
            let attempt = async |_| {
                if fate == 3 {
                    return pending().await;
                }
                sleep(ms(takes)).await;
                match fate {
                    0 | 1 => Ok(()),
                    2 => Err(Failure::permanent("error")),
                    // Without the noise of a panic's hook.
                    _ => resume_unwind(Box::new("panic")),
                }
            };
            let run = balancer.run(&rule, key, attempt);
            // Some callers drop theirs.
            timeout(ms(if fate == 1 { patience } else { 3_600_000_000 }), run).await
        }));
        settle().await;
        let snapshot = field.balancer.snapshot();
        assert!(snapshot.in_flight <= 2 && (snapshot.waiting == 0 || snapshot.in_flight == 2), "{snapshot:?}");
    }
    let mut fates = BTreeMap::new();
    for task in tasks {
        let fate = match task.await.expect("the task ends by itself") {
            Ok(Ok(())) => "ok",
            Ok(Err(Error::Failed("error"))) => "error",
            Ok(Err(Error::Panicked(message))) if message == "panic" => "panic",
            Ok(Err(Error::GaveUp { reason: Refused::TimedOut, attempts: 1, last: None })) => "timed out",
            Ok(Err(Error::GaveUp { reason: Refused::QueueFull { waiting: 32 }, attempts: 0, last: None })) => "full",
            Err(_elapsed) => "dropped",
            Ok(Err(error)) => panic!("{error:?}"),
        };
        *fates.entry(fate).or_insert(0) += 1;
    }
    assert!(fates.len() >= 5 && fates["timed out"] > 300, "{fates:?}");
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_010_an_attempt_that_never_returns_is_given_up_in_time() {
    let field = Field::new("attempt_timeout = '5s'\n[rules]\nr = { key_concurrency = 1 }");
    let first = tokio::spawn({
        let field = field.clone();
        async move {
            let answer = field.balancer.run("r", "A", never).await;
            (answer, field.now())
        }
    });
    settle().await;
    let others = [field.go("r", "A", "r2"), field.go("r", "B", "r3")];
    field.all_ok(others).await;
    assert_eq!(first.await.unwrap(), (timed_out(1), 5_000));
    field.diary.assert(&[("r3", 0), ("r2", 5_000)]);
    field.assert_quiet();
}

// Over different requests of one key; those of one request are in field_cases_retry.
#[tokio::test(start_paused = true)]
async fn fr_086_waits_without_a_number_double_from_request_to_request_until_one_succeeds() {
    let field = Field::new("[rules]\nr = {}\ns = {}\n[retry]\nbare_wait = '1s'\nattempts = 1");
    for name in ["r1", "r2", "r3", "r4", "r5"] {
        let rule = if name == "r2" { "s" } else { "r" };
        let answer = field.play(rule, "A", name, Script::ends([End::Bare])).await.unwrap();
        assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 1, last: None }));
    }
    field.all_ok([field.go("r", "A", "r6")]).await;
    // 1, 2, 4, 8 and 16 s between them.
    assert_eq!(field.diary.times(), [0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    field.play("r", "A", "again", Script::ends([End::Bare])).await.unwrap().unwrap_err();
    field.all_ok([field.go("r", "A", "again")]).await;
    assert_eq!(field.starts("again"), [31_000, 32_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_109_the_line_as_a_whole_is_bounded_and_waiting_for_a_place_slows_down() {
    let field = Field::new("queue = 10_000\n[rules]\nr = { key_concurrency = 1, queue = 1_000 }");
    let submit = |key: u64| field.balancer.request("r", key).submit(never);
    let running: Vec<_> = (0..11).map(|key| submit(key).unwrap()).collect();
    settle().await;
    let mut waiting = Vec::new();
    for key in 0..10 {
        waiting.extend((0..1_000).map(|_| submit(key).unwrap()));
        assert_eq!(submit(key).unwrap_err(), Refused::QueueFull { waiting: 1_000 });
    }
    // There is room in this queue, and none in line.
    assert_eq!(submit(10).unwrap_err(), Refused::QueueFull { waiting: 10_000 });
    let patient = tokio::spawn(field.balancer.request("r", 10).submit_wait(never));
    field.at(5_000).await;
    assert!(!patient.is_finished());
    drop(waiting.pop());
    let ticket = patient.await.unwrap().unwrap();
    assert_eq!((field.now(), field.balancer.key(10).waiting), (5_000, 1));
    assert_eq!(submit(10).unwrap_err(), Refused::QueueFull { waiting: 10_000 });
    drop((running, waiting, ticket));
    settle().await;
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_113_the_time_of_an_attempt_begins_with_it() {
    let field = Field::new("[rules]\nr = { per_key = '1/100s', attempt_timeout = '3s' }");
    let [first, second] = ["first", "second"].map(|name| field.play("r", "A", name, Script::takes(2_000)));
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(1)));
    assert_eq!(field.now(), 102_000);
    field.diary.assert(&[("first", 0), ("second", 100_000)]);
    // Time in line is the business of `max_wait`.
    let third = field.balancer.request("r", "A").max_wait(ms(4_000)).run(never).await;
    let reason = Refused::MaxWait { waited: ms(4_000), next_start: NextStart::After(ms(94_000)) };
    assert_eq!(third, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    field.assert_quiet();
}

// As for an attempt that says itself that it may have had its effect: fr_126 in field_cases_retry.
#[tokio::test(start_paused = true)]
async fn fr_126_what_timed_out_is_not_sent_again_unless_that_does_no_harm() {
    let field = Field::new("attempt_timeout = '3s'\n[rules]\nr = {}\n[retry]\nattempts = 3\njitter = 0");
    assert_eq!(field.balancer.run("r", "A", never).await, timed_out(1));
    assert_eq!(field.now(), 3_000);
    assert_eq!(field.balancer.request("r", "A").idempotent().run(never).await, timed_out(3));
    // Three times 3 s, with 1 and 2 s between them.
    assert_eq!(field.now(), 15_000);
    field.assert_quiet();
}

// Without the endpoints: the key is held.
#[tokio::test(start_paused = true)]
async fn fr_155_who_cannot_start_in_time_is_refused_then_or_at_once() {
    let field = Field::new("[rules]\nr = {}");
    field.balancer.hold(request_balancer::Target::key("A"), ms(10_000)).unwrap();
    let request = |max_wait| field.balancer.request("r", "A").max_wait(ms(max_wait));
    let refused = |waited: u64, next: u64| {
        let reason = Refused::MaxWait { waited: ms(waited), next_start: NextStart::After(ms(next)) };
        Err(Error::GaveUp { reason, attempts: 0, last: None })
    };
    assert_eq!(request(5_000).eager().run(never).await, refused(0, 10_000));
    assert_eq!(field.now(), 0);
    assert_eq!(request(5_000).run(never).await, refused(5_000, 5_000));
    assert_eq!(field.now(), 5_000);
    let answer = request(60_000).eager().run(field.script("in time", Script::ends([End::Ok]))).await;
    assert_eq!((answer, field.now()), (Ok(1), 10_000));
    field.assert_quiet();
}
