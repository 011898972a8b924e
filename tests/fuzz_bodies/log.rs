//! Attempts, and whether any limit had more of them than it allows.

use request_balancer::engine::{Anchor, Charge, Instant, LimitKind, LimitSpec, Nanos, Plan, RuleId};

/// An attempt, by what counts of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) rule: RuleId,
    pub(crate) key: u64,
    pub(crate) cost: u32,
    pub(crate) start: Instant,
    /// [`Instant::NEVER`] while it runs.
    pub(crate) end: Instant,
}

/// Looks at every limit of the plan by itself. Attempts are in order of start.
pub(crate) fn verify(plan: &Plan, attempts: &[Attempt]) {
    let mut keys: Vec<u64> = attempts.iter().map(|attempt| attempt.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let of_rule = |attempt: &Attempt| &plan.rules[usize::from(attempt.rule.0)];
    for (limit, spec) in plan.shared_limits.iter().enumerate() {
        hold(spec, attempts, |attempt| of_rule(attempt).shared.iter().any(|bound| bound.limit == limit));
    }
    for key in keys {
        for (limit, spec) in plan.key_limits.iter().enumerate() {
            hold(spec, attempts, |attempt| {
                attempt.key == key && of_rule(attempt).key.iter().any(|bound| bound.limit == limit)
            });
        }
        for (rule, own) in plan.rules.iter().enumerate() {
            for spec in &own.own {
                hold(spec, attempts, |attempt| attempt.key == key && usize::from(attempt.rule.0) == rule);
            }
        }
    }
}

fn hold(spec: &LimitSpec, attempts: &[Attempt], binds: impl Fn(&Attempt) -> bool) {
    let bound: Vec<_> = attempts.iter().filter(|attempt| binds(attempt)).copied().collect();
    let cost = |attempt: &Attempt| match spec.charge {
        Charge::Attempt => 1,
        Charge::Requests => u64::from(attempt.cost),
        Charge::Unit(_) => 0,
    };
    match spec.kind {
        LimitKind::Window { count, period, anchor, grain: _ } => {
            let until = |attempt: &Attempt| match anchor {
                Anchor::Start => attempt.start.saturating_add(period),
                Anchor::End => attempt.end.saturating_add(period),
            };
            for (place, last) in bound.iter().enumerate() {
                let counted = bound[..=place].iter().filter(|before| until(before) > last.start);
                // One that begins and ends in the instant of another's start was there with it or not.
                let together: u64 = counted.map(cost).sum();
                assert!(together <= u64::from(count), "{together} at {:?} under {spec:?}: {bound:#?}", last.start);
            }
        }
        LimitKind::Bucket { interval, burst } => {
            for (from, first) in bound.iter().enumerate() {
                let mut spent = 0;
                for last in &bound[from..] {
                    spent += cost(last);
                    let refilled = last.start.since(first.start).get() / interval.get().max(1);
                    assert!(spent <= u64::from(burst) + refilled, "{spent} spent under {spec:?}: {bound:#?}");
                }
            }
        }
        LimitKind::Spaced { interval, .. } => {
            for pair in bound.windows(2) {
                // Lateness of a timer is caught up.
                let least = interval.saturating_mul(cost(&pair[0]));
                let gap = pair[1].start.since(pair[0].start).saturating_add(CATCH_UP);
                assert!(gap >= least, "{gap:?} under {spec:?}: {pair:#?}");
            }
        }
        LimitKind::Calendar { .. } => {}
    }
}

/// What spacing forgives, as its file says.
const CATCH_UP: Nanos = Nanos::from_millis(2);
