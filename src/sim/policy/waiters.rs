//! A token bucket for each quota, as governor has them, and callers who ask them one after the other.
//!
//! Whoever asks in vain sleeps until the bucket has a token and asks again, together with everybody else who waits for it:
//! who of them gets it is chance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::Balancing;
use crate::engine::{Charge, Instant, LimitKind, LimitSpec, Nanos, Plan};
use crate::sim::cost::Cost;
use crate::sim::random::Random;
use crate::sim::setup::Setup;
use crate::sim::traffic::Call;

/// Which limiter, in the order in which a call asks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Own { rule: u16, key: u32, limit: usize },
    Key { key: u32, limit: usize },
    Shared { limit: usize },
}

#[derive(Debug)]
struct Bucket {
    charge: Charge,
    interval: Nanos,
    burst: u32,
    /// When it is full again: GCRA's theoretical arrival time.
    full: Instant,
    waiting: Vec<u32>,
}

pub(crate) struct Waiters {
    plan: Arc<Plan>,
    rules: Vec<u16>,
    random: Random,
    calls: BTreeMap<u32, Asking>,
    buckets: BTreeMap<Which, Bucket>,
    /// When somebody at a bucket asks again.
    wakes: BinaryHeap<Reverse<(Instant, Which)>>,
    /// Refused calls, until they come back.
    out: BinaryHeap<Reverse<(Instant, u32)>>,
    through: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    key: u32,
    cost: Cost,
    rule: u16,
    /// How many limiters it is past.
    past: usize,
}

impl Waiters {
    pub(crate) fn new(setup: &Setup, seed: u64) -> Self {
        Self {
            plan: setup.rules.plan(),
            rules: setup.traffic.iter().map(|traffic| traffic.rule.0).collect(),
            random: Random::new(seed ^ 0x6c69_6d69_7465_7273),
            calls: BTreeMap::new(),
            buckets: BTreeMap::new(),
            wakes: BinaryHeap::new(),
            out: BinaryHeap::new(),
            through: Vec::new(),
        }
    }

    /// The limiter after so many others, of those that count starts.
    fn nth(&self, asking: Asking) -> Option<(Which, &LimitSpec)> {
        let Asking { rule, key, past, .. } = asking;
        let plan = &self.plan.rules[usize::from(rule)];
        let own = plan.own.iter().enumerate().map(|(limit, spec)| (Which::Own { rule, key, limit }, spec));
        let of_key = plan.key.iter().map(|bound| bound.limit);
        let of_key = of_key.map(|limit| (Which::Key { key, limit }, &self.plan.key_limits[limit]));
        let shared = plan.shared.iter().map(|bound| bound.limit);
        let shared = shared.map(|limit| (Which::Shared { limit }, &self.plan.shared_limits[limit]));
        own.chain(of_key).chain(shared).filter(|(_, spec)| Bucket::of(spec).is_some()).nth(past)
    }

    /// Lets a call ask as far as it gets.
    fn ask(&mut self, now: Instant, index: u32) {
        while let Some(&asking) = self.calls.get(&index) {
            let Some((which, spec)) = self.nth(asking) else {
                self.through.push(index);
                return;
            };
            let Some(new) = Bucket::of(spec) else { return };
            let bucket = self.buckets.entry(which).or_insert(new);
            // Whoever comes while others are about to ask again is one of them.
            if bucket.waiting.is_empty() && bucket.take(now, asking.cost) {
                self.pass(index);
                continue;
            }
            if bucket.waiting.is_empty() {
                self.wakes.push(Reverse((bucket.opens(asking.cost).max(now), which)));
            }
            bucket.waiting.push(index);
            return;
        }
    }

    fn pass(&mut self, index: u32) {
        if let Some(asking) = self.calls.get_mut(&index) {
            asking.past += 1;
        }
    }

    /// Everybody who waits at a bucket asks again, in some order.
    fn wake(&mut self, now: Instant, which: Which) {
        loop {
            let Some(bucket) = self.buckets.get_mut(&which) else { return };
            if bucket.waiting.is_empty() {
                return;
            }
            let drawn = self.random.below(bucket.waiting.len() as u64) as usize;
            let index = bucket.waiting[drawn];
            let cost = self.calls.get(&index).map_or(Cost::ONE, |asking| asking.cost);
            if !bucket.take(now, cost) {
                let at = bucket.opens(cost);
                self.wakes.push(Reverse((at, which)));
                return;
            }
            bucket.waiting.swap_remove(drawn);
            self.pass(index);
            self.ask(now, index);
        }
    }
}

impl Bucket {
    /// `None`: it is a concurrency cap, which such limiters do not know.
    fn of(spec: &LimitSpec) -> Option<Self> {
        let (interval, burst) = match spec.kind {
            LimitKind::Window { period: Nanos::ZERO, .. } => return None,
            LimitKind::Window { count, period, .. } => (Nanos::new(period.get() / u64::from(count.max(1))), count),
            LimitKind::Spaced { interval, .. } => (interval, 1),
            LimitKind::Bucket { interval, burst } => (interval, burst),
            LimitKind::Calendar { count, .. } => (Nanos::from_secs(86_400 / u64::from(count.max(1))), count),
        };
        Some(Self { charge: spec.charge, interval, burst, full: Instant::ZERO, waiting: Vec::new() })
    }

    fn opens(&self, cost: Cost) -> Instant {
        let cost = cost.of(self.charge);
        self.full.saturating_sub(self.interval.saturating_mul(u64::from(self.burst.saturating_sub(cost))))
    }

    fn take(&mut self, now: Instant, cost: Cost) -> bool {
        let taken = cost.of(self.charge);
        if taken > 0 && self.opens(cost) > now {
            return false;
        }
        self.full = self.full.max(now).saturating_add(self.interval.saturating_mul(taken.into()));
        true
    }
}

impl Balancing for Waiters {
    fn arrive(&mut self, now: Instant, index: u32, call: &Call, _alone: bool) {
        let rule = self.rules[usize::from(call.traffic)];
        self.calls.insert(index, Asking { key: call.key, cost: call.cost, rule, past: 0 });
        self.ask(now, index);
    }

    fn turn(&mut self, now: Instant, starts: &mut Vec<u32>) {
        while let Some(&Reverse((at, index))) = self.out.peek()
            && at <= now
        {
            self.out.pop();
            if let Some(asking) = self.calls.get_mut(&index) {
                asking.past = 0;
                self.ask(now, index);
            }
        }
        while let Some(&Reverse((at, which))) = self.wakes.peek()
            && at <= now
        {
            self.wakes.pop();
            self.wake(now, which);
        }
        starts.append(&mut self.through);
    }

    fn ended(&mut self, _now: Instant, index: u32) {
        self.calls.remove(&index);
    }

    fn refused(&mut self, now: Instant, index: u32, after: Nanos) {
        self.out.push(Reverse((now.saturating_add(after), index)));
    }

    fn withdraw(&mut self, _now: Instant, index: u32) {
        let Some(&asking) = self.calls.get(&index) else { return };
        if let Some((which, _)) = self.nth(asking)
            && let Some(bucket) = self.buckets.get_mut(&which)
            && let Some(place) = bucket.waiting.iter().position(|&waiting| waiting == index)
        {
            bucket.waiting.swap_remove(place);
        }
        self.calls.remove(&index);
    }

    fn next_wake(&self) -> Option<Instant> {
        let wake = self.wakes.peek().map(|&Reverse((at, _))| at);
        let out = self.out.peek().map(|&Reverse((at, _))| at);
        [wake, out].into_iter().flatten().min()
    }
}
