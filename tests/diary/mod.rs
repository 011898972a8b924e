//! What happened when, on tokio's paused clock.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, Mutex};

use request_balancer::{Attempt, Balancer, Failure, Outcome, Rules};
use tokio::time::Instant;

/// A balancer that goes by these rules.
pub(crate) fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("the test's rules are right"))
}

/// Entries with the millisecond at which they were made.
#[derive(Clone)]
pub(crate) struct Diary {
    begin: Instant,
    entries: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Diary {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), entries: Arc::default() }
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).expect("tests are short");
        self.entries.lock().unwrap().push((what.into(), now));
    }

    /// An attempt that notes its start and is done.
    pub(crate) fn done<E>(&self, what: &str) -> impl FnMut(Attempt) -> std::future::Ready<Outcome<(), E>> + use<E> {
        let (diary, what) = (self.clone(), what.to_owned());
        move |_| {
            diary.note(what.as_str());
            std::future::ready(Ok::<(), Failure<E>>(()))
        }
    }

    pub(crate) fn read(&self) -> Vec<(String, u64)> {
        self.entries.lock().unwrap().clone()
    }

    /// The milliseconds alone.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.read().into_iter().map(|(_, at)| at).collect()
    }

    #[track_caller]
    pub(crate) fn assert(&self, expected: &[(&str, u64)]) {
        let expected: Vec<_> = expected.iter().map(|&(what, at)| (what.to_owned(), at)).collect();
        assert_eq!(self.read(), expected);
    }
}

/// Lets every task run that can.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
