//! Windows and concurrency caps in one model: a log of starts, and what is outstanding.
//!
//! A window `N/T` has room for a cost iff the starts in (now − T, now], what is outstanding and the cost together are at
//! most N. A grant is outstanding until its claim writes the start into the log; in a window that counts from the end of
//! an attempt, it is outstanding until that end. With T = 0 nothing is ever written: a concurrency cap.

use std::collections::VecDeque;

use super::Ask;
use crate::engine::plan::Anchor;
use crate::engine::time::{Instant, Nanos};

/// The numbers of a window, as the plan has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) count: u32,
    pub(crate) period: Nanos,
    pub(crate) anchor: Anchor,
    /// Starts are written down at the next multiple of this; zero: as they are.
    pub(crate) grain: Nanos,
}

/// The state of one window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Can be far more than the count, once attempts cost more than was asked for.
    outstanding: u64,
    log: Log,
}

/// Starts that may still count, oldest first. One start needs no memory of its own.
#[derive(Debug, Default)]
enum Log {
    #[default]
    Empty,
    One {
        at: Instant,
        cost: u32,
    },
    Many(Ring),
}

/// Starts of one instant are one entry.
#[derive(Debug, Default)]
struct Ring {
    starts: VecDeque<(Instant, u32)>,
    /// The sum of their costs.
    used: u64,
}

/// A log that emptied keeps room for so many entries.
const KEPT_ENTRIES: usize = 64;

impl Window {
    pub(super) fn of(outstanding: u32, start: Option<(Instant, u32)>) -> Self {
        let log = start.map_or(Log::Empty, |(at, cost)| Log::One { at, cost });
        Self { outstanding: outstanding.into(), log }
    }

    /// What is outstanding, and the start that it knows, if there is one; `None`: there is more to tell.
    pub(super) fn in_brief(&self) -> Option<(u32, Option<(Instant, u32)>)> {
        let start = match &self.log {
            Log::Empty => None,
            Log::One { at, cost } => Some((*at, *cost)),
            Log::Many(_) => return None,
        };
        Some((u32::try_from(self.outstanding).ok()?, start))
    }

    /// What it counts now: what started in the period before, and what is outstanding.
    #[inline]
    pub(crate) fn counted(&mut self, period: Nanos, now: Instant) -> u64 {
        let used = match &mut self.log {
            Log::Empty => 0,
            Log::One { at, cost } if at.saturating_add(period) > now => u64::from(*cost),
            Log::One { .. } => {
                self.log = Log::Empty;
                0
            }
            Log::Many(ring) => {
                ring.forget(now, period);
                ring.used
            }
        };
        self.outstanding + used
    }

    /// Whether `cost` fits now, with `reserve` left over for others.
    pub(crate) fn ask(&mut self, spec: Spec, now: Instant, cost: u32, reserve: u32) -> Ask {
        self.log.forget(now, spec.period);
        spec.answer(now, self.outstanding, self.log.used(), cost, reserve, |units| self.log.freed(units))
    }

    /// A request is granted: its cost is outstanding.
    #[inline]
    pub(crate) fn grant(&mut self, spec: Spec, now: Instant, cost: u32) {
        self.outstanding += cost as u64;
        debug_assert!(
            {
                self.log.forget(now, spec.period);
                self.log.used() + self.outstanding <= u64::from(spec.count)
            },
            "granted over {spec:?}: {self:?}"
        );
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(crate) const fn owe(&mut self, cost: u32) {
        self.outstanding += cost as u64;
    }

    /// Its attempt begins.
    #[inline]
    pub(crate) fn claim(&mut self, spec: Spec, now: Instant, cost: u32) {
        match spec.anchor {
            Anchor::Start => self.count(spec, now, cost),
            Anchor::End => {}
        }
    }

    /// Granted and begun in one, just after there was room for it.
    #[inline]
    pub(crate) fn start(&mut self, spec: Spec, now: Instant, cost: u32) {
        match spec.anchor {
            Anchor::Start if spec.period.is_zero() => {}
            Anchor::Start => self.log.push(spec.written(now), cost),
            Anchor::End => self.outstanding += u64::from(cost),
        }
    }

    /// Its attempt ended, however.
    pub(crate) fn end(&mut self, spec: Spec, now: Instant, cost: u32) {
        match spec.anchor {
            Anchor::Start => {}
            Anchor::End => self.count(spec, now, cost),
        }
    }

    /// The grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        self.outstanding -= u64::from(cost);
    }

    /// A start at `at`, if it still counts, cost `actual` instead of `cost`. More than was asked for may go over the
    /// count; whoever comes next waits for it.
    pub(crate) fn settle(&mut self, spec: Spec, at: Instant, cost: u32, actual: u32) {
        match spec.anchor {
            Anchor::Start => self.log.settle(spec.written(at), cost, actual),
            Anchor::End => self.outstanding = self.outstanding - u64::from(cost) + u64::from(actual),
        }
    }

    /// A lower bound for the start of a request that comes after `ahead` others of unit cost.
    pub(crate) fn earliest(&mut self, spec: Spec, now: Instant, ahead: u64, cost: u32) -> Ask {
        self.log.forget(now, spec.period);
        let used = self.log.used();
        let count = u64::from(spec.count);
        let known = used + self.outstanding;
        let place = known + ahead + u64::from(cost);
        if place <= count {
            return Ask::Room;
        }
        if spec.period.is_zero() {
            return Ask::Busy;
        }
        // The unit at `place` follows the one `count` places before it by a period, that one its own forerunner, and
        // so on down to a unit of the first round: in the log, or free to go now. What was settled at more than there is
        // room for went all at once, though.
        let rounds = ((place - 1) / count).min((place - known).div_ceil(count));
        let first = place - rounds * count;
        let base = if first <= used { self.log.freed(first) } else { now };
        Ask::At(base.saturating_add(spec.period.saturating_mul(rounds)))
    }

    /// The starts that it knows, oldest first.
    pub(crate) fn starts(&self) -> Vec<(Instant, u32)> {
        match &self.log {
            Log::Empty => Vec::new(),
            Log::One { at, cost } => vec![(*at, *cost)],
            Log::Many(ring) => ring.starts.iter().copied().collect(),
        }
    }

    /// Counts starts that another window knows.
    pub(crate) fn remember(&mut self, spec: Spec, starts: &[(Instant, u32)]) {
        if !spec.period.is_zero() {
            for &(at, cost) in starts {
                self.log.push(at, cost);
            }
        }
    }

    /// Counts what another window of the same numbers knows and has outstanding, too.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut starts = self.starts();
        starts.extend(other.starts());
        starts.sort_by_key(|&(at, _)| at);
        self.log = Log::Empty;
        for (at, cost) in starts {
            self.log.push(at, cost);
        }
        self.outstanding += other.outstanding;
    }

    /// Counts starts that another run of the program knew, beside those that it knows itself.
    ///
    /// The newest that fill the window decide when there is room; older ones are let go.
    pub(crate) fn recall(&mut self, spec: Spec, mut starts: Vec<(Instant, u32)>) {
        if spec.period.is_zero() {
            return;
        }
        starts.sort_unstable();
        let mut left = spec.count;
        for (_, cost) in starts.iter_mut().rev() {
            *cost = (*cost).min(left);
            left -= *cost;
        }
        starts.retain(|&(_, cost)| cost > 0);
        starts.extend(self.starts());
        starts.sort_by_key(|&(at, _)| at);
        self.log = Log::Empty;
        self.remember(spec, &starts);
    }

    /// What was granted, and in a window that counts from the end also what runs.
    pub(crate) fn outstanding(&self) -> u32 {
        u32::try_from(self.outstanding).unwrap_or(u32::MAX)
    }

    /// When nothing is left of it. `None` while something is outstanding.
    pub(crate) fn free_at(&self, spec: Spec) -> Option<Instant> {
        (self.outstanding == 0).then(|| self.log.newest().map_or(Instant::ZERO, |at| at.saturating_add(spec.period)))
    }

    fn count(&mut self, spec: Spec, now: Instant, cost: u32) {
        self.outstanding -= u64::from(cost);
        if !spec.period.is_zero() {
            self.log.forget(now, spec.period);
            self.log.push(spec.written(now), cost);
        }
    }
}

impl Spec {
    /// Whether `cost` fits where so much is outstanding and started, with `reserve` left over for others; `freed` is the
    /// start with which so many units have left.
    #[inline]
    pub(super) fn answer(
        self,
        now: Instant,
        outstanding: u64,
        used: u64,
        cost: u32,
        reserve: u32,
        freed: impl FnOnce(u64) -> Instant,
    ) -> Ask {
        let capacity = u64::from(self.count - reserve.min(self.count.saturating_sub(cost)));
        let wanted = outstanding + u64::from(cost);
        let total = wanted + used;
        if total <= capacity {
            return Ask::Room;
        }
        if wanted > capacity {
            return match self.anchor {
                Anchor::End => Ask::Busy,
                // What is outstanding is claimed now at the earliest.
                Anchor::Start => Ask::Unclaimed(now.saturating_add(self.period)),
            };
        }
        Ask::At(freed(total - capacity).saturating_add(self.period))
    }

    /// The instant at which a start is written down: never before it.
    #[inline]
    pub(super) const fn written(self, at: Instant) -> Instant {
        match self.grain.get() {
            0 => at,
            grain => Instant::from_nanos(at.as_nanos().div_ceil(grain).saturating_mul(grain)),
        }
    }
}

impl Ring {
    /// Drops the starts that left the window.
    #[inline]
    fn forget(&mut self, now: Instant, period: Nanos) {
        while let Some(&(at, cost)) = self.starts.front() {
            if at.saturating_add(period) > now {
                return;
            }
            self.starts.pop_front();
            self.used -= u64::from(cost);
        }
        if self.starts.capacity() > KEPT_ENTRIES {
            self.starts.shrink_to(KEPT_ENTRIES);
        }
    }
}

impl Log {
    fn used(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One { cost, .. } => u64::from(*cost),
            Self::Many(ring) => ring.used,
        }
    }

    fn newest(&self) -> Option<Instant> {
        match self {
            Self::Empty => None,
            Self::One { at, .. } => Some(*at),
            Self::Many(ring) => ring.starts.back().map(|&(at, _)| at),
        }
    }

    /// Drops the starts that left the window: a start at `s` counts until just before `s + period`.
    fn forget(&mut self, now: Instant, period: Nanos) {
        let gone = |at: Instant| at.saturating_add(period) <= now;
        match self {
            Self::Empty => {}
            Self::One { at, .. } => {
                if gone(*at) {
                    *self = Self::Empty;
                }
            }
            Self::Many(ring) => ring.forget(now, period),
        }
    }

    #[inline]
    fn push(&mut self, now: Instant, cost: u32) {
        match self {
            Self::Empty => *self = Self::One { at: now, cost },
            Self::One { at, cost: before } if *at == now => *before = before.saturating_add(cost),
            Self::One { at, cost: before } => {
                let starts = VecDeque::from([(*at, *before), (now, cost)]);
                *self = Self::Many(Ring { starts, used: u64::from(*before) + u64::from(cost) });
            }
            Self::Many(ring) => match ring.starts.back_mut() {
                Some((at, before)) if *at == now => {
                    let after = before.saturating_add(cost);
                    ring.used += u64::from(after - *before);
                    *before = after;
                }
                Some(_) | None => {
                    ring.used += u64::from(cost);
                    ring.starts.push_back((now, cost));
                }
            },
        }
    }

    fn settle(&mut self, at: Instant, cost: u32, actual: u32) {
        match self {
            Self::One { at: start, cost: before } if *start == at => {
                *before = before.saturating_sub(cost).saturating_add(actual);
            }
            // Forgotten, or a start that seemed to be for nothing and left no trace.
            Self::Empty => self.push(at, actual.saturating_sub(cost)),
            Self::One { at: start, .. } if *start < at => self.push(at, actual.saturating_sub(cost)),
            Self::One { at: start, cost: before } => {
                let (after, before) = ((*start, *before), (at, actual.saturating_sub(cost)));
                let used = u64::from(before.1) + u64::from(after.1);
                *self = Self::Many(Ring { starts: VecDeque::from([before, after]), used });
            }
            Self::Many(ring) => match ring.starts.binary_search_by_key(&at, |&(start, _)| start) {
                Ok(position) => {
                    let before = &mut ring.starts[position].1;
                    let after = before.saturating_sub(cost).saturating_add(actual);
                    ring.used = ring.used - u64::from(*before) + u64::from(after);
                    *before = after;
                }
                Err(position) => {
                    let more = actual.saturating_sub(cost);
                    ring.starts.insert(position, (at, more));
                    ring.used += u64::from(more);
                }
            },
        }
    }

    /// The start with which the oldest `units` of cost have left: they are free one period after it.
    fn freed(&self, units: u64) -> Instant {
        match self {
            Self::Empty => Instant::ZERO,
            Self::One { at, .. } => *at,
            Self::Many(ring) => {
                let mut left = units;
                for &(at, cost) in &ring.starts {
                    left = left.saturating_sub(u64::from(cost));
                    if left == 0 {
                        return at;
                    }
                }
                Instant::NEVER
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Spec = Spec { count: 2, period: Nanos::from_secs(1), anchor: Anchor::Start, grain: Nanos::ZERO };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn start(window: &mut Window, spec: Spec, now: Instant) {
        window.grant(spec, now, 1);
        window.claim(spec, now, 1);
    }

    #[test]
    fn a_start_counts_until_just_before_its_period_is_over() {
        let mut window = Window::default();
        start(&mut window, SECOND, at(0));
        start(&mut window, SECOND, at(600));
        assert_eq!(window.ask(SECOND, at(999), 1, 0), Ask::At(at(1_000)));
        assert_eq!(window.ask(SECOND, at(1_000), 1, 0), Ask::Room);
        start(&mut window, SECOND, at(1_000));
        assert_eq!(window.ask(SECOND, at(1_000), 1, 0), Ask::At(at(1_600)));
        assert_eq!(window.ask(SECOND, at(1_000), 2, 0), Ask::At(at(2_000)));
    }

    #[test]
    fn a_grant_is_counted_from_its_claim_however_late() {
        let mut window = Window::default();
        window.grant(SECOND, at(0), 2);
        assert_eq!(window.ask(SECOND, at(10), 1, 0), Ask::Unclaimed(at(1_010)));
        window.claim(SECOND, at(5_000), 2);
        assert_eq!(window.ask(SECOND, at(5_999), 1, 0), Ask::At(at(6_000)));
    }

    #[test]
    fn a_refund_leaves_nothing_behind() {
        let mut window = Window::default();
        window.grant(SECOND, at(0), 2);
        window.refund(2);
        assert_eq!(window.ask(SECOND, at(0), 2, 0), Ask::Room);
        assert_eq!(window.free_at(SECOND), Some(Instant::ZERO));
    }

    #[test]
    fn without_a_period_it_is_a_concurrency_cap() {
        let spec = Spec { count: 1, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO };
        let mut window = Window::default();
        start(&mut window, spec, at(0));
        assert_eq!(window.ask(spec, at(9_000), 1, 0), Ask::Busy);
        assert_eq!(window.free_at(spec), None);
        window.end(spec, at(9_000), 1);
        assert_eq!(window.ask(spec, at(9_000), 1, 0), Ask::Room);
    }

    #[test]
    fn counted_from_the_end_it_is_free_one_period_after_the_end() {
        let spec = Spec { count: 1, period: Nanos::from_secs(1), anchor: Anchor::End, grain: Nanos::ZERO };
        let mut window = Window::default();
        start(&mut window, spec, at(0));
        assert_eq!(window.ask(spec, at(3_000), 1, 0), Ask::Busy);
        window.end(spec, at(3_000), 1);
        assert_eq!(window.ask(spec, at(3_000), 1, 0), Ask::At(at(4_000)));
    }

    #[test]
    fn a_reserve_is_left_free_but_never_shuts_a_request_out() {
        let spec = Spec { count: 50, period: Nanos::from_secs(1), anchor: Anchor::Start, grain: Nanos::ZERO };
        let mut window = Window::default();
        assert_eq!(window.ask(spec, at(0), 50, 1), Ask::Room);
        window.grant(spec, at(0), 49);
        window.claim(spec, at(0), 49);
        assert_eq!(window.ask(spec, at(1), 1, 1), Ask::At(at(1_000)));
        assert_eq!(window.ask(spec, at(1), 1, 0), Ask::Room);
    }

    #[test]
    fn the_earliest_start_behind_others_follows_the_recurrence() {
        let mut window = Window::default();
        start(&mut window, SECOND, at(0));
        start(&mut window, SECOND, at(600));
        for (ahead, millis) in [(0, 1_000), (1, 1_600), (2, 2_000), (3, 2_600), (41, 21_600)] {
            assert_eq!(window.earliest(SECOND, at(700), ahead, 1), Ask::At(at(millis)), "{ahead} ahead");
        }
    }
    #[test]
    fn what_was_settled_over_the_count_leaves_all_at_once() {
        let mut window = Window::default();
        start(&mut window, SECOND, at(0));
        window.settle(SECOND, at(0), 1, 7);
        for (ahead, millis) in [(0, 1_000), (1, 1_000), (2, 2_000)] {
            assert_eq!(window.earliest(SECOND, at(700), ahead, 1), Ask::At(at(millis)), "{ahead} ahead");
        }
    }
}
