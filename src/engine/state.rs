//! What outlives a restart: what limits know that count for longer than a minute, holds, rows of "slow down", and invalid
//! attempts.
//!
//! It is told in names and instants, so that a machine with other rules or another epoch can make use of it.

use std::sync::Arc;

use super::answer::{KeyId, Target};
use super::limit::{Past, Spec};
use super::plan::{Charge, LimitSpec, Origin, RuleId};
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::streak::SlowRow;
use super::time::Instant;

/// What a machine knows of everything, or of one key, that should outlive it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The end of the hold, if one is on.
    pub held: Option<Instant>,
    /// The rules that are held, by name, and until when. Of a key: for this key.
    pub rules: Vec<(Arc<str>, Instant)>,
    /// What limits know.
    pub limits: Vec<LimitMemory>,
    /// The row of "slow down" without a number, if one goes on.
    pub row: Option<SlowRow>,
    /// The rows of rules, by name. Of a key: of its queues.
    pub rule_rows: Vec<(Arc<str>, SlowRow)>,
    /// When attempts were invalid, and how many, as far as they count for the guard before a ban. Of a key: none.
    pub invalid: Vec<(Instant, u32)>,
}

/// What one limit knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitMemory {
    /// Where the rules say that there is such a limit.
    pub origin: Origin,
    /// What it counts.
    pub charge: Charge,
    /// What it knows.
    pub past: Past,
}

impl Memory {
    /// Whether there is nothing to keep.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many things it tells.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held.is_some() as usize
            + self.rules.len()
            + self.limits.len()
            + self.row.is_some() as usize
            + self.rule_rows.len()
            + !self.invalid.is_empty() as usize
    }

    pub(super) fn remember(&mut self, spec: &LimitSpec, pasts: impl IntoIterator<Item = Past>) {
        let of = |past| LimitMemory { origin: spec.origin.clone(), charge: spec.charge, past };
        self.limits.extend(pasts.into_iter().map(of));
    }

    /// How many of the limits have a place among these.
    pub(super) fn count_in(&self, specs: &[LimitSpec]) -> usize {
        self.limits.iter().filter(|limit| specs.iter().any(|spec| limit.is_of(spec))).count()
    }

    /// What is told of limits in the place of this one.
    pub(super) fn of(&self, spec: &LimitSpec) -> Vec<&Past> {
        self.limits.iter().filter(|limit| limit.is_of(spec)).map(|limit| &limit.past).collect()
    }
}

impl LimitMemory {
    fn is_of(&self, spec: &LimitSpec) -> bool {
        self.charge == spec.charge && self.origin == spec.origin && self.past.is_for(spec.kind)
    }
}

impl<W> Scheduler<W> {
    /// What should outlive the machine beside [what its keys know](Self::export_key): holds that are on, and what limits
    /// know that all keys share.
    ///
    /// Kept are windows, buckets and spacing that are not free again within a minute of their last start, the counts of
    /// calendar days, and what the server said of its own windows that counts for more than a minute or leaves nothing:
    /// less what runs, whose answers nobody will read. What is granted but not claimed has not started and is not among it.
    ///
    /// ```
    /// use request_balancer::Rules;
    /// use request_balancer::engine::{Entry, Instant, Nanos, NextStart, RuleId, Scheduler};
    ///
    /// let rules: Rules = "per_key = \"1/1h\"".parse()?;
    /// let hour = Nanos::from_secs(3_600);
    /// let begin = Instant::ZERO.saturating_add(hour);
    ///
    /// let mut machine = Scheduler::<()>::beginning_at(begin, rules.plan());
    /// let key = machine.add_key(begin, 42);
    /// assert!(machine.enter(begin, key, RuleId(0), Entry::default()).is_ok());
    /// let known = machine.export_key(begin, key);
    ///
    /// // Half an hour later, in instants of the same epoch.
    /// let now = Instant::from_millis(90 * 60_000);
    /// let mut machine = Scheduler::<()>::beginning_at(now, rules.plan());
    /// let key = machine.add_key(now, 42);
    /// assert_eq!(machine.import_key(now, key, &known), Some(0));
    /// assert_eq!(machine.next_start(now, RuleId(0), Some(key)), NextStart::At(begin.saturating_add(hour)));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn export(&mut self, now: Instant) -> Memory {
        let now = self.tick(now);
        let mut memory = Memory { held: Some(self.hold).filter(|hold| *hold > now), ..Memory::default() };
        for (plan, rule) in self.plan.rules.iter().zip(&self.rules).filter(|(_, rule)| rule.hold > now) {
            memory.rules.push((Arc::clone(&plan.name), rule.hold));
        }
        for (spec, state) in self.plan.shared_limits.iter().zip(self.shared.as_mut_slice()) {
            memory.remember(spec, state.pasts(spec.kind, &self.days, now));
        }
        self.export_endpoints(now, &mut memory);
        memory.row = self.slow_row(now, Target::Overall);
        for (rule, plan) in (0..).map(RuleId).zip(&self.plan.rules) {
            let row = self.slow_row(now, Target::Rule(rule));
            memory.rule_rows.extend(row.map(|row| (Arc::clone(&plan.name), row)));
        }
        memory.invalid = self.known_invalid(now);
        memory
    }

    /// What should outlive the machine of one key, as in [`export`](Self::export). Empty for a stale key.
    pub fn export_key(&mut self, now: Instant, key: KeyId) -> Memory {
        let now = self.tick(now);
        if !self.keys.contains(key.index, key.generation) {
            return Memory::default();
        }
        let record = &mut self.keys[key.index];
        let mut memory = Memory { held: Some(record.extras.hold()).filter(|hold| *hold > now), ..Memory::default() };
        for (spec, state) in self.plan.key_limits.iter().zip(record.limits.as_mut_slice()) {
            memory.remember(spec, state.pasts(spec.kind, &self.days, now));
        }
        let first = record.queues;
        memory.row = self.slow_row(now, Target::Key(key));
        let mut index = first;
        while index != NIL {
            let queue = &self.queues[index];
            let plan = &self.plan.rules[usize::from(queue.rule)];
            let row = self.slow_row(now, Target::Queue(RuleId(queue.rule), key));
            memory.rule_rows.extend(row.map(|row| (Arc::clone(&plan.name), row)));
            if queue.extras.hold() > now {
                memory.rules.push((Arc::clone(&plan.name), queue.extras.hold()));
            }
            let Queue { extras, limits, .. } = &mut self.queues[index];
            for (spec, state) in Queue::own(extras, plan).iter().zip(limits.as_mut_slice()) {
                memory.remember(spec, state.pasts(spec.kind, &self.days, now));
            }
            let queue = &self.queues[index];
            index = if queue.sibling == first { NIL } else { queue.sibling };
        }
        self.export_seat(now, key.index, &mut memory);
        memory
    }

    /// Takes in what another machine [exported](Self::export), in instants of this one. Returns how many things it
    /// ignored because the rules have no such rule or limit any more.
    ///
    /// It is counted beside what this machine knows itself, so nothing starts earlier for it; what was granted before may
    /// still start. A limit whose numbers are others now counts the starts of the one in the same place that remembers
    /// longest. A start that is yet to come counts from now, and no hold is longer than the plan's `max_hold`.
    pub fn import(&mut self, now: Instant, memory: &Memory) -> usize {
        let now = self.tick(now);
        if let Some(until) = memory.held {
            self.hold(now, Target::Overall, until);
        }
        let mut unknown = self.hold_rules(now, memory, Target::Rule);
        if let Some(row) = &memory.row {
            self.recall_row(now, Target::Overall, row);
        }
        if !memory.invalid.is_empty() {
            unknown += usize::from(!self.recall_invalid(now, &memory.invalid));
        }
        let Self { plan, shared, days, .. } = self;
        for (spec, state) in plan.shared_limits.iter().zip(shared.as_mut_slice()) {
            state.recall(Spec::new(spec.kind, days), now, plan.max_hold, &memory.of(spec));
        }
        let counted = memory.count_in(&plan.shared_limits);
        unknown + memory.limits.len() - counted - self.import_endpoints(now, memory)
    }

    /// Takes in what another machine [exported](Self::export_key) of a key, as [`import`](Self::import) does. `None`: the
    /// key is stale.
    pub fn import_key(&mut self, now: Instant, key: KeyId, memory: &Memory) -> Option<usize> {
        let now = self.tick(now);
        if !self.keys.contains(key.index, key.generation) {
            return None;
        }
        if let Some(until) = memory.held {
            self.hold(now, Target::Key(key), until);
        }
        let unknown = self.hold_rules(now, memory, |rule| Target::Queue(rule, key));
        if let Some(row) = &memory.row {
            self.recall_row(now, Target::Key(key), row);
        }
        let mut counted = memory.count_in(&self.plan.key_limits) + self.import_seat(now, key.index, memory);
        let Self { plan, keys, days, .. } = self;
        for (spec, state) in plan.key_limits.iter().zip(keys[key.index].limits.as_mut_slice()) {
            state.recall(Spec::new(spec.kind, days), now, plan.max_hold, &memory.of(spec));
        }
        let mut rules: Vec<RuleId> =
            memory.limits.iter().filter_map(|limit| self.find_rule(limit.origin.own_rule()?)).collect();
        rules.sort_unstable();
        rules.dedup();
        for rule in rules {
            let queue = self.queue_of(key.index, rule);
            let Self { plan, queues, days, .. } = self;
            let Queue { extras, limits, .. } = &mut queues[queue];
            let own = Queue::own(extras, &plan.rules[usize::from(rule.0)]);
            counted += memory.count_in(own);
            for (spec, state) in own.iter().zip(limits.as_mut_slice()) {
                state.recall(Spec::new(spec.kind, days), now, plan.max_hold, &memory.of(spec));
            }
        }
        self.note_idle(now, key.index);
        Some(unknown + memory.limits.len() - counted)
    }

    /// Holds what the rules' names stand for, and goes on with their rows. Returns how many names are unknown.
    fn hold_rules(&mut self, now: Instant, memory: &Memory, target: impl Fn(RuleId) -> Target) -> usize {
        let mut unknown = 0;
        for (name, until) in &memory.rules {
            match self.find_rule(name) {
                Some(rule) => {
                    self.hold(now, target(rule), *until);
                }
                None => unknown += 1,
            }
        }
        for (name, row) in &memory.rule_rows {
            match self.find_rule(name) {
                Some(rule) => self.recall_row(now, target(rule), row),
                None => unknown += 1,
            }
        }
        unknown
    }

    fn find_rule(&self, name: &str) -> Option<RuleId> {
        let position = self.plan.rules.iter().position(|rule| *rule.name == *name && !rule.removed)?;
        u16::try_from(position).ok().map(RuleId)
    }
}

impl Origin {
    /// The rule in whose queues a limit is.
    fn own_rule(&self) -> Option<&str> {
        match self {
            Self::RulePerKey(rule) => Some(rule),
            Self::Overall
            | Self::PerKey
            | Self::RuleOverall(_)
            | Self::NamedOverall(_)
            | Self::NamedPerKey(_)
            | Self::Lane(_)
            | Self::EndpointOverall(_)
            | Self::EndpointPerKey(_) => None,
        }
    }
}
