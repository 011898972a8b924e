//! Limits: what enforces a quota somewhere. A closed set of kinds; a grant asks all of a request's limits first and
//! takes from all of them only when every one has room.

mod window;

use self::window::{Spec, Window};
use super::plan::{Anchor, LimitKind, LimitRef, LimitSpec};
use super::time::{Instant, Nanos};

/// A limit's answer to "does this fit now?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Yes.
    Room,
    /// At this instant, if nothing else comes first.
    At(Instant),
    /// Not before this instant, and not before what was granted is claimed or given back.
    Unclaimed(Instant),
    /// When a running attempt ends.
    Busy,
}

impl Ask {
    /// The answer of two limits together: the one that makes wait longer.
    pub(crate) fn and(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    const fn rank(self) -> (u8, Instant) {
        match self {
            Self::Room => (0, Instant::ZERO),
            Self::At(at) | Self::Unclaimed(at) => (1, at),
            Self::Busy => (2, Instant::ZERO),
        }
    }
}

/// The state of one limit.
#[derive(Debug)]
pub(crate) enum LimitState {
    Window(Window),
}

impl LimitState {
    fn new(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Window { .. } => Self::Window(Window::default()),
        }
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(crate) fn ask(&mut self, kind: LimitKind, now: Instant, cost: u32, reserve: u32) -> Ask {
        match (self, kind) {
            (Self::Window(window), LimitKind::Window { .. }) => window.ask(spec(kind), now, cost, reserve),
        }
    }

    /// A request is granted.
    pub(crate) fn grant(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.grant(spec(kind), now, cost),
        }
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.claim(spec(kind), now, cost),
        }
    }

    /// Its attempt ended.
    pub(crate) fn end(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.end(spec(kind), now, cost),
        }
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        match self {
            Self::Window(window) => window.refund(cost),
        }
    }

    /// A lower bound for a request behind `ahead` others.
    pub(crate) fn earliest(&mut self, kind: LimitKind, now: Instant, ahead: u64, cost: u32) -> Ask {
        match self {
            Self::Window(window) => window.earliest(spec(kind), now, ahead, cost),
        }
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(crate) fn free_at(&self, kind: LimitKind) -> Option<Instant> {
        match self {
            Self::Window(window) => window.free_at(spec(kind)),
        }
    }
}

/// The states of a handful of limits: up to two of them in place.
#[derive(Debug)]
pub(crate) enum LimitStates {
    None,
    One(LimitState),
    Two([LimitState; 2]),
    Many(Box<[LimitState]>),
}

impl LimitStates {
    pub(crate) fn new(specs: &[LimitSpec]) -> Self {
        match specs {
            [] => Self::None,
            [only] => Self::One(LimitState::new(only.kind)),
            [first, second] => Self::Two([LimitState::new(first.kind), LimitState::new(second.kind)]),
            more => Self::Many(more.iter().map(|spec| LimitState::new(spec.kind)).collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[LimitState] {
        match self {
            Self::None => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::Two(both) => both,
            Self::Many(all) => all,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [LimitState] {
        match self {
            Self::None => &mut [],
            Self::One(only) => std::slice::from_mut(only),
            Self::Two(both) => both,
            Self::Many(all) => all,
        }
    }

    /// Every limit with its state.
    pub(crate) fn each<'a>(
        &'a mut self,
        specs: &'a [LimitSpec],
    ) -> impl Iterator<Item = (LimitKind, &'a mut LimitState)> {
        specs.iter().zip(self.as_mut_slice()).map(|(spec, state)| (spec.kind, state))
    }

    /// Applies `change` to the limits that `refs` name, with the position in `refs`.
    pub(crate) fn for_refs(
        &mut self,
        specs: &[LimitSpec],
        refs: &[LimitRef],
        mut change: impl FnMut(usize, LimitKind, &mut LimitState),
    ) {
        let states = self.as_mut_slice();
        for (position, bound) in refs.iter().enumerate() {
            change(position, specs[bound.limit].kind, &mut states[bound.limit]);
        }
    }

    /// When nothing is left of any of them; `None` while something is outstanding.
    pub(crate) fn free_at(&self, specs: &[LimitSpec]) -> Option<Instant> {
        let mut latest = Instant::ZERO;
        for (spec, state) in specs.iter().zip(self.as_slice()) {
            latest = latest.max(state.free_at(spec.kind)?);
        }
        Some(latest)
    }
}

/// The clock that spaces the starts of the lower lanes below one limit.
///
/// It is a schedule, not a stopwatch: a start that a timer made late is followed at the instant that was due, up to
/// [`PaceClock::CATCH_UP`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaceClock {
    due: Instant,
}

impl PaceClock {
    /// Lateness that is caught up. tokio's timers are up to 2 ms late; the rest is for a busy executor.
    const CATCH_UP: Nanos = Nanos::from_millis(5);

    /// When the next paced start is due.
    pub(crate) const fn due(self) -> Instant {
        self.due
    }

    /// A paced request of this cost was granted.
    pub(crate) fn charge(&mut self, now: Instant, interval: Nanos, cost: u32) {
        let base = self.due.max(now.saturating_sub(Self::CATCH_UP));
        self.due = base.saturating_add(interval.saturating_mul(u64::from(cost)));
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, interval: Nanos, cost: u32) {
        self.due = self.due.saturating_sub(interval.saturating_mul(u64::from(cost)));
    }
}

/// The most that fits a limit at any time.
pub(crate) const fn capacity(kind: LimitKind) -> u32 {
    match kind {
        LimitKind::Window { count, .. } => count,
    }
}

/// Whether a limit lets go only when attempts end.
pub(crate) const fn counts_from_end(kind: LimitKind) -> bool {
    match kind {
        LimitKind::Window { anchor, .. } => matches!(anchor, Anchor::End),
    }
}

/// How long a start is counted.
pub(crate) const fn period(kind: LimitKind) -> Nanos {
    match kind {
        LimitKind::Window { period, .. } => period,
    }
}

const fn spec(kind: LimitKind) -> Spec {
    match kind {
        LimitKind::Window { count, period, anchor } => Spec { count, period, anchor },
    }
}
