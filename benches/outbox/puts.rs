//! Puts in a second, single and many at once, beside bare syncs of the disk and the common home-made way.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use request_balancer::outbox::Outbox;

use super::{Folder, balancer, send, text};
use crate::report::Line;

/// How long each contestant works.
const TURN: Duration = Duration::from_millis(1_500);

pub(crate) async fn measure() -> Vec<Line> {
    let mut lines = vec![per_second("one append and sync of the bare disk", syncs())];
    for callers in [1, 64] {
        let plural = if callers == 1 { "caller" } else { "callers at once" };
        lines.push(per_second(&format!("put, queued, {callers} {plural}"), puts(callers, true).await));
        lines.push(per_second(&format!("put, sent and erased, {callers} {plural}"), puts(callers, false).await));
    }
    lines.push(per_second("`put_all` of 1,000, queued: messages", put_all().await));
    for stored in [100, 1_000, 10_000] {
        lines.push(per_second(
            &format!("a JSON file rewritten and synced for each, with {stored} stored"),
            rewrites(stored),
        ));
    }
    lines
}

fn per_second(what: &str, (count, took): (u64, Duration)) -> Line {
    Line::new(what, count as f64 / took.as_secs_f64(), "1/s")
}

fn syncs() -> (u64, Duration) {
    let folder = Folder::new("syncs");
    let mut file = File::create(folder.file("log")).expect("a file");
    let bytes = text();
    count(|| {
        file.write_all(bytes.as_bytes()).expect("room");
        file.sync_data().expect("a disk in order");
    })
}

/// `queued`: nothing starts meanwhile.
async fn puts(callers: usize, queued: bool) -> (u64, Duration) {
    let (folder, balancer) = (Folder::new("puts"), balancer());
    let outbox = Outbox::open(folder.file("outbox.redb"), &balancer, send).await.expect("a new file");
    if queued {
        balancer.pause_all();
    }
    let begin = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let outbox = outbox.clone();
            tokio::spawn(async move {
                let (text, mut count) = (text(), 0);
                while begin.elapsed() < TURN {
                    outbox.put("send", caller, &text).await.expect("room");
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("no panic");
    }
    let took = begin.elapsed();
    outbox.close(Duration::from_secs(1)).await.expect("a disk in order");
    (count, took)
}

async fn put_all() -> (u64, Duration) {
    let (folder, balancer) = (Folder::new("all"), balancer());
    let outbox = Outbox::open(folder.file("outbox.redb"), &balancer, send).await.expect("a new file");
    balancer.pause_all();
    let (text, begin, mut count) = (text(), Instant::now(), 0);
    while begin.elapsed() < TURN {
        outbox.put_all((0..1_000).map(|key| ("send", key, &text))).await.expect("room");
        count += 1_000;
    }
    (count, begin.elapsed())
}

/// Adds a message and takes one away, with a new file under another name that is synced and renamed each time.
fn rewrites(stored: usize) -> (u64, Duration) {
    let folder = Folder::new("rewrites");
    let (path, fresh) = (folder.file("outbox.json"), folder.file("outbox.json.new"));
    let mut messages = vec![text(); stored];
    let write = |messages: &[String]| {
        let mut file = File::create(&fresh).expect("a file");
        file.write_all(&serde_json::to_vec(messages).expect("JSON")).expect("room");
        file.sync_data().expect("a disk in order");
        fs::rename(&fresh, &path).expect("the same folder");
    };
    let (count, took) = count(|| {
        messages.push(text());
        write(&messages);
        messages.swap_remove(0);
        write(&messages);
    });
    (count, took)
}

fn count(mut work: impl FnMut()) -> (u64, Duration) {
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < TURN {
        work();
        count += 1;
    }
    (count, begin.elapsed())
}
