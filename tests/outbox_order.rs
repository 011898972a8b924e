//! What becomes of messages that the balancer does not try again by itself: they keep their order and count their attempts.
#![cfg(feature = "outbox")]

mod post;

use post::{NOON, Reader, Way, later_post, open, post, put, secs};
use request_balancer::outbox::{MemoryStore, Outbox};
use tokio::time::{sleep, timeout};

const ORDERED: &str = "[retry]\njitter = 0.0\nattempts = 3\n[rules]\nsend = { per_key = '1000/1s', ordered = true }";

/// The next one started while it was written down that the first one comes again.
#[tokio::test(start_paused = true)]
async fn in_an_ordered_rule_nobody_passes_one_that_panics() {
    let reader = Reader::new();
    let post = post(ORDERED, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Takes(secs(1)), Way::Sent]);
    reader.tell("b", [Way::Panics, Way::Panics]);
    let texts = ["a", "b", "c", "d"].map(str::to_owned);
    post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    sleep(secs(60)).await;
    assert_eq!(reader.texts(), ["a", "b", "b", "b", "c", "d"]);
    assert!(post.is_empty());
}

/// Somebody began to drain and went away: whose turn it was was forgotten while it ran.
#[tokio::test(start_paused = true)]
async fn in_an_ordered_rule_nobody_passes_one_that_panics_after_a_drain_was_dropped() {
    let reader = Reader::new();
    let post = post(ORDERED, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::PanicsAfter(secs(5))]);
    let texts = ["a", "b", "c"].map(str::to_owned);
    post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    sleep(secs(1)).await;
    assert!(timeout(secs(1), post.drain()).await.is_err(), "it waits for what runs");
    sleep(secs(60)).await;
    assert_eq!(reader.texts(), ["a", "a", "b", "c"]);
    assert!(post.is_empty());
}

/// Messages that were being read when it panicked went into line ahead of it, and it waited for them as they did for it.
#[tokio::test(start_paused = true)]
async fn what_is_read_meanwhile_waits_behind_one_that_panics() {
    let reader = Reader::new();
    let post = post(ORDERED, MemoryStore::new(), &reader).await;
    let texts: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    for text in texts.iter().step_by(3) {
        reader.tell(text, [Way::Panics]);
    }
    post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    sleep(secs(200)).await;
    let tried = |number: usize| if number.is_multiple_of(3) { 2 } else { 1 };
    let expected: Vec<String> =
        texts.iter().enumerate().flat_map(|(number, text)| vec![text.clone(); tried(number)]).collect();
    assert_eq!(reader.texts(), expected);
    assert!(post.is_empty());
}

/// And not one that is given up.
#[tokio::test(start_paused = true)]
async fn those_behind_go_on_when_one_has_come_to_its_end() {
    let reader = Reader::new();
    let post = post(ORDERED, MemoryStore::new(), &reader).await;
    reader.tell("b", [Way::Panics, Way::Panics, Way::Panics]);
    reader.tell("c", [Way::Transient, Way::Permanent]);
    let texts = ["a", "b", "c", "d"].map(str::to_owned);
    post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    sleep(secs(60)).await;
    assert_eq!(reader.texts(), ["a", "b", "b", "b", "c", "c", "d"]);
    assert_eq!(post.dead().await.unwrap().len(), 2);
    // Whose turn it was is forgotten with what is drained.
    reader.tell("e", [Way::Panics]);
    assert_eq!(put(&post, 1, "e").await, Ok(false));
    post.drain().await.unwrap();
    sleep(secs(1)).await;
    assert_eq!(put(&post, 1, "f").await, Ok(true));
}

/// A failure that the retry budget lets nobody follow was not counted, and stayed written down as an attempt that runs.
#[tokio::test(start_paused = true)]
async fn what_the_retry_budget_refuses_is_counted_and_known_to_have_failed() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let rules = "[retry]\njitter = 0.0\nattempts = 4\nbudget = '1/1000'\n[rules]\nsend = '1000/1s'";
    let first = post(rules, kept.clone(), &reader).await;
    // Ten retries are free, and that is all.
    let texts: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for (key, text) in texts.iter().enumerate() {
        reader.tell(text, vec![Way::Transient; 8]);
        assert_eq!(put(&first, key as u32, text).await, Ok(false));
    }
    post::settle().await;
    drop(first);
    post::settle().await;
    let second = later_post(rules, kept, &reader).await;
    sleep(secs(200)).await;
    for text in texts {
        let seen: Vec<_> = reader.seen().into_iter().filter(|seen| seen.text == text).collect();
        let facts: Vec<_> = seen.iter().map(|seen| (seen.number, seen.maybe_delivered)).collect();
        assert_eq!(facts, [(1, false), (2, false), (3, false), (4, false)], "{text}");
    }
    assert_eq!((second.len(), second.dead().await.unwrap().len()), (0, 20));
}

/// A balancer that is closed during an attempt does not follow its failure.
#[tokio::test(start_paused = true)]
async fn a_failure_that_meets_a_closed_balancer_is_known_at_the_next_start() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let balancer = post::balancer(ORDERED);
    let first = open(Outbox::builder(&balancer).wall(NOON), kept.clone(), &reader).await;
    reader.tell("a", [Way::FailsAfter(secs(5))]);
    let putting = tokio::spawn({
        let first = first.clone();
        async move { put(&first, 1, "a").await }
    });
    sleep(secs(1)).await;
    balancer.close(secs(60)).await;
    assert_eq!(putting.await.unwrap(), Ok(false));
    drop(first);
    post::settle().await;
    let second = later_post(ORDERED, kept, &reader).await;
    second.flush().await;
    sleep(secs(10)).await;
    let facts: Vec<_> = reader.seen().iter().map(|seen| (seen.number, seen.maybe_delivered)).collect();
    assert_eq!(facts, [(1, false), (2, false)]);
}
