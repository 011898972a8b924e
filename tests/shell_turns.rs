//! How often the shell sleeps and who sleeps in it, counted.
#![cfg(feature = "tokio")]

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use request_balancer::{Balancer, Failure, Rules};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("sound rules"))
}

/// Sleeps of the runtime so far. One timer may take it several: tokio's wheel brings it nearer step by step.
fn sleeps() -> u64 {
    Handle::current().metrics().worker_park_count(0)
}

/// Sleeps that one bare timer takes for so many seconds, one after the other.
fn bare(seconds: u64) -> u64 {
    paused().block_on(async {
        let before = sleeps();
        // In a task, as the balancer's: the one that is blocked on is woken in another way.
        let timer = async move {
            for _ in 0..seconds {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::spawn(timer).await.expect("a task");
        sleeps() - before
    })
}

/// What it takes to let `count` requests of each of `keys` go: polls of their futures, sleeps, tasks beside this one, and
/// the time that passed.
fn play(rules: &str, keys: u64, count: u64) -> (u64, u64, usize, Duration) {
    paused().block_on(async {
        let balancer = balancer(rules);
        let polls = Cell::new(0);
        let (begin, before) = (Instant::now(), sleeps());
        let one = |number: u64| {
            let (balancer, polls) = (&balancer, &polls);
            async move {
                let mut run = pin!(balancer.run("default", number % keys, async |_| Ok::<_, Failure<()>>(())));
                poll_fn(|context| {
                    polls.set(polls.get() + 1);
                    run.as_mut().poll(context)
                })
                .await
            }
        };
        let answers = join_all((0..keys * count).map(one)).await;
        assert!(answers.iter().all(Result::is_ok));
        let tasks = Handle::current().metrics().num_alive_tasks();
        (polls.get(), sleeps() - before, tasks, begin.elapsed())
    })
}

#[test]
fn one_task_sleeps_for_all_that_wait() {
    // A hundred at a time of one key, nine instants after the first.
    let (polls, sleeps, tasks, took) = play("per_key = '100/1s'", 1, 1_000);
    assert_eq!(took, Duration::from_secs(9));
    // The driver; the others wait without a timer or a task.
    assert_eq!(tasks, 1);
    // Each is polled to enter, and those that did not start then once more: nothing wakes them in vain.
    assert_eq!(polls, 1_000 + 900);
    assert!(sleeps <= bare(9), "{sleeps} sleeps");
}

#[test]
fn many_keys_sleep_no_more_often_than_one() {
    let (polls, sleeps, tasks, took) = play("per_key = '1/1s'", 200, 5);
    assert_eq!((polls, tasks), (1_000 + 800, 1));
    assert!(sleeps <= bare(4), "{sleeps} sleeps");
    assert_eq!(took, Duration::from_secs(4));
}

#[test]
fn an_earlier_need_moves_the_one_alarm() {
    let once = bare(1);
    paused().block_on(async {
        let balancer = balancer("[rules]\nslow = '1/1h'\nfast = '1/1s'");
        let run = |rule: &'static str| {
            let balancer = balancer.clone();
            async move { balancer.run(rule, 1, async |_| Ok::<_, Failure<()>>(())).await }
        };
        let begin = Instant::now();
        run("slow").await.unwrap();
        let slow = tokio::spawn(run("slow"));
        tokio::task::yield_now().await;
        run("fast").await.unwrap();
        let before = sleeps();
        run("fast").await.unwrap();
        // The driver slept for the hour; it was woken once to sleep for the second instead.
        assert_eq!(begin.elapsed(), Duration::from_secs(1));
        assert!(sleeps() - before <= once + 1, "{} sleeps", sleeps() - before);
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 2);
        slow.await.unwrap().unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(3_600));
    });
}
