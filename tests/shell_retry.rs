//! What follows a failed attempt, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::time::Duration;

use diary::{Diary, balancer};
use futures::future::join_all;
use request_balancer::{Attempt, Error, Failure, Outcome, Refused, Retry, Scope, Target};

const SECOND: Duration = Duration::from_secs(1);

/// An attempt that notes its start and fails like this until number `ok`.
fn failing(
    diary: &Diary,
    name: &'static str,
    ok: u32,
    fail: impl Fn(&Attempt) -> Failure<&'static str>,
) -> impl FnMut(Attempt) -> std::future::Ready<Outcome<u32, &'static str>> {
    let diary = diary.clone();
    move |attempt| {
        diary.note(name);
        std::future::ready(if attempt.number() < ok { Err(fail(&attempt)) } else { Ok(attempt.number()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_back_to_its_place_with_its_future() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let a = balancer.run("send", 1, failing(&diary, "a", 2, |attempt| attempt.retry(5 * SECOND)));
    let b = balancer.run("send", 1, failing(&diary, "b", 1, |attempt| attempt.retry(None)));
    let other = balancer.run("send", 2, failing(&diary, "other", 1, |attempt| attempt.retry(None)));
    assert_eq!(tokio::join!(a, b, other), (Ok(2), Ok(1), Ok(1)));
    diary.assert(&[("a", 0), ("other", 0), ("a", 5_000), ("b", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn waits_without_a_number_double_and_are_limited_by_attempts() {
    let balancer = balancer("[rules]\nsend = {}\n[retry]\nbare_wait = '1s'\nattempts = 3");
    let diary = Diary::new();
    let answer = balancer.run("send", 1, failing(&diary, "", u32::MAX, |attempt| attempt.retry(None))).await;
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: None }));
    assert_eq!(diary.times(), [0, 1_000, 3_000]);
}

#[tokio::test(start_paused = true)]
async fn waits_with_a_number_have_a_budget_of_their_own() {
    let balancer = balancer("[rules]\nsend = {}\n[retry]\nwaits = 5\njitter = 0");
    let diary = Diary::new();
    let answer = balancer.run("send", 1, failing(&diary, "", u32::MAX, |attempt| attempt.retry(SECOND))).await;
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Waits, attempts: 6, last: None }));
    assert_eq!(diary.times(), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
    // Ten waits are no failures.
    let request = balancer.request("send", 2).retry(Retry::new().waits(20).attempts(1));
    assert_eq!(request.run(failing(&diary, "", 11, |attempt| attempt.retry(5 * SECOND))).await, Ok(11));
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_shorter_than_the_shortest() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let answer = balancer.run("send", 1, failing(&diary, "", 6, |attempt| attempt.retry(Duration::ZERO))).await;
    assert_eq!(answer, Ok(6));
    assert_eq!(diary.times(), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_too_long_fails_one_and_holds_all() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let impatient = balancer.request("send", 1).retry(Retry::new().ceiling(5 * SECOND));
    let impatient = impatient.run(failing(&diary, "a", 2, |attempt| attempt.retry(30 * SECOND)));
    let patient = balancer.run("send", 1, failing(&diary, "b", 2, |attempt| attempt.retry(30 * SECOND)));
    let (a, b) = tokio::join!(impatient, patient);
    let reason = Refused::WaitTooLong { wait: 30 * SECOND, ceiling: 5 * SECOND };
    assert_eq!((a, b), (Err(Error::GaveUp { reason, attempts: 1, last: None }), Ok(2)));
    // `b` was in line behind the hold that `a` left.
    diary.assert(&[("a", 0), ("b", 30_000), ("b", 60_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_there_is_does_no_harm() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let answer = balancer.run("send", 1, failing(&diary, "", 2, |attempt| attempt.retry(Duration::MAX))).await;
    assert!(matches!(
        answer,
        Err(Error::GaveUp { reason: Refused::WaitTooLong { wait, .. }, .. }) if wait > Duration::from_secs(1 << 33)
    ));
    // No hold is longer than an hour.
    assert_eq!(balancer.key(1).held, Some(3_600 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_steps_out_and_lets_others_pass() {
    let balancer = balancer("[rules]\nsend = '1/1s'\n[retry]\nbackoff = '10s'\njitter = 0");
    let diary = Diary::new();
    let a = balancer.run("send", 1, failing(&diary, "a", 3, |_| Failure::transient("busy")));
    let rest = (0..3).map(|_| balancer.run("send", 1, failing(&diary, "b", 1, |_| Failure::transient("busy"))));
    let (a, _) = tokio::join!(a, join_all(rest));
    assert_eq!(a, Ok(3));
    diary.assert(&[("a", 0), ("b", 1_000), ("b", 2_000), ("b", 3_000), ("a", 10_000), ("a", 30_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_may_hold_others() {
    let balancer = balancer("[rules]\nsend = {}\n[retry]\nbackoff = '10s'\njitter = 0");
    let diary = Diary::new();
    let a = balancer.run("send", 1, failing(&diary, "a", 2, |_| Failure::transient("busy").hold(Scope::Rule)));
    let b = balancer.run("send", 2, failing(&diary, "b", 1, |_| Failure::transient("busy")));
    let _ = tokio::join!(a, b);
    let mut read = diary.read();
    read.sort();
    assert_eq!(read, [("a".into(), 0), ("a".into(), 10_000), ("b".into(), 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn only_what_may_be_repeated_is_repeated() {
    let balancer = balancer("[rules]\nsend = {}\n[retry]\njitter = 0");
    let diary = Diary::new();
    let fails = |_: &Attempt| Failure::ambiguous("timed out");
    let answer = balancer.run("send", 1, failing(&diary, "once", 2, fails)).await;
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::RetryNotAllowed, attempts: 1, last: Some("timed out") }));
    let answer = balancer.request("send", 2).idempotent().run(failing(&diary, "twice", 2, fails)).await;
    assert_eq!(answer, Ok(2));
    let answer =
        balancer.request("send", 3).no_retry().run(failing(&diary, "never", 2, |_| Failure::transient("busy")));
    assert_eq!(answer.await, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 1, last: Some("busy") }));
    diary.assert(&[("once", 0), ("twice", 0), ("twice", 1_000), ("never", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn scopes_reach_as_far_as_they_say() {
    for (scope, expected) in [
        (Scope::Request, [0, 0, 0, 4_000]),
        (Scope::Queue, [0, 0, 4_000, 4_000]),
        (Scope::Key, [0, 4_000, 4_000, 4_000]),
        (Scope::Rule, [0, 0, 4_000, 4_000]),
        (Scope::Overall, [0, 4_000, 4_000, 4_000]),
    ] {
        let balancer = balancer("overall = '30/1s'\n[rules]\nsend = {}\nread = {}");
        let diary = Diary::new();
        let a = balancer.run("send", 1, failing(&diary, "a", 2, |attempt| attempt.retry(4 * SECOND).hold(scope)));
        let same_queue = balancer.run("send", 1, diary.done::<()>("same queue"));
        let same_key = balancer.run("read", 1, diary.done::<()>("same key"));
        let _ = tokio::join!(a, same_queue, same_key);
        let mut times = diary.times();
        times.sort_unstable();
        assert_eq!(times, expected, "{scope:?}: {:?}", diary.read());
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_knows_its_place() {
    let balancer = balancer("[rules]\nsend = '1/10s'\n[retry]\njitter = 0");
    let seen = std::cell::RefCell::new(Vec::new());
    let answer = balancer
        .run("send", "chat", async |attempt: Attempt| {
            assert_eq!((&*attempt.rule(), attempt.key().to_string().as_str()), ("send", "chat"));
            seen.borrow_mut().push((attempt.number(), attempt.waited(), attempt.is_last()));
            Err::<(), _>(Failure::transient("busy"))
        })
        .await;
    assert!(answer.is_err());
    assert_eq!(*seen.borrow(), [(1, Duration::ZERO, false), (2, 10 * SECOND, false), (3, 20 * SECOND, true)]);
}

#[tokio::test(start_paused = true)]
async fn panics_end_the_request_and_nothing_else() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let panics = |when: &'static str| {
        balancer.run("send", 1, move |_| {
            assert!(when != "at once", "boom at once");
            async move {
                tokio::time::sleep(SECOND).await;
                if when == "later" {
                    std::panic::panic_any(String::from("boom later"));
                }
                Ok::<_, Failure<()>>(())
            }
        })
    };
    let (a, b, c) = tokio::join!(panics("at once"), panics("later"), panics("never"));
    assert_eq!(
        (a, b, c),
        (Err(Error::Panicked("boom at once".into())), Err(Error::Panicked("boom later".into())), Ok(()))
    );
    assert_eq!(balancer.snapshot().in_flight, 0);
    struct Explosive;
    impl Drop for Explosive {
        fn drop(&mut self) {
            panic!("boom in drop");
        }
    }
    let dropped = balancer
        .run("send", 1, |_| {
            let explosive = Explosive;
            async move {
                let _explosive = explosive;
                Ok::<_, Failure<()>>(())
            }
        })
        .await;
    assert_eq!(dropped, Err(Error::Panicked("boom in drop".into())));
    let classified =
        balancer.request("send", 1).classify(|_: &u8| panic!("boom in classify")).call(async |_| Err::<(), _>(1));
    assert_eq!(classified.await, Err(Error::Panicked("boom in classify".into())));
    assert_eq!((balancer.snapshot().in_flight, balancer.key(1).in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn retries_pass_every_limit_again() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let runs = (0..10).map(|_| balancer.run("send", (), failing(&diary, "", 2, |attempt| attempt.retry(SECOND))));
    assert!(join_all(runs).await.iter().all(|answer| *answer == Ok(2)));
    let expected: Vec<u64> = (0..20).map(|n| n * 1_000).collect();
    assert_eq!(diary.times(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_hold_from_outside_outlasts_a_shorter_retry() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    balancer.hold(Target::key(1), 2 * SECOND).unwrap();
    let request = balancer.run(
        "send",
        1,
        failing(&diary, "", 2, |attempt| {
            balancer.hold(Target::key(1), 7 * SECOND).unwrap();
            attempt.retry(SECOND)
        }),
    );
    assert_eq!(request.await, Ok(2));
    assert_eq!(diary.times(), [2_000, 9_000]);
}
