//! Lanes count outside the line, too: who is urgent does not wait for those who wait for a place in it.
#![cfg(feature = "outbox")]

mod post;

use std::time::Duration;

use post::{NOON, Post, Reader, Way, open, secs};
use request_balancer::outbox::{Delivery, MemoryStore, Outbox};
use tokio::time::{Instant, sleep};

const RULES: &str = "[rules]\nchat = { per_key = '1/1s', priority = 1 }\nnews = { overall = '10/1s', priority = 2 }";

/// Puts a message of the urgent rule. Returns how long it took to be sent.
async fn put_urgent(post: &Post) -> (Delivery<String>, Duration) {
    let begun = Instant::now();
    (post.put("chat", 1, &"chat".to_owned()).await.unwrap(), begun.elapsed())
}

async fn put_news(post: &Post) {
    let text = "news".to_owned();
    post.put_all((0..10_000_u32).map(|key| ("news", key, &text))).await.unwrap();
}

/// It waited behind all of them for its turn to get a place.
#[tokio::test(start_paused = true)]
async fn an_urgent_message_starts_when_its_limits_allow_though_thousands_wait_for_a_place() {
    let (reader, balancer) = (Reader::new(), post::balancer(RULES));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    put_news(&post).await;
    sleep(secs(5)).await;
    let sent = Delivery::Sent("chat was read".to_owned());
    assert_eq!(put_urgent(&post).await, (sent, Duration::ZERO));
    // The second one has to wait for its own limit, and for nobody else.
    let (second, _) = put_urgent(&post).await;
    assert!(matches!(second, Delivery::Queued(_)), "{second:?}");
    sleep(secs(2)).await;
    let chats = reader.seen().into_iter().filter(|seen| seen.text == "chat").map(|seen| seen.at);
    assert_eq!(chats.collect::<Vec<_>>(), [secs(5), secs(6)]);
    assert!(post.len() > 9_900, "the news goes on at its own pace");
}

/// Rules that are replaced count for who waits already, and for the places that it waits for.
#[tokio::test(start_paused = true)]
async fn a_message_whose_rule_becomes_urgent_waits_for_the_others_no_more() {
    let (reader, balancer) = (Reader::new(), post::balancer(&RULES.replace("priority = 1", "priority = 2")));
    let post = open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    put_news(&post).await;
    assert!(matches!(put_urgent(&post).await.0, Delivery::Queued(_)));
    sleep(secs(5)).await;
    balancer.replace_rules(RULES.parse().unwrap());
    sleep(secs(1)).await;
    let chats = reader.seen().into_iter().filter(|seen| seen.text == "chat").map(|seen| seen.at);
    assert_eq!(chats.collect::<Vec<_>>(), [secs(5)]);
}

/// After a restart thousands are found in the store before it.
#[tokio::test(start_paused = true)]
async fn an_urgent_message_that_comes_after_a_restart_starts_at_once() {
    let (reader, store) = (Reader::new(), MemoryStore::new());
    let first = open(Outbox::builder(&post::balancer(RULES)).wall(NOON), store.clone(), &reader).await;
    put_news(&first).await;
    first.close(secs(1)).await.unwrap();
    let second = open(Outbox::builder(&post::balancer(RULES)).wall(NOON), store, &reader).await;
    sleep(secs(1)).await;
    assert_eq!(put_urgent(&second).await, (Delivery::Sent("chat was read".to_owned()), Duration::ZERO));
}

/// Stored behind more than are known at a time: it waited for one search to come by.
#[tokio::test(start_paused = true)]
async fn urgent_messages_that_are_stored_last_start_when_their_limits_allow_after_a_restart() {
    // By name, too, it comes last.
    const RULES: &str =
        "[rules]\nurgent = { per_key = '1/1s', priority = 1 }\nnews = { overall = '10/1s', priority = 2 }";
    let (reader, store) = (Reader::new(), MemoryStore::new());
    let balancer = post::balancer(RULES);
    let first = open(Outbox::builder(&balancer).wall(NOON), store.clone(), &reader).await;
    balancer.pause_all();
    let (news, urgent, held) = ("news".to_owned(), "urgent".to_owned(), "held".to_owned());
    first.put_all((0..25_000_u32).map(|key| ("news", key, &news))).await.unwrap();
    reader.tell("held", [Way::Retry(4)]);
    balancer.rule("urgent").unwrap().resume();
    balancer.pause("news").unwrap();
    balancer.resume_all();
    first.put("urgent", 1, &held).await.unwrap();
    sleep(secs(2)).await;
    balancer.pause_all();
    first.put("urgent", 2, &urgent).await.unwrap();
    first.close(secs(1)).await.unwrap();
    assert_eq!(reader.times(), [(0, "held".to_owned())]);
    let second = post::later_post(RULES, store, &reader).await;
    sleep(secs(3)).await;
    let urgent = reader.times().into_iter().filter(|(_, text)| text != "news");
    assert_eq!(urgent.skip(1).collect::<Vec<_>>(), [(2_000, "urgent".to_owned()), (4_000, "held".to_owned())]);
    assert!(second.len() > 24_900, "the news goes on at its own pace");
}
