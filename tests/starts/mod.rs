//! Balancers that share a store in memory, and when their attempts start.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use request_balancer::shared::MemoryStore;
use request_balancer::{Balancer, Failure, Rules};
use tokio::time::Instant;

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);

pub(crate) fn rules(text: &str) -> Rules {
    text.parse().unwrap()
}

pub(crate) fn process(text: &str, store: &MemoryStore) -> Balancer {
    Balancer::builder(rules(text)).shared(store.clone()).build()
}

/// When attempts start, in milliseconds.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) begin: Instant,
    starts: Arc<Mutex<Vec<u128>>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), starts: Arc::default() }
    }

    /// One starts now.
    pub(crate) fn note(&self) {
        self.starts.lock().unwrap().push(self.begin.elapsed().as_millis());
    }

    pub(crate) fn starts(&self) -> Vec<u128> {
        self.starts.lock().unwrap().clone()
    }

    /// Sends a request of a key.
    pub(crate) fn send_one(&self, balancer: &Balancer, key: u64) {
        self.send(balancer, key, 1);
    }

    /// Sends so many.
    pub(crate) fn send(&self, balancer: &Balancer, key: u64, times: usize) {
        self.send_costly(balancer, key, times, 1);
    }

    /// The same with a cost.
    pub(crate) fn send_costly(&self, balancer: &Balancer, key: u64, times: usize, cost: u32) {
        for _ in 0..times {
            let (balancer, log) = (balancer.clone(), self.clone());
            tokio::spawn(async move {
                let note = async |_| {
                    log.note();
                    Ok::<_, Failure<()>>(())
                };
                let _ = balancer.request("default", key).cost(cost).run(note).await;
            });
        }
    }

    /// The most starts in any half-open window of this length.
    pub(crate) fn most_in(&self, window: Duration) -> usize {
        let mut starts = self.starts();
        starts.sort_unstable();
        let inside = |from: &u128| starts.iter().filter(|at| (*from..from + window.as_millis()).contains(at)).count();
        starts.iter().map(inside).max().unwrap_or(0)
    }
}
