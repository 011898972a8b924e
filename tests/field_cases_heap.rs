//! Cases from the field that are about memory: what is allocated on the thread on which all of it happens.
#![cfg(feature = "tokio")]

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use request_balancer::{Attempt, Balancer, Error, Failure, Outcome, Refused, Rules, Ticket};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const KIB: i64 = 1_024;
const MIB: i64 = 1_024 * KIB;
const SECOND: Duration = Duration::from_secs(1);

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("the test's rules are right"))
}

/// What it allocates to run this future to its end, and with it every task of the runtime.
fn measured<F: Future>(runtime: &Runtime, future: F) -> (AllocationInfo, F::Output) {
    let mut output = None;
    let info = measure(|| output = Some(runtime.block_on(future)));
    (info, output.expect("the future ended"))
}

async fn ok(_: Attempt) -> Outcome<(), ()> {
    Ok(())
}

#[test]
fn fr_026_a_hundred_thousand_keys_give_their_memory_back() {
    let runtime = paused();
    // Made where time stands still, it goes by the millisecond.
    let balancer = runtime.block_on(async { balancer("[rules]\nindividual = '1/1s'") });
    let (info, keys) = measured(&runtime, async {
        for key in 0..100_000_u64 {
            balancer.run("individual", key, ok).await.unwrap();
        }
        let keys = balancer.snapshot().keys;
        sleep(Duration::from_millis(999)).await;
        let begin = Instant::now();
        balancer.run("individual", 77_u64, ok).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_millis(1));
        // Twice the window, and the sweep's period.
        sleep(4 * SECOND).await;
        keys
    });
    assert_eq!((keys, balancer.snapshot().keys), (100_000, 0));
    assert!(info.bytes_max > 4 * MIB as u64, "{info:?}");
    assert!(info.bytes_current <= MIB, "{info:?}");
}

#[test]
fn fr_028_a_crawl_gives_its_memory_back() {
    let runtime = paused();
    let balancer = runtime.block_on(async { balancer("[rules]\nhost = '1/500ms'") });
    let (info, ()) = measured(&runtime, async {
        let pages = (0..30_000_u64).map(|page| balancer.run("host", page % 10_000, ok));
        assert!(futures::future::join_all(pages).await.iter().all(Result::is_ok));
        sleep(3 * SECOND).await;
    });
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
    assert!(info.bytes_max > 4 * MIB as u64, "{info:?}");
    assert!(info.bytes_current <= 64 * KIB, "{info:?}");
}

#[test]
fn fr_034_a_thousand_balancers_leave_nothing() {
    let runtime = paused();
    let one = async || {
        let balancer = balancer("[rules]\na = '1/10ms'\nb = '2/10ms'\nc = { key_concurrency = 1 }");
        let mut requests = JoinSet::new();
        for (number, rule) in (0..10_u32).zip(["a", "b", "c"].into_iter().cycle()) {
            let balancer = balancer.clone();
            requests.spawn(async move { balancer.run(rule, number % 2, ok).await });
        }
        while let Some(answer) = requests.join_next().await {
            answer.unwrap().unwrap();
        }
    };
    let many = async |count: usize| {
        for _ in 0..count {
            one().await;
        }
        tokio::task::yield_now().await;
    };
    runtime.block_on(many(10));
    let (info, ()) = measured(&runtime, many(1_000));
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    assert!(info.bytes_current <= 64 * KIB, "{info:?}");
}

#[test]
fn fr_035_a_waiter_costs_the_same_however_often_it_waits() {
    let (runtime, balancer) = (paused(), balancer("[rules]\nr = '1/1s'"));
    let begin = async || {
        let mut waiters = JoinSet::new();
        for _ in 0..800 {
            let balancer = balancer.clone();
            waiters.spawn(async move {
                loop {
                    balancer.run("r", "A", ok).await.unwrap();
                }
            });
        }
        sleep(100 * SECOND).await;
        waiters
    };
    let (first, waiters) = measured(&runtime, begin());
    assert_eq!(balancer.snapshot().waiting, 800);
    let (rest, ()) = measured(&runtime, async { sleep(9_900 * SECOND).await });
    assert_eq!((balancer.snapshot().waiting, waiters.len()), (800, 800));
    assert!(rest.bytes_current * 100 <= first.bytes_current, "{rest:?} after {first:?}");
    let (end, ()) = measured(&runtime, async move {
        drop(waiters);
        sleep(10 * SECOND).await;
    });
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.keys), (0, 0));
    // And their end gives it all back, but for what a runtime and a map keep for later.
    let left = first.bytes_current + rest.bytes_current + end.bytes_current;
    assert!(left <= 64 * KIB, "{left} bytes are left of {}", first.bytes_current);
}

// Delays double: DESIGN has no other factor.
#[test]
fn fr_093_a_payload_is_lent_to_each_attempt_and_never_copied() {
    let rules = "[rules]\nr = {}\n[retry]\nattempts = 4\nbackoff = '6s'\nmax_delay = '1h'\njitter = 0";
    let (runtime, balancer) = (paused(), balancer(rules));
    let (info, ()) = measured(&runtime, async {
        let begin = Instant::now();
        let payload: Vec<u8> = (0..MIB as usize).map(|place| (place % 251) as u8).collect();
        let mut seen = Vec::new();
        let lent = balancer.run("r", "lent", |attempt: Attempt| {
            seen.push((begin.elapsed(), payload.as_ptr(), payload.iter().map(|&byte| u64::from(byte)).sum::<u64>()));
            std::future::ready(Err::<(), _>(Failure::transient(attempt.number())))
        });
        assert_eq!(lent.await, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 4, last: Some(4) }));
        let starts: Vec<_> = seen.iter().map(|(at, ..)| at.as_secs()).collect();
        assert_eq!(starts, [0, 6, 18, 42]);
        assert!(seen.iter().all(|(_, place, sum)| (*place, *sum) == (seen[0].1, seen[0].2)));
        // A submitted request shares it.
        let payload: Arc<[u8]> = payload.into();
        let place = payload.as_ptr().addr();
        let shared = balancer.request("r", "shared").submit(move |attempt| {
            let payload = Arc::clone(&payload);
            async move {
                assert_eq!(payload.as_ptr().addr(), place);
                if attempt.number() < 3 { Err(Failure::transient(())) } else { Ok(payload.len()) }
            }
        });
        assert_eq!(shared.unwrap().await, Ok(MIB as usize));
    });
    // Making an `Arc` of the payload copies it once, outside the balancer.
    assert!(info.bytes_max < 5 * MIB as u64 / 2, "{info:?}");
    let (info, ()) = measured(&runtime, async {
        let payload = vec![7_u8; MIB as usize];
        let answer = balancer.run("r", "again", |_| {
            let sum: u64 = payload.iter().map(|&byte| u64::from(byte)).sum();
            std::future::ready(Err::<(), _>(Failure::transient(sum)))
        });
        let sum = Some(7 * MIB as u64);
        assert_eq!(answer.await, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 4, last: sum }));
    });
    assert!(info.bytes_max < 3 * MIB as u64 / 2, "{info:?}");
}

// The bound over all queues, and the submission that waits for a place, are in field_cases_policy.
#[test]
fn fr_109_a_full_queue_refuses_at_once_and_keeps_nothing() {
    let (runtime, balancer) = (paused(), balancer("[rules]\nr = { key_concurrency = 1, queue = 1000 }"));
    let submit = || balancer.request("r", "A").submit(|_| pending::<Outcome<(), ()>>());
    let _entered = runtime.enter();
    let mut tickets: Vec<Ticket<(), ()>> = Vec::with_capacity(1_001);
    tickets.push(submit().expect("it starts"));
    runtime.block_on(tokio::task::yield_now());
    let accepted = measure(|| tickets.extend((0..1_000).map(|_| submit().expect("a place in line"))));
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (1, 1_000));
    assert!(accepted.bytes_current < 2 * MIB, "{accepted:?}");
    let refused = measure(|| {
        for _ in 1_001..1_000_000 {
            assert_eq!(submit().unwrap_err(), Refused::QueueFull { waiting: 1_000 });
        }
    });
    assert!(refused.bytes_current == 0 && refused.bytes_max <= 4 * KIB as u64, "{refused:?}");
    drop(tickets);
    runtime.block_on(tokio::task::yield_now());
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
}
