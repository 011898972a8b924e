//! Starting nothing for as long as nobody says otherwise: of a rule, or at all.

use super::plan::RuleId;
use super::scheduler::Scheduler;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Starts nothing of the rule until [`resume`](Self::resume).
    pub fn pause(&mut self, rule: RuleId) {
        // Others may have waited for what its first request reserved.
        self.settled = false;
        self.rules[usize::from(rule.0)].paused = true;
    }

    /// Ends a rule's pause.
    pub fn resume(&mut self, now: Instant, rule: RuleId) {
        let now = self.tick(now);
        self.rules[usize::from(rule.0)].paused = false;
        self.dispatch(now);
    }

    /// Starts nothing at all until [`resume_all`](Self::resume_all).
    pub fn pause_all(&mut self) {
        self.settled = false;
        self.paused = true;
    }

    /// Ends the pause of everything; rules that are paused by themselves stay so.
    pub fn resume_all(&mut self, now: Instant) {
        let now = self.tick(now);
        self.paused = false;
        self.dispatch(now);
    }

    /// Whether a rule starts nothing, by itself or with everything else.
    pub(super) fn is_paused(&self, rule: usize) -> bool {
        self.paused || self.rules[rule].paused
    }
}
