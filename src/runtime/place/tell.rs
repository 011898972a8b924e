//! What is told of a request's life, to `tracing` and to `metrics`.

use std::borrow::Borrow;
use std::sync::Arc;

use tracing::Level;

use super::Place;
use crate::engine::Nanos;
use crate::error::Refused;
use crate::runtime::event::Event;
use crate::runtime::shared::Shared;
use crate::runtime::watch::{self, Cause, Step, Subject};

impl<H: Borrow<Arc<Shared>>> Place<H> {
    /// Runs something of the attempt's inside its span.
    #[inline]
    pub(crate) fn in_span<R>(&self, run: impl FnOnce() -> R) -> R {
        match &self.span {
            Some(span) => span.in_scope(run),
            None => run(),
        }
    }

    /// It stands in line.
    pub(super) fn tell_waiting(&mut self) {
        self.meter.waits(self.shared.borrow(), self.rule);
        self.tell(&Step::Waiting);
    }

    /// Its attempt begins.
    #[inline]
    pub(super) fn tell_start(&mut self, waited: Nanos) {
        self.meter.starts(self.shared.borrow(), self.rule, waited);
        // Who hears the event hears of the span, too.
        if watch::may_be_heard(Level::DEBUG) {
            self.tell_listeners_of_start(waited);
        }
    }

    #[cold]
    fn tell_listeners_of_start(&mut self, waited: Nanos) {
        let waited = std::time::Duration::from(waited).as_secs_f64();
        self.tell(&Step::Started { waited });
        let shared: &Arc<Shared> = self.shared.borrow();
        self.span = watch::span(|| shared.live.load_full(), &self.subject(), waited, self.after);
    }

    /// Its attempt ended, and so did the request.
    #[inline]
    pub(super) fn tell_end(&mut self, outcome: &'static str) {
        self.meter.ends();
        if self.span.is_some() || watch::may_be_heard(Level::TRACE) {
            self.tell_listeners_of_end(outcome);
        }
    }

    #[cold]
    fn tell_listeners_of_end(&mut self, outcome: &'static str) {
        self.tell(&Step::Ended { outcome });
        self.span = None;
    }

    /// Its attempt failed, and it stands in line again.
    pub(super) fn tell_retry(&mut self, cause: Cause, wait: Nanos) {
        self.meter.ends();
        self.meter.retries(self.shared.borrow(), self.rule, cause.word());
        self.meter.waits(self.shared.borrow(), self.rule);
        self.tell(&Step::PutBack { cause, wait: std::time::Duration::from(wait).as_secs_f64() });
        self.span = None;
        self.after = cause;
    }

    /// Its attempt failed, and the policy allows no other.
    pub(super) fn tell_gave_up(&mut self, reason: Refused) -> Refused {
        let (key, attempts) = (self.key.clone(), self.starts);
        self.shared().tell(Event::RetryGaveUp { rule: self.rule_name(), key, attempts, reason: reason.clone() });
        self.turned_away_running(reason)
    }

    /// Its attempt ended, and it does not start again.
    pub(super) fn turned_away_running(&mut self, reason: Refused) -> Refused {
        self.meter.ends();
        let reason = self.turned_away(reason);
        self.span = None;
        reason
    }

    /// It does not start.
    pub(super) fn turned_away(&mut self, reason: Refused) -> Refused {
        self.meter.leaves_line();
        // Some belong to no rule, or did not get so far as to ask.
        if !matches!(reason, Refused::UnknownRule { .. } | Refused::UnknownUnit { .. }) {
            self.meter.refused(self.shared.borrow(), self.rule, &reason);
            self.tell(&Step::Refused(&reason));
        }
        if matches!(reason, Refused::QueueFull { .. } | Refused::Displaced) && self.shared().announcer.is_heard() {
            let (rule, key) = (self.rule_name(), self.key.clone());
            self.shared().tell(Event::NoRoom { rule, key, reason: reason.clone() });
        }
        reason
    }

    /// Its owner dropped it while it stood in line.
    pub(super) fn tell_withdrawn(&mut self) {
        self.meter.leaves_line();
        self.tell(&Step::Withdrawn);
    }

    #[inline]
    fn tell(&self, step: &Step<'_>) {
        watch::step(|| self.shared().live.load_full(), &self.subject(), step);
    }

    #[inline]
    fn subject(&self) -> Subject<'_> {
        Subject { rule: self.rule, key: &self.key, attempt: self.starts }
    }
}
