//! What a start costs under a limit that processes share: starts per second, waits, round trips, bytes in the store.
//!
//! It starts a server of its own, and processes that are this program again. Times are of this machine: trust the ratios.

#[path = "../../tests/redis_server/mod.rs"]
mod redis_server;
#[path = "../report/mod.rs"]
mod report;

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis_server::RedisServer;
use report::Line;
use request_balancer::engine::{Anchor, LimitKind, Nanos, Take};
use request_balancer::shared::{Ask, AskedLimit, Redis, Store as _};
use request_balancer::{Balancer, Failure, Rules};

const SECONDS: u64 = 2;
const TASKS: u64 = 50;
const KEYS: u64 = 10_000;

/// What is measured.
struct Case {
    name: &'static str,
    /// `balancer` or `alone`: one call of the script for each request, without a balancer.
    way: &'static str,
    rules: &'static str,
    keys: u64,
}

const HOT: &str = "overall = { limit = '1000000/1s', shared = true }";
const EACH: &str = "per_key = { limit = '1000/1s', shared = true }";
const EACH_CALL: &str = ", a call each";
const CASES: &[Case] = &[
    Case { name: "one hot limit", way: "balancer", rules: HOT, keys: 1 },
    Case { name: "one hot limit, a call each", way: "alone", rules: HOT, keys: 1 },
    Case { name: "10,000 keys", way: "balancer", rules: EACH, keys: KEYS },
    Case { name: "10,000 keys, a call each", way: "alone", rules: EACH, keys: KEYS },
];

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("worker") {
        let words: Vec<String> = words.collect();
        return worker(&words);
    }
    let starts: Vec<_> = CASES.iter().flat_map(|case| [1, 4].map(|processes| measure(case, processes))).collect();
    let bytes = bytes();
    if report::wants_json() {
        let lines = starts.iter().flat_map(|measured| measured.lines(beside(&starts, measured)));
        return report::print_json(&lines.chain(bytes).collect::<Vec<_>>());
    }
    println!("| limit | processes | starts/s | round trips a start | wait p50 | p99 |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for Measured { name, processes, starts, trips, median, late } in starts {
        println!("| {name} | {processes} | {starts} | {trips:.3} | {median} µs | {late} µs |");
    }
    println!("\n| full | bytes in the store |\n| --- | ---: |");
    for Line { what, value, .. } in bytes {
        println!("| {what} | {value} |");
    }
}

/// How many a call of the store for each starts where a balancer does so.
fn beside(all: &[Measured], measured: &Measured) -> Option<u64> {
    let name = format!("{}{EACH_CALL}", measured.name);
    all.iter().find(|other| other.name == name && other.processes == measured.processes).map(|other| other.starts)
}

/// What one case showed; waits are in microseconds.
struct Measured {
    name: &'static str,
    processes: usize,
    starts: u64,
    trips: f64,
    median: u64,
    late: u64,
}

impl Measured {
    fn lines(&self, beside: Option<u64>) -> [Line; 4] {
        let Self { name, processes, starts, trips, median, late } = self;
        let line = |what: &str, value, unit| Line::new(format!("{name}, {processes} processes: {what}"), value, unit);
        let all = line("starts", *starts as f64, "1/s");
        let all = match beside {
            Some(each) => all.bar(format!("at least a call each: {each}"), *starts >= each),
            None => all,
        };
        [
            all,
            line("round trips a start", *trips, ""),
            line("wait p50", *median as f64, "µs"),
            line("wait p99", *late as f64, "µs"),
        ]
    }
}

fn measure(case: &Case, processes: usize) -> Measured {
    let server = RedisServer::start();
    let url = server.url();
    let start = |_| {
        let words = ["worker", &url, case.way, case.rules, &case.keys.to_string()];
        let program = std::env::current_exe().expect("this program's path");
        Command::new(program).args(words).stdout(Stdio::piped()).spawn().expect("this program again")
    };
    let workers: Vec<_> = (0..processes).map(start).collect();
    let (mut starts, mut waits) = (0, Vec::new());
    for mut worker in workers {
        let mut text = String::new();
        worker.stdout.take().expect("its output").read_to_string(&mut text).expect("text");
        worker.wait().expect("its end");
        let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().expect("a number"));
        starts += numbers.next().expect("how many started");
        waits.extend(numbers);
    }
    waits.sort_unstable();
    let stats: String = ask(&server, &["INFO", "commandstats"]);
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok());
    let at = |part: usize| waits[(waits.len() * part / 100).min(waits.len() - 1)];
    Measured {
        name: case.name,
        processes,
        starts: starts / SECONDS,
        trips: calls.unwrap_or(0) as f64 / starts as f64,
        median: at(50),
        late: at(99),
    }
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.expect("an answer")
    })
}

fn rules(text: &str, url: &str) -> Rules {
    format!("{text}\n[shared]\nurl = '{url}'").parse().expect("rules")
}

/// Starts as much as it can, and prints how much that was and a sample of the waits, in microseconds.
#[tokio::main(flavor = "current_thread")]
async fn worker(words: &[String]) {
    let [url, way, text, keys] = words else { panic!("found {words:?}, expected an address, a way, rules and keys") };
    let (rules, keys) = (rules(text, url), keys.parse::<u64>().expect("a number"));
    let store = Redis::connect(rules.shared()).expect("a store");
    let balancer = Balancer::builder(rules).shared(store.clone()).build();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let next = Arc::new(AtomicU64::new(u64::from(std::process::id()) * 7_919));
    let tasks = (0..TASKS).map(|_| {
        let (balancer, store, next, is_alone) = (balancer.clone(), store.clone(), Arc::clone(&next), way == "alone");
        tokio::spawn(async move {
            let mut waits = Vec::new();
            while Instant::now() < until {
                let key = next.fetch_add(1, Ordering::Relaxed) % keys;
                let begin = Instant::now();
                if is_alone {
                    store.ask(question(keys, key)).await.expect("an answer");
                } else {
                    balancer.run("default", key, async |_| Ok::<_, Failure<()>>(())).await.expect("a start");
                }
                waits.push(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            waits
        })
    });
    let mut waits = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        waits.extend(task.await.expect("a task"));
    }
    let sample: Vec<String> = waits.iter().step_by(97).map(u64::to_string).collect();
    println!("{} {}", waits.len(), sample.join(" "));
}

/// One request in a question of its own.
fn question(keys: u64, key: u64) -> Ask {
    let (name, count) = if keys == 1 { ("overall:t".to_owned(), 1_000_000) } else { (format!("key:{key}"), 1_000) };
    Ask {
        process: 1,
        number: 1,
        lag: Duration::from_millis(2),
        lease: Duration::from_secs(30),
        limits: vec![limit(&name, count, Nanos::from_secs(1))],
        requests: vec![vec![Take { line: 0, cost: 1, reserve: 0 }]],
    }
}

fn limit(name: &str, count: u32, period: Nanos) -> AskedLimit {
    let anchor = if period.is_zero() { Anchor::End } else { Anchor::Start };
    let kind = LimitKind::Window { count, period, anchor, grain: Nanos::ZERO };
    AskedLimit::new(format!("{{rb}}:v1:{name}"), kind)
}

/// How much a full limit needs in the store.
fn bytes() -> Vec<Line> {
    let server = RedisServer::start();
    let rules = rules("overall = { limit = '1/1s', shared = true }", &server.url());
    let minute = Nanos::from_secs(60);
    let spaced = LimitKind::Spaced { interval: Nanos::from_secs(3), largest: 1 };
    let limits = [
        ("a window of 1", limit("w1", 1, minute), 1),
        ("a window of 30", limit("w30", 30, minute), 30),
        ("a window of 300", limit("w300", 300, minute), 300),
        ("a window of 1,000", limit("w1000", 1_000, minute), 1_000),
        ("a window of 1,001 or more", limit("t3000", 3_000, minute), 3_000),
        ("spacing or a bucket", AskedLimit { kind: spaced, ..limit("s", 1, minute) }, 1),
        ("a cap, for each process", limit("c", 9, Nanos::ZERO), 9),
    ];
    let measure = |(name, limit, cost): (&str, AskedLimit, u32)| {
        let key = limit.name.to_string();
        let fill =
            Ask { limits: vec![limit], requests: vec![vec![Take { line: 0, cost, reserve: 0 }]], ..question(1, 1) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = Redis::connect(rules.shared()).expect("a store");
        let reply = runtime.block_on(store.ask(fill)).expect("an answer");
        assert_eq!(reply.taken, [true], "{name}");
        let bytes: u64 = ask(&server, &["MEMORY", "USAGE", &key, "SAMPLES", "0"]);
        Line::new(name, bytes as f64, "bytes")
    };
    limits.map(measure).into()
}
