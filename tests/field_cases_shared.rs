//! Cases from the field about limits that processes share: on the store in memory, in virtual time. Those that need a real
//! server or real processes stand in `tests/shared_redis.rs` and `tests/shared_fleet.rs`.
#![cfg(feature = "shared")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod starts;

use starts::{Log, MILLI, SEC, process, rules};
use std::time::Duration;

use request_balancer::NextStart;
use request_balancer::shared::MemoryStore;
use tokio::time::sleep;

/// The store counts a start as of 2 ms after it may be at the earliest: by so much windows are longer.
#[tokio::test(start_paused = true)]
async fn fr_041_a_shared_window_lets_five_go_each_second() {
    let store = MemoryStore::new();
    let text = "overall = { limit = '5/1s', shared = true }";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let log = Log::new();
    log.send(&one, 1, 50);
    log.send(&other, 1, 50);
    sleep(30 * SEC).await;
    let expected: Vec<u128> = (0..100).map(|start| start / 5 * 1_002).collect();
    assert_eq!(log.starts(), expected);
}

#[tokio::test(start_paused = true)]
async fn fr_134_a_longer_window_counts_what_the_store_has_seen() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("per_key = { limit = '1/1s', shared = true }", &store));
    let log = Log::new();
    log.send(&one, 1, 10);
    sleep(5_500 * MILLI).await;
    assert_eq!(log.starts(), [0, 1_002, 2_004, 3_006, 4_008, 5_010]);
    let longer = rules("per_key = { limit = '1/10s', shared = true }");
    one.replace_rules(longer.clone());
    other.replace_rules(longer);
    // The other one has started nothing, and knows of the last start all the same.
    log.send_one(&other, 1);
    sleep(60 * SEC).await;
    let starts = log.starts();
    assert_eq!(starts.len(), 11);
    for (at, pair) in starts[5..].windows(2).enumerate() {
        let gap = pair[1] - pair[0];
        assert!((10_000..=10_010).contains(&gap), "start {at} after the reload: {gap} ms after the one before");
    }
}

#[tokio::test(start_paused = true)]
async fn fr_136_a_larger_count_gives_the_difference_at_once() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = { limit = '10/1s', shared = true }", &store));
    let log = Log::new();
    log.send(&one, 1, 15);
    log.send(&other, 1, 15);
    sleep(500 * MILLI).await;
    assert_eq!(log.starts(), [0; 10]);
    for balancer in [&one, &other] {
        balancer.replace_rules(rules("overall = { limit = '12/1s', shared = true }"));
    }
    sleep(500 * MILLI).await;
    assert_eq!(log.starts()[10..], [500; 2]);
    sleep(10 * MILLI).await;
    assert_eq!(log.starts()[12..], [1_002; 10]);
    sleep(10 * SEC).await;
    assert_eq!(log.starts().len(), 30);
}

/// How far clocks of processes are apart plays no part: they are told how long to wait, not until when.
#[tokio::test(start_paused = true)]
async fn fr_138_all_see_the_same_moment_of_the_reset() {
    let store = MemoryStore::new();
    store.set_latency(MILLI);
    let balancers = [0; 3].map(|_| process("overall = { limit = '150/1s', shared = true }", &store));
    let log = Log::new();
    for balancer in &balancers {
        log.send(balancer, 1, 4_000);
    }
    for _ in 0..20 {
        sleep(500 * MILLI).await;
        let resets: Vec<Duration> = balancers
            .iter()
            .map(|balancer| match balancer.next_start("default", 2).unwrap() {
                NextStart::After(after) => log.begin.elapsed() + after,
                other => panic!("{other:?}"),
            })
            .collect();
        let (first, last) = (resets.iter().min().unwrap(), resets.iter().max().unwrap());
        // None of them is 5 ms from the middle.
        assert!(*last - *first <= 10 * MILLI, "{resets:?}");
        sleep(500 * MILLI).await;
    }
    let starts = log.starts();
    let most = starts.iter().map(|from| starts.iter().filter(|at| (*from..from + 1_000).contains(at)).count()).max();
    assert_eq!(most, Some(150));
}
