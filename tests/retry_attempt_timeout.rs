//! Attempts that may only run for so long, on the paused clock.
#![cfg(feature = "tokio")]

mod diary;

use std::future::{pending, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use diary::{Diary, balancer, settle};
use request_balancer::{Attempt, Classify, Error, Failure, Outcome, Refused, Retry, Target, Verdict};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

type Answer<T> = Result<T, Error<&'static str>>;

fn timed_out<T>(attempts: u32, last: Option<&'static str>) -> Answer<T> {
    Err(Error::GaveUp { reason: Refused::TimedOut, attempts, last })
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

async fn never(_: Attempt) -> Outcome<(), &'static str> {
    pending().await
}

/// An attempt that notes its start and takes so long.
fn taking(
    diary: &Diary,
    name: &'static str,
    takes: Duration,
) -> impl FnMut(Attempt) -> std::pin::Pin<Box<dyn Future<Output = Outcome<u32, &'static str>> + Send>> + Send + use<> {
    let diary = diary.clone();
    move |attempt| {
        diary.note(name);
        Box::pin(async move {
            sleep(takes).await;
            Ok(attempt.number())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_dropped_at_the_end_of_its_time_and_its_slot_is_free_at_once() {
    struct Noted(Diary);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.note("dropped");
        }
    }
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1, attempt_timeout = '5s' }");
    let diary = Diary::new();
    let held = Noted(diary.clone());
    let mut held = Some(held);
    let first = balancer.run("send", 1, |_| {
        let held = held.take();
        async move {
            let _held = held;
            pending::<Outcome<u32, &'static str>>().await
        }
    });
    let next = balancer.run("send", 1, taking(&diary, "next", Duration::ZERO));
    let (first, next) = tokio::join!(first, next);
    assert_eq!((first, next), (timed_out(1, None), Ok(1)));
    diary.assert(&[("dropped", 5_000), ("next", 5_000)]);
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_no_harm_twice_is_tried_again() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }\n[retry]\njitter = 0");
    let diary = Diary::new();
    let request = || balancer.request("send", 1).idempotent();
    let answer: Answer<()> = request()
        .run(|_| {
            diary.note("a");
            pending()
        })
        .await;
    assert_eq!(answer, timed_out(3, None));
    // Delays of 1 and 2 s lie between them.
    assert_eq!(diary.times(), [0, 6_000, 13_000]);
    // The last error that there was is shown.
    let answer: Answer<()> = request()
        .run(async |attempt| match attempt.number() {
            1 => Err(Failure::transient("busy")),
            _ => pending().await,
        })
        .await;
    assert_eq!(answer, timed_out(3, Some("busy")));
    let second = async |attempt: Attempt| if attempt.number() == 1 { pending().await } else { Ok(attempt.number()) };
    assert_eq!(request().run::<_, _, _, &str>(second).await, Ok(2));
    assert_eq!(balancer.run("send", 1, second).await, timed_out(1, None));
}

#[tokio::test(start_paused = true)]
async fn the_start_stays_counted() {
    let balancer = balancer("[rules]\nsend = { per_key = '1/10s', attempt_timeout = '2s' }");
    let diary = Diary::new();
    let (first, second) = tokio::join!(
        balancer.run("send", 1, taking(&diary, "first", 3 * SECOND)),
        balancer.run("send", 1, taking(&diary, "second", SECOND))
    );
    assert_eq!((first, second), (timed_out(1, None), Ok(1)));
    diary.assert(&[("first", 0), ("second", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn who_says_more_closely_what_goes_is_right() {
    let balancer = balancer(
        "attempt_timeout = '1s'\n[rules]\nfile = {}\nrule = { attempt_timeout = '2s' }\nnone = { attempt_timeout = \
         false }",
    );
    for (rule, own, expected) in [
        ("file", None, Some(1)),
        ("rule", None, Some(2)),
        ("none", None, None),
        ("rule", Some(Some(3 * SECOND)), Some(3)),
        ("rule", Some(Some(Duration::MAX)), None),
        ("rule", Some(None), None),
        ("none", Some(Some(SECOND)), Some(1)),
        ("none", Some(Some(Duration::ZERO)), Some(0)),
    ] {
        let begin = Instant::now();
        let request = balancer.request(rule, 1);
        let request = match own {
            Some(longest) => request.attempt_timeout(longest),
            None => request,
        };
        let answer = timeout(100 * SECOND, request.run(never)).await;
        match expected {
            Some(seconds) => {
                assert_eq!((answer, begin.elapsed()), (Ok(timed_out(1, None)), seconds * SECOND), "{rule}, {own:?}");
            }
            None => assert!(answer.is_err(), "{rule}, {own:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_ready_in_the_last_moment_has_made_it() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }");
    let diary = Diary::new();
    assert_eq!(balancer.run("send", 1, taking(&diary, "in time", 5 * SECOND)).await, Ok(1));
    assert_eq!(balancer.run("send", 1, taking(&diary, "late", 5 * SECOND + SECOND / 1_000)).await, timed_out(1, None));
    assert_eq!(
        balancer.request("send", 1).attempt_timeout(Duration::ZERO).run(async |_| Ok::<_, Failure<()>>(())).await,
        Ok(())
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_and_a_ticket_are_timed_out_too() {
    #[derive(Debug, PartialEq)]
    struct Busy;
    impl Classify for Busy {
        fn classify(&self) -> Verdict {
            Verdict::Transient
        }
    }
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1, attempt_timeout = '5s' }");
    let diary = Diary::new();
    let called = balancer.call("send", 1, |_| pending::<Result<(), Busy>>()).await;
    assert_eq!(called, Err(Error::GaveUp { reason: Refused::TimedOut, attempts: 1, last: None }));
    let ticket = balancer.request("send", 1).submit(never).unwrap();
    let next = balancer.request("send", 1).submit(taking(&diary, "next", SECOND)).unwrap();
    assert_eq!((ticket.await, next.await), (timed_out(1, None), Ok(1)));
    diary.assert(&[("next", 10_000)]);
    // Nobody waits for the answer of this one.
    balancer.request("send", 1).submit(never).unwrap().detach();
    assert_eq!(balancer.run("send", 1, taking(&diary, "after", SECOND)).await, Ok(1));
    diary.assert(&[("next", 10_000), ("after", 16_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_stays_for_as_long_as_it_likes() {
    let balancer = balancer("attempt_timeout = '1s'\n[rules]\nsend = { key_concurrency = 1 }");
    let permit = balancer.request("send", 1).attempt_timeout(SECOND).acquire().await.unwrap();
    sleep(10 * SECOND).await;
    assert_eq!(balancer.snapshot().in_flight, 1);
    drop(permit);
    assert!(balancer.request("send", 1).try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_time_and_the_line_has_none_of_it() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }");
    let diary = Diary::new();
    balancer.hold(Target::key(1), 60 * SECOND).unwrap();
    // Three attempts of four seconds, with waits of ten.
    let answer = balancer
        .run("send", 1, async |attempt| {
            diary.note("start");
            sleep(4 * SECOND).await;
            if attempt.number() < 3 { Err(attempt.retry::<()>(10 * SECOND)) } else { Ok(attempt.number()) }
        })
        .await;
    assert_eq!(answer, Ok(3));
    assert_eq!(diary.times(), [60_000, 74_000, 88_000]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_drop_of_an_overdue_attempt_is_its_answer() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            // Without the noise of a panic's hook.
            std::panic::resume_unwind(Box::new("bomb"));
        }
    }
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1, attempt_timeout = '5s' }");
    let answer: Answer<()> = balancer
        .run("send", 1, async |_| {
            let _bomb = Bomb;
            pending().await
        })
        .await;
    assert_eq!(answer, Err(Error::Panicked("bomb".into())));
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn other_rules_go_for_attempts_that_begin_after_them() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }");
    let begin = Instant::now();
    let (first, second) = tokio::join!(balancer.run("send", 1, never), async {
        sleep(SECOND).await;
        balancer.replace_rules("[rules]\nsend = { attempt_timeout = '1s' }".parse().unwrap());
        let answer = balancer.run("send", 1, never).await;
        assert_eq!(begin.elapsed(), 2 * SECOND);
        answer
    });
    assert_eq!((first, second), (timed_out(1, None), timed_out(1, None)));
    assert_eq!(begin.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn closing_cuts_off_sooner_and_a_timeout_ends_the_wait_for_it() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }");
    let overdue = balancer.request("send", 1).submit(never).unwrap();
    let open = balancer.request("send", 2).attempt_timeout(60 * SECOND).submit(never).unwrap();
    settle().await;
    let begin = Instant::now();
    let ended = balancer.close(10 * SECOND).await;
    assert_eq!((ended.done, ended.aborted, ended.open), (1, 1, 0));
    assert_eq!(begin.elapsed(), 10 * SECOND);
    assert_eq!(overdue.await, timed_out(1, None));
    assert_eq!(open.await, Err(Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None }));
}

#[test]
fn without_timers_nothing_starts_that_would_need_them() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }\nfree = {}");
    let no_runtime = Err(Error::GaveUp { reason: Refused::NoRuntime, attempts: 0, last: None });
    let started = Arc::new(Mutex::new(0));
    let poll = |rule| {
        let started = Arc::clone(&started);
        let run = pin!(balancer.run(rule, 1, move |_| {
            *started.lock().unwrap() += 1;
            ready(Ok::<_, Failure<()>>(()))
        }));
        run.poll(&mut Context::from_waker(Waker::noop()))
    };
    assert_eq!((poll("send"), poll("free")), (Poll::Ready(no_runtime), Poll::Ready(Ok(()))));
    assert_eq!(*started.lock().unwrap(), 1);
    let untimed = Builder::new_current_thread().build().unwrap();
    let answer = untimed.block_on(balancer.run("send", 1, never));
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::NoRuntime, attempts: 1, last: None }));
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[test]
fn a_running_attempt_moves_to_another_runtime() {
    let balancer = balancer("[rules]\nsend = { attempt_timeout = '5s' }");
    let mut running = pin!(balancer.run("send", 1, never));
    let first = paused();
    first.block_on(async {
        assert!(timeout(SECOND, running.as_mut()).await.is_err());
    });
    drop(first);
    let second = paused();
    let answer = second.block_on(async {
        let begin = Instant::now();
        let answer = running.as_mut().await;
        // The machine's time went on in between, by how much the two clocks differ.
        assert!(begin.elapsed() <= 5 * SECOND);
        answer
    });
    assert_eq!(answer, timed_out(1, None));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_for_another_request_is_timed_out_with_it() {
    let balancer = balancer("[rules]\nouter = { attempt_timeout = '5s' }\ninner = '1/60s'");
    drop(balancer.request("inner", 1).acquire().await.unwrap());
    let answer: Answer<()> = balancer
        .request("outer", 1)
        .retry(Retry::none())
        .run(async |_| {
            balancer.run("inner", 1, async |_| Ok::<_, Failure<()>>(())).await.map_err(|_| Failure::permanent("inner"))
        })
        .await;
    assert_eq!(answer, timed_out(1, None));
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
}
