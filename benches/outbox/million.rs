//! A million messages: how soon the first one is sent after a start, what they take of the disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use request_balancer::outbox::{Message, Outbox};
use request_balancer::{Failure, Outcome};
use tokio::sync::Notify;

use super::{Folder, Text, balancer, send, text};
use crate::report::Line;

/// Messages of so many keys.
const KEYS: u64 = 1_000;

const CHURN: u64 = 100_000;

pub(crate) async fn measure(million: u64) -> Vec<Line> {
    let mut lines = churn().await;
    let folder = Folder::new("million");
    let (clean, crashed) = (folder.file("clean.redb"), folder.file("crashed.redb"));
    fill(&clean, &crashed, million).await;
    for (path, what) in [(&clean, "a clean end"), (&crashed, "a crash")] {
        let (opened, first) = start(path).await;
        lines.push(Line::new(format!("{million} stored, opened after {what}"), opened.as_secs_f64(), "s"));
        lines.push(Line::new(format!("{million} stored, first one sent after {what}"), first.as_secs_f64(), "s"));
    }
    lines.push(Line::new(format!("{million} stored, file"), mib(&clean), "MiB"));
    let (path, tenth) = (folder.file("tenth.redb"), million / 10);
    fill(&path, &folder.file("copy.redb"), tenth).await;
    lines.push(delivered(&path, tenth).await);
    lines.push(Line::new(format!("file when {tenth} that were stored are sent"), mib(&path), "MiB"));
    lines
}

/// Stores them, and keeps a copy of the file as a crash would leave it.
async fn fill(clean: &Path, crashed: &Path, million: u64) {
    let balancer = balancer();
    balancer.pause_all();
    let outbox = Outbox::builder(&balancer).max_messages(u64::MAX).max_bytes(u64::MAX);
    let outbox = outbox.open(clean, send).await.expect("a new file");
    let text = text();
    for _ in 0..million / KEYS {
        outbox.put_all((0..KEYS).map(|key| ("send", key, &text))).await.expect("room");
    }
    fs::copy(clean, crashed).expect("room");
    outbox.close(Duration::ZERO).await.expect("a disk in order");
}

/// Opens it, and lets one message go: how long until it is open, and until that one is sent.
async fn start(path: &Path) -> (Duration, Duration) {
    let (balancer, sent) = (balancer(), Arc::new(Notify::new()));
    let told = Arc::clone(&sent);
    let begin = Instant::now();
    let handler = move |_: Message<Text>| {
        told.notify_one();
        std::future::pending::<Outcome<(), String>>()
    };
    let outbox = Outbox::open(path, &balancer, handler).await.expect("a file in order");
    let opened = begin.elapsed();
    sent.notified().await;
    let first = begin.elapsed();
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    (opened, first)
}

async fn delivered(path: &Path, messages: u64) -> Line {
    let balancer = balancer();
    let begin = Instant::now();
    let handler = async |_: Message<Text>| Ok::<_, Failure<String>>(());
    let outbox = Outbox::open(path, &balancer, handler).await.expect("a file in order");
    while !outbox.is_empty() {
        outbox.flush().await;
    }
    let took = begin.elapsed();
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    Line::new(format!("{messages} stored, delivered and erased"), messages as f64 / took.as_secs_f64(), "1/s")
}

/// A hundred thousand go through, with a thousand stored at a time.
async fn churn() -> Vec<Line> {
    let (folder, balancer) = (Folder::new("churn"), balancer());
    let path = folder.file("outbox.redb");
    let outbox = Outbox::open(&path, &balancer, send).await.expect("a new file");
    let (text, mut most) = (text(), 0.0_f64);
    for _ in 0..CHURN / KEYS {
        balancer.pause_all();
        outbox.put_all((0..KEYS).map(|key| ("send", key, &text))).await.expect("room");
        most = most.max(mib(&path));
        balancer.resume_all();
        while !outbox.is_empty() {
            outbox.flush().await;
        }
    }
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    let what = format!("file while {CHURN} go through, {KEYS} at a time");
    vec![Line::new(what, most, "MiB"), Line::new("file after that, closed", mib(&path), "MiB")]
}

fn mib(path: &Path) -> f64 {
    fs::metadata(path).expect("a file").len() as f64 / f64::from(1 << 20)
}
