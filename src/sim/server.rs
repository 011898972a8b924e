//! The simulated server: it counts arrivals by its own limits, which need not be those of the rules.

use std::collections::{BTreeMap, VecDeque};

use super::cost::Cost;
use super::setup::{Each, ServerKind, ServerLimit};
use crate::engine::{EndpointId, Instant, Nanos};

/// What the server knows.
#[derive(Debug)]
pub(crate) struct Server {
    books: Vec<(ServerLimit, BTreeMap<Owner, Book>)>,
}

/// Under what a call is counted: its key, its endpoint, as far as they are counted apart.
type Owner = (Option<u32>, Option<EndpointId>);

/// A call that comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) key: u32,
    pub(crate) endpoint: Option<EndpointId>,
    pub(crate) cost: Cost,
    /// When the server is through with it, if it lets it through.
    pub(crate) until: Instant,
}

/// What a limit knows of one key, or of all.
#[derive(Debug, Default)]
struct Book {
    /// What came when, or until when it is worked on, and what it counts.
    log: VecDeque<(Instant, u32)>,
    in_log: u64,
    /// When a bucket is full again, or the next paced call is due.
    paid: Instant,
    punished: Instant,
}

impl Server {
    pub(crate) fn new(limits: &[ServerLimit]) -> Self {
        Self { books: limits.iter().map(|limit| (limit.clone(), BTreeMap::new())).collect() }
    }

    /// A call arrives. `None`: it is let through; else how long the server wants to be left alone.
    ///
    /// A call that one limit refuses counts in none.
    pub(crate) fn arrive(&mut self, call: &Arrival) -> Option<Nanos> {
        let mut refused: Option<Nanos> = None;
        for (limit, books) in &mut self.books {
            let (Some(owner), taken) = (limit.owner(call), limit.taken(call.cost)) else { continue };
            if taken > 0
                && let Some(wait) = limit.ask(books.entry(owner).or_default(), call.at, taken)
            {
                refused = refused.max(Some(wait));
            }
        }
        if refused.is_none() {
            for (limit, books) in &mut self.books {
                if let Some(book) = limit.owner(call).and_then(|owner| books.get_mut(&owner)) {
                    limit.take(book, call);
                }
            }
        }
        refused
    }
}

impl ServerLimit {
    /// Under what it counts a call, if it does.
    fn owner(&self, call: &Arrival) -> Option<Owner> {
        let Arrival { key, endpoint, .. } = *call;
        if self.keys.is_some_and(|(first, last)| !(first..=last).contains(&key)) {
            return None;
        }
        let is_meant = |only: &[u16]| endpoint.is_some_and(|endpoint| only.contains(&endpoint.0));
        if !self.endpoints.as_deref().is_none_or(is_meant) {
            return None;
        }
        Some(match self.each {
            Each::All => (None, None),
            Each::Key => (Some(key), None),
            Each::Endpoint => (None, endpoint),
            Each::KeyOnEndpoint => (Some(key), endpoint),
        })
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
            ServerKind::AtOnce => {
                book.forget(|end| end <= at);
                let over = book.in_log.checked_sub(room).filter(|&over| over > 0);
                over.and_then(|over| book.log.get(over as usize - 1)).map_or(at, |&(end, _)| end)
            }
        }
    }

    fn take(&self, book: &mut Book, call: &Arrival) {
        let (at, taken) = (call.at, self.taken(call.cost));
        match self.kind {
            ServerKind::Sliding | ServerKind::Fixed => book.write(at, taken),
            ServerKind::Bucket | ServerKind::Paced => {
                book.paid = book.paid.max(at).saturating_add(self.interval().saturating_mul(taken.into()));
            }
            ServerKind::AtOnce => book.write(call.until, taken),
        }
    }
}

impl Book {
    /// In order, although what is worked on does not end in the order in which it came.
    fn write(&mut self, at: Instant, taken: u32) {
        let place = self.log.partition_point(|&(other, _)| other <= at);
        self.log.insert(place, (at, taken));
        self.in_log += u64::from(taken);
    }

    fn forget(&mut self, is_over: impl Fn(Instant) -> bool) {
        while let Some(&(first, taken)) = self.log.front()
            && is_over(first)
        {
            self.log.pop_front();
            self.in_log -= u64::from(taken);
        }
    }
}
