//! The simulated server: it counts arrivals by its own limits, which need not be those of the rules.

use std::collections::{BTreeMap, VecDeque};

use super::cost::Cost;
use super::setup::{ServerKind, ServerLimit};
use crate::engine::{Instant, Nanos};

/// What the server knows.
#[derive(Debug)]
pub(crate) struct Server {
    books: Vec<(ServerLimit, BTreeMap<u32, Book>)>,
}

/// What a limit knows of one key, or of all.
#[derive(Debug, Default)]
struct Book {
    /// What came when, and what it counts.
    log: VecDeque<(Instant, u32)>,
    in_log: u64,
    /// When a bucket is full again, or the next paced call is due.
    paid: Instant,
    punished: Instant,
}

impl Server {
    pub(crate) fn new(limits: &[ServerLimit]) -> Self {
        Self { books: limits.iter().map(|limit| (*limit, BTreeMap::new())).collect() }
    }

    /// A call arrives. `None`: it is let through; else how long the server wants to be left alone.
    ///
    /// A call that one limit refuses counts in none.
    pub(crate) fn arrive(&mut self, at: Instant, key: u32, cost: Cost) -> Option<Nanos> {
        let mut refused: Option<Nanos> = None;
        for (limit, books) in &mut self.books {
            let (Some(owner), taken) = (limit.owner(key), limit.taken(cost)) else { continue };
            if taken > 0
                && let Some(wait) = limit.ask(books.entry(owner).or_default(), at, taken)
            {
                refused = refused.max(Some(wait));
            }
        }
        if refused.is_none() {
            for (limit, books) in &mut self.books {
                if let Some(book) = limit.owner(key).and_then(|owner| books.get_mut(&owner)) {
                    limit.take(book, at, limit.taken(cost));
                }
            }
        }
        refused
    }
}

impl ServerLimit {
    /// Under which key it counts a call, if it does.
    fn owner(&self, key: u32) -> Option<u32> {
        if self.keys.is_some_and(|(first, last)| !(first..=last).contains(&key)) {
            return None;
        }
        Some(if self.each_key { key } else { 0 })
    }

    /// What it counts of a call: no more than it ever has room for.
    fn taken(&self, cost: Cost) -> u32 {
        cost.of(self.charge).min(self.count)
    }

    fn interval(&self) -> Nanos {
        self.period.div_ceil(self.count.into())
    }

    /// The beginning of the fixed window around an instant.
    fn window(&self, at: Instant) -> Instant {
        let period = self.period.get().max(1);
        Instant::from_nanos(at.as_nanos() / period * period)
    }

    /// How long the server wants to be left alone; `None`: it lets the call through.
    fn ask(&self, book: &mut Book, at: Instant, taken: u32) -> Option<Nanos> {
        let opens = if book.punished > at { book.punished } else { self.opens(book, at, taken) };
        if opens <= at {
            return None;
        }
        if let Some(penalty) = self.penalty {
            book.punished = at.saturating_add(penalty);
            return Some(self.retry_after.unwrap_or(penalty));
        }
        Some(self.retry_after.unwrap_or_else(|| opens.since(at)))
    }

    fn opens(&self, book: &mut Book, at: Instant, taken: u32) -> Instant {
        let room = u64::from(self.count.saturating_sub(taken));
        match self.kind {
            ServerKind::Sliding => {
                book.forget(|first| first.saturating_add(self.period) <= at);
                let mut left = book.in_log;
                let mut opens = at;
                for &(first, taken) in &book.log {
                    if left <= room {
                        break;
                    }
                    left -= u64::from(taken);
                    opens = first.saturating_add(self.period);
                }
                opens
            }
            ServerKind::Fixed => {
                let window = self.window(at);
                book.forget(|first| first < window);
                if book.in_log <= room { at } else { window.saturating_add(self.period) }
            }
            ServerKind::Bucket => book.paid.saturating_sub(self.interval().saturating_mul(room)),
            ServerKind::Paced => book.paid,
        }
    }

    fn take(&self, book: &mut Book, at: Instant, taken: u32) {
        match self.kind {
            ServerKind::Sliding | ServerKind::Fixed => {
                book.log.push_back((at, taken));
                book.in_log += u64::from(taken);
            }
            ServerKind::Bucket | ServerKind::Paced => {
                book.paid = book.paid.max(at).saturating_add(self.interval().saturating_mul(taken.into()));
            }
        }
    }
}

impl Book {
    fn forget(&mut self, is_over: impl Fn(Instant) -> bool) {
        while let Some(&(first, taken)) = self.log.front()
            && is_over(first)
        {
            self.log.pop_front();
            self.in_log -= u64::from(taken);
        }
    }
}
