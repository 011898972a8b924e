//! Random policies and random failures: every decision against one that is worked out from the list of all failures.
#![cfg(feature = "tokio")]

#[path = "harness/rng.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod rng;

use request_balancer::{Decision, FailureKind, GiveUp, Nanos, RetryPolicy, Spent, WaitOrder};
use rng::Rng;

const STORIES: u64 = 20_000;

fn seconds(random: &mut Rng, most: u64) -> Nanos {
    Nanos::from_secs(random.below(most + 1))
}

fn policy(random: &mut Rng) -> RetryPolicy {
    RetryPolicy {
        attempts: 1 + random.below(5) as u32,
        backoff: seconds(random, 9),
        max_delay: seconds(random, 40),
        jitter: 0.0,
        min_wait: seconds(random, 3),
        bare_wait: seconds(random, 9),
        waits: random.below(5) as u32,
        ceiling: (random.below(3) > 0).then(|| seconds(random, 30)),
        total_wait: (random.below(3) > 0).then(|| seconds(random, 60)),
        order: [WaitOrder::Max, WaitOrder::Server, WaitOrder::Policy][random.below(3) as usize],
        ..RetryPolicy::default()
    }
}

fn failure(random: &mut Rng) -> FailureKind {
    match random.below(6) {
        0 => FailureKind::Transient,
        1 => FailureKind::Ambiguous,
        2 => FailureKind::TimedOut,
        3 => FailureKind::Retry { after: None },
        _ => FailureKind::Retry { after: Some(seconds(random, 40)) },
    }
}

/// What the last of these failures leads to. None of those before it was the end.
fn expected(policy: &RetryPolicy, failures: &[FailureKind], idempotent: bool) -> Decision {
    let (last, before) = failures.split_last().unwrap();
    let doubled = |span: Nanos, times: usize| Nanos::from_secs(span.get() / 1_000_000_000 * (1 << times.min(20)));
    let give_up = |reason, hold| Decision::GiveUp { reason, hold };
    let costs_an_attempt = |failure: &&FailureKind| !matches!(failure, FailureKind::Retry { after: Some(_) });
    let spent = before.iter().filter(costs_an_attempt).count();
    let is_last = spent + 1 >= policy.attempts as usize;
    let own = doubled(policy.backoff, spent).min(policy.max_delay);
    // What counts against the bounds of the server's waits.
    let counted = |after: Nanos| match policy.order {
        WaitOrder::Max | WaitOrder::Server => after.max(policy.min_wait),
        WaitOrder::Policy => policy.min_wait,
    };
    match *last {
        FailureKind::Ambiguous if !idempotent => give_up(GiveUp::NotAllowed, None),
        FailureKind::TimedOut if !idempotent || is_last => give_up(GiveUp::TimedOut, None),
        FailureKind::Transient | FailureKind::Ambiguous if is_last => give_up(GiveUp::Attempts, None),
        FailureKind::Transient | FailureKind::Ambiguous | FailureKind::TimedOut => Decision::BackOff(own),
        FailureKind::Retry { after: None } => {
            let row = before.iter().filter(|failure| **failure == FailureKind::Retry { after: None }).count();
            let longest = policy.max_delay.max(policy.bare_wait);
            let wait = doubled(policy.bare_wait, row).min(longest).max(policy.min_wait);
            if is_last { give_up(GiveUp::Attempts, Some(wait)) } else { Decision::Retry { wait } }
        }
        FailureKind::Retry { after: Some(after) } => {
            let wait = match policy.order {
                WaitOrder::Max => after.max(own),
                WaitOrder::Server => after,
                WaitOrder::Policy => own,
            };
            let wait = wait.max(policy.min_wait);
            if let Some(ceiling) = policy.ceiling
                && policy.order != WaitOrder::Policy
                && after > ceiling
            {
                return give_up(GiveUp::WaitTooLong { wait: after, ceiling }, Some(wait));
            }
            let waits: Vec<u64> = failures
                .iter()
                .filter_map(|failure| match failure {
                    FailureKind::Retry { after } => after.map(|after| counted(after).get()),
                    FailureKind::Transient | FailureKind::Ambiguous | FailureKind::TimedOut => None,
                })
                .collect();
            let sum = Nanos::new(waits.iter().sum());
            let spent = waits.len() > policy.waits as usize || policy.total_wait.is_some_and(|most| sum > most);
            if spent { give_up(GiveUp::Waits, Some(wait)) } else { Decision::Retry { wait } }
        }
    }
}

#[test]
fn every_decision_follows_from_the_list_of_all_failures() {
    let mut seen = [0; 8];
    for seed in 0..STORIES {
        let mut random = Rng::new(seed);
        let (policy, idempotent) = (policy(&mut random), random.below(2) == 0);
        let (mut spent, mut failures) = (Spent::default(), Vec::new());
        loop {
            failures.push(failure(&mut random));
            let decision = policy.decide(&mut spent, *failures.last().unwrap(), idempotent, seed);
            let known = expected(&policy, &failures, idempotent);
            assert_eq!(decision, known, "seed {seed}: {policy:?}, idempotent: {idempotent}, after {failures:?}");
            seen[match decision {
                Decision::BackOff(_) => 0,
                Decision::Retry { .. } => 1,
                Decision::GiveUp { reason: GiveUp::Attempts, .. } => 2,
                Decision::GiveUp { reason: GiveUp::Waits, .. } => 3,
                Decision::GiveUp { reason: GiveUp::WaitTooLong { .. }, .. } => 4,
                Decision::GiveUp { reason: GiveUp::NotAllowed, .. } => 5,
                Decision::GiveUp { reason: GiveUp::TimedOut, .. } => 6,
                Decision::GiveUp { reason: GiveUp::RetryBudget, .. } => 7,
            }] += 1;
            if matches!(decision, Decision::GiveUp { .. }) {
                break;
            }
        }
    }
    assert!(seen[..7].iter().all(|&times| times > 100) && seen[7] == 0, "{seen:?}");
}
