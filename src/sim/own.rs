//! Keys with numbers of their own: those of the rules whose name is the number of a simulated key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{LimitSpec, Plan, RuleId};
use crate::rules::Rules;

/// What keys have in place of what their rules say of each key.
#[derive(Clone, Debug)]
pub(crate) struct OwnNumbers(BTreeMap<(u16, u32), Arc<[LimitSpec]>>);

impl OwnNumbers {
    pub(crate) fn new(rules: &Rules) -> Self {
        let of_key = |name: &str| {
            let key: u32 = name.parse().ok()?;
            Some(rules.own_numbers(name).into_iter().map(move |(RuleId(rule), specs)| ((rule, key), specs)))
        };
        Self(rules.keys().filter_map(of_key).flatten().collect())
    }

    /// What limits each key of a rule, for this key.
    pub(crate) fn of<'s>(&'s self, plan: &'s Plan, rule: u16, key: u32) -> &'s [LimitSpec] {
        match self.0.get(&(rule, key)) {
            Some(own) => own,
            None => &plan.rules[usize::from(rule)].own,
        }
    }

    /// All of them, by rule and key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, u32, &Arc<[LimitSpec]>)> {
        self.0.iter().map(|(&(rule, key), specs)| (rule, key, specs))
    }
}
