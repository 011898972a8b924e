//! What an outbox has in memory: no more for many keys than for few.
#![cfg(feature = "outbox")]

mod post;

use std::fs;
use std::ops::Range;
use std::path::Path;

use peak_alloc::PeakAlloc;
use post::{NOON, Post, Reader, open, secs};
use request_balancer::Target;
use request_balancer::outbox::{Outbox, RedbStore};
use tokio::time::{sleep, timeout};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const KEYS: u32 = 80_000;

/// What more keys take when there are many: the file's cache has 16 MiB at most.
const MOST: usize = 24 << 20;

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
    balancer.hold(Target::rule("a"), secs(3_600)).unwrap();
    put_many(&post, 0..KEYS / 4, "first").await;
    let before = HEAP.current_usage();
    put_many(&post, KEYS / 4..KEYS, "first").await;
    put_many(&post, 0..2_000, "second").await;
    let taken = HEAP.current_usage().saturating_sub(before);
    assert!(taken < MOST, "{taken} bytes for {KEYS} keys, beside {before} for a quarter of them");
    balancer.release(Target::rule("a")).unwrap();
    // What was held when it was found is not waited for: it is looked at again within a minute.
    sleep(secs(61)).await;
    timeout(secs(3_600), post.flush()).await.unwrap();
    assert_eq!(post.len(), 0);
    let ids: Vec<u64> = reader.seen().into_iter().map(|seen| seen.id).collect();
    assert_eq!(ids.len(), KEYS as usize + 2_000);
    let mut places = vec![0; ids.len() + 1];
    ids.iter().enumerate().for_each(|(place, id)| places[*id as usize] = place);
    for first in 1..=2_000 {
        assert!(places[first] < places[first + KEYS as usize], "key {} got its second message first", first - 1);
    }
    post.close(secs(1)).await.unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
