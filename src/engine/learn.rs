//! Rules that learn: their own limits go by the server's numbers, up to a maximum, for as long as the server tells them.

use std::sync::Arc;

use super::limit;
use super::observe::{ServerWindow, Spot};
use super::plan::{Learn, LimitKind, LimitSpec};
use super::queue::{Own, Queue};
use super::scheduler::Scheduler;
use super::time::{Instant, Nanos};

/// How long a number counts after it was last told.
const KEPT: Nanos = Nanos::from_secs(86_400);

impl<W> Scheduler<W> {
    /// Goes over to the server's number for one of the queue's own limits, if its rule learns.
    pub(super) fn learn(&mut self, now: Instant, queue: u32, spot: Spot, window: &ServerWindow<'_>) {
        let Spot::Own(position) = spot else { return };
        let Queue { rule, ref numbers, .. } = self.queues[queue];
        let plan = &self.plan.rules[usize::from(rule)];
        let (Some(learn), Some(count)) = (plan.learn, window.limit) else { return };
        if numbers.as_ref().is_some_and(|own| own.is_given()) {
            // The key has numbers of its own, and nobody's else.
            return;
        }
        let Some(configured) = plan.own.get(position) else { return };
        let Some(kind) = learnt(configured.kind, count, window.per, learn) else { return };
        let present = Queue::own(numbers, plan);
        let change = (present[position].kind != kind).then(|| {
            let replace = |(at, spec): (usize, &LimitSpec)| match (spec.kind, kind) {
                _ if at == position => LimitSpec { kind, ..spec.clone() },
                // Even spacing stands behind its window.
                (LimitKind::Spaced { .. }, LimitKind::Window { count, period, .. }) if at == position + 1 => {
                    let kind = LimitKind::Spaced { interval: period.div_ceil(count.into()), largest: count };
                    LimitSpec { kind, ..spec.clone() }
                }
                _ => spec.clone(),
            };
            present.iter().enumerate().map(replace).collect::<Arc<[LimitSpec]>>()
        });
        let learnt_until = Some(now.saturating_add(KEPT));
        if let Some(specs) = change {
            self.renumber(now, queue, Some(Own { specs, learnt_until }));
        } else if let Some(own) = &mut self.queues[queue].numbers {
            own.learnt_until = learnt_until;
        }
    }

    /// Goes back to the numbers of the rules, if the server has told no others for a day.
    pub(super) fn unlearn(&mut self, now: Instant, queue: u32) {
        let learnt = self.queues[queue].numbers.as_ref().and_then(|own| own.learnt_until);
        if learnt.is_some_and(|until| until <= now) {
            self.renumber(now, queue, None);
        }
    }

    /// Gives a queue other numbers; what is known of past starts counts under them.
    pub(super) fn renumber(&mut self, now: Instant, queue: u32, numbers: Option<Own>) {
        self.count_under(now, queue, numbers);
        if self.queues[queue].in_line > 0 {
            self.refuse_unfit(now);
        }
        self.review_door(now);
    }

    /// The same, whether what waits still fits or not.
    pub(super) fn count_under(&mut self, now: Instant, queue: u32, numbers: Option<Own>) {
        let numbers = numbers.map(Box::new);
        let Queue { rule, numbers: old, limits, .. } = &mut self.queues[queue];
        let plan = &self.plan.rules[usize::from(*rule)];
        limits.change_to(now, (Queue::own(old, plan), &self.days), (Queue::own(&numbers, plan), &self.days));
        self.any_end |= Queue::own(&numbers, plan).iter().any(|spec| limit::counts_from_end(spec.kind));
        *old = numbers;
        self.count_outstanding(queue);
    }
}

/// A limit with the server's numbers, or with the largest that are allowed. Without a period the limit's own stands.
fn learnt(kind: LimitKind, count: u32, per: Option<Nanos>, learn: Learn) -> Option<LimitKind> {
    if count == 0 {
        return None;
    }
    let per = per.filter(|per| !per.is_zero());
    let most = |per: Nanos| {
        let most = u128::from(per.get()) * u128::from(learn.count) / u128::from(learn.period.get().max(1));
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    };
    let slowest = learn.period.div_ceil(learn.count.max(1).into());
    Some(match kind {
        LimitKind::Window { period, anchor, grain, .. } => {
            let margin = learn.margin;
            let per = per.unwrap_or_else(|| period.saturating_sub(margin));
            LimitKind::Window { count: count.min(most(per)), period: per.saturating_add(margin), anchor, grain }
        }
        LimitKind::Bucket { burst, .. } => {
            let interval = per?.div_ceil(count.into());
            LimitKind::Bucket { interval: interval.max(slowest), burst }
        }
        LimitKind::Calendar { zone, .. } => LimitKind::Calendar { count: count.min(most(limit::period(kind))), zone },
        // It stands beside a window, which is the one that learns.
        LimitKind::Spaced { .. } => return None,
    })
}
