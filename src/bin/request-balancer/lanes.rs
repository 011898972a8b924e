//! What lanes mean, in plain words: what a lower one gets, and what it leaves to those above.

use std::time::Duration;

use request_balancer::engine::{Charge, PaceRef};
use request_balancer::{CheckedLane, Rules, Start, explain_log};

/// A line for each lane, where there are several or one has a name.
pub(crate) fn reading(rules: &Rules) -> Vec<String> {
    let lanes = rules.lanes();
    let mut lines = Vec::new();
    for (position, lane) in lanes.iter().enumerate() {
        let name = lane.name().map_or_else(String::new, |name| format!(", {name}"));
        let said = match position {
            0 if name.is_empty() => continue,
            0 => "the most urgent one".to_owned(),
            _ => lower(rules, lane).join("; "),
        };
        lines.push(format!("lane {}{name}: {said}", lane.priority()));
    }
    lines
}

fn lower(rules: &Rules, lane: &CheckedLane) -> Vec<String> {
    let mut said = vec![match lane.share() {
        (0, _) => "starts only what no more urgent lane can".to_owned(),
        (part, of) => format!("{part} of {of} starts at least, while it has work"),
    }];
    let names: Vec<&str> =
        rules.iter().filter(|rule| rule.priority() == lane.priority()).map(|rule| rule.name()).collect();
    let paces: Vec<Paces> = names.iter().map(|rule| Paces::of(rules, rule)).collect();
    let all = paces.iter().filter_map(|paces| paces.all).max();
    let key = paces.iter().filter_map(|paces| paces.key).max();
    said.extend(Paces { all, key }.in_words());
    let mut left: Vec<String> = names.iter().flat_map(|rule| left_free(rules, rule)).collect();
    left.sort();
    left.dedup();
    said.extend(left);
    said
}

/// How far apart starts of a lower lane are where nothing but its pace makes them wait.
pub(crate) struct Paces {
    /// All of them.
    all: Option<Duration>,
    /// Those of one key.
    key: Option<Duration>,
}

impl Paces {
    pub(crate) fn of(rules: &Rules, rule: &str) -> Self {
        let plan = rules.plan();
        let longest = |paces: &[PaceRef]| {
            // What a start takes of other units differs from call to call.
            let of_starts = paces.iter().filter(|pace| pace.charge == Charge::Requests);
            of_starts.map(|pace| pace.interval).max().map(Duration::from)
        };
        let rule = plan.rules.iter().find(|known| *known.name == *rule);
        let [all, key] = rule.map_or([None; 2], |rule| [longest(&rule.shared_pace), longest(&rule.key_pace)]);
        Self { all, key }
    }

    /// `None`: it is not paced.
    pub(crate) fn in_words(&self) -> Option<String> {
        let all = self.all.map(|pace| format!("up to {pace:?} apart"));
        let key = self.key.map(|pace| format!("up to {pace:?} apart of one key"));
        let said: Vec<String> = all.into_iter().chain(key).collect();
        (!said.is_empty()).then(|| format!("leaves room for more urgent calls: starts {}", said.join(", ")))
    }
}

/// What starts of a rule leave free of each limit.
fn left_free(rules: &Rules, rule: &str) -> Vec<String> {
    let one = rules.units().fold(Start::new(Duration::ZERO, rule, ""), |one, unit| one.units(unit, 1));
    let limits = explain_log(rules, &[], &one).limits.into_iter().filter(|limit| limit.left_free > 0);
    limits
        .map(|limit| format!("leaves {} of `{}` {} free for them", limit.left_free, limit.limit, limit.quota))
        .collect()
}
