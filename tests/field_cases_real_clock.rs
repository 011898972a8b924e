//! Cases from the field that are about real time: a file of its own, so that nothing else runs meanwhile.
#![cfg(feature = "tokio")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use request_balancer::{Balancer, Failure, FindingCode, Rules};

const MILLI: Duration = Duration::from_millis(1);

/// By how much a start may be late.
const LATE: Duration = Duration::from_millis(20);

/// One at a time: they would take each other's time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn rules(text: &str) -> Rules {
    text.parse().expect("the test's rules are right")
}

/// Runs requests of this many keys in turn and returns their starts, in order of time, and the time it took in all.
async fn measure(rules: Rules, count: usize, keys: usize, takes: Duration) -> (Vec<Duration>, Duration) {
    let balancer = Balancer::new(rules);
    let starts = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let begin = Instant::now();
    let tasks = (0..count).map(|number| {
        let (balancer, starts) = (balancer.clone(), Arc::clone(&starts));
        tokio::spawn(async move {
            let attempt = async |_| {
                starts.lock().unwrap().push(begin.elapsed());
                if !takes.is_zero() {
                    tokio::time::sleep(takes).await;
                }
                Ok::<_, Failure<()>>(())
            };
            balancer.run("r", number % keys, attempt).await
        })
    });
    for task in join_all(tasks).await {
        task.expect("the task ends by itself").expect("it is done");
    }
    let took = begin.elapsed();
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
    let mut starts = std::mem::take(&mut *starts.lock().unwrap());
    starts.sort_unstable();
    (starts, took)
}

/// The worst that a bare sleep was late, in nanoseconds.
static WORST: AtomicU64 = AtomicU64::new(0);

/// How late bare sleeps are meanwhile: nobody can start sooner than the machine wakes him.
async fn lateness() {
    loop {
        let begin = Instant::now();
        tokio::time::sleep(5 * MILLI).await;
        let late = begin.elapsed().saturating_sub(5 * MILLI).as_nanos();
        WORST.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

// As in the row, but for its length: 50 windows of 1 s with attempts of 300 ms become 10 windows of 400 ms with attempts
// of 120 ms, and 4,000 requests over 2,000 keys become 800 over 400. Rate : attempt : concurrency stay as they are. On a
// machine that is busy with something else starts may be as late as bare sleeps are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fr_054_real_clock_a_saturated_limit_is_used_to_the_full() {
    let _alone = ALONE.lock().await;
    let rules = rules("overall = { limit = '80/400ms', concurrency = 64 }\n[rules]\nr = {}");
    let watch = tokio::spawn(lateness());
    let (starts, took) = measure(rules, 800, 400, 120 * MILLI).await;
    watch.abort();
    let late_at_most = LATE.max(Duration::from_nanos(WORST.load(Ordering::Relaxed)));
    assert_eq!(starts.len(), 800);
    for (number, start) in (0_u32..).zip(&starts) {
        // 64 at the beginning of a window, 16 when those are done.
        let (window, place) = (number / 80, number % 80);
        let due = window * 400 * MILLI + if place < 64 { Duration::ZERO } else { 120 * MILLI };
        assert!(*start >= window * 400 * MILLI, "start {number} is early: {start:?}");
        // Late ones make the next window late, and nothing adds to that.
        let late = (2 * window + 2) * late_at_most;
        assert!(*start <= due + late, "start {number}, due at {due:?}, is late: {start:?}");
    }
    assert!(took <= starts[799] + 120 * MILLI + late_at_most, "took {took:?}");
}

// 2.5 s as in the row, unless the machine is so busy that bare sleeps, one after another at the same time, take as long.
// The exact time, on the paused clock, is in field_cases_rates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fr_059_real_clock_rates_beyond_the_timers_are_slow_and_not_stuck() {
    let _alone = ALONE.lock().await;
    let beyond = rules("[rules]\nr = '1/500us'");
    let warnings: Vec<_> = beyond.warnings().iter().map(|warning| (warning.code(), warning.path())).collect();
    assert_eq!(warnings, [(FindingCode::BeyondTimers, "rules.r.per_key")]);
    let sleeps = tokio::spawn(async {
        let begin = Instant::now();
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        begin.elapsed()
    });
    let (starts, took) = measure(beyond, 1_000, 1, Duration::ZERO).await;
    let sleeps = sleeps.await.expect("they end by themselves");
    assert_eq!(starts.len(), 1_000);
    assert!(took >= Duration::from_micros(499_500), "took {took:?}");
    assert!(took <= (2_500 * MILLI).max(sleeps * 5 / 4), "took {took:?}, bare sleeps {sleeps:?}");
    let within = rules("[rules]\nr = '1000/1s'");
    assert_eq!(within.warnings(), []);
    let (starts, _) = measure(within, 1_000, 1, Duration::ZERO).await;
    assert_eq!(starts.len(), 1_000);
}
