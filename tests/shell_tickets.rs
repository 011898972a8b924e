//! Submitted requests and permits, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use diary::{Diary, balancer, settle};
use futures::future::join_all;
use request_balancer::{Attempt, Error, Failure, NextStart, Outcome, Refused, Ticket};
use tokio::runtime::Handle;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// An attempt that takes a while and notes its begin and its end, however it comes about.
fn slow(diary: &Diary, name: &'static str, span: Duration) -> impl FnMut(Attempt) -> BoxedAttempt + use<> {
    struct End(Diary, &'static str);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.note(format!("{} ends", self.1));
        }
    }
    let diary = diary.clone();
    move |_| {
        let diary = diary.clone();
        Box::pin(async move {
            diary.note(name);
            let _end = End(diary, name);
            sleep(span).await;
            Ok(())
        })
    }
}

type BoxedAttempt = std::pin::Pin<Box<dyn Future<Output = Outcome<(), ()>> + Send>>;

#[tokio::test(start_paused = true)]
async fn a_ticket_has_its_place_from_its_submission() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let lazy = balancer.run("send", 1, diary.done::<()>("lazy"));
    let a = balancer.request("send", 1).submit(diary.done::<()>("a")).unwrap();
    let b = balancer.request("send", 1).submit(diary.done::<()>("b")).unwrap();
    assert_eq!(tokio::join!(lazy, a, b), (Ok(()), Ok(()), Ok(())));
    diary.assert(&[("a", 0), ("b", 1_000), ("lazy", 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_spawned_only_when_it_starts() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let tickets: Vec<_> =
        (0..5).map(|_| balancer.request("send", 1).submit(slow(&diary, "", 10 * SECOND)).unwrap()).collect();
    settle().await;
    // The driver and the first.
    assert_eq!(tasks(), 2);
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(tasks(), 4);
    join_all(tickets).await;
    settle().await;
    assert_eq!(tasks(), 1);
    drop(balancer);
    settle().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_dropped_in_line_withdraws() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| balancer.request("send", 1).submit(diary.done::<()>(name)).unwrap());
    settle().await;
    drop(b);
    assert_eq!(balancer.key(1).waiting, 1);
    assert_eq!(tokio::join!(a, c), (Ok(()), Ok(())));
    diary.assert(&[("a", 0), ("c", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_dropped_while_it_runs_aborts() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let diary = Diary::new();
    let a = balancer.request("send", 1).submit(slow(&diary, "a", 60 * SECOND)).unwrap();
    let b = balancer.request("send", 1).submit(slow(&diary, "b", SECOND)).unwrap();
    sleep(2 * SECOND).await;
    drop(a);
    assert_eq!(b.await, Ok(()));
    diary.assert(&[("a", 0), ("a ends", 2_000), ("b", 2_000), ("b ends", 3_000)]);
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_detached_request_goes_on_without_ticket_and_handle() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    for name in ["a", "b"] {
        balancer.request("send", 1).submit(slow(&diary, name, SECOND)).unwrap().detach();
    }
    drop(balancer);
    sleep(60 * SECOND).await;
    diary.assert(&[("a", 0), ("a ends", 1_000), ("b", 10_000), ("b ends", 11_000)]);
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_detaches_is_woken_no_more_and_kept_no_longer() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            panic!("it was told that nobody waits");
        }
    }
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let diary = Diary::new();
    drop(balancer.request("send", 1).acquire().await.unwrap());
    let mut ticket = balancer.request("send", 1).submit(slow(&diary, "a", SECOND)).unwrap();
    let task = Arc::new(Task);
    assert!(pin!(&mut ticket).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&task)))).is_pending());
    assert_eq!(Arc::strong_count(&task), 2);
    ticket.detach();
    assert_eq!(Arc::strong_count(&task), 1);
    sleep(20 * SECOND).await;
    diary.assert(&[("a", 10_000), ("a ends", 11_000)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_refused_request_would_have_called_is_gone_with_its_answer() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    drop(balancer.request("send", 1).acquire().await.unwrap());
    let held = Arc::new(());
    let kept = Arc::clone(&held);
    let call = move |_| {
        let _kept = &kept;
        async { Ok::<_, Failure<()>>(()) }
    };
    let ticket = balancer.request("send", 1).max_wait(SECOND).submit(call).unwrap();
    assert_eq!(Arc::strong_count(&held), 2);
    assert!(matches!(ticket.await, Err(Error::GaveUp { reason: Refused::MaxWait { .. }, .. })));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_brings_values_failures_and_panics() {
    let balancer = balancer("[rules]\nsend = {}\n[retry]\njitter = 0");
    let submit = |number: u32| -> Ticket<u32, &'static str> {
        let request = balancer.request("send", 1);
        request
            .submit(move |attempt| async move {
                match number {
                    1 => Ok(attempt.number()),
                    2 => Err(Failure::permanent("no")),
                    3 if attempt.number() == 1 => Err(attempt.retry(SECOND)),
                    3 => Ok(attempt.number()),
                    _ => panic!("boom"),
                }
            })
            .unwrap()
    };
    assert_eq!(submit(1).await, Ok(1));
    assert_eq!(submit(2).await, Err(Error::Failed("no")));
    assert_eq!(submit(3).await, Ok(2));
    assert_eq!(submit(4).await, Err(Error::Panicked("boom".into())));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_answered_where_its_request_is_refused() {
    let balancer = balancer("[rules]\nsend = { per_key = '1/10s', queue = 1 }");
    let diary = Diary::new();
    let a = balancer.request("send", 1).submit(diary.done::<()>("a")).unwrap();
    settle().await;
    let b = balancer.request("send", 1).max_wait(3 * SECOND).submit(diary.done::<()>("b")).unwrap();
    let c = balancer.request("send", 1).submit(diary.done::<()>("c"));
    assert_eq!(c.unwrap_err(), Refused::QueueFull { waiting: 1 });
    assert_eq!(a.await, Ok(()));
    let reason = Refused::MaxWait { waited: 3 * SECOND, next_start: NextStart::After(7 * SECOND) };
    assert_eq!(b.await, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    diary.assert(&[("a", 0)]);
    // It was answered without a task of its own.
    assert_eq!(tasks(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_permit_ends_with_its_drop() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let diary = Diary::new();
    let permit = balancer.request("send", "chat").acquire().await.unwrap();
    assert_eq!((permit.number(), &*permit.rule(), permit.key().to_string().as_str()), (1, "send", "chat"));
    let next = async {
        let permit = balancer.request("send", "chat").acquire().await.unwrap();
        diary.note("next");
        assert_eq!(permit.waited(), 4 * SECOND);
    };
    let end = async {
        sleep(4 * SECOND).await;
        drop(permit);
    };
    tokio::join!(next, end);
    diary.assert(&[("next", 4_000)]);
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_goes_back_in_line() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let first = async {
        let permit = balancer.request("send", 1).acquire().await.unwrap();
        diary.note("first");
        let permit = permit.retry(5 * SECOND).await.unwrap();
        diary.note("first again");
        permit.number()
    };
    let (number, next) = tokio::join!(biased; first, balancer.run("send", 1, diary.done::<()>("next")));
    assert_eq!((number, next), (2, Ok(())));
    diary.assert(&[("first", 0), ("first again", 5_000), ("next", 6_000)]);
    let too_long = balancer.request("send", 2).acquire().await.unwrap().retry(3_600 * SECOND).await;
    assert!(matches!(too_long, Err(Refused::WaitTooLong { .. })));
    assert_eq!((balancer.snapshot().in_flight, balancer.key(2).held), (0, Some(3_600 * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_waits_again_can_be_dropped() {
    let balancer = balancer("[rules]\nsend = {}");
    let permit = balancer.request("send", 1).acquire().await.unwrap();
    assert!(tokio::time::timeout(SECOND, permit.retry(9 * SECOND)).await.is_err());
    let key = balancer.key(1);
    assert_eq!((key.waiting, key.in_flight, key.held), (0, 0, Some(8 * SECOND)));
    // Never polled: as if the permit were dropped.
    drop(balancer.request("send", 2).acquire().await.unwrap().retry(9 * SECOND));
    assert_eq!((balancer.key(2).in_flight, balancer.key(2).held), (0, None));
}

#[tokio::test(start_paused = true)]
async fn what_is_submitted_while_all_breakers_are_open_is_refused_at_once() {
    let balancer =
        balancer("[pool]\nendpoints = ['api']\nbreaker = { failures = 1, reset = '60s' }\n[retry]\nattempts = 1");
    let failed = balancer.run("default", 1, async |_| Err::<(), _>(Failure::transient("503"))).await;
    assert_eq!(failed.unwrap_err().refused(), Some(&Refused::Attempts));
    let submitted = balancer.request("default", 1).submit(async |_| Ok::<_, Failure<()>>(()));
    assert!(matches!(submitted, Err(Refused::NoEndpoint { next_start: NextStart::After(_) })), "{submitted:?}");
    assert_eq!(balancer.snapshot().waiting, 0);
}
