//! Limits that processes share on a real server: field cases, and what servers do.
#![cfg(feature = "redis")]

mod redis_server;

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_server::RedisServer;
use request_balancer::shared::Redis;
use request_balancer::{Balancer, Failure, NextStart, Rules, Target};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;

const MILLI: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Rules with this store, whose names begin with `rb`.
fn rules(server: &RedisServer, text: &str) -> Rules {
    format!("{text}\n[shared]\nurl = '{}'\nlease = '2s'\nprocesses = 3", server.url()).parse().unwrap()
}

fn process(server: &RedisServer, text: &str) -> Balancer {
    let rules = rules(server, text);
    let store = Redis::connect(rules.shared()).unwrap();
    Balancer::builder(rules).shared(store).build()
}

async fn start(balancer: &Balancer, key: u64) {
    balancer.run("default", key, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
}

/// Asks the server itself.
async fn call<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

/// Waits until it is so, at most a few seconds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < 10 * SEC, "never came: {what}");
        sleep(5 * MILLI).await;
    }
}

/// Microseconds since 1970: the time of the server, which runs on this machine.
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The most in any half-open window of this many microseconds.
fn most_in(starts: &[u64], window: u64) -> usize {
    let mut starts = starts.to_vec();
    starts.sort_unstable();
    let mut most = 0;
    let mut first = 0;
    for (last, at) in starts.iter().enumerate() {
        while starts[first] + window <= *at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[tokio::test]
async fn real_clock_two_balancers_keep_to_one_window() {
    let server = RedisServer::start();
    let text = "overall = { limit = '20/300ms', shared = true }";
    let balancers = [process(&server, text), process(&server, text)];
    let starts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks = (0..120_usize).map(|at| {
        let (balancer, starts) = (balancers[at % 2].clone(), Arc::clone(&starts));
        tokio::spawn(async move {
            let note = async |_| {
                starts.lock().unwrap().push(now());
                Ok::<_, Failure<()>>(())
            };
            balancer.run("default", 1, note).await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let starts = starts.lock().unwrap();
    assert_eq!(starts.len(), 120);
    assert!(most_in(&starts, 300_000) <= 20, "{}", most_in(&starts, 300_000));
}

#[tokio::test]
async fn real_clock_every_kind_of_limit_is_kept() {
    let server = RedisServer::start();
    let text = "overall = { limit = '5000/1s', concurrency = 3, shared = true }\nper_key = { limit = ['40/1s smooth', '9/100ms burst 3'], shared = true }";
    let balancer = process(&server, text);
    let begin = Instant::now();
    for _ in 0..9 {
        start(&balancer, 1).await;
    }
    // Eight times the spacing of 25 ms.
    assert!(begin.elapsed() >= 200 * MILLI, "{:?}", begin.elapsed());
    let names: Vec<String> = call(&server, &["KEYS", "*"]).await;
    for name in &names {
        let left: i64 = call(&server, &["PTTL", name]).await;
        assert!(left != -1, "{name} stays for ever");
    }
}

#[tokio::test]
async fn real_clock_fr_017_slots_of_a_killed_process_come_back_with_the_lease() {
    let server = RedisServer::start();
    let text = "per_key = { concurrency = 1, shared = true }\noverall = { limit = '90/60s', shared = true }";
    let mut worker = Worker::start(&server, text, "hold");
    assert_eq!(worker.line(), "held");
    worker.kill();
    let before: i64 = call(&server, &["LLEN", "{rb}:v1:overall:w60000000"]).await;
    let balancer = process(&server, text);
    let begin = Instant::now();
    start(&balancer, 1).await;
    let waited = begin.elapsed();
    assert!(waited > 500 * MILLI && waited < 3 * SEC, "{waited:?}");
    // Nothing else was wiped: its start counts on, beside what the other was given, once or, if it was late, again.
    let after: i64 = call(&server, &["LLEN", "{rb}:v1:overall:w60000000"]).await;
    assert!(after > before, "{after} after {before}");
}

#[tokio::test]
async fn real_clock_fr_032_nothing_is_kept_of_an_idle_key() {
    let server = RedisServer::start();
    let balancer = process(&server, "per_key = { limit = '3/400ms', shared = true }");
    start(&balancer, 7).await;
    let names: Vec<String> = call(&server, &["KEYS", "*:7"]).await;
    assert_eq!(names, ["{rb}:v1:key:w400000:7"]);
    sleep(450 * MILLI).await;
    let names: Vec<String> = call(&server, &["KEYS", "*"]).await;
    assert!(names.iter().all(|name| !name.ends_with(":7")), "{names:?}");
    until("an empty server", async || call::<Vec<String>>(&server, &["KEYS", "*"]).await.is_empty()).await;
}

#[tokio::test]
async fn real_clock_fr_116_connections_and_tasks_end_with_the_last_handle() {
    let server = RedisServer::start();
    let balancer = process(&server, "overall = { limit = '90/1s', concurrency = 4, shared = true }");
    for _ in 0..10 {
        start(&balancer, 1).await;
    }
    let clients = async || {
        let list: String = call(&server, &["CLIENT", "LIST"]).await;
        // The one that asks is a client, too.
        list.lines().count() - 1
    };
    until("two connections", async || clients().await == 2).await;
    drop(balancer);
    let begin = Instant::now();
    until("no connections", async || clients().await == 0).await;
    assert!(begin.elapsed() < SEC, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn real_clock_fr_139_scripts_are_loaded_again() {
    let server = RedisServer::start();
    let balancer = process(&server, "overall = { limit = '5/100ms', shared = true }");
    start(&balancer, 1).await;
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let balancer = balancer.clone();
            tokio::spawn(async move { start(&balancer, 1).await })
        })
        .collect();
    let _: String = call(&server, &["SCRIPT", "FLUSH"]).await;
    for task in waiting {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn real_clock_fr_139_a_restart_fails_nobody() {
    let mut server = RedisServer::start();
    let balancer = process(&server, "overall = { limit = '5/100ms', shared = true }");
    start(&balancer, 1).await;
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let balancer = balancer.clone();
            tokio::spawn(async move { start(&balancer, 1).await })
        })
        .collect();
    sleep(50 * MILLI).await;
    server.kill();
    server.restart();
    for task in waiting {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn real_clock_a_hold_stops_all_and_those_who_come_later() {
    let server = RedisServer::start();
    let text = "per_key = { limit = '100/1s', shared = true }";
    let [one, other] = [process(&server, text), process(&server, text)];
    start(&one, 7).await;
    start(&other, 7).await;
    let subscribed = async || {
        let counts: (String, i64) = call(&server, &["PUBSUB", "NUMSUB", "{rb}:v1:news"]).await;
        counts.1 == 2
    };
    until("two subscribers", subscribed).await;
    one.hold(Target::key(1), 5 * SEC).unwrap();
    let held = |balancer: &Balancer| matches!(balancer.next_start("default", 1), Ok(NextStart::After(_)));
    until("a hold at the other one", async || held(&other)).await;
    assert_eq!(other.next_start("default", 2), Ok(NextStart::Now));
    let third = process(&server, text);
    start(&third, 9).await;
    until("a hold at the third", async || held(&third)).await;
}

/// Passes on what connections say until it is told to go silent; then those that there are say nothing more, and are not
/// closed either. Returns where it listens.
async fn silenced(server: &RedisServer, silent: Arc<Notify>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (silent, server) = (Arc::clone(&silent), server.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                    () = silent.notified() => pending().await,
                }
            });
        }
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn real_clock_a_connection_that_goes_silent_is_made_anew() {
    let server = RedisServer::start();
    let text = "per_key = { limit = '100/1s', shared = true }";
    let silent = Arc::new(Notify::new());
    let url = silenced(&server, Arc::clone(&silent)).await;
    let far: Rules = format!("{text}\n[shared]\nurl = '{url}'").parse().unwrap();
    let store = Redis::connect(far.shared()).unwrap();
    let (one, other) = (Balancer::builder(far).shared(store).build(), process(&server, text));
    start(&one, 7).await;
    start(&other, 7).await;
    let subscribed = async || {
        let counts: (String, i64) = call(&server, &["PUBSUB", "NUMSUB", "{rb}:v1:news"]).await;
        counts.1 == 2
    };
    until("two subscribers", subscribed).await;
    silent.notify_waiters();
    other.hold(Target::key(1), 60 * SEC).unwrap();
    let held = async || matches!(one.next_start("default", 1), Ok(NextStart::After(_)));
    until("a hold on a connection made anew", held).await;
}

/// A process of its own: this program, which runs one of the tasks below.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    fn start(server: &RedisServer, text: &str, task: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["real_clock_worker", "--exact", "--nocapture", "--ignored"]);
        command.env("WORKER_URL", server.url()).env("WORKER_RULES", text).env("WORKER_TASK", task);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // What the test harness says is not the worker's word.
                if let Some(word) = line.split("worker: ").nth(1) {
                    let _ = sender.send(word.to_owned());
                }
            }
        });
        Self { child, stdin, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(30 * SEC).expect("a word of the worker")
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and returns when it started what.
    fn end(mut self) -> Vec<(u64, u64)> {
        drop(self.stdin.take());
        let mut starts = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(30 * SEC) {
            let Some((at, key)) = line.split_once(' ') else { continue };
            starts.push((at.parse().unwrap(), key.parse().unwrap()));
        }
        let _ = self.child.wait();
        starts
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the processes run that others start: does nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of other tests, which start it"]
async fn real_clock_worker() {
    let Ok(url) = std::env::var("WORKER_URL") else { return };
    let text = std::env::var("WORKER_RULES").unwrap();
    let rules: Rules = format!("{text}\n[shared]\nurl = '{url}'\nlease = '2s'\non_outage = 'closed'").parse().unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    let balancer = Balancer::builder(rules).shared(store).build();
    let say = |word: &str| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "worker: {word}").unwrap();
        out.flush().unwrap();
    };
    if std::env::var("WORKER_TASK").unwrap() == "hold" {
        let _permit = balancer.request("default", 1).acquire().await.unwrap();
        say("held");
        sleep(60 * SEC).await;
        return;
    }
    // Keeps forty requests of four keys waiting until its input ends, and says of each start when it was.
    let over = Arc::new(Notify::new());
    let callers = (0..40_u64).map(|caller| {
        let (balancer, key) = (balancer.clone(), caller % 4);
        tokio::spawn(async move {
            loop {
                let note = async |_| {
                    let at = now();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "worker: {at} {key}").unwrap();
                    Ok::<_, Failure<()>>(())
                };
                if balancer.run("default", key, note).await.is_err() {
                    return;
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let ended = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lines().count();
        ended.notify_one();
    });
    over.notified().await;
    let _ = balancer.close(Duration::ZERO).await;
    for caller in callers {
        let _ = caller.await;
    }
}

const BUSY: &str = "overall = { limit = '30/200ms', shared = true }\nper_key = { limit = '10/200ms', shared = true }";

/// Runs three workers for a while and lets something happen; then nothing may have been over, and nothing is kept.
async fn with_workers(what: impl AsyncFnOnce(&mut RedisServer, &mut Vec<Worker>)) -> usize {
    let mut server = RedisServer::start();
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(&server, BUSY, "busy")).collect();
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let parse = |line: String| {
        let (at, key) = line.split_once(' ').unwrap();
        (at.parse().unwrap(), key.parse().unwrap())
    };
    // All of them are at work.
    seen.extend(workers.iter().map(|worker| parse(worker.line())));
    what(&mut server, &mut workers).await;
    for worker in workers.drain(..) {
        seen.extend(worker.end());
    }
    let all: Vec<u64> = seen.iter().map(|(at, _)| *at).collect();
    assert!(most_in(&all, 200_000) <= 30, "{} in a window of 30", most_in(&all, 200_000));
    let mut keys: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (at, key) in &seen {
        keys.entry(*key).or_default().push(*at);
    }
    for (key, starts) in keys {
        assert!(most_in(&starts, 200_000) <= 10, "key {key}: {} in a window of 10", most_in(&starts, 200_000));
    }
    until("an empty server", async || call::<Vec<String>>(&server, &["KEYS", "*"]).await.is_empty()).await;
    seen.len()
}

#[tokio::test]
async fn real_clock_processes_keep_to_the_limit_together() {
    let starts = with_workers(async |_, _| sleep(2 * SEC).await).await;
    // Ten windows, and what a busy machine takes of them.
    assert!(starts >= 100, "{starts} starts");
}

#[tokio::test]
async fn real_clock_a_killed_process_stops_nobody() {
    with_workers(async |_, workers| {
        sleep(500 * MILLI).await;
        workers[0].kill();
        sleep(SEC).await;
    })
    .await;
}

#[tokio::test]
async fn real_clock_a_stopped_process_starts_nothing_late() {
    with_workers(async |_, workers| {
        for _ in 0..3 {
            workers[0].signal("-STOP");
            sleep(400 * MILLI).await;
            workers[0].signal("-CONT");
            sleep(100 * MILLI).await;
        }
    })
    .await;
}

#[tokio::test]
async fn real_clock_forgotten_scripts_and_keys_change_nothing() {
    with_workers(async |server, _| {
        for round in 0..20 {
            sleep(50 * MILLI).await;
            if round % 5 == 0 {
                let _: String = call(server, &["SCRIPT", "FLUSH"]).await;
            }
            let kill: redis::Value = call(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
            drop(kill);
        }
    })
    .await;
}

#[tokio::test]
async fn real_clock_keys_that_are_evicted_are_told_again() {
    with_workers(async |server, _| {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..10 {
            sleep(150 * MILLI).await;
            let names: Vec<String> = call(server, &["KEYS", "*:w200000*"]).await;
            if let Some(name) = random.choice(&names) {
                let _: i64 = call(server, &["DEL", name]).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn real_clock_a_slow_server_is_waited_for() {
    with_workers(async |server, _| {
        for _ in 0..15 {
            // It does nothing else meanwhile.
            let _: redis::Value = call(server, &["DEBUG", "SLEEP", "0.05"]).await;
            sleep(20 * MILLI).await;
        }
    })
    .await;
}

#[tokio::test]
async fn real_clock_a_server_that_begins_anew_is_told_what_started() {
    with_workers(async |server, _| {
        for _ in 0..2 {
            sleep(300 * MILLI).await;
            server.kill();
            sleep(500 * MILLI).await;
            server.restart();
            sleep(SEC).await;
        }
    })
    .await;
}
