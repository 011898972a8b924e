//! How many retries everybody together may have: a share of all starts. Pure, in whole numbers.

/// Retries that nothing had to be started for.
const AT_FIRST: u64 = 10;

/// Starts for which a share is saved up at most: what went well long ago excuses no storm now.
const REMEMBERED: u64 = 1_000;

/// A budget of retries that all requests share: each start adds its share of one, each retry takes one.
///
/// There are 10 from the beginning, and never more left than the larger of 10 and what 1,000 starts add.
///
/// ```
/// use request_balancer::engine::RetryBudget;
///
/// let mut budget = RetryBudget::new(1, 10);
/// assert_eq!((0..100).filter(|_| budget.take()).count(), 10);
/// for _ in 0..25 {
///     budget.start();
/// }
/// assert_eq!((0..100).filter(|_| budget.take()).count(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    part: u64,
    of: u64,
    /// In parts of a retry, of which `of` make one.
    left: u64,
}

impl RetryBudget {
    /// Retries for `part` of `of` starts. A whole of zero counts as one.
    #[must_use]
    pub const fn new(part: u32, of: u32) -> Self {
        // `From` is not const.
        let (part, of) = (part as u64, if of == 0 { 1 } else { of as u64 });
        Self { part, of, left: AT_FIRST * of }
    }

    /// An attempt began, the first of its request or a later one.
    pub fn start(&mut self) {
        self.left = (self.left + self.part).min(self.most());
    }

    /// Takes a retry out of the budget. Returns false if there is none.
    pub const fn take(&mut self) -> bool {
        match self.left.checked_sub(self.of) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// The same number of retries left, rounded down, under another share.
    #[must_use]
    pub(super) fn succeeding(self, old: Self) -> Self {
        // Both are far below 2^64: the product of the two is not.
        let left = u128::from(old.left) * u128::from(self.of) / u128::from(old.of);
        Self { left: u64::try_from(left).unwrap_or(u64::MAX).min(self.most()), ..self }
    }

    fn most(&self) -> u64 {
        (AT_FIRST * self.of).max(REMEMBERED * self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &mut RetryBudget) -> usize {
        (0..10_000).filter(|_| budget.take()).count()
    }

    #[test]
    fn no_more_is_saved_up_than_a_thousand_starts_add() {
        let mut budget = RetryBudget::new(1, 5);
        (0..1_000_000).for_each(|_| budget.start());
        assert_eq!(taken(&mut budget), 200);
        let mut small = RetryBudget::new(1, 1_000);
        (0..1_000_000).for_each(|_| small.start());
        assert_eq!(taken(&mut small), 10);
    }

    #[test]
    fn shares_add_up_without_a_rest() {
        let mut budget = RetryBudget::new(1, 3);
        assert_eq!(taken(&mut budget), 10);
        let retries: Vec<bool> = (0..9)
            .map(|_| {
                budget.start();
                budget.take()
            })
            .collect();
        assert_eq!(retries, [false, false, true].repeat(3));
    }

    #[test]
    fn retries_start_too() {
        // Every attempt fails: of all starts a tenth are retries, beside the first ten.
        let mut budget = RetryBudget::new(1, 10);
        let (mut starts, mut retries) = (0_u64, 0_u64);
        for _ in 0..900 {
            budget.start();
            starts += 1;
            while budget.take() {
                budget.start();
                starts += 1;
                retries += 1;
            }
        }
        assert_eq!((starts, retries), (1_011, 111));
    }

    #[test]
    fn another_share_keeps_what_is_left() {
        let mut old = RetryBudget::new(1, 2);
        (0..60).for_each(|_| old.start());
        assert_eq!(taken(&mut RetryBudget::new(1, 10).succeeding(old)), 40);
        assert_eq!(taken(&mut RetryBudget::new(1, 1_000).succeeding(old)), 10);
        assert_eq!(taken(&mut RetryBudget::new(u32::MAX, u32::MAX).succeeding(old)), 40);
    }
}
