//! The end of a balancer, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::time::Duration;

use diary::{Diary, balancer, settle};
use futures::future::join_all;
use request_balancer::{Ended, Error, Failure, Outcome, Refused};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn closed<T>() -> Result<T, Error<()>> {
    Err(Error::GaveUp { reason: Refused::Closed, attempts: 0, last: None })
}

fn counts(ended: Ended) -> [usize; 4] {
    [ended.done, ended.refused, ended.aborted, ended.open]
}

#[tokio::test(start_paused = true)]
async fn what_runs_may_finish_and_what_waits_is_refused() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let begin = Instant::now();
    let runs: Vec<_> = (0..6)
        .map(|n| {
            let balancer = balancer.clone();
            tokio::spawn(async move {
                let run = balancer.run("send", 1, async |_| {
                    sleep(2 * SECOND).await;
                    Ok::<_, Failure<()>>(n)
                });
                (run.await, begin.elapsed())
            })
        })
        .collect();
    settle().await;
    let late = async {
        sleep(SECOND).await;
        let late = balancer.request("send", 2).submit(Diary::new().done::<()>("late"));
        assert_eq!(late.unwrap_err(), Refused::Closed);
        assert_eq!(balancer.run("send", 2, Diary::new().done::<()>("late")).await, closed());
        assert_eq!(balancer.request("send", 2).try_acquire().unwrap_err(), Refused::Closed);
    };
    let (ended, ()) = tokio::join!(balancer.close(10 * SECOND), late);
    assert_eq!(begin.elapsed(), 2 * SECOND);
    assert_eq!(counts(ended), [1, 5, 0, 0]);
    let answers = join_all(runs).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], (Ok(0), 2 * SECOND));
    assert!(answers[1..].iter().all(|answer| *answer == (closed(), Duration::ZERO)), "{answers:?}");
    // Once more changes nothing.
    assert_eq!(counts(balancer.close(SECOND).await), [1, 5, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_at_the_deadline_is_cut_off() {
    struct Noted(Diary, &'static str);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.note(self.1);
        }
    }
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let endless = |name: &'static str| {
        let diary = diary.clone();
        move |_| {
            let noted = Noted(diary.clone(), name);
            async move {
                let _noted = noted;
                std::future::pending::<Outcome<(), ()>>().await
            }
        }
    };
    let in_place = tokio::spawn({
        let (balancer, attempt) = (balancer.clone(), endless("in place"));
        async move { balancer.run("send", 1, attempt).await }
    });
    let ticket = balancer.request("send", 1).submit(endless("task")).unwrap();
    let permit = balancer.request("send", 1).acquire().await.unwrap();
    settle().await;
    let begin = Instant::now();
    let ended = balancer.close(10 * SECOND).await;
    assert_eq!(begin.elapsed(), 10 * SECOND);
    assert_eq!(counts(ended), [0, 0, 2, 1]);
    let aborted = Err(Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None });
    assert_eq!((in_place.await.unwrap(), ticket.await), (aborted.clone(), aborted));
    drop(permit);
    assert_eq!(balancer.snapshot().in_flight, 0);
    let mut read = diary.read();
    read.sort();
    assert_eq!(read, [("in place".to_owned(), 10_000), ("task".to_owned(), 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_polls_is_left_open() {
    let balancer = balancer("[rules]\nsend = {}");
    let mut zombie = Box::pin(balancer.run("send", 1, |_| std::future::pending::<Outcome<(), ()>>()));
    assert!(futures::poll!(zombie.as_mut()).is_pending());
    let begin = Instant::now();
    assert_eq!(counts(balancer.close(SECOND).await), [0, 0, 0, 1]);
    assert_eq!(begin.elapsed(), Duration::from_millis(1_100));
    assert_eq!(zombie.await, Err(Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None }));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_the_end_is_refused() {
    let balancer = balancer("[rules]\nsend = {}");
    let request = balancer.run("send", 1, async |attempt| {
        sleep(2 * SECOND).await;
        Err::<(), _>(attempt.retry(SECOND).because(()))
    });
    let close = async {
        settle().await;
        balancer.close(10 * SECOND).await
    };
    let (answer, ended) = tokio::join!(request, close);
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Closed, attempts: 1, last: Some(()) }));
    assert_eq!(counts(ended), [0, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_wait_for_takes_no_time() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    balancer.run("send", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    let begin = Instant::now();
    assert_eq!(counts(balancer.close(Duration::MAX).await), [0, 0, 0, 0]);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn no_time_at_all_cuts_off_at_once() {
    let balancer = balancer("[rules]\nsend = {}");
    let run = balancer.run("send", 1, |_| std::future::pending::<Outcome<(), ()>>());
    let close = async {
        settle().await;
        balancer.close(Duration::ZERO).await
    };
    let begin = Instant::now();
    let (answer, ended) = tokio::join!(run, close);
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None }));
    assert_eq!((counts(ended), begin.elapsed()), ([0, 0, 1, 0], Duration::ZERO));
}

#[test]
fn outside_a_runtime_it_cuts_off_at_once() {
    let balancer = balancer("[rules]\nsend = {}");
    let permit = balancer.request("send", 1).try_acquire().unwrap();
    assert_eq!(counts(futures::executor::block_on(balancer.close(SECOND))), [0, 0, 0, 1]);
    drop(permit);
}

#[test]
fn on_a_runtime_without_timers_it_cuts_off_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let permit = balancer.request("send", 1).try_acquire().expect("a start");
    assert_eq!(counts(runtime.block_on(balancer.close(SECOND))), [0, 0, 0, 1]);
    drop(permit);
    assert_eq!(counts(runtime.block_on(balancer.close(SECOND))), [1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn abort_cuts_off_what_runs_and_refuses_what_waits_at_once() {
    let (balancer, begin) = (balancer("[rules]\nsend = { key_concurrency = 1 }"), Instant::now());
    let submit = || {
        let request = balancer.request("send", 1);
        request.submit(async |_| std::future::pending::<Outcome<(), ()>>().await).expect("room in line")
    };
    let (runs, waits) = (submit(), submit());
    settle().await;
    balancer.abort();
    balancer.abort();
    let cut = Err(Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None });
    assert_eq!((runs.await, waits.await), (cut, closed()));
    assert_eq!(counts(balancer.close(SECOND).await), [0, 1, 1, 0]);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}
