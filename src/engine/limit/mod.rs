//! Limits: what enforces a quota somewhere. A closed set of kinds; a grant asks all of a request's limits first and
//! takes from all of them only when every one has room.

mod calendar;
mod observed;
mod pace;
mod past;
mod smooth;
mod spec;
mod window;

use self::calendar::Calendar;
use self::observed::Observed;
use self::smooth::Gcra;
use super::cost::Costs;
use super::plan::{LimitKind, LimitRef, LimitSpec};
use super::time::{Instant, Nanos};

pub(crate) use self::calendar::Days;
pub(crate) use self::observed::Word;
pub(crate) use self::pace::PaceClock;
pub use self::past::Past;
pub(crate) use self::spec::{Spec, capacity, counts_from_end, period};
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

    /// The answer of two limits of which one is enough: the one that makes wait less.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
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
pub(crate) struct LimitState {
    kind: Kind,
    /// What is granted or runs, and has no response yet.
    awaited: u64,
    /// What the server says of it, once it says something.
    observed: Option<Box<Observed>>,
}

#[derive(Debug)]
enum Kind {
    Window(Window),
    Gcra(Gcra),
    /// In a box: it is the largest and the rarest.
    Calendar(Box<Calendar>),
}

impl LimitState {
    fn new(kind: LimitKind) -> Self {
        let kind = match kind {
            LimitKind::Window { .. } => Kind::Window(Window::default()),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => Kind::Gcra(Gcra::default()),
            LimitKind::Calendar { .. } => Kind::Calendar(Box::default()),
        };
        Self { kind, awaited: 0, observed: None }
    }

    /// The window that it is, if it is one of which no server ever said anything.
    pub(crate) const fn as_window(&mut self) -> Option<&mut Window> {
        match (&mut self.kind, &self.observed) {
            (Kind::Window(window), None) => Some(window),
            (Kind::Window(_), Some(_)) | (Kind::Gcra(_) | Kind::Calendar(_), _) => None,
        }
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(crate) fn ask(&mut self, spec: Spec<'_>, now: Instant, cost: u32, reserve: u32) -> Ask {
        let local = match &mut self.kind {
            Kind::Window(window) => window.ask(spec.window(), now, cost, reserve),
            Kind::Gcra(gcra) => gcra.ask(spec.gcra(), now, cost),
            Kind::Calendar(calendar) => calendar.ask(spec.calendar(), cost),
        };
        match &mut self.observed {
            None => local,
            Some(observed) => local.and(observed.ask(now, self.awaited, cost, reserve)),
        }
    }

    /// A request is granted.
    pub(crate) fn grant(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.awaited += u64::from(cost);
        match &mut self.kind {
            Kind::Window(window) => window.grant(spec.window(), now, cost),
            Kind::Gcra(gcra) => gcra.grant(cost),
            Kind::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(crate) fn owe(&mut self, cost: u32) {
        match &mut self.kind {
            Kind::Window(window) => window.owe(cost),
            Kind::Gcra(gcra) => gcra.grant(cost),
            Kind::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// A request is granted or runs, and has no response yet.
    pub(crate) const fn expect(&mut self, cost: u32) {
        self.awaited += cost as u64;
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match &mut self.kind {
            Kind::Window(window) => window.claim(spec.window(), now, cost),
            Kind::Gcra(gcra) => gcra.claim(spec.gcra(), now, cost),
            Kind::Calendar(calendar) => calendar.claim(spec.calendar(), now, cost),
        }
    }

    /// A request for which there was room a moment ago is granted and begins in one.
    pub(crate) fn start(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        if let Kind::Window(window) = &mut self.kind {
            self.awaited += u64::from(cost);
            window.start(spec.window(), now, cost);
        } else {
            self.grant(spec, now, cost);
            self.claim(spec, now, cost);
        }
    }

    /// Its attempt ended. `is_read`: its response was read before.
    pub(crate) fn end(&mut self, spec: Spec<'_>, now: Instant, cost: u32, is_read: bool) {
        match &mut self.kind {
            Kind::Window(window) => window.end(spec.window(), now, cost),
            Kind::Gcra(_) | Kind::Calendar(_) => {}
        }
        if !is_read {
            self.read(now, cost, 0);
        }
    }

    /// The response to an attempt that runs was read, and told of these windows.
    pub(crate) fn read(&mut self, now: Instant, cost: u32, told: u16) {
        self.awaited -= u64::from(cost);
        if let Some(observed) = &mut self.observed {
            observed.end(now, cost, told, self.awaited == 0);
        }
    }

    /// Takes in what a response said of one of the server's windows. Returns the window as a bit.
    pub(crate) fn observe(&mut self, word: Word<'_>) -> u16 {
        self.observed.get_or_insert_default().take(word)
    }

    /// How many the server leaves beside what is under way, if it said so.
    pub(crate) fn left_at_server(&mut self, now: Instant) -> Option<u32> {
        self.observed.as_mut()?.left_beside(now, self.awaited)
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        self.awaited -= u64::from(cost);
        match &mut self.kind {
            Kind::Window(window) => window.refund(cost),
            Kind::Gcra(gcra) => gcra.refund(cost),
            Kind::Calendar(calendar) => calendar.refund(cost),
        }
    }

    /// A lower bound for a request behind `ahead` others.
    pub(crate) fn earliest(&mut self, spec: Spec<'_>, now: Instant, ahead: u64, cost: u32) -> Ask {
        let local = match &mut self.kind {
            Kind::Window(window) => window.earliest(spec.window(), now, ahead, cost),
            Kind::Gcra(gcra) => gcra.earliest(spec.gcra(), now, ahead, cost),
            Kind::Calendar(calendar) => calendar.earliest(spec.calendar(), ahead, cost),
        };
        match &mut self.observed {
            None => local,
            Some(observed) => local.and(observed.earliest(now, self.awaited, ahead, cost)),
        }
    }

    /// A start at `at` cost `actual` instead of `cost`. `is_read`: its response was read before.
    pub(crate) fn settle(&mut self, spec: Spec<'_>, at: Instant, cost: u32, actual: u32, is_read: bool) {
        if !is_read {
            self.awaited = self.awaited - u64::from(cost) + u64::from(actual);
        }
        match &mut self.kind {
            Kind::Window(window) => window.settle(spec.window(), at, cost, actual),
            Kind::Gcra(gcra) => gcra.settle(spec.gcra(), at, cost, actual),
            Kind::Calendar(calendar) => calendar.settle(spec.calendar(), at, cost, actual),
        }
    }

    /// Counts what another state of the same limit knows and has outstanding, too.
    fn merge(&mut self, now: Instant, other: &Self) {
        self.awaited += other.awaited;
        if let Some(observed) = &other.observed {
            self.observed.get_or_insert_default().merge(observed);
        }
        match (&mut self.kind, &other.kind) {
            (Kind::Window(window), Kind::Window(other)) => window.merge(other),
            (Kind::Gcra(gcra), Kind::Gcra(other)) => gcra.merge(now, other),
            (Kind::Calendar(calendar), Kind::Calendar(other)) => calendar.merge(other),
            (Kind::Window(_) | Kind::Gcra(_) | Kind::Calendar(_), _) => unreachable!("two states of one limit differ"),
        }
    }

    /// Takes over what other limits know of past starts.
    fn take_over<'a>(&mut self, now: Instant, spec: Spec<'_>, known: impl Iterator<Item = (Spec<'a>, &'a Self)>) {
        let mut longest = (Nanos::ZERO, Vec::new());
        let mut due = None;
        for (was, state) in known {
            let (period, starts) = match &state.kind {
                Kind::Window(window) => (was.window().period, window.starts()),
                Kind::Calendar(calendar) => (Nanos::from_secs(86_400), calendar.starts(was.calendar())),
                Kind::Gcra(gcra) => {
                    due = due.max(gcra.due_under(was.gcra(), spec, now));
                    continue;
                }
            };
            if period > longest.0 {
                longest = (period, starts);
            }
        }
        match &mut self.kind {
            Kind::Window(window) => window.remember(spec.window(), &longest.1),
            Kind::Gcra(gcra) => gcra.remember(spec.gcra(), due, &longest.1),
            Kind::Calendar(calendar) => calendar.remember(spec.calendar(), &longest.1),
        }
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(crate) fn free_at(&self, spec: Spec<'_>) -> Option<Instant> {
        let local = match &self.kind {
            Kind::Window(window) => window.free_at(spec.window()),
            Kind::Gcra(gcra) => gcra.free_at(),
            Kind::Calendar(calendar) => calendar.free_at(spec.calendar()),
        };
        let observed = self.observed.as_ref().map_or(Instant::ZERO, |observed| observed.free_at());
        local.map(|local| local.max(observed))
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
    pub(crate) fn change_to(
        &mut self,
        now: Instant,
        (old, old_days): (&[LimitSpec], &Days),
        (new, days): (&[LimitSpec], &Days),
    ) {
        let mut before = std::mem::replace(self, Self::new(new));
        for (spec, state) in new.iter().zip(self.as_mut_slice()) {
            let alike = old.iter().zip(before.as_slice()).filter(|(old, _)| old.charge == spec.charge);
            let known = alike.map(|(old, state)| (Spec::new(old.kind, old_days), state));
            state.take_over(now, Spec::new(spec.kind, days), known);
        }
        // What the server said goes to the limit in the same place.
        let mut told: Vec<(usize, &LimitSpec, Box<Observed>)> = Vec::new();
        for (place, (spec, state)) in old.iter().zip(before.as_mut_slice()).enumerate() {
            told.extend(state.observed.take().map(|observed| (place, spec, observed)));
        }
        for (place, (spec, state)) in new.iter().zip(self.as_mut_slice()).enumerate() {
            let alike =
                told.iter().enumerate().filter(|(_, (_, of, _))| of.origin == spec.origin && of.charge == spec.charge);
            let same = alike.min_by_key(|(_, (was, of, _))| (**of != *spec, *was != place)).map(|(found, _)| found);
            state.observed = same.map(|found| told.remove(found).2);
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
