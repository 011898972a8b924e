//! Which rule is how urgent, as of one moment.

use std::sync::Arc;

use super::balancer::Balancer;
use super::live::Live;

/// The rules that were in force at one moment, asked for how urgent each of them is. Rules that are replaced meanwhile don't
/// change the answers.
#[derive(Clone, Debug)]
pub(crate) struct Priorities(Arc<Live>);

impl Priorities {
    pub(crate) fn of(balancer: &Balancer) -> Self {
        Self(balancer.shared().live.load_full())
    }

    /// That of a rule: a lower number is more urgent. `None`: there is no such rule.
    pub(crate) fn get(&self, rule: &str) -> Option<u32> {
        let rule = self.0.find_or_default(rule).ok()?;
        Some(self.0.plan.lanes[self.0.rule(rule).lane].priority)
    }

    /// Those of all rules.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.0.plan.lanes.iter().map(|lane| lane.priority)
    }

    /// Goes over to the rules in force. Returns whether any rule has another priority now.
    pub(crate) fn renew(&mut self, balancer: &Balancer) -> bool {
        let live = balancer.shared().live.load();
        if Arc::ptr_eq(&live, &self.0) {
            return false;
        }
        let before = std::mem::replace(self, Self(Arc::clone(&live)));
        !self.rules().eq(before.rules()) || self.0.rules.default_rule() != before.0.rules.default_rule()
    }
    fn rules(&self) -> impl Iterator<Item = (&str, u32)> {
        let Live { plan, .. } = &*self.0;
        plan.rules.iter().filter(|rule| !rule.removed).map(|rule| (&*rule.name, plan.lanes[rule.lane].priority))
    }
}
