//! Limits that balancers share, in a store in memory: on the paused clock, with exact instants.
#![cfg(feature = "shared")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod starts;

use starts::{Log, MILLI, SEC, process, rules};
use std::sync::{Arc, Mutex};

use request_balancer::shared::MemoryStore;
use request_balancer::{Error, Event, Failure, NextStart, OnOutage, Refused, Target};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn two_balancers_keep_to_one_window() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = { limit = '10/1s', shared = true }", &store));
    let log = Log::new();
    log.send(&one, 1, 20);
    log.send(&other, 1, 20);
    sleep(3 * SEC + 500 * MILLI).await;
    assert_eq!(log.starts().len(), 40);
    assert_eq!(log.most_in(SEC), 10);
    // The store counts a start as of 2 ms after it was asked: it may happen so late.
    let starts = log.starts();
    let firsts: Vec<u128> = starts.iter().copied().step_by(10).collect();
    assert_eq!(firsts, [0, 1_002, 2_004, 3_006]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_marked_stays_local() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = '10/1s'", &store));
    let log = Log::new();
    log.send(&one, 1, 10);
    log.send(&other, 1, 10);
    sleep(MILLI).await;
    assert_eq!(log.starts(), [0; 20]);
    assert_eq!(store.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_or_none_over_several_limits() {
    let store = MemoryStore::new();
    let text = "overall = { limit = '4/1s', shared = true }\nper_key = { limit = '1/10s', shared = true }";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let log = Log::new();
    // Key 1 has room for one; what is refused for that takes nothing from the others.
    log.send(&one, 1, 3);
    log.send(&other, 1, 3);
    sleep(MILLI).await;
    for key in 2..8 {
        log.send_one(if key % 2 == 0 { &one } else { &other }, key);
    }
    sleep(2 * SEC).await;
    assert_eq!(log.starts(), [0, 1, 1, 1, 1_002, 1_003, 1_003]);
}

#[tokio::test(start_paused = true)]
async fn lanes_and_turns_are_kept() {
    let store = MemoryStore::new();
    let text = "overall = { limit = '2/1s', shared = true }\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\npace = false";
    let balancer = process(text, &store);
    let order = Arc::new(Mutex::new(Vec::new()));
    let send = |rule: &'static str, key: u64| {
        let (balancer, order) = (balancer.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            let note = async |_| {
                order.lock().unwrap().push((rule, key));
                Ok::<_, Failure<()>>(())
            };
            let _ = balancer.run(rule, key, note).await;
        });
    };
    for _ in 0..3 {
        send("bulk", 1);
        send("bulk", 2);
    }
    sleep(MILLI).await;
    send("urgent", 3);
    send("urgent", 3);
    sleep(5 * SEC).await;
    let expected =
        [("bulk", 1), ("bulk", 2), ("urgent", 3), ("urgent", 3), ("bulk", 1), ("bulk", 2), ("bulk", 1), ("bulk", 2)];
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_cap_is_kept_by_all_and_a_free_slot_is_told() {
    let store = MemoryStore::new();
    let text = "overall = { concurrency = 2, shared = true }";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let log = Log::new();
    for balancer in [&one, &one, &other, &other] {
        let (balancer, log) = (balancer.clone(), log.clone());
        tokio::spawn(async move {
            let work = async |_| {
                log.note();
                sleep(300 * MILLI).await;
                Ok::<_, Failure<()>>(())
            };
            balancer.run("default", 1, work).await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    sleep(SEC).await;
    assert_eq!(log.starts(), [0, 0, 300, 300]);
    // And everything is given back.
    assert!(store.names().is_empty(), "{:?}", store.names());
}

#[tokio::test(start_paused = true)]
async fn fr_017_slots_of_a_process_that_dies_come_back_with_the_lease() {
    let store = MemoryStore::new();
    let text = "per_key = { concurrency = 1, shared = true }\noverall = { limit = '5/100s', shared = true }";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let log = Log::new();
    let _permit = one.request("default", 1).acquire().await.unwrap();
    // Its process is killed: nothing is heard of it any more.
    store.cut_off(0);
    sleep(SEC).await;
    log.send_one(&other, 1);
    sleep(40 * SEC).await;
    let starts = log.starts();
    assert!(matches!(starts[..], [1_000..=31_000]), "{starts:?}");
    assert_eq!(log.begin.elapsed(), 41 * SEC);
    // The counters of others are as they were.
    assert!(store.names().iter().any(|name| name.contains("overall")), "{:?}", store.names());
}

#[tokio::test(start_paused = true)]
async fn fr_022_a_refusal_takes_nothing() {
    let store = MemoryStore::new();
    let balancer = process("overall = { limit = '10/10s', shared = true }", &store);
    let start = async |cost: u32| {
        balancer.request("default", 1).cost(cost).fail_fast().run(async |_| Ok::<_, Failure<()>>(())).await
    };
    assert_eq!(start(8).await, Ok(()));
    let names = store.names();
    let refused = start(5).await;
    assert!(matches!(refused, Err(Error::GaveUp { reason: Refused::NotNow { .. }, .. })), "{refused:?}");
    let refused = start(1_000_000).await;
    assert!(matches!(refused, Err(Error::GaveUp { attempts: 0, .. })), "{refused:?}");
    assert_eq!(store.names(), names);
    assert_eq!(start(1).await, Ok(()));
    assert_eq!(start(1).await, Ok(()));
    assert!(start(1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn fr_032_nothing_is_kept_of_an_idle_key() {
    let store = MemoryStore::new();
    let [one, _other] = [0; 2].map(|_| process("per_key = { limit = '1/20s', shared = true }", &store));
    one.run("default", "A", async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    assert_eq!(store.names().len(), 1);
    sleep(20 * SEC - MILLI).await;
    assert_eq!(store.names().len(), 1);
    sleep(SEC).await;
    for _ in 21..60 {
        assert!(store.names().is_empty());
        sleep(SEC).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fr_111_a_slow_store_is_asked_in_batches() {
    let store = MemoryStore::new();
    store.set_latency(50 * MILLI);
    let balancer = process("per_key = { limit = '100/1s', shared = true }", &store);
    let log = Log::new();
    log.send(&balancer, 0, 5_000);
    let others = Log::new();
    for key in 1..=100 {
        others.send_one(&balancer, key);
    }
    sleep(200 * MILLI).await;
    assert_eq!(others.starts().len(), 100);
    let asked = store.asked();
    sleep(10 * SEC).await;
    assert!(store.asked() - asked <= 200, "{} round trips", store.asked() - asked);
    assert_eq!(log.most_in(SEC), 100);
    // A window is longer by the way that an answer may take, and the way of the question that finds it open.
    assert_eq!(log.starts().len(), 900);
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_all_within_one_way() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("per_key = { limit = '100/1s', shared = true }", &store));
    // Both are connected once something waited.
    let log = Log::new();
    log.send_one(&one, 7);
    log.send_one(&other, 7);
    sleep(SEC).await;
    let refused = one.run("default", 1, async |attempt| {
        if attempt.number() == 1 { Err(attempt.retry(5 * SEC)) } else { Ok::<_, Failure<()>>(()) }
    });
    let task = async {
        sleep(MILLI).await;
        other.next_start("default", 1)
    };
    let (refused, next) = tokio::join!(refused, task);
    refused.unwrap();
    assert_eq!(next, Ok(NextStart::After(5 * SEC - MILLI)));
    // Another key is not held, and who comes later hears of what still holds.
    one.hold(Target::key(2), 10 * SEC).unwrap();
    sleep(SEC).await;
    let third = process("per_key = { limit = '100/1s', shared = true }", &store);
    log.send_one(&third, 9);
    sleep(SEC).await;
    assert_eq!(third.next_start("default", 2), Ok(NextStart::After(8 * SEC)));
    assert_eq!(third.next_start("default", 3), Ok(NextStart::Now));
}

fn outage(on_outage: &str) -> String {
    format!("overall = {{ limit = '20/60s', shared = true }}\n[shared]\non_outage = '{on_outage}'")
}

#[tokio::test(start_paused = true)]
async fn fr_141_local_share_alone_and_the_whole_again() {
    let store = MemoryStore::new();
    let processes: Vec<_> = (0..4).map(|_| process(&outage("local-share"), &store)).collect();
    store.set_away(true);
    let logs: Vec<_> = processes.iter().map(|_| Log::new()).collect();
    let all = Log::new();
    for (process, log) in processes.iter().zip(&logs) {
        for _ in 0..30 {
            let (process, log, all) = (process.clone(), log.clone(), all.clone());
            tokio::spawn(async move {
                let note = async |_| {
                    log.note();
                    all.note();
                    Ok::<_, Failure<()>>(())
                };
                process.run("default", 1, note).await
            });
        }
    }
    sleep(60 * SEC).await;
    for log in &logs {
        assert_eq!(log.starts().len(), 5);
    }
    store.set_away(false);
    sleep(300 * SEC).await;
    assert_eq!(all.most_in(60 * SEC), 20);
    assert_eq!(all.starts().len(), 120);
}

#[tokio::test(start_paused = true)]
async fn fr_141_closed_starts_nothing_and_max_wait_applies() {
    let store = MemoryStore::new();
    let balancer = process(&outage("closed"), &store);
    store.set_away(true);
    let log = Log::new();
    log.send(&balancer, 1, 3);
    let run = balancer.request("default", 1).max_wait(10 * SEC).run(async |_| Ok::<_, Failure<()>>(()));
    let refused = run.await;
    assert!(matches!(refused, Err(Error::GaveUp { reason: Refused::MaxWait { .. }, .. })), "{refused:?}");
    assert_eq!(log.begin.elapsed(), 10 * SEC);
    assert_eq!(log.starts(), []);
    store.set_away(false);
    sleep(SEC).await;
    assert_eq!(log.starts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn fr_141_open_only_by_name() {
    assert_eq!(rules("").shared().on_outage(), OnOutage::LocalShare);
    let store = MemoryStore::new();
    let balancer = process(&outage("open"), &store);
    store.set_away(true);
    let log = Log::new();
    log.send(&balancer, 1, 30);
    sleep(50 * SEC).await;
    assert_eq!(log.starts().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_is_told_what_is_remembered() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = { limit = '10/10s', shared = true }", &store));
    let mut events = one.events();
    let log = Log::new();
    log.send(&one, 1, 5);
    sleep(SEC).await;
    store.flush();
    log.send(&one, 1, 10);
    sleep(SEC).await;
    log.send(&other, 1, 10);
    sleep(7 * SEC).await;
    assert_eq!(log.most_in(10 * SEC), 10);
    let mut forgot = false;
    while let Some(event) = events.try_next() {
        forgot |= matches!(event, Event::StoreForgot { .. });
    }
    assert!(forgot);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_since_a_store_forgot_is_not_told_again() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = { limit = '20/10s', shared = true }", &store));
    let log = Log::new();
    log.send(&one, 1, 5);
    sleep(SEC).await;
    store.flush();
    // It never used the limit before, and finds it empty.
    log.send(&other, 1, 10);
    sleep(SEC).await;
    log.send(&one, 1, 10);
    sleep(SEC).await;
    assert_eq!(log.starts().len(), 20);
    sleep(10 * SEC).await;
    assert_eq!(log.most_in(10 * SEC), 20);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_counted_in_another_way_keeps_its_count() {
    let store = MemoryStore::new();
    let text = |count: u32| format!("overall = {{ limit = '{count}/60s', shared = true }}");
    let [one, other] = [0; 2].map(|_| process(&text(1_000), &store));
    let log = Log::new();
    log.send(&one, 1, 500);
    log.send(&other, 1, 500);
    sleep(SEC).await;
    // A thousand starts are listed, more are counted in parts of the minute.
    for balancer in [&one, &other] {
        balancer.replace_rules(rules(&text(1_001)));
    }
    sleep(SEC).await;
    log.send(&one, 1, 1_000);
    sleep(10 * SEC).await;
    assert_eq!(log.starts().len(), 1_001);
}
