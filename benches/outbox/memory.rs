//! What a million messages take of the heap, of one key and of as many keys: while they are put, after a start, and while
//! they are delivered.

use std::path::Path;
use std::time::Duration;

use request_balancer::outbox::Outbox;
use tokio::time::sleep;

use super::{Folder, HEAP, balancer, send, text};
use crate::report::Line;

/// Whatever is stored: 16 MiB are the file's cache.
const MOST: f64 = 64.0;

pub(crate) async fn measure(million: u64) -> Vec<Line> {
    let folder = Folder::new("memory");
    let mut lines = Vec::new();
    for (keys, whose, name) in [(1, "one key", "one.redb"), (million, "as many keys", "many.redb")] {
        let path = folder.file(name);
        let stored = [
            ("while they are put", put(&path, million, keys).await),
            ("after a start, while nothing may be sent", opened(&path).await),
            ("while the first tenth is sent", delivering(&path, million).await),
        ];
        for (when, bytes) in stored {
            let mib = bytes as f64 / f64::from(1 << 20);
            let line = Line::new(format!("{million} stored for {whose}, heap {when}"), mib, "MiB");
            lines.push(line.bar("at most 64 MiB", mib <= MOST));
        }
    }
    lines
}

/// Puts them, a thousand at a time, while nothing may be sent: the most that this takes.
async fn put(path: &Path, million: u64, keys: u64) -> usize {
    let (balancer, text) = (balancer(), text());
    balancer.pause_all();
    let before = before();
    let outbox = Outbox::builder(&balancer).max_messages(u64::MAX).max_bytes(u64::MAX);
    let outbox = outbox.open(path, send).await.expect("a new file");
    for first in (0..million).step_by(1_000) {
        let many = first..million.min(first + 1_000);
        outbox.put_all(many.map(|number| ("send", number % keys, &text))).await.expect("room");
    }
    let most = HEAP.peak_usage().saturating_sub(before);
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    most
}

async fn opened(path: &Path) -> usize {
    let balancer = balancer();
    balancer.pause_all();
    let before = before();
    let outbox = Outbox::open(path, &balancer, send).await.expect("a file in order");
    // All queues are looked through.
    sleep(Duration::from_secs(5)).await;
    let most = HEAP.peak_usage().saturating_sub(before);
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    most
}

async fn delivering(path: &Path, million: u64) -> usize {
    let balancer = balancer();
    let before = before();
    let outbox = Outbox::open(path, &balancer, send).await.expect("a file in order");
    while outbox.len() > million - million / 10 {
        sleep(Duration::from_millis(10)).await;
    }
    let most = HEAP.peak_usage().saturating_sub(before);
    outbox.close(Duration::ZERO).await.expect("a disk in order");
    most
}

/// What is allocated now; from here on the most counts.
fn before() -> usize {
    HEAP.reset_peak_usage();
    HEAP.current_usage()
}
