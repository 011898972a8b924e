//! What goes to `tracing`: a span around each attempt, and events. The names are documented at the top of the crate.
//!
//! Nothing is looked up or formatted unless somebody listens.

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::{Level, Span, debug, debug_span, enabled, span_enabled, trace, warn};

use super::event::Event;
use super::live::Live;
use super::observe::LimitDifference;
use crate::engine::{FailureKind, RuleId};
use crate::error::Refused;
use crate::key::Key;
use crate::rules::Findings;

/// Of whom something is told.
pub(super) struct Subject<'a> {
    pub(super) rule: RuleId,
    pub(super) key: &'a Key,
    pub(super) attempt: u32,
}

/// What became of a request.
pub(super) enum Step<'a> {
    Waiting,
    Started { waited: f64 },
    Ended { outcome: &'static str },
    PutBack { cause: Cause, wait: f64 },
    Refused(&'a Refused),
    Withdrawn,
}

impl Step<'_> {
    #[inline]
    const fn level(&self) -> Level {
        match self {
            Self::Waiting | Self::Started { .. } | Self::Ended { .. } | Self::Withdrawn => Level::TRACE,
            Self::PutBack { .. } | Self::Refused(_) => Level::DEBUG,
        }
    }
}

/// Whether anybody might listen: one look where nobody does.
#[inline]
pub(super) fn may_be_heard(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

/// Tells a step if it is wanted.
#[inline]
pub(super) fn step(live: impl FnOnce() -> std::sync::Arc<Live>, subject: &Subject<'_>, step: &Step<'_>) {
    if may_be_heard(step.level()) && is_wanted(step) {
        tell(&live(), subject, step);
    }
}

#[cold]
fn is_wanted(step: &Step<'_>) -> bool {
    match step {
        Step::Waiting | Step::Started { .. } | Step::Ended { .. } | Step::Withdrawn => {
            enabled!(target: "request_balancer", Level::TRACE)
        }
        Step::PutBack { .. } | Step::Refused(_) => enabled!(target: "request_balancer", Level::DEBUG),
    }
}

#[cold]
fn tell(live: &Live, subject: &Subject<'_>, step: &Step<'_>) {
    let Subject { rule, key, attempt } = *subject;
    let (rule, lane) = names(live, rule);
    match *step {
        Step::Waiting => trace!(target: "request_balancer", rule, %key, lane, attempt, "waiting"),
        Step::Started { waited } => {
            trace!(target: "request_balancer", rule, %key, lane, attempt, waited, "started");
        }
        Step::Ended { outcome } => {
            trace!(target: "request_balancer", rule, %key, lane, attempt, outcome, "ended");
        }
        Step::PutBack { cause, wait } => {
            let cause = cause.word();
            debug!(target: "request_balancer", rule, %key, lane, attempt, cause, wait, "put back");
        }
        Step::Refused(reason) => {
            let cause = reason.cause();
            debug!(target: "request_balancer", rule, %key, lane, attempt, cause, %reason, "refused");
        }
        Step::Withdrawn => trace!(target: "request_balancer", rule, %key, lane, attempt, "withdrawn"),
    }
}

/// The span of an attempt that begins, or none if nobody wants it.
pub(super) fn span(
    live: impl FnOnce() -> std::sync::Arc<Live>,
    subject: &Subject<'_>,
    waited: f64,
    cause: Cause,
) -> Option<Box<Span>> {
    span_enabled!(target: "request_balancer", Level::DEBUG).then(|| new_span(&live(), subject, waited, cause))
}

fn new_span(live: &Live, subject: &Subject<'_>, waited: f64, cause: Cause) -> Box<Span> {
    let Subject { rule, key, attempt } = *subject;
    let (rule, lane) = names(live, rule);
    let cause = cause.word();
    Box::new(debug_span!(target: "request_balancer", "attempt", rule, %key, lane, attempt, waited, cause))
}

/// Tells an event that goes to receivers, too.
pub(super) fn log(event: &Event) {
    match event {
        Event::HoldStarted { scope, rule, key, cause, lasts, until: _ } => {
            let (rule, lasts) = (rule.as_deref(), lasts.as_secs_f64());
            let key = key.as_ref().map(tracing::field::display);
            debug!(target: "request_balancer", %scope, rule, key, %cause, lasts, "hold started");
        }
        Event::HoldCut { scope, rule, key, wanted, allowed } => {
            let (rule, wanted, allowed) = (rule.as_deref(), wanted.as_secs_f64(), allowed.as_secs_f64());
            let key = key.as_ref().map(tracing::field::display);
            warn!(target: "request_balancer", %scope, rule, key, wanted, allowed, "hold cut");
        }
        Event::HoldReleased { scope, rule, key } => {
            let key = key.as_ref().map(tracing::field::display);
            debug!(target: "request_balancer", %scope, rule = rule.as_deref(), key, "hold released");
        }
        Event::BanAhead { level, period, until: _ } => {
            warn!(target: "request_balancer", level, period = period.as_secs_f64(), "ban ahead");
        }
        Event::EndpointHeld { endpoint, cause, lasts, until: _ } => {
            let lasts = lasts.as_secs_f64();
            debug!(target: "request_balancer", endpoint = &**endpoint, %cause, lasts, "endpoint held");
        }
        Event::EndpointReleased { endpoint } => {
            debug!(target: "request_balancer", endpoint = &**endpoint, "endpoint released");
        }
        Event::BreakerOpened { endpoint, lasts, until: _ } => {
            let lasts = lasts.as_secs_f64();
            warn!(target: "request_balancer", endpoint = &**endpoint, lasts, "breaker opened");
        }
        Event::BreakerClosed { endpoint } => {
            warn!(target: "request_balancer", endpoint = &**endpoint, "breaker closed");
        }
        Event::EndpointDisabled { endpoint } => {
            warn!(target: "request_balancer", endpoint = &**endpoint, "endpoint disabled");
        }
        Event::EndpointEnabled { endpoint } => {
            warn!(target: "request_balancer", endpoint = &**endpoint, "endpoint enabled");
        }
        Event::StoreLost { why } => warn!(target: "request_balancer", why = &**why, "store lost"),
        Event::StoreBack => warn!(target: "request_balancer", "store back"),
        Event::StoreForgot { limit } => warn!(target: "request_balancer", limit = &**limit, "store forgot"),
        Event::RulesTaken { version } => {
            warn!(target: "request_balancer", version, "rules of another process taken over")
        }
        Event::RulesDiffer { version } => {
            warn!(target: "request_balancer", version, "another process has other rules of the same version");
        }
        Event::RulesUnreadable { version, why } => {
            warn!(target: "request_balancer", version, why = &**why, "rules in the store can't be read");
        }
        Event::BanOver => warn!(target: "request_balancer", "ban over"),
        Event::LimitDiffers(difference) => {
            let LimitDifference { limit, window, configured, reported, .. } = difference;
            warn!(target: "request_balancer", limit, window, configured, reported, "the server has another limit");
        }
        // Told as refused, and never sent.
        Event::RetryGaveUp { .. } | Event::NoRoom { .. } | Event::Missed { .. } => {}
    }
}

/// Tells that the rules in force stay, as there is no way to others.
#[cold]
pub(super) fn not_replaced(findings: &Findings) {
    warn!(target: "request_balancer", %findings, "rules not replaced");
}

/// What an attempt follows from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    First,
    Transient,
    Ambiguous,
    TimedOut,
    Retry,
    TurnedAway,
}

impl Cause {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Transient => "transient",
            Self::Ambiguous => "ambiguous",
            Self::TimedOut => "timed-out",
            Self::Retry => "retry",
            Self::TurnedAway => "turned-away",
        }
    }
}

impl From<FailureKind> for Cause {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Transient => Self::Transient,
            FailureKind::Ambiguous => Self::Ambiguous,
            FailureKind::TimedOut => Self::TimedOut,
            FailureKind::Retry { .. } => Self::Retry,
        }
    }
}

fn names(live: &Live, rule: RuleId) -> (&str, &str) {
    let rule = live.rule(rule);
    (&rule.name, &live.plan.lanes[rule.lane].name)
}
