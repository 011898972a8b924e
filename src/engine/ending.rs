//! The end: nothing more comes in, and what runs is told to give up.

use super::answer::{RequestId, Why};
use super::request::Stage;
use super::scheduler::Scheduler;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Refuses what waits and whatever comes. What runs may finish. Returns how many were refused.
    pub fn close(&mut self, now: Instant) -> usize {
        let now = self.tick(now);
        self.closed = true;
        let outside = self.close_door(now);
        let waiting: Vec<u32> =
            self.requests.indices().filter(|&index| self.requests[index].stage().in_line()).collect();
        for &index in &waiting {
            self.refuse(now, index, Why::Closed);
        }
        outside + waiting.len()
    }

    /// Tells what runs to give up: marks it as [`Why::Aborted`] and wakes it. Returns how many.
    ///
    /// Each gives its place back with [`finish`](Self::finish) or [`withdraw`](Self::withdraw), as ever.
    pub fn abort(&mut self) -> usize {
        self.stirred = true;
        let running: Vec<u32> =
            self.requests.indices().filter(|&index| self.requests[index].stage().may_go_on()).collect();
        for &index in &running {
            self.drop_deadline(index);
            let request = &mut self.requests[index];
            request.set_stage(Stage::Aborted);
            self.wakes.extend(request.waker.take());
        }
        running.len()
    }

    /// Whether the request was told to give up by [`abort`](Self::abort).
    #[must_use]
    pub fn is_aborted(&self, id: RequestId) -> bool {
        self.requests.get(id.index, id.generation).is_some_and(|request| request.stage() == Stage::Aborted)
    }
}
