//! Going back in line after an attempt that failed.

use super::answer::{RequestId, Target};
use super::hold::HoldCause;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// The attempt ended; the request goes back to its place in line and `scope` is held until `until`.
    ///
    /// With [`Target::Request`] it steps out of line until then, or in an `ordered` rule its queue waits for it;
    /// so it does where `until` is beyond what a hold may last. `deadline` is as in [`Entry`](super::Entry). Returns false
    /// if the machine is closed or knows no such running request: then it is gone.
    pub fn retry(
        &mut self,
        now: Instant,
        id: RequestId,
        scope: Target,
        until: Instant,
        deadline: Option<Instant>,
    ) -> bool {
        let now = self.tick(now);
        // The hold stands even if the request is gone: it is what the server said.
        let longest = now.saturating_add(self.plan.max_hold);
        let waits_alone = match scope {
            Target::Request => true,
            Target::Overall | Target::Rule(_) | Target::Key(_) | Target::Queue(..) | Target::Endpoint(_) => {
                if self.is_about(id, scope) && self.set_hold(now, scope, until, HoldCause::Retry) && until > now {
                    self.revoke_of(now, scope);
                }
                // The others are held for no longer than that; it was told itself how long. It may go elsewhere.
                until > longest && !matches!(scope, Target::Endpoint(_))
            }
        };
        if let Target::Endpoint(_) = scope
            && self.requests.contains(id.index, id.generation)
        {
            self.note_turned_away(id.index);
        }
        if !self.put_back(now, id, deadline) {
            self.after_event(now);
            return false;
        }
        if !self.refuse_if_unfit(now, id.index)
            && (waits_alone && until > now || !self.refuse_if_stranded(now, id.index))
        {
            let queue = self.requests[id.index].queue;
            let is_ordered = self.plan.rules[usize::from(self.queues[queue].rule)].ordered;
            if waits_alone && is_ordered {
                self.requeue(id.index, until);
            } else if waits_alone && until > now {
                self.step_out(id, until);
            } else {
                self.requeue(id.index, Instant::ZERO);
            }
        }
        self.after_event(now);
        true
    }

    /// The attempt failed; the request steps out until `until` and then goes back to its place.
    ///
    /// In an `ordered` rule its queue waits for it. Returns as [`retry`](Self::retry).
    pub fn back_off(&mut self, now: Instant, id: RequestId, until: Instant, deadline: Option<Instant>) -> bool {
        let now = self.tick(now);
        if !self.put_back(now, id, deadline) {
            return false;
        }
        self.forget_tried(id.index);
        let queue = self.requests[id.index].queue;
        if !self.refuse_if_unfit(now, id.index) {
            if self.plan.rules[usize::from(self.queues[queue].rule)].ordered {
                self.requeue(id.index, until);
            } else {
                self.step_out(id, until);
            }
        }
        self.after_event(now);
        true
    }

    /// Whether what comes of a request's attempt can be about a target: not if that is an endpoint behind whose name there
    /// is another one by now.
    fn is_about(&self, id: RequestId, target: Target) -> bool {
        match target {
            Target::Endpoint(endpoint) => {
                self.endpoint_of(id) != Some(endpoint) || self.lasting_endpoint_of(id) == Some(endpoint)
            }
            Target::Request | Target::Overall | Target::Rule(_) | Target::Key(_) | Target::Queue(..) => true,
        }
    }

    /// Ends the attempt and puts the request in line again, outside its queue.
    fn put_back(&mut self, now: Instant, id: RequestId, deadline: Option<Instant>) -> bool {
        let Some(request) = self.requests.get(id.index, id.generation) else { return false };
        match request.stage() {
            Stage::Running | Stage::Overdue if !self.closed => {}
            Stage::Outside { .. }
            | Stage::Running
            | Stage::Overdue
            | Stage::Aborted
            | Stage::Queued { .. }
            | Stage::Asked
            | Stage::Granted { .. }
            | Stage::Asleep
            | Stage::Out { .. }
            | Stage::Refused { .. } => {
                self.withdraw(now, id);
                return false;
            }
        }
        self.end_attempt(now, id.index);
        self.rejoin(now, id, deadline);
        true
    }
}
