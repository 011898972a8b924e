//! Requests that act by a script and write down when they start, on tokio's paused clock.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

#[path = "../diary/mod.rs"]
mod diary;
pub(crate) mod life;
#[path = "../harness/rng.rs"]
mod rng;

use std::time::Duration;

use request_balancer::{Attempt, Balancer, Error, Failure, Key, Outcome, Retry};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use diary::{Diary, balancer, settle};
pub(crate) use rng::Rng;

/// The number of the attempt that succeeded, or the error.
pub(crate) type Answer = Result<u32, Error<&'static str>>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How one attempt ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Ok,
    /// The server asks to come again after so many milliseconds.
    Retry(u64),
    /// The server asks to come again and does not say when.
    Bare,
    Transient,
    Ambiguous,
    Permanent,
}

/// What an attempt does: takes its time, then ends. The last end goes for all further attempts.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) takes: u64,
    pub(crate) ends: Vec<End>,
}

impl Script {
    pub(crate) fn ends(ends: impl Into<Vec<End>>) -> Self {
        Self { takes: 0, ends: ends.into() }
    }

    pub(crate) fn takes(millis: u64) -> Self {
        Self { takes: millis, ends: vec![End::Ok] }
    }
}

/// A balancer and what became of its requests.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) balancer: Balancer,
    pub(crate) diary: Diary,
    begin: Instant,
}

impl Field {
    pub(crate) fn new(rules: &str) -> Self {
        Self { balancer: balancer(rules), diary: Diary::new(), begin: Instant::now() }
    }

    /// Waits until so many milliseconds have passed since the beginning.
    pub(crate) async fn at(&self, millis: u64) {
        tokio::time::sleep_until(self.begin + ms(millis)).await;
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).expect("tests are short")
    }

    /// Runs a request in a task of its own that is done at once. Tasks are polled in the order in which they are made.
    pub(crate) fn go(&self, rule: &str, key: impl Into<Key>, name: &str) -> JoinHandle<Answer> {
        self.play(rule, key, name, Script::ends([End::Ok]))
    }

    pub(crate) fn go_many(&self, rule: &str, key: &str, name: &str, count: usize) -> Vec<JoinHandle<Answer>> {
        (0..count).map(|_| self.go(rule, key, name)).collect()
    }

    /// Runs a request by a script.
    pub(crate) fn play(&self, rule: &str, key: impl Into<Key>, name: &str, script: Script) -> JoinHandle<Answer> {
        self.play_as(rule, key, name, script, Retry::new())
    }

    /// Runs a request by a script, under a retry policy of its own.
    pub(crate) fn play_as(
        &self,
        rule: &str,
        key: impl Into<Key>,
        name: &str,
        script: Script,
        retry: Retry,
    ) -> JoinHandle<Answer> {
        let (field, rule, key, name) = (self.clone(), rule.to_owned(), key.into(), name.to_owned());
        tokio::spawn(async move {
            let request = field.balancer.request(&rule, key).retry(retry);
            request.run(field.script(&name, script)).await
        })
    }

    /// Waits until all of them are answered and all of them succeeded.
    pub(crate) async fn all_ok(&self, tasks: impl IntoIterator<Item = JoinHandle<Answer>>) {
        for task in tasks {
            let answer = task.await.expect("the task ends by itself");
            assert!(answer.is_ok(), "{answer:?}");
        }
    }

    /// An attempt that notes its start and goes by a script.
    pub(crate) fn script(
        &self,
        name: &str,
        script: Script,
    ) -> impl FnMut(Attempt) -> std::pin::Pin<Box<dyn Future<Output = Outcome<u32, &'static str>> + Send>> + Send + use<>
    {
        let (diary, name) = (self.diary.clone(), name.to_owned());
        move |attempt| {
            diary.note(name.as_str());
            let place = usize::try_from(attempt.number()).expect("few attempts") - 1;
            let end = script.ends[place.min(script.ends.len() - 1)];
            let takes = script.takes;
            let running = diary.starts(&attempt);
            Box::pin(async move {
                let _running = running;
                if takes > 0 {
                    tokio::time::sleep(ms(takes)).await;
                }
                match end {
                    End::Ok => Ok(attempt.number()),
                    End::Retry(after) => Err(attempt.retry(ms(after))),
                    End::Bare => Err(attempt.retry(None)),
                    End::Transient => Err(Failure::transient("transient")),
                    End::Ambiguous => Err(Failure::ambiguous("ambiguous")),
                    End::Permanent => Err(Failure::permanent("permanent")),
                }
            })
        }
    }

    /// The starts of one name, in milliseconds.
    pub(crate) fn starts(&self, name: &str) -> Vec<u64> {
        self.diary.read().into_iter().filter(|(what, _)| what == name).map(|(_, at)| at).collect()
    }

    /// Nothing waits and nothing runs.
    #[track_caller]
    pub(crate) fn assert_quiet(&self) {
        assert_quiet(&self.balancer);
    }
}

/// Nothing waits and nothing runs.
#[track_caller]
pub(crate) fn assert_quiet(balancer: &Balancer) {
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0), "{snapshot:?}");
}

/// The most starts in any half-open interval of this length.
pub(crate) fn most_in(starts: &[u64], window: u64) -> usize {
    let mut sorted = starts.to_vec();
    sorted.sort_unstable();
    (0..sorted.len()).map(|first| sorted.partition_point(|&at| at < sorted[first] + window) - first).max().unwrap_or(0)
}

/// `first`, `first + step`, … of this many.
pub(crate) fn every(first: u64, step: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|n| first + n * step).collect()
}
