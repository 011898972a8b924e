//! More keys than are known at a time: each of them has its turn, whatever comes meanwhile.
#![cfg(feature = "outbox")]

mod post;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use post::{NOON, Post, Reader, Seen, Way, later_post, open, secs};
use request_balancer::outbox::{Delivery, MemoryStore, Outbox};
use request_balancer::{Balancer, Rules, Target};
use tokio::time::{Instant, sleep, timeout};

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

/// The first ones take a moment: none is sent before a flush that is asked for then counts.
fn takes(reader: &Reader, first: u32) {
    reader.tell("a", vec![Way::Takes(Duration::from_millis(1)); first as usize]);
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

/// Keys that gave way to others were for the pass under way to find, and the flush did not wait for that.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_keys_that_give_way_to_others() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON).window(1), MemoryStore::new(), &reader).await;
    takes(&reader, RATE);
    // Of each key the second message is left when the first one was sent.
    put(&post, (0..2).flat_map(|_| 500_000..510_000)).await;
    let flush = tokio::spawn({
        let post = post.clone();
        async move { post.flush().await }
    });
    sleep(Duration::from_millis(1)).await;
    put(&post, 100_000..140_000).await;
    assert_eq!(flush.await.unwrap(), 20_000);
    let seen = reader.seen().into_iter().filter(|seen| seen.id <= 20_000).count();
    assert_eq!(seen, 20_000, "none of them is left");
}

/// A key was for the next pass to find, until another message of it came: then no flush waited for the first one.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_a_key_that_was_missed_and_came_to_be_known() {
    let (reader, key) = (Reader::new(), 900_000);
    let rules = "[rules]\na = { overall = '4000/1s', concurrency = 2, per_key = '1/100s' }";
    let post = open(Outbox::builder(&post::balancer(rules)).wall(NOON), MemoryStore::new(), &reader).await;
    let text = "a".to_owned();
    assert!(matches!(post.put("a", key, &text).await, Ok(Delivery::Sent(_))));
    // While two run nobody else starts, and as many are known as may be.
    reader.tell("long", vec![Way::Takes(secs(10)); 2]);
    let long = "long".to_owned();
    post.put_all((0..2).map(|key| ("a", key, &long))).await.unwrap();
    put(&post, 500_000..530_000).await;
    post::settle().await;
    let second = post.put("a", key, &text).await.unwrap();
    let flush = tokio::spawn({
        let post = post.clone();
        async move { (post.flush().await, Instant::now()) }
    });
    sleep(Duration::from_millis(12_500)).await;
    // By now there is room for another key, and the pass has not come by this one.
    let third = post.put("a", key, &text).await.unwrap();
    let (sent, at) = flush.await.unwrap();
    assert_eq!((sent, at - reader.began()), (30_003, secs(100)));
    let last = reader.seen().pop().unwrap();
    assert_eq!((Delivery::Queued(last.id.into()), last.at), (second, secs(100)));
    assert_eq!((third, post.len()), (Delivery::Queued(30_005.into()), 1));
}

/// With more keys than are known, and thousands of them still to be found.
#[tokio::test(start_paused = true)]
async fn what_is_drained_during_a_pass_is_all_that_is_left() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    takes(&reader, RATE);
    put(&post, 0..2 * EARLY).await;
    let flush = tokio::spawn({
        let post = post.clone();
        async move { post.flush().await }
    });
    sleep(Duration::from_millis(1_500)).await;
    let drained: BTreeSet<u64> = post.drain().await.unwrap().into_iter().map(|left| left.id.get()).collect();
    let seen: BTreeSet<u64> = reader.seen().into_iter().map(|seen| seen.id).collect();
    assert_eq!((seen.len(), drained.len(), post.len()), (8_000, 32_000, 0));
    assert!(seen.is_disjoint(&drained));
    assert_eq!(flush.await.unwrap(), 8_000, "what is drained is waited for no more");
    // Nothing of it is left behind, and the search is over.
    sleep(secs(10)).await;
    let last = post.put("a", 1, &"last".to_owned()).await.unwrap();
    assert_eq!(last, Delivery::Sent("last was read".to_owned()));
    assert_eq!((post.flush().await, reader.seen().len()), (0, 8_001));
}

/// The same for the end of the program: the next one goes on with it.
#[tokio::test(start_paused = true)]
async fn what_is_left_when_it_closes_during_a_pass_is_sent_after_the_next_start() {
    let (reader, store) = (Reader::new(), MemoryStore::new());
    let first = open(Outbox::builder(&post::balancer(RULES)).wall(NOON), store.clone(), &reader).await;
    takes(&reader, 3 * RATE);
    put(&first, 0..2 * EARLY).await;
    sleep(Duration::from_millis(1_500)).await;
    let closed = first.close(secs(1)).await.unwrap();
    assert_eq!((closed.aborted, closed.left), (0, 32_000));
    let second = later_post(RULES, store, &reader).await;
    assert_eq!((second.flush().await, second.len()), (32_000, 0));
    let mut ids: Vec<u64> = reader.seen().into_iter().map(|seen| seen.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=u64::from(2 * EARLY)), "each of them once");
}
