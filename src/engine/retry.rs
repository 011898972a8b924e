//! What a failure costs and how long it waits. Pure.

use super::time::Nanos;

/// The retry policy of a rule or a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Starts that may be spent on failures, the first included; a retry without a wait counts too. At least 1.
    pub attempts: u32,
    /// Delay after the first transient failure; doubles with each further one.
    pub backoff: Nanos,
    /// Longest delay after a transient failure.
    pub max_delay: Nanos,
    /// Fraction of each delay that is drawn at random, from 0 to 1.
    pub jitter: f64,
    /// Shortest wait of a retry, whatever the server said. Backoff is not a wait of this kind.
    pub min_wait: Nanos,
    /// Wait where the server says "slow down" without a number; doubles with each further one in a row, to at most
    /// `max_delay`.
    pub bare_wait: Nanos,
    /// How many server-directed waits one request may have.
    pub waits: u32,
    /// The longest single server-directed wait. `None`: any.
    pub ceiling: Option<Nanos>,
    /// Server-directed waits in sum. `None`: any.
    pub total_wait: Option<Nanos>,
    /// Default scope of the hold that `retry` sets.
    pub hold: Scope,
    /// How the policy's own delay and the server's wait combine.
    pub order: WaitOrder,
}

/// What a hold stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The one request.
    Request,
    /// The queue of its rule and key.
    Queue,
    /// Its key, whatever the rule.
    Key,
    /// Its rule, whatever the key.
    Rule,
    /// Everything.
    Overall,
    /// The endpoint of the attempt, where there is a pool; else its key.
    Endpoint,
}

/// How the policy's own delay and the server's wait combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitOrder {
    /// The longer of the two.
    #[default]
    Max,
    /// The server's if it said one.
    Server,
    /// The policy's, whatever the server said.
    Policy,
}

/// How an attempt failed, as far as another one may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It had no effect.
    Transient,
    /// It may have had its effect.
    Ambiguous,
    /// It ran for as long as it may: ambiguous, too.
    TimedOut,
    /// The server asked to come again later.
    Retry {
        /// How long to wait, if it said so.
        after: Option<Nanos>,
    },
}

/// What one request has used up of its policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Starts spent on failures.
    pub failures: u32,
    /// Server-directed waits so far.
    pub waits: u32,
    /// Their sum.
    pub total_wait: Nanos,
    /// How many times in a row the server said "slow down" without a number: to this request, or to all of the scope
    /// that it was told to hold, if its owner [counts them](super::Scheduler::slow_down) there.
    pub bare: u32,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No further attempt.
    GiveUp {
        /// Why.
        reason: GiveUp,
        /// How long the server wants to be left alone: the scope is held for others all the same.
        hold: Option<Nanos>,
    },
    /// Another attempt after this delay.
    BackOff(Nanos),
    /// Another attempt after this wait, for which the scope is held.
    Retry {
        /// How long.
        wait: Nanos,
    },
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// All attempts are spent.
    Attempts,
    /// All server-directed waits are spent, by number or in sum.
    Waits,
    /// The wait is longer than the ceiling.
    WaitTooLong {
        /// The wait.
        wait: Nanos,
        /// The ceiling.
        ceiling: Nanos,
    },
    /// The attempt may have had its effect and must not be repeated.
    NotAllowed,
    /// The attempt ran for as long as it may, and must not be repeated or was the last.
    TimedOut,
    /// All retries that everybody together has are spent. [`RetryPolicy::decide`] never says so: it knows one request.
    RetryBudget,
}

impl RetryPolicy {
    /// The delay after failure number `attempt`, from 1. The same seed draws the same jitter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use request_balancer::Retry;
    ///
    /// let policy = Retry::new().backoff(Duration::from_secs(10)).max_delay(Duration::from_secs(60)).jitter(0.0).policy();
    /// let delays = [1, 2, 3, 4, 5].map(|attempt| Duration::from(policy.delay(attempt, 0)).as_secs());
    /// assert_eq!(delays, [10, 20, 40, 60, 60]);
    /// // Of each delay a random part may be cut, here up to half of it.
    /// let policy = Retry::new().backoff(Duration::from_secs(10)).jitter(0.5).policy();
    /// assert!((0..100).all(|seed| (5..=10).contains(&Duration::from(policy.delay(1, seed)).as_secs())));
    /// ```
    #[must_use]
    pub fn delay(&self, attempt: u32, seed: u64) -> Nanos {
        let full = doubled(self.backoff, attempt.saturating_sub(1)).min(self.max_delay);
        let fraction = self.jitter.clamp(0.0, 1.0) * draw(seed.wrapping_add(u64::from(attempt)));
        // A product of two fractions below 1: the cut is between nothing and the whole.
        let cut = full.get() as f64 * fraction;
        Nanos::new(full.get().saturating_sub(cut as u64))
    }

    /// What follows a failure, entered into `spent`.
    ///
    /// Failures and server-directed waits are two budgets: neither touches the other. Pure, so that a policy can be tried
    /// without a server, a clock or a balancer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use request_balancer::{Decision, FailureKind, GiveUp, Nanos, Retry, Spent};
    ///
    /// let policy = Retry::new().attempts(2).jitter(0.0).ceiling(Duration::from_secs(60)).policy();
    /// let mut spent = Spent::default();
    /// let wait = Nanos::from_secs(30);
    /// // A wait that the server asks for is no failure.
    /// let asked = FailureKind::Retry { after: Some(wait) };
    /// assert_eq!(policy.decide(&mut spent, asked, false, 0), Decision::Retry { wait });
    /// let second = Nanos::from_secs(1);
    /// assert_eq!(policy.decide(&mut spent, FailureKind::Transient, false, 0), Decision::BackOff(second));
    /// let over = Decision::GiveUp { reason: GiveUp::Attempts, hold: None };
    /// assert_eq!(policy.decide(&mut spent, FailureKind::Transient, false, 0), over);
    /// assert_eq!(spent, Spent { failures: 2, waits: 1, total_wait: wait, bare: 0 });
    /// // What may have had its effect is not done twice, unless that does no harm.
    /// let over = Decision::GiveUp { reason: GiveUp::NotAllowed, hold: None };
    /// assert_eq!(policy.decide(&mut Spent::default(), FailureKind::Ambiguous, false, 0), over);
    /// assert_eq!(policy.decide(&mut Spent::default(), FailureKind::Ambiguous, true, 0), Decision::BackOff(second));
    /// ```
    pub fn decide(&self, spent: &mut Spent, failure: FailureKind, idempotent: bool, seed: u64) -> Decision {
        self.decide_in_pool(spent, failure, idempotent, seed, |wait| wait)
    }

    /// The same where the request itself may not have to wait as long as what it told to wait: `rest` says how long,
    /// given how long its endpoint is to be left alone. Only its own waiting counts against `ceiling` and `total_wait`.
    ///
    /// ```
    /// use request_balancer::{Decision, FailureKind, Nanos, Retry, Spent};
    ///
    /// let policy = Retry::new().jitter(0.0).ceiling(std::time::Duration::from_secs(60)).policy();
    /// let (mut spent, wait) = (Spent::default(), Nanos::from_secs(90));
    /// let asked = FailureKind::Retry { after: Some(wait) };
    /// let other_is_free = |_| Nanos::ZERO;
    /// let decision = policy.decide_in_pool(&mut spent, asked, false, 0, other_is_free);
    /// assert_eq!((decision, spent.total_wait), (Decision::Retry { wait }, Nanos::ZERO));
    /// ```
    pub fn decide_in_pool(
        &self,
        spent: &mut Spent,
        failure: FailureKind,
        idempotent: bool,
        seed: u64,
        rest: impl FnOnce(Nanos) -> Nanos,
    ) -> Decision {
        let fail = |spent: &mut Spent, allowed: Result<(), GiveUp>, last: GiveUp| {
            spent.failures = spent.failures.saturating_add(1);
            match allowed {
                Err(reason) => Decision::GiveUp { reason, hold: None },
                Ok(()) if spent.failures >= self.attempts => Decision::GiveUp { reason: last, hold: None },
                Ok(()) => Decision::BackOff(self.delay(spent.failures, seed)),
            }
        };
        let unless_harmful = |reason| if idempotent { Ok(()) } else { Err(reason) };
        match failure {
            FailureKind::Transient => fail(spent, Ok(()), GiveUp::Attempts),
            FailureKind::Ambiguous => fail(spent, unless_harmful(GiveUp::NotAllowed), GiveUp::Attempts),
            FailureKind::TimedOut => fail(spent, unless_harmful(GiveUp::TimedOut), GiveUp::TimedOut),
            FailureKind::Retry { after: None } => {
                let wait =
                    doubled(self.bare_wait, spent.bare).min(self.max_delay.max(self.bare_wait)).max(self.min_wait);
                spent.bare = spent.bare.saturating_add(1);
                spent.failures = spent.failures.saturating_add(1);
                if spent.failures >= self.attempts {
                    return Decision::GiveUp { reason: GiveUp::Attempts, hold: Some(wait) };
                }
                Decision::Retry { wait }
            }
            FailureKind::Retry { after: Some(after) } => self.wait(spent, after, seed, rest),
        }
    }

    /// An attempt was turned away by an endpoint that is of no more use, and another one is asked at once: that is no
    /// failure, but counts among the waits.
    pub fn turn_away(&self, spent: &mut Spent) -> Decision {
        if spent.waits >= self.waits {
            return Decision::GiveUp { reason: GiveUp::Waits, hold: None };
        }
        spent.waits += 1;
        Decision::BackOff(Nanos::ZERO)
    }

    fn wait(&self, spent: &mut Spent, after: Nanos, seed: u64, rest: impl FnOnce(Nanos) -> Nanos) -> Decision {
        let own = || self.delay(spent.failures.saturating_add(1), seed);
        // What bounds the waits that a server asks for is no bound for the policy's own delay.
        let (told, wait) = match self.order {
            WaitOrder::Max => (after, after.max(own())),
            WaitOrder::Server => (after, after),
            WaitOrder::Policy => (Nanos::ZERO, own()),
        };
        let wait = wait.max(self.min_wait);
        let give_up = |reason| Decision::GiveUp { reason, hold: Some(wait) };
        // Less, where the request need not wait for so long.
        let bounded = rest(told);
        if let Some(ceiling) = self.ceiling
            && bounded > ceiling
        {
            return give_up(GiveUp::WaitTooLong { wait: bounded, ceiling });
        }
        let counted = if bounded < told { bounded } else { bounded.max(self.min_wait) };
        let total = spent.total_wait.saturating_add(counted);
        if spent.waits >= self.waits || self.total_wait.is_some_and(|most| total > most) {
            return give_up(GiveUp::Waits);
        }
        spent.waits += 1;
        spent.total_wait = total;
        Decision::Retry { wait }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 3,
            backoff: Nanos::from_secs(1),
            max_delay: Nanos::from_secs(30),
            jitter: 0.5,
            min_wait: Nanos::from_secs(1),
            bare_wait: Nanos::from_secs(5),
            waits: 20,
            ceiling: Some(Nanos::from_secs(300)),
            total_wait: Some(Nanos::from_secs(900)),
            hold: Scope::Endpoint,
            order: WaitOrder::Max,
        }
    }
}

/// `base` doubled `times` times.
fn doubled(base: Nanos, times: u32) -> Nanos {
    base.saturating_mul(1_u64.checked_shl(times).unwrap_or(u64::MAX))
}

/// A number from 0 up to but not including 1, by the finaliser of splitmix64.
pub(super) fn draw(seed: u64) -> f64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    fn exact() -> RetryPolicy {
        RetryPolicy { jitter: 0.0, ..RetryPolicy::default() }
    }

    fn retry(after: Nanos) -> FailureKind {
        FailureKind::Retry { after: Some(after) }
    }

    #[test]
    fn backoff_doubles_up_to_the_longest_delay() {
        let policy =
            RetryPolicy { attempts: 8, backoff: Nanos::from_secs(10), max_delay: Nanos::from_secs(300), ..exact() };
        let mut spent = Spent::default();
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(
                policy.decide(&mut spent, FailureKind::Transient, false, 1),
                Decision::BackOff(Nanos::from_secs(expected))
            );
        }
        assert_eq!(
            policy.decide(&mut spent, FailureKind::Transient, false, 1),
            Decision::GiveUp { reason: GiveUp::Attempts, hold: None }
        );
        assert_eq!(spent.failures, 8);
    }

    #[test]
    fn jitter_cuts_at_most_its_fraction_and_follows_the_seed() {
        let policy = RetryPolicy::default();
        let delays: Vec<_> = (0..1_000).map(|seed| policy.delay(1, seed)).collect();
        assert!(delays.iter().all(|delay| (Nanos::from_millis(500)..=SECOND).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < Nanos::from_millis(510)));
        assert!(delays.iter().any(|delay| *delay > Nanos::from_millis(990)));
        assert_eq!(policy.delay(1, 7), policy.delay(1, 7));
        assert_ne!(policy.delay(1, 7), policy.delay(1, 8));
    }

    #[test]
    fn waits_and_failures_are_two_budgets() {
        let policy = RetryPolicy { waits: 5, ..exact() };
        let mut spent = Spent::default();
        for _ in 0..2 {
            assert_eq!(policy.decide(&mut spent, retry(SECOND), false, 1), Decision::Retry { wait: SECOND });
        }
        assert_eq!(policy.decide(&mut spent, FailureKind::Transient, false, 1), Decision::BackOff(SECOND));
        for _ in 0..3 {
            let wait = Nanos::from_secs(2);
            assert_eq!(policy.decide(&mut spent, retry(wait), false, 1), Decision::Retry { wait });
        }
        assert_eq!(spent, Spent { failures: 1, waits: 5, total_wait: Nanos::from_secs(8), bare: 0 });
        assert_eq!(
            policy.decide(&mut spent, retry(SECOND), false, 1),
            Decision::GiveUp { reason: GiveUp::Waits, hold: Some(Nanos::from_secs(2)) }
        );
        assert_eq!(policy.decide(&mut spent, FailureKind::Transient, false, 1), Decision::BackOff(Nanos::from_secs(2)));
    }

    #[test]
    fn waits_are_bounded_in_sum() {
        let policy = RetryPolicy { total_wait: Some(Nanos::from_secs(10)), ..exact() };
        let mut spent = Spent::default();
        let wait = Nanos::from_secs(5);
        assert_eq!(policy.decide(&mut spent, retry(wait), false, 1), Decision::Retry { wait });
        assert_eq!(policy.decide(&mut spent, retry(wait), false, 1), Decision::Retry { wait });
        assert_eq!(
            policy.decide(&mut spent, retry(SECOND), false, 1),
            Decision::GiveUp { reason: GiveUp::Waits, hold: Some(SECOND) }
        );
    }

    #[test]
    fn a_wait_above_the_ceiling_ends_the_request_and_holds_the_others() {
        let policy = RetryPolicy { ceiling: Some(Nanos::ZERO), ..exact() };
        let wait = Nanos::from_secs(3);
        assert_eq!(
            policy.decide(&mut Spent::default(), retry(wait), false, 1),
            Decision::GiveUp { reason: GiveUp::WaitTooLong { wait, ceiling: Nanos::ZERO }, hold: Some(wait) }
        );
        assert_eq!(
            exact().decide(&mut Spent::default(), retry(Nanos::MAX), false, 1),
            Decision::GiveUp {
                reason: GiveUp::WaitTooLong { wait: Nanos::MAX, ceiling: Nanos::from_secs(300) },
                hold: Some(Nanos::MAX)
            }
        );
    }

    #[test]
    fn the_own_delay_does_not_count_against_the_servers_ceiling() {
        let long = Nanos::from_secs(600);
        let policy = RetryPolicy { backoff: long, max_delay: long, ..exact() };
        let mut spent = Spent::default();
        assert_eq!(policy.decide(&mut spent, retry(SECOND), false, 1), Decision::Retry { wait: long });
        assert_eq!(spent.total_wait, SECOND);
    }

    #[test]
    fn retries_without_a_number_double_and_spend_attempts() {
        let policy = RetryPolicy { bare_wait: SECOND, ..exact() };
        let bare = FailureKind::Retry { after: None };
        let mut spent = Spent::default();
        assert_eq!(policy.decide(&mut spent, bare, false, 1), Decision::Retry { wait: SECOND });
        assert_eq!(policy.decide(&mut spent, bare, false, 1), Decision::Retry { wait: Nanos::from_secs(2) });
        assert_eq!(
            policy.decide(&mut spent, bare, false, 1),
            Decision::GiveUp { reason: GiveUp::Attempts, hold: Some(Nanos::from_secs(4)) }
        );
    }

    #[test]
    fn no_wait_is_shorter_than_the_shortest() {
        let wait = Nanos::from_millis(1_500);
        let policy = RetryPolicy { min_wait: wait, bare_wait: SECOND, ..exact() };
        let mut spent = Spent::default();
        assert_eq!(policy.decide(&mut spent, retry(Nanos::ZERO), false, 1), Decision::Retry { wait });
        assert_eq!(policy.decide(&mut spent, FailureKind::Retry { after: None }, false, 1), Decision::Retry { wait });
    }

    #[test]
    fn order_decides_between_the_own_delay_and_the_servers_wait() {
        let two = Nanos::from_secs(2);
        let policy = |order| RetryPolicy { backoff: two, max_delay: two, bare_wait: two, order, ..exact() };
        let waits = |policy: RetryPolicy| {
            [Some(Nanos::from_secs(10)), Some(SECOND), None].map(|after| {
                match policy.decide(&mut Spent::default(), FailureKind::Retry { after }, false, 1) {
                    Decision::Retry { wait } => wait,
                    Decision::GiveUp { .. } | Decision::BackOff(_) => Nanos::ZERO,
                }
            })
        };
        assert_eq!(waits(policy(WaitOrder::Max)), [Nanos::from_secs(10), two, two]);
        assert_eq!(waits(policy(WaitOrder::Server)), [Nanos::from_secs(10), SECOND, two]);
        assert_eq!(waits(policy(WaitOrder::Policy)), [two, two, two]);
    }

    #[test]
    fn what_may_have_worked_is_repeated_only_if_that_does_no_harm() {
        assert_eq!(
            exact().decide(&mut Spent::default(), FailureKind::Ambiguous, false, 1),
            Decision::GiveUp { reason: GiveUp::NotAllowed, hold: None }
        );
        assert_eq!(exact().decide(&mut Spent::default(), FailureKind::Ambiguous, true, 1), Decision::BackOff(SECOND));
    }

    #[test]
    fn the_largest_numbers_saturate() {
        let policy = RetryPolicy {
            attempts: u32::MAX,
            backoff: Nanos::MAX,
            max_delay: Nanos::MAX,
            bare_wait: Nanos::MAX,
            waits: u32::MAX,
            ceiling: None,
            total_wait: None,
            ..exact()
        };
        let mut spent = Spent { failures: u32::MAX - 2, waits: 7, total_wait: Nanos::MAX, bare: u32::MAX };
        assert_eq!(policy.decide(&mut spent, FailureKind::Transient, false, u64::MAX), Decision::BackOff(Nanos::MAX));
        assert_eq!(policy.decide(&mut spent, retry(Nanos::MAX), false, 1), Decision::Retry { wait: Nanos::MAX });
        assert_eq!(policy.delay(u32::MAX, 1), Nanos::MAX);
        let jittered = RetryPolicy { jitter: 1.0, ..policy };
        assert!(jittered.delay(u32::MAX, 3) < Nanos::MAX);
    }
}
