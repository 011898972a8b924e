//! Which queue could have started something, and when: found out from the log alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Anchor, Instant, LimitKind, LimitSpec, Scope};
use crate::sim::meter::Room;
use crate::sim::own::OwnNumbers;
use crate::sim::policy::Limiters;
use crate::sim::setup::Setup;
use crate::sim::world::{Log, Why};

/// Queues are those of one rule and one key, numbered in order of their first call.
#[derive(Debug)]
pub(super) struct Ready {
    /// The queue of each call.
    pub(super) queue: Vec<u32>,
    /// Rule and key of each queue.
    pub(super) queues: Vec<(u16, u32)>,
    /// For each start, since when its queue could have started something: it had a call in line, the limits that are its
    /// own or its key's had room, and if it is `ordered` nothing of it ran.
    pub(super) since: Vec<Instant>,
    /// Queues that could have started something and did not until they were empty, or until the end.
    pub(super) never: Vec<Idle>,
}

/// A stretch of time in which a queue was ready and that no start ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) queue: u32,
    /// The first of its line.
    pub(super) call: u32,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

struct Finder<'s> {
    log: &'s Log,
    limiters: Limiters,
    /// Of each queue: the calls in line, by the instant since when they may start.
    lines: Vec<BTreeSet<(Instant, u32)>>,
    /// Of each queue: when it last started something.
    last: Vec<Instant>,
    held: BTreeMap<u32, Instant>,
    /// Of each rule: whether a refusal holds the endpoint, where there is one, and so says nothing of the key.
    holds_endpoint: Vec<bool>,
    /// When an attempt of a key last ended, where limits count until then.
    ended: Option<BTreeMap<u32, Instant>>,
    /// Of each queue that is `ordered`: how many attempts run, and when the last one ended.
    running: BTreeMap<u32, (u32, Instant)>,
    ready: Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Left(u32),
    Answered(u32),
    Started(u32),
}

impl Ready {
    pub(super) fn new(setup: &Setup, log: &Log) -> Self {
        let plan = setup.rules.plan();
        let mut known: BTreeMap<(u16, u32), u32> = BTreeMap::new();
        let mut queues = Vec::new();
        let queue = log.calls.iter().map(|call| {
            let id = (setup.traffic[usize::from(call.traffic)].rule.0, call.key);
            *known.entry(id).or_insert_with(|| {
                queues.push(id);
                queues.len() as u32 - 1
            })
        });
        let queue: Vec<u32> = queue.collect();
        let counts_ends = |spec: &LimitSpec| matches!(spec.kind, LimitKind::Window { anchor: Anchor::End, .. });
        let numbers = OwnNumbers::new(&setup.rules);
        let own = plan.rules.iter().flat_map(|rule| &rule.own).chain(numbers.iter().flat_map(|(.., specs)| &**specs));
        let counts_ends = plan.key_limits.iter().chain(own).any(counts_ends);
        let is_ordered = |queue: &u32| plan.rules[usize::from(queues[*queue as usize].0)].ordered;
        let mut finder = Finder {
            log,
            holds_endpoint: plan.rules.iter().map(|rule| rule.retry.hold == Scope::Endpoint).collect(),
            limiters: Limiters::new(&setup.rules),
            lines: vec![BTreeSet::new(); queues.len()],
            last: vec![Instant::ZERO; queues.len()],
            held: BTreeMap::new(),
            ended: counts_ends.then(BTreeMap::new),
            running: (0..queues.len() as u32).filter(is_ordered).map(|queue| (queue, (0, Instant::ZERO))).collect(),
            ready: Self { queue, queues, since: Vec::with_capacity(log.starts.len()), never: Vec::new() },
        };
        for (index, call) in (0..).zip(&log.calls) {
            finder.lines[finder.ready.queue[index as usize] as usize].insert((call.at, index));
        }
        finder.go();
        finder.ready
    }

    pub(super) fn queue_of(&self, call: u32) -> u32 {
        self.queue[call as usize]
    }
}

impl Finder<'_> {
    fn go(&mut self) {
        let left = (0..).zip(&self.log.left).map(|(index, left)| (left.at, Event::Left(index)));
        let answered = (0..).zip(&self.log.starts).filter(|(_, start)| start.answered != Instant::NEVER);
        let answered = answered.map(|(index, start)| (start.answered, Event::Answered(index)));
        let started = (0..).zip(&self.log.starts).map(|(index, start)| (start.at, Event::Started(index)));
        let mut events: Vec<_> = left.chain(answered).chain(started).collect();
        // What is answered in the instant in which it started is so after its start.
        events.sort_by_key(|&(at, event)| (at, self.rank(at, event), event));
        for (at, event) in events {
            match event {
                Event::Left(index) => self.left(at, self.log.left[index as usize].call),
                Event::Answered(start) => self.answered(at, start),
                Event::Started(start) => self.started(at, start),
            }
        }
        for queue in 0..self.lines.len() {
            self.close(queue as u32, self.log.end);
        }
    }

    fn rank(&self, at: Instant, event: Event) -> u32 {
        match event {
            Event::Left(index) => match self.log.left[index as usize].why {
                Why::Withdrawn => 0,
                Why::TurnedAway | Why::TimedOut => u32::MAX,
            },
            Event::Answered(start) if self.log.starts[start as usize].at < at => 0,
            Event::Answered(start) | Event::Started(start) => start + 1,
        }
    }

    /// Since when a queue could have started something, if nothing of its key starts before `now`.
    fn since(&mut self, queue: u32, now: Instant) -> Option<Instant> {
        let (rule, key) = self.ready.queues[queue as usize];
        let &(available, call) = self.lines[queue as usize].first()?;
        let held = self.held.get(&key).copied().unwrap_or(Instant::ZERO);
        let ended = self.ended.as_ref().and_then(|ended| ended.get(&key)).copied().unwrap_or(Instant::ZERO);
        let freed = match self.running.get(&queue) {
            Some((0, freed)) => *freed,
            Some(_) => return None,
            None => Instant::ZERO,
        };
        let from = available.max(self.last[queue as usize]).max(held).max(ended).max(freed);
        let cost = self.log.calls[call as usize].cost;
        Some(match self.limiters.key_room_since(from, rule, key, cost) {
            Room::At(at) => at.min(now),
            Room::AtAnEnd => now,
        })
    }

    fn started(&mut self, at: Instant, start: u32) {
        let call = self.log.starts[start as usize].call;
        let queue = self.ready.queue_of(call);
        let since = self.since(queue, at).unwrap_or(at);
        self.ready.since.push(since);
        self.lines[queue as usize].remove(&(self.log.calls[call as usize].at, call));
        self.last[queue as usize] = at;
        if let Some((running, _)) = self.running.get_mut(&queue) {
            *running += 1;
        }
        let (rule, key) = self.ready.queues[queue as usize];
        self.limiters.start(at, rule, key, self.log.calls[call as usize].cost);
    }

    fn answered(&mut self, at: Instant, start: u32) {
        let start = self.log.starts[start as usize];
        let call = self.log.calls[start.call as usize];
        let queue = self.ready.queue_of(start.call);
        let (rule, key) = self.ready.queues[queue as usize];
        self.limiters.end(at, rule, key, call.cost);
        if let Some(ended) = &mut self.ended {
            ended.insert(key, at);
        }
        if let Some((running, freed)) = self.running.get_mut(&queue) {
            (*running, *freed) = (running.saturating_sub(1), at);
        }
        if let Some(again) = start.again {
            if start.endpoint.is_none() || !self.holds_endpoint[usize::from(rule)] {
                let held = self.held.entry(key).or_insert(again);
                *held = again.max(*held);
            }
            // It may start from its first arrival on, as far as its place in line goes; the hold is the key's.
            self.lines[queue as usize].insert((call.at, start.call));
        }
    }

    /// Whoever leaves from the line; attempts that are given up are not in it.
    fn left(&mut self, at: Instant, call: u32) {
        let queue = self.ready.queue_of(call);
        let arrived = self.log.calls[call as usize].at;
        let line = &self.lines[queue as usize];
        if !line.contains(&(arrived, call)) {
            return;
        }
        let in_line = line.iter().take_while(|(available, _)| *available <= at).take(2).count();
        if in_line == 1 {
            self.close(queue, at);
        }
        self.lines[queue as usize].remove(&(arrived, call));
    }

    fn close(&mut self, queue: u32, until: Instant) {
        let first = self.lines[queue as usize].first().map(|&(_, call)| call);
        if let (Some(from), Some(call)) = (self.since(queue, until), first)
            && from < until
        {
            self.ready.never.push(Idle { queue, call, from, until });
        }
    }
}
