//! Cases from the field: wake-ups that never came, slots that were never given back.
#![cfg(feature = "tokio")]

mod field;

use std::future::pending;
use std::panic::resume_unwind;

use field::{End, Field, Rng, Script, assert_quiet, every, ms, settle};
use futures::future::join_all;
use request_balancer::{Error, Failure, Refused};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn fr_001_a_waiter_starts_though_nothing_else_ever_happens() {
    let field = Field::new("[rules]\nindividual = '1/1s'");
    let first = field.go("individual", "A", "r1");
    field.at(100).await;
    let second = field.go("individual", "A", "r2");
    field.all_ok([first, second]).await;
    field.diary.assert(&[("r1", 0), ("r2", 1_000)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_003_six_tasks_of_one_key_go_one_a_second() {
    let field = Field::new("[rules]\nindividual = '1/1s'");
    field.all_ok(field.go_many("individual", "A", "r", 6)).await;
    assert_eq!(field.diary.times(), every(0, 1_000, 6));
    field.assert_quiet();
}

// Without the timeout of attempts: one that never returns is dropped by its caller. A million of them, on the machine
// alone, are in field_cases_engine.
#[tokio::test(start_paused = true)]
async fn fr_005_whatever_becomes_of_an_attempt_its_slot_is_used_in_the_same_instant() {
    let field = Field::new(
        "concurrency = 2\n[rules]\n1 = { queue = 32 }\n2 = { queue = 32, priority = 2 }\n3 = { queue = 32, priority = \
         3 }\n4 = { queue = 32, priority = 4 }",
    );
    let mut random = Rng::new(5);
    let mut tasks = Vec::new();
    let mut answers = [0_u32; 5];
    for _ in 0..4_000 {
        sleep(ms(random.below(40))).await;
        let (rule, key) = ((random.below(4) + 1).to_string(), random.below(9));
        let (fate, takes, patience) = (random.below(5), random.below(40), random.below(2_000));
        let balancer = field.balancer.clone();
        tasks.push(tokio::spawn(async move {
            let attempt = async |_| {
                sleep(ms(takes)).await;
                match fate {
                    0 | 1 => Ok(()),
                    2 => Err(Failure::permanent("error")),
                    3 => pending().await,
                    // Without the noise of a panic's hook.
                    _ => resume_unwind(Box::new("panic")),
                }
            };
            let run = balancer.run(&rule, key, attempt);
            timeout(ms(if fate == 3 { patience } else { 3_600_000 }), run).await
        }));
        settle().await;
        let snapshot = field.balancer.snapshot();
        assert!(snapshot.in_flight <= 2 && (snapshot.waiting == 0 || snapshot.in_flight == 2), "{snapshot:?}");
    }
    for task in tasks {
        let fate = match task.await.expect("the task ends by itself") {
            Ok(Ok(())) => 0,
            Ok(Err(Error::Failed("error"))) => 1,
            Ok(Err(Error::Panicked(message))) if message == "panic" => 2,
            Ok(Err(Error::GaveUp { reason: Refused::QueueFull { waiting: 32 }, attempts: 0, last: None })) => 3,
            Err(_elapsed) => 4,
            Ok(Err(error)) => panic!("{error:?}"),
        };
        answers[fate] += 1;
    }
    assert!(answers.iter().all(|count| *count > 100), "{answers:?}");
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_006_a_held_key_does_not_put_the_other_to_sleep() {
    let field = Field::new("[rules]\ng = '1/2s'");
    let held = field.play("g", "B", "B", Script::ends([End::Retry(30_000), End::Ok]));
    let others = field.go_many("g", "A", "A", 10);
    field.all_ok(others).await;
    field.all_ok([held]).await;
    assert_eq!(field.starts("A"), every(0, 2_000, 10));
    assert_eq!(field.starts("B"), [0, 30_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_007_a_slow_urgent_queue_does_not_set_the_pace_of_a_fast_one() {
    let field =
        Field::new("[rules]\nq1 = { per_key = '1/250ms', priority = 1 }\nq2 = { per_key = '1/100ms', priority = 2 }");
    let tasks =
        [("q1", "x1"), ("q1", "x2"), ("q2", "x3"), ("q2", "x4")].map(|(rule, name)| field.go(rule, "key", name));
    field.all_ok(tasks).await;
    field.diary.assert(&[("x1", 0), ("x3", 0), ("x4", 100), ("x2", 250)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_008_two_balancers_on_one_runtime_keep_their_own_time() {
    let (fast, slow) = (Field::new("[rules]\nr = '1/100ms'"), Field::new("[rules]\nr = '1/2s'"));
    let tasks = [fast.go_many("r", "k", "r", 10), slow.go_many("r", "k", "r", 2)];
    fast.all_ok(tasks.into_iter().flatten()).await;
    assert_eq!(fast.diary.times(), every(0, 100, 10));
    assert_eq!(slow.diary.times(), [0, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_009_all_that_fits_goes_when_a_hold_ends() {
    let field = Field::new("[rules]\nr = '10/5s'");
    let mut tasks = vec![field.go("r", "A", "r1"), field.go("r", "A", "r2")];
    tasks.push(field.play("r", "A", "r3", Script { takes: 300, ends: vec![End::Retry(2_000), End::Ok] }));
    field.at(500).await;
    for number in 4..=10 {
        tasks.push(field.go("r", "A", &format!("r{number}")));
    }
    field.all_ok(tasks).await;
    field.diary.assert(&[
        ("r1", 0),
        ("r2", 0),
        ("r3", 0),
        ("r3", 2_300),
        ("r4", 2_300),
        ("r5", 2_300),
        ("r6", 2_300),
        ("r7", 2_300),
        ("r8", 2_300),
        ("r9", 2_300),
        ("r10", 5_000),
    ]);
    field.assert_quiet();
}

// What `health()` says is with the cases of seeing.
#[tokio::test(start_paused = true)]
async fn fr_012_ten_dropped_streams_leave_ten_free_slots() {
    let field = Field::new("concurrency = 10\n[rules]\nr = {}");
    let streams: Vec<_> = (0..10)
        .map(|key| {
            let field = field.clone();
            tokio::spawn(async move {
                let stream = async |_| {
                    field.diary.note("stream");
                    pending::<Result<u32, Failure<&str>>>().await
                };
                field.balancer.run("r", key, stream).await
            })
        })
        .collect();
    settle().await;
    assert_eq!(field.balancer.snapshot().in_flight, 10);
    let blocked = field.go("r", "new", "blocked");
    field.at(5_000).await;
    assert_eq!(field.starts("blocked"), []);
    for stream in &streams {
        stream.abort();
    }
    for stream in streams {
        assert!(stream.await.unwrap_err().is_cancelled());
    }
    field.all_ok([blocked]).await;
    assert_eq!(field.starts("blocked"), [5_000]);
    field.assert_quiet();
    field.all_ok([field.go("r", "new", "last")]).await;
    assert_eq!(field.starts("last"), [5_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_013_whoever_stands_behind_a_cancelled_waiter_is_in_time() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let mut random = Rng::new(13);
    for round in 0..10_000_u64 {
        let begin = round * 2_000;
        field.at(begin).await;
        let first = field.go("r", "A", "first");
        let cancelled = field.go("r", "A", "cancelled");
        let second = field.go("r", "A", "second");
        field.at(begin + random.below(1_000)).await;
        cancelled.abort();
        field.all_ok([first, second]).await;
        assert_eq!(field.now(), begin + 1_000, "in round {round}");
        field.assert_quiet();
    }
    assert_eq!(field.starts("cancelled"), []);
    assert_eq!(field.starts("second").len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn fr_014_requests_that_were_dropped_at_once_cost_nothing() {
    let field = Field::new("[rules]\nr = '1/1s'");
    for _ in 0..6 {
        // Never polled; in line at once; in line and asked for once.
        drop(field.balancer.run("r", "A", field.script("dropped", Script::takes(0))));
        drop(field.balancer.request("r", "A").submit(field.script("dropped", Script::takes(0))).unwrap());
        let hour = field.balancer.request("r", "A").not_before(ms(3_600_000));
        let mut run = Box::pin(hour.run(field.script("dropped", Script::takes(0))));
        assert!(futures::poll!(&mut run).is_pending());
    }
    field.all_ok([field.go("r", "A", "r7")]).await;
    settle().await;
    field.diary.assert(&[("r7", 0)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_016_handles_that_ask_for_nothing_take_no_places() {
    let field = Field::new("[rules]\nr = { paused = true, queue = 10 }");
    let handles: Vec<_> = (0..100).map(|_| field.balancer.clone()).collect();
    let handle = field.balancer.clone();
    let tickets: Vec<_> = (0..10)
        .map(|_| handle.request("r", "A").submit(field.script("r", Script::takes(0))).expect("a place in line"))
        .collect();
    let eleventh = handle.request("r", "A").submit(field.script("r", Script::takes(0)));
    assert_eq!(eleventh.unwrap_err(), Refused::QueueFull { waiting: 10 });
    drop(handles);
    handle.resume("r").unwrap();
    assert!(join_all(tickets).await.iter().all(|answer| *answer == Ok(1)));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_019_a_cancelled_waiter_takes_its_claim_to_time_with_it() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let submit = |name: &str| field.balancer.request("r", "A").submit(field.script(name, Script::takes(0))).unwrap();
    let mut tickets: Vec<_> = (0..=10).map(|number| submit(&format!("r{number}"))).collect();
    field.at(100).await;
    assert_eq!(field.balancer.snapshot().waiting, 10);
    let last = tickets.pop().unwrap();
    let first = tickets.swap_remove(0);
    drop(tickets);
    assert_eq!(field.balancer.snapshot().waiting, 1);
    assert_eq!((first.await, last.await), (Ok(1), Ok(1)));
    field.diary.assert(&[("r0", 0), ("r10", 1_000)]);
    field.assert_quiet();
    field.at(3_000).await;
    assert_quiet(&field.balancer);
    assert_eq!(field.balancer.snapshot().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn fr_023_refused_tries_postpone_nothing() {
    let field = Field::new("[rules]\nr = '5/1s'");
    for round in 0..200 {
        field.at(round * 50).await;
        for _ in 0..40 {
            match field.balancer.request("r", "A").try_acquire() {
                Ok(_permit) => field.diary.note("start"),
                Err(refusal) => assert!(matches!(refusal, Refused::NotNow { .. }), "{refusal}"),
            }
        }
    }
    let expected: Vec<u64> = (0..50).map(|number| number / 5 * 1_000).collect();
    assert_eq!(field.diary.times(), expected);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_024_reservations_that_are_cancelled_cost_no_throughput() {
    let field = Field::new("[rules]\nr = '100/1s'");
    // Each of 100 callers comes twice a second and does not wait: together twice as often as the limit allows.
    for step in 0..2_000 {
        field.at(step * 5).await;
        let mut acquire = field.balancer.request("r", "A").acquire();
        match futures::poll!(&mut acquire) {
            std::task::Poll::Ready(permit) => {
                drop(permit.unwrap());
                field.diary.note("start");
            }
            std::task::Poll::Pending => assert_eq!(field.balancer.snapshot().waiting, 1),
        }
    }
    let starts = field.diary.times();
    assert_eq!(starts.len(), 1_000);
    assert_eq!(field::most_in(&starts, 1_000), 100);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_048_a_slot_is_used_as_soon_as_it_leaves_the_window() {
    let field = Field::new("[rules]\nr = '2/1s'");
    let a = field.go("r", "A", "a");
    field.at(600).await;
    let b = field.go("r", "A", "b");
    field.at(1_100).await;
    field.all_ok([a, b, field.go("r", "A", "c")]).await;
    field.diary.assert(&[("a", 0), ("b", 600), ("c", 1_100)]);
}
