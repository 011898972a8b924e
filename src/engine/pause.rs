//! Starting nothing for as long as nobody says otherwise: of a rule, or at all.

use super::answer::Target;
use super::plan::RuleId;
use super::scheduler::Scheduler;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Starts nothing of the rule until [`resume`](Self::resume), not even what is granted.
    pub fn pause(&mut self, now: Instant, rule: RuleId) {
        let now = self.tick(now);
        self.rules[usize::from(rule.0)].paused = true;
        self.stop(now, Target::Rule(rule));
    }

    /// Ends a rule's pause.
    pub fn resume(&mut self, now: Instant, rule: RuleId) {
        let now = self.tick(now);
        self.rules[usize::from(rule.0)].paused = false;
        self.dispatch(now);
    }

    /// Starts nothing at all until [`resume_all`](Self::resume_all), not even what is granted.
    pub fn pause_all(&mut self, now: Instant) {
        let now = self.tick(now);
        self.paused = true;
        self.stop(now, Target::Overall);
    }

    /// Ends the pause of everything; rules that are paused by themselves stay so.
    pub fn resume_all(&mut self, now: Instant) {
        let now = self.tick(now);
        self.paused = false;
        self.dispatch(now);
    }

    fn stop(&mut self, now: Instant, target: Target) {
        if self.revoke_of(now, target) {
            self.dispatch(now);
        }
    }

    /// Whether anything is paused that there still is.
    pub(super) fn pauses_anything(&self) -> bool {
        let mut rules = self.plan.rules.iter().zip(&self.rules);
        self.paused || rules.any(|(rule, state)| state.paused && !rule.removed)
    }

    /// Whether a rule starts nothing, by itself or with everything else.
    pub(super) fn is_paused(&self, rule: usize) -> bool {
        self.paused || self.rules[rule].paused
    }
}
