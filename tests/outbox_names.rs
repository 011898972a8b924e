//! Messages that are put under a name: sent once, however often they are put.
#![cfg(feature = "outbox")]

mod post;

use std::future::IntoFuture;
use std::ops::Bound;

use post::{NOON, Reader, Way, open, post, secs};
use request_balancer::Failure;
use request_balancer::outbox::{Delivery, Error, MemoryStore, Message, Outbox, Store, Table};
use tokio::time::sleep;

const FREE: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'";

fn read(text: &str) -> Result<Delivery<String>, Error<String>> {
    Ok(Delivery::Sent(format!("{text} was read")))
}

#[tokio::test(start_paused = true)]
async fn a_name_is_remembered_for_the_retention_time() {
    let reader = Reader::new();
    let builder = Outbox::builder(&post::balancer(FREE)).wall(NOON).retention(secs(60));
    let post = open(builder, MemoryStore::new(), &reader).await;
    let put = || async { post.put("send", 1, &"a".to_owned()).dedupe("A").await };
    assert_eq!(put().await, read("a"));
    sleep(secs(59)).await;
    assert_eq!(put().await, read("a"));
    assert_eq!(reader.seen().len(), 1);
    sleep(secs(2)).await;
    assert_eq!(put().await, read("a"));
    assert_eq!(reader.seen().len(), 2);
    // What is forgotten takes no room: others are put under the same and other names.
    sleep(secs(100)).await;
    assert_eq!(post.put("send", 1, &"b".to_owned()).dedupe("B").await, read("b"));
    assert_eq!(put().await, read("a"));
    assert_eq!(put().await, read("a"));
    assert_eq!(reader.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_the_first_one_is_meant() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Retry(60)]);
    let put = |text: &'static str| {
        let post = &post;
        async move { post.put("send", 1, &text.to_owned()).dedupe("A").await }
    };
    assert_eq!(put("a").await, Ok(Delivery::Queued(1.into())));
    assert_eq!(put("b").await, Ok(Delivery::Queued(1.into())));
    assert_eq!(post.len(), 1);
    sleep(secs(61)).await;
    assert_eq!(put("b").await, read("a"));
    assert_eq!(reader.texts(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn two_at_once_are_one() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    let put = || async { post.put("send", 1, &"a".to_owned()).dedupe("A").await };
    let (first, second) = tokio::join!(put(), put());
    assert_eq!((first, second), (read("a"), Ok(Delivery::Queued(1.into()))));
    assert_eq!(reader.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_message_failed_at_once_is_free_again() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Permanent]);
    let put = || async { post.put("send", 1, &"a".to_owned()).dedupe("A").await };
    assert_eq!(put().await, Err(Error::Failed("a was not read".to_owned())));
    assert_eq!(put().await, read("a"));
}

#[tokio::test(start_paused = true)]
async fn a_name_among_the_dead_is_taken_until_it_is_tried_again_or_forgotten() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    let put = |text: &'static str, name: &'static str| {
        let post = &post;
        async move { post.put("send", 1, &text.to_owned()).dedupe(name).await }
    };
    for (text, name) in [("a", "A"), ("b", "B")] {
        reader.tell(text, [Way::Transient, Way::Permanent]);
        assert!(matches!(put(text, name).await, Ok(Delivery::Queued(_))));
    }
    sleep(secs(2)).await;
    assert_eq!(put("a", "A").await, Err(Error::Dead { id: 1.into() }));
    assert_eq!(post.redrive(1.into()).await, Ok(true));
    assert_eq!(post.purge(2.into()).await, Ok(true));
    // It may be on its way, or there, before this is asked for: so nobody knows how many go meanwhile.
    post.flush().await;
    assert_eq!(put("a", "A").await, read("a"));
    assert_eq!(put("b", "B").await, read("b"));
    assert_eq!(reader.texts(), ["a", "b", "a", "b", "a", "b"]);
}

/// Put under the same name while the first one was tried, another was told that it is stored: and then it was erased, as
/// only the first one's caller heard of its failure.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_was_promised_is_kept_though_its_caller_knows_of_its_failure() {
    let handler = async |_: Message<String>| {
        sleep(secs(10)).await;
        Err::<String, _>(Failure::permanent("too bad".to_owned()))
    };
    let kept = MemoryStore::new();
    let opened = Outbox::builder(&post::balancer(FREE)).wall(NOON).open_store(kept.clone(), handler).await;
    let post = opened.unwrap();
    let first = tokio::spawn(post.put("send", 1, &"a".to_owned()).dedupe("A").into_future());
    sleep(secs(1)).await;
    assert_eq!(post.put("send", 1, &"a".to_owned()).dedupe("A").await, Ok(Delivery::Queued(1.into())));
    assert_eq!(first.await.unwrap(), Err(Error::Failed("too bad".to_owned())));
    let reasons: Vec<_> = post.dead().await.unwrap().into_iter().map(|dead| dead.reason).collect();
    assert_eq!((post.len(), reasons), (0, vec!["too bad".to_owned()]));
    assert_eq!(post.put("send", 1, &"a".to_owned()).dedupe("A").await, Err(Error::Dead { id: 1.into() }));
}

/// With nobody putting names any more, they stayed in the file for good.
#[tokio::test(start_paused = true)]
async fn names_whose_time_is_over_are_forgotten_at_a_start() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let builder = || Outbox::builder(&post::balancer(FREE)).retention(secs(60));
    let first = open(builder().wall(NOON), kept.clone(), &reader).await;
    for number in 0..20 {
        assert_eq!(first.put("send", 1, &"a".to_owned()).dedupe(number.to_string()).await, read("a"));
    }
    drop(first);
    post::settle().await;
    let names = || {
        let mut names = 0;
        kept.scan(Table::Names, Bound::Unbounded, &mut |_, _| {
            names += 1;
            true
        })
        .unwrap();
        names
    };
    assert_eq!(names(), 20);
    let _second = open(builder().wall(NOON + secs(3_600)), kept.clone(), &reader).await;
    assert_eq!(names(), 0);
}
