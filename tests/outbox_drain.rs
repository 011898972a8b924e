//! Several who empty or close an outbox at once, and what they are given.
#![cfg(feature = "outbox")]

mod post;

use post::{NOON, Post, Reader, Way, later_post, post, put, secs};
use request_balancer::outbox::{Error, MemoryStore, Outbox, StoreError};
use tokio::task::JoinHandle;
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

/// Where another endpoint or another attempt is to be had at once, it was made although nothing was to start any more: each
/// was waited for, and began in the face of whoever drained or closed.
const AT_ONCE: [&str; 2] = [
    "[pool]\nendpoints = ['a', 'b']\n[retry]\njitter = 0.0\n[rules]\nsend = '9/1s'",
    "[retry]\njitter = 0.0\nbackoff = '0s'\n[rules]\nsend = '9/1s'",
];

/// An outbox whose first message has an attempt that fails after five seconds, begun a second ago.
async fn failing(rules: &str, store: &MemoryStore, reader: &Reader) -> (Post, JoinHandle<Result<bool, Error<String>>>) {
    let post = post(rules, store.clone(), reader).await;
    reader.tell("runs", [Way::FailsAfter(secs(5))]);
    let runs = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "runs").await }
    });
    sleep(secs(1)).await;
    (post, runs)
}

#[tokio::test(start_paused = true)]
async fn no_attempt_follows_at_once_while_it_is_drained() {
    for rules in AT_ONCE {
        let (reader, store) = (Reader::new(), MemoryStore::new());
        let (post, runs) = failing(rules, &store, &reader).await;
        let drained = timeout(secs(5), post.drain()).await.expect("it waits for the attempt alone").unwrap();
        assert_eq!(drained.iter().map(|left| (left.attempts, left.maybe_delivered)).collect::<Vec<_>>(), [(1, false)]);
        assert_eq!(runs.await.unwrap(), Ok(false));
        assert_eq!(reader.times(), [(0, "runs".to_owned())]);
        // Whoever comes next finds nobody held.
        let _ = put(&post, 1, "again").await.unwrap();
        let _ = post.flush().await;
        assert_eq!(reader.times().last(), Some(&(5_000, "again".to_owned())));
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_follows_at_once_while_it_is_closed() {
    for rules in AT_ONCE {
        let (reader, store) = (Reader::new(), MemoryStore::new());
        let (post, runs) = failing(rules, &store, &reader).await;
        let closed = timeout(secs(5), post.close(secs(60))).await.expect("it waits for the attempt alone").unwrap();
        assert_eq!((closed.done, closed.aborted, closed.left), (0, 0, 1));
        assert_eq!(runs.await.unwrap(), Ok(false));
        assert_eq!(reader.times(), [(0, "runs".to_owned())]);
        // The next process makes the second attempt, and nobody wonders whether it was delivered.
        let next = later_post(rules, store, &reader).await;
        assert_eq!(next.flush().await, 1);
        let seen: Vec<_> = reader.seen().into_iter().map(|seen| (seen.number, seen.maybe_delivered)).collect();
        assert_eq!(seen, [(1, false), (2, false)]);
    }
}

/// Whoever drains may lose patience just when the attempt fails.
#[tokio::test(start_paused = true)]
async fn attempts_follow_once_nobody_drains_it_any_more() {
    for rules in AT_ONCE {
        for patience in [secs(3), secs(4), secs(5)] {
            let (reader, store) = (Reader::new(), MemoryStore::new());
            let (post, runs) = failing(rules, &store, &reader).await;
            let flushed = tokio::spawn({
                let post = post.clone();
                async move { post.flush().await }
            });
            let drained = timeout(patience, post.drain()).await;
            let left = drained.map_or(0, |drained| drained.unwrap().len());
            let _ = runs.await.unwrap();
            // Whoever flushed before that waits for what goes on, too.
            let flushed = flushed.await.unwrap();
            let expected = if patience > secs(4) { (1, 0, vec!["runs"]) } else { (0, 1, vec!["runs", "runs"]) };
            assert_eq!((left, flushed), (expected.0, expected.1), "{rules}, {patience:?}");
            assert_eq!((reader.texts(), post.len()), (expected.2.iter().map(ToString::to_string).collect(), 0));
        }
    }
}

/// What was taken out of the line just when it was to start was told to wait, and its whole key with it.
#[tokio::test(start_paused = true)]
async fn what_is_taken_out_just_when_it_starts_holds_nobody() {
    let reader = Reader::new();
    let balancer = post::balancer("[retry]\njitter = 0.0\n[rules]\nsend = '1/1s'");
    let post = post::open(Outbox::builder(&balancer).wall(NOON), MemoryStore::new(), &reader).await;
    assert_eq!(put(&post, 1, "first").await, Ok(true));
    assert_eq!(put(&post, 1, "second").await, Ok(false));
    sleep(secs(1)).await;
    assert_eq!(post.drain().await.unwrap().len(), 1);
    assert_eq!(balancer.key(1).held, None);
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
