//! A store that fails for a while: nothing is lost, nothing is sent without a trace, and what was refused is not there.
#![cfg(feature = "outbox")]

mod post;

use std::future::IntoFuture;
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use post::{NOON, Reader, Way, later_post, open, put, secs};
use request_balancer::Failure;
use request_balancer::outbox::{Change, Error, MemoryStore, Message, Outbox, OutboxEvent, Store, StoreError, Table};
use tokio::time::{sleep, timeout};

const FREE: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'";

/// A store whose disk is full while the switch is on.
#[derive(Clone, Debug)]
struct Full {
    inner: MemoryStore,
    full: Arc<AtomicBool>,
    /// Whether it needs to be opened anew.
    broken: bool,
    /// Whether it makes what it says it did not.
    makes: bool,
}

impl Full {
    fn new(inner: MemoryStore) -> Self {
        Self { inner, full: Arc::default(), broken: false, makes: false }
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(ErrorKind::StorageFull).into());
        }
        Ok(())
    }
}

impl Store for Full {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        assert!(!self.broken, "it was not opened anew");
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        assert!(!self.broken, "it was not opened anew");
        self.inner.scan(table, from, visit)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        assert!(!self.broken, "it was not opened anew");
        if let Err(error) = self.check() {
            self.broken = true;
            if self.makes {
                self.inner.commit(changes)?;
            }
            return Err(error);
        }
        self.inner.commit(changes)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.check()?;
        self.broken = false;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_is_full_puts_are_refused_and_what_is_stored_waits() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let store = Full::new(kept.clone());
    let full = Arc::clone(&store.full);
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store, &reader).await;
    let mut events = post.events();
    reader.tell("before", [Way::Transient]);
    assert_eq!(put(&post, 1, "before").await, Ok(false));
    full.store(true, Ordering::Relaxed);
    let refused = put(&post, 2, "meanwhile").await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full { .. })), "{refused:?}");
    sleep(secs(100)).await;
    // No attempt begins that can't be written down.
    assert_eq!(reader.texts(), ["before"]);
    assert!(matches!(events.try_next(), Some(OutboxEvent::StoreFailed { error: StoreError::Full { .. } })));
    full.store(false, Ordering::Relaxed);
    sleep(secs(2)).await;
    assert_eq!(reader.texts(), ["before", "before"]);
    let last = reader.seen().pop().unwrap();
    assert!(!last.maybe_delivered, "everybody knows how the first attempt ended");
    assert!(post.is_empty());
    assert_eq!(put(&post, 2, "after").await, Ok(true));
    drop(post);
    post::settle().await;
    let post = later_post(FREE, kept, &reader).await;
    assert_eq!((post.len(), reader.seen().len()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_while_the_disk_is_full_is_not_sent_again() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let store = Full::new(kept.clone());
    let full = Arc::clone(&store.full);
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON), store, &reader).await;
    reader.tell("a", [Way::Takes(secs(2))]);
    let putting = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "a").await }
    });
    sleep(secs(1)).await;
    full.store(true, Ordering::Relaxed);
    sleep(secs(60)).await;
    assert!(putting.is_finished(), "whoever put it knows that it was sent");
    assert_eq!(putting.await.unwrap(), Ok(true));
    assert_eq!((post.len(), reader.seen().len()), (1, 1));
    full.store(false, Ordering::Relaxed);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!((post.len(), reader.seen().len()), (0, 1));
}

/// Its caller was there when it failed, and gone when that was written down: nobody was told.
#[tokio::test(start_paused = true)]
async fn what_fails_while_its_caller_goes_away_is_told_as_lost() {
    let store = Full::new(MemoryStore::new());
    let full = Arc::clone(&store.full);
    let handler = async |_: Message<String>| {
        sleep(secs(2)).await;
        Err::<(), _>(Failure::permanent("too late".to_owned()))
    };
    let post = Outbox::builder(&post::balancer(FREE)).wall(NOON).open_store(store, handler).await.unwrap();
    let mut events = post.events();
    let put = timeout(secs(10), post.put("send", 1, &"a".to_owned()).into_future());
    let goes_away = tokio::spawn(put);
    sleep(secs(1)).await;
    full.store(true, Ordering::Relaxed);
    sleep(secs(20)).await;
    assert!(goes_away.await.unwrap().is_err());
    full.store(false, Ordering::Relaxed);
    sleep(secs(2)).await;
    assert_eq!((post.len(), post.dead().await.unwrap().len()), (0, 0));
    let told = std::iter::from_fn(|| events.try_next());
    let lost: Vec<_> = told.filter(|event| !matches!(event, OutboxEvent::StoreFailed { .. })).collect();
    assert!(matches!(&lost[..], [OutboxEvent::Lost { reason, .. }] if reason == "too late"), "{lost:?}");
}

/// The second time it was buried nothing was to be done, and who made room for it the first time was not told.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_even_where_its_commit_was_told_as_failed() {
    let (reader, mut store) = (Reader::new(), Full::new(MemoryStore::new()));
    store.makes = true;
    let full = Arc::clone(&store.full);
    let post = open(Outbox::builder(&post::balancer(FREE)).wall(NOON).max_dead(1), store, &reader).await;
    let mut events = post.events();
    for text in ["first", "second"] {
        reader.tell(text, [Way::Transient, Way::Permanent]);
        assert_eq!(put(&post, 1, text).await, Ok(false));
        if text == "first" {
            sleep(secs(5)).await;
        }
    }
    reader.tell("second", [Way::FailsForGoodAfter(secs(2))]);
    sleep(secs(2)).await;
    full.store(true, Ordering::Relaxed);
    sleep(secs(10)).await;
    full.store(false, Ordering::Relaxed);
    sleep(secs(5)).await;
    let reasons: Vec<_> = post.dead().await.unwrap().into_iter().map(|dead| dead.reason).collect();
    assert_eq!((post.len(), reasons), (0, vec!["second was not read".to_owned()]));
    let told = std::iter::from_fn(|| events.try_next());
    let told: Vec<_> = told.filter(|event| !matches!(event, OutboxEvent::StoreFailed { .. })).collect();
    let [OutboxEvent::Died { id: first, .. }, OutboxEvent::Died { .. }, OutboxEvent::Lost { id: lost, .. }] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(first, lost);
}

#[tokio::test(start_paused = true)]
async fn a_file_of_another_version_is_not_touched() {
    let mut store = MemoryStore::new();
    let format = Change { table: Table::Meta, key: b"format".to_vec(), value: Some(9_u32.to_be_bytes().to_vec()) };
    store.commit(&[format]).unwrap();
    let opened = Outbox::builder(&post::balancer(FREE)).open_store(store, |message| Reader::new().read(message)).await;
    let error = opened.unwrap_err();
    assert_eq!(error, StoreError::Version { found: 9, known: 1 });
    assert_eq!(error.to_string(), "the outbox has format version 9, this program knows versions up to 1");
}

#[test]
fn without_a_runtime_it_does_not_open() {
    let (store, reader) = (MemoryStore::new(), Reader::new());
    let opening = Outbox::builder(&post::balancer(FREE)).open_store(store, move |message| reader.clone().read(message));
    let opened = futures::executor::block_on(opening);
    assert_eq!(opened.unwrap_err(), StoreError::NoRuntime);
}
