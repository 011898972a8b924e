//! A simulated server: told when calls arrive, it answers. Pure.

use std::fmt;
use std::time::Duration;

use super::limit::{Book, Limit, LimitReport};
use crate::key::Key;

/// A simulated server that limits its callers, by its own count: at the arrival of a call.
///
/// This is its pure part: [`arrive`](Self::arrive) is told the time. [`start`](Self::start) puts it on tokio's clock, so
/// that a test can call it as it would call a real one.
///
/// ```
/// use request_balancer::testing::{Answer, Limit, Server};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let mut server = Server::sliding(30, second).also(Limit::flood_wait(1, second, second * 10).per_key());
/// assert_eq!(server.arrive(Duration::ZERO, 42), Answer::Ok);
/// assert_eq!(server.arrive(Duration::ZERO, 43), Answer::Ok);
/// // Too early, and then impatient: the penalty begins anew.
/// assert_eq!(server.arrive(second / 2, 42), Answer::TooManyRequests { retry_after: second * 10 });
/// assert_eq!(server.arrive(second * 9, 42), Answer::TooManyRequests { retry_after: second * 10 });
/// assert_eq!(server.arrive(second * 19, 42), Answer::Ok);
/// assert_eq!((server.accepted(), server.refused()), (3, 2));
/// ```
#[derive(Clone)]
#[must_use = "a server does nothing before it is called"]
pub struct Server {
    books: Vec<Book>,
    latency: Duration,
    jitter: Duration,
    random: fastrand::Rng,
    latest: Duration,
    accepted: u32,
    refused: u32,
}

/// What a [`Server`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call was let through.
    Ok,
    /// It was not.
    TooManyRequests {
        /// When to come again, counted from the call's arrival. [`Duration::MAX`]: never.
        retry_after: Duration,
    },
}

impl Answer {
    /// Whether the call was let through.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }
}

impl Server {
    /// A server without limits, that answers at once.
    pub fn new() -> Self {
        Self {
            books: Vec::new(),
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            random: fastrand::Rng::with_seed(0),
            latest: Duration::ZERO,
            accepted: 0,
            refused: 0,
        }
    }

    /// A server with one limit, [`Limit::sliding`], on all calls together.
    pub fn sliding(count: u32, period: Duration) -> Self {
        Self::new().also(Limit::sliding(count, period))
    }

    /// A server with one limit, [`Limit::fixed`], on all calls together.
    pub fn fixed(count: u32, period: Duration) -> Self {
        Self::new().also(Limit::fixed(count, period))
    }

    /// A server with one limit, [`Limit::bucket`], on all calls together.
    pub fn bucket(count: u32, period: Duration, burst: u32) -> Self {
        Self::new().also(Limit::bucket(count, period, burst))
    }

    /// A server with one limit, [`Limit::flood_wait`], on all calls together.
    pub fn flood_wait(count: u32, period: Duration, penalty: Duration) -> Self {
        Self::new().also(Limit::flood_wait(count, period, penalty))
    }

    /// One more limit. A call is let through if all limits have room, and else counts in none; it is told the longest
    /// wait.
    pub fn also(mut self, limit: Limit) -> Self {
        self.books.push(Book::new(limit));
        self
    }

    /// How long a call is on its way to the server, and its answer on the way back. Default: zero.
    pub fn latency(self, each_way: Duration) -> Self {
        Self { latency: each_way, ..self }
    }

    /// By how much each way takes longer than the latency at most, drawn evenly. Default: zero.
    pub fn jitter(self, at_most: Duration) -> Self {
        Self { jitter: at_most, ..self }
    }

    /// From what the jitter is drawn: one seed, one course of events. Default: 0.
    pub fn seed(self, seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), ..self }
    }

    /// A call of a key arrives, so long after the server's beginning. What would be before the call that arrived last
    /// arrives with it.
    pub fn arrive(&mut self, at: Duration, key: impl Into<Key>) -> Answer {
        let (at, key) = (at.max(self.latest), key.into());
        self.latest = at;
        // All are asked: each limit sees every call, whoever refuses it.
        let wait = self.books.iter_mut().map(|book| book.arrive(at, &key)).max().unwrap_or_default();
        for book in &mut self.books {
            book.settle(at, &key, wait.is_zero());
        }
        if wait.is_zero() {
            self.accepted += 1;
            Answer::Ok
        } else {
            self.refused += 1;
            Answer::TooManyRequests { retry_after: wait }
        }
    }

    /// How long the next way takes: the latency, and a draw of the jitter.
    pub fn next_way(&mut self) -> Duration {
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_add(Duration::from_nanos(self.random.u64(0..=jitter)))
    }

    /// Calls that were let through.
    #[must_use]
    pub const fn accepted(&self) -> u32 {
        self.accepted
    }

    /// Calls that were refused: how often its callers provoked it.
    #[must_use]
    pub const fn refused(&self) -> u32 {
        self.refused
    }

    /// What each limit saw, in the order in which they were added.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitReport> {
        self.books.iter().map(Book::report).collect()
    }
}

impl Default for Server {
    /// As [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("accepted", &self.accepted)
            .field("refused", &self.refused)
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}
