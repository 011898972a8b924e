//! Limits: what enforces a quota somewhere. A closed set of kinds; a grant asks all of a request's limits first and
//! takes from all of them only when every one has room.

mod smooth;
mod window;

use self::smooth::{Gcra, Shape};
use self::window::Window;
use super::cost::Costs;
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
    Gcra(Gcra),
}

/// A limit's numbers, in the terms of what enforces it.
enum Spec {
    Window(window::Spec),
    Gcra(smooth::Spec),
}

impl From<LimitKind> for Spec {
    fn from(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Window { count, period, anchor, grain } => {
                Self::Window(window::Spec { count, period, anchor, grain })
            }
            LimitKind::Spaced { interval, largest } => {
                Self::Gcra(smooth::Spec { interval, burst: largest, shape: Shape::Spaced })
            }
            LimitKind::Bucket { interval, burst } => Self::Gcra(smooth::Spec { interval, burst, shape: Shape::Bucket }),
        }
    }
}

impl LimitState {
    fn new(kind: LimitKind) -> Self {
        match Spec::from(kind) {
            Spec::Window(_) => Self::Window(Window::default()),
            Spec::Gcra(_) => Self::Gcra(Gcra::default()),
        }
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(crate) fn ask(&mut self, kind: LimitKind, now: Instant, cost: u32, reserve: u32) -> Ask {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.ask(spec, now, cost, reserve),
            (Self::Gcra(gcra), Spec::Gcra(spec)) => gcra.ask(spec, now, cost),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// A request is granted.
    pub(crate) fn grant(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.grant(spec, now, cost),
            (Self::Gcra(gcra), Spec::Gcra(_)) => gcra.grant(cost),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(crate) const fn owe(&mut self, cost: u32) {
        match self {
            Self::Window(window) => window.owe(cost),
            Self::Gcra(gcra) => gcra.grant(cost),
        }
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.claim(spec, now, cost),
            (Self::Gcra(gcra), Spec::Gcra(spec)) => gcra.claim(spec, now, cost),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// Its attempt ended.
    pub(crate) fn end(&mut self, kind: LimitKind, now: Instant, cost: u32) {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.end(spec, now, cost),
            (Self::Gcra(_), Spec::Gcra(_)) => {}
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        match self {
            Self::Window(window) => window.refund(cost),
            Self::Gcra(gcra) => gcra.refund(cost),
        }
    }

    /// A lower bound for a request behind `ahead` others.
    pub(crate) fn earliest(&mut self, kind: LimitKind, now: Instant, ahead: u64, cost: u32) -> Ask {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.earliest(spec, now, ahead, cost),
            (Self::Gcra(gcra), Spec::Gcra(spec)) => gcra.earliest(spec, now, ahead, cost),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// A start at `at` cost `actual` instead of `cost`.
    pub(crate) fn settle(&mut self, kind: LimitKind, at: Instant, cost: u32, actual: u32) {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.settle(spec, at, cost, actual),
            (Self::Gcra(gcra), Spec::Gcra(spec)) => gcra.settle(spec, cost, actual),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// Counts what another state of the same limit knows and has outstanding, too.
    fn merge(&mut self, kind: LimitKind, now: Instant, other: &Self) {
        match (self, other) {
            (Self::Window(window), Self::Window(other)) => window.merge(other),
            (Self::Gcra(gcra), Self::Gcra(other)) => gcra.merge(now, other),
            (Self::Window(_), Self::Gcra(_)) | (Self::Gcra(_), Self::Window(_)) => mismatch(kind),
        }
    }

    /// Takes over what other limits know of past starts.
    fn take_over<'a>(&mut self, kind: LimitKind, known: impl Iterator<Item = (LimitKind, &'a Self)>) {
        let mut longest = (Nanos::ZERO, Vec::new());
        let mut due = None;
        for (kind, state) in known {
            match (state, kind.into()) {
                (Self::Window(window), Spec::Window(spec)) if spec.period > longest.0 => {
                    longest = (spec.period, window.starts());
                }
                (Self::Gcra(gcra), Spec::Gcra(_)) => due = due.max(gcra.due()),
                (Self::Window(_) | Self::Gcra(_), Spec::Window(_) | Spec::Gcra(_)) => {}
            }
        }
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.remember(spec, &longest.1),
            (Self::Gcra(gcra), Spec::Gcra(spec)) => gcra.remember(spec, due, &longest.1),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(crate) fn free_at(&self, kind: LimitKind) -> Option<Instant> {
        match (self, kind.into()) {
            (Self::Window(window), Spec::Window(spec)) => window.free_at(spec),
            (Self::Gcra(gcra), Spec::Gcra(_)) => gcra.free_at(),
            (Self::Window(_), Spec::Gcra(_)) | (Self::Gcra(_), Spec::Window(_)) => mismatch(kind),
        }
    }
}

fn mismatch(kind: LimitKind) -> ! {
    unreachable!("a limit's state was made for another kind than {kind:?}")
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

    /// Applies `change` to every limit with what it takes of `costs`, if anything.
    pub(crate) fn for_all(
        &mut self,
        specs: &[LimitSpec],
        costs: Costs<'_>,
        mut change: impl FnMut(LimitKind, &mut LimitState, u32),
    ) {
        for (spec, state) in specs.iter().zip(self.as_mut_slice()) {
            let cost = costs.of(spec.charge);
            if cost > 0 {
                change(spec.kind, state, cost);
            }
        }
    }

    /// Applies `change` to the limits that `refs` name with what they take of `costs`, if anything.
    pub(crate) fn for_refs(
        &mut self,
        specs: &[LimitSpec],
        refs: &[LimitRef],
        costs: Costs<'_>,
        mut change: impl FnMut(LimitKind, &mut LimitState, u32),
    ) {
        let states = self.as_mut_slice();
        for bound in refs {
            let spec = &specs[bound.limit];
            let cost = costs.of(spec.charge);
            if cost > 0 {
                change(spec.kind, &mut states[bound.limit], cost);
            }
        }
    }

    /// Asks every limit whether `costs` fit now.
    pub(crate) fn ask_all(&mut self, specs: &[LimitSpec], now: Instant, costs: Costs<'_>) -> Ask {
        let mut all = Ask::Room;
        self.for_all(specs, costs, |kind, state, cost| all = all.and(state.ask(kind, now, cost, 0)));
        all
    }

    /// Asks the limits that `refs` name whether `costs` fit now, with what each leaves to others left over unless that
    /// is waived.
    pub(crate) fn ask_refs(
        &mut self,
        specs: &[LimitSpec],
        refs: &[LimitRef],
        now: Instant,
        costs: Costs<'_>,
        waived: bool,
    ) -> Ask {
        let states = self.as_mut_slice();
        refs.iter().fold(Ask::Room, |all, bound| {
            let spec = &specs[bound.limit];
            let reserve = if waived { 0 } else { bound.reserve };
            match costs.of(spec.charge) {
                0 => all,
                cost => all.and(states[bound.limit].ask(spec.kind, now, cost, reserve)),
            }
        })
    }

    /// Goes over to other numbers; nothing is outstanding afterwards. What is known of past starts counts on: the starts
    /// of the longest window, and what spacing and buckets are owed.
    pub(crate) fn change_to(&mut self, old: &[LimitSpec], new: &[LimitSpec]) {
        let before = std::mem::replace(self, Self::new(new));
        for (spec, state) in new.iter().zip(self.as_mut_slice()) {
            let alike = old.iter().zip(before.as_slice()).filter(|(old, _)| old.charge == spec.charge);
            state.take_over(spec.kind, alike.map(|(old, state)| (old.kind, state)));
        }
    }

    /// Counts what other states of the same limits know and have outstanding, too.
    pub(crate) fn merge(&mut self, specs: &[LimitSpec], now: Instant, other: &Self) {
        for ((spec, state), other) in specs.iter().zip(self.as_mut_slice()).zip(other.as_slice()) {
            state.merge(spec.kind, now, other);
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

    /// The later of two clocks.
    pub(crate) fn later(self, other: Self) -> Self {
        Self { due: self.due.max(other.due) }
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
        LimitKind::Spaced { largest, .. } => largest,
        LimitKind::Bucket { burst, .. } => burst,
    }
}

/// Whether a limit lets go only when attempts end.
pub(crate) const fn counts_from_end(kind: LimitKind) -> bool {
    match kind {
        LimitKind::Window { anchor, .. } => matches!(anchor, Anchor::End),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => false,
    }
}
