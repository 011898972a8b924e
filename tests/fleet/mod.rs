//! Processes that share limits: this test program again, and what they say of their starts.

#[path = "../redis_server/mod.rs"]
pub(crate) mod redis_server;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_server::RedisServer;
use request_balancer::shared::Redis;
use request_balancer::{Balancer, Failure, Rules};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
/// How long slots of a process are kept that is not heard of.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Rules with the store at an address, whose names begin with `rb`.
pub(crate) fn rules(url: &str, text: &str) -> Rules {
    format!("{text}\n[shared]\nurl = '{url}'\nlease = '2s'\non_outage = 'closed'").parse().unwrap()
}

/// Asks the server itself.
pub(crate) async fn call<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

/// Waits until it is so, at most a few seconds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < 10 * SEC, "never came: {what}");
        sleep(5 * MILLI).await;
    }
}

/// Microseconds since 1970, as this process has it.
pub(crate) fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The most in any half-open window of this many microseconds.
pub(crate) fn most_in(starts: &[i64], window: i64) -> usize {
    let mut starts = starts.to_vec();
    starts.sort_unstable();
    let (mut most, mut first) = (0, 0);
    for (last, at) in starts.iter().enumerate() {
        while starts[first] + window <= *at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// An attempt of some process: its key, when it began, and when it ended or its process was killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) key: u64,
    pub(crate) from: i64,
    pub(crate) till: i64,
}

/// The most that run at once.
pub(crate) fn most_at_once(attempts: &[Attempt]) -> i32 {
    // What ends is over before what begins in the same microsecond.
    let mut changes: Vec<(i64, i32)> =
        attempts.iter().flat_map(|attempt| [(attempt.from, 1), (attempt.till, -1)]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most
}

/// A process of its own: this program, which runs [`work`].
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Its clock shows so much more than ours.
    off: i64,
    open: BTreeMap<u64, (u64, i64)>,
    attempts: Vec<Attempt>,
}

impl Worker {
    pub(crate) fn start(url: &str, text: &str, task: &str) -> Self {
        Self::spawn(url, text, task, 0, |_| {})
    }

    /// Starts one whose clock on the wall is off by so many microseconds, by what `prepare` does to its command.
    pub(crate) fn spawn(url: &str, text: &str, task: &str, off: i64, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["real_clock_worker", "--exact", "--nocapture", "--ignored"]);
        command.env("WORKER_URL", url).env("WORKER_RULES", text).env("WORKER_TASK", task);
        prepare(&mut command);
        let before = now();
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
        let worker = Self { child, stdin, lines, off, open: BTreeMap::new(), attempts: Vec::new() };
        let clock: i64 = worker.line().parse().unwrap();
        assert!((before + off..=now() + off).contains(&clock), "its clock is not off by {off} us");
        worker
    }

    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(30 * SEC).expect("a word of the worker")
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until it starts something from now on.
    pub(crate) fn await_start(&mut self) {
        let before = now();
        loop {
            let line = self.line();
            self.note(&line);
            if self.open.values().any(|(_, from)| *from >= before) {
                return;
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let at = now();
        self.child.wait().unwrap();
        while let Ok(line) = self.lines.recv_timeout(30 * SEC) {
            self.note(&line);
        }
        for (key, from) in std::mem::take(&mut self.open).into_values() {
            self.attempts.push(Attempt { key, from, till: at.max(from) });
        }
    }

    fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
        let (Some(at), Some(id)) = (number(), number()) else { panic!("{line}") };
        let (at, id) = (at - self.off, u64::try_from(id).unwrap());
        match number() {
            Some(key) => drop(self.open.insert(id, (u64::try_from(key).unwrap(), at))),
            None => {
                let (key, from) = self.open.remove(&id).unwrap();
                self.attempts.push(Attempt { key, from, till: at });
            }
        }
    }

    /// Asks it to end, unless it was killed, and returns what it did.
    pub(crate) fn end(mut self) -> Vec<Attempt> {
        drop(self.stdin.take());
        loop {
            match self.lines.recv_timeout(30 * SEC) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("a worker hangs"),
            }
        }
        let _ = self.child.wait();
        // What its end cut off.
        let cut = std::mem::take(&mut self.open).into_values().map(|(key, from)| Attempt { key, from, till: from });
        self.attempts.extend(cut);
        std::mem::take(&mut self.attempts)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "worker: {word}").unwrap();
    out.flush().unwrap();
}

/// What a process does that was started as a [`Worker`]; nothing in any other.
pub(crate) async fn work() {
    let Ok(url) = std::env::var("WORKER_URL") else { return };
    let rules = rules(&url, &std::env::var("WORKER_RULES").unwrap());
    let store = Redis::connect(rules.shared()).unwrap();
    let balancer = Balancer::builder(rules).shared(store).build();
    say(&now().to_string());
    let task = std::env::var("WORKER_TASK").unwrap();
    if task == "hold" {
        let _permit = balancer.request("default", 1).acquire().await.unwrap();
        say("held");
        sleep(60 * SEC).await;
        return;
    }
    // Keeps forty requests of four keys waiting until its input ends, and says of each attempt when it began and ended.
    let lasts: Duration = task.parse::<u32>().map(|millis| millis * MILLI).unwrap();
    let over = Arc::new(Notify::new());
    let callers = (0..40_u64).map(|caller| {
        let (balancer, key) = (balancer.clone(), caller % 4);
        tokio::spawn(async move {
            for id in (caller..).step_by(40) {
                let note = async |_| {
                    say(&format!("{} {id} {key}", now()));
                    sleep(lasts).await;
                    say(&format!("{} {id}", now()));
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
