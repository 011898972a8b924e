//! Code of others that panics while the balancer calls it: everybody else goes on.

#![cfg(feature = "tokio")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use request_balancer::{Balancer, Error, Failure, Refused, Rules};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;
use tracing::span::{Attributes, Id, Record};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A subscriber that panics over one of the balancer's events.
struct Panics {
    level: Level,
    over: u32,
    events: AtomicU32,
}

impl tracing::Subscriber for Panics {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "request_balancer" && *metadata.level() == self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        assert_ne!(self.events.fetch_add(1, Ordering::SeqCst), self.over, "the disk is full");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs a test on one thread whose subscriber panics over the event of this level and number, from 0.
fn with_panic_over(level: Level, over: u32, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let _guard = tracing::subscriber::set_default(Panics { level, over, events: AtomicU32::new(0) });
    runtime.block_on(test);
}

fn balancer(text: &str) -> Balancer {
    Balancer::new(text.parse::<Rules>().unwrap())
}

/// Has the server count one attempt as invalid, which is one too many.
async fn be_invalid(balancer: &Balancer) {
    let mut permit = balancer.request("send", 1).acquire().await.unwrap();
    permit.invalid();
    // Whether the panic comes out here is not what matters.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(permit)));
}

#[test]
fn a_subscriber_that_panics_at_the_end_of_an_attempt_leaves_the_thread_waking_others() {
    with_panic_over(Level::WARN, 0, async {
        let balancer = balancer("ban_guard = '1/10s'\n[rules]\nsend = { key_concurrency = 1 }");
        be_invalid(&balancer).await;
        let runs = balancer.request("send", 1).acquire().await.unwrap();
        let waits = tokio::spawn({
            let balancer = balancer.clone();
            async move { balancer.request("send", 1).acquire().await.map(drop) }
        });
        sleep(30 * SECOND).await;
        drop(runs);
        assert!(timeout(HOUR, waits).await.is_ok(), "nobody was woken");
    });
}

#[test]
fn a_subscriber_that_panics_in_the_driver_leaves_it_driving() {
    // The second warning, that the ban is over, is told by the driver.
    with_panic_over(Level::WARN, 1, async {
        let (balancer, begin) = (balancer("ban_guard = '1/10s'\n[rules]\nsend = '1/1s'"), Instant::now());
        be_invalid(&balancer).await;
        for second in [10, 11, 12] {
            drop(balancer.request("send", 1).acquire().await.expect("a start"));
            assert_eq!(begin.elapsed(), second * SECOND);
        }
    });
}

#[test]
fn a_subscriber_that_panics_over_a_refusal_leaves_the_ticket_an_end() {
    with_panic_over(Level::DEBUG, 0, async {
        let balancer = balancer("[rules]\nsend = '1/1h'");
        drop(balancer.request("send", 1).acquire().await.expect("a start"));
        let ticket = balancer.request("send", 1).max_wait(SECOND).submit(async |_| Ok::<_, Failure<()>>(())).unwrap();
        let answer = timeout(HOUR, ticket).await.expect("an answer");
        assert!(matches!(answer, Err(Error::GaveUp { reason: Refused::Aborted, .. })), "{answer:?}");
    });
}
