//! Limits: what enforces a quota somewhere. A closed set of kinds; a grant asks all of a request's limits first and
//! takes from all of them only when every one has room.

mod calendar;
mod pace;
mod past;
mod smooth;
mod spec;
mod window;

use self::calendar::Calendar;
use self::smooth::Gcra;
use super::cost::Costs;
use super::plan::{LimitKind, LimitRef, LimitSpec};
use super::time::{Instant, Nanos};

pub(crate) use self::calendar::Days;
pub(crate) use self::pace::PaceClock;
pub use self::past::Past;
pub(crate) use self::spec::{Spec, capacity, counts_from_end};
pub(crate) use self::window::{Spec as WindowSpec, Window};

/// A limit's answer to "does this fit now?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Yes.
    Room,
    /// At this instant, if nothing else comes first.
    At(Instant),
    /// Not before this instant, and not before what was granted is claimed or given back.
    Unclaimed(Instant),
    /// When a running attempt ends, or what was granted is claimed or given back.
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

/// The state of one limit. It is always asked with the numbers of the kind that it was made for.
#[derive(Debug)]
pub(crate) enum LimitState {
    Window(Window),
    Gcra(Gcra),
    /// In a box: it is the largest and the rarest.
    Calendar(Box<Calendar>),
}

impl LimitState {
    fn new(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Window { .. } => Self::Window(Window::default()),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => Self::Gcra(Gcra::default()),
            LimitKind::Calendar { .. } => Self::Calendar(Box::default()),
        }
    }

    /// The window that it is, if it is one.
    pub(crate) const fn as_window(&mut self) -> Option<&mut Window> {
        match self {
            Self::Window(window) => Some(window),
            Self::Gcra(_) | Self::Calendar(_) => None,
        }
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(crate) fn ask(&mut self, spec: Spec<'_>, now: Instant, cost: u32, reserve: u32) -> Ask {
        match self {
            Self::Window(window) => window.ask(spec.window(), now, cost, reserve),
            Self::Gcra(gcra) => gcra.ask(spec.gcra(), now, cost),
            Self::Calendar(calendar) => calendar.ask(spec.calendar(), cost),
        }
    }

    /// A request is granted.
    pub(crate) fn grant(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.grant(spec.window(), now, cost),
            Self::Gcra(gcra) => gcra.grant(cost),
            Self::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(crate) fn owe(&mut self, cost: u32) {
        match self {
            Self::Window(window) => window.owe(cost),
            Self::Gcra(gcra) => gcra.grant(cost),
            Self::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.claim(spec.window(), now, cost),
            Self::Gcra(gcra) => gcra.claim(spec.gcra(), now, cost),
            Self::Calendar(calendar) => calendar.claim(spec.calendar(), now, cost),
        }
    }

    /// A request for which there was room a moment ago is granted and begins in one.
    pub(crate) fn start(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.start(spec.window(), now, cost),
            Self::Gcra(_) | Self::Calendar(_) => {
                self.grant(spec, now, cost);
                self.claim(spec, now, cost);
            }
        }
    }

    /// Its attempt ended.
    pub(crate) fn end(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match self {
            Self::Window(window) => window.end(spec.window(), now, cost),
            Self::Gcra(_) | Self::Calendar(_) => {}
        }
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        match self {
            Self::Window(window) => window.refund(cost),
            Self::Gcra(gcra) => gcra.refund(cost),
            Self::Calendar(calendar) => calendar.refund(cost),
        }
    }

    /// A lower bound for a request behind `ahead` others.
    pub(crate) fn earliest(&mut self, spec: Spec<'_>, now: Instant, ahead: u64, cost: u32) -> Ask {
        match self {
            Self::Window(window) => window.earliest(spec.window(), now, ahead, cost),
            Self::Gcra(gcra) => gcra.earliest(spec.gcra(), now, ahead, cost),
            Self::Calendar(calendar) => calendar.earliest(spec.calendar(), ahead, cost),
        }
    }

    /// A start at `at` cost `actual` instead of `cost`.
    pub(crate) fn settle(&mut self, spec: Spec<'_>, at: Instant, cost: u32, actual: u32) {
        match self {
            Self::Window(window) => window.settle(spec.window(), at, cost, actual),
            Self::Gcra(gcra) => gcra.settle(spec.gcra(), cost, actual),
            Self::Calendar(calendar) => calendar.settle(spec.calendar(), at, cost, actual),
        }
    }

    /// Counts what another state of the same limit knows and has outstanding, too.
    fn merge(&mut self, now: Instant, other: &Self) {
        match (self, other) {
            (Self::Window(window), Self::Window(other)) => window.merge(other),
            (Self::Gcra(gcra), Self::Gcra(other)) => gcra.merge(now, other),
            (Self::Calendar(calendar), Self::Calendar(other)) => calendar.merge(other),
            (Self::Window(_) | Self::Gcra(_) | Self::Calendar(_), _) => unreachable!("two states of one limit differ"),
        }
    }

    /// Takes over what other limits know of past starts.
    fn take_over<'a>(&mut self, spec: Spec<'_>, known: impl Iterator<Item = (Spec<'a>, &'a Self)>) {
        let mut longest = (Nanos::ZERO, Vec::new());
        let mut due = None;
        for (spec, state) in known {
            let (period, starts) = match state {
                Self::Window(window) => (spec.window().period, window.starts()),
                Self::Calendar(calendar) => (Nanos::from_secs(86_400), calendar.starts(spec.calendar())),
                Self::Gcra(gcra) => {
                    due = due.max(gcra.due());
                    continue;
                }
            };
            if period > longest.0 {
                longest = (period, starts);
            }
        }
        match self {
            Self::Window(window) => window.remember(spec.window(), &longest.1),
            Self::Gcra(gcra) => gcra.remember(spec.gcra(), due, &longest.1),
            Self::Calendar(calendar) => calendar.remember(spec.calendar(), &longest.1),
        }
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(crate) fn free_at(&self, spec: Spec<'_>) -> Option<Instant> {
        match self {
            Self::Window(window) => window.free_at(spec.window()),
            Self::Gcra(gcra) => gcra.free_at(),
            Self::Calendar(calendar) => calendar.free_at(spec.calendar()),
        }
    }
}

/// The states of a handful of limits: a single one in place.
#[derive(Debug)]
pub(crate) enum LimitStates {
    None,
    One(LimitState),
    Many(Box<[LimitState]>),
}

impl LimitStates {
    pub(crate) fn new(specs: &[LimitSpec]) -> Self {
        match specs {
            [] => Self::None,
            [only] => Self::One(LimitState::new(only.kind)),
            more => Self::Many(more.iter().map(|spec| LimitState::new(spec.kind)).collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[LimitState] {
        match self {
            Self::None => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::Many(all) => all,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [LimitState] {
        match self {
            Self::None => &mut [],
            Self::One(only) => std::slice::from_mut(only),
            Self::Many(all) => all,
        }
    }

    /// Applies `change` to every limit with what it takes of `costs`, if anything.
    pub(crate) fn for_all(
        &mut self,
        specs: &[LimitSpec],
        days: &Days,
        costs: Costs<'_>,
        mut change: impl FnMut(Spec<'_>, &mut LimitState, u32),
    ) {
        for (spec, state) in specs.iter().zip(self.as_mut_slice()) {
            let cost = costs.of(spec.charge);
            if cost > 0 {
                change(Spec::new(spec.kind, days), state, cost);
            }
        }
    }

    /// Applies `change` to the limits that `refs` name with what they take of `costs`, if anything.
    pub(crate) fn for_refs(
        &mut self,
        specs: &[LimitSpec],
        refs: &[LimitRef],
        days: &Days,
        costs: Costs<'_>,
        mut change: impl FnMut(Spec<'_>, &mut LimitState, u32),
    ) {
        let states = self.as_mut_slice();
        for bound in refs {
            let spec = &specs[bound.limit];
            let cost = costs.of(spec.charge);
            if cost > 0 {
                change(Spec::new(spec.kind, days), &mut states[bound.limit], cost);
            }
        }
    }

    /// Asks every limit whether `costs` fit now.
    pub(crate) fn ask_all(&mut self, specs: &[LimitSpec], days: &Days, now: Instant, costs: Costs<'_>) -> Ask {
        let mut all = Ask::Room;
        self.for_all(specs, days, costs, |spec, state, cost| all = all.and(state.ask(spec, now, cost, 0)));
        all
    }

    /// Asks the limits that `refs` name whether `costs` fit now, with what each leaves to others left over unless that
    /// is waived.
    pub(crate) fn ask_refs(
        &mut self,
        specs: &[LimitSpec],
        refs: &[LimitRef],
        days: &Days,
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
                cost => all.and(states[bound.limit].ask(Spec::new(spec.kind, days), now, cost, reserve)),
            }
        })
    }

    /// Goes over to other numbers; nothing is outstanding afterwards. What is known of past starts counts on: the starts
    /// of the longest window, and what spacing and buckets are owed.
    pub(crate) fn change_to(&mut self, (old, old_days): (&[LimitSpec], &Days), (new, days): (&[LimitSpec], &Days)) {
        let before = std::mem::replace(self, Self::new(new));
        for (spec, state) in new.iter().zip(self.as_mut_slice()) {
            let alike = old.iter().zip(before.as_slice()).filter(|(old, _)| old.charge == spec.charge);
            let known = alike.map(|(old, state)| (Spec::new(old.kind, old_days), state));
            state.take_over(Spec::new(spec.kind, days), known);
        }
    }

    /// Counts what other states of the same limits know and have outstanding, too.
    pub(crate) fn merge(&mut self, now: Instant, other: &Self) {
        for (state, other) in self.as_mut_slice().iter_mut().zip(other.as_slice()) {
            state.merge(now, other);
        }
    }

    /// When nothing is left of any of them; `None` while something is outstanding.
    pub(crate) fn free_at(&self, specs: &[LimitSpec], days: &Days) -> Option<Instant> {
        let mut latest = Instant::ZERO;
        for (spec, state) in specs.iter().zip(self.as_slice()) {
            latest = latest.max(state.free_at(Spec::new(spec.kind, days))?);
        }
        Some(latest)
    }
}
