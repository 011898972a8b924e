//! The limits of a rules file for policies that count by themselves: one meter for each state of a limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{Instant, Plan};
use crate::rules::Rules;
use crate::sim::cost::Cost;
use crate::sim::meter::{self, Meter, Room};
use crate::sim::own::OwnNumbers;

/// All meters, made as keys come.
#[derive(Debug)]
pub(crate) struct Limiters {
    plan: Arc<Plan>,
    numbers: OwnNumbers,
    shared: Vec<Meter>,
    keys: BTreeMap<u32, Vec<Meter>>,
    own: BTreeMap<(u16, u32), Vec<Meter>>,
}

impl Limiters {
    pub(crate) fn new(rules: &Rules) -> Self {
        let plan = rules.plan();
        Self {
            shared: Meter::all(&plan.shared_limits),
            numbers: OwnNumbers::new(rules),
            plan,
            keys: BTreeMap::new(),
            own: BTreeMap::new(),
        }
    }

    /// When the limits of a key under a rule have room.
    pub(crate) fn key_room(&mut self, now: Instant, rule: u16, key: u32, cost: Cost) -> Room {
        meter::room(self.of_key(rule, key), now, cost)
    }

    /// Since when they have had room, from an instant on at which it is looked for, if they were never asked for more:
    /// what they are asked for later than that they forget.
    pub(crate) fn key_room_since(&mut self, from: Instant, rule: u16, key: u32, cost: Cost) -> Room {
        self.of_key(rule, key).map(|meter| meter.room_since(from, cost)).max().unwrap_or(Room::At(from))
    }

    fn of_key(&mut self, rule: u16, key: u32) -> impl Iterator<Item = &mut Meter> {
        let Self { plan, keys, own, numbers, .. } = self;
        let rules = &plan.rules[usize::from(rule)];
        let own = own.entry((rule, key)).or_insert_with(|| Meter::all(numbers.of(plan, rule, key)));
        let common = keys.entry(key).or_insert_with(|| Meter::all(&plan.key_limits));
        let bound = common.iter_mut().enumerate();
        let bound = bound.filter(|(limit, _)| rules.key.iter().any(|bound| bound.limit == *limit));
        own.iter_mut().chain(bound.map(|(_, meter)| meter))
    }

    /// When the limits that a rule shares with others have room.
    pub(crate) fn shared_room(&mut self, now: Instant, rule: u16, cost: Cost) -> Room {
        let rule = &self.plan.rules[usize::from(rule)];
        rule.shared.iter().map(|bound| self.shared[bound.limit].room(now, cost)).max().unwrap_or(Room::At(now))
    }

    /// An attempt begins.
    pub(crate) fn start(&mut self, now: Instant, rule: u16, key: u32, cost: Cost) {
        self.each(rule, key, |meter| meter.start(now, cost));
    }

    /// It ends.
    pub(crate) fn end(&mut self, now: Instant, rule: u16, key: u32, cost: Cost) {
        self.each(rule, key, |meter| meter.end(now, cost));
    }

    fn each(&mut self, rule: u16, key: u32, mut each: impl FnMut(&mut Meter)) {
        let Self { plan, shared, keys, own, numbers } = self;
        let rules = &plan.rules[usize::from(rule)];
        let own = own.entry((rule, key)).or_insert_with(|| Meter::all(numbers.of(plan, rule, key)));
        own.iter_mut().for_each(&mut each);
        let common = keys.entry(key).or_insert_with(|| Meter::all(&plan.key_limits));
        rules.key.iter().for_each(|bound| each(&mut common[bound.limit]));
        rules.shared.iter().for_each(|bound| each(&mut shared[bound.limit]));
    }
}
