//! Files that earlier versions wrote are read. With `WRITE_FIXTURE=path` in the environment, one of this version is written.
#![cfg(feature = "outbox")]

mod post;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs};

use post::{Reader, Way, balancer, secs};
use request_balancer::outbox::{Delivery, Outbox, OutboxFile};
use request_balancer::{NextStart, Scope};
use tokio::time::sleep;

const RULES: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'\nbulk = '1/1s'";

/// What the clock on the wall showed when the file was written.
fn written() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_767_225_600)
}

async fn open(path: &Path, wall: SystemTime, reader: &Reader) -> post::Post {
    let reader = reader.clone();
    let builder = Outbox::builder(&balancer(RULES)).wall(wall).retention(secs(10_000_000));
    builder.open(path, move |message| reader.clone().read(message)).await.expect("a file in order")
}

/// A message of each kind.
async fn write(path: &Path) {
    let reader = Reader::new();
    let post = open(path, written(), &reader).await;
    let text = |text: &str| text.to_owned();
    reader.tell("backs off", [Way::Ambiguous, Way::Ambiguous]);
    reader.tell("held", [Way::RetryOf(600, Scope::Key)]);
    reader.tell("dead", [Way::Transient, Way::Permanent]);
    post.put("send", 42, &text("named")).dedupe("order 17").await.unwrap();
    post.put("send", ("shop", 7), &text("backs off")).await.unwrap();
    post.put("send", "a chat", &text("dead")).dedupe("order 18").await.unwrap();
    sleep(Duration::from_millis(1_500)).await;
    post.put("send", 43, &text("held")).await.unwrap();
    post.put("send", 43, &text("behind")).await.unwrap();
    post.put_later("send", (), &text("later"), written() + secs(1_000)).await.unwrap();
    post.close(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn files_of_version_1_are_read() {
    if let Ok(path) = env::var("WRITE_FIXTURE") {
        write(Path::new(&path)).await;
        return;
    }
    let path: PathBuf = env::temp_dir().join(format!("outbox-format-{}.redb", std::process::id()));
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/outbox-v1.redb"), &path).unwrap();

    let mut file = OutboxFile::open(&path).unwrap();
    let mut listed = Vec::new();
    file.list(|message| {
        let due = message.due.map(|due| due.duration_since(written()).unwrap().as_secs());
        let text: String = message.body().unwrap();
        listed.push((message.id.get(), message.key.to_string(), text, message.attempts, message.maybe_delivered, due));
        true
    })
    .unwrap();
    let expected = [
        (4, "43", "held", 1, false, None),
        (5, "43", "behind", 0, false, None),
        (2, "(shop, 7)", "backs off", 2, true, None),
        (6, "()", "later", 0, false, Some(1_000)),
    ];
    listed.sort_by_key(|(id, ..)| expected.iter().position(|(known, ..)| known == id));
    assert_eq!(
        listed,
        expected
            .map(|(id, key, text, starts, maybe, due)| { (id, key.to_owned(), text.to_owned(), starts, maybe, due) })
    );
    let dead = file.dead().unwrap();
    assert_eq!((dead.len(), dead[0].reason.as_str(), dead[0].attempts), (1, "dead was not read", 2));
    assert_eq!((dead[0].put_at, dead[0].died_at), (written(), written() + secs(1)));
    drop(file);

    let reader = Reader::new();
    let balancer = balancer(RULES);
    let builder = Outbox::builder(&balancer).wall(written() + secs(2));
    let handler = reader.clone();
    let post: post::Post = builder.open(&path, move |message| handler.clone().read(message)).await.unwrap();
    assert_eq!(balancer.next_start("bulk", 43), Ok(NextStart::After(Duration::from_millis(599_500))));
    let named = post.put("send", 42, &"named".to_owned()).dedupe("order 17").await;
    assert_eq!(named, Ok(Delivery::Sent("named was read".to_owned())));
    sleep(secs(2_000)).await;
    assert!(post.is_empty());
    let seen: Vec<_> =
        reader.seen().into_iter().map(|seen| (seen.at.as_millis(), seen.text, seen.id, seen.number)).collect();
    let expected =
        [(1_000, "backs off", 2, 3), (599_500, "held", 4, 2), (599_500, "behind", 5, 1), (998_000, "later", 6, 1)];
    assert_eq!(seen, expected.map(|(at, text, id, number)| (at, text.to_owned(), id, number)));
    post.close(Duration::ZERO).await.unwrap();
    fs::remove_file(&path).unwrap();
}
