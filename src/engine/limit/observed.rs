//! What a server said of its own counters, laid over one limit: it only ever narrows.
//!
//! Each window that was told is a cap: so many were left when a request was sent, until the window begins anew. What is
//! left of it now is that, less what is granted or runs and less what ended since then without a word about the window:
//! the server may have counted all of that after it wrote the number down.
//!
//! Where a window begins anew it is full again, as far as anybody knows. A server that then turns out to have given back
//! less, as one does that counts the last minute and not minutes, is taken at its word from then on: past a reset what was
//! left is one more, and then grows somewhat faster than such a window does, until the server says more.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Ask;
use crate::engine::time::{Instant, Nanos};

/// Windows that are told apart on one limit, and the number of all others together.
const REST: usize = 15;
/// Words that stand at once; more are counted as one that is as narrow as all of them.
const CAPS: usize = 32;
/// Ends that are remembered one by one; older ones are counted as if they were later.
const ENDS: usize = 64;
/// How much faster than on average what was taken comes back past a reset: together, if it was taken together.
const BURST: u64 = 4;

/// Everything that is known of one limit from the server.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// A window's position is its number.
    windows: Vec<Window>,
    caps: Vec<Cap>,
    /// Attempts that ended without a word about some of the windows, oldest first.
    ends: VecDeque<End>,
}

/// What is known of a window beside its present caps.
#[derive(Debug)]
struct Window {
    name: Box<str>,
    /// How long it is: what tells it from others of its name. `None`: that was never told.
    per: Option<Nanos>,
    /// The most that it was ever known to allow.
    most: u32,
    /// When it began anew after nothing had been left of it, until something is known of what there was then.
    emptied: Option<Instant>,
    /// Whether it gave back less than half of that.
    rolls: bool,
}

/// What a response said about one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) window: &'a str,
    /// How long it is, if that was told.
    pub(crate) per: Option<Nanos>,
    pub(crate) limit: Option<u32>,
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
    /// For how long it goes on past its reset, in a window that rolls.
    period: Nanos,
    rolls: Option<Rolls>,
}

/// What becomes of what was left, past a reset.
#[derive(Clone, Copy, Debug)]
struct Rolls {
    /// When the reset was.
    since: Instant,
    /// In which time one comes back.
    interval: Nanos,
}

/// What counts of one window now.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) window: Arc<str>,
    /// How long it is, if that was told.
    pub(super) per: Option<Nanos>,
    pub(super) left: u32,
    pub(super) until: Instant,
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
        let answers = self.caps.iter().map(|cap| self.ask_cap(now, cap, wanted));
        answers.fold(Ask::Room, Ask::and)
    }

    /// A lower bound for a request behind `ahead` others: what runs may turn out to be counted already.
    pub(crate) fn earliest(&mut self, now: Instant, busy: u64, ahead: u64, cost: u32) -> Ask {
        self.forget(now);
        let wanted = ahead + u64::from(cost);
        let answers = self.caps.iter().map(|cap| match self.ask_cap(now, cap, wanted) {
            Ask::Room if wanted + busy > self.left(now, cap) => Ask::Busy,
            answer @ (Ask::Room | Ask::At(_) | Ask::Unclaimed(_) | Ask::Busy) => answer,
        });
        answers.fold(Ask::Room, Ask::and)
    }

    /// How many are left beside what is granted or runs, if anything was told that still counts.
    pub(crate) fn left_beside(&mut self, now: Instant, busy: u64) -> Option<u32> {
        self.forget(now);
        let left = self.caps.iter().map(|cap| self.left(now, cap).saturating_sub(busy)).min()?;
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Each window that something was told of which still counts, with what is left of it beside what is granted or runs.
    pub(super) fn told(&mut self, now: Instant, busy: u64) -> impl Iterator<Item = Told> {
        self.forget(now);
        let known = &*self;
        known.caps.iter().map(move |cap| {
            let left = u32::try_from(known.left(now, cap).saturating_sub(busy)).unwrap_or(u32::MAX);
            let Window { name, per, .. } = &known.windows[cap.window];
            Told { window: (**name).into(), per: *per, left, until: cap.until }
        })
    }

    /// Takes in what a response said. Returns the window's number as a bit.
    pub(crate) fn take(&mut self, word: Word<'_>) -> u16 {
        self.forget(word.read);
        let window = self.number(word.window, word.per);
        let fresh = Cap::new(window, word);
        if window == REST {
            // Nobody knows what it says of the other ones.
            self.add(fresh);
            return 0;
        }
        self.windows[window].hear(word);
        // Windows that end before this one are over, whatever was left of them.
        self.caps.retain(|cap| cap.window != window || !cap.is_over_by(&fresh));
        for known in self.caps.iter_mut().filter(|cap| cap.window == window) {
            let is_news = fresh.sent >= known.read;
            if is_news && known.is_past(fresh.sent) {
                *known = fresh;
                return 1 << window;
            }
            if !fresh.ends_before(known) && !known.ends_before(&fresh) {
                *known = known.as_told().and(fresh);
                return 1 << window;
            }
            if !is_news && fresh.is_over_by(known) {
                return 1 << window;
            }
        }
        // Of a server that changed its mind, or that counts otherwise than in one window after the other: both stand.
        self.add(fresh);
        1 << window
    }

    /// Lets a word stand beside all others. Of windows that are not told apart, and of too many words, the least counts
    /// for as long as the longest.
    fn add(&mut self, cap: Cap) {
        let cap = if cap.window == REST { Cap { reset: None, ..cap } } else { cap };
        let alike = |known: &&mut Cap| known.window == cap.window;
        let is_full = self.caps.len() >= CAPS;
        match self.caps.iter_mut().find(alike) {
            Some(known) if is_full || cap.window == REST => *known = known.as_told().beside(cap),
            Some(_) | None => self.caps.push(cap),
        }
    }

    /// An attempt ended, or its response was read, which told of these windows.
    pub(crate) fn end(&mut self, now: Instant, cost: u32, told: u16, is_last: bool) {
        self.forget(now);
        let told_all = u32::from(told) + 1 == 1 << self.windows.len();
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
            let known = &other.windows[cap.window];
            let window = if cap.window == REST { self.rest() } else { self.number(&known.name, known.per) };
            self.windows[window].most = self.windows[window].most.max(known.most);
            self.windows[window].rolls |= known.rolls;
            self.add(Cap { window, ..*cap });
        }
        // What the other's ends told of is not known by these numbers.
        self.ends.extend(other.ends.iter().map(|end| End { told: 0, ..*end }));
        self.ends.make_contiguous().sort_by_key(|end| end.at);
    }

    fn ask_cap(&self, now: Instant, cap: &Cap, wanted: u64) -> Ask {
        let missing = wanted.saturating_sub(self.left(now, cap));
        match cap.rolls {
            _ if missing == 0 => Ask::Room,
            None => Ask::At(cap.until),
            Some(rolls) => Ask::At(rolls.comes_back(wanted + self.silent(cap) - u64::from(cap.left)).min(cap.until)),
        }
    }

    /// What the server has left for requests that are not known to it.
    fn left(&self, now: Instant, cap: &Cap) -> u64 {
        let back = cap.rolls.map_or(0, |rolls| now.since(rolls.since).get() / rolls.interval.get());
        (u64::from(cap.left) + back).saturating_sub(self.silent(cap))
    }

    /// What ended since without a word about the window.
    fn silent(&self, cap: &Cap) -> u64 {
        let silent = self.ends.iter().filter(|end| end.at >= cap.sent && end.told & (1 << cap.window) == 0);
        silent.map(|end| u64::from(end.cost)).sum()
    }

    /// The number of a window of this name and length. Where the length is not always told, the only one of its name is
    /// it.
    fn number(&mut self, name: &str, per: Option<Nanos>) -> usize {
        let of_name = (0..REST).zip(&self.windows).filter(|(_, known)| *known.name == *name);
        let exact = of_name.clone().find(|(_, known)| known.per == per);
        let mut all = of_name;
        let only = all.next().filter(|(_, known)| known.per.is_none() || per.is_none());
        let only = only.filter(|_| all.next().is_none());
        if let Some((number, _)) = exact.or(only) {
            let known = &mut self.windows[number];
            known.per = known.per.or(per);
            return number;
        }
        if self.windows.len() < REST {
            self.windows.push(Window::new(name, per));
            return self.windows.len() - 1;
        }
        let unused = |number: &usize| self.caps.iter().all(|cap| cap.window != *number);
        let Some(number) = (0..REST).find(unused) else { return self.rest() };
        self.windows[number] = Window::new(name, per);
        for end in &mut self.ends {
            end.told &= !(1 << number);
        }
        number
    }

    /// The number of all windows that are not told apart.
    fn rest(&mut self) -> usize {
        while self.windows.len() <= REST {
            self.windows.push(Window::new("", None));
        }
        REST
    }

    fn forget(&mut self, now: Instant) {
        let windows = &mut self.windows;
        self.caps.retain_mut(|cap| cap.until > now || cap.goes_on(now, &mut windows[cap.window]));
    }
}

impl Window {
    fn new(name: &str, per: Option<Nanos>) -> Self {
        Self { name: name.into(), per, most: 0, emptied: None, rolls: false }
    }

    fn hear(&mut self, Word { limit, left, sent, .. }: Word<'_>) {
        self.most = self.most.max(limit.unwrap_or(0)).max(left.saturating_add(1));
        if self.emptied.is_some_and(|at| sent >= at) {
            self.emptied = None;
            self.rolls = left < self.most / 2;
        }
    }
}

impl Rolls {
    /// When so many more are there.
    const fn comes_back(self, count: u64) -> Instant {
        self.since.saturating_add(self.interval.saturating_mul(count))
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
        let until = read.saturating_add(lasts.min(at_most));
        Self { window, left, sent, read, reset, until, period: else_for.min(at_most), rolls: None }
    }

    /// Whether it counts beyond its end.
    fn goes_on(&mut self, now: Instant, window: &mut Window) -> bool {
        if self.rolls.is_some() || self.reset.is_none() {
            return false;
        }
        if self.left == 0 {
            window.emptied = Some(self.until);
        }
        let interval = self.period.div_ceil(BURST * u64::from(window.most.max(1))).max(Nanos::new(1));
        self.rolls = Some(Rolls { since: self.until, interval });
        self.left = self.left.saturating_add(1);
        self.until = self.until.saturating_add(self.period);
        window.rolls && self.until > now
    }

    /// As it was before it went on.
    const fn as_told(self) -> Self {
        match self.rolls {
            Some(rolls) => Self { left: self.left.saturating_sub(1), until: rolls.since, rolls: None, ..self },
            None => self,
        }
    }

    /// Whether what was sent then is about another window than it is, as far as it says when its own ends.
    fn is_past(&self, sent: Instant) -> bool {
        match (self.rolls, self.reset) {
            (Some(rolls), _) => sent >= rolls.since,
            (None, Some((_, latest))) => sent >= latest,
            (None, None) => true,
        }
    }

    /// Two words about one window: the smaller number counts, whichever is older, until the later end, or until the only
    /// one that was told. What ended before the later request was sent is in its number. They may be about two windows in
    /// a row after all, so only what ends after both of them is later.
    fn and(self, other: Self) -> Self {
        let (reset, until) = match (self.reset, other.reset) {
            (Some(one), Some(two)) => (Some((one.0.max(two.0), one.1.max(two.1))), self.until.max(other.until)),
            (Some(reset), None) => (Some(reset), self.until),
            (None, Some(reset)) => (Some(reset), other.until),
            (None, None) => (None, self.until.max(other.until)),
        };
        let sent = self.sent.max(other.sent);
        Self { sent, reset, until, ..self.beside(other) }
    }

    /// Two words about windows of which nobody knows that they are one.
    fn beside(self, other: Self) -> Self {
        Self {
            window: self.window,
            left: self.left.min(other.left),
            sent: self.sent.min(other.sent),
            read: self.read.max(other.read),
            reset: None,
            until: self.until.max(other.until),
            period: self.period,
            rolls: None,
        }
    }

    /// Whether it is over, as windows follow one another: the other word is about one that ends later. That nothing is
    /// left takes more to be over: that the other was asked for later, or arrived when this one's window may have ended.
    fn is_over_by(&self, other: &Self) -> bool {
        let is_later = || other.sent > self.sent || other.sent >= self.read;
        let may_have_ended = || self.reset.is_some_and(|(earliest, _)| other.read >= earliest);
        self.ends_before(other) && (self.left > 0 || is_later() || may_have_ended())
    }

    /// Whether its window surely ends before the other's.
    fn ends_before(&self, other: &Self) -> bool {
        match (self.reset, other.reset) {
            (Some((_, latest)), Some((earliest, _))) => latest < earliest,
            (Some(_) | None, _) => false,
        }
    }
}
