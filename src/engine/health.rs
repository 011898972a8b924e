//! Whether things go as they should.

use super::cost::Costs;
use super::gate::{Gate, Whose};
use super::request::Stage;
use super::scheduler::Scheduler;
use super::time::{Instant, Nanos};

/// How things go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Health {
    /// Whoever comes may start.
    Ok,
    /// Something is held or paused, or requests wait as the limits have it, or nothing starts any more: it is closed.
    Limited,
    /// Something waits that could start, and nothing has started for more than a second.
    Stalled,
}

/// How long nothing may start before that is strange.
const PATIENCE: Nanos = Nanos::from_secs(1);

impl<W> Scheduler<W> {
    /// How things go. Does what is due, if the owner is late with it.
    ///
    /// Looks at every request if nothing has started for a second, and at every key if nothing waits and a hold may be
    /// on.
    pub fn health(&mut self, now: Instant) -> Health {
        let now = self.tick(now);
        let overdue = self.next_wake().is_some_and(|at| now.since(at) > PATIENCE);
        let waits = self.lanes.iter().any(|lane| lane.in_line > 0);
        self.dispatch(now);
        if waits && (overdue || self.stands_still(now)) {
            return Health::Stalled;
        }
        let stopped = self.closed || self.pauses_anything() || self.guard.closed_until() > now;
        if waits || stopped || self.holds_anything(now) { Health::Limited } else { Health::Ok }
    }

    /// Whether nothing has started for too long although somebody could who does not ask for it.
    fn stands_still(&mut self, now: Instant) -> bool {
        if now.since(self.last_start) <= PATIENCE {
            return false;
        }
        let asleep = |index: &u32| {
            let request = &self.requests[*index];
            request.stage() == Stage::Asleep && now.since(request.since) > PATIENCE
        };
        let asleep: Vec<u32> = self.requests.indices().filter(asleep).collect();
        asleep.into_iter().any(|index| {
            let queue = self.requests[index].queue;
            let rule = usize::from(self.queues[queue].rule);
            matches!(self.gate(now, rule, Whose::New(Costs::ONE), false), Gate::Open)
                && self.check(now, queue, Whose::New(Costs::ONE), false).is_ok()
        })
    }
}
