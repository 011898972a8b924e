//! Rules of which some share limits with other processes and some do not: neither goes past the other.
#![cfg(feature = "shared")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use request_balancer::shared::{Ask, Ears, MemoryStore, News, Pending, Reply, Store};
use request_balancer::{Balancer, Failure, Rules};
use tokio::time::{Instant, sleep};

const MILLI: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

type Log = Arc<Mutex<Vec<(&'static str, u128)>>>;

/// A store that counts its questions.
#[derive(Clone, Debug)]
struct Counted {
    store: MemoryStore,
    asked: Arc<AtomicUsize>,
}

impl Store for Counted {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.store.ask(ask)
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.store.tell(process, news)
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.store.hear(process)
    }
}

/// Sends so many requests of key 1 under a rule, and notes when they start.
fn send(balancer: &Balancer, log: &Log, begin: Instant, rule: &'static str, times: usize) {
    send_of(balancer, log, begin, (rule, 1), times);
}

/// The same of another key.
fn send_of(balancer: &Balancer, log: &Log, begin: Instant, (rule, key): (&'static str, u64), times: usize) {
    for _ in 0..times {
        let (balancer, log) = (balancer.clone(), Arc::clone(log));
        tokio::spawn(async move {
            let note = async |_| {
                log.lock().unwrap().push((rule, begin.elapsed().as_millis()));
                Ok::<_, Failure<()>>(())
            };
            let _ = balancer.run(rule, key, note).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn an_urgent_shared_rule_goes_before_what_is_not_shared() {
    let text = "overall = '1/1s'\n[rules]\nurgent = { overall = { limit = '100/1s', shared = true } }\n\
                bulk = { priority = 2 }\n[lanes.2]\npace = false";
    let balancer = Balancer::builder(text.parse::<Rules>().unwrap()).shared(MemoryStore::new()).build();
    let (log, begin) = (Log::default(), Instant::now());
    send(&balancer, &log, begin, "bulk", 5);
    sleep(500 * MILLI).await;
    send(&balancer, &log, begin, "urgent", 2);
    sleep(10 * SEC).await;
    let expected = [
        ("bulk", 0),
        ("urgent", 1_000),
        ("urgent", 2_000),
        ("bulk", 3_000),
        ("bulk", 4_000),
        ("bulk", 5_000),
        ("bulk", 6_000),
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn rules_of_one_key_take_turns_though_one_of_them_is_shared() {
    let text = "per_key = '1/1s'\n[rules]\na = { overall = { limit = '100/1s', shared = true } }\nb = {}";
    let balancer = Balancer::builder(text.parse::<Rules>().unwrap()).shared(MemoryStore::new()).build();
    let (log, begin) = (Log::default(), Instant::now());
    send(&balancer, &log, begin, "b", 10);
    sleep(500 * MILLI).await;
    send(&balancer, &log, begin, "a", 3);
    sleep(7 * SEC + 100 * MILLI).await;
    let order: Vec<_> = log.lock().unwrap().iter().map(|&(rule, _)| rule).collect();
    // That it was passed by is noted when the store has given: one turn later than where nothing is shared.
    assert_eq!(order, ["b", "b", "a", "a", "b", "a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_leaves_room_to_what_is_not_shared() {
    let text = "overall = '1/1s'\n[rules]\nurgent = { overall = { limit = '1/5s', shared = true } }\n\
                bulk = { priority = 2 }\n[lanes.2]\npace = false";
    let store = MemoryStore::new();
    let rules: Rules = text.parse().unwrap();
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build());
    let (log, begin) = (Log::default(), Instant::now());
    send(&one, &log, begin, "urgent", 1);
    sleep(500 * MILLI).await;
    send(&other, &log, begin, "urgent", 1);
    send(&other, &log, begin, "bulk", 7);
    sleep(10 * SEC).await;
    let starts: Vec<_> = log.lock().unwrap().iter().map(|&(rule, at)| (rule, at / 500)).collect();
    let bulk = (1..=9).step_by(2).map(|half| ("bulk", half));
    let expected: Vec<_> =
        [("urgent", 0)].into_iter().chain(bulk).chain([("urgent", 11), ("bulk", 13), ("bulk", 15)]).collect();
    assert_eq!(starts, expected);
}

/// A process that always has more to do gave its slots back with the question in which it took them again: nobody else had
/// any for as long as it was busy.
#[tokio::test(start_paused = true)]
async fn a_busy_process_leaves_slots_to_others() {
    for latency in [0, 1, 10, 50] {
        let store = MemoryStore::new();
        store.set_latency(latency * MILLI);
        let rules: Rules = "overall = { concurrency = 5, shared = true }".parse().unwrap();
        let balancers = [0; 3].map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build());
        let counts = Arc::new(Mutex::new([0; 3]));
        for (position, balancer) in balancers.iter().enumerate() {
            for _ in 0..40 {
                let (balancer, counts) = (balancer.clone(), Arc::clone(&counts));
                tokio::spawn(async move {
                    loop {
                        let work = async |_| {
                            counts.lock().unwrap()[position] += 1;
                            sleep(20 * MILLI).await;
                            Ok::<_, Failure<()>>(())
                        };
                        balancer.run("default", 1, work).await.unwrap();
                    }
                });
            }
            sleep(13 * MILLI).await;
        }
        sleep(10 * SEC).await;
        let counts = *counts.lock().unwrap();
        let all: i32 = counts.iter().sum();
        assert!(counts.iter().all(|count| *count > all / 6), "{counts:?} with the store {latency} ms away");
        // Five at once, each for 20 ms, a way there and one back, and once more for the others to hear of it.
        let least = 10_000 * 5 / (20 + 3 * i32::try_from(latency).unwrap() + 10);
        assert!(all >= least / 2, "{all} starts with the store {latency} ms away");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_key_start_in_order_though_the_store_refuses_the_first() {
    let text = "units = ['tokens']\noverall = { limit = '1/5s tokens', shared = true }\n\
                per_key = { limit = '100/1s', shared = true }";
    let store = MemoryStore::new();
    let rules: Rules = text.parse().unwrap();
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build());
    other.request("default", 2).cost_of("tokens", 1).run(async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    let (log, begin) = (Log::default(), Instant::now());
    for (name, tokens) in [("first", 1), ("second", 0)] {
        let (balancer, log) = (one.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            let note = async |_| {
                log.lock().unwrap().push((name, begin.elapsed().as_millis()));
                Ok::<_, Failure<()>>(())
            };
            let _ = balancer.request("default", 1).cost_of("tokens", tokens).run(note).await;
        });
    }
    sleep(10 * SEC).await;
    // The store counts a start as of 2 ms later, when it may have begun.
    assert_eq!(*log.lock().unwrap(), [("first", 5_002), ("second", 5_002)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_for_urgent_calls_is_not_closed_to_them() {
    let text = "overall = { limit = '100/60s', shared = true }\n[rules]\nurgent = {}\nbulk = { priority = 2 }";
    let store = MemoryStore::new();
    let rules: Rules = text.parse().unwrap();
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build());
    let (log, begin) = (Log::default(), Instant::now());
    send(&one, &log, begin, "urgent", 98);
    sleep(SEC).await;
    // The other one has started nothing: it learns from the store that there is no room for bulk, which leaves two.
    send(&other, &log, begin, "bulk", 1);
    sleep(SEC).await;
    send(&other, &log, begin, "urgent", 2);
    sleep(10 * SEC).await;
    let starts = log.lock().unwrap().clone();
    assert_eq!(starts, [vec![("urgent", 0); 98], vec![("urgent", 2_000); 2]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_mixed_batch_closes_a_limit_only_to_who_leaves_something() {
    let text = "overall = { limit = '100/60s', shared = true }\n[rules]\nurgent = {}\nbulk = { priority = 2 }";
    let store = MemoryStore::new();
    let rules: Rules = text.parse().unwrap();
    let [one, other] = [0; 2].map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build());
    let (log, begin) = (Log::default(), Instant::now());
    send(&one, &log, begin, "urgent", 96);
    sleep(SEC).await;
    // Four are left. One question for all of them: the first two are given, then none that leaves two.
    send(&other, &log, begin, "bulk", 2);
    send(&other, &log, begin, "urgent", 2);
    sleep(SEC).await;
    send(&other, &log, begin, "urgent", 3);
    sleep(70 * SEC).await;
    let mut starts = log.lock().unwrap().split_off(96);
    assert_eq!(starts.split_off(5)[..1], [("bulk", 60_002)]);
    let urgent = |at| ("urgent", at);
    assert_eq!(starts, [urgent(1_000), urgent(1_000), urgent(2_000), urgent(2_000), urgent(60_002)]);
}

/// Whom a limit is closed to was worked out by whoever had asked, who does not know which of several limits refused a request:
/// then it was open to all that leave less than the others of the batch, and they asked in vain.
#[tokio::test(start_paused = true)]
async fn what_has_nothing_for_anybody_is_not_asked_for_though_another_limit_refuses_too() {
    let text = "overall = { limit = '100/60s', shared = true }\nper_key = { limit = '98/60s', shared = true }\n\
                [rules]\nurgent = {}\nbulk = { priority = 2 }";
    let store = Counted { store: MemoryStore::new(), asked: Arc::default() };
    let rules: Rules = text.parse().unwrap();
    let one = Balancer::builder(rules.clone()).shared(store.store.clone()).build();
    let other = Balancer::builder(rules).shared(store.clone()).build();
    let (log, begin) = (Log::default(), Instant::now());
    send(&one, &log, begin, "urgent", 98);
    send_of(&one, &log, begin, ("urgent", 2), 2);
    sleep(SEC).await;
    // Neither all nor key 1 have any left; bulk of key 3 is refused for all alone.
    send(&other, &log, begin, "urgent", 1);
    send_of(&other, &log, begin, ("bulk", 3), 1);
    sleep(SEC).await;
    let asked = store.asked.load(Ordering::Relaxed);
    send_of(&other, &log, begin, ("urgent", 4), 1);
    sleep(SEC).await;
    assert_eq!(store.asked.load(Ordering::Relaxed), asked);
    sleep(70 * SEC).await;
    assert_eq!(log.lock().unwrap().len(), 103);
}
