//! Idle keys, and when the sweep is to look at them: by whole seconds, a word for each key.
//!
//! Whether a key is idle shows in its record; one that is looked at too early is noted again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::time::{Instant, Nanos};

/// Sweeps happen at multiples of this.
pub(super) const GRID: Nanos = Nanos::from_secs(1);

/// Room for so many keys is kept.
const SMALL: usize = 64;

/// A number of steps of the grid since the machine's time began: 136 years of them.
type Step = u32;

/// Keys by the instant at which they are to be looked at; those of one instant by their index.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// The last step of the grid that is not after the machine's first instant.
    begin: u64,
    heap: BinaryHeap<Reverse<(Step, u32)>>,
    /// Keys that were just made, in order: their places follow on one another, most of the time.
    fresh: VecDeque<Run>,
    /// The earliest instant.
    next: Instant,
    /// A bit for each key that is to be looked at.
    noted: Vec<u64>,
    /// Keys that came out since those bits had to be written.
    out: usize,
}

/// Keys of one instant with places that follow on one another.
#[derive(Debug)]
struct Run {
    step: Step,
    first: u32,
    end: u32,
}

impl Sweeps {
    pub(super) const fn new(begin: Instant) -> Self {
        let begin = begin.as_nanos() / GRID.get();
        Self { begin, heap: BinaryHeap::new(), fresh: VecDeque::new(), next: Instant::NEVER, noted: Vec::new(), out: 0 }
    }

    /// Notes a key for the first step of the grid that is not before `at`.
    pub(super) fn push(&mut self, at: Instant, key: u32) {
        self.mark(key);
        self.heap.push(Reverse((self.step(at), key)));
        self.see_next();
    }

    /// The same for a key that was just made. Nobody of those is noted for an earlier instant than the one before.
    pub(super) fn push_fresh(&mut self, at: Instant, key: u32) {
        self.mark(key);
        let step = self.step(at);
        match self.fresh.back_mut() {
            Some(run) if run.step == step && run.end == key => run.end += 1,
            Some(_) | None => self.fresh.push_back(Run { step, first: key, end: key + 1 }),
        }
        self.see_next();
    }

    /// Whether a key is noted.
    #[inline]
    pub(super) fn has(&self, key: u32) -> bool {
        self.noted.get(key as usize / 64).is_some_and(|bits| bits >> (key % 64) & 1 != 0)
    }

    /// A key is noted no more. Returns whether it was.
    pub(super) fn forget(&mut self, key: u32) -> bool {
        let had = self.has(key);
        if had {
            self.noted[key as usize / 64] &= !(1 << (key % 64));
        }
        had
    }

    /// The earliest instant and its key. The key may be noted no more.
    pub(super) fn peek(&self) -> Option<(Instant, u32)> {
        self.first().map(|(_, key)| (self.next, key))
    }

    /// The earliest instant.
    #[inline]
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// Takes the earliest key out if it is due, and says whether it was noted still.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u32, bool)> {
        let first = self.first().filter(|_| self.next <= now)?;
        if self.heap.peek() == Some(&Reverse(first)) {
            self.heap.pop();
        } else if let Some(run) = self.fresh.front_mut() {
            run.first += 1;
            if run.first == run.end {
                self.fresh.pop_front();
            }
        }
        let (_, key) = first;
        let was_noted = self.forget(key);
        self.give_back();
        self.see_next();
        Some((key, was_noted))
    }

    fn first(&self) -> Option<(Step, u32)> {
        let known = self.heap.peek().map(|&Reverse(first)| first);
        let fresh = self.fresh.front().map(|run| (run.step, run.first));
        known.into_iter().chain(fresh).min()
    }

    fn mark(&mut self, key: u32) {
        let word = key as usize / 64;
        if word >= self.noted.len() {
            self.noted.resize(word + 1, 0);
        }
        self.noted[word] |= 1 << (key % 64);
    }

    /// What a crowd needed is given back once most of it is gone.
    fn give_back(&mut self) {
        let (len, capacity) = (self.heap.len(), self.heap.capacity());
        if capacity > SMALL && len < capacity / 8 {
            self.heap.shrink_to(len * 2);
        }
        self.out += 1;
        // Not each time that there is nobody: then keys that come one by one would find nothing here.
        if len == 0 && self.fresh.is_empty() && self.out > self.noted.len().max(SMALL) {
            (self.fresh, self.noted, self.out) = (VecDeque::new(), Vec::new(), 0);
        }
    }

    fn step(&self, at: Instant) -> Step {
        let steps = at.as_nanos().div_ceil(GRID.get()).saturating_sub(self.begin);
        Step::try_from(steps).unwrap_or(Step::MAX)
    }

    fn see_next(&mut self) {
        self.next = match self.first() {
            None | Some((Step::MAX, _)) => Instant::NEVER,
            Some((step, _)) => Instant::from_nanos((self.begin + u64::from(step)).saturating_mul(GRID.get())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Instant = Instant::from_millis(5_700);

    #[test]
    fn keys_come_out_at_the_first_second_that_is_not_before_their_instant() {
        let mut sweeps = Sweeps::new(BEGIN);
        for (millis, key) in [(9_001, 1), (7_000, 2), (6_999, 3), (5_700, 4)] {
            sweeps.push(Instant::from_millis(millis), key);
        }
        sweeps.push(Instant::NEVER, 5);
        let due = std::iter::from_fn(|| Some((sweeps.next(), sweeps.pop_due(Instant::from_millis(60_000))?.0)));
        let second = Instant::from_millis;
        assert_eq!(
            due.collect::<Vec<_>>(),
            [(second(6_000), 4), (second(7_000), 2), (second(7_000), 3), (second(10_000), 1)]
        );
        assert_eq!(sweeps.next(), Instant::NEVER);
        assert!(sweeps.has(5));
    }

    #[test]
    fn fresh_keys_come_out_beside_the_others_and_take_a_word_for_many() {
        let mut sweeps = Sweeps::new(BEGIN);
        for key in (10..2_000).chain([3, 7]) {
            sweeps.push_fresh(BEGIN, key);
        }
        sweeps.push_fresh(Instant::from_millis(6_500), 8);
        assert_eq!(sweeps.fresh.len(), 4);
        sweeps.push(BEGIN, 5);
        assert!(sweeps.forget(11));
        let due = std::iter::from_fn(|| sweeps.pop_due(Instant::from_millis(6_000)));
        let expected = [5].into_iter().chain(10..2_000).chain([3, 7]).map(|key| (key, key != 11));
        assert!(due.eq(expected));
        assert_eq!(sweeps.peek(), Some((Instant::from_millis(7_000), 8)));
        assert!(sweeps.has(8));
    }

    #[test]
    fn a_crowd_that_is_gone_leaves_no_room_behind() {
        let mut sweeps = Sweeps::new(BEGIN);
        for key in 0..100_000 {
            sweeps.push(BEGIN, key);
        }
        assert!(sweeps.forget(99_999));
        for key in 0..100_000 {
            assert_eq!(sweeps.pop_due(Instant::from_millis(6_000)), Some((key, key != 99_999)));
        }
        assert!(sweeps.heap.capacity() <= SMALL, "room for {} keys is left", sweeps.heap.capacity());
        assert_eq!((sweeps.noted.capacity(), sweeps.fresh.capacity()), (0, 0));
    }
}
