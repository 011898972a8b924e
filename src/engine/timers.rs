//! What is due when: a heap with lazy deletion.
//!
//! An entry whose owner moved on stays until it surfaces or until such entries are the greater part. Entries of one
//! instant come out in the order they went in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Instant;

/// Below so many entries nothing is purged.
const SMALL: usize = 64;

/// Targets by instant. `T` is what is due; whether it still is, its owner knows.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    heap: BinaryHeap<Reverse<(Instant, u32, T)>>,
    /// Goes round: entries of one instant may then come out in another order, once in four thousand million.
    entered: u32,
    stale: usize,
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0, stale: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, target: T) {
        self.entered = self.entered.wrapping_add(1);
        self.heap.push(Reverse((at, self.entered, target)));
    }

    /// The earliest entry, which may be stale.
    pub(crate) fn peek(&self) -> Option<(Instant, T)> {
        self.heap.peek().map(|&Reverse((at, _, target))| (at, target))
    }

    /// The instant of the earliest entry, which may be stale.
    pub(crate) fn next(&self) -> Instant {
        self.heap.peek().map_or(Instant::NEVER, |&Reverse((at, ..))| at)
    }

    /// Takes the earliest entry out if it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        let due = self.peek().filter(|&(at, _)| at <= now)?;
        self.pop();
        Some(due)
    }

    /// Drops stale entries from the top, so that [`peek`](Self::peek) tells the truth.
    pub(crate) fn trim(&mut self, is_live: impl Fn(Instant, T) -> bool) {
        while let Some((at, target)) = self.peek() {
            if is_live(at, target) {
                return;
            }
            self.pop();
            self.stale = self.stale.saturating_sub(1);
        }
        self.stale = 0;
    }

    /// One entry became stale. Purges when they are more than half.
    pub(crate) fn note_stale(&mut self, is_live: impl Fn(Instant, T) -> bool) {
        self.stale += 1;
        if self.heap.len() > SMALL && self.stale * 2 > self.heap.len() {
            self.heap.retain(|&Reverse((at, _, target))| is_live(at, target));
            self.heap.shrink_to(self.heap.len() * 2);
            self.stale = 0;
        }
    }

    /// What a crowd needed is given back once most of it is gone.
    fn pop(&mut self) {
        self.heap.pop();
        let (len, capacity) = (self.heap.len(), self.heap.capacity());
        if capacity > SMALL && len < capacity / 8 {
            self.heap.shrink_to(len * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_together_comes_out_as_it_went_in() {
        let mut timers = Timers::new();
        for (millis, name) in [(5, 'c'), (1, 'a'), (5, 'b'), (9, 'd')] {
            timers.push(Instant::from_millis(millis), name);
        }
        let due: Vec<_> =
            std::iter::from_fn(|| timers.pop_due(Instant::from_millis(5))).map(|(_, name)| name).collect();
        assert_eq!(due, ['a', 'c', 'b']);
        assert_eq!(timers.peek(), Some((Instant::from_millis(9), 'd')));
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let mut timers = Timers::new();
        for number in 0..100_000_u32 {
            timers.push(Instant::from_millis(u64::from(number)), number);
            timers.note_stale(|_, target| target == number);
        }
        assert!(timers.heap.len() <= SMALL + 1, "{} entries for one live one", timers.heap.len());
        timers.trim(|_, _| false);
        assert_eq!(timers.peek(), None);
    }

    #[test]
    fn a_crowd_that_is_gone_leaves_no_room_behind() {
        let mut timers = Timers::new();
        for number in 0..100_000_u32 {
            timers.push(Instant::from_millis(u64::from(number)), number);
        }
        for number in 0..100_000_u32 {
            assert_eq!(timers.pop_due(Instant::NEVER), Some((Instant::from_millis(u64::from(number)), number)));
        }
        assert!(timers.heap.capacity() <= SMALL, "room for {} entries is left", timers.heap.capacity());
    }
}
