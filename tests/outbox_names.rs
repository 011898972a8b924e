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

fn count(kept: &MemoryStore, table: Table) -> usize {
    let mut entries = 0;
    let counted = kept.scan(table, Bound::Unbounded, &mut |_, _| {
        entries += 1;
        true
    });
    counted.unwrap();
    entries
}

/// With nobody putting names any more, they stayed in the file for good.
#[tokio::test(start_paused = true)]
async fn names_whose_time_is_over_are_forgotten_at_a_start_and_where_nobody_puts_any() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let builder = || Outbox::builder(&post::balancer(FREE)).retention(secs(60));
    let first = open(builder().wall(NOON), kept.clone(), &reader).await;
    for number in 0..20 {
        assert_eq!(first.put("send", 1, &"a".to_owned()).dedupe(number.to_string()).await, read("a"));
    }
    drop(first);
    post::settle().await;
    assert_eq!((count(&kept, Table::Names), count(&kept, Table::Forget)), (20, 20));
    let second = open(builder().wall(NOON + secs(3_600)), kept.clone(), &reader).await;
    post::settle().await;
    assert_eq!((count(&kept, Table::Names), count(&kept, Table::Forget)), (0, 0));
    assert_eq!(second.put("send", 1, &"b".to_owned()).dedupe("B").await, read("b"));
    sleep(secs(121)).await;
    assert_eq!((count(&kept, Table::Names), count(&kept, Table::Forget)), (0, 0));
}

/// Only their time bounded them: as many as are sent in a day.
#[tokio::test(start_paused = true)]
async fn of_too_many_names_the_oldest_are_forgotten() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let builder = |most| Outbox::builder(&post::balancer(FREE)).wall(NOON).max_names(most);
    let first = open(builder(5), kept.clone(), &reader).await;
    let put = |post: post::Post, name: u32| async move {
        post.put("send", 1, &"a".to_owned()).dedupe(name.to_string()).await
    };
    for name in 0..20 {
        assert_eq!(put(first.clone(), name).await, read("a"));
        assert!(count(&kept, Table::Names) <= 5 && count(&kept, Table::Forget) <= 5, "after {name}");
        sleep(secs(1)).await;
    }
    // The five newest are known, the one before them is not.
    for name in 15..20 {
        assert_eq!(put(first.clone(), name).await, read("a"));
    }
    assert_eq!(reader.seen().len(), 20);
    assert_eq!(put(first.clone(), 14).await, read("a"));
    assert_eq!(reader.seen().len(), 21);
    drop(first);
    post::settle().await;
    let _second = open(builder(2), kept.clone(), &reader).await;
    post::settle().await;
    assert_eq!((count(&kept, Table::Names), count(&kept, Table::Forget)), (2, 2));
}

/// A name that was forgotten as its time was over, and is on its way again, is not forgotten with what was known before.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_put_again_outlives_what_was_known_of_it() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let builder = Outbox::builder(&post::balancer(FREE)).wall(NOON).retention(secs(30));
    let post = open(builder, kept.clone(), &reader).await;
    let put = || async { post.put("send", 1, &"a".to_owned()).dedupe("A").await };
    assert_eq!(put().await, read("a"));
    sleep(secs(31)).await;
    reader.tell("a", [Way::Retry(100)]);
    assert_eq!(put().await, Ok(Delivery::Queued(2.into())));
    sleep(secs(60)).await;
    assert_eq!(put().await, Ok(Delivery::Queued(2.into())));
    assert_eq!((count(&kept, Table::Names), count(&kept, Table::Forget)), (1, 0));
    sleep(secs(60)).await;
    assert_eq!(put().await, read("a"));
    assert_eq!(reader.seen().len(), 3);
}
