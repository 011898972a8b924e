//! What a server said of its own counters, laid over one limit: it only ever narrows.
//!
//! Each window that was told is a cap: so many were left when a request was sent, until the window begins anew. What is
//! left of it now is that, less what is granted or runs and less what ended since then without a word about the window:
//! the server may have counted all of that after it wrote the number down.
//!
//! Where a window begins anew it is full again, as far as anybody knows. A server that then turns out to have given back
//! less, as one does that counts the last minute and not minutes, is taken at its word from then on: past a reset what was
//! left is one more, and then grows somewhat faster than such a window does, until the server says more.
//!
//! A window that ends later than anybody believes is as it was told all the same, but one request at a time tries whether
//! it still is.
//!
//! What ended before a server's first word about a limit is not known of: it is noted from then on. So of what was under
//! way when the request was sent that brings the first word, that part is not taken off which ended sooner without one;
//! nor, of a window that is first told of later than others, what ended sooner and told of all of those.

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
/// Past which nothing is believed at all, so that no server's word keeps a key for ever: the longest month.
pub(crate) const LONGEST: Nanos = Nanos::from_secs(31 * 86_400);

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
    /// Until when it counts, or until one request tries.
    until: Instant,
    /// Until when it counts if what was told is believed.
    end: Instant,
    /// For how long it is believed at once.
    at_most: Nanos,
    /// For how long it goes on past its reset, in a window that rolls.
    period: Nanos,
    rolls: Option<Rolls>,
}

/// What becomes of what was left, past a reset or past the time for which it is believed at once.
#[derive(Clone, Copy, Debug)]
struct Rolls {
    /// When that was.
    since: Instant,
    /// In which time one comes back. `None`: one request at a time tries.
    interval: Option<Nanos>,
    /// What was left as it was told.
    told: u32,
}

/// What counts of one window now.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) window: Arc<str>,
    /// How long it is, if that was told.
    pub(super) per: Option<Nanos>,
    pub(super) left: u32,
    pub(super) until: Instant,
    /// Whether the server told when that is.
    pub(super) resets: bool,
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
        let answers = self.caps.iter().map(|cap| match self.ask_cap(now, cap, wanted) {
            Ask::At(_) if self.lets_try(now, cap, busy) => Ask::Room,
            answer @ (Ask::Room | Ask::At(_) | Ask::Unclaimed(_) | Ask::Busy) => answer,
        });
        answers.fold(Ask::Room, Ask::and)
    }

    /// A lower bound for a request behind `ahead` others: what runs may turn out to be counted already.
    pub(crate) fn earliest(&mut self, now: Instant, busy: u64, ahead: u64, cost: u32) -> Ask {
        self.forget(now);
        let wanted = ahead + u64::from(cost);
        let answers = self.caps.iter().map(|cap| match self.ask_cap(now, cap, wanted) {
            _ if self.lets_try(now, cap, busy + ahead) => Ask::Room,
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
            let until = cap.until.max(cap.end);
            Told { window: (**name).into(), per: *per, left, until, resets: cap.reset.is_some() }
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
        let is_past = |cap: &Cap| fresh.sent >= cap.read && cap.is_past(fresh.sent);
        self.caps.retain(|cap| cap.window != window || !cap.is_over_by(&fresh) && !is_past(cap));
        for known in self.caps.iter_mut().filter(|cap| cap.window == window) {
            if !fresh.ends_before(known) && !known.ends_before(&fresh) {
                *known = known.as_told().and(fresh);
                return 1 << window;
            }
            if fresh.sent < known.read && fresh.is_over_by(known) {
                return 1 << window;
            }
        }
        // Of a server that changed its mind, or that counts otherwise than in one window after the other: both stand.
        self.add(fresh);
        1 << window
    }

    /// Takes in what was known before a restart, beside all that is known.
    pub(super) fn remember(&mut self, word: Word<'_>) {
        self.forget(word.read);
        let window = self.number(word.window, word.per);
        self.windows[window].hear(word);
        self.add(Cap::new(window, word));
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
        self.caps.iter().map(|cap| cap.until.max(cap.end)).max().unwrap_or(Instant::ZERO)
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
            None | Some(Rolls { interval: None, .. }) => Ask::At(cap.until),
            Some(Rolls { since, interval: Some(interval), .. }) => {
                let count = wanted + self.silent(cap) - u64::from(cap.left);
                Ask::At(since.saturating_add(interval.saturating_mul(count)).min(cap.until))
            }
        }
    }

    /// Whether one request may go, whatever it costs, to see whether so few are left as was told.
    fn lets_try(&self, now: Instant, cap: &Cap, busy: u64) -> bool {
        busy == 0 && matches!(cap.rolls, Some(Rolls { interval: None, .. })) && self.left(now, cap) > 0
    }

    /// What the server has left for requests that are not known to it.
    fn left(&self, now: Instant, cap: &Cap) -> u64 {
        let back = match cap.rolls {
            Some(Rolls { since, interval: Some(interval), .. }) => now.since(since).get() / interval.get(),
            Some(Rolls { interval: None, .. }) | None => 0,
        };
        (u64::from(cap.left) + back).saturating_sub(self.silent(cap))
    }

    /// What ended since without a word about the window.
    fn silent(&self, cap: &Cap) -> u64 {
        cap.silent(&self.ends)
    }

    /// The number of a window of this name and length. Where the length is not always told, the only one of its name is
    /// it.
    fn number(&mut self, name: &str, per: Option<Nanos>) -> usize {
        // Most that are told were told before in the same words.
        if let Some(number) = self.windows.iter().take(REST).position(|known| known.per == per && *known.name == *name)
        {
            return number;
        }
        let mut all = (0..REST).zip(&self.windows).filter(|(_, known)| *known.name == *name);
        let only = all.next().filter(|(_, known)| known.per.is_none() || per.is_none());
        let only = only.filter(|_| all.next().is_none());
        if let Some((number, _)) = only {
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
        let Self { windows, caps, ends } = self;
        caps.retain_mut(|cap| cap.until > now || cap.goes_on(now, &mut windows[cap.window], ends));
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

impl Word<'_> {
    /// Until when it counts, if no word is believed for longer than that.
    pub(crate) fn until(&self, most: Nanos) -> Instant {
        let lasts = match self.reset {
            // Whole seconds that are over hide up to one more.
            Some((after, grain)) if after.is_zero() => grain,
            Some((after, _)) => after,
            None => self.else_for,
        };
        self.read.saturating_add(lasts.min(most))
    }
}

impl Cap {
    fn new(window: usize, word: Word<'_>) -> Self {
        let Word { left, sent, read, reset, else_for, at_most, .. } = word;
        // It was written between the two, and rounded up or down.
        let reset = reset.map(|(after, grain)| {
            let [earliest, latest] = [sent, read].map(|written| written.saturating_add(after));
            (earliest.saturating_sub(grain), latest.saturating_add(grain))
        });
        let [until, end] = [at_most, at_most.max(LONGEST)].map(|most| word.until(most));
        Self { window, left, sent, read, reset, until, end, at_most, period: else_for.min(at_most), rolls: None }
    }

    /// What ended since without a word about its window.
    fn silent(&self, ends: &VecDeque<End>) -> u64 {
        let silent = ends.iter().filter(|end| end.at >= self.sent && end.told & (1 << self.window) == 0);
        silent.map(|end| u64::from(end.cost)).sum()
    }

    /// Whether it counts beyond its end.
    fn goes_on(&mut self, now: Instant, window: &mut Window, ends: &VecDeque<End>) -> bool {
        if self.until < self.end {
            // Nothing has begun anew: one tries, and if that learns nothing another one after as long.
            let silent = u32::try_from(self.silent(ends)).unwrap_or(u32::MAX);
            let Rolls { told, .. } =
                *self.rolls.get_or_insert(Rolls { since: self.until, interval: None, told: self.left });
            self.left = told.max(silent.saturating_add(1));
            let times = now.since(self.until).get() / self.at_most.get().max(1) + 1;
            self.until = self.until.saturating_add(self.at_most.saturating_mul(times)).min(self.end);
            if self.until > now {
                return true;
            }
        }
        if let Some(Rolls { interval: None, told, .. }) = self.rolls {
            (self.left, self.rolls) = (told, None);
        }
        if self.rolls.is_some() || self.reset.is_none() {
            return false;
        }
        if self.left == 0 {
            window.emptied = Some(self.until);
        }
        let interval = self.period.div_ceil(BURST * u64::from(window.most.max(1))).max(Nanos::new(1));
        self.rolls = Some(Rolls { since: self.until, interval: Some(interval), told: self.left });
        self.left = self.left.saturating_add(1);
        self.until = self.until.saturating_add(self.period);
        window.rolls && self.until > now
    }

    /// As it was before it went on.
    const fn as_told(self) -> Self {
        match self.rolls {
            Some(Rolls { since, interval: Some(_), told }) => Self { left: told, until: since, rolls: None, ..self },
            Some(Rolls { interval: None, told, .. }) => Self { left: told, rolls: None, ..self },
            None => self,
        }
    }

    /// Whether what was sent then is about another window than it is, as far as it says when its own ends.
    fn is_past(&self, sent: Instant) -> bool {
        match (self.rolls, self.reset) {
            (_, None) => true,
            (Some(rolls), Some(_)) => sent >= rolls.since,
            (None, Some((_, latest))) => sent >= latest,
        }
    }

    /// Two words about one window: the smaller number counts, whichever is older, until the later end, or until the only
    /// one that was told, if the other word arrived before that could be over. What ended before the later request was sent
    /// is in its number. They may be about two windows in a row after all, so only what ends after both of them is later.
    fn and(self, other: Self) -> Self {
        let both = Self { sent: self.sent.max(other.sent), ..self.beside(other) };
        match (self.reset, other.reset) {
            (Some(one), Some(two)) => Self { reset: Some((one.0.max(two.0), one.1.max(two.1))), ..both },
            (Some(reset), None) if other.read < reset.0 => {
                Self { reset: Some(reset), until: self.until, end: self.end, ..both }
            }
            (None, Some(reset)) if self.read < reset.0 => {
                Self { reset: Some(reset), until: other.until, end: other.end, ..both }
            }
            (Some(_) | None, _) => both,
        }
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
            end: self.end.max(other.end),
            at_most: self.at_most,
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
