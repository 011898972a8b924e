//! What an attempt turned out to cost.

use super::answer::RequestId;
use super::limit::Spec;
use super::plan::{Charge, LimitSpec};
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// The running attempt cost `actual` in what `charge` counts, not what was asked for. Later starts of the limits
    /// that count it wait accordingly; an unknown or not running request is ignored.
    ///
    /// A window counts the difference both ways, as of the attempt's start. Spacing and buckets charge what is more and
    /// give nothing back. A next attempt costs `actual` too, but no less than was asked for; and only that where there is
    /// never room for `actual`.
    pub fn settle(&mut self, now: Instant, id: RequestId, charge: Charge, actual: u32) {
        let now = self.tick(now);
        if self.requests.get(id.index, id.generation).is_none_or(|request| !request.stage().may_go_on()) {
            return;
        }
        let request = &mut self.requests[id.index];
        let before = request.own_costs().set(charge, actual);
        let (queue, at, is_read) = (request.queue, request.since, request.is_read());
        let Self { plan, queues, keys, shared, days, .. } = self;
        let Queue { rule, key, extras, limits, .. } = &mut queues[queue];
        let rule = &plan.rules[usize::from(*rule)];
        let counts = |spec: &LimitSpec| spec.charge == charge;
        for (spec, state) in Queue::own(extras, rule).iter().zip(limits.as_mut_slice()).filter(|(spec, _)| counts(spec))
        {
            state.settle(Spec::new(spec.kind, days), at, before, actual, is_read);
        }
        let bound_key = rule.key.iter().map(|bound| bound.limit);
        for limit in bound_key.filter(|&limit| counts(&plan.key_limits[limit])) {
            let spec = Spec::new(plan.key_limits[limit].kind, days);
            keys[*key].limits.as_mut_slice()[limit].settle(spec, at, before, actual, is_read);
        }
        let bound_shared = rule.shared.iter().map(|bound| bound.limit);
        for limit in bound_shared.filter(|&limit| counts(&plan.shared_limits[limit])) {
            let spec = Spec::new(plan.shared_limits[limit].kind, days);
            shared.as_mut_slice()[limit].settle(spec, at, before, actual, is_read);
        }
        let key = *key;
        self.settle_endpoint(id.index, charge, before, actual);
        self.redecide_all(key);
        self.dispatch(now);
    }
}
