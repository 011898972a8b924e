//! The published behaviour of the JavaScript package smart-request-balancer, with its cap switched on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::Balancing;
use super::quotas::{Quotas, Shape, Which};
use crate::engine::{Instant, Nanos};
use crate::rules::CheckedRule;
use crate::sim::setup::Setup;
use crate::sim::traffic::Call;

#[derive(Debug)]
struct Key {
    waiting: VecDeque<u32>,
    /// The rule of its first call: later ones go by it too.
    rule: usize,
    number: u64,
}

pub(crate) struct Cooling {
    quotas: Quotas,
    /// Of each rule.
    priorities: Vec<u32>,
    of_traffic: Vec<usize>,
    /// Key and rule of each call that waits or runs.
    calls: BTreeMap<u32, (u32, usize)>,
    keys: BTreeMap<u32, Key>,
    next_number: u64,
    /// Keys that are cool and have calls, the most urgent first, then the oldest.
    cool: BTreeSet<(u32, u64, u32)>,
    cooling: BTreeSet<(Instant, u32)>,
    cap_cool: Instant,
    /// Its one timer, which nothing interrupts.
    asleep: Option<Instant>,
    /// Refused calls, until they come back.
    out: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Cooling {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            quotas: Quotas::new(&setup.rules),
            priorities: setup.rules.iter().map(CheckedRule::priority).collect(),
            of_traffic: setup.traffic.iter().map(|traffic| usize::from(traffic.rule.0)).collect(),
            calls: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_number: 0,
            cool: BTreeSet::new(),
            cooling: BTreeSet::new(),
            cap_cool: Instant::ZERO,
            asleep: None,
            out: BinaryHeap::new(),
        }
    }

    /// How far apart the starts of a key are, and all starts: everything is T/N to the package.
    fn spacing(&self, rule: usize, key: u32) -> (Nanos, Nanos) {
        let mut spacing = (Nanos::ZERO, Nanos::ZERO);
        for (which, Shape { interval, .. }) in self.quotas.of(rule as u16, key) {
            match which {
                Which::Own { .. } | Which::Key { .. } => spacing.0 = spacing.0.max(interval),
                Which::Shared { .. } => spacing.1 = spacing.1.max(interval),
            }
        }
        spacing
    }

    fn join(&mut self, index: u32) {
        let Some(&(key, rule)) = self.calls.get(&index) else { return };
        let Self { keys, priorities, cool, next_number, .. } = self;
        let known = keys.entry(key).or_insert_with(|| {
            let number = *next_number;
            *next_number += 1;
            cool.insert((priorities[rule], number, key));
            Key { waiting: VecDeque::new(), rule, number }
        });
        known.waiting.push_back(index);
    }

    fn cool_down(&mut self, now: Instant) {
        while let Some(&(at, key)) = self.cooling.first()
            && at <= now
        {
            self.cooling.pop_first();
            let Some(known) = self.keys.get(&key) else { continue };
            if known.waiting.is_empty() {
                self.keys.remove(&key);
            } else {
                self.cool.insert((self.priorities[known.rule], known.number, key));
            }
        }
    }
}

impl Balancing for Cooling {
    fn arrive(&mut self, now: Instant, index: u32, call: &Call, _alone: bool) {
        self.cool_down(now);
        self.calls.insert(index, (call.key, self.of_traffic[usize::from(call.traffic)]));
        self.join(index);
    }

    fn turn(&mut self, now: Instant, starts: &mut Vec<u32>) {
        self.cool_down(now);
        while let Some(&Reverse((at, index))) = self.out.peek()
            && at <= now
        {
            self.out.pop();
            self.join(index);
        }
        while self.asleep.is_none_or(|until| until <= now) {
            self.asleep = None;
            let Some(&(priority, number, key)) = self.cool.first() else {
                self.asleep = self.cooling.first().map(|&(at, _)| at);
                break;
            };
            if self.cap_cool > now {
                self.asleep = Some(self.cap_cool);
                break;
            }
            self.cool.remove(&(priority, number, key));
            let Some(known) = self.keys.get_mut(&key) else { continue };
            let rule = known.rule;
            let Some(index) = known.waiting.pop_front() else {
                self.keys.remove(&key);
                continue;
            };
            starts.push(index);
            let (own, all) = self.spacing(rule, key);
            self.cap_cool = now.saturating_add(all);
            self.cooling.insert((now.saturating_add(own), key));
            self.cool_down(now);
        }
    }

    fn ended(&mut self, _now: Instant, index: u32) {
        self.calls.remove(&index);
    }

    fn refused(&mut self, now: Instant, index: u32, after: Nanos) {
        self.out.push(Reverse((now.saturating_add(after), index)));
    }

    fn withdraw(&mut self, _now: Instant, index: u32) {
        let Some((key, _)) = self.calls.remove(&index) else { return };
        if let Some(known) = self.keys.get_mut(&key) {
            known.waiting.retain(|&waiting| waiting != index);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let out = self.out.peek().map(|&Reverse((at, _))| at);
        [self.asleep, out].into_iter().flatten().min()
    }
}
