//! Random histories of three balancers on one store in memory: whatever the way there takes, whoever leaves, and whether the
//! store is away for a while, no window and no cap is ever over, and everybody gets an answer.
#![cfg(feature = "shared")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use request_balancer::shared::MemoryStore;
use request_balancer::{Balancer, Failure, Rules};
use tokio::time::{Instant, sleep, timeout};

/// Histories of each kind; `HISTORIES` makes them more.
fn histories() -> u64 {
    std::env::var("HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// What is counted, in microseconds.
#[derive(Debug)]
struct World {
    overall: (u32, u64),
    per_key: (u32, u64),
    cap: Option<u32>,
}

impl World {
    fn random(random: &mut Rng, with_cap: bool) -> Self {
        let mut window = |most: u32| (random.u32(3..=most), random.u64(1..=20) * 100_000);
        let (overall, per_key) = (window(20), window(8));
        Self { overall, per_key, cap: with_cap.then(|| random.u32(1..=4)) }
    }

    fn rules(&self, on_outage: &str) -> Rules {
        let Self { overall: (count, span), per_key: (each, each_span), cap } = self;
        let cap = cap.map_or(String::new(), |cap| format!("concurrency = {cap}, "));
        let text = format!(
            "overall = {{ limit = '{count}/{span}us', {cap}shared = true }}\n\
             per_key = {{ limit = '{each}/{each_span}us', shared = true }}\n\
             [rules]\na = {{}}\nb = {{ priority = 2 }}\n[lanes.2]\npace = false\n\
             [shared]\nprocesses = 3\nlease = '3s'\non_outage = '{on_outage}'"
        );
        text.parse().unwrap()
    }
}

/// Starts and ends, as they happened.
#[derive(Default)]
struct Seen {
    starts: Vec<(u64, u64, u32)>,
    running: u32,
    most_running: u32,
}

/// The most of a cost in any half-open window.
fn most_in<'a>(starts: impl Iterator<Item = &'a (u64, u64, u32)>, span: u64) -> u32 {
    let starts: Vec<_> = starts.collect();
    let (mut first, mut inside, mut most) = (0, 0, 0);
    for (at, _, cost) in &starts {
        inside += cost;
        while starts[first].0 + span <= *at {
            inside -= starts[first].2;
            first += 1;
        }
        most = most.max(inside);
    }
    most
}

fn check(seed: u64, world: &World, seen: &Seen) {
    let (count, span) = world.overall;
    let most = most_in(seen.starts.iter(), span);
    assert!(most <= count, "seed {seed}: {most} in {world:?}");
    let mut keys: BTreeMap<u64, Vec<(u64, u64, u32)>> = BTreeMap::new();
    for start in &seen.starts {
        keys.entry(start.1).or_default().push(*start);
    }
    let (each, span) = world.per_key;
    for (key, starts) in keys {
        let most = most_in(starts.iter(), span);
        assert!(most <= each, "seed {seed}: {most} of key {key} in {world:?}");
    }
    if let Some(cap) = world.cap {
        assert!(seen.most_running <= cap, "seed {seed}: {} at once in {world:?}", seen.most_running);
    }
}

/// Three balancers send requests at random; some of them give up waiting. Returns how many starts there were.
async fn run(seed: u64, on_outage: Option<&str>, with_cap: bool) -> usize {
    let mut random = Rng::with_seed(seed);
    let world = World::random(&mut random, with_cap);
    let store = MemoryStore::new();
    store.set_latency(Duration::from_micros(random.u64(0..30_000)));
    let rules = world.rules(on_outage.unwrap_or("closed"));
    let balancers: Vec<_> = (0..3).map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build()).collect();
    let begin = Instant::now();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut tasks = Vec::new();
    let largest = world.overall.0.min(world.per_key.0) / 3;
    for _ in 0..random.usize(20..90) {
        let balancer = random.choice(&balancers).unwrap().clone();
        let seen = Arc::clone(&seen);
        let (after, runs) = (random.u64(0..3_000), random.u64(0..200));
        let (key, rule) = (random.u64(0..3), if random.bool() { "a" } else { "b" });
        let cost = if random.u8(0..4) == 0 { random.u32(1..=largest.max(1)) } else { 1 };
        let patience = if random.u8(0..6) == 0 { random.u64(1..2_000) } else { 600_000 };
        tasks.push(tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            let work = async |_| {
                {
                    let mut seen = seen.lock().unwrap();
                    let at = u64::try_from(begin.elapsed().as_micros()).unwrap();
                    seen.starts.push((at, key, cost));
                    seen.running += 1;
                    seen.most_running = seen.most_running.max(seen.running);
                }
                let _ended = Ended(&seen);
                sleep(Duration::from_millis(runs)).await;
                Ok::<_, Failure<()>>(())
            };
            let request = balancer.request(rule, key).cost(cost).run(work);
            match timeout(Duration::from_millis(patience), request).await {
                Ok(answer) => answer.unwrap(),
                // Who waits for ten minutes waits for ever.
                Err(_) => assert!(patience < 600_000, "seed {seed}: no answer"),
            }
        }));
    }
    if on_outage.is_some() {
        sleep(Duration::from_millis(random.u64(0..2_500))).await;
        store.set_away(true);
        sleep(Duration::from_millis(random.u64(0..6_000))).await;
        store.set_away(false);
    }
    for task in tasks {
        task.await.unwrap();
    }
    check(seed, &world, &seen.lock().unwrap());
    // Nothing is kept once it says nothing any more.
    sleep(Duration::from_secs(8)).await;
    assert!(store.names().is_empty(), "seed {seed}: {:?}", store.names());
    seen.lock().unwrap().starts.len()
}

/// An attempt that runs.
struct Ended<'a>(&'a Mutex<Seen>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().running -= 1;
    }
}

async fn all(on_outage: Option<&str>, with_cap: bool) {
    let mut starts = 0;
    for seed in 0..histories() {
        starts += run(seed, on_outage, with_cap).await;
    }
    assert!(starts as u64 > histories() * 20, "{starts} starts");
}

#[tokio::test(start_paused = true)]
async fn three_balancers_are_never_over() {
    all(None, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_closes_what_it_keeps() {
    all(Some("closed"), true).await;
}

#[tokio::test(start_paused = true)]
async fn parts_are_never_more_than_the_whole() {
    all(Some("local-share"), false).await;
}
