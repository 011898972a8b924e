//! A request that waits, in the engine alone: enqueue, park, grant, claim, finish. And what an idle key leaves.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::{Duration, Instant as Stopwatch};

use request_balancer::engine::{Claim, Entry, Instant, RequestId, RuleId, Scheduler};
use request_balancer::{Balancer, Rules};
use tokio::runtime::Builder;

use crate::report::Line;

const PER_KEY: usize = 5;
const ROUNDS: usize = 5;

/// What wakes a request, as large as a waker of the standard library, which is never zero either.
type Wake = (NonZeroU64, u64);

/// Nanoseconds and bytes per request, by the keys that there are.
const IN_TURN: [(usize, f64); 3] = [(1_000, 200.0), (100_000, 300.0), (1_000_000, 350.0)];
const AT_RANDOM: [(usize, f64); 3] = [(1_000, 200.0), (100_000, 900.0), (1_000_000, 1_700.0)];

pub(crate) fn measure() -> Vec<Line> {
    let mut lines = Vec::new();
    for (order, bars) in [(Order::InTurn, IN_TURN), (Order::Random, AT_RANDOM)] {
        for (keys, bar) in bars {
            let rounds = if keys > 100_000 { 1 } else { ROUNDS };
            let nanos = (0..rounds).map(|_| drain(keys, order)).fold(f64::INFINITY, f64::min);
            let what = format!("in line, {keys} keys, {}: enqueue to finish", order.name());
            lines.push(Line::new(what, nanos, "ns").bar(format!("at most {bar}"), nanos <= bar));
        }
    }
    for (what, keys, per_key, bar) in [
        ("one for each of 100000 keys", 100_000, 1, 200.0),
        ("5 for each of 20000 keys", 20_000, 5, 95.0),
        ("100000 for one key", 1, 100_000, 64.0),
    ] {
        let what = format!("in line, {what}: memory per request, its share of its key included");
        let bytes = bytes_per_request(keys, per_key);
        lines.push(Line::new(what, bytes, "bytes").bar(format!("at most {bar:.0}"), bytes <= bar));
    }
    lines.extend(idle_key());
    lines.extend(large());
    lines
}

/// In which order requests come.
#[derive(Clone, Copy)]
enum Order {
    InTurn,
    Random,
}

impl Order {
    const fn name(self) -> &'static str {
        match self {
            Self::InTurn => "in turn",
            Self::Random => "at random",
        }
    }
}

/// What is left of a key that has no work, while its window is open and after it.
fn idle_key() -> [Line; 2] {
    const KEYS: i64 = 100_000;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let _entered = runtime.enter();
    let balancer = Balancer::new("per_key = '1/1s'".parse::<Rules>().expect("sound rules"));
    let keys = allocation_counter::measure(|| {
        for key in 0..KEYS {
            drop(balancer.request("default", key).try_acquire().expect("nothing in its way"));
        }
    });
    assert_eq!(balancer.snapshot().keys as i64, KEYS);
    let gone = allocation_counter::measure(|| {
        runtime.block_on(tokio::time::advance(Duration::from_secs(2)));
        // Each call looks at some of them.
        while balancer.snapshot().keys > 0 {}
    });
    let per_key = |bytes: i64| bytes as f64 / KEYS as f64;
    let (open, left) = (per_key(keys.bytes_current), per_key(keys.bytes_current + gone.bytes_current));
    [
        Line::new("idle key, its 1/1s window open, its place in the registry included", open, "bytes")
            .bar("at most 200", open <= 200.0),
        Line::new("idle key, after its window", left.round(), "bytes").bar("0", left < 0.5),
    ]
}

/// What the machine takes to read one of a million lines of 64 bytes at random, each of which tells where the next one
/// is: the least that anything costs which has to look for its record.
fn miss() -> Line {
    const LINES: usize = 1_000_000;
    let order = shuffled(LINES);
    let mut next = vec![[0_usize; 8]; LINES];
    for pair in order.windows(2) {
        next[pair[0]][0] = pair[1];
    }
    let began = Stopwatch::now();
    let mut place = order[0];
    for _ in 1..LINES {
        place = black_box(next[place][0]);
    }
    let nanos = began.elapsed().as_nanos() as f64 / LINES as f64;
    Line::new("one read of 64 MB at random, for comparison", nanos, "ns")
}

/// Nanoseconds to withdraw one of a million that wait.
pub(crate) fn withdrawn() -> Vec<Line> {
    let mut crowd = Crowd::new(100_000);
    crowd.fill(100_000, 10, Order::InTurn);
    crowd.scheduler.dispatch(Instant::ZERO);
    // Who withdraws has its id at hand.
    fastrand::Rng::with_seed(7).shuffle(&mut crowd.requests);
    let began = Stopwatch::now();
    for &id in &crowd.requests {
        crowd.scheduler.withdraw(Instant::ZERO, id);
    }
    let nanos = began.elapsed().as_nanos() as f64 / crowd.requests.len() as f64;
    let what = "withdraw, 1000000 in line for 100000 keys, at random";
    vec![Line::new(what, nanos, "ns").bar("at most 200", nanos <= 200.0), miss()]
}

/// Five million in line for a million keys.
fn large() -> Vec<Line> {
    const KEYS: usize = 1_000_000;
    let mut crowd = Crowd::new(KEYS);
    crowd.requests.reserve(KEYS * PER_KEY);
    let began = Stopwatch::now();
    let held = allocation_counter::measure(|| {
        crowd.fill(KEYS, PER_KEY, Order::InTurn);
        crowd.scheduler.dispatch(Instant::ZERO);
    });
    let bytes = held.bytes_current as f64 / (KEYS * PER_KEY) as f64;
    let mut turns = Histogram::default();
    crowd.drain(KEYS * PER_KEY, &mut turns);
    let nanos = began.elapsed().as_nanos() as f64 / (KEYS * PER_KEY) as f64;
    while let Some(wake) = crowd.scheduler.next_wake() {
        crowd.scheduler.dispatch(wake);
    }
    let left = crowd.scheduler.snapshot(Instant::NEVER).keys as f64;
    let mut lines = vec![
        Line::new("5000000 in line for 1000000 keys: enqueue to finish", nanos, "ns").bar("at most 1000", nanos <= 1e3),
        Line::new("5000000 in line for 1000000 keys: memory per request", bytes, "bytes")
            .bar("at most 110", bytes <= 110.0),
        Line::new("5000000 in line for 1000000 keys: keys left after the last window", left, "1").bar("0", left == 0.0),
    ];
    lines.extend(turns.lines());
    lines
}

/// How long turns took, by powers of two: so long the owner's lock is held.
#[derive(Default)]
struct Histogram(Vec<u64>);

impl Histogram {
    fn note(&mut self, nanos: u64) {
        let power = 64 - nanos.leading_zeros() as usize;
        self.0.resize(self.0.len().max(power + 1), 0);
        self.0[power] += 1;
    }

    fn lines(&self) -> Vec<Line> {
        let all: u64 = self.0.iter().sum();
        let mut below = 0;
        let mut lines = Vec::new();
        for (power, &count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            below += count;
            let what = format!("a turn at 1000000 keys: below {} ns", 1_u64 << power);
            lines.push(Line::new(what, below as f64 * 100.0 / all as f64, "% of turns"));
        }
        lines
    }
}

/// Numbers below `count` in an order without a pattern, always the same.
fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut numbers);
    numbers
}

/// Nanoseconds per request from its entry to its end, [`PER_KEY`] for each key, all in line at first.
fn drain(keys: usize, order: Order) -> f64 {
    let mut crowd = Crowd::new(keys);
    let began = Stopwatch::now();
    crowd.fill(keys, PER_KEY, order);
    crowd.drain(keys * PER_KEY, &mut Histogram::default());
    began.elapsed().as_nanos() as f64 / (keys * PER_KEY) as f64
}

/// Bytes that the engine holds per request in line, its keys' records included.
fn bytes_per_request(keys: usize, per_key: usize) -> f64 {
    let mut crowd = Crowd::new(keys);
    crowd.requests.reserve(keys * per_key);
    let held = allocation_counter::measure(|| {
        crowd.fill(keys, per_key, Order::InTurn);
        crowd.scheduler.dispatch(Instant::ZERO);
    });
    held.bytes_current as f64 / (keys * per_key) as f64
}

/// Requests of many keys: one call a second for each, and overall so many that a turn of all keys takes ten seconds.
struct Crowd {
    scheduler: Scheduler<Wake>,
    requests: Vec<RequestId>,
}

impl Crowd {
    fn new(keys: usize) -> Self {
        let rules = format!("per_key = '1/1s'\noverall = '{}/1s'", keys.div_ceil(10));
        let rules: Rules = rules.parse().expect("sound rules");
        Self { scheduler: Scheduler::new(rules.plan()), requests: Vec::new() }
    }

    /// Puts requests in line, one of each key and then again one of each; or as many in random order.
    fn fill(&mut self, keys: usize, per_key: usize, order: Order) {
        let Self { scheduler, requests } = self;
        let keys: Vec<_> = (0..keys).map(|tag| scheduler.add_key(Instant::ZERO, tag as u64)).collect();
        let order = match order {
            Order::InTurn => Vec::new(),
            Order::Random => shuffled(keys.len()),
        };
        for _ in 0..per_key {
            for place in 0..keys.len() {
                let key = keys[order.get(place).copied().unwrap_or(place)];
                let id = scheduler.enqueue(Instant::ZERO, key, RuleId(0), Entry::default()).expect("room in line");
                let number = NonZeroU64::MIN.saturating_add(requests.len() as u64);
                scheduler.set_waker(id, (number, 0));
                requests.push(id);
            }
        }
    }

    /// Starts and ends them all.
    fn drain(&mut self, count: usize, turns: &mut Histogram) {
        let mut now = Instant::ZERO;
        let mut finished = 0;
        let mut woken = Vec::new();
        loop {
            let began = Stopwatch::now();
            self.scheduler.dispatch(now);
            turns.note(began.elapsed().as_nanos() as u64);
            // A start may be followed by grants at once.
            while !self.scheduler.take_wakes().is_empty() {
                std::mem::swap(self.scheduler.take_wakes(), &mut woken);
                for (number, _) in woken.drain(..) {
                    let id = self.requests[number.get() as usize - 1];
                    if let Claim::Started { .. } = black_box(self.scheduler.claim(now, id)) {
                        self.scheduler.finish(now, id);
                        finished += 1;
                    }
                }
            }
            if finished == count {
                return;
            }
            match self.scheduler.next_wake() {
                Some(wake) => now = now.max(wake),
                None => panic!("{finished} of {count} started and nothing more to do"),
            }
        }
    }
}
