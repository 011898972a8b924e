//! Many callers at once: two threads, a hundred thousand tasks that wait for one key, timers on the real clock.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::{poll_fn, ready};
use request_balancer::{Balancer, Failure, Rules};
use tokio::runtime::Builder;
use tokio::time::Instant as TokioInstant;

use crate::report::Line;
use crate::unhindered::{handle, runtime};

pub(crate) fn measure() -> Vec<Line> {
    let mut lines = vec![two_threads()];
    for (rule, count, period) in [
        ("100/1s", 100, Duration::from_secs(1)),
        ("1000/1s", 1_000, Duration::from_secs(1)),
        ("1/1ms", 1, Duration::from_millis(1)),
    ] {
        lines.extend(one_key(rule, count, period));
    }
    lines.extend(several_workers());
    lines.push(submit());
    lines.extend(lateness());
    lines
}

/// Throughput of two threads beside that of one, on keys of their own, with half a microsecond of work in each call.
fn two_threads() -> Line {
    const CALLS: u64 = 100_000;
    let work = |number: u64| async move {
        let began = Instant::now();
        while began.elapsed() < Duration::from_nanos(500) {
            std::hint::spin_loop();
        }
        Ok::<_, Failure<Infallible>>(black_box(number))
    };
    let handle = handle();
    let calls = |threads: u64| {
        let began = Instant::now();
        thread::scope(|scope| {
            for thread in 0..threads {
                let handle = &handle;
                scope.spawn(move || {
                    runtime().block_on(async {
                        for call in 0..CALLS {
                            let key = thread * 500 + call % 500;
                            black_box(handle.run(key, |_| work(call)).await).expect("nothing in its way");
                        }
                    });
                });
            }
        });
        (threads * CALLS) as f64 / began.elapsed().as_secs_f64()
    };
    let best = |threads| (0..5).map(|_| calls(threads)).fold(0.0, f64::max);
    let ratio = best(2) / best(1);
    Line::new("2 threads / 1 thread, 500 keys each, 0.5 us of work: throughput", ratio, "ratio")
        .bar("at least 1.1", ratio >= 1.1)
}

/// A hundred thousand tasks on one key, on the paused clock.
fn one_key(rule: &str, count: u32, period: Duration) -> Vec<Line> {
    const TASKS: u32 = 100_000;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let (polls, breaks, took, turns) = runtime.block_on(async {
        let balancer = Balancer::new(format!("per_key = '{rule}'").parse::<Rules>().expect("sound rules"));
        let polls = Arc::new(AtomicU64::new(0));
        let next = Arc::new(AtomicU64::new(0));
        let breaks = Arc::new(AtomicU64::new(0));
        let began = TokioInstant::now();
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            let (balancer, polls, next, breaks) =
                (balancer.clone(), Arc::clone(&polls), Arc::clone(&next), Arc::clone(&breaks));
            tasks.push(tokio::spawn(async move {
                let mut run = pin!(balancer.run("default", (), async |_| {
                    if next.fetch_add(1, Ordering::Relaxed) != u64::from(task) {
                        breaks.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<_, Failure<Infallible>>(())
                }));
                poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    run.as_mut().poll(context)
                })
                .await
                .expect("an answer");
            }));
        }
        let metrics = tokio::runtime::Handle::current().metrics();
        let parks = metrics.worker_park_count(0);
        for task in tasks {
            task.await.expect("a task");
        }
        let parks = metrics.worker_park_count(0) - parks;
        (polls.load(Ordering::Relaxed), breaks.load(Ordering::Relaxed), began.elapsed(), parks)
    });
    let at_once = u64::from(count);
    let waited = u64::from(TASKS) - at_once;
    // Whoever does not start at once is polled once to stand in line.
    let after_first = (polls - u64::from(TASKS)) as f64 / waited as f64;
    let instants = u64::from(TASKS.div_ceil(count)) - 1;
    let rate = period.as_secs_f64() * instants as f64 / took.as_secs_f64() * 100.0;
    let turns = turns as f64 / bare(instants, period) as f64;
    let line = |what: &str, value: f64, unit, bar: &str, met| {
        Line::new(format!("100000 tasks on one key at {rule}: {what}"), value, unit).bar(bar, met)
    };
    vec![
        line("polls after the first per start", after_first, "1", "1", after_first <= 1.0),
        line("starts out of order", breaks as f64, "1", "0", breaks == 0),
        line("rate", rate, "%", "100", rate >= 100.0),
        line("sleeps of the runtime, those of one bare timer being 1", turns, "ratio", "at most 1", turns <= 1.01),
    ]
}

/// Sleeps of a runtime on which one timer goes off at so many instants. tokio's wheel takes several for one timer.
fn bare(instants: u64, period: Duration) -> u64 {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let metrics = tokio::runtime::Handle::current().metrics();
        let before = metrics.worker_park_count(0);
        // In a task, as the balancer's: the one that is blocked on is woken in another way.
        let timer = async move {
            for _ in 0..instants {
                tokio::time::sleep(period).await;
            }
        };
        tokio::spawn(timer).await.expect("a task");
        metrics.worker_park_count(0) - before
    })
}

/// Twenty thousand tasks on one key, on two workers and the real clock.
fn several_workers() -> [Line; 2] {
    const TASKS: u64 = 20_000;
    const INSTANTS: u64 = TASKS / 100 - 1;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let (polls, at_once, took) = runtime.block_on(async {
        let balancer = Balancer::new("per_key = '100/10ms'".parse::<Rules>().expect("sound rules"));
        let (polls, at_once) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let began = Instant::now();
        let task = |_| {
            let (balancer, polls, at_once) = (balancer.clone(), Arc::clone(&polls), Arc::clone(&at_once));
            tokio::spawn(async move {
                let mut run = pin!(balancer.run("default", (), |attempt| {
                    at_once.fetch_add(u64::from(attempt.waited().is_zero()), Ordering::Relaxed);
                    ready(Ok::<_, Failure<Infallible>>(()))
                }));
                poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    run.as_mut().poll(context)
                })
                .await
                .expect("an answer");
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        for task in tasks {
            task.await.expect("a task");
        }
        (polls.load(Ordering::Relaxed), at_once.load(Ordering::Relaxed), began.elapsed())
    });
    let after_first = (polls - TASKS) as f64 / (TASKS - at_once) as f64;
    // tokio's timers have a grain of a millisecond, which every window of ten pays once.
    let rate = INSTANTS as f64 * 0.01 / took.as_secs_f64() * 100.0;
    [
        Line::new("20000 tasks on one key at 100/10ms, 2 workers: polls after the first per start", after_first, "1")
            .bar("at most 1.05", after_first <= 1.05),
        Line::new("20000 tasks on one key at 100/10ms, 2 workers: rate on the real clock", rate, "%"),
    ]
}

/// Bytes of a request that was submitted and waits, with a closure of 32 bytes.
fn submit() -> Line {
    const COUNT: usize = 10_000;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let bytes = runtime.block_on(async {
        let balancer = Balancer::new("per_key = '1/1s'".parse::<Rules>().expect("sound rules"));
        let handle = balancer.rule("default").expect("a rule");
        let mut tickets = Vec::with_capacity(COUNT);
        let held = allocation_counter::measure(|| {
            for number in 0..COUNT as u64 {
                let load = [number; 4];
                let request = handle.request(());
                tickets.push(
                    request.submit(move |_| ready(Ok::<_, Failure<Infallible>>(black_box(load)[0]))).expect("room"),
                );
            }
        });
        held.bytes_current as f64 / COUNT as f64
    });
    Line::new("submit, closure of 32 bytes, in line: memory per request", bytes, "bytes")
        .bar("at most 300", bytes <= 300.0)
}

/// How late calls start after the instant from which they may, on the real clock.
fn lateness() -> Vec<Line> {
    const CALLS: usize = 200;
    const PERIOD: Duration = Duration::from_millis(7);
    let runtime = runtime();
    let mut late = runtime.block_on(async {
        let balancer = Balancer::new("per_key = '1/7ms'".parse::<Rules>().expect("sound rules"));
        let mut late = Vec::new();
        let mut before: Option<Instant> = None;
        for _ in 0..CALLS {
            let started = async |_| Ok::<_, Failure<Infallible>>(Instant::now());
            let at = balancer.run("default", (), started).await.expect("an answer");
            late.extend(before.map(|before| (at - before).as_nanos() as f64 - PERIOD.as_nanos() as f64));
            before = Some(at);
        }
        late
    });
    late.sort_by(f64::total_cmp);
    let p99 = late[late.len() * 99 / 100] / 1e6;
    // The call looks at the clock a little after the balancer did, once more and once less.
    let earliest = late[0] / 1e6;
    vec![
        Line::new("lateness on the real clock, 99 of 100 calls", p99, "ms").bar("at most 2.2", p99 <= 2.2),
        Line::new("lateness on the real clock, the earliest call", earliest, "ms")
            .bar("at least -0.05", earliest >= -0.05),
    ]
}
