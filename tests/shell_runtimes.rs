//! One balancer on runtimes of every kind, and on none.

#![cfg(feature = "tokio")]

mod diary;

use std::pin::pin;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use diary::{Diary, balancer, settle};
use futures::future::join_all;
use request_balancer::{Balancer, Error, Failure, Refused};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn real(workers: usize) -> Runtime {
    match workers {
        0 => Builder::new_current_thread().enable_time().build().unwrap(),
        _ => Builder::new_multi_thread().worker_threads(workers).enable_time().build().unwrap(),
    }
}

async fn ok(_: request_balancer::Attempt) -> Result<(), Failure<()>> {
    Ok(())
}

#[test]
fn a_static_serves_one_runtime_after_another() {
    static BALANCER: LazyLock<Balancer> = LazyLock::new(|| balancer("[rules]\nsend = '1/10s'"));
    // A hundred seconds on, so that the next runtimes' clocks are behind what the balancer has seen.
    paused().block_on(async {
        sleep(100 * SECOND).await;
        BALANCER.run("send", 1, ok).await.unwrap();
    });
    for _ in 0..3 {
        // Each runtime's clock begins anew; what the balancer remembers does not.
        paused().block_on(async {
            let begin = Instant::now();
            BALANCER.run("send", 1, ok).await.unwrap();
            assert_eq!(begin.elapsed(), 10 * SECOND);
        });
    }
}

#[test]
fn a_waiting_future_moves_to_another_runtime() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let mut waiting = pin!(async {
        balancer.run("send", 1, ok).await.unwrap();
        balancer.run("send", 1, ok).await.unwrap();
    });
    let first = paused();
    first.block_on(async {
        assert!(timeout(SECOND, waiting.as_mut()).await.is_err());
    });
    drop(first);
    let second = paused();
    second.block_on(waiting.as_mut());
    // The first driver went with its runtime.
    assert_eq!(second.metrics().num_alive_tasks(), 1);
}

#[test]
fn a_runtime_that_stands_still_holds_nobody_up() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let still = paused();
    still.block_on(async {
        balancer.run("send", 1, ok).await.unwrap();
        assert!(timeout(SECOND, balancer.run("send", 1, ok)).await.is_err());
    });
    // Its driver is alive but nobody runs it.
    assert_eq!(still.metrics().num_alive_tasks(), 1);
    paused().block_on(balancer.run("send", 1, ok)).unwrap();
}

#[test]
fn a_waiter_on_a_foreign_executor_outlives_its_driver() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let permit = balancer.request("send", 1).try_acquire().unwrap();
    let (first, second) = (real(1), real(1));
    let waiter = thread::spawn({
        let (balancer, handle) = (balancer.clone(), first.handle().clone());
        move || {
            let _entered = handle.enter();
            futures::executor::block_on(balancer.request("send", 1).acquire()).map(drop)
        }
    });
    while balancer.key(1).waiting == 0 {
        thread::yield_now();
    }
    // With the driver's runtime gone there is nobody to wait for: the waiter is told.
    drop(first);
    assert_eq!(waiter.join().unwrap(), Err(Refused::NoRuntime));
    drop(permit);
    second.block_on(balancer.run("send", 1, ok)).unwrap();
}

#[test]
fn without_a_runtime_nothing_can_wait() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    assert_eq!(futures::executor::block_on(balancer.run("send", 1, ok)), Ok(()));
    let refused = futures::executor::block_on(balancer.run("send", 1, ok));
    assert_eq!(refused, Err(Error::GaveUp { reason: Refused::NoRuntime, attempts: 0, last: None }));
    assert_eq!(balancer.request("send", 2).submit(ok).unwrap_err(), Refused::NoRuntime);
    assert_eq!((balancer.key(1).waiting, balancer.key(2).waiting), (0, 0));
}

#[test]
fn without_timers_nothing_can_wait() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let runtime = Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(balancer.run("send", 1, ok)), Ok(()));
    let refused = runtime.block_on(balancer.run("send", 1, ok));
    assert_eq!(refused, Err(Error::GaveUp { reason: Refused::NoRuntime, attempts: 0, last: None }));
    // Elsewhere it can.
    paused().block_on(balancer.run("send", 1, ok)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_driver_starts_with_the_first_wait_and_ends_with_the_last_handle() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let other = balancer.clone();
    balancer.run("send", 1, ok).await.unwrap();
    assert_eq!(tasks(), 0);
    balancer.run("send", 1, ok).await.unwrap();
    assert_eq!(tasks(), 1);
    let rule = balancer.rule("send").unwrap();
    drop((balancer, other));
    settle().await;
    assert_eq!(tasks(), 1);
    rule.run(1, ok).await.unwrap();
    drop(rule);
    settle().await;
    assert_eq!(tasks(), 0);
}

#[test]
fn tickets_of_a_runtime_that_goes_are_answered() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let (in_line, running, detached) = {
        let runtime = real(1);
        let _entered = runtime.enter();
        let running =
            balancer.request("send", 1).submit(|_| std::future::pending::<Result<(), Failure<()>>>()).unwrap();
        while balancer.key(1).in_flight == 0 {
            thread::yield_now();
        }
        let in_line = balancer.request("send", 1).submit(ok).unwrap();
        balancer.request("send", 1).submit(ok).unwrap().detach();
        runtime.shutdown_timeout(60 * SECOND);
        (in_line, running, balancer.key(1))
    };
    let aborted = Err(Error::GaveUp { reason: Refused::Aborted, attempts: 0, last: None });
    let answers = futures::executor::block_on(futures::future::join(in_line, running));
    assert_eq!(answers, (aborted.clone(), aborted));
    assert_eq!((detached.waiting, detached.in_flight), (0, 0));
}

#[test]
fn real_clock_both_flavours_keep_the_rate() {
    for workers in [0, 1, 4] {
        let balancer = balancer("[rules]\nsend = '5/50ms'");
        let diary = Diary::new();
        real(workers).block_on(async {
            let tasks = (0..20).map(|_| {
                let (balancer, diary) = (balancer.clone(), diary.clone());
                tokio::spawn(async move { balancer.run("send", 1, diary.done::<()>("")).await })
            });
            for task in join_all(tasks).await {
                task.unwrap().unwrap();
            }
        });
        // Four groups of five.
        assert!(diary.times().into_iter().max() >= Some(150), "{workers} workers: {:?}", diary.read());
    }
}

#[test]
fn real_clock_several_runtimes_at_once() {
    let balancer = balancer("[rules]\nsend = '20/20ms'");
    let threads: Vec<_> = [0, 1, 0, 2]
        .into_iter()
        .map(|workers| {
            let balancer = balancer.clone();
            thread::spawn(move || {
                real(workers).block_on(async {
                    let runs = (0..50).map(|_| balancer.run("send", 1, ok));
                    assert!(join_all(runs).await.iter().all(Result::is_ok));
                    sleep(Duration::from_millis(1)).await;
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
}

#[test]
fn real_clock_many_threads_leave_nothing_behind() {
    let balancer = balancer(
        "overall = '200/20ms'\nconcurrency = 40\n[rules]\nsend = { per_key = '5/10ms', key_concurrency = 2 }\n\
         bulk = { per_key = '3/10ms', priority = 2 }\n[retry]\nbackoff = '1ms'\nmin_wait = '1ms'",
    );
    let request = |balancer: Balancer, n: u64| async move {
        let rule = if n.is_multiple_of(3) { "bulk" } else { "send" };
        let key = n % 17;
        let attempt = move |attempt: request_balancer::Attempt| async move {
            match n % 7 {
                0 if attempt.number() == 1 => return Err(attempt.retry(Duration::from_millis(1))),
                1 => return Err(Failure::transient(())),
                2 => sleep(Duration::from_millis(1)).await,
                _ => {}
            }
            Ok(())
        };
        let patience = Duration::from_millis(n % 30);
        match n % 5 {
            0 => drop(timeout(patience, balancer.run(rule, key, attempt)).await),
            1 => drop(timeout(patience, balancer.request(rule, key).submit(attempt).unwrap()).await),
            2 => drop(balancer.request(rule, key).acquire().await.unwrap()),
            3 => balancer.request(rule, key).submit(attempt).unwrap().detach(),
            _ => drop(balancer.request(rule, key).max_wait(patience).run(attempt).await),
        }
    };
    let threads: Vec<_> = [0, 4, 2]
        .into_iter()
        .map(|workers| {
            let balancer = balancer.clone();
            thread::spawn(move || {
                real(workers).block_on(async {
                    let tasks = (0..1_000).map(|n| tokio::spawn(request(balancer.clone(), n)));
                    assert!(join_all(tasks).await.iter().all(Result::is_ok));
                    while balancer.snapshot().waiting + balancer.snapshot().in_flight > 0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!((0..17).all(|key| balancer.key(key).waiting + balancer.key(key).in_flight == 0));
}
