//! Standing in line and leaving it, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use diary::{Diary, balancer, settle};
use futures::future::{FutureExt, join_all};
use request_balancer::{Error, Failure, NextStart, Outcome, Refused, Rule, Rules};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn gave_up<T, E>(reason: Refused) -> Result<T, Error<E>> {
    Err(Error::GaveUp { reason, attempts: 0, last: None })
}

/// Polls a future once without anybody to wake.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn waits_no_longer_than_it_may() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    balancer.run("send", 1, diary.done::<()>("first")).await.unwrap();
    let begin = Instant::now();
    let late = balancer.request("send", 1).max_wait(4 * SECOND).run(diary.done::<()>("never"));
    let reason = Refused::MaxWait { waited: 4 * SECOND, next_start: NextStart::After(6 * SECOND) };
    assert_eq!(late.await, gave_up(reason));
    assert_eq!(begin.elapsed(), 4 * SECOND);
    let just = balancer.request("send", 1).max_wait(6 * SECOND).run(diary.done::<()>("just"));
    assert_eq!(just.await, Ok(()));
    diary.assert(&[("first", 0), ("just", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_summed_over_all_attempts() {
    let balancer = balancer("[rules]\nsend = { max_wait = '10s' }\n[retry]\njitter = 0");
    let begin = Instant::now();
    let answer = balancer
        .run("send", 1, async |attempt| {
            // What the attempts take is no time in line.
            sleep(100 * SECOND).await;
            Err::<(), _>(attempt.retry(4 * SECOND).because("flood"))
        })
        .await;
    let reason = Refused::MaxWait { waited: 10 * SECOND, next_start: NextStart::After(2 * SECOND) };
    assert_eq!(answer, Err(Error::GaveUp { reason, attempts: 3, last: Some("flood") }));
    assert_eq!(begin.elapsed(), 310 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn starts_not_before_it_is_told_to() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let late = balancer.request("send", 1).not_before(3 * SECOND).run(diary.done::<()>("late"));
    let other = balancer.run("send", 1, diary.done::<()>("other"));
    let _ = tokio::join!(late, other);
    diary.assert(&[("other", 0), ("late", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn fails_fast_where_it_would_wait() {
    let balancer = balancer("[rules]\nsend = '2/10s'\none = { concurrency = 1 }");
    let diary = Diary::new();
    let quick = || balancer.request("send", 1).fail_fast();
    assert_eq!(quick().run(diary.done::<()>("a")).await, Ok(()));
    assert!(quick().try_acquire().is_ok());
    sleep(4 * SECOND).await;
    let not_now = Refused::NotNow { next_start: NextStart::After(6 * SECOND) };
    assert_eq!(quick().run(diary.done::<()>("b")).await, gave_up(not_now.clone()));
    assert_eq!(quick().try_acquire().unwrap_err(), not_now.clone());
    assert_eq!(quick().submit(diary.done::<()>("c")).unwrap_err(), not_now);
    assert_eq!(balancer.key(1).waiting, 0);
    let permit = balancer.request("one", 1).try_acquire().unwrap();
    let busy = balancer.request("one", 2).try_acquire().unwrap_err();
    assert_eq!(busy, Refused::NotNow { next_start: NextStart::WhenOneEnds });
    drop(permit);
    assert!(balancer.request("one", 2).try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_away_the_newest_or_the_oldest() {
    let balancer = balancer(
        "[rules]\nreject = { per_key = '1/1s', queue = 2 }\ndrop = { per_key = '1/1s', queue = 2, overflow = 'drop-oldest' }",
    );
    let diary = Diary::new();
    let run = |rule, name| balancer.run(rule, 1, diary.done::<()>(name));
    let reject = join_all([run("reject", "a"), run("reject", "b"), run("reject", "c"), run("reject", "d")]);
    assert_eq!(reject.await, [Ok(()), Ok(()), Ok(()), gave_up(Refused::QueueFull { waiting: 2 })]);
    let drop = join_all([run("drop", "e"), run("drop", "f"), run("drop", "g"), run("drop", "h")]);
    assert_eq!(drop.await, [Ok(()), gave_up(Refused::Displaced), Ok(()), Ok(())]);
    diary.assert(&[("a", 0), ("b", 1_000), ("c", 2_000), ("e", 2_000), ("g", 3_000), ("h", 4_000)]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_rule_says_which_one_was_meant() {
    let balancer = balancer("[rules]\nbroadcast = {}");
    let reason = Refused::UnknownRule { name: "brodcast".into(), nearest: Some("broadcast".into()) };
    assert_eq!(balancer.rule("brodcast").unwrap_err(), reason);
    assert_eq!(balancer.run("brodcast", 1, async |_| Ok::<_, Failure<()>>(())).await, gave_up(reason.clone()));
    assert_eq!(balancer.request("brodcast", 1).try_acquire().unwrap_err(), reason.clone());
    assert_eq!(balancer.request("brodcast", 1).submit(Diary::new().done::<()>("")).unwrap_err(), reason);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_in_line_leaves_it() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    let first = balancer.run("send", 1, diary.done::<()>("first"));
    let gone = timeout(3 * SECOND, balancer.run("send", 1, diary.done::<()>("gone")));
    let last = balancer.run("send", 1, diary.done::<()>("last"));
    let (_, gone, _) = tokio::join!(first, gone, last);
    assert!(gone.is_err());
    diary.assert(&[("first", 0), ("last", 10_000)]);
    assert_eq!(balancer.key(1).waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_with_its_grant_refunds_it() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    balancer.run("send", 1, diary.done::<()>("first")).await.unwrap();
    let mut granted = Box::pin(balancer.run("send", 1, diary.done::<()>("granted")));
    assert!(poll_once(granted.as_mut()).is_pending());
    sleep(10 * SECOND).await;
    // It has been granted and will not be polled again.
    let next = balancer.run("send", 1, diary.done::<()>("next"));
    let drop = async {
        settle().await;
        drop(granted);
    };
    let (next, ()) = tokio::join!(next, drop);
    next.unwrap();
    diary.assert(&[("first", 0), ("next", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_it_runs_gives_back_its_place_but_not_its_start() {
    let balancer =
        balancer("[rules]\nsend = { per_key = '1/10s', key_concurrency = 1 }\nslot = { key_concurrency = 1 }");
    let diary = Diary::new();
    let endless = |rule: &'static str, name: &'static str| {
        let diary = diary.clone();
        let attempt = balancer.run(rule, 1, move |_| {
            diary.note(name);
            std::future::pending::<Outcome<(), ()>>()
        });
        timeout(2 * SECOND, attempt)
    };
    let (send, _, slot, _) = tokio::join!(
        endless("send", "send"),
        balancer.run("send", 1, diary.done::<()>("next send")),
        endless("slot", "slot"),
        balancer.run("slot", 1, diary.done::<()>("next slot"))
    );
    assert!(send.is_err() && slot.is_err());
    diary.assert(&[("send", 0), ("slot", 0), ("next slot", 2_000), ("next send", 10_000)]);
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn the_attempt_is_gone_before_its_slot_is_given_back() {
    struct Connection(Diary, &'static str);
    impl Drop for Connection {
        fn drop(&mut self) {
            self.0.note(format!("{} closed", self.1));
        }
    }
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let diary = Diary::new();
    let run = |name: &'static str| {
        let (balancer, diary) = (&balancer, &diary);
        balancer.run("send", 1, move |_| async move {
            diary.note(name);
            let _connection = Connection(diary.clone(), name);
            sleep(5 * SECOND).await;
            Ok::<_, Failure<()>>(())
        })
    };
    let (a, b) = tokio::join!(timeout(SECOND, run("a")), run("b"));
    assert!(a.is_err() && b.is_ok());
    diary.assert(&[("a", 0), ("a closed", 1_000), ("b", 1_000), ("b closed", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_between_its_attempts_leaves_the_line_and_the_hold() {
    let balancer = balancer("[rules]\nsend = {}");
    let diary = Diary::new();
    let request = balancer.run("send", 1, |attempt| {
        diary.note("a");
        std::future::ready(Err::<(), Failure<()>>(attempt.retry(60 * SECOND)))
    });
    assert!(timeout(3 * SECOND, request).await.is_err());
    let key = balancer.key(1);
    assert_eq!((key.waiting, key.in_flight, key.held), (0, 0, Some(57 * SECOND)));
    balancer.run("send", 1, diary.done::<()>("b")).await.unwrap();
    diary.assert(&[("a", 0), ("b", 60_000)]);
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_polls_delays_those_behind_it_by_a_lease() {
    let balancer = balancer("[rules]\nsend = '2/1s'");
    let diary = Diary::new();
    join_all([balancer.run("send", 1, diary.done::<()>("x")), balancer.run("send", 1, diary.done::<()>("y"))]).await;
    let mut zombie = pin!(balancer.run("send", 1, diary.done::<()>("zombie")));
    assert!(poll_once(zombie.as_mut()).is_pending());
    let behind: Vec<_> = (0..10)
        .map(|n| {
            let (balancer, diary) = (balancer.clone(), diary.clone());
            tokio::spawn(async move { balancer.run("send", 1, diary.done::<()>(&n.to_string())).await })
        })
        .collect();
    for task in behind {
        task.await.unwrap().unwrap();
    }
    // Granted at 1 s, revoked at 2 s.
    let times = [0, 0, 2_000, 2_000, 3_000, 3_000, 4_000, 4_000, 5_000, 5_000, 6_000, 6_000];
    assert_eq!(diary.times(), times);
    // Polled again it takes its old place, and runs.
    zombie.await.unwrap();
    assert_eq!(diary.read().last(), Some(&("zombie".to_owned(), 7_000)));
    assert_eq!(balancer.snapshot().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_waker_takes_the_place_of_the_old() {
    struct Counter(AtomicUsize);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let balancer = balancer("[rules]\nsend = '1/1s'");
    balancer.run("send", 1, Diary::new().done::<()>("")).await.unwrap();
    let [old, new] = [0, 0].map(|zero| Arc::new(Counter(AtomicUsize::new(zero))));
    let mut waiting = pin!(balancer.run("send", 1, Diary::new().done::<()>("")));
    for waker in [&old, &new, &new] {
        let waker = Waker::from(Arc::clone(waker));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    sleep(SECOND).await;
    settle().await;
    assert_eq!((old.0.load(Ordering::Relaxed), new.0.load(Ordering::Relaxed)), (0, 1));
    // The machine gave all wakers back.
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
    assert_eq!(waiting.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn waking_is_exactly_once_per_start() {
    let balancer = balancer("[rules]\nsend = '10/1s'");
    let mut polls = 0_usize;
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let balancer = balancer.clone();
            tokio::spawn(async move {
                let mut run = Box::pin(balancer.run("send", 1, async |_| Ok::<_, Failure<()>>(())));
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    run.poll_unpin(context)
                })
                .await
                .unwrap();
                polls
            })
        })
        .collect();
    for task in tasks {
        polls += task.await.unwrap();
    }
    // The first ten start at their first poll, the others at their second.
    assert_eq!(polls, 10 + 90 * 2);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_stays_ended() {
    let balancer = balancer("[rules]\nsend = {}");
    let mut run = pin!(balancer.run("send", 1, async |_| Ok::<_, Failure<()>>(7)));
    assert_eq!(run.as_mut().await, Ok(7));
    let again = poll_once(run.as_mut());
    assert!(matches!(again, Poll::Ready(Err(Error::GaveUp { reason: Refused::Aborted, .. }))));
}

#[tokio::test(start_paused = true)]
async fn thousands_that_become_ready_in_one_instant_all_start() {
    let rules = Rules::builder().rule("send", Rule::new().paused(true)).build().unwrap();
    let balancer = request_balancer::Balancer::new(rules);
    let diary = Diary::new();
    let tickets: Vec<_> =
        (0..5_000).map(|n| balancer.request("send", n).submit(diary.done::<()>("")).unwrap()).collect();
    assert_eq!(balancer.snapshot().waiting, 5_000);
    sleep(SECOND).await;
    balancer.resume("send").unwrap();
    assert!(join_all(tickets).await.iter().all(Result::is_ok));
    assert_eq!(diary.times(), [1_000; 5_000]);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_in_vain_for_all_that_it_costs_is_told_at_once() {
    let balancer = balancer("overall = '20/60s'");
    drop(balancer.request("default", 1).try_acquire().unwrap());
    let begin = Instant::now();
    let next_start = NextStart::After(60 * SECOND);
    let costly = || balancer.request("default", 2).cost(20);
    assert_eq!(costly().try_acquire().unwrap_err(), Refused::NotNow { next_start });
    let eager = costly().max_wait(5 * SECOND).eager().acquire().await.unwrap_err();
    assert_eq!(eager, Refused::MaxWait { waited: Duration::ZERO, next_start });
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_a_hold_may_last_is_waited_for_by_whoever_was_told_it() {
    let balancer = balancer("retry = { ceiling = '3h', total_wait = '9h' }\n[rules]\na = '1/1s'");
    let begin = Instant::now();
    let run = balancer.run("a", 1, async |attempt| match attempt.number() {
        1 => Err(attempt.retry::<()>(7_200 * SECOND)),
        _ => Ok(()),
    });
    run.await.unwrap();
    assert_eq!(begin.elapsed(), 7_200 * SECOND);
}
