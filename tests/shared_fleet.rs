//! Several processes on one real server, and what happens to processes, servers and the ways between them.
#![cfg(feature = "redis")]

mod fleet;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use fleet::redis_server::RedisServer;
use fleet::{Attempt, LEASE, MILLI, SEC, Worker, call, most_at_once, most_in, rules, until};
use request_balancer::shared::Redis;
use request_balancer::{Balancer, Failure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

const WINDOW: Duration = Duration::from_millis(200);
/// 30 in a window, of each key 10.
const BUSY: &str = "overall = { limit = '30/200ms', shared = true }\nper_key = { limit = '10/200ms', shared = true }";
/// The same, and five at once.
const CAPPED: &str = "overall = { limit = '30/200ms', concurrency = 5, shared = true }\n\
                      per_key = { limit = '10/200ms', shared = true }";

/// What the processes run that others start: does nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of other tests, which start it"]
async fn real_clock_worker() {
    fleet::work().await;
}

fn most_in_micros(attempts: &[Attempt], window: Duration) -> usize {
    let starts: Vec<i64> = attempts.iter().map(|attempt| attempt.from).collect();
    most_in(&starts, i64::try_from(window.as_micros()).unwrap())
}

/// Nothing is kept for longer than the longest window and the lease together.
async fn nothing_stays(server: &RedisServer, longest: Duration) {
    // The clock goes last: with what was written last.
    let most = longest.as_millis() + longest.as_millis() / 10 + LEASE.as_millis() + 300;
    for name in call::<Vec<String>>(server, &["KEYS", "*"]).await {
        let left: i64 = call(server, &["PTTL", &name]).await;
        assert!(left != -1 && i128::from(left) <= i128::try_from(most).unwrap(), "{name} stays for {left} ms");
    }
    until("an empty server", async || call::<Vec<String>>(server, &["KEYS", "*"]).await.is_empty()).await;
}

/// Runs three workers for a while and lets something happen; then nothing may have been over, all that are left go on, and
/// nothing is kept. Returns how many attempts there were.
async fn with_workers(text: &str, what: impl AsyncFnOnce(&mut RedisServer, &mut Vec<Worker>)) -> usize {
    let mut server = RedisServer::start();
    let task = if text == CAPPED { "20" } else { "0" };
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&server.url(), text, task)).collect();
    workers.iter_mut().for_each(Worker::await_start);
    what(&mut server, &mut workers).await;
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.end());
    }
    let most = most_in_micros(&seen, WINDOW);
    assert!(most <= 30, "{most} in a window of 30");
    let mut keys: BTreeMap<u64, Vec<Attempt>> = BTreeMap::new();
    for attempt in &seen {
        keys.entry(attempt.key).or_default().push(*attempt);
    }
    for (key, attempts) in keys {
        let most = most_in_micros(&attempts, WINDOW);
        assert!(most <= 10, "key {key}: {most} in a window of 10");
    }
    if text == CAPPED {
        let most = most_at_once(&seen);
        assert!(most <= 5, "{most} of 5 at once");
    }
    nothing_stays(&server, WINDOW).await;
    seen.len()
}

/// All that are left start something from now on.
fn all_go_on(workers: &mut [Worker]) {
    workers.iter_mut().for_each(Worker::await_start);
}

#[tokio::test]
async fn real_clock_processes_keep_to_the_limit_together() {
    let starts = with_workers(BUSY, async |_, _| sleep(2 * SEC).await).await;
    // Ten windows, and what a busy machine takes of them.
    assert!(starts >= 100, "{starts} starts");
}

#[tokio::test]
async fn real_clock_a_killed_process_leaves_its_slots_to_the_others() {
    let starts = with_workers(CAPPED, async |_, workers| {
        sleep(500 * MILLI).await;
        workers.remove(0).kill();
        all_go_on(workers);
        // Its slots are back by then.
        sleep(LEASE).await;
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 80, "{starts} starts");
}

#[tokio::test]
async fn real_clock_a_stopped_process_starts_nothing_late() {
    let starts = with_workers(CAPPED, async |_, workers| {
        for _ in 0..3 {
            workers[0].signal("-STOP");
            sleep(400 * MILLI).await;
            workers[0].signal("-CONT");
            sleep(100 * MILLI).await;
        }
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 60, "{starts} starts");
}

#[tokio::test]
async fn real_clock_forgotten_scripts_and_cut_connections_change_nothing() {
    let starts = with_workers(CAPPED, async |server, workers| {
        for round in 0..20 {
            sleep(50 * MILLI).await;
            if round % 5 == 0 {
                let _: String = call(server, &["SCRIPT", "FLUSH"]).await;
            }
            let kind = if round % 2 == 0 { "normal" } else { "pubsub" };
            let _: i64 = call(server, &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
        }
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 30, "{starts} starts");
}

#[tokio::test]
async fn real_clock_keys_that_are_evicted_are_told_again() {
    let starts = with_workers(BUSY, async |server, workers| {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..10 {
            sleep(150 * MILLI).await;
            let names: Vec<String> = call(server, &["KEYS", "*:w200000*"]).await;
            if let Some(name) = random.choice(&names) {
                let _: i64 = call(server, &["DEL", name]).await;
            }
        }
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 30, "{starts} starts");
}

#[tokio::test]
async fn real_clock_a_server_that_stands_now_and_then_is_waited_for() {
    let starts = with_workers(BUSY, async |server, workers| {
        for _ in 0..15 {
            // It does nothing else meanwhile.
            let _: redis::Value = call(server, &["DEBUG", "SLEEP", "0.05"]).await;
            sleep(20 * MILLI).await;
        }
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 30, "{starts} starts");
}

#[tokio::test]
async fn real_clock_a_server_that_begins_anew_is_told_what_started() {
    let starts = with_workers(BUSY, async |server, workers| {
        for _ in 0..2 {
            sleep(300 * MILLI).await;
            server.kill();
            sleep(500 * MILLI).await;
            server.restart();
            sleep(SEC).await;
        }
        all_go_on(workers);
    })
    .await;
    assert!(starts >= 60, "{starts} starts");
}

/// Passes on what connections say, each word so much later. Returns where it listens.
async fn far_away(server: &RedisServer, late: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.url().trim_start_matches("redis://").to_owned();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&server).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
                let (sender, mut words) = mpsc::unbounded_channel();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 65_536];
                    while let Ok(length @ 1..) = from.read(&mut bytes).await {
                        let _ = sender.send((tokio::time::Instant::now() + late, bytes[..length].to_vec()));
                    }
                });
                tokio::spawn(async move {
                    while let Some((at, word)) = words.recv().await {
                        sleep_until(at).await;
                        if to.write_all(&word).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    format!("redis://{address}")
}

/// With threads of its own for what stands in between: the test's waits for the processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clock_a_server_fifty_milliseconds_away_is_used_all_the_same() {
    let server = RedisServer::start();
    let url = far_away(&server, 25 * MILLI).await;
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&url, CAPPED, "20")).collect();
    sleep(4 * SEC).await;
    all_go_on(&mut workers);
    let seen: Vec<Attempt> = workers.into_iter().flat_map(Worker::end).collect();
    let (most, at_once) = (most_in_micros(&seen, WINDOW), most_at_once(&seen));
    assert!(most <= 30 && at_once <= 5, "{most} in a window of 30, {at_once} of 5 at once");
    assert!(seen.len() >= 30, "{} starts", seen.len());
    nothing_stays(&server, WINDOW).await;
}

#[tokio::test]
async fn real_clock_fr_017_slots_of_a_killed_process_come_back_with_the_lease() {
    let server = RedisServer::start();
    let text = "per_key = { concurrency = 1, shared = true }\noverall = { limit = '90/60s', shared = true }";
    let mut worker = Worker::start(&server.url(), text, "hold");
    assert_eq!(worker.line(), "held");
    worker.kill();
    let length = async || call::<i64>(&server, &["LLEN", "{rb}:v1:overall:w60000000"]).await;
    let before = length().await;
    let rules = rules(&server.url(), text);
    let store = Redis::connect(rules.shared()).unwrap();
    let balancer = Balancer::builder(rules).shared(store).build();
    let begin = Instant::now();
    balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    let waited = begin.elapsed();
    assert!(waited > 500 * MILLI && waited < 3 * SEC, "{waited:?}");
    // Nothing else was wiped: its start counts on, beside what the other was given, once or, if it was late, again.
    let after = length().await;
    assert!(after > before, "{after} after {before}");
}

/// A library that, loaded before all others, moves the clock on the wall.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, time);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) time->tv_sec += atoi(getenv("CLOCK_OFF"));
    return result;
}
"#;

/// Each process keeps to the server's time, whatever its own clock shows.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn real_clock_fr_138_clocks_of_processes_count_for_nothing() {
    let server = RedisServer::start();
    let folder = std::env::temp_dir().join(format!("request-balancer-clock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, CLOCK).unwrap();
    // The one that links Rust programs.
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    assert!(status.expect("cc, which Rust needs too").success());
    let text = "overall = { limit = '150/1s', shared = true }";
    let workers = [-1, 0, 1].map(|off: i64| {
        Worker::spawn(&server.url(), text, "0", off * 1_000_000, |command| {
            command.env("LD_PRELOAD", &library).env("CLOCK_OFF", off.to_string());
        })
    });
    sleep(20 * SEC).await;
    let each = workers.map(Worker::end);
    let seen: Vec<Attempt> = each.iter().flatten().copied().collect();
    let most = most_in_micros(&seen, SEC);
    assert!(most <= 150, "{most} in a window of 150");
    // Twenty windows, and what a busy machine takes of them; everybody has a part.
    assert!(seen.len() >= 1_500, "{} starts", seen.len());
    assert!(each.iter().all(|attempts| attempts.len() >= 150), "{:?}", each.map(|attempts| attempts.len()));
    let _ = std::fs::remove_dir_all(&folder);
    nothing_stays(&server, SEC).await;
}
