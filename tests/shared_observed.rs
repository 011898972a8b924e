//! What an API's own server says of a shared limit narrows it for all that share it. In a store in memory, on the paused
//! clock.
#![cfg(all(feature = "shared", feature = "headers"))]

#[allow(dead_code, reason = "some of it is for other tests")]
mod starts;

use starts::{Log, MILLI, SEC};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use request_balancer::headers::{self, Dialect, Observation};
use request_balancer::shared::{Ask, Ears, MemoryStore, News, Pending, Reply, Store, VersionedRules};
use request_balancer::{Attempt, Balancer, Failure, Rules, Target};
use tokio::time::{Instant, sleep, timeout};

const TEN: &str = "overall = { limit = '10/60s', shared = true }";

fn process(rules: &str, store: impl Store) -> Balancer {
    let rules: Rules = rules.parse().unwrap();
    Balancer::builder(rules).shared(store).build()
}

fn two(rules: &str, store: &MemoryStore) -> [Balancer; 2] {
    [0; 2].map(|_| process(rules, store.clone()))
}

/// So many are left for so many seconds.
fn left(count: u32, secs: u64) -> Observation {
    let (count, secs) = (count.to_string(), secs.to_string());
    let fields = [("X-RateLimit-Remaining", count.as_str()), ("X-RateLimit-Reset", secs.as_str())];
    headers::read(200, fields, None, SystemTime::now(), Dialect::auto())
}

/// Runs an attempt whose response says so.
async fn run(balancer: &Balancer, says: Option<&Observation>) {
    run_for(balancer, Duration::ZERO, says).await;
}

/// The same with a response after a while.
async fn run_for(balancer: &Balancer, takes: Duration, says: Option<&Observation>) {
    let call = |attempt: Attempt| {
        let says = says.cloned();
        async move {
            sleep(takes).await;
            if let Some(says) = says {
                attempt.observe(&says);
            }
            Ok::<_, Failure<()>>(())
        }
    };
    balancer.run("default", 1, call).await.unwrap();
}

/// When they started, a while from now, in milliseconds.
async fn starts(log: &Log, after: Duration) -> Vec<u128> {
    sleep(after).await;
    let mut starts = log.starts();
    starts.sort_unstable();
    starts
}

#[tokio::test(start_paused = true)]
async fn a_response_to_one_stops_the_other_within_one_way_and_it_goes_on_at_the_reset() {
    for text in ["100/60s", "2000/60s", "100/60s burst 100"] {
        let store = MemoryStore::new();
        store.set_latency(10 * MILLI);
        let [one, other] = two(&format!("overall = {{ limit = '{text}', shared = true }}"), &store);
        run(&one, None).await;
        run(&other, None).await;
        sleep(SEC).await;
        let log = Log::new();
        for _ in 0..40 {
            log.send_one(&other, 1);
            sleep(MILLI).await;
        }
        // Somebody else called that API, which has nothing left.
        let says = left(0, 20);
        tokio::spawn({
            let one = one.clone();
            async move { run(&one, Some(&says)).await }
        });
        for _ in 0..40 {
            log.send_one(&other, 1);
            sleep(MILLI).await;
        }
        let starts = starts(&log, 30 * SEC).await;
        // The response is there after 50 ms; its word is at the store 5 ms later, when what was given last is on its way back.
        let (before, after) = starts.split_at(50);
        assert_eq!((before[49], starts.len()), (60, 80), "{text}: {starts:?}");
        // Twenty seconds after the word, by the way of the refusal, and of the question and its answer.
        assert_eq!(after, [20_070; 30], "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_the_server_is_left_to_all_together() {
    for text in ["10/60s", "2000/60s", "10/60s burst 10"] {
        let rules = format!("overall = {{ limit = '{text}', shared = true }}");
        let store = MemoryStore::new();
        let all = [0; 3].map(|_| process(&rules, store.clone()));
        for balancer in &all {
            run(balancer, None).await;
        }
        run(&all[0], Some(&left(4, 30))).await;
        let log = Log::new();
        all.iter().for_each(|balancer| log.send(balancer, 1, 3));
        let starts = starts(&log, 40 * SEC).await;
        // Of ten in a minute two are left then.
        let after = if text == "10/60s" { 2 } else { 5 };
        assert_eq!(starts, [vec![0; 4], vec![30_000; after]].concat(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_narrows_nothing_asks_nothing() {
    let store = MemoryStore::new();
    let [one, other] = two(TEN, &store);
    run(&other, None).await;
    run(&one, None).await;
    let asked = store.asked();
    for count in [7, 6, 5, 4] {
        run(&one, Some(&left(count, 30))).await;
        sleep(SEC).await;
    }
    assert_eq!(store.asked(), asked + 4);
    // Neither what leaves all of it, nor what leaves no less than half of what the store would give.
    for count in [10, 2] {
        one.observe(Target::overall(), &left(count, 30)).unwrap();
        sleep(SEC).await;
    }
    assert_eq!(store.asked(), asked + 4);
    one.observe(Target::overall(), &left(1, 30)).unwrap();
    sleep(SEC).await;
    assert_eq!(store.asked(), asked + 5);
    let log = Log::new();
    log.send(&other, 1, 3);
    assert_eq!(starts(&log, 20 * SEC).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_keys_are_narrowed_one_by_one() {
    let store = MemoryStore::new();
    let [one, other] = two("per_key = { limit = '10/60s', shared = true }", &store);
    run(&other, None).await;
    run(&one, Some(&left(3, 30))).await;
    let log = Log::new();
    log.send(&other, 1, 5);
    assert_eq!(starts(&log, 20 * SEC).await, [0, 0, 0]);
    let begin = Instant::now();
    for _ in 0..10 {
        other.run("default", 2, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    }
    assert!(begin.elapsed() < SEC);
}

/// An early answer leaves less than is left, by what started since. A later one says so, and nobody waits for the reset.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_server_goes_on_when_it_leaves_more() {
    let store = MemoryStore::new();
    let [one, other] = two("overall = { limit = '100/60s', shared = true }", &store);
    run(&other, None).await;
    let log = Log::new();
    // Twenty are counted by the time the first one is answered, which was the first to be given.
    for call in 1..=20 {
        let (one, says) = (
            one.clone(),
            match call {
                1 => Some(left(20, 30)),
                20 => Some(left(70, 30)),
                _ => None,
            },
        );
        tokio::spawn(async move { run_for(&one, SEC * call, says.as_ref()).await });
    }
    sleep(1_500 * MILLI).await;
    log.send(&other, 1, 9);
    assert_eq!(starts(&log, 10 * SEC).await, [1_500]);
    // It is told with a question of its own, as the store goes by much less.
    assert_eq!(starts(&log, 15 * SEC).await, [vec![1_500], vec![20_000; 8]].concat());
}

/// What could not be told as the store was away is told when it is back.
#[tokio::test(start_paused = true)]
async fn what_was_not_answered_is_told_again() {
    let store = MemoryStore::new();
    let [one, other] = two(TEN, &store);
    run(&other, None).await;
    run(&one, None).await;
    store.set_away(true);
    one.observe(Target::overall(), &left(2, 50)).unwrap();
    sleep(30 * MILLI).await;
    store.set_away(false);
    // For two seconds each keeps to its part.
    sleep(4 * SEC).await;
    let log = Log::new();
    log.send(&other, 1, 5);
    assert_eq!(starts(&log, 20 * SEC).await, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_hears_it_with_the_next_response() {
    let store = MemoryStore::new();
    let [one, other] = two(TEN, &store);
    run(&other, None).await;
    run(&one, Some(&left(2, 50))).await;
    store.flush();
    run(&one, Some(&left(1, 40))).await;
    sleep(SEC).await;
    let log = Log::new();
    log.send(&other, 1, 5);
    assert_eq!(starts(&log, 20 * SEC).await, [0]);
}

/// Processes that have their limit for themselves get all of it, however their answers are mixed up.
#[tokio::test(start_paused = true)]
async fn answers_of_a_server_that_nobody_else_calls_cost_nothing() {
    let store = MemoryStore::new();
    store.set_latency(2 * MILLI);
    let all = [0; 4].map(|_| process("overall = { limit = '100/60s', shared = true }", store.clone()));
    let (begin, served, ended) = (Instant::now(), Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    for turn in 0..200_u64 {
        let balancer = all[turn as usize % 4].clone();
        let (served, ended) = (Arc::clone(&served), Arc::clone(&ended));
        tokio::spawn(async move {
            sleep(7 * MILLI * turn as u32).await;
            let call = async |attempt: Attempt| {
                sleep(20 * MILLI).await;
                let left_over = {
                    let mut served = served.lock().unwrap();
                    *served += 1;
                    100_u32.saturating_sub(*served)
                };
                sleep(MILLI * (200 + turn as u32 * 37 % 300)).await;
                attempt.observe(&left(left_over, 59 - begin.elapsed().as_secs()));
                Ok::<_, Failure<()>>(())
            };
            balancer.run("default", 1, call).await.unwrap();
            *ended.lock().unwrap() += 1;
        });
    }
    sleep(5 * SEC).await;
    assert_eq!((*served.lock().unwrap(), *ended.lock().unwrap()), (100, 100));
}

/// A store that hears nothing of what servers say.
#[derive(Debug)]
struct Deaf(MemoryStore);

impl Store for Deaf {
    fn ask(&self, mut ask: Ask) -> Pending<'_, Reply> {
        ask.limits.iter_mut().for_each(|limit| limit.said.clear());
        self.0.ask(ask)
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.0.tell(process, news)
    }

    fn keep_rules(&self, process: u64, rules: VersionedRules, lasts: Duration) -> Pending<'_, VersionedRules> {
        self.0.keep_rules(process, rules, lasts)
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.0.hear(process)
    }
}

/// A server that counts three seconds at a time and turns away what is too much. Others call it as well.
struct Api {
    begin: Instant,
    count: u32,
    window: u128,
    used: u32,
}

const WINDOW: u128 = 3_000;

impl Api {
    /// So many calls: whether there is room for them, how many are left, and for how many seconds.
    fn call(&mut self, calls: u32) -> (bool, u32, u64) {
        let now = self.begin.elapsed().as_millis();
        if now / WINDOW != self.window {
            (self.window, self.used) = (now / WINDOW, 0);
        }
        let fits = self.used + calls <= self.count;
        self.used = (self.used + calls).min(self.count);
        (fits, self.count - self.used, (WINDOW - now % WINDOW).div_ceil(1_000) as u64)
    }
}

/// A call of a fleet: when it started, was counted and was answered, in milliseconds, and whether there was room.
#[derive(Clone, Copy, Debug)]
struct Call {
    started: u128,
    counted: u128,
    read: u128,
    fits: bool,
}

/// What became of a fleet's calls.
#[derive(Debug, Default)]
struct Fleet {
    calls: Vec<Call>,
    /// When others called.
    others: Vec<u128>,
    /// The way to the store and back.
    latency: u128,
}

impl Fleet {
    fn refused(&self) -> usize {
        self.calls.iter().filter(|call| !call.fits).count()
    }

    /// How many were refused though somebody had heard in time of what others took, and the store.
    fn refused_in_vain(&self) -> usize {
        let is_vain = |refused: &&Call| {
            let window = refused.counted / WINDOW * WINDOW;
            let taken = self.others.iter().copied().filter(|at| (window..=refused.counted).contains(at)).max();
            let since = taken.unwrap_or(window);
            // A question may be out, the next one tells, and what was given before is under way.
            let heard = |call: &Call| {
                call.counted > since
                    && call.counted < refused.counted
                    && call.read + 2 * self.latency + 5 < refused.started
            };
            !refused.fits && self.calls.iter().any(heard)
        };
        self.calls.iter().filter(is_vain).count()
    }
}

/// Three processes whose calls take up to so long there, beside others that call the same API.
async fn fleet(seed: u64, is_deaf: bool, way: u64) -> Fleet {
    let mut random = Rng::with_seed(seed);
    let count = random.u32(10..=60);
    let store = MemoryStore::new();
    let latency = random.u32(0..8);
    store.set_latency(MILLI * latency);
    let rules = format!("overall = {{ limit = '{count}/3s', shared = true }}");
    let all = [0; 3].map(|_| match is_deaf {
        true => process(&rules, Deaf(store.clone())),
        false => process(&rules, store.clone()),
    });
    let begin = Instant::now();
    let api = Arc::new(Mutex::new(Api { begin, count, window: 0, used: 0 }));
    let seen = Arc::new(Mutex::new(Fleet { latency: latency.into(), ..Fleet::default() }));
    let mut tasks = Vec::new();
    for _ in 0..random.u32(40..140) {
        let (balancer, api, seen) = (random.choice(&all).unwrap().clone(), Arc::clone(&api), Arc::clone(&seen));
        let (after, there, back) = (random.u64(0..12_000), random.u64(0..=way), random.u64(0..60));
        tasks.push(tokio::spawn(async move {
            sleep(MILLI * after as u32).await;
            let call = async |attempt: Attempt| {
                let started = begin.elapsed().as_millis();
                sleep(MILLI * there as u32).await;
                let counted = begin.elapsed().as_millis();
                let (fits, remaining, reset) = api.lock().unwrap().call(1);
                sleep(MILLI * back as u32).await;
                attempt.observe(&left(remaining, reset));
                let read = begin.elapsed().as_millis();
                seen.lock().unwrap().calls.push(Call { started, counted, read, fits });
                Ok::<_, Failure<()>>(())
            };
            balancer.run("default", 1, call).await.unwrap();
        }));
    }
    for _ in 0..random.u32(2..12) {
        let (after, calls, api) = (random.u64(0..15_000), random.u32(0..=count / 2), Arc::clone(&api));
        seen.lock().unwrap().others.push(after.into());
        tasks.push(tokio::spawn(async move {
            sleep(MILLI * after as u32).await;
            api.lock().unwrap().call(calls);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Three ways to go on: hearing what servers say, first over ways of one length; and without that. What others take is known
/// only from the next response, and what starts until then may be refused. Afterwards nothing is, unless the ways there are so
/// different that a later start is answered first: what was given before it and not yet counted is taken for counted.
#[tokio::test(start_paused = true)]
async fn no_history_is_over() {
    let mut sums = [(0, 0); 3];
    for seed in 0..60 {
        for ((refused, in_vain), (is_deaf, way)) in sums.iter_mut().zip([(false, 0), (false, 20), (true, 0)]) {
            let seen = fleet(seed, is_deaf, way).await;
            *refused += seen.refused();
            *in_vain += seen.refused_in_vain();
        }
    }
    let [(exact, exact_in_vain), (mixed, mixed_in_vain), (deaf, deaf_in_vain)] = sums;
    assert_eq!(exact_in_vain, 0);
    assert!(exact * 3 < deaf && mixed * 2 < deaf, "{sums:?}");
    assert!(mixed_in_vain * 10 < deaf_in_vain && deaf_in_vain > 100, "{sums:?}");
}

#[tokio::test(start_paused = true)]
async fn who_missed_that_there_is_more_again_asks_when_news_are_heard_again() {
    let store = MemoryStore::new();
    let [one, other] = two(TEN, &store);
    run(&one, Some(&left(0, 3_000))).await;
    let log = Log::new();
    log.send_one(&other, 1);
    sleep(SEC).await;
    store.deafen();
    one.observe(Target::overall(), &left(5, 3_000)).unwrap();
    sleep(10 * SEC).await;
    assert_eq!(log.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_what_was_learnt_gives_its_slot_back() {
    let store = MemoryStore::new();
    let text = "overall = { concurrency = 2, shared = true }\n\
                [rules.default]\nper_key = '5/60s'\nobserve = { learn = '10/60s' }";
    let [one, other] = two(text, &store);
    for told in [Some("8"), None] {
        let call = async |attempt: Attempt| {
            attempt.check(200, told.map(|limit| ("RateLimit-Limit", limit)), None)?;
            Ok::<_, Failure<()>>(())
        };
        one.run("default", 1, call).await.unwrap();
        // What was learnt ends with the first attempt a day later whose response says nothing.
        sleep(86_400 * SEC).await;
    }
    let slots = async { tokio::join!(other.request("default", 1).acquire(), other.request("default", 2).acquire()) };
    let (first, second) = timeout(10 * SEC, slots).await.expect("both slots are free");
    drop((first.unwrap(), second.unwrap()));
}
