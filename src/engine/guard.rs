//! The guard before a ban: a server that counts invalid attempts shuts out whoever makes too many. Nothing starts while
//! so many of them ended of late that the next ones could be the last.

use super::limit::{Ask, Window, WindowSpec};
use super::observe::Difference;
use super::plan::{Anchor, BanGuard};
use super::pool::EndpointId;
use super::scheduler::Scheduler;
use super::time::{Instant, Nanos};

/// What the machine has to tell its owner of its own accord.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// So many attempts were invalid that nothing starts before `until`.
    BanAhead {
        /// The plan's level, reached or passed.
        level: u32,
        /// In how long they were.
        period: Nanos,
        /// When there are few enough again, if no more come.
        until: Instant,
    },
    /// They have become few enough again.
    BanOver,
    /// Nothing starts on an endpoint before `until`: its attempts failed, or its quota is spent.
    BreakerOpened {
        /// The endpoint.
        endpoint: EndpointId,
        /// When it is tried again.
        until: Instant,
    },
    /// An endpoint works again.
    BreakerClosed {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// An endpoint is disabled.
    EndpointDisabled {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// An endpoint is enabled again.
    EndpointEnabled {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// The server has another number for a limit than the rules, for the first time for this limit and this window of the
    /// server's.
    LimitDiffers(Box<Difference>),
}

/// Invalid attempts of late, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Guard {
    numbers: Option<BanGuard>,
    log: Window,
    /// Until when it is closed; [`Instant::ZERO`] while it is open.
    until: Instant,
}

impl Guard {
    pub(super) fn new(numbers: Option<BanGuard>) -> Self {
        Self { numbers, ..Self::default() }
    }

    /// Until when nothing starts; an instant that has passed if that is no hindrance.
    pub(super) const fn closed_until(&self) -> Instant {
        self.until
    }

    /// When it has to be looked at.
    pub(super) fn wake(&self) -> Option<Instant> {
        (self.until > Instant::ZERO).then_some(self.until)
    }

    /// Counts an invalid attempt. Returns what there is to tell if it was one too many.
    fn count(&mut self, now: Instant) -> Option<Notice> {
        let numbers = self.numbers?;
        self.log.remember(spec(numbers), &[(now, 1)]);
        self.close(now)
    }

    /// The invalid attempts that still count.
    fn known(&self, now: Instant) -> Vec<(Instant, u32)> {
        let Some(BanGuard { period, .. }) = self.numbers else { return Vec::new() };
        let mut known = self.log.starts();
        known.retain(|&(at, _)| at.saturating_add(period) > now);
        known
    }

    /// Counts those that another run of the program knew, too. Returns what there is to tell if they are too many.
    fn recall(&mut self, now: Instant, known: &[(Instant, u32)]) -> Option<Notice> {
        let numbers = self.numbers?;
        let known = known.iter().map(|&(at, count)| (at.min(now), count));
        self.log.recall(spec(numbers), known.filter(|(at, _)| at.saturating_add(numbers.period) > now).collect());
        self.close(now)
    }

    /// Goes by other numbers. What is known of past attempts counts on.
    fn change_to(&mut self, now: Instant, numbers: Option<BanGuard>) -> Option<Notice> {
        let was_closed = self.until > now;
        self.numbers = numbers;
        if numbers.is_none() {
            self.log = Window::default();
        }
        self.until = Instant::ZERO;
        match self.close(now) {
            None if was_closed => Some(Notice::BanOver),
            Some(_) if was_closed => None,
            notice => notice,
        }
    }

    /// Closes if the level is reached. Returns what there is to tell if it was open.
    fn close(&mut self, now: Instant) -> Option<Notice> {
        let numbers = self.numbers?;
        let Ask::At(until) = self.log.ask(spec(numbers), now, 1, 0) else { return None };
        let was_open = self.until <= now;
        self.until = until;
        let BanGuard { level, period } = numbers;
        was_open.then_some(Notice::BanAhead { level, period, until })
    }

    /// Opens if it is time.
    fn open(&mut self, now: Instant) -> Option<Notice> {
        if self.until == Instant::ZERO || self.until > now {
            return None;
        }
        self.until = Instant::ZERO;
        Some(Notice::BanOver)
    }
}

/// The level as a window: it has room for one more while there are fewer.
const fn spec(numbers: BanGuard) -> WindowSpec {
    WindowSpec { count: numbers.level, period: numbers.period, anchor: Anchor::Start, grain: Nanos::ZERO }
}

impl<W> Scheduler<W> {
    /// An attempt ended invalid: where the plan has a [`BanGuard`], it counts. Once they are too many, nothing starts,
    /// not even what was granted.
    pub fn count_invalid(&mut self, now: Instant) {
        let now = self.tick(now);
        if let Some(notice) = self.guard.count(now) {
            self.notices.push(notice);
            self.revoke_where(now, |_| true);
        }
    }

    /// The invalid attempts that should outlive the machine.
    pub(super) fn known_invalid(&self, now: Instant) -> Vec<(Instant, u32)> {
        self.guard.known(now)
    }

    /// Counts invalid attempts that another machine knew. Returns false if the plan has no guard.
    pub(super) fn recall_invalid(&mut self, now: Instant, known: &[(Instant, u32)]) -> bool {
        if let Some(notice) = self.guard.recall(now, known) {
            self.notices.push(notice);
            self.revoke_where(now, |_| true);
        }
        self.guard.numbers.is_some()
    }

    /// What there is to tell since the list was last drained.
    pub const fn take_notices(&mut self) -> &mut Vec<Notice> {
        &mut self.notices
    }

    /// Opens the guard when it is time.
    pub(super) fn look_at_guard(&mut self, now: Instant) {
        self.notices.extend(self.guard.open(now));
    }

    /// Goes by the guard of the present plan.
    pub(super) fn change_guard(&mut self, now: Instant) {
        let notice = self.guard.change_to(now, self.plan.ban_guard);
        self.notices.extend(notice);
        if self.guard.closed_until() > now {
            self.revoke_where(now, |_| true);
        }
    }
}
