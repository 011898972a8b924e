//! The guard before a ban: a server that counts invalid attempts shuts out whoever makes too many. Nothing starts while
//! so many of them ended of late that the next ones could be the last.

use super::limit::{Ask, Window, WindowSpec};
use super::plan::{Anchor, BanGuard};
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::{Instant, Nanos};

/// What the machine has to tell its owner of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            self.revoke_all(now);
        }
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
            self.revoke_all(now);
        }
    }

    /// Takes back all grants that are not taken up, and puts their requests back in their places.
    fn revoke_all(&mut self, now: Instant) {
        // Only the first grant of a queue has a lease, and each of them has one.
        let leases = std::mem::take(&mut self.leases);
        let mut granted = Vec::new();
        for (_, id) in leases {
            let Some(request) = self.requests.get(id.index, id.generation) else { continue };
            if !matches!(request.stage(), Stage::Granted { .. }) {
                continue;
            }
            let mut index = self.queues[request.queue].granted.head;
            while index != NIL {
                granted.push(index);
                index = self.requests[index].links.next;
            }
        }
        // The last one first, so that none becomes the first one and gets a lease.
        for index in granted.into_iter().rev() {
            if matches!(self.requests[index].stage(), Stage::Granted { .. }) {
                self.give_back(now, self.requests[index].queue, index);
                self.requeue(index, Instant::ZERO);
            }
        }
    }
}
