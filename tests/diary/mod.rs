//! What happened when, on tokio's paused clock.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use request_balancer::{Attempt, Balancer, Failure, Outcome, Rules, Start, verify};
use tokio::time::Instant;

thread_local! {
    /// The rules of all balancers of the test.
    static RULES: RefCell<Vec<Rules>> = const { RefCell::new(Vec::new()) };
}

/// A balancer that goes by these rules.
pub(crate) fn balancer(rules: &str) -> Balancer {
    let rules = rules.parse::<Rules>().expect("the test's rules are right");
    RULES.with_borrow_mut(|all| all.push(rules.clone()));
    Balancer::new(rules)
}

/// Entries with the millisecond at which they were made.
#[derive(Clone)]
pub(crate) struct Diary {
    begin: Instant,
    entries: Arc<Mutex<Vec<(String, u64)>>>,
    log: Arc<Log>,
}

/// All starts. In the end they kept to the rules, if there was one balancer only.
#[derive(Default)]
struct Log(Mutex<Vec<Start>>);

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        RULES.with_borrow(|all| {
            if let [rules] = &all[..] {
                assert_eq!(verify(rules, &self.0.lock().unwrap()), []);
            }
        });
    }
}

/// An attempt of which the diary knows: it ends when this is dropped.
pub(crate) struct Running {
    diary: Diary,
    line: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        let end = self.diary.begin.elapsed();
        self.diary.log.0.lock().unwrap()[self.line].end = Some(end);
    }
}

impl Diary {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), entries: Arc::default(), log: Arc::default() }
    }

    /// Writes down that an attempt starts.
    pub(crate) fn starts(&self, attempt: &Attempt) -> Running {
        let start = Start::new(self.begin.elapsed(), attempt.rule().to_string(), attempt.key());
        let mut log = self.log.0.lock().unwrap();
        log.push(start);
        Running { diary: self.clone(), line: log.len() - 1 }
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).expect("tests are short");
        self.entries.lock().unwrap().push((what.into(), now));
    }

    /// An attempt that notes its start and is done.
    pub(crate) fn done<E>(&self, what: &str) -> impl FnMut(Attempt) -> std::future::Ready<Outcome<(), E>> + use<E> {
        let (diary, what) = (self.clone(), what.to_owned());
        move |attempt| {
            diary.note(what.as_str());
            drop(diary.starts(&attempt));
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
