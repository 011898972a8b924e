//! Virtual time: calls come, a policy lets them go, the network carries them, the server answers.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::cost::Cost;
use super::policy::{Balancing, Policy};
use super::random::Random;
use super::server::{Arrival, Server};
use super::setup::{MOST_CALLS, MOST_STARTS, Setup};
use super::traffic::{self, Call};
use crate::engine::{EndpointId, Instant, Nanos};

/// The least that a refusal makes anybody wait.
const SOON: Nanos = Nanos::from_millis(1);

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Log {
    /// In order of arrival, but that those of closed loops come last.
    pub(crate) calls: Vec<Call>,
    /// In order.
    pub(crate) starts: Vec<Start>,
    /// When each of [`Self::calls`] first started. [`Instant::NEVER`]: it did not.
    pub(crate) first: Vec<Instant>,
    /// Calls that succeeded, in order of their answers.
    pub(crate) done: Vec<u32>,
    /// Calls that left without an answer, in order of calls.
    pub(crate) left: Vec<Left>,
    pub(crate) refusals: u64,
    /// Nothing of the run is later than this.
    pub(crate) end: Instant,
}

/// A call is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) call: u32,
    pub(crate) at: Instant,
    pub(crate) why: Why,
}

/// Why nobody waits for a call any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its caller lost patience while it waited and had never started.
    Withdrawn,
    /// The balancer refused it or gave it up.
    TurnedAway,
    /// Its attempt took longer than one may.
    TimedOut,
}

impl Log {
    /// How a call left, if it did so without an answer.
    pub(crate) fn left(&self, call: u32) -> Option<Left> {
        self.left.binary_search_by_key(&call, |left| left.call).ok().map(|place| self.left[place])
    }

    /// Whether a call left before it ever started.
    pub(crate) fn left_unserved(&self, call: u32) -> bool {
        self.first[call as usize] == Instant::NEVER && self.left(call).is_some()
    }

    /// Whether every call that did not leave started.
    pub(crate) fn all_started(&self) -> bool {
        (0_u32..).zip(&self.first).all(|(call, &first)| first != Instant::NEVER || self.left(call).is_some())
    }
}

/// A call starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) at: Instant,
    pub(crate) call: u32,
    /// Where it went, if there is a pool.
    pub(crate) endpoint: Option<EndpointId>,
    /// When it reached the server. [`Instant::NEVER`]: not within the run.
    pub(crate) arrived: Instant,
    /// When its answer was back.
    pub(crate) answered: Instant,
    /// Where the server refused it: when it wants to hear of the key again.
    pub(crate) again: Option<Instant>,
}

impl Start {
    /// Whether it went to this endpoint; `None`: to any.
    pub(crate) fn is_on(&self, endpoint: Option<EndpointId>) -> bool {
        endpoint.is_none() || self.endpoint == endpoint
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A start reaches the server.
    Arrival { start: u32 },
    /// Its answer is back.
    Answer { start: u32, refused: Option<Nanos> },
    /// It took too long; its answer is of no use any more.
    TimeOut { start: u32 },
    /// A closed loop's next call.
    Next { traffic: u16, key: u32 },
    /// Callers of some traffic lose patience.
    Cancel { traffic: u16 },
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Instant,
    /// When the run ends, if the scenario says so.
    pub until: Option<Instant>,
    /// Starts so far.
    pub started: u64,
    /// Calls known so far.
    pub calls: u64,
}

/// Runs a scenario once.
pub(crate) fn run(setup: &Setup, seed: u64, policy: Policy, progress: &mut dyn FnMut(Progress)) -> Log {
    let (calls, keys) = traffic::planned(setup, seed);
    let first = vec![Instant::NEVER; calls.len()];
    let mut world = World {
        setup,
        seed,
        balancing: policy.balancing(setup, seed, keys),
        server: Server::new(&setup.server),
        endpoints: EndpointId::all().take(setup.rules.endpoints().count()).collect(),
        turns: 0,
        timeouts: {
            let plan = setup.rules.plan();
            let rules = setup.traffic.iter().map(|traffic| usize::from(traffic.rule.0));
            rules.map(|rule| plan.rules[rule].attempt_timeout).collect()
        },
        planned: calls.len(),
        events: BinaryHeap::new(),
        next_event: 0,
        log: Log {
            calls,
            starts: Vec::new(),
            first,
            done: Vec::new(),
            left: Vec::new(),
            refusals: 0,
            end: Instant::ZERO,
        },
    };
    world.run(progress);
    world.log.left.sort_unstable_by_key(|left| left.call);
    world.log
}

struct World<'s> {
    setup: &'s Setup,
    seed: u64,
    balancing: Box<dyn Balancing>,
    server: Server,
    /// Those of the pool.
    endpoints: Box<[EndpointId]>,
    /// Starts whose endpoint the policy did not choose.
    turns: usize,
    /// Of each traffic: how long an attempt may take.
    timeouts: Box<[Option<Nanos>]>,
    /// How many calls were known at the beginning.
    planned: usize,
    /// By instant, then by the order in which they were put in.
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    next_event: u64,
    log: Log,
}

impl World<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(Progress)) {
        const REPORT_EVERY: usize = 1 << 13;
        let until = match self.setup.until {
            Nanos::MAX => Instant::NEVER,
            span => Instant::ZERO.saturating_add(span),
        };
        for (index, traffic) in self.setup.traffic.iter().enumerate() {
            if let Some(cancel) = traffic.cancel {
                self.push(Instant::ZERO.saturating_add(cancel.at), Event::Cancel { traffic: index as u16 });
            }
        }
        let mut arrived = 0;
        let mut reported = 0;
        let mut starts = Vec::new();
        loop {
            let arrival = (arrived < self.planned).then(|| self.log.calls[arrived].at);
            let event = self.events.peek().map(|&Reverse((at, ..))| at);
            let wake = self.balancing.next_wake();
            let Some(next) = [arrival, event, wake].into_iter().flatten().min() else { break };
            if next >= until {
                self.log.end = until;
                break;
            }
            if self.log.starts.len() >= MOST_STARTS {
                break;
            }
            let now = self.log.end.max(next);
            self.log.end = now;
            while self.events.peek().is_some_and(|&Reverse((at, ..))| at <= now) {
                self.handle_event(now);
            }
            let company = self.log.calls[arrived..self.planned].partition_point(|call| call.at <= now);
            let from = arrived;
            arrived += company;
            for call in from..arrived {
                self.arrive(now, call, company == 1);
            }
            self.balancing.turn(now, &mut starts);
            for call in starts.drain(..) {
                self.start(now, call);
            }
            for call in self.balancing.turned_away() {
                self.leave(now, call, Why::TurnedAway);
            }
            if self.log.starts.len() >= reported + REPORT_EVERY {
                reported = self.log.starts.len();
                let until = (until != Instant::NEVER).then_some(until);
                progress(Progress { now, until, started: reported as u64, calls: self.log.calls.len() as u64 });
            }
        }
    }

    fn arrive(&mut self, now: Instant, index: usize, alone: bool) {
        let call = self.log.calls[index];
        self.balancing.arrive(now, index as u32, &call, alone);
    }

    fn start(&mut self, now: Instant, call: u32) {
        let start = self.log.starts.len() as u32;
        let first = &mut self.log.first[call as usize];
        *first = now.min(*first);
        let endpoint = self.balancing.endpoint(call).or_else(|| self.in_turn(call));
        let (arrived, answered) = (Instant::NEVER, Instant::NEVER);
        self.log.starts.push(Start { at: now, call, endpoint, arrived, answered, again: None });
        let network = self.setup.network;
        if network.delay.is_zero() && network.jitter.is_zero() {
            self.reach(now, start);
        } else {
            let arrival = now.saturating_add(self.way(start, 1));
            self.push(arrival, Event::Arrival { start });
            if let Some(latest) = self.latest(start).filter(|&latest| latest < arrival) {
                self.push(latest, Event::TimeOut { start });
            }
        }
    }

    /// When an attempt is given up.
    fn latest(&self, start: u32) -> Option<Instant> {
        let Start { at, call, .. } = self.log.starts[start as usize];
        let timeout = self.timeouts[usize::from(self.log.calls[call as usize].traffic)];
        timeout.map(|timeout| at.saturating_add(timeout))
    }

    /// Where a policy that knows nothing of pools sends a call: to one endpoint after the other.
    fn in_turn(&mut self, call: u32) -> Option<EndpointId> {
        let traffic = &self.setup.traffic[usize::from(self.log.calls[call as usize].traffic)];
        let those = if traffic.endpoints.is_empty() { &self.endpoints } else { &traffic.endpoints };
        let endpoint = those.get(self.turns.checked_rem(those.len())?).copied();
        self.turns += 1;
        endpoint
    }

    fn reach(&mut self, now: Instant, start: u32) {
        let Start { call, endpoint, .. } = self.log.starts[start as usize];
        self.log.starts[start as usize].arrived = now;
        let Call { key, traffic, cost, .. } = self.log.calls[call as usize];
        let (low, high) = self.setup.traffic[usize::from(traffic)].takes;
        let works = if low == high { low } else { Nanos::new(self.draws(start, 3).between(low.get(), high.get())) };
        let arrival = Arrival { at: now, key, endpoint, cost, until: now.saturating_add(works) };
        // Whoever is told to come at once is not back in the same instant.
        let refused = self.server.arrive(&arrival).map(|after| after.max(SOON));
        let takes = if refused.is_some() { Nanos::ZERO } else { works };
        let answer = now.saturating_add(takes).saturating_add(self.way(start, 2));
        match self.latest(start) {
            Some(latest) if latest < now => {}
            Some(latest) if latest < answer => self.push(latest, Event::TimeOut { start }),
            Some(_) | None => self.push(answer, Event::Answer { start, refused }),
        }
    }

    fn handle_event(&mut self, now: Instant) {
        let Some(Reverse((_, _, event))) = self.events.pop() else { return };
        match event {
            Event::Arrival { start } => self.reach(now, start),
            Event::Answer { start, refused } => {
                let start = &mut self.log.starts[start as usize];
                let call = start.call;
                start.answered = now;
                start.again = refused.map(|after| now.saturating_add(after));
                match refused {
                    Some(after) => {
                        self.log.refusals += 1;
                        self.balancing.refused(now, call, after);
                    }
                    None => {
                        self.log.done.push(call);
                        self.balancing.ended(now, call);
                        self.call_again(now, call, Nanos::ZERO);
                    }
                }
            }
            Event::TimeOut { start } => {
                let start = &mut self.log.starts[start as usize];
                let call = start.call;
                start.answered = now;
                self.balancing.timed_out(now, call);
                self.leave(now, call, Why::TimedOut);
            }
            Event::Next { traffic, key } => {
                let index = self.log.calls.len();
                if index as u64 >= MOST_CALLS {
                    return;
                }
                let mut random = Random::at(self.seed, index as u64, 4);
                let cost = Cost::drawn(&mut random, &self.setup.traffic[usize::from(traffic)]);
                self.log.calls.push(Call { at: now, key, cost, traffic });
                self.log.first.push(Instant::NEVER);
                self.arrive(now, index, false);
            }
            Event::Cancel { traffic } => self.cancel(now, traffic),
        }
    }

    /// A call is over without an answer.
    fn leave(&mut self, at: Instant, call: u32, why: Why) {
        self.log.left.push(Left { call, at, why });
        match why {
            Why::Withdrawn => {}
            Why::TurnedAway | Why::TimedOut => self.call_again(at, call, SOON),
        }
    }

    /// In a closed loop the next call comes when one is over.
    fn call_again(&mut self, now: Instant, call: u32, at_least: Nanos) {
        let Call { key, traffic, .. } = self.log.calls[call as usize];
        if let Some(think) = self.setup.traffic[usize::from(traffic)].think() {
            self.push(now.saturating_add(think.max(at_least)), Event::Next { traffic, key });
        }
    }

    /// Those of the traffic who wait and lose patience.
    fn cancel(&mut self, now: Instant, traffic: u16) {
        let share = self.setup.traffic[usize::from(traffic)].cancel.map_or(0, |cancel| cancel.share);
        let gone: BTreeSet<u32> = self.log.left.iter().map(|left| left.call).collect();
        for index in 0..self.log.calls.len() as u32 {
            let call = self.log.calls[index as usize];
            let waits = call.traffic == traffic && call.at < now && self.log.first[index as usize] == Instant::NEVER;
            let is_meant = || Random::at(self.seed, index.into(), 5).below(super::measure::WHOLE) < share;
            if waits && is_meant() && !gone.contains(&index) {
                self.balancing.withdraw(now, index);
                self.leave(now, index, Why::Withdrawn);
            }
        }
    }

    fn way(&self, start: u32, of: u64) -> Nanos {
        let network = self.setup.network;
        if network.jitter.is_zero() {
            return network.delay;
        }
        network.delay.saturating_add(Nanos::new(self.draws(start, of).between(0, network.jitter.get())))
    }

    fn draws(&self, start: u32, of: u64) -> Random {
        Random::at(self.seed, start.into(), of)
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.next_event, event)));
        self.next_event += 1;
    }
}
