//! Cases from the field about messages that outlive the process: crashes, poison, work done twice, closing.
#![cfg(feature = "outbox")]

mod mortal;
mod post;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mortal::{Death, Mortal};
use post::{NOON, Reader, Way, later_post, open, post, put, secs, settle};
use request_balancer::Retry;
use request_balancer::outbox::{Delivery, MemoryStore, Outbox, OutboxEvent, Overflow};
use tokio::time::{Instant, sleep, timeout};

const FREE: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000000/1s'";

#[tokio::test(start_paused = true)]
async fn fr_129_what_was_sent_under_a_name_is_not_sent_again() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let first = post(FREE, store.clone(), &reader).await;
    let sent = Ok(Delivery::Sent("x was read".to_owned()));
    assert_eq!(first.put("send", 1, &"x".to_owned()).dedupe("X").await, sent);
    assert_eq!(first.put("send", 1, &"y".to_owned()).dedupe("X").await, sent);
    drop(first);
    settle().await;
    let second = later_post(FREE, store, &reader).await;
    assert_eq!(second.put("send", 1, &"x".to_owned()).dedupe("X").await, sent);
    assert_eq!(reader.texts(), ["x"]);
}

/// The row's shutdown that drains is a flush within the deadline, then a close at it.
#[tokio::test(start_paused = true)]
async fn fr_119_what_never_ends_is_cut_off_and_comes_again_as_maybe_delivered() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let first = post(FREE, store.clone(), &reader).await;
    reader.tell("hangs", [Way::Never]);
    tokio::spawn({
        let first = first.clone();
        async move { put(&first, 1, "hangs").await }
    });
    for number in 0..9 {
        assert_eq!(put(&first, 2, &number.to_string()).await, Ok(true));
    }
    let begin = Instant::now();
    assert!(timeout(secs(10), first.flush()).await.is_err());
    let closed = first.close(Duration::ZERO).await.unwrap();
    assert_eq!(begin.elapsed(), secs(10));
    assert_eq!((closed.aborted, closed.left), (1, 1));
    let second = later_post(FREE, store, &reader).await;
    assert_eq!(second.flush().await, 1);
    let last = reader.seen().pop().unwrap();
    assert_eq!((last.text.as_str(), last.number, last.maybe_delivered), ("hangs", 2, true));
}

#[tokio::test(start_paused = true)]
async fn fr_162_killed_at_every_step_nothing_is_lost_and_what_comes_again_says_so() {
    let mut repeated = 0;
    for (commits, death) in (0..6).flat_map(|commits| [(commits, Death::Before), (commits, Death::After)]) {
        let reader = Reader::new();
        let store = MemoryStore::new();
        let first = open(
            Outbox::builder(&post::balancer(FREE)).wall(NOON),
            Mortal::new(store.clone(), 1 + commits, death),
            &reader,
        )
        .await;
        // Whoever is killed gets no answer.
        let accepted = timeout(secs(3), put(&first, 1, "a")).await;
        drop(first);
        settle().await;
        let before = reader.seen();
        let second = later_post(FREE, store, &reader).await;
        second.flush().await;
        assert!(second.is_empty());
        let seen = reader.seen();
        if accepted == Ok(Ok(true)) || accepted == Ok(Ok(false)) {
            assert!(!seen.is_empty(), "lost when killed at commit {commits} {death:?}");
        }
        assert!(before.len() <= 1 && seen.len() <= 2, "{seen:?}");
        if let [first, again] = &seen[..] {
            assert_eq!((again.id, again.number, again.maybe_delivered), (first.id, 2, true));
            repeated += 1;
        }
    }
    assert!(repeated > 0, "no death fell between a sending and its erasure");
}

#[tokio::test(start_paused = true)]
async fn fr_163_a_thousand_messages_with_a_kill_in_between() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let rules = "overall = '100/1s smooth'\n[rules]\nsend = '1000/1s'";
    let first = post(rules, store.clone(), &reader).await;
    let texts: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    first.put_all(texts.iter().enumerate().map(|(number, text)| ("send", number as u32 % 10, text))).await.unwrap();
    while reader.seen().len() < 450 {
        sleep(Duration::from_millis(1)).await;
    }
    // Without a word: nothing is written any more.
    drop(first);
    settle().await;
    let before = reader.seen();
    let begin = Instant::now();
    let second = later_post(rules, store, &reader).await;
    // Time goes on when everything is done that needs none.
    sleep(Duration::from_millis(1)).await;
    assert!(reader.seen().len() > before.len());
    assert!(begin.elapsed() < secs(1));
    second.flush().await;
    assert!(second.is_empty());
    let mut attempts: BTreeMap<u64, Vec<(u32, bool)>> = BTreeMap::new();
    for seen in reader.seen() {
        attempts.entry(seen.id).or_default().push((seen.number, seen.maybe_delivered));
    }
    assert_eq!(attempts.len(), 1_000);
    for (id, attempts) in attempts {
        assert!(attempts == [(1, false)] || attempts == [(1, false), (2, true)], "{id}: {attempts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fr_165_poison_blocks_nobody() {
    let reader = Reader::new();
    let builder = Outbox::builder(&post::balancer(FREE)).wall(NOON).retry(Retry::new().attempts(5));
    let post = open(builder, MemoryStore::new(), &reader).await;
    let poison: Vec<String> = (0..100).map(|number| format!("poison {number}")).collect();
    poison.iter().for_each(|text| reader.tell(text, (0..5).map(|_| Way::Transient)));
    let (good, later) = ("good".to_owned(), "later".to_owned());
    let all = poison.iter().map(|text| ("send", 1, text)).chain([("send", 2, &good), ("send", 1, &later)]);
    post.put_all(all).await.unwrap();
    // At once, and on the poisoned key while all of them back off.
    assert_eq!(post.flush().await, 2);
    let at = |text: &str| reader.seen().into_iter().find(|seen| seen.text == text).map(|seen| seen.at);
    assert_eq!((at("good"), at("later")), (Some(Duration::ZERO), Some(Duration::ZERO)));
    sleep(secs(3_600)).await;
    assert!(post.is_empty());
    let mut attempts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for seen in reader.seen() {
        attempts.entry(seen.text).or_default().push(seen.number);
    }
    assert!(poison.iter().all(|text| attempts[text] == [1, 2, 3, 4, 5]), "{attempts:?}");
    assert_eq!(post.dead().await.unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn fr_167_the_dead_are_never_more_than_may_be() {
    for (overflow, dead_bytes) in [
        (Overflow::DropOldest, 10 << 20),
        (Overflow::RefuseNew, 10 << 20),
        (Overflow::Block, 10 << 20),
        (Overflow::DropOldest, 50_000),
        (Overflow::Block, 50_000),
    ] {
        let reader = Reader::new();
        let builder = Outbox::builder(&post::balancer(FREE)).wall(NOON).max_dead(1_000).max_dead_bytes(dead_bytes);
        let post = open(builder.overflow(overflow).window(64), MemoryStore::new(), &reader).await;
        let mut events = post.events();
        let counting = tokio::spawn(async move {
            let (mut died, mut lost, mut blocked) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            while let Some(event) = events.next().await {
                let is_new = match event {
                    OutboxEvent::Died { id, .. } => died.insert(id),
                    OutboxEvent::Lost { id, .. } => lost.insert(id),
                    OutboxEvent::Blocked { id, .. } => {
                        blocked.insert(id);
                        true
                    }
                    event => panic!("{event:?}"),
                };
                assert!(is_new, "told twice");
            }
            (died.len(), lost.len(), blocked.len())
        });
        let poison: Vec<String> = (0..5_000).map(|number| format!("poison {number}")).collect();
        poison.iter().for_each(|text| reader.tell(text, [Way::Permanent]));
        let mut most = 0;
        for texts in poison.chunks(100) {
            post.put_all(texts.iter().enumerate().map(|(key, text)| ("send", key as u32, text))).await.unwrap();
            post.flush().await;
            most = most.max(post.dead().await.unwrap().len());
        }
        sleep(secs(1)).await;
        let dead = post.dead().await.unwrap().len();
        let left = post.len() as usize;
        drop(post);
        let (died, lost, blocked) = counting.await.unwrap();
        assert!(most <= 1_000);
        assert_eq!(dead == 1_000, dead_bytes > 1 << 20, "{dead}");
        assert_eq!(reader.seen().len(), 5_000, "each is tried once");
        match overflow {
            Overflow::DropOldest => assert_eq!((died, lost, blocked, left), (5_000, 5_000 - dead, 0, 0)),
            Overflow::RefuseNew => assert_eq!((died, lost, blocked, left), (dead, 5_000 - dead, 0, 0)),
            Overflow::Block => assert_eq!((died, lost, blocked, left), (dead, 0, 5_000 - dead, 5_000 - dead)),
            _ => unreachable!("there are three ways"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_blocked_dies_when_there_is_room_without_being_tried_again() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let builder = || Outbox::builder(&post::balancer(FREE)).max_dead(1).overflow(Overflow::Block);
    let first = open(builder().wall(NOON), store.clone(), &reader).await;
    for text in ["a", "b"] {
        reader.tell(text, [Way::Transient, Way::Permanent]);
        assert_eq!(put(&first, 1, text).await, Ok(false));
    }
    sleep(secs(10)).await;
    assert_eq!((first.len(), first.dead().await.unwrap().len()), (1, 1));
    drop(first);
    settle().await;
    let second = open(builder().wall(NOON + secs(10)), store, &reader).await;
    assert_eq!(second.purge(1.into()).await, Ok(true));
    sleep(secs(60)).await;
    let dead = second.dead().await.unwrap();
    assert_eq!((second.len(), dead.len(), dead[0].id, dead[0].attempts), (0, 1, 2.into(), 2));
    assert_eq!(reader.seen().len(), 4);
}
