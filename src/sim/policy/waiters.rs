//! A token bucket for each quota, as governor has them, and callers who ask them one after the other.
//!
//! Whoever asks in vain sleeps until the bucket has a token and asks again, together with everybody else who waits for it:
//! who of them gets it is chance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::Balancing;
use super::quotas::{Quotas, Shape, Which};
use crate::engine::{Instant, Nanos};
use crate::sim::cost::Cost;
use crate::sim::random::Random;
use crate::sim::setup::Setup;
use crate::sim::traffic::Call;

#[derive(Debug)]
struct Bucket {
    shape: Shape,
    /// When it is full again: GCRA's theoretical arrival time.
    full: Instant,
    waiting: Vec<u32>,
}

pub(crate) struct Waiters {
    quotas: Quotas,
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
            quotas: Quotas::new(&setup.rules),
            rules: setup.traffic.iter().map(|traffic| traffic.rule.0).collect(),
            random: Random::new(seed ^ 0x6c69_6d69_7465_7273),
            calls: BTreeMap::new(),
            buckets: BTreeMap::new(),
            wakes: BinaryHeap::new(),
            out: BinaryHeap::new(),
            through: Vec::new(),
        }
    }

    /// The limiter after so many others. Concurrency caps are none: such limiters do not know them.
    fn nth(&self, asking: Asking) -> Option<(Which, Shape)> {
        self.quotas.of(asking.rule, asking.key).nth(asking.past)
    }

    /// Lets a call ask as far as it gets.
    fn ask(&mut self, now: Instant, index: u32) {
        while let Some(&asking) = self.calls.get(&index) {
            let Some((which, shape)) = self.nth(asking) else {
                self.through.push(index);
                return;
            };
            let new = || Bucket { shape, full: Instant::ZERO, waiting: Vec::new() };
            let bucket = self.buckets.entry(which).or_insert_with(new);
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
    fn opens(&self, cost: Cost) -> Instant {
        let Shape { charge, interval, burst } = self.shape;
        self.full.saturating_sub(interval.saturating_mul(u64::from(burst.saturating_sub(cost.of(charge)))))
    }

    fn take(&mut self, now: Instant, cost: Cost) -> bool {
        let taken = cost.of(self.shape.charge);
        if taken > 0 && self.opens(cost) > now {
            return false;
        }
        self.full = self.full.max(now).saturating_add(self.shape.interval.saturating_mul(taken.into()));
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
