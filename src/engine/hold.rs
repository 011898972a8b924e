//! Holds: nothing of a target starts before an instant. Those on one target combine by maximum.

use std::fmt;

use super::answer::{KeyId, Target};
use super::retry::Scope;
use super::scheduler::Scheduler;
use super::time::Instant;

/// Who wanted a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HoldCause {
    /// The program, from outside.
    #[default]
    Asked,
    /// An attempt that failed.
    Retry,
}

impl fmt::Display for HoldCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked",
            Self::Retry => "retry",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Queue => "queue",
            Self::Key => "key",
            Self::Rule => "rule",
            Self::Overall => "overall",
            Self::Endpoint => "endpoint",
        })
    }
}

/// A hold that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its end.
    pub until: Instant,
    /// Who wanted the longest of those that make it up.
    pub cause: HoldCause,
}

impl<W> Scheduler<W> {
    /// Nothing of the target starts before `until`, not even what is granted. Returns false for a stale key.
    ///
    /// Holds on one target combine by maximum; none is longer than the plan's `max_hold`. Targeting
    /// [`Target::Request`] does nothing.
    pub fn hold(&mut self, now: Instant, target: Target, until: Instant) -> bool {
        self.hold_because(now, target, until, HoldCause::Asked)
    }

    /// The same for another reason than that the program wants it.
    pub fn hold_because(&mut self, now: Instant, target: Target, until: Instant, cause: HoldCause) -> bool {
        let now = self.tick(now);
        let known = self.set_hold(now, target, until, cause);
        if known && until > now && self.revoke_of(now, target) {
            self.dispatch(now);
        }
        known
    }

    /// Ends a target's hold. Returns false for a stale key.
    pub fn release(&mut self, now: Instant, target: Target) -> bool {
        let now = self.tick(now);
        if !self.has(target) {
            return false;
        }
        if let Some((hold, _)) = self.hold_mut(target, false) {
            *hold = Instant::ZERO;
        }
        if let Target::Key(key) | Target::Queue(_, key) = target {
            self.redecide_all(key.index);
        } else if let Target::Endpoint(_) = target {
            self.review_pool(now);
        }
        self.dispatch(now);
        true
    }

    /// The hold that is on a target by itself, whatever else holds it.
    #[must_use]
    pub fn held(&self, now: Instant, target: Target) -> Option<Held> {
        let (until, cause) = match target {
            Target::Overall => (self.hold, self.hold_cause),
            Target::Rule(rule) => {
                let rule = &self.rules[usize::from(rule.0)];
                (rule.hold, rule.hold_cause)
            }
            Target::Key(key) => self.keys.get(key.index, key.generation)?.extras.held(),
            Target::Queue(rule, key) => {
                self.keys.get(key.index, key.generation)?;
                self.queues[self.find_queue(key.index, rule)?].extras.held()
            }
            Target::Endpoint(endpoint) => self.endpoint_hold(endpoint)?,
            Target::Request => return None,
        };
        (until > now).then_some(Held { until, cause })
    }

    /// Whether anything is held.
    pub(super) fn holds_anything(&self, now: Instant) -> bool {
        if self.last_hold <= now {
            return false;
        }
        self.hold > now
            || self.rules.iter().any(|rule| rule.hold > now)
            || self.keys.indices().any(|index| self.keys[index].extras.hold() > now)
            || self.pool.as_ref().is_some_and(|pool| pool.endpoints.iter().any(|endpoint| endpoint.hold > now))
            || self.queues.indices().any(|index| self.queues[index].extras.hold() > now)
    }

    pub(super) fn set_hold(&mut self, now: Instant, target: Target, until: Instant, cause: HoldCause) -> bool {
        let until = until.min(now.saturating_add(self.plan.max_hold));
        if !self.has(target) {
            return false;
        }
        self.last_hold = self.last_hold.max(until);
        if let Some((hold, by)) = self.hold_mut(target, true) {
            (*hold, *by) = longer((*hold, *by), (until, cause));
        }
        if let Target::Key(KeyId { index, .. }) | Target::Queue(_, KeyId { index, .. }) = target {
            self.note_idle(now, index);
        }
        true
    }

    /// Whether the target's key, if it has one, has a record.
    fn has(&self, target: Target) -> bool {
        match target {
            Target::Key(key) | Target::Queue(_, key) => self.keys.contains(key.index, key.generation),
            Target::Endpoint(endpoint) => self.endpoint_hold(endpoint).is_some(),
            Target::Overall | Target::Rule(_) | Target::Request => true,
        }
    }

    /// Where the hold of a known target is written down; what is not there is made, or is not to be held.
    fn hold_mut(&mut self, target: Target, make: bool) -> Option<(&mut Instant, &mut HoldCause)> {
        match target {
            Target::Overall => Some((&mut self.hold, &mut self.hold_cause)),
            Target::Rule(rule) => {
                let rule = &mut self.rules[usize::from(rule.0)];
                Some((&mut rule.hold, &mut rule.hold_cause))
            }
            Target::Key(key) => self.keys[key.index].extras.hold_mut(make),
            Target::Queue(rule, key) => {
                let queue = if make { self.queue_of(key.index, rule) } else { self.find_queue(key.index, rule)? };
                self.queues[queue].extras.hold_mut(make)
            }
            Target::Endpoint(endpoint) => {
                let endpoint = self.endpoint_mut(endpoint)?;
                Some((&mut endpoint.hold, &mut endpoint.hold_cause))
            }
            Target::Request => None,
        }
    }
}

/// The longer of two holds on one target.
pub(super) fn longer(one: (Instant, HoldCause), other: (Instant, HoldCause)) -> (Instant, HoldCause) {
    if other.0 > one.0 { other } else { one }
}
