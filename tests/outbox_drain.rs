//! Several who empty or close an outbox at once, and what they are given.
#![cfg(feature = "outbox")]

mod post;

use post::{NOON, Reader, Way, post, put, secs};
use request_balancer::outbox::{MemoryStore, StoreError};
use tokio::time::{sleep, timeout};

const RULES: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1/1s'";

/// The first one was never answered.
#[tokio::test(start_paused = true)]
async fn two_may_drain_at_once() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    reader.tell("runs", [Way::Takes(secs(5))]);
    let runs = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "runs").await }
    });
    post::settle().await;
    for number in 0..10 {
        assert_eq!(put(&post, 1, &number.to_string()).await, Ok(false));
    }
    let both = async { tokio::join!(post.drain(), post.drain()) };
    let (first, second) = timeout(secs(60), both).await.expect("both are answered");
    assert_eq!(first.unwrap().len() + second.unwrap().len(), 10);
    assert_eq!(runs.await.unwrap(), Ok(true));
    // It goes on when both have done with it.
    sleep(secs(2)).await;
    assert_eq!(put(&post, 1, "again").await, Ok(true));
}

/// What runs is waited for, and not what comes of it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_while_it_is_drained_is_not_made_again() {
    let reader = Reader::new();
    let rules = "[retry]\njitter = 0.0\nbackoff = '1h'\nmax_delay = '1h'\n[rules]\nsend = '1/1s'";
    let post = post(rules, MemoryStore::new(), &reader).await;
    reader.tell("runs", [Way::FailsAfter(secs(5))]);
    let runs = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "runs").await }
    });
    sleep(secs(1)).await;
    let drained = timeout(secs(5), post.drain()).await.expect("it waits for the attempt alone").unwrap();
    assert_eq!(drained.len(), 1);
    assert_eq!(runs.await.unwrap(), Ok(false));
    sleep(secs(2)).await;
    assert_eq!(put(&post, 1, "again").await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn two_may_close_at_once_and_the_shorter_deadline_counts() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    reader.tell("runs", [Way::Never]);
    let runs = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "runs").await }
    });
    sleep(secs(1)).await;
    let both = async { tokio::join!(post.close(secs(3_600)), post.close(secs(10))) };
    let (first, second) = timeout(secs(60), both).await.expect("both are answered");
    assert_eq!(first, second);
    let closed = first.unwrap();
    assert_eq!((closed.aborted, closed.left), (1, 1));
    assert_eq!(runs.await.unwrap(), Ok(false));
    // A third time nothing is left to do.
    assert_eq!(post.close(secs(1)).await.map(|closed| closed.left), Ok(1));
    assert_eq!(post.drain().await, Err(StoreError::Closed));
}

#[tokio::test(start_paused = true)]
async fn what_is_drained_says_when_it_was_to_enter_the_line() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    let due = NOON + secs(3_600);
    post.put_later("send", 1, &"later".to_owned(), due).await.unwrap();
    let drained = post.drain().await.unwrap();
    assert_eq!(drained.iter().map(|left| left.due).collect::<Vec<_>>(), [Some(due)]);
}

/// Without it nobody could put it again as the same one.
#[tokio::test(start_paused = true)]
async fn what_is_drained_or_dead_says_under_which_name_it_was_put() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    reader.tell("bad", [Way::Transient, Way::Permanent]);
    for text in ["bad", "left"] {
        let _ = post.put("send", 1, &text.to_owned()).dedupe(format!("order {text}")).await.unwrap();
    }
    sleep(secs(1)).await;
    let _ = post.put("send", 1, &"last".to_owned()).await.unwrap();
    sleep(secs(1)).await;
    let dead: Vec<_> = post.dead().await.unwrap().into_iter().map(|dead| dead.name).collect();
    let _ = post.put("send", 1, &"more".to_owned()).await.unwrap();
    post.put_later("send", 1, &"later".to_owned(), NOON + secs(3_600)).dedupe("order later").await.unwrap();
    let mut drained: Vec<_> = post.drain().await.unwrap().into_iter().map(|left| left.name).collect();
    drained.retain(|name| !name.is_empty());
    assert_eq!((dead, drained), (vec!["order bad".to_owned()], vec!["order later".to_owned()]));
}
