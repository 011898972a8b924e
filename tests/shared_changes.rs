//! Random histories of three balancers on one store, of which nothing stays as it is: other rules, numbers of single keys,
//! keys that become one, holds, costs, caps, and answers of the store that are late or lost.
#![cfg(feature = "shared")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use request_balancer::shared::{Ask, Ears, MemoryStore, News, Pending, Reply, Store};
use request_balancer::{Balancer, Failure, Rules, Target};
use tokio::time::{Instant, sleep, timeout};

const MILLI: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(3);
/// Whoever waits for longer waits for ever.
const QUIET: Duration = Duration::from_secs(300);

/// Histories of each kind; `HISTORIES` makes them more.
fn histories() -> u64 {
    std::env::var("HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

/// A store whose answers are late, or do not come although it did what it was asked.
#[derive(Clone, Debug)]
struct Moody {
    store: MemoryStore,
    random: Arc<Mutex<Rng>>,
    /// One answer of so many is bad; none if that is zero.
    one_in: u32,
}

impl Store for Moody {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        let (bad, late) = {
            let mut random = self.random.lock().unwrap();
            (self.one_in > 0 && random.u32(0..self.one_in) == 0, random.u64(0..250))
        };
        Box::pin(async move {
            // Whoever asks gives up after a while: the store has done it by then.
            let answer = self.store.ask(ask).await;
            if bad {
                sleep(Duration::from_millis(late)).await;
            }
            answer
        })
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.store.tell(process, news)
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.store.hear(process)
    }
}

/// Counts; the lengths stay the same in a history, so that the store goes on counting under the same names.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    overall: u32,
    per_key: u32,
    own: u32,
    single: u32,
    cap: u32,
}

impl Numbers {
    fn random(random: &mut Rng) -> Self {
        let mut count = |most: u32| random.u32(3..=most);
        Self { overall: count(20), per_key: count(9), own: count(12), single: count(6), cap: count(5) - 1 }
    }

    fn rules(&self, lengths: &Lengths) -> Rules {
        let Self { overall, per_key, own, single, cap } = self;
        let Lengths { overall: all, per_key: each, own: one } = lengths;
        let text = format!(
            "overall = {{ limit = '{overall}/{all}us', concurrency = {cap}, shared = true }}\n\
             per_key = {{ limit = '{per_key}/{each}us', shared = true }}\n\
             [rules]\na = {{ per_key = {{ limit = '{own}/{one}us', shared = true }} }}\nb = {{ priority = 2 }}\n\
             [lanes.2]\npace = false\n[keys.k0]\na = '{single}/{one}us'\n\
             [shared]\nprocesses = 3\nlease = '3s'\non_outage = 'closed'"
        );
        text.parse().unwrap_or_else(|findings| panic!("{findings}"))
    }

    fn largest(&self) -> u32 {
        [self.overall, self.per_key, self.own, self.single].into_iter().min().unwrap_or(1)
    }
}

#[derive(Clone, Copy, Debug)]
struct Lengths {
    overall: u64,
    per_key: u64,
    own: u64,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    at: u64,
    key: usize,
    rule: &'static str,
    cost: u32,
}

#[derive(Default)]
struct Seen {
    starts: Vec<Start>,
    running: u32,
    most_running: u32,
}

/// An attempt that runs.
struct Ended<'a>(&'a Mutex<Seen>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().running -= 1;
    }
}

/// The most of a cost in any half-open window that begins at a start in a span.
fn most_in(starts: &[Start], length: u64, from: u64, till: u64) -> u32 {
    let windows = starts.iter().enumerate().filter(|(_, start)| start.at >= from && start.at < till);
    let held = windows.map(|(position, first)| {
        starts[position..].iter().take_while(|start| start.at < first.at + length).map(|start| start.cost).sum()
    });
    held.max().unwrap_or(0)
}

struct World {
    lengths: Lengths,
    numbers: Numbers,
    /// What the numbers are from an instant on.
    changed: Option<(u64, Numbers)>,
    /// When which key became the first one.
    alias: Option<(u64, usize)>,
}

impl World {
    /// Windows that begin before the change hold at most the larger count, those after it the new one.
    fn check(&self, seed: u64, seen: &Seen) {
        let Self { lengths, numbers, changed, alias } = self;
        let of = |which: fn(&Numbers) -> u32, what: &str, length: u64, starts: &[Start]| {
            let old = which(numbers);
            let (at, new) = changed.as_ref().map_or((u64::MAX, old), |(at, numbers)| (*at, which(numbers)));
            let before = most_in(starts, length, 0, at);
            let most = if at == u64::MAX { old } else { old.max(new) };
            assert!(before <= most, "seed {seed}: {before} {what} of {most} at most");
            let after = most_in(starts, length, at, u64::MAX);
            assert!(after <= new, "seed {seed}: {after} {what} of {new} after {at} us");
        };
        of(|numbers| numbers.overall, "overall", lengths.overall, &seen.starts);
        for key in 0..3 {
            let same = |start: &&Start| start.key == key;
            let of_key: Vec<Start> = seen.starts.iter().filter(same).copied().collect();
            let of_rule: Vec<Start> = of_key.iter().filter(|start| start.rule == "a").copied().collect();
            if alias.is_some_and(|(_, other)| key == 0 || key == other) {
                continue;
            }
            of(|numbers| numbers.per_key, "of a key", lengths.per_key, &of_key);
            match key {
                0 => of(|numbers| numbers.single, "of a key with numbers of its own", lengths.own, &of_rule),
                _ => of(|numbers| numbers.own, "of a key under a rule", lengths.own, &of_rule),
            }
        }
        if let Some((at, other)) = alias {
            // What counted under the old name is left behind: from then on both are one.
            let starts = seen.starts.iter().filter(|start| start.at >= *at && (start.key == 0 || start.key == *other));
            let both: Vec<Start> = starts.copied().collect();
            of(|numbers| numbers.per_key, "of two keys that are one", lengths.per_key, &both);
        }
        let cap = changed.map_or(numbers.cap, |(_, numbers)| numbers.cap.max(self.numbers.cap));
        assert!(seen.most_running <= cap, "seed {seed}: {} of {cap} at once", seen.most_running);
    }
}

/// What happens in a history.
#[derive(Clone, Copy, Debug)]
struct What {
    /// One answer of the store of so many is bad.
    one_in: u32,
    changes: bool,
    joins: bool,
}

async fn run(seed: u64, what: What) -> usize {
    let mut random = Rng::with_seed(seed);
    let mut length = || random.u64(1..=20) * 100_000;
    let lengths = Lengths { overall: length(), per_key: length(), own: length() };
    let (first, second) = (Numbers::random(&mut random), Numbers::random(&mut random));
    let mut world = World { lengths, numbers: first, changed: None, alias: None };
    let memory = MemoryStore::new();
    memory.set_latency(Duration::from_micros(random.u64(0..20_000)));
    let store = Moody { store: memory.clone(), random: Arc::new(Mutex::new(random.fork())), one_in: what.one_in };
    let balancers: Vec<Balancer> =
        (0..3).map(|_| Balancer::builder(first.rules(&lengths)).shared(store.clone()).build()).collect();
    let begin = Instant::now();
    let micros = move || u64::try_from(begin.elapsed().as_micros()).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let largest = first.largest().min(second.largest());
    let mut tasks = Vec::new();
    for _ in 0..random.usize(30..90) {
        let (balancer, seen) = (random.choice(&balancers).unwrap().clone(), Arc::clone(&seen));
        let (after, runs) = (random.u64(0..3_000), random.u64(0..100));
        let (key, rule) = (random.usize(0..3), if random.bool() { "a" } else { "b" });
        let cost = if random.u8(0..4) == 0 { random.u32(1..=largest) } else { 1 };
        let patience = if random.u8(0..8) == 0 { Duration::from_millis(random.u64(1..2_000)) } else { QUIET };
        let again = random.u8(0..10) == 0;
        tasks.push(tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            let work = async |attempt: request_balancer::Attempt| {
                {
                    let mut seen = seen.lock().unwrap();
                    seen.starts.push(Start { at: micros(), key, rule, cost });
                    seen.running += 1;
                    seen.most_running = seen.most_running.max(seen.running);
                }
                let _ended = Ended(&seen);
                sleep(Duration::from_millis(runs)).await;
                if again && attempt.number() == 1 {
                    return Err(attempt.retry(Duration::from_millis(runs * 10)));
                }
                Ok::<_, Failure<()>>(())
            };
            let request = balancer.request(rule, format!("k{key}")).cost(cost).run(work);
            match timeout(patience, request).await {
                Ok(answer) => answer.unwrap(),
                Err(_) => assert!(patience < QUIET, "seed {seed}: no answer"),
            }
        }));
    }
    sleep(Duration::from_millis(random.u64(0..3_000))).await;
    if what.changes {
        world.changed = Some((micros(), second));
        balancers.iter().for_each(|balancer| balancer.replace_rules(second.rules(&lengths)));
        sleep(Duration::from_millis(random.u64(0..1_000))).await;
    }
    if what.joins {
        let other = random.usize(1..3);
        world.alias = Some((micros(), other));
        balancers.iter().for_each(|balancer| balancer.alias(format!("k{other}"), "k0").unwrap());
    }
    for task in tasks {
        task.await.unwrap();
    }
    world.check(seed, &seen.lock().unwrap());
    drop(balancers);
    // Nothing is kept once it says nothing any more: the longest window, and what was still on its way.
    let longest = lengths.overall.max(lengths.per_key).max(lengths.own);
    sleep(Duration::from_micros(longest) + LEASE + Duration::from_secs(1)).await;
    assert!(memory.names().is_empty(), "seed {seed}: {:?}", memory.names());
    seen.lock().unwrap().starts.len()
}

async fn all(what: What) {
    let mut starts = 0;
    for seed in 0..histories() {
        starts += run(seed, what).await;
    }
    assert!(starts as u64 > histories() * 25, "{starts} starts");
}

#[tokio::test(start_paused = true)]
async fn other_rules_keep_what_was_counted() {
    all(What { one_in: 0, changes: true, joins: false }).await;
}

#[tokio::test(start_paused = true)]
async fn late_and_lost_answers_are_counted_as_spent() {
    all(What { one_in: 6, changes: false, joins: false }).await;
}

#[tokio::test(start_paused = true)]
async fn keys_become_one_everywhere() {
    all(What { one_in: 0, changes: false, joins: true }).await;
}

#[tokio::test(start_paused = true)]
async fn all_of_it_at_once() {
    all(What { one_in: 8, changes: true, joins: true }).await;
}

/// A key that one balancer holds starts nowhere once the others have heard of it.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_anywhere_starts_nowhere() {
    for seed in 0..histories() {
        let mut random = Rng::with_seed(seed);
        let store = MemoryStore::new();
        let latency = Duration::from_micros(random.u64(0..20_000));
        store.set_latency(latency);
        let rules: Rules = "per_key = { limit = '9/100ms', shared = true }".parse().unwrap();
        let balancers: Vec<Balancer> =
            (0..3).map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build()).collect();
        let begin = Instant::now();
        let starts = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for at in 0..90 {
            let (balancer, starts, key) = (balancers[at % 3].clone(), Arc::clone(&starts), random.u64(0..2));
            let after = random.u64(0..2_000);
            tasks.push(tokio::spawn(async move {
                sleep(Duration::from_millis(after)).await;
                let note = async |_| {
                    starts.lock().unwrap().push((begin.elapsed(), key));
                    Ok::<_, Failure<()>>(())
                };
                timeout(QUIET, balancer.run("default", key, note)).await.expect("an answer").unwrap();
            }));
        }
        let lasts = Duration::from_millis(random.u64(500..1_500));
        sleep(Duration::from_millis(random.u64(300..1_000))).await;
        let held = begin.elapsed();
        random.choice(&balancers).unwrap().hold(Target::key(0_u64), lasts).unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let starts = starts.lock().unwrap();
        // The way there, and an answer that was on its way to somebody who had not heard.
        let heard = held + latency + MILLI;
        let late = starts.iter().find(|(at, key)| *key == 0 && *at > heard && *at < held + lasts);
        assert_eq!(late, None, "seed {seed}: held from {held:?} for {lasts:?}, {latency:?} away");
        assert!(starts.iter().any(|(at, key)| *key == 1 && *at > heard && *at < held + lasts), "seed {seed}");
    }
}
