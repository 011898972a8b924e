//! Balancers on one real server: field cases, and what servers do.
#![cfg(feature = "redis")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod fleet;

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use fleet::redis_server::RedisServer;
use fleet::{MILLI, SEC, call, most_in, now, until};
use request_balancer::shared::Redis;
use request_balancer::{Balancer, Failure, NextStart, Rules, Target};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;

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

/// Sends so many requests, which go on by themselves; the future waits until all have started.
fn many(balancer: &Balancer, count: usize) -> impl Future<Output = ()> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let balancer = balancer.clone();
            tokio::spawn(async move { start(&balancer, 1).await })
        })
        .collect();
    async {
        for task in tasks {
            task.await.unwrap();
        }
    }
}

/// Waits until two processes hear what others tell.
async fn two_hear(server: &RedisServer) {
    let hear = async || {
        let counts: (String, i64) = call(server, &["PUBSUB", "NUMSUB", "{rb}:v1:news"]).await;
        counts.1 == 2
    };
    until("two subscribers", hear).await;
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
    let waiting = many(&balancer, 20);
    let _: String = call(&server, &["SCRIPT", "FLUSH"]).await;
    waiting.await;
}

#[tokio::test]
async fn real_clock_fr_139_a_restart_fails_nobody() {
    let mut server = RedisServer::start();
    let balancer = process(&server, "overall = { limit = '5/100ms', shared = true }");
    start(&balancer, 1).await;
    let waiting = many(&balancer, 40);
    sleep(50 * MILLI).await;
    server.kill();
    server.restart();
    waiting.await;
}

#[tokio::test]
async fn real_clock_a_hold_stops_all_and_those_who_come_later() {
    let server = RedisServer::start();
    let text = "per_key = { limit = '100/1s', shared = true }";
    let [one, other] = [process(&server, text), process(&server, text)];
    start(&one, 7).await;
    start(&other, 7).await;
    two_hear(&server).await;
    one.hold(Target::key(1), 5 * SEC).unwrap();
    let held = |balancer: &Balancer| matches!(balancer.next_start("default", 1), Ok(NextStart::After(_)));
    until("a hold at the other one", async || held(&other)).await;
    assert_eq!(other.next_start("default", 2), Ok(NextStart::Now));
    let third = process(&server, text);
    start(&third, 9).await;
    until("a hold at the third", async || held(&third)).await;
}

#[tokio::test]
async fn real_clock_many_that_ask_at_once_share_one_connection() {
    let server = RedisServer::start();
    let rules: Rules =
        format!("overall = {{ limit = '1000/10ms', shared = true }}\n[shared]\nurl = '{}'", server.url())
            .parse()
            .unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    let balancers: Vec<_> = (0..20).map(|_| Balancer::builder(rules.clone()).shared(store.clone()).build()).collect();
    for _ in 0..20 {
        futures::future::join_all(balancers.iter().map(|balancer| start(balancer, 1))).await;
    }
    let connections = async || {
        let stats: String = call(&server, &["INFO", "stats"]).await;
        let found = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        found.and_then(|count| count.trim().parse::<u64>().ok()).unwrap()
    };
    // One that asks, one for the news of each, those of this test, and a few more if the machine is slow.
    let count = connections().await;
    assert!(count < 40, "{count} connections");
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
    two_hear(&server).await;
    silent.notify_waiters();
    other.hold(Target::key(1), 60 * SEC).unwrap();
    let held = async || matches!(one.next_start("default", 1), Ok(NextStart::After(_)));
    until("a hold on a connection made anew", held).await;
}
