//! A flush waits for what was due when it was asked for, whatever enters the line meanwhile.
#![cfg(feature = "outbox")]

mod post;

use std::time::Duration;

use post::{NOON, Post, Reader, post, put, secs};
use request_balancer::outbox::MemoryStore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const RULES: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1/1s'";

/// A flush that is asked for now: how many it saw sent, and how long it took.
fn flush(post: &Post) -> JoinHandle<(u64, Duration)> {
    let (post, begin) = (post.clone(), Instant::now());
    tokio::spawn(async move { (post.flush().await, begin.elapsed()) })
}

async fn put_later(post: &Post, key: u32, text: &str, due: Duration) {
    post.put_later("send", key, &text.to_owned(), NOON + due).await.unwrap();
}

/// Of a queue with so many messages of which the first was sent, and none of the others.
async fn crowd(post: &Post, key: u32, messages: usize) {
    for at in 0..messages {
        assert_eq!(put(post, key, &format!("{key}.{at}")).await, Ok(at == 0));
    }
}

fn times(reader: &Reader) -> Vec<(u128, String)> {
    let mut times = reader.times();
    times.sort_unstable();
    times
}

fn expected(times: &[(u128, &str)]) -> Vec<(u128, String)> {
    times.iter().map(|&(at, text)| (at, text.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn it_does_not_wait_for_what_enters_the_line_later() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    crowd(&post, 1, 3).await;
    // Behind those that it waits for, and in a queue of their own: sent before the flush is over, and after.
    put_later(&post, 1, "1 later", secs(1)).await;
    put_later(&post, 2, "2 later", Duration::from_millis(1_500)).await;
    put_later(&post, 3, "3 later", secs(60)).await;
    assert_eq!(flush(&post).await.unwrap(), (2, secs(2)));
    sleep(secs(60)).await;
    let all = [(0, "1.0"), (1_000, "1.1"), (1_500, "2 later"), (2_000, "1.2"), (3_000, "1 later"), (60_000, "3 later")];
    assert_eq!(times(&reader), expected(&all));
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_what_is_due_at_that_instant_though_it_has_not_entered_the_line() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    crowd(&post, 1, 1).await;
    for at in 0..3 {
        put_later(&post, 1, &format!("due {at}"), secs(5)).await;
    }
    put_later(&post, 1, "a moment later", secs(5) + Duration::from_millis(1)).await;
    sleep(secs(5)).await;
    assert_eq!(flush(&post).await.unwrap(), (3, secs(2)));
    let seen: Vec<_> = times(&reader).split_off(1);
    assert_eq!(seen, expected(&[(5_000, "due 0"), (6_000, "due 1"), (7_000, "due 2")]));
    assert_eq!(post.len(), 1);
}

/// Nobody could empty an outbox that is put into for ever.
#[tokio::test(start_paused = true)]
async fn it_does_not_wait_for_what_is_put_meanwhile() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    crowd(&post, 1, 3).await;
    let first = flush(&post);
    sleep(Duration::from_millis(500)).await;
    // In a queue that it waits for, in one of which nothing was there, and in one of which all was sent.
    for key in [1, 2, 1, 2] {
        put(&post, key, &format!("{key} meanwhile")).await.unwrap();
    }
    put_later(&post, 3, "due meanwhile", secs(1)).await;
    let second = flush(&post);
    assert_eq!(first.await.unwrap(), (2, secs(2)));
    // Each waits for its own: the second one for all that is in line, but not for what enters it later.
    assert_eq!(second.await.unwrap(), (5, Duration::from_millis(3_500)));
    let all = [
        (0, "1.0"),
        (500, "2 meanwhile"),
        (1_000, "1.1"),
        (1_000, "due meanwhile"),
        (1_500, "2 meanwhile"),
        (2_000, "1.2"),
        (3_000, "1 meanwhile"),
        (4_000, "1 meanwhile"),
    ];
    assert_eq!(times(&reader), expected(&all));
}
