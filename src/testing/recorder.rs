//! A log of starts, written as they happen on tokio's clock.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::key::Key;
use crate::runtime::Attempt;
use crate::verify::Start;

/// Writes down when attempts start and end, for [`verify`](crate::verify) and
/// [`assert_no_breach`](super::assert_no_breach). Clones write into one log.
///
/// It goes by tokio's clock.
#[derive(Clone, Debug)]
pub struct Recorder {
    log: Arc<Mutex<Vec<Start>>>,
    made: Instant,
    made_at: Duration,
}

impl Recorder {
    /// A recorder with an empty log. Time counts from now.
    #[must_use]
    pub fn new() -> Self {
        Self::beginning_at(Duration::ZERO)
    }

    /// A recorder with an empty log, for which it is so late now: since 1970 in UTC, where quotas of calendar days are to
    /// be checked.
    #[must_use]
    pub fn beginning_at(now: Duration) -> Self {
        Self { log: Arc::default(), made: Instant::now(), made_at: now }
    }

    /// Writes down that an attempt starts now, at cost 1; it ends when what this returns is dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use request_balancer::testing::Recorder;
    /// use std::time::Duration;
    ///
    /// let recorder = Recorder::new();
    /// let running = recorder.record("group", 42);
    /// tokio::time::sleep(Duration::from_millis(30)).await;
    /// drop(running);
    /// assert_eq!(recorder.starts()[0].to_string(), "0ns group, key 42, until 30ms");
    /// # }
    /// ```
    pub fn record(&self, rule: &str, key: impl Into<Key>) -> Recording {
        let key = key.into();
        let start = Start::new(self.now(), rule, Text(&key)).known_as(key.to_string());
        let mut log = self.lock();
        log.push(start);
        Recording { recorder: self.clone(), position: log.len() - 1 }
    }

    /// Wraps the closure of a request, so that each of its attempts is written down, from the closure's call until its
    /// future ends or is dropped.
    ///
    /// A key that is an alias is written as the key that it stands for when the attempt starts.
    ///
    /// Written at cost 1; a request that costs something else is [recorded](Self::record) by hand.
    pub fn wrap<F, Fut>(&self, mut f: F) -> impl FnMut(Attempt) -> Recorded<Fut> + use<F, Fut>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future,
    {
        let recorder = self.clone();
        move |attempt| {
            let mut recording = recorder.record(&attempt.rule(), attempt.stands_for());
            if let Some(endpoint) = attempt.endpoint() {
                recording = recording.on(endpoint.name());
            }
            Recorded { future: f(attempt), recording: Some(recording) }
        }
    }

    /// What was written so far, in order of start.
    #[must_use]
    pub fn starts(&self) -> Vec<Start> {
        self.lock().clone()
    }

    fn now(&self) -> Duration {
        self.made_at.saturating_add(self.made.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Start>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Recorder {
    /// As [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

/// An attempt that is being recorded: it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the attempt ends when this is dropped"]
pub struct Recording {
    recorder: Recorder,
    position: usize,
}

impl Recording {
    /// What the attempt takes from limits that count requests. Default: 1.
    pub fn cost(self, cost: u32) -> Self {
        self.change(|start| start.cost(cost))
    }

    /// What it takes of a declared unit. Called again for the same unit it adds up. Default: nothing of any.
    pub fn units(self, unit: &str, cost: u32) -> Self {
        self.change(|start| start.units(unit, cost))
    }

    /// The endpoint that it uses. Default: not known, and not checked.
    pub fn on(self, endpoint: &str) -> Self {
        self.change(|start| start.on(endpoint))
    }

    fn change(self, change: impl FnOnce(Start) -> Start) -> Self {
        if let Some(start) = self.recorder.lock().get_mut(self.position) {
            *start = change(start.clone());
        }
        self
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let end = self.recorder.now();
        if let Some(start) = self.recorder.lock().get_mut(self.position) {
            start.end = Some(end);
        }
    }
}

pin_project! {
    /// The future of an attempt whose start and end are written down; [`Recorder::wrap`] makes them.
    ///
    /// # Cancel safety
    ///
    /// That of the future inside; dropped, the attempt ends in the log.
    #[derive(Debug)]
    pub struct Recorded<Fut> {
        #[pin]
        future: Fut,
        recording: Option<Recording>,
    }
}

impl<Fut: Future> Future for Recorded<Fut> {
    type Output = Fut::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fut::Output> {
        let this = self.project();
        let answer = this.future.poll(context);
        if answer.is_ready() {
            *this.recording = None;
        }
        answer
    }
}

/// A key as a log has it: different keys, different text.
struct Text<'a>(&'a Key);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.0, f)
    }
}
