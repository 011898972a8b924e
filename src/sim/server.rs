//! The simulated server: it counts arrivals by its own limits, which need not be those of the rules.

use std::collections::{BTreeMap, VecDeque};

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
    log: VecDeque<Instant>,
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
    pub(crate) fn arrive(&mut self, at: Instant, key: u32) -> Option<Nanos> {
        let mut refused: Option<Nanos> = None;
        for (limit, books) in &mut self.books {
            let Some(owner) = limit.owner(key) else { continue };
            if let Some(wait) = limit.ask(books.entry(owner).or_default(), at) {
                refused = refused.max(Some(wait));
            }
        }
        if refused.is_none() {
            for (limit, books) in &mut self.books {
                if let Some(book) = limit.owner(key).and_then(|owner| books.get_mut(&owner)) {
                    limit.take(book, at);
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

    fn interval(&self) -> Nanos {
        self.period.div_ceil(self.count.into())
    }

    /// The beginning of the fixed window around an instant.
    fn window(&self, at: Instant) -> Instant {
        let period = self.period.get().max(1);
        Instant::from_nanos(at.as_nanos() / period * period)
    }

    /// How long the server wants to be left alone; `None`: it lets the call through.
    fn ask(&self, book: &mut Book, at: Instant) -> Option<Nanos> {
        let opens = if book.punished > at { book.punished } else { self.opens(book, at) };
        if opens <= at {
            return None;
        }
        if let Some(penalty) = self.penalty {
            book.punished = at.saturating_add(penalty);
            return Some(self.retry_after.unwrap_or(penalty));
        }
        Some(self.retry_after.unwrap_or_else(|| opens.since(at)))
    }

    fn opens(&self, book: &mut Book, at: Instant) -> Instant {
        let count = self.count as usize;
        match self.kind {
            ServerKind::Sliding => {
                while book.log.front().is_some_and(|&first| first.saturating_add(self.period) <= at) {
                    book.log.pop_front();
                }
                let over = book.log.len().checked_sub(count).and_then(|over| book.log.get(over));
                over.map_or(at, |&first| first.saturating_add(self.period))
            }
            ServerKind::Fixed => {
                let window = self.window(at);
                while book.log.front().is_some_and(|&first| first < window) {
                    book.log.pop_front();
                }
                if book.log.len() < count { at } else { window.saturating_add(self.period) }
            }
            ServerKind::Bucket => {
                book.paid.saturating_sub(self.interval().saturating_mul(u64::from(self.count.saturating_sub(1))))
            }
            ServerKind::Paced => book.paid,
        }
    }

    fn take(&self, book: &mut Book, at: Instant) {
        match self.kind {
            ServerKind::Sliding | ServerKind::Fixed => book.log.push_back(at),
            ServerKind::Bucket | ServerKind::Paced => {
                book.paid = book.paid.max(at).saturating_add(self.interval());
            }
        }
    }
}
