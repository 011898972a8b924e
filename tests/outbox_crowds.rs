//! More queues and messages than fit into the balancer's line: who can't start is in nobody's way.
#![cfg(feature = "outbox")]

mod post;

use post::{NOON, Post, Reader, Way, open, secs};
use request_balancer::Target;
use request_balancer::outbox::{Delivery, MemoryStore, Outbox};
use tokio::time::{Instant, sleep, timeout};

const RULES: &str = "[retry]\njitter = 0.0\n[rules]\na = '1/10s'\nb = '1000/1s'\nc = { overall = '100/1h' }";

async fn put_many(post: &Post, rule: &str, keys: u32, text: &str) {
    let text = text.to_owned();
    let ids = post.put_all((0..keys).map(|key| (rule, key, &text))).await.unwrap();
    assert_eq!(ids.len(), keys as usize);
}

async fn put_b(post: &Post) -> Delivery<String> {
    post.put("b", 1, &"b".to_owned()).await.unwrap()
}

/// One rule's messages took all places in line, and the other rule's waited for an hour.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_held_keeps_no_other_from_being_sent() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    balancer.hold(Target::rule("a"), secs(3_600)).unwrap();
    put_many(&post, "a", 4_300, "a").await;
    post::settle().await;
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
    assert_eq!(reader.texts(), ["b"]);
    sleep(secs(3_700)).await;
    assert!(post.is_empty());
}

/// In line before they were held, they are taken out of it when somebody needs their places.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_paused_later_gives_its_places_up() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    put_many(&post, "c", 4_300, "c").await;
    sleep(secs(1)).await;
    assert_eq!(reader.seen().len(), 100);
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
    // Nobody is passed over for those who come first by name.
    sleep(secs(3_600)).await;
    assert_eq!(reader.seen().len(), 201);
    balancer.rule("c").unwrap().pause();
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
}

/// Of so many queues not even the names stay in memory: they are found again, and nobody passes what stands in them.
#[tokio::test(start_paused = true)]
async fn queues_that_are_known_no_more_are_found_again_in_their_order() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    balancer.hold(Target::rule("a"), secs(3_600)).unwrap();
    put_many(&post, "a", 13_000, "a").await;
    post::settle().await;
    let flushed = timeout(secs(1_000), post.flush()).await;
    assert_eq!(flushed, Ok(0), "what is held is not waited for");
    balancer.release(Target::rule("a")).unwrap();
    let key = 12_999;
    let last = post.put("a", key, &"last".to_owned()).await.unwrap();
    assert!(matches!(last, Delivery::Queued(_)), "{last:?}");
    timeout(secs(1_000), post.flush()).await.unwrap();
    sleep(secs(300)).await;
    assert!(post.is_empty());
    let ids: Vec<u64> = reader.seen().into_iter().map(|seen| seen.id).collect();
    assert_eq!(ids.len(), 13_001);
    let place = |id| ids.iter().position(|seen| *seen == id);
    assert!(place(13_000) < place(13_001), "its queue's first one was put before it");
}

/// A few large messages are as good as many.
#[tokio::test(start_paused = true)]
async fn large_messages_that_are_held_keep_nobody_from_being_sent() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    balancer.hold(Target::rule("a"), secs(3_600)).unwrap();
    put_many(&post, "a", 80, &"a".repeat(1 << 20)).await;
    post::settle().await;
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
}

/// With more than half of all places taken, queues whose limits allow nothing for long wait outside: a flush waits for them.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_those_who_wait_outside() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    for text in ["first", "second"] {
        put_many(&post, "a", 4_300, text).await;
    }
    let begun = Instant::now();
    timeout(secs(60), post.flush()).await.unwrap();
    assert!(post.is_empty());
    assert_eq!((begun.elapsed().as_secs(), reader.seen().len()), (10, 8_600));
}

/// Messages that wait for their backoff are stored, and so they wait there if others need their places.
#[tokio::test(start_paused = true)]
async fn those_that_back_off_keep_nobody_from_being_sent() {
    let reader = Reader::new();
    let rules = "[retry]\njitter = 0.0\nbackoff = '10m'\nmax_delay = '10m'\n[rules]\na = '1000/1s'\nb = '1000/1s'";
    let post = open(Outbox::builder(&post::balancer(rules)).wall(NOON), MemoryStore::new(), &reader).await;
    reader.tell("a", vec![Way::Transient; 4_300]);
    put_many(&post, "a", 4_300, "a").await;
    sleep(secs(5)).await;
    assert_eq!(reader.seen().len(), 4_300);
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
    sleep(secs(700)).await;
    assert_eq!((post.len(), reader.seen().len()), (0, 8_601));
    assert!(reader.seen().iter().filter(|seen| seen.text == "a").all(|seen| seen.number < 3));
}

const FEW: &str = "[retry]\njitter = 0.0\n[rules]\na = { concurrency = 2 }\nb = '1000/1s'";

/// Taken out of the line to make room, or about to be read: nobody is left behind when the hold is over.
#[tokio::test(start_paused = true)]
async fn queues_that_wait_for_room_when_they_are_held_are_sent_afterwards() {
    let (reader, balancer) = (Reader::new(), post::balancer(FEW));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    reader.tell("long", vec![Way::Takes(secs(10)); 2]);
    put_many(&post, "a", 2, "long").await;
    let text = "a".to_owned();
    // Of the last ones the first message is in line, and the second waits for its turn to be read.
    let twice = (0..2).flat_map(|_| (2..3_002_u32).map(|key| ("a", key, &text)));
    post.put_all(twice).await.unwrap();
    post::settle().await;
    balancer.hold(Target::rule("a"), secs(60)).unwrap();
    sleep(secs(300)).await;
    timeout(secs(60), post.flush()).await.unwrap();
    assert_eq!((post.len(), reader.seen().len()), (0, 6_002));
}

/// Room for a message was made by taking those before it out of the line, and then it went ahead of them.
#[tokio::test(start_paused = true)]
async fn nobody_passes_those_of_its_queue_that_are_taken_out_to_make_room() {
    let (reader, balancer) = (Reader::new(), post::balancer(FEW));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    reader.tell("long", vec![Way::Takes(secs(10)); 2]);
    put_many(&post, "a", 2, "long").await;
    post::settle().await;
    let first = "first".to_owned();
    post.put_all((2..4_096_u32).map(|key| ("a", key, &first))).await.unwrap();
    post::settle().await;
    balancer.hold(Target::rule("a"), secs(60)).unwrap();
    sleep(secs(2)).await;
    let queued = post.put("a", 4_000, &"second".to_owned()).await.unwrap();
    assert!(matches!(queued, Delivery::Queued(_)));
    // Those that were taken out wait for as long as they were told, and nobody has a reason to take the second one out, too.
    balancer.release(Target::rule("a")).unwrap();
    sleep(secs(300)).await;
    let ids: Vec<u64> = reader.seen().into_iter().map(|seen| seen.id).collect();
    let place = |id| ids.iter().position(|seen| *seen == id).unwrap();
    assert!(place(4_001) < place(4_097), "key 4,000 got its second message first");
    assert_eq!((post.len(), ids.len()), (0, 4_097));
}

/// Their backoff was over, and then they were held: they were taken for messages that wait, which start by themselves.
#[tokio::test(start_paused = true)]
async fn those_that_are_held_after_their_backoff_keep_no_other_from_being_sent() {
    let reader = Reader::new();
    let rules = "[retry]\njitter = 0.0\nbackoff = '10s'\nmax_delay = '10s'\n[rules]\na = '1000/1s'\nb = '1000/1s'";
    let balancer = post::balancer(rules);
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    reader.tell("a", vec![Way::Transient; 4_096]);
    put_many(&post, "a", 4_096, "a").await;
    sleep(secs(5)).await;
    balancer.hold(Target::rule("a"), secs(3_600)).unwrap();
    sleep(secs(10)).await;
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
    assert_eq!((post.len(), reader.seen().len()), (4_096, 4_097));
    sleep(secs(3_700)).await;
    assert_eq!((post.len(), reader.seen().len()), (0, 8_193));
}

/// In an ordered rule those that wait stayed in line, and those behind them, too.
#[tokio::test(start_paused = true)]
async fn ordered_keys_whose_first_message_waits_keep_no_other_from_being_sent() {
    let reader = Reader::new();
    let retry = "[retry]\njitter = 0.0\nbackoff = '1h'\nmax_delay = '1h'";
    let rules = format!("{retry}\n[rules]\na = {{ per_key = '1000/1s', ordered = true }}\nb = '1000/1s'");
    let post = open(Outbox::builder(&post::balancer(&rules)).wall(NOON), MemoryStore::new(), &reader).await;
    reader.tell("first", vec![Way::Transient; 2_048]);
    for text in ["first", "second"] {
        put_many(&post, "a", 2_048, text).await;
    }
    sleep(secs(5)).await;
    assert_eq!(put_b(&post).await, Delivery::Sent("b was read".to_owned()));
    assert_eq!((post.len(), reader.seen().len()), (4_096, 2_049));
    sleep(secs(3_700)).await;
    let seen: Vec<_> = reader.seen().into_iter().skip(2_049).collect();
    assert_eq!((post.len(), seen.len()), (0, 4_096));
    let place = |id| seen.iter().position(|seen| seen.id == id).unwrap();
    assert!((1..=2_048).all(|id| place(id) < place(id + 2_048)), "each key in its order");
    assert!(seen.iter().all(|seen| seen.at >= secs(3_600)), "none of them before its time");
}
