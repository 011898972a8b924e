//! Requests inside attempts, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::time::Duration;

use diary::{Diary, balancer};
use request_balancer::{Error, Failure, Refused};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_for_its_own_slot_is_refused() {
    for rules in [
        "[rules]\nsend = { key_concurrency = 1 }\nother = {}",
        "[rules]\nsend = { concurrency = 1 }\nother = {}",
        "[overall]\nconcurrency = 1\n[rules]\nsend = {}\nother = {}",
    ] {
        let balancer = balancer(rules);
        let diary = Diary::new();
        let outer = balancer.run("send", 1, async |_| {
            let inner = balancer.run("send", 1, diary.done::<()>("inner")).await;
            assert_eq!(inner, Err(Error::GaveUp { reason: Refused::WouldDeadlock, attempts: 0, last: None }));
            assert_eq!(balancer.request("send", 1).acquire().await.unwrap_err(), Refused::WouldDeadlock);
            Ok::<_, Failure<()>>(7)
        });
        assert_eq!(outer.await, Ok(7), "{rules}");
        diary.assert(&[]);
        // Outside of it, it waits as ever.
        assert_eq!(balancer.run("send", 1, diary.done::<()>("later")).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_slot_of_its_own_runs_inside_another() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }\ntwice = { key_concurrency = 2 }");
    let diary = Diary::new();
    let outer = balancer.run("send", 1, async |_| {
        balancer.run("send", 2, diary.done::<()>("other key")).await.unwrap();
        balancer.run("twice", 1, diary.done::<()>("other rule")).await.unwrap();
        Ok::<_, Failure<()>>(())
    });
    assert_eq!(outer.await, Ok(()));
    let two_deep = balancer.run("twice", 1, async |_| {
        balancer
            .run("twice", 1, async |_| {
                let third = balancer.run("twice", 1, diary.done::<()>("third")).await;
                assert_eq!(third, Err(Error::GaveUp { reason: Refused::WouldDeadlock, attempts: 0, last: None }));
                Ok::<_, Failure<()>>(())
            })
            .await
            .unwrap();
        Ok::<_, Failure<()>>(())
    });
    assert_eq!(two_deep.await, Ok(()));
    diary.assert(&[("other key", 0), ("other rule", 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_somebody_else_has_is_waited_for() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 2 }");
    let diary = Diary::new();
    let stranger = balancer.run("send", 1, async |_| {
        sleep(3 * SECOND).await;
        Ok::<_, Failure<()>>(())
    });
    let outer = balancer.run("send", 1, async |_| {
        balancer.run("send", 1, diary.done::<()>("inner")).await.unwrap();
        Ok::<_, Failure<()>>(())
    });
    assert_eq!(tokio::join!(stranger, outer), (Ok(()), Ok(())));
    diary.assert(&[("inner", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_refused_only_if_the_attempt_waits_for_it() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let diary = Diary::new();
    let waits = balancer.run("send", 1, async |_| {
        let ticket = balancer.request("send", 1).submit(diary.done::<()>("awaited")).unwrap();
        assert_eq!(ticket.await, Err(Error::GaveUp { reason: Refused::WouldDeadlock, attempts: 0, last: None }));
        let ticket = balancer.request("send", 1).submit(diary.done::<()>("left")).unwrap();
        ticket.detach();
        sleep(SECOND).await;
        Ok::<_, Failure<()>>(())
    });
    assert_eq!(waits.await, Ok(()));
    sleep(SECOND).await;
    diary.assert(&[("left", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn two_balancers_do_not_mix() {
    let [outer, inner] = [(), ()].map(|()| balancer("[rules]\nsend = { key_concurrency = 1 }"));
    let busy = inner.request("send", 1).acquire().await.unwrap();
    let free = async {
        sleep(2 * SECOND).await;
        drop(busy);
    };
    let diary = Diary::new();
    let nested = outer.run("send", 1, async |_| {
        inner.run("send", 1, diary.done::<()>("inner")).await.unwrap();
        Ok::<_, Failure<()>>(())
    });
    let (nested, ()) = tokio::join!(nested, free);
    assert_eq!(nested, Ok(()));
    diary.assert(&[("inner", 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_stay_on_the_stack() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let panicked = balancer.run("send", 1, async |_| {
        sleep(SECOND).await;
        if SECOND > Duration::ZERO {
            panic!("boom");
        }
        Ok::<_, Failure<()>>(())
    });
    assert_eq!(panicked.await, Err(Error::Panicked("boom".into())));
    let busy = balancer.request("send", 1).acquire().await.unwrap();
    let waits = timeout(SECOND, balancer.run("send", 1, Diary::new().done::<()>("")));
    assert!(waits.await.is_err());
    drop(busy);
}
