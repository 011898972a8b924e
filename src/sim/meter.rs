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
                let day = Instant::from_nanos(now.as_nanos() / DAY.get() * DAY.get());
                let taken: u64 = self.log.iter().filter(|(at, _)| *at >= day).map(|&(_, cost)| u64::from(cost)).sum();
                Room::At(if taken + u64::from(cost) <= u64::from(count) { now } else { day.saturating_add(DAY) })
            }
        }
    }

    /// An attempt begins.
    pub(crate) fn start(&mut self, now: Instant, cost: Cost) {
        let cost = cost.of(self.charge);
        match self.kind {
            LimitKind::Window { anchor: Anchor::End, .. } => self.outstanding += u64::from(cost),
            LimitKind::Window { anchor: Anchor::Start, .. } => self.write(now, cost),
            LimitKind::Calendar { .. } => {
                let day = Instant::from_nanos(now.as_nanos() / DAY.get() * DAY.get());
                self.log.retain(|(at, _)| *at >= day);
                self.log.push_back((now, cost));
            }
            LimitKind::Spaced { interval, .. } | LimitKind::Bucket { interval, .. } => {
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

    fn forget(&mut self, now: Instant, period: Nanos) {
        while let Some(&(at, cost)) = self.log.front()
            && at.saturating_add(period) <= now
        {
            self.log.pop_front();
            self.in_log -= u64::from(cost);
        }
    }
}

/// When all of several limits have room.
pub(crate) fn room<'m>(meters: impl IntoIterator<Item = &'m mut Meter>, now: Instant, cost: Cost) -> Room {
    meters.into_iter().map(|meter| meter.room(now, cost)).max().unwrap_or(Room::At(now))
}
