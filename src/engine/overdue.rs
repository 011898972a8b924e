//! Attempts that may not run for longer than so long.

use super::answer::RequestId;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::time::{Instant, Nanos};

impl<W> Scheduler<W> {
    /// The running attempt may take `longest` from its start: then it is [overdue](Self::is_overdue), and its waker is
    /// woken. It runs until its owner ends it, as ever. An unknown or not running request is ignored.
    pub fn limit_attempt(&mut self, id: RequestId, longest: Nanos) {
        if self.requests.get(id.index, id.generation).is_none_or(|request| request.stage() != Stage::Running) {
            return;
        }
        let request = &mut self.requests[id.index];
        let deadline = request.since.saturating_add(longest);
        request.set_deadline(deadline);
        if deadline != Instant::NEVER {
            self.deadlines.push(deadline, id);
            self.stirred = true;
        }
    }

    /// Whether the running attempt took as long as it [may](Self::limit_attempt).
    #[must_use]
    pub fn is_overdue(&self, id: RequestId) -> bool {
        self.requests.get(id.index, id.generation).is_some_and(|request| request.stage() == Stage::Overdue)
    }

    /// Tells the owner of a running attempt that it is overdue.
    pub(super) fn give_up_attempt(&mut self, index: u32) {
        let request = &mut self.requests[index];
        request.set_stage(Stage::Overdue);
        self.wakes.extend(request.waker.take());
    }
}
