//! How messages of an outbox are delivered: when, in which order, and what follows a failure.
#![cfg(feature = "outbox")]

mod post;

use std::future::IntoFuture;
use std::time::Duration;

use post::{NOON, Reader, Way, later_post, open, post, put, secs};
use request_balancer::outbox::{Delivery, Error, MemoryStore, Message, Outbox, OutboxEvent};
use request_balancer::{Failure, Refused, Retry, Scope, Target};
use tokio::time::{sleep, timeout};

const RULES: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1/1s'";

/// Limits that nothing meets here.
const FREE: &str = "[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'";

#[tokio::test(start_paused = true)]
async fn what_may_start_is_sent_at_once_and_the_rest_in_order() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    assert_eq!(put(&post, 1, "a").await, Ok(true));
    for text in ["b", "c", "d"] {
        assert_eq!(put(&post, 1, text).await, Ok(false));
    }
    assert_eq!(put(&post, 2, "other").await, Ok(true));
    assert_eq!(post.len(), 3);
    assert_eq!(post.flush().await, 3);
    assert!(post.is_empty());
    let times = [(0, "a"), (0, "other"), (1_000, "b"), (2_000, "c"), (3_000, "d")];
    assert_eq!(reader.times(), times.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_a_queue_go_in_order_with_a_window_of_them_in_line() {
    let reader = Reader::new();
    let balancer = post::balancer(FREE);
    let post = open(Outbox::builder(&balancer).wall(NOON).window(4), MemoryStore::new(), &reader).await;
    let texts: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    balancer.pause_all();
    let ids = post.put_all(texts.iter().map(|text| ("send", 1, text))).await.unwrap();
    assert_eq!(ids.len(), 3_000);
    post::settle().await;
    assert_eq!(balancer.snapshot().waiting, 4);
    balancer.resume_all();
    assert_eq!(post.flush().await, 3_000);
    assert_eq!(reader.texts(), texts);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_the_callers_or_goes_to_the_dead() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    let mut events = post.events();
    reader.tell("bad", [Way::Permanent]);
    reader.tell("worse", [Way::Permanent]);
    assert_eq!(put(&post, 1, "bad").await, Err(Error::Failed("bad was not read".to_owned())));
    assert_eq!((post.len(), post.dead().await.unwrap().len()), (0, 0));
    assert_eq!(put(&post, 1, "worse").await, Ok(false));
    assert_eq!(post.flush().await, 0);
    let dead = post.dead().await.unwrap();
    let facts: Vec<_> = dead.iter().map(|dead| (dead.reason.as_str(), dead.attempts, dead.maybe_delivered)).collect();
    assert_eq!(facts, [("worse was not read", 1, false)]);
    assert_eq!(dead[0].body::<String>().unwrap(), "worse");
    let Some(OutboxEvent::Died { id, reason, .. }) = events.try_next() else { panic!("nobody says so") };
    assert_eq!((id, reason.as_str()), (dead[0].id, "worse was not read"));
    // Tried again, it keeps its id.
    assert_eq!(post.redrive(id).await, Ok(true));
    assert_eq!(post.redrive(id).await, Ok(false));
    assert_eq!(post.flush().await, 1);
    let last = reader.seen().pop().unwrap();
    assert_eq!((last.text.as_str(), last.id, last.number), ("worse", id.get(), 2));
}

/// It is told to nobody that it failed: so it is kept.
#[tokio::test(start_paused = true)]
async fn what_fails_after_its_caller_went_away_goes_to_the_dead() {
    let handler = async |_: Message<String>| {
        sleep(secs(10)).await;
        Err::<(), _>(Failure::permanent("too late".to_owned()))
    };
    let opened = Outbox::builder(&post::balancer(FREE)).open_store(MemoryStore::new(), handler).await;
    let post = opened.unwrap();
    let put = post.put("send", 1, &"a".to_owned()).into_future();
    assert!(timeout(secs(1), put).await.is_err());
    post.flush().await;
    sleep(secs(20)).await;
    let reasons: Vec<_> = post.dead().await.unwrap().into_iter().map(|dead| dead.reason).collect();
    assert_eq!((post.len(), reasons), (0, vec!["too late".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_dead_can_be_forgotten() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("bad", [Way::Transient, Way::Permanent]);
    assert_eq!(put(&post, 1, "bad").await, Ok(false));
    sleep(secs(2)).await;
    let dead = post.dead().await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((post.purge(dead[0].id).await, post.purge(dead[0].id).await), (Ok(true), Ok(false)));
    assert_eq!(post.dead().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_failing_message_steps_out_and_others_pass() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Transient, Way::Transient]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(true));
    sleep(secs(5)).await;
    let times = [(0, "a"), (0, "b"), (1_000, "a"), (3_000, "a")];
    assert_eq!(reader.times(), times.map(|(at, text)| (at, text.to_owned())));
    assert_eq!(reader.seen().iter().map(|seen| seen.number).collect::<Vec<_>>(), [1, 1, 2, 3]);
    assert!(post.is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_an_ordered_rule_nobody_passes() {
    let reader = Reader::new();
    let rules = "[retry]\njitter = 0.0\n[rules]\nsend = { per_key = '1000/1s', ordered = true }";
    let post = post(rules, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Transient, Way::Transient]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(false));
    assert_eq!(put(&post, 2, "other").await, Ok(true));
    sleep(secs(5)).await;
    let times = [(0, "a"), (0, "other"), (1_000, "a"), (3_000, "a"), (3_000, "b")];
    assert_eq!(reader.times(), times.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_told_to_wait_keeps_its_place_and_holds_its_key() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Retry(3_000)]);
    for text in ["a", "b", "c"] {
        assert_eq!(put(&post, 1, text).await, Ok(false));
    }
    assert_eq!(put(&post, 2, "other").await, Ok(true));
    assert_eq!(post.flush().await, 0, "what is held is not waited for");
    sleep(secs(3_001)).await;
    let times = [(0, "a"), (0, "other"), (3_000_000, "a"), (3_000_000, "b"), (3_000_000, "c")];
    assert_eq!(reader.times(), times.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_too_long_and_none_costs_an_attempt() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    // More and longer waits than the policy allows for requests.
    reader.tell("a", (0..30).map(|_| Way::Retry(7_200)));
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    sleep(secs(30 * 7_200 + 1)).await;
    assert!(post.is_empty());
    assert_eq!((reader.seen().len(), post.dead().await.unwrap().len()), (31, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_attempt() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", (0..100).map(|_| Way::Unreachable));
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(false));
    sleep(secs(3_600)).await;
    assert!(post.is_empty(), "{:?}", reader.times());
    let times: Vec<u128> =
        reader.times().into_iter().filter(|(_, text)| text == "a").map(|(at, _)| at / 1_000).collect();
    assert_eq!(times[..8], [0, 1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(times.len(), 101);
    assert!(reader.times().contains(&(1_000, "b".to_owned())), "the key was held");
}

#[tokio::test(start_paused = true)]
async fn attempts_end_among_the_dead_with_their_last_error() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Transient, Way::Ambiguous, Way::Transient]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    sleep(secs(10)).await;
    let seen: Vec<_> = reader.seen().iter().map(|seen| (seen.number, seen.maybe_delivered)).collect();
    assert_eq!(seen, [(1, false), (2, false), (3, true)]);
    let dead = post.dead().await.unwrap();
    assert_eq!((dead.len(), dead[0].attempts, dead[0].maybe_delivered), (1, 3, true));
    assert_eq!(dead[0].reason, "all its attempts failed; last error: a was not read");
    assert_eq!(dead[0].put_at, NOON);
    assert_eq!(dead[0].died_at, NOON + secs(3));
}

#[tokio::test(start_paused = true)]
async fn with_one_attempt_the_caller_learns_of_its_failure() {
    let reader = Reader::new();
    let builder = Outbox::builder(&post::balancer(FREE)).retry(Retry::none());
    let post = open(builder, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Transient]);
    let last = Some("a was not read".to_owned());
    assert_eq!(put(&post, 1, "a").await, Err(Error::GaveUp { reason: Refused::Attempts, last }));
    assert_eq!((post.len(), post.dead().await.unwrap().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_an_attempt_and_may_have_delivered() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Panics]);
    reader.tell("b", [Way::Panics, Way::Panics, Way::Panics]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(false));
    sleep(secs(10)).await;
    let seen: Vec<_> = reader.seen().into_iter().filter(|seen| seen.text == "a").collect();
    let facts: Vec<_> = seen.iter().map(|seen| (seen.at, seen.number, seen.maybe_delivered)).collect();
    assert_eq!(facts, [(secs(0), 1, false), (secs(1), 2, true)]);
    let dead = post.dead().await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].attempts, dead[0].reason.as_str()), (3, "the attempt panicked: b tears"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_may_have_delivered() {
    let reader = Reader::new();
    let rules = "attempt_timeout = '30s'\n[retry]\njitter = 0.0\n[rules]\nsend = '1000/1s'";
    let post = post(rules, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Never]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(true));
    sleep(secs(2)).await;
    let seen: Vec<_> = reader.seen().into_iter().filter(|seen| seen.text == "a").collect();
    let facts: Vec<_> = seen.iter().map(|seen| (seen.at, seen.number, seen.maybe_delivered)).collect();
    assert_eq!(facts, [(secs(0), 1, false), (secs(31), 2, true)]);
}

#[tokio::test(start_paused = true)]
async fn while_breakers_are_open_messages_wait_and_spend_nothing() {
    let reader = Reader::new();
    let rules = "
        [retry]
        jitter = 0.0
        attempts = 3
        [pool]
        endpoints = ['api']
        overall = '1000/1s'
        breaker = { failures = 2, reset = '60s', probes = 1 }
        [rules]
        send = '1000/1s'";
    let post = post(rules, MemoryStore::new(), &reader).await;
    reader.tell("a", [Way::Transient, Way::Transient]);
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    sleep(secs(2)).await;
    for text in ["b", "c"] {
        assert_eq!(put(&post, 2, text).await, Ok(false));
    }
    assert_eq!(post.flush().await, 0, "all breakers are open");
    sleep(secs(200)).await;
    assert!(post.is_empty());
    assert_eq!(post.dead().await.unwrap(), []);
    let after: Vec<_> = reader.times().into_iter().skip(2).collect();
    assert!(after.iter().all(|(at, _)| *at >= 31_000), "{after:?}");
    assert_eq!(reader.seen().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn messages_for_later_enter_the_line_when_they_are_due() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let post = post(RULES, store.clone(), &reader).await;
    let put_later = |text: &'static str, at| {
        let post = &post;
        async move { post.put_later("send", 1, &text.to_owned(), NOON + secs(at)).await.unwrap() }
    };
    assert_eq!(put_later("third", 20).await, Delivery::Queued(1.into()));
    assert_eq!(put_later("second", 10).await, Delivery::Queued(2.into()));
    assert_eq!(put_later("now", 0).await, Delivery::Sent("now was read".to_owned()));
    assert_eq!((post.flush().await, post.len()), (0, 2));
    sleep(Duration::from_millis(9_500)).await;
    assert_eq!(put(&post, 1, "first").await, Ok(true));
    sleep(Duration::from_millis(1_200)).await;
    drop(post);
    sleep(secs(1)).await;
    let post = later_post(RULES, store, &reader).await;
    assert_eq!(post.len(), 1);
    sleep(secs(20)).await;
    let times = [(0, "now"), (9_500, "first"), (10_500, "second"), (20_000, "third")];
    assert_eq!(reader.times(), times.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn attempts_backoffs_and_holds_survive_a_restart() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let first = post(FREE, store.clone(), &reader).await;
    reader.tell("backs off", (0..9).map(|_| Way::Transient));
    reader.tell("held", [Way::Retry(100)]);
    reader.tell("rule", [Way::RetryOf(50, Scope::Rule)]);
    assert_eq!(put(&first, 1, "backs off").await, Ok(false));
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(reader.seen().len(), 2);
    assert_eq!(put(&first, 2, "held").await, Ok(false));
    assert_eq!(put(&first, 2, "behind").await, Ok(false));
    assert_eq!(put(&first, 3, "rule").await, Ok(false));
    drop(first);
    sleep(secs(1)).await;
    // Two seconds of backoff had begun a second ago, as had the holds.
    let second = later_post(FREE, store, &reader).await;
    assert_eq!(second.len(), 4);
    assert_eq!(put(&second, 4, "new").await, Ok(false), "the rule is held");
    sleep(secs(200)).await;
    let after: Vec<_> =
        reader.seen().into_iter().skip(4).map(|seen| (seen.at.as_secs(), seen.text, seen.number)).collect();
    let expected = [(51, "backs off", 3), (51, "rule", 2), (51, "new", 1), (101, "held", 2), (101, "behind", 1)];
    let mut sorted = after.clone();
    sorted.sort_by_key(|(at, text, _)| (*at, expected.iter().position(|(_, known, _)| known == text)));
    assert_eq!(sorted, expected.map(|(at, text, number)| (at, text.to_owned(), number)));
    // Its third attempt was the last.
    assert_eq!(second.dead().await.unwrap().len(), 1);
}

/// Ended from outside, it came back with the next start.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_ended_is_over_after_a_restart_too() {
    let (reader, store) = (Reader::new(), MemoryStore::new());
    let balancer = post::balancer(FREE);
    let first = open(Outbox::builder(&balancer).wall(NOON), store.clone(), &reader).await;
    reader.tell("rule", [Way::RetryOf(3_600, Scope::Rule)]);
    reader.tell("key", [Way::Retry(3_600)]);
    assert_eq!(put(&first, 1, "key").await, Ok(false));
    assert_eq!(put(&first, 2, "rule").await, Ok(false));
    sleep(secs(1)).await;
    balancer.release(Target::rule("send")).unwrap();
    assert_eq!(put(&first, 3, "sent").await, Ok(true));
    drop(first);
    post::settle().await;
    let second = later_post(FREE, store, &reader).await;
    post::settle().await;
    assert_eq!(put(&second, 4, "sent, too").await, Ok(true));
    assert_eq!(put(&second, 1, "still held").await, Ok(false));
    // One that was asked for later is in force.
    reader.tell("rule again", [Way::RetryOf(3_600, Scope::Rule)]);
    assert_eq!(put(&second, 5, "rule again").await, Ok(false));
    assert_eq!(put(&second, 6, "waits").await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn there_is_room_for_so_many_messages_and_bytes() {
    let reader = Reader::new();
    let builder =
        Outbox::builder(&post::balancer("[rules]\nsend = { per_key = '1/1s', paused = true }")).max_messages(3);
    let post = open(builder, MemoryStore::new(), &reader).await;
    assert_eq!(put(&post, 1, "a").await, Ok(false));
    assert_eq!(put(&post, 1, "b").await, Ok(false));
    let texts = ["c".to_owned(), "d".to_owned()];
    let all = post.put_all(texts.iter().map(|text| ("send", 1, text))).await;
    assert!(matches!(all, Err(Error::QueueFull { messages: 3, .. })), "{all:?}");
    assert_eq!(post.len(), 2, "nothing of it was put");
    assert_eq!(put(&post, 1, "c").await, Ok(false));
    let full = put(&post, 1, "d").await.unwrap_err();
    let Error::QueueFull { messages: 3, bytes } = full else { panic!("{full:?}") };
    assert_eq!(full.to_string(), format!("no room in the outbox, which has 3 messages of {bytes} bytes"));

    let small = Outbox::builder(&post::balancer(RULES)).max_bytes(200);
    let post = open(small, MemoryStore::new(), &reader).await;
    assert!(matches!(put(&post, 1, &"x".repeat(200)).await, Err(Error::QueueFull { messages: 0, bytes: 0 })));
    assert_eq!(put(&post, 1, "x").await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn what_is_drained_is_returned_and_gone() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let post = post(RULES, store.clone(), &reader).await;
    reader.tell("runs", [Way::Takes(secs(5))]);
    let runs = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "runs").await }
    });
    post::settle().await;
    for number in 0..600 {
        assert!(put(&post, number % 7, &number.to_string()).await.is_ok());
    }
    post.put_later("send", 1, &"later".to_owned(), NOON + secs(3_600)).await.unwrap();
    let sent = reader.seen().len();
    let drained = post.drain().await.unwrap();
    assert_eq!(runs.await.unwrap(), Ok(true), "what ran was let run");
    assert_eq!(drained.len(), 600 + 2 - sent);
    assert!(post.is_empty());
    let last = drained.last().unwrap();
    assert_eq!((last.body::<String>().unwrap().as_str(), last.attempts), ("later", 0));
    let of_key = |key: u32| drained.iter().filter(move |left| left.key == key.into());
    let numbers: Vec<u32> = of_key(3).map(|left| left.body::<String>().unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.len() > 80);
    // It goes on.
    sleep(secs(2)).await;
    assert_eq!(put(&post, 1, "again").await, Ok(true));
    sleep(secs(4_000)).await;
    assert_eq!(reader.seen().len(), sent + 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_rule_is_refused_before_anything_is_stored() {
    let reader = Reader::new();
    let post = post(RULES, MemoryStore::new(), &reader).await;
    let refused = post.put("sent", 1, &"a".to_owned()).await;
    assert_eq!(refused.unwrap_err().to_string(), "not put: there is no rule `sent`; did you mean `send`?");
    assert!(post.is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_rule_that_is_gone_stay_until_it_is_back() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let first = post("[rules]\nsend = { per_key = '1/1s', paused = true }", store.clone(), &reader).await;
    assert_eq!(put(&first, 1, "a").await, Ok(false));
    drop(first);
    post::settle().await;
    let balancer = post::balancer("[rules]\nother = '1/1s'");
    let second = open(Outbox::builder(&balancer), store, &reader).await;
    sleep(secs(100)).await;
    assert_eq!((second.len(), reader.seen().len()), (1, 0));
    balancer.replace_rules(RULES.parse().unwrap());
    sleep(secs(100)).await;
    assert_eq!((second.len(), reader.seen().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_is_that_of_all_queues() {
    let reader = Reader::new();
    let post = post("[rules]\nsend = { per_key = '1/1s', paused = true }", MemoryStore::new(), &reader).await;
    assert_eq!(post.oldest().await, Ok(None));
    for key in [5, 3, 9] {
        assert_eq!(put(&post, key, "a").await, Ok(false));
        sleep(secs(1)).await;
    }
    assert_eq!(post.oldest().await, Ok(Some(NOON)));
}

#[tokio::test(start_paused = true)]
async fn closed_it_starts_nothing_and_keeps_what_is_left() {
    let reader = Reader::new();
    let store = MemoryStore::new();
    let first = post(RULES, store.clone(), &reader).await;
    reader.tell("a", [Way::Takes(secs(3))]);
    reader.tell("hangs", [Way::Never]);
    let putting: Vec<_> = [(1, "a"), (2, "hangs")]
        .map(|(key, text)| {
            let first = first.clone();
            tokio::spawn(async move { put(&first, key, text).await })
        })
        .into();
    post::settle().await;
    assert_eq!(put(&first, 1, "b").await, Ok(false));
    let closed = first.close(secs(10)).await.unwrap();
    assert_eq!((closed.done, closed.aborted, closed.left), (1, 1, 2));
    let mut answers = Vec::new();
    for put in putting {
        answers.push(put.await.unwrap());
    }
    assert_eq!(answers, [Ok(true), Ok(false)]);
    assert!(matches!(put(&first, 1, "c").await, Err(Error::Store(_))));
    assert_eq!((first.flush().await, reader.seen().len()), (0, 2));

    let second = later_post(RULES, store, &reader).await;
    assert_eq!(second.flush().await, 2);
    let last: Vec<_> =
        reader.seen().into_iter().skip(2).map(|seen| (seen.text, seen.number, seen.maybe_delivered)).collect();
    let expected = [("b", 1, false), ("hangs", 2, true)];
    assert_eq!(last, expected.map(|(text, number, maybe)| (text.to_owned(), number, maybe)));
}

#[tokio::test(start_paused = true)]
async fn with_its_last_handle_it_ends_and_lets_go_of_everything() {
    let reader = Reader::new();
    let balancer = post::balancer(RULES);
    let post = open(Outbox::builder(&balancer), MemoryStore::new(), &reader).await;
    reader.tell("hangs", [Way::Never]);
    let putting = tokio::spawn({
        let post = post.clone();
        async move { put(&post, 1, "hangs").await }
    });
    post::settle().await;
    assert_eq!(put(&post, 1, "waits").await, Ok(false));
    putting.abort();
    drop(post);
    post::settle().await;
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
}

/// Read from the store, those that wait after a failure stood in line like others, and kept others out of it.
#[tokio::test(start_paused = true)]
async fn those_that_back_off_at_a_start_let_others_pass_and_no_flush_waits_for_them() {
    let (reader, kept) = (Reader::new(), MemoryStore::new());
    let rules = "[retry]\njitter = 0.0\nbackoff = '10m'\nmax_delay = '10m'\n[rules]\nsend = '1000/1s'";
    let first = post(rules, kept.clone(), &reader).await;
    let texts: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    for text in &texts {
        reader.tell(text, [Way::Transient]);
        assert_eq!(put(&first, 1, text).await, Ok(false));
    }
    post::settle().await;
    drop(first);
    post::settle().await;
    let second = later_post(rules, kept, &reader).await;
    post::settle().await;
    assert_eq!(put(&second, 1, "new").await, Ok(true));
    assert_eq!(timeout(secs(60), second.flush()).await, Ok(0));
    assert_eq!((second.len(), reader.seen().len()), (40, 41));
    sleep(secs(601)).await;
    assert_eq!((second.len(), reader.seen().len()), (0, 81));
}

/// It was in line, and who sends messages was not told.
#[tokio::test(start_paused = true)]
async fn a_message_whose_redrive_is_dropped_is_sent_before_those_that_come_later() {
    let reader = Reader::new();
    let post = post(FREE, MemoryStore::new(), &reader).await;
    reader.tell("bad", [Way::Transient, Way::Permanent]);
    assert_eq!(put(&post, 1, "bad").await, Ok(false));
    sleep(secs(10)).await;
    let id = post.dead().await.unwrap()[0].id;
    tokio::select! {
        biased;
        _ = post.redrive(id) => unreachable!("it takes a write"),
        () = async {} => {}
    }
    post::settle().await;
    assert_eq!((post.flush().await, post.len()), (0, 0), "it is sent already");
    assert_eq!(put(&post, 1, "later").await, Ok(true));
    assert_eq!(reader.texts(), ["bad", "bad", "bad", "later"]);
}
