//! Limits: what enforces a quota somewhere. A closed set of kinds; a grant asks all of a request's limits first and
//! takes from all of them only when every one has room.

mod brief;
mod calendar;
mod full;
mod observed;
mod pace;
mod past;
mod smooth;
mod spec;
mod state;
mod window;

use self::full::Full;
use self::observed::Observed;
use super::cost::Costs;
use super::plan::{Kept, LimitKind, LimitRef, LimitSpec};
use super::time::{Instant, Nanos};

pub(crate) use self::calendar::Days;
pub(crate) use self::observed::{LONGEST, Word};
pub(crate) use self::pace::PaceClock;
pub use self::past::Past;
pub(crate) use self::spec::{Spec, capacity, counts_from_end, period};
pub(crate) use self::state::LimitState;
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

/// Asks one limit, or what there is of it for one machine alone.
fn ask(spec: &LimitSpec, state: &mut LimitState, days: &Days, now: Instant, cost: u32, reserve: u32) -> Ask {
    let kind = match spec.kept {
        Kept::Here => spec.kind,
        Kept::InStore { alone } => match days.alone.part(spec.kind, alone, now) {
            Part::Of(kind) if cost <= capacity(kind) => kind,
            // What is too large for a part waits for the whole.
            Part::Of(_) | Part::Nothing => return Ask::Busy,
            Part::NotBefore(at) => return Ask::At(at),
        },
    };
    state.ask(Spec::new(kind, days), now, cost, reserve)
}

/// Whether a machine goes by its part of the limits that a store keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It does not.
    #[default]
    No,
    /// It does since then.
    Since(Instant),
    /// The store is back since then: for a while it does not know yet what others started of their parts.
    Until(Instant),
}

/// What there is of a limit for one machine.
enum Part {
    Of(LimitKind),
    Nothing,
    NotBefore(Instant),
}

impl Alone {
    /// How long there is a part of each limit when the store is back: by then all have told it what they started. Of a limit
    /// with a longer period than this there is a part at once when the store is lost.
    pub(super) const PATIENCE: Nanos = Nanos::from_secs(2);

    fn part(self, whole: LimitKind, part: Option<LimitKind>, now: Instant) -> Part {
        let period = period(whole);
        match self {
            Self::No => Part::Of(whole),
            // What others started just before is over then.
            Self::Since(lost) if period <= Self::PATIENCE && lost.saturating_add(period) > now => {
                Part::NotBefore(lost.saturating_add(period))
            }
            Self::Until(back) if back.saturating_add(Self::PATIENCE) <= now => Part::Of(whole),
            Self::Since(_) | Self::Until(_) => part.map_or(Part::Nothing, Part::Of),
        }
    }
}

/// The states of a handful of limits: a single one in place.
#[derive(Debug)]
pub(crate) enum LimitStates {
    None,
    One(LimitState),
    Two(Box<[LimitState; 2]>),
    /// Behind a thin pointer: one that knows how many they are would be as large as two words.
    Many(Box<Box<[LimitState]>>),
}

impl LimitStates {
    pub(crate) fn new(specs: &[LimitSpec]) -> Self {
        match specs {
            [] => Self::None,
            [only] => Self::One(LimitState::new(only.kind)),
            [one, other] => Self::Two(Box::new([one, other].map(|spec| LimitState::new(spec.kind)))),
            more => Self::Many(Box::new(more.iter().map(|spec| LimitState::new(spec.kind)).collect())),
        }
    }

    pub(crate) fn as_slice(&self) -> &[LimitState] {
        match self {
            Self::None => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::Two(both) => &**both,
            Self::Many(all) => all,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [LimitState] {
        match self {
            Self::None => &mut [],
            Self::One(only) => std::slice::from_mut(only),
            Self::Two(both) => &mut **both,
            Self::Many(all) => all,
        }
    }

    fn into_full(self) -> Vec<Full> {
        match self {
            Self::None => Vec::new(),
            Self::One(only) => vec![only.into_full()],
            Self::Two(both) => both.into_iter().map(LimitState::into_full).collect(),
            Self::Many(all) => all.into_iter().map(LimitState::into_full).collect(),
        }
    }

    /// Applies `change` to every limit with what it takes of `costs`, if anything.
    #[inline]
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
    #[inline]
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
        let states = self.as_mut_slice().iter_mut();
        specs.iter().zip(states).fold(Ask::Room, |all, (spec, state)| match costs.of(spec.charge) {
            0 => all,
            cost => all.and(ask(spec, state, days, now, cost, 0)),
        })
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
                cost => all.and(ask(spec, &mut states[bound.limit], days, now, cost, reserve)),
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
        let mut before = std::mem::replace(self, Self::new(new)).into_full();
        for (spec, state) in new.iter().zip(self.as_mut_slice()) {
            let alike = old.iter().zip(&before).filter(|(old, _)| old.charge == spec.charge);
            let known = alike.map(|(old, state)| (Spec::new(old.kind, old_days), state));
            state.take_over(now, Spec::new(spec.kind, days), known);
        }
        // What the server said goes to the limit in the same place.
        let mut told: Vec<(usize, &LimitSpec, Box<Observed>)> = Vec::new();
        for (place, (spec, state)) in old.iter().zip(&mut before).enumerate() {
            told.extend(state.observed.take().map(|observed| (place, spec, observed)));
        }
        for (place, (spec, state)) in new.iter().zip(self.as_mut_slice()).enumerate() {
            let alike =
                told.iter().enumerate().filter(|(_, (_, of, _))| of.origin == spec.origin && of.charge == spec.charge);
            let same = alike.min_by_key(|(_, (was, of, _))| (**of != *spec, *was != place)).map(|(found, _)| found);
            state.set_observed(same.map(|found| told.remove(found).2));
        }
    }

    /// Forgets what the server said of them.
    pub(crate) fn forget_told(&mut self) {
        for state in self.as_mut_slice() {
            state.set_observed(None);
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
