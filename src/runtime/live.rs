//! The rules that are in force, and going over to others.

use std::collections::HashMap;
#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

#[cfg(feature = "metrics")]
use super::meters::Meters;
use super::shared::{Shared, State};
use crate::engine::{Charge, EndpointId, Instant, KeyId, LimitSpec, Plan, RuleId, RulePlan, Scheduler};
use crate::error::Refused;
use crate::key::Key;
use crate::rules::wording::nearest;
use crate::rules::{Finding, FindingCode, Findings, Quota, Rules};

/// The rules in force, with what is looked up in them.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) rules: Rules,
    pub(crate) plan: Arc<Plan>,
    /// The rules by name.
    names: Box<[(Arc<str>, RuleId)]>,
    /// The rule for all other names.
    default: Option<RuleId>,
    /// The units that there ever were, by position.
    units: Vec<String>,
    /// Whether an attempt can take a slot that a request it waits for needs.
    pub(crate) nests: bool,
    #[cfg(feature = "metrics")]
    meters: OnceLock<Box<[Arc<Meters>]>>,
}

impl Live {
    pub(crate) fn new(rules: Rules) -> Self {
        let plan = rules.plan();
        let units = rules.units().map(str::to_owned).collect();
        Self::of(rules, plan, units)
    }

    /// Other rules after these: rules and units keep their positions, and endpoints those that the machine gives them.
    fn followed_by<W>(&self, rules: Rules, machine: &Scheduler<W>, now: Instant) -> Self {
        let mut units = self.units.clone();
        let mut place = |unit: &str| {
            units.iter().position(|known| known == unit).unwrap_or_else(|| {
                units.push(unit.to_owned());
                units.len() - 1
            })
        };
        let places: Vec<usize> = rules.units().map(&mut place).collect();
        let plan = machine.succeeding(now, Arc::unwrap_or_clone(rules.plan()).with_units_at(&places));
        Self::of(rules, Arc::new(plan), units)
    }

    fn of(rules: Rules, plan: Arc<Plan>, units: Vec<String>) -> Self {
        // Rules that there were keep their places; what is beyond the last place is not found.
        let listed = (0..=u16::MAX).map(RuleId).zip(&plan.rules).filter(|(_, rule)| !rule.removed);
        let mut names: Box<[_]> = listed.map(|(id, rule)| (Arc::clone(&rule.name), id)).collect();
        names.sort();
        let nests = plan.counts_any_end();
        let mut live = Self {
            #[cfg(feature = "metrics")]
            meters: OnceLock::new(),
            rules,
            plan,
            names,
            default: None,
            units,
            nests,
        };
        live.default = live.rules.default_rule().and_then(|name| live.find(name).ok());
        live
    }

    /// The rule of this name.
    pub(crate) fn find(&self, name: &str) -> Result<RuleId, Refused> {
        match self.names.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(position) => Ok(self.names[position].1),
            Err(_) => Err(self.unknown(name)),
        }
    }

    /// The rule of this name, or else the one for names that are none.
    pub(crate) fn find_or_default(&self, name: &str) -> Result<RuleId, Refused> {
        self.find(name).or_else(|unknown| self.default.ok_or(unknown))
    }

    /// The endpoint of this name.
    pub(crate) fn find_endpoint(&self, name: &str) -> Result<EndpointId, Refused> {
        let pool = self.plan.pool.as_ref();
        pool.and_then(|pool| pool.find(name)).ok_or_else(|| {
            let nearest = nearest(name, self.rules.endpoints()).map(str::to_owned);
            Refused::UnknownEndpoint { name: name.to_owned(), nearest }
        })
    }

    /// Whether each of its endpoints has a place: there is none left where removed ones are still needed.
    fn has_places(&self) -> Result<(), Findings> {
        let listed = self.plan.pool.as_ref().map_or(0, |pool| pool.listed().count());
        let wanted = self.rules.endpoints().count();
        if listed == wanted {
            return Ok(());
        }
        let found =
            format!("{} endpoints more, beside removed ones of which attempts or starts are left", wanted - listed);
        Err(Finding::new(FindingCode::TooMany, found, format!("up to {} in all", u16::MAX)).into())
    }

    /// Whether keys stay with an endpoint.
    pub(super) fn is_sticky(&self) -> bool {
        self.plan.pool.as_ref().is_some_and(|pool| pool.sticky)
    }

    /// The name of an endpoint.
    pub(crate) fn endpoint(&self, endpoint: EndpointId) -> Arc<str> {
        let plan = self.plan.pool.as_ref().and_then(|pool| pool.endpoints.get(usize::from(endpoint.0)));
        plan.map_or_else(|| "".into(), |plan| Arc::clone(&plan.name))
    }

    pub(crate) fn rule(&self, rule: RuleId) -> &RulePlan {
        &self.plan.rules[usize::from(rule.0)]
    }

    /// What the limits count that are in this unit.
    pub(crate) fn unit(&self, name: &str) -> Result<Charge, Refused> {
        let unknown = || Refused::UnknownUnit {
            name: name.to_owned(),
            nearest: nearest(name, self.rules.units()).map(str::to_owned),
        };
        self.charge(name).ok_or_else(unknown)
    }

    /// The same, where a unit that was never declared is no mistake.
    pub(super) fn charge(&self, name: &str) -> Option<Charge> {
        match self.rules.unit(name)? {
            Charge::Unit(_) => self.units.iter().position(|known| known == name).map(Charge::Unit),
            charge @ (Charge::Attempt | Charge::Requests) => Some(charge),
        }
    }

    /// What counts the requests of each rule, registered when it is first asked for. Not under the lock.
    #[cfg(feature = "metrics")]
    pub(super) fn meters(&self) -> &[Arc<Meters>] {
        self.meters.get_or_init(|| Meters::all(&self.plan))
    }

    /// The name of the unit that a limit counts; `None` for requests and attempts.
    pub(crate) fn unit_name(&self, charge: Charge) -> Option<&str> {
        match charge {
            Charge::Unit(unit) => self.units.get(unit).map(String::as_str),
            Charge::Attempt | Charge::Requests => None,
        }
    }

    /// Limits that were compiled by the rules in force, with the positions that units have here.
    fn adopt(&self, specs: &Arc<[LimitSpec]>) -> Arc<[LimitSpec]> {
        let names: Vec<&str> = self.rules.units().collect();
        if names.iter().zip(&self.units).all(|(name, known)| name == known) {
            return Arc::clone(specs);
        }
        let adopt = |spec: &LimitSpec| {
            let charge = match spec.charge {
                Charge::Unit(unit) => names.get(unit).and_then(|name| self.unit(name).ok()).unwrap_or(spec.charge),
                charge @ (Charge::Attempt | Charge::Requests) => charge,
            };
            LimitSpec { charge, ..spec.clone() }
        };
        specs.iter().map(adopt).collect()
    }

    #[cold]
    fn unknown(&self, name: &str) -> Refused {
        let nearest = nearest(name, self.names.iter().map(|(known, _)| &**known)).map(str::to_owned);
        Refused::UnknownRule { name: name.to_owned(), nearest }
    }
}

/// A key's quotas by the name of the rule.
type ByRule = HashMap<Arc<str>, Vec<Quota>>;

/// Numbers that single keys were given in code, by key and name of the rule.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    given: RwLock<HashMap<Key, ByRule>>,
}

impl Numbers {
    /// The numbers of a key under the rules in force: those of the file, and over them those given in code.
    fn of(&self, live: &Live, key: &Key) -> Vec<(RuleId, Arc<[LimitSpec]>)> {
        let mut numbers = match live.rules.keys().len() {
            0 => Vec::new(),
            _ => live.rules.own_numbers(&key.to_string()),
        };
        // Positions in the rules are not those in the plan once rules were replaced.
        let plan = live.rules.plan();
        for (rule, specs) in &mut numbers {
            if let Ok(id) = live.find(&plan.rules[usize::from(rule.0)].name) {
                (*rule, *specs) = (id, live.adopt(specs));
            }
        }
        let given = self.given.read().unwrap_or_else(PoisonError::into_inner);
        for (name, quotas) in given.get(key).into_iter().flatten() {
            // A rule that is gone has no numbers.
            if let (Ok(rule), Ok((_, specs))) = (live.find(name), live.rules.compile_own(name, quotas)) {
                numbers.retain(|(other, _)| *other != rule);
                numbers.push((rule, live.adopt(&specs)));
            }
        }
        numbers
    }

    fn give(&self, key: &Key, rule: &str, quotas: &[Quota]) {
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        if quotas.is_empty() {
            if let Some(of_key) = given.get_mut(key) {
                of_key.remove(rule);
                if of_key.is_empty() {
                    given.remove(key);
                }
            }
        } else {
            given.entry(key.clone()).or_default().insert(rule.into(), quotas.to_vec());
        }
    }
}

impl Shared {
    /// Whether endpoints come from code, so that rules that list none mean those.
    #[allow(dead_code, reason = "floors above this one use it")]
    pub(crate) fn has_endpoints_of_code(&self) -> bool {
        self.is_typed() || self.coded.load(Ordering::Acquire)
    }

    /// Goes over to other rules. Returns whether there is a way to them.
    pub(crate) fn replace_rules(&self, rules: Rules) -> bool {
        let (typed, coded) = (self.is_typed(), self.coded.load(Ordering::Acquire));
        let next = |live: &Live| {
            let known = |name: &str| live.rules.endpoints().any(|known| known == name);
            let lists_known = rules.endpoints().any(known);
            let lists_any = rules.endpoints().next().is_some();
            Ok(if !lists_any && (rules.has_pool() || coded) || typed && !lists_known {
                // Endpoints that came from code stay.
                rules.with_endpoints_of(&live.rules)
            } else if typed {
                // The others have no value.
                rules.with_endpoints_that(known)
            } else {
                rules.clone()
            })
        };
        // Nothing that was checked is found wrong here, save that there are no places for so many endpoints.
        let result = self.go_over(next, |state, now, _| state.machine.enable_endpoints(now));
        if let Err(findings) = &result {
            super::watch::not_replaced(findings);
        }
        if let Some(afar) = self.afar.get().filter(|_| result.is_ok()) {
            afar.rules_changed();
        }
        result.is_ok()
    }

    /// Goes over to the rules that follow from those in force. What comes of it is under the same lock.
    pub(super) fn go_over<R>(
        &self,
        next: impl FnOnce(&Live) -> Result<Rules, Findings>,
        then: impl FnOnce(&mut State, Instant, &Live) -> R,
    ) -> Result<R, Findings> {
        let result = self.with(|state, now| {
            // Under the lock, so that two replacements follow each other.
            let before = self.live.load();
            let live = before.followed_by(next(&before)?, &state.machine, now);
            live.has_places()?;
            let live = Arc::new(live);
            self.nests.store(live.nests, Ordering::Relaxed);
            self.live.store(Arc::clone(&live));
            state.machine.replace(now, Arc::clone(&live.plan));
            Ok::<R, Findings>(then(state, now, &live))
        })?;
        // Records forgot the numbers of their own.
        for key in self.known_keys() {
            self.renew_own(&key);
        }
        Ok(result)
    }

    /// From now on endpoints have values: only those are used that were given one.
    pub(super) fn make_typed(&self) {
        self.typed.store(true, Ordering::Release);
    }

    /// Endpoints came from code: rules that list none leave them.
    pub(super) fn note_coded(&self) {
        self.coded.store(true, Ordering::Release);
    }

    pub(super) fn is_typed(&self) -> bool {
        self.typed.load(Ordering::Acquire)
    }

    /// Gives a key its own numbers under a rule.
    pub(crate) fn set_limit(&self, rule: &str, key: &Key, quotas: &[Quota]) -> Result<(), Findings> {
        // With no quota it is only the rule that can be wrong.
        let checked: &[Quota] = if quotas.is_empty() { &[Quota::per_second(1)] } else { quotas };
        self.live.load().rules.compile_own(rule, checked)?;
        let key = self.aliases.resolve(key);
        self.numbers.give(&key, rule, quotas);
        self.renew_own(&key);
        Ok(())
    }

    /// Tells the machine what a new record has of its own: its numbers, and what endpoints are chosen by that it stays with.
    pub(super) fn tell_own(&self, state: &mut State, now: Instant, key: &Key, record: KeyId) {
        let live = self.live.load();
        if live.is_sticky() {
            state.machine.set_mark(record, key.mark());
        }
        for (rule, specs) in self.numbers.of(&live, key) {
            state.machine.set_own(now, record, rule, Some(specs));
        }
    }

    /// Tells the machine what a record has of its own that it has already.
    fn renew_own(&self, key: &Key) {
        let Some(record) = self.record(key) else { return };
        self.with(|state, now| {
            // Under the lock, so that nobody goes over to other rules or numbers before the machine has these.
            let live = self.live.load();
            if live.is_sticky() {
                state.machine.set_mark(record, key.mark());
            }
            let numbers = self.numbers.of(&live, key);
            for (rule, _) in (0..=u16::MAX).map(RuleId).zip(&live.plan.rules) {
                let own = numbers.iter().find(|(of, _)| *of == rule).map(|(_, specs)| Arc::clone(specs));
                if own.is_some() || state.machine.has_own(record, rule) {
                    state.machine.set_own(now, record, rule, own);
                }
            }
        });
    }
}
