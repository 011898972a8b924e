//! Rules that are replaced again and again: what waits takes no more memory for it.
#![cfg(feature = "outbox")]

mod post;

use peak_alloc::PeakAlloc;
use post::{NOON, Post, Reader, Way, open, secs};
use request_balancer::outbox::{MemoryStore, Outbox};
use request_balancer::{Balancer, Rules};
use tokio::time::sleep;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// As many as there are places in the line of a lane.
const LINE: u32 = 4_096;

const WAITING: u32 = 4_000;

/// Two lanes, and a rule that is in one of them.
fn rules(priority: u32) -> Rules {
    let rules = "[rules]\nx = { concurrency = 1, priority = 1 }\ny = { concurrency = 1, priority = 2 }\n";
    format!("{rules}a = {{ priority = {priority} }}").parse().unwrap()
}

async fn put(post: &Post, rule: &str, keys: u32) {
    let text = rule.to_owned();
    post.put_all((0..keys).map(|key| (rule, key, &text))).await.unwrap();
    post::settle().await;
}

/// There and back: without room in either lane, they stay there as they are.
async fn reload(balancer: &Balancer) {
    for priority in [2, 1] {
        balancer.replace_rules(rules(priority));
        sleep(secs(2)).await;
    }
}

/// In the lane that they left they stood on in the queue for a place, once more each time that they came back.
#[tokio::test(start_paused = true)]
async fn keys_that_go_to_and_fro_between_lanes_wait_once() {
    let (reader, balancer) = (Reader::new(), Balancer::builder(rules(1)).seed(7).build());
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    for rule in ["x", "y"] {
        reader.tell(rule, [Way::Never]);
        put(&post, rule, LINE).await;
    }
    put(&post, "a", WAITING).await;
    reload(&balancer).await;
    let before = HEAP.current_usage();
    for _ in 0..40 {
        reload(&balancer).await;
    }
    let taken = HEAP.current_usage().saturating_sub(before);
    assert_eq!(reader.seen().len(), 2, "both lanes are full");
    assert!(taken < 500_000, "{taken} bytes beside {before}");
}
