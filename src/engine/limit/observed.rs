//! What a server said of its own counters, laid over one limit: it only ever narrows.
//!
//! Each window that was told is a cap: so many were left when a request was sent, until the window begins anew. What is
//! left of it now is that, less what is granted or runs and less what ended since then without a word about the window:
//! the server may have counted all of that after it wrote the number down.

use std::collections::VecDeque;

use super::Ask;
use crate::engine::time::{Instant, Nanos};

/// Windows that are told apart on one limit.
const WINDOWS: usize = 16;
/// Ends that are remembered one by one; older ones are counted as if they were later.
const ENDS: usize = 64;

/// Everything that is known of one limit from the server.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The windows' names; a window's position is its number.
    names: Vec<Box<str>>,
    caps: Vec<Cap>,
    /// Attempts that ended without a word about some of the windows, oldest first.
    ends: VecDeque<End>,
}

/// What a response said about one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) window: &'a str,
    pub(crate) left: u32,
    /// When the request was sent that it answers.
    pub(crate) sent: Instant,
    /// When it arrived.
    pub(crate) read: Instant,
    /// How long after it was written the window begins anew, and how much longer that may be. `None`: not told.
    pub(crate) reset: Option<(Nanos, Nanos)>,
    /// For how long it counts where that is not told.
    pub(crate) else_for: Nanos,
    /// For how long it counts at most.
    pub(crate) at_most: Nanos,
}

/// What is left of one window.
#[derive(Clone, Copy, Debug)]
struct Cap {
    window: usize,
    left: u32,
    /// When the latest request was sent whose response told of it.
    sent: Instant,
    /// When the latest response arrived.
    read: Instant,
    /// The reset is between these, if it was told.
    reset: Option<(Instant, Instant)>,
    until: Instant,
}

/// An attempt's end.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    cost: u32,
    /// The windows that its response told of, by number.
    told: u16,
}

impl Observed {
    /// Whether `cost` fits beside what is granted or runs, with `reserve` left over for others.
    pub(crate) fn ask(&mut self, now: Instant, busy: u64, cost: u32, reserve: u32) -> Ask {
        self.forget(now);
        let wanted = busy + u64::from(cost) + u64::from(reserve);
        let full = self.caps.iter().filter(|cap| wanted > self.left(cap));
        full.map(|cap| Ask::At(cap.until)).fold(Ask::Room, Ask::and)
    }

    /// A lower bound for a request behind `ahead` others: what runs may turn out to be counted already.
    pub(crate) fn earliest(&mut self, now: Instant, busy: u64, ahead: u64, cost: u32) -> Ask {
        self.forget(now);
        let wanted = ahead + u64::from(cost);
        let answers = self.caps.iter().map(|cap| match self.left(cap) {
            left if wanted > left => Ask::At(cap.until),
            left if wanted + busy > left => Ask::Busy,
            _ => Ask::Room,
        });
        answers.fold(Ask::Room, Ask::and)
    }

    /// How many are left beside what is granted or runs, if anything was told that still counts.
    pub(crate) fn left_beside(&mut self, now: Instant, busy: u64) -> Option<u32> {
        self.forget(now);
        let left = self.caps.iter().map(|cap| self.left(cap).saturating_sub(busy)).min()?;
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Takes in what a response said. Returns the window's number as a bit.
    pub(crate) fn take(&mut self, word: Word<'_>) -> u16 {
        self.forget(word.read);
        let window = self.number(word.window);
        let fresh = Cap::new(window, word);
        // Windows that end before this one are over, whatever was left of them.
        self.caps.retain(|cap| cap.window != window || !cap.ends_before(&fresh));
        let Some(position) = self.caps.iter().position(|cap| cap.window == window) else {
            self.caps.push(fresh);
            return 1 << window;
        };
        let known = self.caps[position];
        let is_news = fresh.sent >= known.read;
        if known.reset.is_none() && is_news {
            self.caps[position] = fresh;
        } else if !fresh.ends_before(&known) {
            self.caps[position] = known.and(fresh);
        } else if is_news && self.caps.len() < 2 * WINDOWS {
            // A window that seemed to be over, of a server that changed its mind: both stand.
            self.caps.push(fresh);
        }
        1 << window
    }

    /// An attempt ended, or its response was read, which told of these windows.
    pub(crate) fn end(&mut self, now: Instant, cost: u32, told: u16, is_last: bool) {
        self.forget(now);
        let told_all = u32::from(told) + 1 == 1 << self.names.len();
        match self.ends.back_mut() {
            _ if told_all => {}
            Some(end) if end.at == now && end.told == told => end.cost = end.cost.saturating_add(cost),
            Some(_) | None => self.ends.push_back(End { at: now, cost, told }),
        }
        if is_last {
            // Only responses to what was sent before can be about what was before.
            let oldest = self.caps.iter().map(|cap| cap.sent).min();
            self.ends.retain(|end| end.at >= now || oldest.is_some_and(|sent| end.at >= sent));
        }
        if self.ends.len() > ENDS
            && let Some(oldest) = self.ends.pop_front()
            && let Some(next) = self.ends.front_mut()
        {
            next.cost = next.cost.saturating_add(oldest.cost);
            next.told &= oldest.told;
        }
    }

    /// When nothing is left of it.
    pub(crate) fn free_at(&self) -> Instant {
        self.caps.iter().map(|cap| cap.until).max().unwrap_or(Instant::ZERO)
    }

    /// Counts what is known of another limit that turned out to be the same one.
    pub(crate) fn merge(&mut self, other: &Self) {
        for cap in &other.caps {
            let window = self.number(&other.names[cap.window]);
            self.caps.push(Cap { window, ..*cap });
        }
        // What the other's ends told of is not known by these numbers.
        self.ends.extend(other.ends.iter().map(|end| End { told: 0, ..*end }));
        self.ends.make_contiguous().sort_by_key(|end| end.at);
    }

    /// What the server has left for requests that are not known to it.
    fn left(&self, cap: &Cap) -> u64 {
        let silent = self.ends.iter().filter(|end| end.at >= cap.sent && end.told & (1 << cap.window) == 0);
        u64::from(cap.left).saturating_sub(silent.map(|end| u64::from(end.cost)).sum())
    }

    /// The number of a window of this name. Too many share the first.
    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.names.iter().position(|known| **known == *name) {
            return number;
        }
        if self.names.len() < WINDOWS {
            self.names.push(name.into());
            return self.names.len() - 1;
        }
        let unused = |number: &usize| self.caps.iter().all(|cap| cap.window != *number);
        let Some(number) = (0..WINDOWS).find(unused) else { return 0 };
        self.names[number] = name.into();
        for end in &mut self.ends {
            end.told &= !(1 << number);
        }
        number
    }

    fn forget(&mut self, now: Instant) {
        self.caps.retain(|cap| cap.until > now);
    }
}

impl Cap {
    fn new(window: usize, word: Word<'_>) -> Self {
        let Word { left, sent, read, reset, else_for, at_most, .. } = word;
        let lasts = match reset {
            // Whole seconds that are over hide up to one more.
            Some((after, grain)) if after.is_zero() => grain,
            Some((after, _)) => after,
            None => else_for,
        };
        // It was written between the two, and rounded up or down.
        let reset = reset.map(|(after, grain)| {
            let [earliest, latest] = [sent, read].map(|written| written.saturating_add(after));
            (earliest.saturating_sub(grain), latest.saturating_add(grain))
        });
        Self { window, left, sent, read, reset, until: read.saturating_add(lasts.min(at_most)) }
    }

    /// Two words about one window: the smaller number counts, whichever is older, until the later end. What ended before
    /// the later request was sent is in its number. They may be about two windows in a row after all, so only what ends
    /// after both of them is later.
    fn and(self, other: Self) -> Self {
        let reset = match (self.reset, other.reset) {
            (Some(one), Some(two)) => Some((one.0.max(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
        Self {
            window: self.window,
            left: self.left.min(other.left),
            sent: self.sent.max(other.sent),
            read: self.read.max(other.read),
            reset,
            until: self.until.max(other.until),
        }
    }

    fn ends_before(&self, other: &Self) -> bool {
        match (self.reset, other.reset) {
            (Some((_, latest)), Some((earliest, _))) => latest < earliest,
            (Some(_) | None, _) => false,
        }
    }
}
