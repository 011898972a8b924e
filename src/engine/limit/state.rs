//! The state of one limit, in few bytes wherever that is possible.

use super::brief::Brief;
use super::full::Full;
use super::observed::{Observed, Word};
use super::past::Past;
use super::window::Spec as WindowSpec;
use super::{Ask, Days, Spec};
use crate::engine::plan::{Anchor, LimitKind};
use crate::engine::time::{Instant, Nanos};

/// The state of one limit. It is always asked with the numbers of the kind that it was made for.
#[derive(Debug)]
pub(crate) enum LimitState {
    Brief(Brief),
    Full(Box<Full>),
}

impl LimitState {
    pub(super) fn new(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Window { .. } => Self::Brief(Brief::EMPTY),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => {
                Self::Full(Box::new(Full::new(kind)))
            }
        }
    }

    /// Whether a cost of one fits into a window now that may count `before` by then, with `reserve` left over at the
    /// server.
    #[inline(always)]
    pub(crate) fn has_room_for_one(&mut self, period: Nanos, now: Instant, before: u32, reserve: u32) -> bool {
        match self {
            Self::Brief(brief) => brief.counted(period, now) <= before.into(),
            Self::Full(full) => full.has_room_for_one(period, now, before, reserve),
        }
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(crate) fn ask(&mut self, spec: Spec<'_>, now: Instant, cost: u32, reserve: u32) -> Ask {
        match self {
            Self::Brief(brief) => brief.ask(spec.window(), now, cost, reserve),
            Self::Full(full) => full.ask(spec, now, cost, reserve),
        }
    }

    /// A request is granted.
    pub(crate) fn grant(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.write(|brief| brief.grant(spec.window(), now, cost), |full| full.grant(spec, now, cost));
    }

    /// The same for a window and a cost of one.
    #[inline]
    pub(crate) fn grant_one(&mut self, spec: &WindowSpec, now: Instant) {
        let is_done = match self {
            Self::Brief(brief) => brief.grant(*spec, now, 1),
            Self::Full(full) => full.grant_one(spec, now),
        };
        if !is_done {
            self.grant(Spec::Window(*spec), now, 1);
        }
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(crate) fn owe(&mut self, cost: u32) {
        self.with(|full| full.owe(cost));
    }

    /// A request is granted or runs, and has no response yet.
    pub(crate) fn expect(&mut self, cost: u32) {
        self.with(|full| full.expect(cost));
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.write(|brief| brief.claim(spec.window(), now, cost), |full| full.claim(spec, now, cost));
    }

    /// The same for a window and a cost of one.
    #[inline]
    pub(crate) fn claim_one(&mut self, spec: &WindowSpec, now: Instant) {
        let is_done = match self {
            Self::Brief(brief) => brief.claim(*spec, now, 1),
            Self::Full(full) => full.claim_one(spec, now),
        };
        if !is_done {
            self.claim(Spec::Window(*spec), now, 1);
        }
    }

    /// A request for which there was room a moment ago is granted and begins in one.
    pub(crate) fn start(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.with(|full| full.start(spec, now, cost));
    }

    /// The same for a window and a cost of one.
    #[inline(always)]
    pub(crate) fn start_one(&mut self, spec: &WindowSpec, now: Instant) {
        let is_done = match self {
            Self::Brief(brief) => brief.start(*spec, now),
            Self::Full(full) => full.start_one(spec, now),
        };
        if !is_done {
            self.start(Spec::Window(*spec), now, 1);
        }
    }

    /// Its attempt ended. `is_read`: its response was read before.
    pub(crate) fn end(&mut self, spec: Spec<'_>, now: Instant, cost: u32, is_read: bool) {
        self.with(|full| full.end(spec, now, cost, is_read));
    }

    /// The same for a window and a cost of one.
    #[inline(always)]
    pub(crate) fn end_one(&mut self, spec: &WindowSpec, now: Instant, is_read: bool) {
        match (self, spec.anchor) {
            (Self::Brief(brief), Anchor::Start) => brief.end(is_read),
            (Self::Full(full), Anchor::Start) => full.end_of_start(now, is_read),
            (state, Anchor::End) => state.end(Spec::Window(*spec), now, 1, is_read),
        }
    }

    /// The response to an attempt that runs was read, and told of these windows.
    pub(crate) fn read(&mut self, now: Instant, cost: u32, told: u16) {
        match self {
            // Where no server ever said anything there is nothing to lay it over.
            Self::Brief(brief) => brief.read(cost),
            Self::Full(full) => full.read(now, cost, told),
        }
    }

    /// Takes in what a response said of one of the server's windows. Returns the window as a bit.
    pub(crate) fn observe(&mut self, word: Word<'_>) -> u16 {
        self.with(|full| full.observe(word))
    }

    /// How many the server leaves beside what is under way, if it said so.
    pub(crate) fn left_at_server(&mut self, now: Instant) -> Option<u32> {
        self.with(|full| full.left_at_server(now))
    }

    /// Its grant was not used.
    pub(crate) fn refund(&mut self, cost: u32) {
        self.with(|full| full.refund(cost));
    }

    /// A lower bound for a request behind `ahead` others.
    pub(crate) fn earliest(&mut self, spec: Spec<'_>, now: Instant, ahead: u64, cost: u32) -> Ask {
        self.with(|full| full.earliest(spec, now, ahead, cost))
    }

    /// A start at `at` cost `actual` instead of `cost`. `is_read`: its response was read before.
    pub(crate) fn settle(&mut self, spec: Spec<'_>, at: Instant, cost: u32, actual: u32, is_read: bool) {
        self.with(|full| full.settle(spec, at, cost, actual, is_read));
    }

    /// Counts what another state of the same limit knows and has outstanding, too.
    pub(super) fn merge(&mut self, now: Instant, other: &Self) {
        self.with(|full| other.look(|other| full.merge(now, other)));
    }

    /// Takes over what other limits know of past starts, and what a server said of one.
    pub(super) fn take_over<'a>(
        &mut self,
        now: Instant,
        spec: Spec<'_>,
        known: impl Iterator<Item = (Spec<'a>, &'a Full)>,
    ) {
        self.with(|full| full.take_over(now, spec, known));
    }

    pub(super) fn set_observed(&mut self, observed: Option<Box<Observed>>) {
        self.with(|full| full.observed = observed);
    }

    /// What is worth keeping of the limit: starts that count for more than a minute, and what the server said of its
    /// windows that counts for as long, or says that nothing is left.
    pub(crate) fn pasts(&mut self, kind: LimitKind, days: &Days, now: Instant) -> impl Iterator<Item = Past> + use<> {
        self.with(|full| full.pasts(kind, days, now))
    }

    /// Counts what other limits in the same place knew, beside what it knows itself: those with the same numbers if there
    /// are any, else the one that remembers longest.
    pub(crate) fn recall(&mut self, spec: Spec<'_>, now: Instant, max_hold: Nanos, pasts: &[&Past]) {
        self.with(|full| full.recall(spec, now, max_hold, pasts));
    }

    /// The starts that a window knows, oldest first; none of another kind.
    pub(crate) fn starts(&self) -> Vec<(Instant, u32)> {
        self.look(Full::starts)
    }

    /// When everything that started is paid for, of spacing and buckets.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.look(Full::due)
    }

    /// When nothing is left of it; `None` while something is outstanding.
    pub(crate) fn free_at(&self, spec: Spec<'_>) -> Option<Instant> {
        match self {
            Self::Brief(brief) => brief.free_at(spec.window().period),
            Self::Full(full) => full.free_at(spec),
        }
    }

    pub(super) fn into_full(self) -> Full {
        match self {
            Self::Brief(brief) => brief.open(),
            Self::Full(full) => *full,
        }
    }

    /// Writes something down in brief, or in full where `brief` finds no way to.
    #[inline(always)]
    fn write(&mut self, brief: impl FnOnce(&mut Brief) -> bool, full: impl FnOnce(&mut Full)) {
        let is_done = match self {
            Self::Brief(state) => brief(state),
            Self::Full(_) => false,
        };
        if !is_done {
            self.with(full);
        }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Full) -> R) -> R {
        match self {
            Self::Full(full) => call(full),
            Self::Brief(brief) => {
                let mut full = brief.open();
                let result = call(&mut full);
                // Once it was full it stays so: such a key comes again.
                *self = Brief::of(&full).map_or_else(|| Self::Full(Box::new(full)), Self::Brief);
                result
            }
        }
    }

    fn look<R>(&self, call: impl FnOnce(&Full) -> R) -> R {
        match self {
            Self::Full(full) => call(full),
            Self::Brief(brief) => call(&brief.open()),
        }
    }
}
