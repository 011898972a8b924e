//! Limits as the compared policies and the metrics count them: slow, obvious, and nothing of the engine's.

use std::collections::VecDeque;

use super::cost::Cost;
use crate::engine::{Anchor, Charge, Instant, LimitKind, LimitSpec, Nanos};

/// One limit at work.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    kind: LimitKind,
    charge: Charge,
    /// Starts that count, or ends of attempts where those do, with their cost.
    log: VecDeque<(Instant, u32)>,
    in_log: u64,
    outstanding: u64,
    /// When everything is paid for: of spacing, and of a bucket.
    paid: Instant,
}

/// When there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    At(Instant),
    /// When a running attempt ends.
    AtAnEnd,
}

/// A calendar day as the policies compared with know it: there are no time zones on virtual time.
const DAY: Nanos = Nanos::from_secs(86_400);

/// Even spacing catches up with what is late by so much.
pub(crate) const CATCH_UP: Nanos = Nanos::from_millis(2);

impl Meter {
    pub(crate) const fn new(spec: &LimitSpec) -> Self {
        let LimitSpec { kind, charge, .. } = spec;
        Self { kind: *kind, charge: *charge, log: VecDeque::new(), in_log: 0, outstanding: 0, paid: Instant::ZERO }
    }

    pub(crate) fn all(specs: &[LimitSpec]) -> Vec<Self> {
        specs.iter().map(Self::new).collect()
    }

    /// The first instant from `now` on with room for a request of this cost, if nothing else starts.
    pub(crate) fn room(&mut self, now: Instant, cost: Cost) -> Room {
        let cost = cost.of(self.charge);
        if cost == 0 {
            return Room::At(now);
        }
        match self.kind {
            LimitKind::Window { count, period, .. } => {
                self.forget(now, period);
                let wanted = self.in_log + self.outstanding + u64::from(cost);
                let Some(mut over) = wanted.checked_sub(u64::from(count)).filter(|&over| over > 0) else {
                    return Room::At(now);
                };
                for &(at, cost) in &self.log {
                    over = over.saturating_sub(cost.into());
                    if over == 0 {
                        return Room::At(at.saturating_add(period));
                    }
                }
                Room::AtAnEnd
            }
            LimitKind::Spaced { .. } => Room::At(now.max(self.paid)),
            LimitKind::Bucket { interval, burst } => {
                let store = interval.saturating_mul(u64::from(burst.saturating_sub(cost)));
                Room::At(now.max(self.paid.saturating_sub(store)))
            }
            LimitKind::Calendar { count, .. } => {
                let fits = self.taken_since(day(now)) + u64::from(cost) <= u64::from(count);
                Room::At(if fits { now } else { day(now).saturating_add(DAY) })
            }
        }
    }

    /// How much more has room at an instant at which there is some.
    pub(crate) fn free(&mut self, now: Instant) -> u64 {
        let (most, taken) = match self.kind {
            LimitKind::Window { count, period, .. } => {
                self.forget(now, period);
                (count, self.in_log + self.outstanding)
            }
            LimitKind::Spaced { .. } => (1, 0),
            LimitKind::Bucket { interval, burst } => {
                (burst, self.paid.since(now).div_ceil(interval.get().max(1)).get())
            }
            LimitKind::Calendar { count, .. } => (count, self.taken_since(day(now))),
        };
        u64::from(most).saturating_sub(taken)
    }

    /// Since when there has been room for a request of this cost, looked for from `from` on: the end of the last stretch
    /// of time in which there was none. For a meter that is never asked for its [`room`](Self::room), which forgets.
    pub(crate) fn room_since(&self, from: Instant, cost: Cost) -> Room {
        let cost = cost.of(self.charge);
        if cost == 0 {
            return Room::At(from);
        }
        match self.kind {
            LimitKind::Window { count, period, .. } => {
                let Some(fits) = u64::from(count).checked_sub(self.outstanding + u64::from(cost)) else {
                    return Room::AtAnEnd;
                };
                Room::At(self.window_since(from, period, fits))
            }
            LimitKind::Spaced { .. } => Room::At(from.max(self.paid)),
            LimitKind::Bucket { interval, burst } => {
                let store = interval.saturating_mul(u64::from(burst.saturating_sub(cost)));
                Room::At(from.max(self.paid.saturating_sub(store)))
            }
            LimitKind::Calendar { count, .. } => {
                let day = day(self.log.back().map_or(from, |&(at, _)| at));
                let fits = self.taken_since(day) + u64::from(cost) <= u64::from(count);
                Room::At(if fits { from } else { from.max(day.saturating_add(DAY)) })
            }
        }
    }

    /// The end of the last stretch of time in which there was more than `fits` in the window, if it is later than `from`.
    fn window_since(&self, from: Instant, period: Nanos, fits: u64) -> Instant {
        // The window that ends with the entry at `last`: what it holds from `first` on.
        let (mut first, mut held) = (self.log.len(), 0);
        // What is over by then makes nobody wait any more.
        let recent = (0..self.log.len()).rev().take_while(|&last| self.log[last].0.saturating_add(period) > from);
        for last in recent {
            while let Some(before) = first.checked_sub(1)
                && self.log[before].0.saturating_add(period) > self.log[last].0
            {
                first = before;
                held += u64::from(self.log[first].1);
            }
            if held > fits {
                let mut leaving = self.log.range(first..);
                let mut since = from;
                while held > fits
                    && let Some(&(at, cost)) = leaving.next()
                {
                    held -= u64::from(cost);
                    since = at.saturating_add(period);
                }
                return since.max(from);
            }
            held -= u64::from(self.log[last].1);
        }
        from
    }

    /// An attempt begins.
    pub(crate) fn start(&mut self, now: Instant, cost: Cost) {
        let cost = cost.of(self.charge);
        match self.kind {
            LimitKind::Window { anchor: Anchor::End, .. } => self.outstanding += u64::from(cost),
            LimitKind::Window { anchor: Anchor::Start, .. } => self.write(now, cost),
            LimitKind::Calendar { .. } => {
                self.log.retain(|(at, _)| *at >= day(now));
                self.log.push_back((now, cost));
            }
            LimitKind::Spaced { interval, .. } => {
                let is_little_late = self.paid < now && now.since(self.paid) <= CATCH_UP;
                let from = if is_little_late { self.paid } else { self.paid.max(now) };
                self.paid = from.saturating_add(interval.saturating_mul(cost.into()));
            }
            LimitKind::Bucket { interval, .. } => {
                self.paid = self.paid.max(now).saturating_add(interval.saturating_mul(cost.into()));
            }
        }
    }

    /// It ends.
    pub(crate) fn end(&mut self, now: Instant, cost: Cost) {
        let cost = cost.of(self.charge);
        if let LimitKind::Window { anchor: Anchor::End, period, .. } = self.kind {
            self.outstanding = self.outstanding.saturating_sub(cost.into());
            if !period.is_zero() {
                self.write(now, cost);
            }
        }
    }

    fn write(&mut self, at: Instant, cost: u32) {
        self.log.push_back((at, cost));
        self.in_log += u64::from(cost);
    }

    /// What started from the beginning of a day on.
    fn taken_since(&self, day: Instant) -> u64 {
        self.log.iter().filter(|(at, _)| *at >= day).map(|&(_, cost)| u64::from(cost)).sum()
    }

    fn forget(&mut self, now: Instant, period: Nanos) {
        while let Some(&(at, cost)) = self.log.front()
            && at.saturating_add(period) <= now
        {
            self.log.pop_front();
            self.in_log -= u64::from(cost);
        }
    }
}

/// When the day of an instant begins.
fn day(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos() / DAY.get() * DAY.get())
}

/// When all of several limits have room.
pub(crate) fn room<'m>(meters: impl IntoIterator<Item = &'m mut Meter>, now: Instant, cost: Cost) -> Room {
    meters.into_iter().map(|meter| meter.room(now, cost)).max().unwrap_or(Room::At(now))
}
