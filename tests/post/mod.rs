//! An outbox whose handler does what a test tells it, and writes down when.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use request_balancer::outbox::{Builder, Error, Message, Outbox, Store};
use request_balancer::{Balancer, Failure, Outcome, Rules, Scope};
use tokio::time::{Instant, sleep};

/// What the clock on the wall shows when a test begins.
pub(crate) const NOON: SystemTime = SystemTime::UNIX_EPOCH;

pub(crate) type Post = Outbox<String, String, String>;

/// What an attempt is to come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Sent,
    Permanent,
    Transient,
    Ambiguous,
    Unreachable,
    /// After so many seconds.
    Retry(u64),
    RetryOf(u64, Scope),
    Takes(Duration),
    FailsAfter(Duration),
    FailsForGoodAfter(Duration),
    Panics,
    PanicsAfter(Duration),
    Never,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    pub(crate) text: String,
    pub(crate) id: u64,
    pub(crate) number: u32,
    pub(crate) maybe_delivered: bool,
}

/// Who gets the messages.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    began: Instant,
    seen: Arc<Mutex<Vec<Seen>>>,
    ways: Arc<Mutex<BTreeMap<String, VecDeque<Way>>>>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), seen: Arc::default(), ways: Arc::default() }
    }

    /// What the attempts of a text come to, one after the other; then they succeed.
    pub(crate) fn tell(&self, text: &str, ways: impl IntoIterator<Item = Way>) {
        self.ways.lock().unwrap().insert(text.to_owned(), ways.into_iter().collect());
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// When it began to count.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// When which text was tried, in milliseconds.
    pub(crate) fn times(&self) -> Vec<(u128, String)> {
        self.seen().into_iter().map(|seen| (seen.at.as_millis(), seen.text)).collect()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.text).collect()
    }

    fn way(&self, message: &Message<String>) -> Way {
        let (id, text) = (message.id().get(), message.body().clone());
        let (number, maybe_delivered) = (message.number(), message.maybe_delivered());
        let at = self.began.elapsed();
        self.seen.lock().unwrap().push(Seen { at, text, id, number, maybe_delivered });
        let mut ways = self.ways.lock().unwrap();
        ways.get_mut(message.body()).and_then(VecDeque::pop_front).unwrap_or(Way::Sent)
    }

    pub(crate) async fn read(self, message: Message<String>) -> Outcome<String, String> {
        let text = format!("{} was read", message.body());
        let error = || format!("{} was not read", message.body());
        match self.way(&message) {
            Way::Sent => Ok(text),
            Way::Takes(span) => {
                sleep(span).await;
                Ok(text)
            }
            Way::FailsAfter(span) => {
                sleep(span).await;
                Err(Failure::transient(error()))
            }
            Way::FailsForGoodAfter(span) => {
                sleep(span).await;
                Err(Failure::permanent(error()))
            }
            Way::Permanent => Err(Failure::permanent(error())),
            Way::Transient => Err(Failure::transient(error())),
            Way::Ambiguous => Err(Failure::ambiguous(error())),
            Way::Unreachable => Err(Failure::unreachable(error())),
            Way::Retry(after) => Err(message.retry(Duration::from_secs(after))),
            Way::RetryOf(after, scope) => Err(message.retry(Duration::from_secs(after)).hold(scope)),
            Way::Panics => panic!("{} tears", message.body()),
            Way::PanicsAfter(span) => {
                sleep(span).await;
                panic!("{} tears", message.body())
            }
            Way::Never => std::future::pending().await,
        }
    }
}

pub(crate) fn balancer(rules: &str) -> Balancer {
    Balancer::builder(rules.parse::<Rules>().expect("sound rules")).seed(7).build()
}

pub(crate) async fn open(builder: Builder, store: impl Store, reader: &Reader) -> Post {
    let reader = reader.clone();
    builder.open_store(store, move |message| reader.clone().read(message)).await.expect("a store that works")
}

/// An outbox that begins at noon.
pub(crate) async fn post(rules: &str, store: impl Store, reader: &Reader) -> Post {
    open(Outbox::builder(&balancer(rules)).wall(NOON), store, reader).await
}

/// Another one, of another run of the program.
pub(crate) async fn later_post(rules: &str, store: impl Store, reader: &Reader) -> Post {
    open(Outbox::builder(&balancer(rules)).wall(NOON + reader.began.elapsed()), store, reader).await
}

pub(crate) async fn put(post: &Post, key: u32, text: &str) -> Result<bool, Error<String>> {
    use request_balancer::outbox::Delivery;
    Ok(match post.put("send", key, &text.to_owned()).await? {
        Delivery::Sent(answer) => {
            assert_eq!(answer, format!("{text} was read"));
            true
        }
        Delivery::Queued(_) => false,
        _ => unreachable!("there are two ways"),
    })
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Lets everything happen that needs no time.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        tokio::task::yield_now().await;
    }
    sleep(Duration::ZERO).await;
}
