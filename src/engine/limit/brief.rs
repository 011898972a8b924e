//! A window that knows starts of one instant at most and of which no server said anything, in 16 bytes: that of most keys.

use super::Ask;
use super::full::{Full, Kind};
use super::window::{Spec, Window};
use crate::engine::plan::Anchor;
use crate::engine::time::{Instant, Nanos};

/// What there is to such a window, as long as its numbers are below 65,536. What is larger is written down in full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    /// The start that may still count, if there is one.
    at: Instant,
    cost: u16,
    outstanding: u16,
    /// What is granted or runs, and has no response yet.
    awaited: u16,
    knows_start: bool,
}

impl Brief {
    pub(super) const EMPTY: Self = Self { at: Instant::ZERO, cost: 0, outstanding: 0, awaited: 0, knows_start: false };

    /// The same with room for everything.
    pub(super) fn open(self) -> Full {
        let start = self.knows_start.then_some((self.at, self.cost.into()));
        Full {
            kind: Kind::Window(Window::of(self.outstanding.into(), start)),
            awaited: self.awaited.into(),
            observed: None,
        }
    }

    /// The same in brief, if that is possible.
    pub(super) fn of(full: &Full) -> Option<Self> {
        let (Kind::Window(window), None) = (&full.kind, &full.observed) else { return None };
        let (outstanding, start) = window.in_brief()?;
        let (at, cost) = start.unwrap_or((Instant::ZERO, 0));
        let (cost, outstanding) = (u16::try_from(cost).ok()?, u16::try_from(outstanding).ok()?);
        let awaited = u16::try_from(full.awaited).ok()?;
        Some(Self { at, cost, outstanding, awaited, knows_start: start.is_some() })
    }

    /// What it counts now.
    #[inline(always)]
    pub(super) fn counted(&self, period: Nanos, now: Instant) -> u64 {
        let counts = self.knows_start && self.at.saturating_add(period) > now;
        u64::from(self.outstanding) + if counts { u64::from(self.cost) } else { 0 }
    }

    /// Whether `cost` fits now, with `reserve` left over for others.
    pub(super) fn ask(&self, spec: Spec, now: Instant, cost: u32, reserve: u32) -> Ask {
        let used = self.counted(spec.period, now) - u64::from(self.outstanding);
        spec.answer(now, self.outstanding.into(), used, cost, reserve, |_| self.at)
    }

    /// A request is granted. Returns false, and changes nothing, if there is no way to write that down in brief.
    pub(super) fn grant(&mut self, spec: Spec, now: Instant, cost: u32) -> bool {
        let Ok(cost) = u16::try_from(cost) else { return false };
        let (Some(outstanding), Some(awaited)) = (self.outstanding.checked_add(cost), self.awaited.checked_add(cost))
        else {
            return false;
        };
        (self.outstanding, self.awaited) = (outstanding, awaited);
        debug_assert!(self.counted(spec.period, now) <= u64::from(spec.count), "granted over {spec:?}: {self:?}");
        true
    }

    /// Its attempt begins. Returns false, and changes nothing, if there is no way to write that down in brief.
    pub(super) fn claim(&mut self, spec: Spec, now: Instant, cost: u32) -> bool {
        let Ok(cost) = u16::try_from(cost) else { return false };
        match spec.anchor {
            Anchor::Start if spec.period.is_zero() => {}
            Anchor::Start if !self.write_start(spec, now, cost) => return false,
            Anchor::Start => {}
            Anchor::End => return true,
        }
        self.outstanding -= cost;
        true
    }

    /// A request of cost 1 is granted and begins in one. Returns false, and changes nothing, if there is no way to write
    /// that down in brief.
    #[inline(always)]
    pub(super) fn start(&mut self, spec: Spec, now: Instant) -> bool {
        let Some(awaited) = self.awaited.checked_add(1) else { return false };
        match spec.anchor {
            Anchor::Start if spec.period.is_zero() => {}
            Anchor::Start if !self.write_start(spec, now, 1) => return false,
            Anchor::Start => {}
            Anchor::End => match self.outstanding.checked_add(1) {
                Some(outstanding) => self.outstanding = outstanding,
                None => return false,
            },
        }
        self.awaited = awaited;
        true
    }

    /// Writes a start down beside those of the same instant, or in the place of one that counts no longer. Returns false,
    /// and changes nothing, if there is no way to.
    #[inline(always)]
    fn write_start(&mut self, spec: Spec, now: Instant, cost: u16) -> bool {
        let at = spec.written(now);
        let beside = if !self.knows_start || self.at.saturating_add(spec.period) <= now {
            0
        } else if self.at == at {
            self.cost
        } else {
            return false;
        };
        let Some(cost) = beside.checked_add(cost) else { return false };
        (self.at, self.cost, self.knows_start) = (at, cost, true);
        true
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(super) fn free_at(&self, period: Nanos) -> Option<Instant> {
        let left = if self.knows_start { self.at.saturating_add(period) } else { Instant::ZERO };
        (self.outstanding == 0).then_some(left)
    }

    /// A response was read, and told nothing of it.
    #[inline(always)]
    pub(super) const fn read(&mut self, cost: u32) {
        // It is part of that.
        self.awaited -= cost as u16;
    }

    /// An attempt of cost 1 ended that counted from its start.
    #[inline(always)]
    pub(super) const fn end(&mut self, is_read: bool) {
        if !is_read {
            self.awaited -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LimitState;
    use super::*;

    const SPEC: Spec =
        Spec { count: 200_000, period: Nanos::from_secs(1), anchor: Anchor::Start, grain: Nanos::new(0) };

    /// What is left after one request of this cost, and whether it was written down in brief.
    fn after(cost: u32) -> (u64, bool) {
        let mut state = LimitState::Brief(Brief::EMPTY);
        let spec = crate::engine::limit::Spec::Window(SPEC);
        state.grant(spec, Instant::ZERO, cost);
        state.claim(spec, Instant::ZERO, cost);
        state.grant(spec, Instant::ZERO, 1);
        let left = (1..=200_000).rev().find(|&cost| state.ask(spec, Instant::ZERO, cost, 0) == Ask::Room);
        (left.unwrap_or(0).into(), matches!(state, LimitState::Brief(_)))
    }

    #[test]
    fn what_is_too_large_for_the_brief_form_is_written_down_in_full() {
        assert_eq!(after(1), (199_998, true));
        assert_eq!(after(65_534), (134_465, true));
        assert_eq!(after(65_535), (134_464, false));
        assert_eq!(after(65_536), (134_463, false));
        assert_eq!(after(199_999), (0, false));
    }
}
