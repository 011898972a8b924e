//! What becomes of balancers that share limits: their runtimes end, their store is away, they are closed, their rules change.
#![cfg(feature = "shared")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod starts;

use starts::{Log, MILLI, SEC, process, rules};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use request_balancer::shared::{Ask, Ears, MemoryStore, News, Pending, Reply, Store};
use request_balancer::{Balancer, Failure, NextStart, Refused, Target};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep, timeout};

/// A runtime of one thread, on a clock that stands while something runs.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

async fn runs(balancer: &Balancer) -> bool {
    let run = balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(()));
    timeout(10 * SEC, run).await.is_ok_and(|run| run.is_ok())
}

#[tokio::test(start_paused = true)]
async fn what_no_part_fits_starts_two_seconds_after_the_return() {
    for (text, cost) in [("20/60s", 6), ("3/60s", 1)] {
        let store = MemoryStore::new();
        store.set_away(true);
        let balancer = process(&format!("overall = {{ limit = '{text}', shared = true }}"), &store);
        let log = Log::new();
        log.send_costly(&balancer, 1, 1, cost);
        sleep(10 * SEC).await;
        store.set_away(false);
        sleep(300 * SEC).await;
        // Lost after three calls, 20 ms apart; looked for every 200 ms after that: back at 10.06 s.
        assert_eq!(log.starts(), [12_060], "{text}");
    }
}

#[test]
fn a_runtime_that_ends_with_a_question_out_stops_nobody() {
    let store = MemoryStore::new();
    store.set_latency(50 * MILLI);
    let first = runtime();
    let balancer = first.block_on(async { process("overall = { limit = '10/1s', shared = true }", &store) });
    first.block_on(async {
        let balancer = balancer.clone();
        tokio::spawn(async move { runs(&balancer).await });
        // The first answer only shows how long it takes; the second question is on its way.
        sleep(60 * MILLI).await;
    });
    drop(first);
    assert!(runtime().block_on(runs(&balancer)));
}

#[test]
fn a_runtime_that_nobody_blocks_on_stops_nobody() {
    let store = MemoryStore::new();
    store.set_latency(50 * MILLI);
    let (first, second) = (runtime(), runtime());
    let balancer = first.block_on(async { process("overall = { limit = '10/1s', shared = true }", &store) });
    assert!(first.block_on(runs(&balancer)));
    assert!(second.block_on(runs(&balancer)));
    // Not even with a question of its own out.
    first.block_on(async {
        let balancer = balancer.clone();
        tokio::spawn(async move { runs(&balancer).await });
        sleep(10 * MILLI).await;
    });
    assert!(second.block_on(runs(&balancer)));
}

#[tokio::test(start_paused = true)]
async fn balancers_of_one_builder_are_processes_of_their_own() {
    let store = MemoryStore::new();
    let builder = Balancer::builder(rules("overall = { concurrency = 1, shared = true }")).shared(store.clone());
    let (one, other) = (builder.clone().build(), builder.build());
    let begin = Instant::now();
    let permit = one.request("default", 1).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { other.request("default", 1).acquire().await.map(|_| begin.elapsed()) });
    sleep(SEC).await;
    drop(permit);
    drop(one);
    assert_eq!(waiting.await.unwrap(), Ok(SEC));
}

#[tokio::test(start_paused = true)]
async fn the_first_batch_is_not_too_late() {
    let store = MemoryStore::new();
    store.set_latency(10 * MILLI);
    let balancer = process("overall = { limit = '3/60s', shared = true }", &store);
    let log = Log::new();
    log.send(&balancer, 1, 3);
    sleep(10 * SEC).await;
    assert_eq!(log.starts(), [20, 20, 20]);
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_comes_late_costs_one_batch() {
    let store = MemoryStore::new();
    let balancer = process("per_key = { limit = '10/1s', shared = true }", &store);
    let log = Log::new();
    log.send_one(&balancer, 1);
    sleep(SEC).await;
    // Nine of one batch are late, as the way there took longer than ever before.
    store.set_latency(60 * MILLI);
    log.send(&balancer, 2, 9);
    sleep(MILLI).await;
    store.set_latency(Duration::ZERO);
    sleep(9 * SEC).await;
    // They were spent 30 ms after the question; there is one more, and the others wait for those.
    assert_eq!(log.starts()[1..], [&[1_030][..], &[2_032; 8]].concat());
    log.send(&balancer, 3, 20);
    sleep(5 * SEC).await;
    // What the store allows for the way is twice what that took of late, and 2 ms; not all that the nine might have been late by.
    assert_eq!(log.starts()[10..], [[10_001; 10], [11_056; 10]].concat());
}

#[tokio::test(start_paused = true)]
async fn rules_that_come_to_share_a_limit_are_kept_by_the_store() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("overall = '10/1s'\nper_key = '8/1s'", &store));
    let log = Log::new();
    log.send(&one, 1, 4);
    log.send(&other, 1, 4);
    sleep(100 * MILLI).await;
    assert_eq!((log.starts(), store.asked()), (vec![0; 8], 0));
    let text = "overall = { limit = '10/1s', shared = true }\nper_key = { limit = '8/1s', shared = true }";
    one.replace_rules(rules(text));
    other.replace_rules(rules(text));
    sleep(MILLI).await;
    // Both told what they started: key 1 had its eight, all together two more.
    log.send(&one, 1, 2);
    log.send(&one, 2, 5);
    log.send(&other, 3, 5);
    sleep(3 * SEC).await;
    let mut later = log.starts().split_off(8);
    later.sort_unstable();
    assert_eq!(later, [[101; 2].as_slice(), &[1_000; 8], &[1_103; 2]].concat());
}

/// Of two attempts that ran while rules came, the second took the first one's slot off again: another process had it, too.
#[tokio::test(start_paused = true)]
async fn slots_stay_in_use_under_other_rules() {
    let store = MemoryStore::new();
    let text = "overall = { concurrency = 2, shared = true }\n[shared]\non_outage = 'closed'";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let permits = [one.request("default", 1).acquire().await, one.request("default", 1).acquire().await];
    one.replace_rules(rules(&format!("margin = '1ms'\n{text}")));
    sleep(100 * MILLI).await;
    assert!(timeout(SEC, other.request("default", 1).acquire()).await.is_err(), "a third runs beside {permits:?}");
    drop(permits);
    assert!(runs(&other).await);
}

#[tokio::test(start_paused = true)]
async fn what_an_outage_means_follows_the_rules() {
    let store = MemoryStore::new();
    let text =
        |on_outage| format!("overall = {{ limit = '9/1s', shared = true }}\n[shared]\non_outage = '{on_outage}'");
    let balancer = process(&text("closed"), &store);
    balancer.replace_rules(rules(&text("open")));
    store.set_away(true);
    let log = Log::new();
    log.send(&balancer, 1, 9);
    sleep(SEC).await;
    assert_eq!(log.starts(), [40; 9]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_begins_in_an_outage_is_told_after_it() {
    let store = MemoryStore::new();
    let [one, other] = [0; 2].map(|_| process("per_key = { limit = '100/1s', shared = true }", &store));
    let log = Log::new();
    log.send_one(&one, 7);
    log.send_one(&other, 7);
    sleep(SEC).await;
    store.set_away(true);
    one.hold(Target::key(1), 3_600 * SEC).unwrap();
    sleep(2 * SEC).await;
    store.set_away(false);
    sleep(SEC).await;
    assert_eq!(other.next_start("default", 1), Ok(NextStart::After(3_597 * SEC)));
    let third = process("per_key = { limit = '100/1s', shared = true }", &store);
    log.send_one(&third, 7);
    sleep(SEC).await;
    assert_eq!(third.next_start("default", 1), Ok(NextStart::After(3_596 * SEC)));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_all_tasks_but_the_driver() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let balancer = process("overall = { limit = '100/1s', concurrency = 2, shared = true }", &MemoryStore::new());
    let permit = balancer.request("default", 1).acquire().await.unwrap();
    let ended = tokio::spawn({
        let balancer = balancer.clone();
        async move { balancer.close(SEC).await }
    });
    sleep(5 * SEC).await;
    assert_eq!(ended.await.unwrap().open, 1);
    // Its slot is still to be given back.
    assert_eq!(alive(), 2);
    drop(permit);
    sleep(MILLI).await;
    assert_eq!(alive(), 1);
    assert!(balancer.request("default", 1).acquire().await.is_err());
}

/// A store that notes how many limits it was asked of at most.
#[derive(Clone, Debug)]
struct Measured {
    store: MemoryStore,
    most: Arc<AtomicUsize>,
}

impl Store for Measured {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        self.most.fetch_max(ask.limits.len(), Ordering::Relaxed);
        self.store.ask(ask)
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.store.tell(process, news)
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.store.hear(process)
    }
}

/// The same store, from 8 ms away.
#[derive(Clone, Debug)]
struct Far(MemoryStore);

impl Store for Far {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        Box::pin(async {
            sleep(4 * MILLI).await;
            let reply = self.0.ask(ask).await;
            sleep(4 * MILLI).await;
            reply
        })
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.0.tell(process, news)
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.0.hear(process)
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_is_told_of_bit_by_bit() {
    let store = Measured { store: MemoryStore::new(), most: Arc::default() };
    let rules = rules("per_key = { limit = '20/60s', shared = true }");
    let balancer = Balancer::builder(rules).shared(store.clone()).build();
    store.store.set_away(true);
    let log = Log::new();
    for key in 0..10_000 {
        log.send_one(&balancer, key);
    }
    sleep(10 * SEC).await;
    assert_eq!(log.starts().len(), 10_000);
    store.store.set_away(false);
    sleep(SEC).await;
    assert_eq!(store.store.names().len(), 10_000);
    assert_eq!(store.most.load(Ordering::Relaxed), 1_024);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_back_though_a_key_with_numbers_of_its_own_comes() {
    let store = MemoryStore::new();
    store.set_latency(50 * MILLI);
    let text = "per_key = { concurrency = 1, shared = true }\n[keys.own]\ndefault = '5/1s'";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let permit = one.request("default", "x").acquire().await.unwrap();
    let waits = tokio::spawn(async move { other.request("default", "x").acquire().await.map(drop) });
    sleep(SEC).await;
    let log = Log::new();
    // A question is out, the slot becomes free, and then that key comes.
    log.send_one(&one, 1);
    sleep(10 * MILLI).await;
    drop(permit);
    sleep(10 * MILLI).await;
    let own = one.run("default", "own", async |_| Ok::<_, Failure<()>>(()));
    let (own, waits) = tokio::join!(own, timeout(SEC, waits));
    own.unwrap();
    assert_eq!(waits.unwrap().unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn spacing_is_counted_as_of_the_last_moment_too() {
    for quota in ["10/1s smooth", "10/1s burst 1"] {
        let store = MemoryStore::new();
        store.set_latency(50 * MILLI);
        let [one, other] =
            [0; 2].map(|_| process(&format!("overall = {{ limit = '{quota}', shared = true }}"), &store));
        let log = Log::new();
        log.send_one(&one, 1);
        log.send_one(&other, 1);
        sleep(2 * SEC).await;
        let before = log.starts().len();
        // The store gives at 2.025 s what starts at 2.07 s: its answer takes longer than its question.
        log.send_one(&one, 1);
        sleep(10 * MILLI).await;
        store.set_latency(90 * MILLI);
        sleep(30 * MILLI).await;
        store.set_latency(Duration::ZERO);
        sleep(86 * MILLI).await;
        // At 2.126 s there would be room again, had it been started at once.
        log.send_one(&other, 1);
        sleep(SEC).await;
        assert_eq!(log.starts()[before..], [2_070, 2_227], "{quota}");
    }
}

/// The key's record went before the store had heard that its slot was free.
#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_free_in_an_outage_is_told_after_it_though_its_key_rests() {
    let store = MemoryStore::new();
    let text = "per_key = { concurrency = 1, shared = true }\n[shared]\non_outage = 'closed'";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    let permit = one.request("default", 1).acquire().await.unwrap();
    store.set_away(true);
    sleep(SEC).await;
    drop(permit);
    sleep(5 * SEC).await;
    store.set_away(false);
    sleep(SEC).await;
    assert!(runs(&other).await);
    // It goes all the same once that is done.
    sleep(3 * SEC).await;
    assert_eq!(one.snapshot().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn keys_of_an_outage_go_when_nothing_is_left_of_them() {
    let store = MemoryStore::new();
    let balancer = process("per_key = { limit = '4/1s', concurrency = 4, shared = true }", &store);
    assert!(runs(&balancer).await);
    sleep(SEC).await;
    store.set_away(true);
    let log = Log::new();
    for key in 0..1_000 {
        log.send_one(&balancer, key);
        sleep(10 * MILLI).await;
    }
    assert_eq!(log.starts().len(), 1_000);
    sleep(3 * SEC).await;
    // Of those that were asked for with no answer the store may count slots; it never heard of the others.
    let asked = balancer.snapshot().keys;
    assert!(asked < 10, "{asked} keys");
    store.set_away(false);
    sleep(5 * SEC).await;
    assert_eq!(balancer.snapshot().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_more_limits_than_its_rule_waits_for_what_the_store_said() {
    let store = MemoryStore::new();
    let text = "[rules]\na = { per_key = '10/1s', shared = true }\n[keys.5]\na = ['3/1s', '9/60s']";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    for _ in 0..9 {
        drop(one.request("a", 5).acquire().await.unwrap());
    }
    let (asked, begin) = (store.asked(), Instant::now());
    drop(other.request("a", 5).acquire().await.unwrap());
    assert!(begin.elapsed() > 50 * SEC, "{:?}", begin.elapsed());
    assert!(store.asked() - asked < 10, "{} questions", store.asked() - asked);
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_is_not_to_wait_waits_for_the_store() {
    let store = MemoryStore::new();
    store.set_latency(10 * MILLI);
    let balancer = process("overall = { limit = '1/1s', shared = true }", &store);
    let submit = || balancer.request("default", 1).fail_fast().submit(async |_| Ok::<_, Failure<()>>(()));
    assert_eq!(submit().unwrap().await, Ok(()));
    let refused = submit().map(drop);
    assert!(matches!(refused, Err(Refused::NotNow { next_start: NextStart::After(_) })), "{refused:?}");
}

/// Each turn of whoever waits was over before it could have asked, from where it is.
#[tokio::test(start_paused = true)]
async fn a_busy_process_leaves_slots_to_one_that_is_farther_away() {
    let near = MemoryStore::new();
    let far = Far(near.clone());
    let text = "overall = { concurrency = 1, shared = true }";
    let [one, other] = [process(text, &near), Balancer::builder(rules(text)).shared(far).build()]
        .map(|balancer| (balancer, Log::new()));
    for (balancer, log) in [&one, &other] {
        let (balancer, log) = (balancer.clone(), log.clone());
        tokio::spawn(async move {
            loop {
                let permit = balancer.request("default", 1).acquire().await.unwrap();
                log.note();
                sleep(20 * MILLI).await;
                drop(permit);
            }
        });
    }
    sleep(10 * SEC).await;
    let starts = [one.1, other.1].map(|log| log.starts().len());
    assert!(starts[1] * 3 > starts[0], "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_begins_just_before_the_end_is_told() {
    let store = MemoryStore::new();
    let text = "per_key = { limit = '100/1s', shared = true }";
    let [one, other] = [0; 2].map(|_| process(text, &store));
    assert!(runs(&one).await && runs(&other).await);
    one.hold(Target::key(1), 60 * SEC).unwrap();
    drop(one);
    sleep(SEC).await;
    assert_eq!(other.next_start("default", 1), Ok(NextStart::After(59 * SEC)));
}
