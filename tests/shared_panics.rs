//! A store that panics is one that cannot be reached: it is tried again after a while, and not all the time.
#![cfg(feature = "shared")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use request_balancer::shared::{Ask, Ears, MemoryStore, News, Pending, Reply, Store, VersionedRules};
use request_balancer::{Balancer, Event, Failure, Rules, Target};
use tokio::time::{Instant, sleep};

const SEC: Duration = Duration::from_secs(1);

/// Panics when it is called, or when it is waited for, until it is well.
#[derive(Clone, Debug)]
struct Panics {
    store: MemoryStore,
    at_once: bool,
    well_at: Instant,
    calls: Arc<AtomicU64>,
}

impl Panics {
    fn new(at_once: bool, ill_for: Duration) -> Self {
        Self { store: MemoryStore::new(), at_once, well_at: Instant::now() + ill_for, calls: Arc::default() }
    }

    fn call<'a, T: Send + 'a>(&self, well: Pending<'a, T>) -> Pending<'a, T> {
        if Instant::now() >= self.well_at {
            return well;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.at_once, "at once");
        Box::pin(async { panic!("later") })
    }
}

impl Store for Panics {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        self.call(self.store.ask(ask))
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        self.call(self.store.tell(process, news))
    }

    fn keep_rules(&self, process: u64, rules: VersionedRules, lasts: Duration) -> Pending<'_, VersionedRules> {
        self.call(self.store.keep_rules(process, rules, lasts))
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        self.call(self.store.hear(process))
    }
}

/// The task that asked ended with the panic and was started again by whoever waited, at once, for ever.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_tried_five_times_a_second() {
    for (at_once, why) in [(true, "the store panicked: at once"), (false, "the store panicked: later")] {
        let store = Panics::new(at_once, 60 * SEC);
        let rules: Rules =
            "overall = { limit = '9/1s', shared = true }\n[shared]\nversion = 1\non_outage = 'open'".parse().unwrap();
        let balancer = Balancer::builder(rules).shared(store.clone()).build();
        let mut events = balancer.events();
        let begin = Instant::now();
        balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
        // Three calls, 20 ms apart.
        assert_eq!(begin.elapsed().as_millis(), 40);
        assert_eq!(events.try_next(), Some(Event::StoreLost { why: why.into() }));
        balancer.hold(Target::key(2), 600 * SEC).unwrap();
        while events.try_next().is_some() {}
        sleep(30 * SEC).await;
        // One that asks, one that tells, one that hears and one that has the rules kept: 5 a second each.
        let calls = store.calls.load(Ordering::Relaxed);
        assert!((500..=620).contains(&calls), "{calls} calls");
        sleep(31 * SEC).await;
        assert_eq!(events.try_next(), Some(Event::StoreBack));
        assert_eq!(store.store.told(), 1);
    }
}
