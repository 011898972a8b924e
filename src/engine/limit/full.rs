//! All that there may be to the state of a limit: its own count, what runs, and what a server said.

use super::calendar::Calendar;
use super::observed::{Observed, Told, Word};
use super::smooth::Gcra;
use super::window::{Spec as WindowSpec, Window};
use super::{Ask, Spec};
use crate::engine::plan::LimitKind;
use crate::engine::time::{Instant, Nanos};

/// All that there may be to the state of a limit.
#[derive(Debug)]
pub(crate) struct Full {
    pub(super) kind: Kind,
    /// What is granted or runs, and has no response yet.
    pub(super) awaited: u64,
    /// What the server says of it, once it says something.
    pub(super) observed: Option<Box<Observed>>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Window(Window),
    Gcra(Gcra),
    /// In a box: it is the largest and the rarest.
    Calendar(Box<Calendar>),
}

impl Full {
    pub(super) fn new(kind: LimitKind) -> Self {
        let kind = match kind {
            LimitKind::Window { .. } => Kind::Window(Window::default()),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => Kind::Gcra(Gcra::default()),
            LimitKind::Calendar { .. } => Kind::Calendar(Box::default()),
        };
        Self { kind, awaited: 0, observed: None }
    }

    /// Whether a cost of one fits into a window now that may count `before` by then, with `reserve` left over at the
    /// server.
    #[inline]
    pub(super) fn has_room_for_one(&mut self, period: Nanos, now: Instant, before: u32, reserve: u32) -> bool {
        let Kind::Window(window) = &mut self.kind else { return false };
        window.counted(period, now) <= before.into()
            && self.observed.as_mut().is_none_or(|said| said.ask(now, self.awaited, 1, reserve) == Ask::Room)
    }

    /// Whether `cost` fits now, with `reserve` left over.
    pub(super) fn ask(&mut self, spec: Spec<'_>, now: Instant, cost: u32, reserve: u32) -> Ask {
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
    pub(super) fn grant(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.awaited += u64::from(cost);
        match &mut self.kind {
            Kind::Window(window) => window.grant(spec.window(), now, cost),
            Kind::Gcra(gcra) => gcra.grant(cost),
            Kind::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// A request is outstanding, whether there is room for it or not.
    pub(super) fn owe(&mut self, cost: u32) {
        match &mut self.kind {
            Kind::Window(window) => window.owe(cost),
            Kind::Gcra(gcra) => gcra.grant(cost),
            Kind::Calendar(calendar) => calendar.grant(cost),
        }
    }

    /// A request is granted or runs, and has no response yet.
    pub(super) const fn expect(&mut self, cost: u32) {
        self.awaited += cost as u64;
    }

    /// Its attempt begins.
    pub(super) fn claim(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        match &mut self.kind {
            Kind::Window(window) => window.claim(spec.window(), now, cost),
            Kind::Gcra(gcra) => gcra.claim(spec.gcra(), now, cost),
            Kind::Calendar(calendar) => calendar.claim(spec.calendar(), now, cost),
        }
    }

    /// A request for which there was room a moment ago is granted and begins in one.
    pub(super) fn start(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        if let Kind::Window(window) = &mut self.kind {
            self.awaited += u64::from(cost);
            window.start(spec.window(), now, cost);
        } else {
            self.grant(spec, now, cost);
            self.claim(spec, now, cost);
        }
    }

    /// A request is granted that takes one of a window. Returns false, and changes nothing, if it is none.
    #[inline]
    pub(super) fn grant_one(&mut self, spec: &WindowSpec, now: Instant) -> bool {
        let Kind::Window(window) = &mut self.kind else { return false };
        self.awaited += 1;
        window.grant(*spec, now, 1);
        true
    }

    /// Its attempt begins. Returns false, and changes nothing, if it is no window.
    #[inline]
    pub(super) fn claim_one(&mut self, spec: &WindowSpec, now: Instant) -> bool {
        let Kind::Window(window) = &mut self.kind else { return false };
        window.claim(*spec, now, 1);
        true
    }

    /// The same for a window and a cost of one. Returns false, and changes nothing, if it is none.
    #[inline]
    pub(super) fn start_one(&mut self, spec: &WindowSpec, now: Instant) -> bool {
        let Kind::Window(window) = &mut self.kind else { return false };
        self.awaited += 1;
        window.start(*spec, now, 1);
        true
    }

    /// An attempt of cost one ended that counted from its start. `is_read`: its response was read before.
    #[inline]
    pub(super) fn end_of_start(&mut self, now: Instant, is_read: bool) {
        if !is_read {
            self.read(now, 1, 0);
        }
    }

    /// Its attempt ended. `is_read`: its response was read before.
    pub(super) fn end(&mut self, spec: Spec<'_>, now: Instant, cost: u32, is_read: bool) {
        match &mut self.kind {
            Kind::Window(window) => window.end(spec.window(), now, cost),
            Kind::Gcra(_) | Kind::Calendar(_) => {}
        }
        if !is_read {
            self.read(now, cost, 0);
        }
    }

    /// The response to an attempt that runs was read, and told of these windows.
    #[inline]
    pub(super) fn read(&mut self, now: Instant, cost: u32, told: u16) {
        self.awaited -= u64::from(cost);
        if let Some(observed) = &mut self.observed {
            observed.end(now, cost, told, self.awaited == 0);
        }
    }

    /// Takes in what a response said of one of the server's windows. Returns the window as a bit.
    pub(super) fn observe(&mut self, word: Word<'_>) -> u16 {
        self.observed.get_or_insert_default().take(word)
    }

    /// How many the server leaves beside what is under way, if it said so.
    pub(super) fn left_at_server(&mut self, now: Instant) -> Option<u32> {
        self.observed.as_mut()?.left_beside(now, self.awaited)
    }

    /// What the server said that still counts.
    pub(super) fn told(&mut self, now: Instant) -> impl Iterator<Item = Told> {
        let busy = self.awaited;
        self.observed.iter_mut().flat_map(move |observed| observed.told(now, busy))
    }

    /// The starts that a window knows, oldest first; none of another kind.
    pub(super) fn starts(&self) -> Vec<(Instant, u32)> {
        match &self.kind {
            Kind::Window(window) => window.starts(),
            Kind::Gcra(_) | Kind::Calendar(_) => Vec::new(),
        }
    }

    /// When everything that started is paid for, of spacing and buckets.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Gcra(gcra) => gcra.due(),
            Kind::Window(_) | Kind::Calendar(_) => None,
        }
    }

    /// Its grant was not used.
    pub(super) fn refund(&mut self, cost: u32) {
        self.awaited -= u64::from(cost);
        match &mut self.kind {
            Kind::Window(window) => window.refund(cost),
            Kind::Gcra(gcra) => gcra.refund(cost),
            Kind::Calendar(calendar) => calendar.refund(cost),
        }
    }

    /// A lower bound for a request behind `ahead` others.
    pub(super) fn earliest(&mut self, spec: Spec<'_>, now: Instant, ahead: u64, cost: u32) -> Ask {
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
    pub(super) fn settle(&mut self, spec: Spec<'_>, at: Instant, cost: u32, actual: u32, is_read: bool) {
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
    pub(super) fn merge(&mut self, now: Instant, other: &Self) {
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
    pub(super) fn take_over<'a>(
        &mut self,
        now: Instant,
        spec: Spec<'_>,
        known: impl Iterator<Item = (Spec<'a>, &'a Self)>,
    ) {
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
    pub(super) fn free_at(&self, spec: Spec<'_>) -> Option<Instant> {
        let local = match &self.kind {
            Kind::Window(window) => window.free_at(spec.window()),
            Kind::Gcra(gcra) => gcra.free_at(),
            Kind::Calendar(calendar) => calendar.free_at(spec.calendar()),
        };
        let observed = self.observed.as_ref().map_or(Instant::ZERO, |observed| observed.free_at());
        local.map(|local| local.max(observed))
    }
}
