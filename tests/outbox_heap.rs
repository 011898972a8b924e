//! What an outbox has in memory: no more for many keys than for few.
#![cfg(feature = "outbox")]

mod post;

use std::fs;
use std::ops::Range;
use std::path::Path;

use peak_alloc::PeakAlloc;
use post::{NOON, Post, Reader, Way, open, secs};
use request_balancer::outbox::{Outbox, RedbStore};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// More than are known at a time, and more than the file's cache has room for.
const FEW: u32 = 20_000;

const KEYS: u32 = 40_000;

/// Bytes for each of the others: a key that is known takes more, beside what the file's cache goes on to take.
const MOST: usize = 300;

async fn put_many(post: &Post, keys: Range<u32>, text: &str) {
    let text = text.to_owned();
    for first in keys.clone().step_by(1_000) {
        post.put_all((first..first + 1_000).map(|key| ("a", key, &text))).await.unwrap();
    }
    post::settle().await;
}

/// Each key that messages came for while the line was full was known until it had its turn.
#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_their_turn_take_no_memory() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outbox-heap");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (reader, balancer) = (Reader::new(), post::balancer("[rules]\na = { concurrency = 1000 }"));
    let store = RedbStore::open(folder.join("outbox.redb")).unwrap();
    let post = open(Outbox::builder(&balancer).wall(NOON), store, &reader).await;
    // The first ones run for as long as it takes to put the others: these wait for a place, and are not held.
    reader.tell("long", vec![Way::Takes(secs(60)); 1_000]);
    put_many(&post, 0..1_000, "long").await;
    let text = "x".repeat(600);
    put_many(&post, 1_000..FEW, &text).await;
    let before = HEAP.current_usage();
    put_many(&post, FEW..KEYS, &text).await;
    let taken = HEAP.current_usage().saturating_sub(before);
    assert!(taken < MOST * (KEYS - FEW) as usize, "{taken} bytes for {KEYS} keys, beside {before} for {FEW}");
    post.close(secs(1)).await.unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
