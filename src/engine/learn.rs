//! Rules that learn: their own limits, and those that keys have of their own, go by the server's numbers, up to a maximum,
//! for as long as the server tells them.

use std::sync::Arc;

use super::limit;
use super::observe::{ServerWindow, Spot, alike};
use super::plan::{Learn, LimitKind, LimitSpec, RulePlan};
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::time::{Instant, Nanos};

/// Numbers of a key's own.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) specs: Arc<[LimitSpec]>,
    /// There if these are the server's.
    pub(super) learnt: Option<Learnt>,
}

/// What is known of numbers that are the server's.
#[derive(Clone, Debug)]
pub(super) struct Learnt {
    until: Instant,
    /// Those that somebody gave to the key.
    pub(super) configured: Option<Arc<[LimitSpec]>>,
}

/// How long a number counts after it was last told.
const KEPT: Nanos = Nanos::from_secs(86_400);

impl<W> Scheduler<W> {
    /// Goes over to the server's number for one of the queue's own limits, if its rule learns.
    pub(super) fn learn(&mut self, now: Instant, queue: u32, spot: Spot, window: &ServerWindow<'_>) {
        let Spot::Own(position) = spot else { return };
        let record = &self.queues[queue];
        let plan = &self.plan.rules[usize::from(record.rule)];
        let (Some(learn), Some(count)) = (plan.learn, window.limit) else { return };
        let Some(configured) = record.configured(plan).get(position) else { return };
        if !is_about(configured.kind, window.per, learn) {
            return;
        }
        let Some(kind) = learnt(configured.kind, count, window.per, learn) else { return };
        let present = Queue::own(&record.extras, plan);
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
        let until = now.saturating_add(KEPT);
        if let Some(specs) = change {
            let configured = record.extras.numbers().and_then(|own| own.configured()).map(Arc::clone);
            self.renumber_in_store(now, queue, Some(Own { specs, learnt: Some(Learnt { until, configured }) }));
        } else if let Some(learnt) = self.queues[queue].extras.numbers_mut().and_then(|own| own.learnt.as_mut()) {
            learnt.until = until;
        }
    }

    /// Goes back to the configured numbers, if the server has told no others for a day.
    pub(super) fn unlearn(&mut self, now: Instant, queue: u32) {
        let Some(own) = self.queues[queue].extras.numbers() else { return };
        let Some(Learnt { until, configured }) = &own.learnt else { return };
        if *until <= now {
            let configured = configured.as_ref().map(|specs| Own::given(Arc::clone(specs)));
            self.renumber_in_store(now, queue, configured);
        }
    }

    /// Gives a queue other numbers, and has a store that keeps them told of past starts.
    pub(super) fn renumber_in_store(&mut self, now: Instant, queue: u32, numbers: Option<Own>) {
        self.recall_where(now, |other| other == queue);
        let old = self.own_of_store(queue);
        self.renumber(now, queue, numbers);
        self.review_store_of(queue, &old);
    }

    /// Gives a queue other numbers; what is known of past starts counts under them.
    pub(super) fn renumber(&mut self, now: Instant, queue: u32, numbers: Option<Own>) {
        self.stirred = true;
        self.count_under(now, queue, numbers);
        if self.queues[queue].in_line > 0 {
            self.refuse_unfit(now);
        }
        self.review_door(now);
    }

    /// The same, whether what waits still fits or not.
    pub(super) fn count_under(&mut self, now: Instant, queue: u32, numbers: Option<Own>) {
        let Queue { rule, extras, limits, .. } = &mut self.queues[queue];
        let plan = &self.plan.rules[usize::from(*rule)];
        let old = extras.set_numbers(numbers);
        let (old, new) = (old.as_ref().map_or(&*plan.own, |own| &own.specs), Queue::own(extras, plan));
        limits.change_to(now, (old, &self.days), (new, &self.days));
        self.any_end |= new.iter().any(|spec| limit::counts_from_end(spec.kind));
        self.count_outstanding(queue);
    }
}

impl Own {
    /// Those that somebody gave to the key.
    pub(super) const fn given(specs: Arc<[LimitSpec]>) -> Self {
        Self { specs, learnt: None }
    }

    /// Those that somebody gave to the key, whatever was learnt.
    pub(super) const fn configured(&self) -> Option<&Arc<[LimitSpec]>> {
        match &self.learnt {
            None => Some(&self.specs),
            Some(learnt) => learnt.configured.as_ref(),
        }
    }

    /// Until when they are the server's, if they are.
    pub(super) fn learnt_until(&self) -> Instant {
        self.learnt.as_ref().map_or(Instant::ZERO, |learnt| learnt.until)
    }
}

impl Queue {
    /// The limits that are configured for it, whatever was learnt: the key's numbers, else the rule's.
    pub(super) fn configured<'a>(&'a self, rule: &'a RulePlan) -> &'a [LimitSpec] {
        self.extras.numbers().and_then(|own| own.configured()).map_or(&*rule.own, |specs| &**specs)
    }
}

/// Whether a server's window is of the length of a limit that counts in one, as the most that it learns must be too. For
/// buckets any length tells a rate.
fn is_about(kind: LimitKind, per: Option<Nanos>, learn: Learn) -> bool {
    let period = limit::period(kind);
    let is_like = |per: Nanos| alike(per, period) || alike(per, period.saturating_sub(learn.margin));
    match kind {
        LimitKind::Window { .. } | LimitKind::Calendar { .. } => is_like(learn.period) && per.is_none_or(is_like),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => true,
    }
}

/// A limit with the server's numbers, or with the largest that are allowed. Its window is as long as the longest of the
/// limit's, the server's and the one of the most: in a shorter one more would start than is allowed.
fn learnt(kind: LimitKind, count: u32, per: Option<Nanos>, learn: Learn) -> Option<LimitKind> {
    if count == 0 {
        return None;
    }
    let per = per.filter(|per| !per.is_zero());
    let most = count.min(learn.count);
    Some(match kind {
        LimitKind::Window { period, anchor, grain, .. } => {
            let told = per.map_or(Nanos::ZERO, |per| per.saturating_add(learn.margin));
            LimitKind::Window { count: most, period: period.max(told).max(learn.period), anchor, grain }
        }
        LimitKind::Bucket { burst, .. } => {
            let slowest = learn.period.div_ceil(learn.count.max(1).into());
            LimitKind::Bucket { interval: per?.div_ceil(count.into()).max(slowest), burst }
        }
        LimitKind::Calendar { zone, .. } => LimitKind::Calendar { count: most, zone },
        // It stands beside a window, which is the one that learns.
        LimitKind::Spaced { .. } => return None,
    })
}
