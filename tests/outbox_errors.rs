//! Stores that can't be read, that say no and do it all the same, and code that panics: nobody waits for ever.
#![cfg(feature = "outbox")]

mod post;

use std::fmt;
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use post::{NOON, Reader, Way, open, put, secs};
use request_balancer::Failure;
use request_balancer::outbox::{Change, Delivery, Error, MemoryStore, Message, Outbox, Store, StoreError, Table};
use serde::{Deserialize, Serialize, Serializer};
use tokio::time::{sleep, timeout};

const FREE: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'";

/// A store in memory with whims.
#[derive(Clone, Debug, Default)]
struct Moody {
    inner: MemoryStore,
    whims: Arc<Whims>,
}

#[derive(Debug, Default)]
struct Whims {
    /// Nothing can be read before it is opened anew.
    blind: AtomicUsize,
    /// So many attempts to open it anew fail.
    shut: AtomicUsize,
    reopened: AtomicUsize,
    /// So many transactions from now on are made, and said not to be.
    denies: AtomicUsize,
    panics: AtomicUsize,
    /// Takes much room, and can't be compacted.
    swollen: AtomicUsize,
}

fn is_set(whim: &AtomicUsize) -> bool {
    whim.load(Ordering::Relaxed) > 0
}

/// Whether it was more than nothing; now it is one less.
fn take(whim: &AtomicUsize) -> bool {
    whim.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

fn io() -> StoreError {
    std::io::Error::from(ErrorKind::Other).into()
}

impl Moody {
    fn see(&self) -> Result<(), StoreError> {
        if is_set(&self.whims.blind) { Err(io()) } else { Ok(()) }
    }
}

impl Store for Moody {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.see()?;
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.see()?;
        self.inner.scan(table, from, visit)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        assert!(!is_set(&self.whims.panics), "the store tears");
        self.inner.commit(changes)?;
        if take(&self.whims.denies) { Err(io()) } else { Ok(()) }
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.whims.reopened.fetch_add(1, Ordering::Relaxed);
        if take(&self.whims.shut) {
            return Err(io());
        }
        self.whims.blind.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn size(&self) -> Option<u64> {
        is_set(&self.whims.swollen).then_some(1 << 30)
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        self.whims.blind.store(1, Ordering::Relaxed);
        Err(io())
    }
}

/// An error while reading was followed by no attempt to open the store anew: nothing worked any more.
#[tokio::test(start_paused = true)]
async fn a_store_that_can_not_be_read_is_opened_anew() {
    let (reader, store) = (Reader::new(), Moody::default());
    let balancer = post::balancer(FREE);
    let post = open(Outbox::builder(&balancer).wall(NOON), store.clone(), &reader).await;
    balancer.pause_all();
    let texts: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    balancer.resume_all();
    store.whims.blind.store(1, Ordering::Relaxed);
    sleep(secs(10)).await;
    assert_eq!(reader.texts(), texts, "who is marked when nothing can be read is sent in its turn");
    assert!(post.is_empty());
    // Only reads meet it, and the first one after it works.
    store.whims.blind.store(1, Ordering::Relaxed);
    assert!(post.dead().await.is_err());
    assert_eq!(post.dead().await, Ok(Vec::new()));
}

/// Looking for queues in a store that fails went on without a pause.
#[tokio::test(start_paused = true)]
async fn a_search_that_fails_rests_before_it_goes_on() {
    let (reader, store) = (Reader::new(), Moody::default());
    let balancer = post::balancer(FREE);
    balancer.pause_all();
    let post = open(Outbox::builder(&balancer).wall(NOON), store.clone(), &reader).await;
    for key in 0..10 {
        assert_eq!(put(&post, key, "a").await, Ok(false));
    }
    drop(post);
    post::settle().await;
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store.clone(), &reader).await;
    store.whims.blind.store(1, Ordering::Relaxed);
    store.whims.shut.store(50, Ordering::Relaxed);
    sleep(secs(20)).await;
    assert!(store.whims.reopened.load(Ordering::Relaxed) < 60);
    sleep(secs(60)).await;
    assert!(timeout(secs(60), post.flush()).await.is_ok());
    assert_eq!((post.len(), reader.seen().len()), (0, 10));
}

/// Told that they were not, nobody looked for messages that had entered the line all the same.
#[tokio::test(start_paused = true)]
async fn what_entered_the_line_though_the_store_denies_it_is_sent() {
    let (reader, store) = (Reader::new(), Moody::default());
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store.clone(), &reader).await;
    post.put_later("send", 1, &"later".to_owned(), NOON + secs(60)).await.unwrap();
    sleep(secs(59)).await;
    store.whims.denies.store(1, Ordering::Relaxed);
    store.whims.shut.store(1, Ordering::Relaxed);
    sleep(secs(10)).await;
    assert_eq!((post.len(), reader.texts()), (0, vec!["later".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_dead_message_that_is_back_in_line_though_the_store_denies_it_is_sent() {
    let (reader, store) = (Reader::new(), Moody::default());
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store.clone(), &reader).await;
    reader.tell("a", [Way::Transient, Way::Permanent]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    sleep(secs(5)).await;
    store.whims.denies.store(1, Ordering::Relaxed);
    store.whims.shut.store(1, Ordering::Relaxed);
    assert!(matches!(post.redrive(1.into()).await, Err(Error::Store(_))));
    sleep(secs(10)).await;
    assert_eq!((post.len(), reader.texts().len()), (0, 3));
    assert_eq!(post.dead().await, Ok(Vec::new()));
}

/// Nor for those that wait in the store, as there are too many of them.
#[tokio::test(start_paused = true)]
async fn what_left_the_line_though_the_store_denies_it_comes_back() {
    let (reader, store) = (Reader::new(), Moody::default());
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON).window(1), store.clone(), &reader).await;
    let texts = ["a", "b", "c"];
    for text in texts {
        reader.tell(text, [Way::Transient]);
    }
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    store.whims.denies.store(3, Ordering::Relaxed);
    let _ = put(&post, 1, "b").await;
    let _ = put(&post, 1, "c").await;
    sleep(secs(100)).await;
    assert!(post.is_empty());
    assert!(timeout(secs(60), post.flush()).await.is_ok());
}

/// A panic of the store ended who writes, and whoever waited for it waited for ever.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_closes_the_outbox() {
    let (reader, store) = (Reader::new(), Moody::default());
    let balancer = post::balancer(FREE);
    let post = open(Outbox::builder(&balancer).wall(NOON), store.clone(), &reader).await;
    balancer.pause_all();
    for key in 0..5 {
        assert_eq!(put(&post, key, "a").await, Ok(false));
    }
    let flushing = tokio::spawn({
        let post = post.clone();
        async move { post.flush().await }
    });
    post::settle().await;
    store.whims.panics.store(1, Ordering::Relaxed);
    balancer.resume_all();
    let all = async {
        assert_eq!(put(&post, 1, "b").await, Err(Error::Store(StoreError::Closed)));
        flushing.await.unwrap();
        assert_eq!(post.flush().await, 0);
        assert_eq!(post.drain().await, Err(StoreError::Closed));
        assert_eq!(post.close(secs(1)).await, Err(StoreError::Closed));
    };
    timeout(secs(60), all).await.expect("everybody is answered");
}

#[derive(Debug)]
struct Mute;

impl fmt::Display for Mute {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it can't be shown")
    }
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it can't be written")
    }
}

/// So did panics of users' own code, where it shows an error or writes a value.
#[tokio::test(start_paused = true)]
async fn errors_that_can_not_be_shown_and_values_that_can_not_be_written_keep_nobody_waiting() {
    let handler = async |message: Message<u32>| match message.body() {
        0 => Ok(Unwritable),
        _ => Err(Failure::permanent(Mute)),
    };
    let opened = Outbox::builder(&post::balancer(FREE)).wall(NOON).open_store(MemoryStore::new(), handler).await;
    let post = opened.unwrap();
    let all = async {
        assert_eq!(post.put("send", 1, &0).dedupe("A").await.ok(), Some(Delivery::Sent(Unwritable)));
        assert!(matches!(post.put("send", 1, &1).await, Err(Error::Failed(Mute))));
        post.put_all([("send", 1, &1)]).await.unwrap();
        post.flush().await;
        let reasons: Vec<_> = post.dead().await.unwrap().into_iter().map(|dead| dead.reason).collect();
        assert_eq!(reasons, ["an error that can't be shown"]);
        assert_eq!(post.drain().await, Ok(Vec::new()));
        assert!(post.is_empty());
    };
    timeout(secs(60), all).await.expect("everybody is answered");
}

/// An outbox whose file could not be compacted did not open.
#[tokio::test(start_paused = true)]
async fn a_store_that_can_not_be_compacted_works() {
    let (reader, store) = (Reader::new(), Moody::default());
    store.whims.swollen.store(1, Ordering::Relaxed);
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store.clone(), &reader).await;
    assert_eq!(put(&post, 1, "a").await, Ok(true));
    assert_eq!(post.close(secs(1)).await.map(|closed| closed.left), Ok(0));
}
