//! What starts around the return of a store that some could not reach.
#![cfg(feature = "shared")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod starts;

use starts::{Log, MILLI, SEC, rules};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use request_balancer::engine::{Answers, Claim, Entry, Instant as At, Reach, RuleId, Scheduler};
use request_balancer::shared::MemoryStore;
use request_balancer::{Balancer, Failure};
use tokio::runtime::Builder;
use tokio::time::sleep;

#[test]
fn what_was_granted_without_the_store_is_asked_for_when_it_is_back() {
    let rules = rules("overall = { limit = '4/1s', shared = true }\n[shared]\nprocesses = 2");
    let mut machine: Scheduler<()> = Scheduler::new(rules.plan());
    let at = At::from_millis;
    let key = machine.add_key(at(0), 1);
    machine.set_reach(at(0), Reach::Alone);
    let ids = [0; 2].map(|_| machine.enqueue(at(0), key, RuleId(0), Entry::default()).unwrap());
    machine.dispatch(at(1_000));
    assert!(matches!(machine.claim(at(1_000), ids[0]), Claim::Started { .. }));
    // The second is granted, too, but did not start: nobody told the store of it.
    machine.set_reach(at(1_001), Reach::Back(at(1_001)));
    assert_eq!(machine.claim(at(1_001), ids[1]), Claim::Waiting);
    let batch = machine.collect(at(1_001)).unwrap();
    assert_eq!(batch.asks.len(), 1);
    machine.answer(at(1_002), &Answers { taken: vec![true], usable_until: At::NEVER, ..Answers::default() });
    assert!(matches!(machine.claim(at(1_002), ids[1]), Claim::Started { .. }));
}

/// A process that has used the store, long ago.
async fn old_process(store: &MemoryStore) -> Balancer {
    let text = "overall = { limit = '20/60s', shared = true }\n[shared]\nprocesses = 2";
    let balancer = Balancer::builder(rules(text)).shared(store.clone()).build();
    balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    sleep(100 * SEC).await;
    balancer
}

#[tokio::test(start_paused = true)]
async fn who_asked_nothing_while_it_was_away_leaves_others_their_parts() {
    let store = MemoryStore::new();
    let (busy, idle) = (old_process(&store).await, old_process(&store).await);
    let log = Log::new();
    store.set_away(true);
    sleep(9_900 * MILLI).await;
    log.send(&busy, 1, 30);
    sleep(100 * MILLI).await;
    store.set_away(false);
    // It never noticed: the store knows of nothing, and has room for all of these.
    log.send(&idle, 1, 30);
    sleep(40 * SEC).await;
    // One loses it after three calls and starts its part; the other one starts its own.
    let mut starts = log.starts();
    starts.sort_unstable();
    let parts: Vec<_> = [[9_940; 10], [10_000; 10]].concat();
    assert_eq!(starts, parts);
}

#[tokio::test(start_paused = true)]
async fn the_whole_is_back_when_all_had_time_to_tell() {
    let store = MemoryStore::new();
    let balancer = old_process(&store).await;
    // Only the way of news is cut, and nothing was asked since.
    store.deafen();
    let log = Log::new();
    log.send(&balancer, 1, 20);
    sleep(10 * SEC).await;
    // News are heard again 200 ms later, and 2 s after that everybody has told what it started.
    assert_eq!(log.starts(), [[0; 10], [2_200; 10]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_cap_is_not_over_when_one_is_back_before_the_other() {
    let store = MemoryStore::new();
    let text = "overall = { concurrency = 10, shared = true }\n[shared]\nprocesses = 2";
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules(text)).shared(store.clone()).build());
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let send = |balancer: &Balancer, times: usize| {
        for _ in 0..times {
            let (balancer, running, most) = (balancer.clone(), Arc::clone(&running), Arc::clone(&most));
            tokio::spawn(async move {
                let run = async |_| {
                    let runs = running.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(runs, Ordering::Relaxed);
                    sleep(20 * SEC).await;
                    running.fetch_sub(1, Ordering::Relaxed);
                    Ok::<_, Failure<()>>(())
                };
                balancer.run("default", 1, run).await
            });
        }
    };
    // The store knows of one slot of each.
    send(&one, 1);
    send(&other, 1);
    sleep(SEC).await;
    store.set_away(true);
    send(&one, 20);
    sleep(100 * MILLI).await;
    send(&other, 20);
    sleep(SEC).await;
    assert_eq!(running.load(Ordering::Relaxed), 10);
    store.set_away(false);
    sleep(10 * SEC).await;
    assert_eq!((running.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_short_window_is_not_over_when_one_is_back_before_the_other() {
    let store = MemoryStore::new();
    let text = "overall = { limit = '10/100ms', shared = true }\n[shared]\nprocesses = 2";
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules(text)).shared(store.clone()).build());
    let log = Log::new();
    store.set_away(true);
    log.send(&one, 1, 1_000);
    sleep(100 * MILLI).await;
    log.send(&other, 1, 1_000);
    sleep(SEC).await;
    store.set_away(false);
    sleep(3 * SEC).await;
    let mut starts = log.starts();
    starts.sort_unstable();
    let most = starts.windows(11).filter(|window| window[10] - window[0] < 100).count();
    assert_eq!(most, 0, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn other_rules_for_an_outage_do_not_keep_anybody_at_a_part() {
    let store = MemoryStore::new();
    let balancer = old_process(&store).await;
    store.deafen();
    sleep(100 * MILLI).await;
    let closed = "overall = { limit = '3/60s', shared = true }\n[shared]\nprocesses = 4\non_outage = 'closed'";
    balancer.replace_rules(rules(closed));
    let log = Log::new();
    log.send(&balancer, 1, 3);
    sleep(10 * SEC).await;
    // Of three there is no part for each of four, until two seconds after news are heard again.
    assert_eq!(log.starts(), [2_100; 3]);
}

#[test]
fn a_runtime_that_ends_keeps_nobody_at_a_part() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(async { MemoryStore::new() });
    let balancer = first.block_on(old_process(&store));
    second.block_on(async { sleep(200 * SEC).await });
    second.block_on(async { balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap() });
    store.deafen();
    // The second hears again; then the first notices that it does not, and ends before it tries.
    second.block_on(async { sleep(100 * SEC).await });
    first.block_on(async { sleep(MILLI).await });
    drop(first);
    second.block_on(async {
        sleep(3 * SEC).await;
        let log = Log::new();
        log.send(&balancer, 1, 20);
        sleep(SEC).await;
        assert_eq!(log.starts().len(), 20);
    });
}
