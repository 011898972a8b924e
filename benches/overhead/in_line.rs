//! A request that waits, in the engine alone: enqueue, park, grant, claim, finish.

use std::hint::black_box;
use std::time::Instant as Stopwatch;

use request_balancer::Rules;
use request_balancer::engine::{Claim, Entry, Instant, RequestId, RuleId, Scheduler};

use crate::report::Line;

const PER_KEY: usize = 5;
const ROUNDS: usize = 5;

/// What wakes a request, as large as a waker of the standard library.
type Wake = (u64, u64);

pub(crate) fn measure() -> Vec<Line> {
    let mut lines = Vec::new();
    for keys in [1_000, 100_000] {
        let nanos = (0..ROUNDS).map(|_| drain(keys)).fold(f64::INFINITY, f64::min);
        lines.push(Line::new(format!("in line, {keys} keys in turn: enqueue to finish"), nanos, "ns"));
    }
    for (what, keys, per_key) in [
        ("one for each of 100000 keys", 100_000, 1),
        ("5 for each of 20000 keys", 20_000, 5),
        ("100000 for one key", 1, 100_000),
    ] {
        let what = format!("in line, {what}: memory per request, its share of its key included");
        lines.push(Line::new(what, bytes_per_request(keys, per_key), "bytes"));
    }
    lines
}

/// Nanoseconds per request from its entry to its end, [`PER_KEY`] for each key, all in line at first.
fn drain(keys: usize) -> f64 {
    let mut crowd = Crowd::new(keys);
    let began = Stopwatch::now();
    crowd.fill(keys, PER_KEY);
    let mut now = Instant::ZERO;
    let mut finished = 0;
    let mut woken = Vec::new();
    loop {
        crowd.scheduler.dispatch(now);
        // A start may be followed by grants at once.
        while !crowd.scheduler.take_wakes().is_empty() {
            std::mem::swap(crowd.scheduler.take_wakes(), &mut woken);
            for (place, _) in woken.drain(..) {
                let id = crowd.requests[place as usize];
                if let Claim::Started { .. } = black_box(crowd.scheduler.claim(now, id)) {
                    crowd.scheduler.finish(now, id);
                    finished += 1;
                }
            }
        }
        if finished == keys * PER_KEY {
            break;
        }
        match crowd.scheduler.next_wake() {
            Some(wake) => now = now.max(wake),
            None => panic!("{finished} of {} started and nothing more to do", keys * PER_KEY),
        }
    }
    began.elapsed().as_nanos() as f64 / finished as f64
}

/// Bytes that the engine holds per request in line, its keys' records included.
fn bytes_per_request(keys: usize, per_key: usize) -> f64 {
    let mut crowd = Crowd::new(keys);
    crowd.requests.reserve(keys * per_key);
    let held = allocation_counter::measure(|| {
        crowd.fill(keys, per_key);
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

    /// Puts requests in line, one of each key and then again one of each.
    fn fill(&mut self, keys: usize, per_key: usize) {
        let Self { scheduler, requests } = self;
        let keys: Vec<_> = (0..keys).map(|tag| scheduler.add_key(Instant::ZERO, tag as u64)).collect();
        for _ in 0..per_key {
            for &key in &keys {
                let id = scheduler.enqueue(Instant::ZERO, key, RuleId(0), Entry::default()).expect("room in line");
                scheduler.set_waker(id, (requests.len() as u64, 0));
                requests.push(id);
            }
        }
    }
}
