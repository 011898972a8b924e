//! What is outstanding, counted anew in limits that forgot it.

use super::limit::{LimitState, Spec};
use super::queue::Queue;
use super::request::Request;
use super::scheduler::Scheduler;

impl<W> Scheduler<W> {
    /// Counts what a queue has outstanding in its own limits. Looks at every request, if it has anything.
    pub(super) fn count_outstanding(&mut self, queue: u32) {
        if self.queues[queue].running == 0 && self.queues[queue].granted.is_empty() {
            return;
        }
        let Self { plan, requests, queues, days, .. } = self;
        let Queue { rule, extras, limits, .. } = &mut queues[queue];
        let own = Queue::own(extras, &plan.rules[usize::from(*rule)]);
        for index in requests.indices().filter(|&index| requests[index].queue == queue) {
            let request = &requests[index];
            limits.for_all(own, days, request.costs(), count(request));
        }
    }

    /// Counts what is outstanding anywhere, in all limits.
    pub(super) fn owe_all(&mut self) {
        let indices: Vec<u32> = self.requests.indices().collect();
        for index in indices {
            let count = count(&self.requests[index]);
            self.each_limit(index, count);
        }
    }
}

/// Counts a request in a limit, as far as it is outstanding there.
fn count<W>(request: &Request<W>) -> impl FnMut(Spec<'_>, &mut LimitState, u32) + use<W> {
    let (stage, is_awaited) = (request.stage(), request.is_awaited());
    move |spec, state, cost| {
        if stage.is_outstanding(spec.counts_from_end()) {
            state.owe(cost);
        }
        if is_awaited {
            state.expect(cost);
        }
    }
}
