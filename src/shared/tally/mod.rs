//! The arithmetic of a store, in whole microseconds of its own time: what the script does in Redis, in memory.

mod said;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::said::Given;
use super::store::{Ask, AskedLimit, Known, LimitReply, News, Reply};
use crate::engine::{LISTED, LimitKind, Nanos, Stand, Take, Told, is_narrowed};

/// Cells of a period.
pub(super) const CELLS: u64 = 10;
/// How long a limit that was forgotten gives nothing, in microseconds: all that know of starts tell of them meanwhile.
pub(super) const SETTLE: u64 = 200_000;
/// For how long whoever has waited longest for a slot goes first at least, in microseconds: it has to hear that it may, and to
/// ask.
pub(super) const TURN: u64 = 25_000;
/// Lateness that spacing catches up, in microseconds.
pub(super) const CATCH_UP: u64 = 2_000;

/// All that a store keeps.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The latest time seen: it does not go back.
    clock: u64,
    states: BTreeMap<Arc<str>, Kept>,
}

/// One limit, and until when there is anything to say of it.
#[derive(Debug)]
struct Kept {
    expires: u64,
    /// Until when it gives nothing, as it was forgotten and processes may still have to tell of their starts.
    settles: u64,
    /// What was given since its count began.
    given: Given,
    state: State,
}

#[derive(Debug)]
enum State {
    /// When each start counts, oldest first.
    List(VecDeque<u64>),
    /// How many count in which cell.
    Cells(BTreeMap<u64, u64>),
    /// When everything is paid for.
    Due(u64),
    /// Who has how many slots, until when, as of which question; who waits for one, the first one first; and who is next,
    /// until when.
    Slots { held: BTreeMap<u64, Slots>, waiting: Vec<u64>, next: Option<(u64, u64)> },
}

#[derive(Clone, Copy, Debug)]
struct Slots {
    count: u32,
    until: u64,
    number: u64,
}

/// A limit while a batch is answered.
struct Line<'a> {
    process: u64,
    asked: &'a AskedLimit,
    kept: Kept,
    /// It has nothing for those that come, for so long.
    closed: Option<u64>,
    /// How much those leave to others that it is closed to; to who leaves less it may not be.
    closed_to: u32,
    lost: bool,
    /// It is asked about with a question that was given up long ago.
    stale: bool,
}

impl Tally {
    /// Answers a batch at `now`. Also says what all are to know.
    pub(super) fn answer(&mut self, now: u64, ask: &Ask) -> (Reply, Vec<News>) {
        self.clock = self.clock.max(now);
        let now = self.clock;
        let (lag, lease) = (micros(ask.lag), micros(ask.lease));
        let mut news = Vec::new();
        let mut lines: Vec<Line<'_>> = Vec::with_capacity(ask.limits.len());
        for asked in &ask.limits {
            let kept = self.states.remove(&asked.name).filter(|kept| kept.expires > now);
            let kept = kept.unwrap_or_else(|| Kept::new(now, asked.kind));
            let mut line =
                Line { process: ask.process, asked, kept, closed: None, closed_to: 0, lost: false, stale: false };
            line.open(now, ask, lease, &mut news);
            line.settle(now, &mut news);
            lines.push(line);
        }
        let mut taken = Vec::with_capacity(ask.requests.len());
        for takes in &ask.requests {
            let mut fits = true;
            for take in takes {
                fits &= lines[take.line].has_room(now, *take);
            }
            if fits {
                for take in takes {
                    lines[take.line].take(now, (lag, lease), ask, take.cost);
                }
            }
            taken.push(fits);
        }
        let mut limits = Vec::with_capacity(lines.len());
        for line in lines {
            let Line { asked, mut kept, closed, closed_to, lost, .. } = line;
            let (known, stand) = (kept.known(), kept.stand(now, asked.kind));
            kept.expires = kept.expires(asked.kind).max(kept.settles).max(kept.given.until());
            if kept.expires > now {
                self.states.insert(Arc::clone(&asked.name), kept);
            }
            limits.push(LimitReply { wait: closed.map(Duration::from_micros), closed_to, known, lost, stand });
        }
        (Reply { now, taken, limits }, news)
    }

    /// The names of which there is something to say at `now`.
    pub(super) fn names(&self, now: u64) -> Vec<Arc<str>> {
        let now = self.clock.max(now);
        self.states.iter().filter(|(_, kept)| kept.expires > now).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Forgets one name, or all.
    pub(super) fn forget(&mut self, name: Option<&str>) {
        match name {
            Some(name) => drop(self.states.remove(name)),
            None => self.states.clear(),
        }
    }
}

impl Kept {
    fn new(now: u64, kind: LimitKind) -> Self {
        let state = match kind {
            LimitKind::Window { period, .. } if period.is_zero() => {
                State::Slots { held: BTreeMap::new(), waiting: Vec::new(), next: None }
            }
            LimitKind::Window { count, .. } if count > LISTED => State::Cells(BTreeMap::new()),
            LimitKind::Window { .. } | LimitKind::Calendar { .. } => State::List(VecDeque::new()),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => State::Due(0),
        };
        Self { expires: 0, settles: 0, given: Given::new(now), state }
    }

    fn known(&self) -> Known {
        let epoch = self.given.last.epoch;
        match &self.state {
            State::List(dates) => Known { epoch, newest: dates.back().copied().unwrap_or(0) },
            State::Cells(counts) => Known { epoch, newest: counts.last_key_value().map_or(0, |(cell, _)| *cell) },
            State::Due(due) => Known { epoch: 1, newest: *due },
            State::Slots { .. } => Known { epoch: 1, newest: 0 },
        }
    }

    /// How it stands, if servers may narrow it.
    fn stand(&self, now: u64, kind: LimitKind) -> Option<Stand> {
        let room = match &self.state {
            _ if self.settles > now => 0,
            State::List(dates) => u64::from(count(kind)).saturating_sub(dates.len() as u64),
            State::Cells(counts) => u64::from(count(kind)).saturating_sub(counts.values().sum()),
            State::Due(due) => (now + whole(kind)).saturating_sub(now.max(*due)) / each(kind),
            State::Slots { .. } => 0,
        };
        is_narrowed(kind).then(|| self.given.stand(room))
    }

    fn expires(&self, kind: LimitKind) -> u64 {
        match &self.state {
            State::List(dates) => dates.back().map_or(0, |date| date + length(kind)),
            State::Cells(counts) => counts.last_key_value().map_or(0, |(cell, _)| gone(kind, *cell)),
            // What is late by less than that is caught up.
            State::Due(due) => due + CATCH_UP,
            State::Slots { held, next, .. } => {
                let next = next.map_or(0, |(_, until)| until);
                held.values().map(|slots| slots.until).max().unwrap_or(0).max(next)
            }
        }
    }
}

impl Line<'_> {
    /// Forgets what is over, hears what is told, and sees whether anything was lost.
    fn open(&mut self, now: u64, ask: &Ask, lease: u64, news: &mut Vec<News>) {
        let AskedLimit { name, kind, held, told, said, known } = self.asked;
        let kind = *kind;
        self.kept.given.open(now);
        let epoch = self.kept.given.last.epoch;
        match &mut self.kept.state {
            State::List(dates) => {
                while dates.front().is_some_and(|date| date + length(kind) <= now) {
                    dates.pop_front();
                }
                let mut all: Vec<u64> = Vec::from(std::mem::take(dates));
                if let Told::Starts(starts) = told {
                    for (ago, cost) in starts {
                        let date = now.saturating_sub(ceil(*ago));
                        all.extend(std::iter::repeat_n(date, *cost as usize).filter(|date| date + length(kind) > now));
                    }
                    all.sort_unstable();
                }
                *dates = all.into();
                let counts = known.epoch != 0 && known.newest + length(kind) > now;
                self.lost = counts && known.epoch != epoch;
            }
            State::Cells(counts) => {
                counts.retain(|cell, _| gone(kind, *cell) > now);
                if let Told::Starts(starts) = told {
                    for (ago, cost) in starts {
                        let cell = now.saturating_sub(ceil(*ago)) / width(kind);
                        if gone(kind, cell) > now {
                            *counts.entry(cell).or_default() += u64::from(*cost);
                        }
                    }
                }
                let counts = known.epoch != 0 && gone(kind, known.newest) > now;
                self.lost = counts && known.epoch != epoch;
            }
            State::Due(due) => {
                if *due + CATCH_UP <= now {
                    *due = 0;
                }
                if let Told::Owed(owed) = told {
                    *due = (*due).max(now + ceil(*owed));
                }
                // Nobody owes more than everything at once.
                let known = known.newest.min(now + whole(kind));
                self.lost = known > (*due).max(now);
                *due = (*due).max(known);
            }
            State::Slots { held: all, waiting, next } => {
                all.retain(|_, slots| slots.until > now);
                let before = all.get(&ask.process).copied();
                if before.is_some_and(|slots| slots.number > ask.number) {
                    (self.closed, self.stale) = (Some(0), true);
                    return;
                }
                *next = next.filter(|(process, until)| *process != ask.process && *until > now);
                if before.is_some_and(|slots| slots.count > *held) && !waiting.is_empty() {
                    news.push(News::Freed { name: Arc::clone(name) });
                    // Who frees one while others wait lets the first of them go first, who hears of it only now.
                    if next.is_none() && waiting[0] != ask.process {
                        *next = Some((waiting.remove(0), now + micros(ask.lag).max(TURN)));
                    }
                }
                self.closed = next.map(|(_, until)| until - now);
                all.remove(&ask.process);
                self.lost = *held > 0 && before.is_none();
                if *held > 0 {
                    all.insert(ask.process, Slots { count: *held, until: now + lease, number: ask.number });
                }
            }
        }
        if is_narrowed(kind) {
            // Those that a server's window keeps are to ask again if there is more of it.
            let frees = said.iter().filter(|said| self.kept.given.hear(now, said)).count() > 0;
            news.extend(frees.then(|| News::Freed { name: Arc::clone(name) }));
        }
    }

    /// What was forgotten gives nothing for a while. What spacing and buckets owe, each process knows nearly as well.
    fn settle(&mut self, now: u64, news: &mut Vec<News>) {
        if self.lost && !matches!(self.kept.state, State::Due(_)) {
            self.kept.settles = now + SETTLE;
            news.push(News::Forgot { name: Arc::clone(&self.asked.name), epoch: self.kept.known().epoch });
        }
    }

    /// Whether the limit has room. If not, it has none for those that come, either.
    fn has_room(&mut self, now: u64, Take { cost, reserve, .. }: Take) -> bool {
        if self.closed.is_none() && self.kept.settles > now {
            self.closed = Some(self.kept.settles - now);
        }
        if self.closed.is_some() && reserve >= self.closed_to {
            self.stand_in_line();
            return false;
        }
        let kind = self.asked.kind;
        let wait = match &mut self.kept.state {
            State::List(dates) => {
                let over = over(kind, dates.len() as u64, cost, reserve);
                over.map(|over| {
                    dates.get(over as usize - 1).map_or_else(|| length(kind), |date| date + length(kind) - now)
                })
            }
            State::Cells(counts) => over(kind, counts.values().sum(), cost, reserve).map(|over| {
                let mut sum = 0;
                let cell = counts.iter().find(|(_, count)| {
                    sum += **count;
                    sum >= over
                });
                cell.map_or_else(|| length(kind), |(cell, _)| gone(kind, *cell) - now)
            }),
            State::Due(due) => {
                let free = free(kind, *due, now, cost);
                (free > now).then(|| free - now)
            }
            State::Slots { held, .. } => {
                let all: u64 = held.values().map(|slots| u64::from(slots.count)).sum();
                let soonest = held.values().map(|slots| slots.until - now).min();
                over(kind, all, cost, reserve).map(|_| soonest.unwrap_or(0))
            }
        };
        let wanted = u64::from(cost) + u64::from(reserve.min(count(kind).saturating_sub(cost)));
        let wait = wait.max(self.kept.given.wait(now, wanted));
        if wait.is_some() {
            (self.closed, self.closed_to) = (wait, reserve);
            self.stand_in_line();
        }
        wait.is_none()
    }

    /// Who asks for a slot and has none is one of those that wait.
    fn stand_in_line(&mut self) {
        if let State::Slots { waiting, .. } = &mut self.kept.state
            && !self.stale
            && !waiting.contains(&self.process)
        {
            waiting.push(self.process);
        }
    }

    fn take(&mut self, now: u64, (lag, lease): (u64, u64), ask: &Ask, cost: u32) {
        let kind = self.asked.kind;
        self.kept.given.take(cost);
        match &mut self.kept.state {
            State::List(dates) => {
                let date = (now + lag).max(dates.back().copied().unwrap_or(0));
                dates.extend(std::iter::repeat_n(date, cost as usize));
            }
            State::Cells(counts) => {
                *counts.entry((now + lag) / width(kind)).or_default() += u64::from(cost);
            }
            State::Due(due) => *due = charged(kind, *due, now + lag, cost),
            State::Slots { held, waiting, .. } => {
                waiting.retain(|process| *process != self.process);
                let none = Slots { count: 0, until: now + lease, number: ask.number };
                held.entry(ask.process).or_insert(none).count += cost;
            }
        }
    }
}

/// How much a limit gives at once.
fn count(kind: LimitKind) -> u32 {
    match kind {
        LimitKind::Window { count, .. } | LimitKind::Calendar { count, .. } => count,
        LimitKind::Spaced { largest, .. } => largest,
        LimitKind::Bucket { burst, .. } => burst,
    }
}

/// By how much a window would be over.
fn over(kind: LimitKind, used: u64, cost: u32, reserve: u32) -> Option<u64> {
    let count = count(kind);
    let capacity = count - reserve.min(count.saturating_sub(cost));
    (used + u64::from(cost)).checked_sub(u64::from(capacity)).filter(|&over| over > 0)
}

/// When spacing or a bucket has room for a cost.
fn free(kind: LimitKind, due: u64, now: u64, cost: u32) -> u64 {
    match kind {
        LimitKind::Bucket { interval, burst } => {
            let interval = ceil(interval);
            (due.max(now) + interval * u64::from(cost)).saturating_sub(interval * u64::from(burst))
        }
        LimitKind::Spaced { .. } | LimitKind::Window { .. } | LimitKind::Calendar { .. } => due,
    }
}

/// When everything is paid for after a start, which may be as late as `now`.
fn charged(kind: LimitKind, due: u64, now: u64, cost: u32) -> u64 {
    match kind {
        LimitKind::Bucket { interval, .. } => due.max(now) + ceil(interval) * u64::from(cost),
        LimitKind::Spaced { interval, .. } => {
            let from = if now.saturating_sub(due) <= CATCH_UP { due } else { now };
            from + ceil(interval) * u64::from(cost)
        }
        LimitKind::Window { .. } | LimitKind::Calendar { .. } => due,
    }
}

/// In which time spacing and buckets have room for one more.
fn each(kind: LimitKind) -> u64 {
    match kind {
        LimitKind::Bucket { interval, .. } | LimitKind::Spaced { interval, .. } => ceil(interval).max(1),
        LimitKind::Window { .. } | LimitKind::Calendar { .. } => 1,
    }
}

/// How much spacing or a bucket is owed at most.
fn whole(kind: LimitKind) -> u64 {
    match kind {
        LimitKind::Bucket { interval, burst } => ceil(interval) * u64::from(burst),
        LimitKind::Spaced { interval, largest } => ceil(interval) * u64::from(largest),
        LimitKind::Window { .. } | LimitKind::Calendar { .. } => 0,
    }
}

/// The length of a window.
pub(super) fn length(kind: LimitKind) -> u64 {
    match kind {
        LimitKind::Window { period, .. } => ceil(period),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => 0,
    }
}

/// The width of a cell.
pub(super) fn width(kind: LimitKind) -> u64 {
    length(kind).div_ceil(CELLS).max(1)
}

/// When a cell does not count any more: a period after its end.
fn gone(kind: LimitKind, cell: u64) -> u64 {
    (cell + 1) * width(kind) + length(kind)
}

pub(super) fn ceil(span: Nanos) -> u64 {
    span.get().div_ceil(1_000)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
