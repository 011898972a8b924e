//! More keys than are known at a time: each of them has its turn, whatever comes meanwhile.
#![cfg(feature = "outbox")]

mod post;

use std::ops::Range;

use post::{NOON, Post, Reader, Seen, open, secs};
use request_balancer::outbox::{Delivery, MemoryStore, Outbox};
use request_balancer::{Balancer, Rules, Target};
use tokio::time::{sleep, timeout};

const RULES: &str = "[rules]\na = { overall = '4000/1s' }";

/// So many start in a second.
const RATE: u32 = 4_000;

/// How many keys of a lane are known at most, how many of those may be of messages that arrive, and how many of a lane's
/// messages are in the balancer's line.
const KNOWN: usize = 16_384;
const ARRIVED: usize = KNOWN / 4 * 3;
const LINE: usize = 4_096;

/// More keys than may be known.
const EARLY: u32 = 20_000;

async fn put(post: &Post, keys: impl Iterator<Item = u32>) {
    let text = "a".to_owned();
    post.put_all(keys.map(|key| ("a", key, &text))).await.unwrap();
}

/// Keys that nobody had before: as many as start, half of them before those of the middle and half of them behind.
async fn put_others(post: &Post, second: u32) {
    let first = second * RATE / 2;
    let keys = |from: u32| from + first..from + first + RATE / 2;
    put(post, keys(100_000).chain(keys(600_000))).await;
}

/// How many had been started when the last one of those was, which is among them.
fn starts(seen: &[Seen], ids: Range<u64>) -> usize {
    let served = seen.iter().filter(|seen| ids.contains(&seen.id)).count();
    assert_eq!(served as u64, ids.end - ids.start, "each of them was started, and once");
    seen.iter().rposition(|seen| ids.contains(&seen.id)).unwrap() + 1
}

/// They were found only when nearly all that were known had had their turns, and others came as fast as these went.
#[tokio::test(start_paused = true)]
async fn keys_beyond_those_known_have_every_second_turn_while_others_keep_coming() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    put(&post, 500_000..500_000 + EARLY).await;
    for second in 0..8 {
        put_others(&post, second).await;
        sleep(secs(1)).await;
    }
    let seen = reader.seen();
    assert!(post.len() >= u64::from(EARLY), "as many are left as there were: the others never end");
    // Two turns for each that is found, one for each that was known, and those that were in line before.
    let (starts, most) = (starts(&seen, 1..u64::from(EARLY) + 1), 2 * (EARLY as usize - ARRIVED) + ARRIVED + LINE);
    assert!(starts <= most, "{starts} starts, {most} allowed");
    assert!(seen[starts - 1].at <= secs(7), "{:?}", seen[starts - 1]);
}

/// The pass that is under way has gone past it: the next one comes by it, whoever comes meanwhile.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_pass_has_gone_past_is_found_by_the_next_one() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    put(&post, 500_000..500_000 + EARLY).await;
    sleep(secs(1)).await;
    let stored = usize::try_from(post.len()).unwrap();
    let late = post.put("a", 300_000, &"late".to_owned()).await.unwrap();
    assert!(matches!(late, Delivery::Queued(_)));
    let flushed = tokio::spawn({
        let post = post.clone();
        async move { post.flush().await }
    });
    for second in 0..8 {
        put_others(&post, second).await;
        sleep(secs(1)).await;
    }
    let (seen, id) = (reader.seen(), u64::from(EARLY) + 1);
    let starts = starts(&seen, id..id + 1);
    // Two turns for each that the pass under way came by, and for each that the next one did before it.
    let others = seen[starts - 1].at.as_secs() as usize * RATE as usize / 2;
    let (waited, most) = (starts - RATE as usize, 2 * (stored + others) + LINE);
    assert!(waited <= most, "{waited} starts, {most} allowed");
    assert!(flushed.is_finished(), "it waits for nobody who came later");
    assert!(post.len() >= u64::from(EARLY) / 2, "the others never end");
}

/// Its rule went over to a lane whose search had found all there was, and nobody looked for it any more.
#[tokio::test(start_paused = true)]
async fn a_key_whose_rule_becomes_more_urgent_is_found_in_its_new_lane() {
    let rules = |priority: u32| {
        let rules = format!("[rules]\na = {{ overall = '4000/1s', priority = {priority} }}\nb = {{ priority = 1 }}");
        rules.parse::<Rules>().unwrap()
    };
    let (reader, balancer) = (Reader::new(), Balancer::builder(rules(2)).seed(7).build());
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    balancer.hold(Target::rule("a"), secs(60)).unwrap();
    put(&post, 0..EARLY).await;
    sleep(secs(1)).await;
    balancer.replace_rules(rules(1));
    balancer.release(Target::rule("a")).unwrap();
    let (last, id) = (EARLY - 1, u64::from(EARLY));
    let second = post.put("a", last, &"second".to_owned()).await.unwrap();
    assert!(matches!(second, Delivery::Queued(_)), "{second:?}");
    timeout(secs(100), post.flush()).await.unwrap();
    sleep(secs(100)).await;
    assert!(post.is_empty());
    let ids: Vec<u64> = reader.seen().into_iter().map(|seen| seen.id).filter(|seen| *seen >= id).collect();
    assert_eq!(ids, [id, id + 1]);
}
