//! The machine by itself, and what a server says of its counters.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use request_balancer::Rules;
use request_balancer::engine::{
    Charge, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, ServerReset, ServerWindow,
};

/// The first rule.
pub(crate) const RULE: RuleId = RuleId(0);

/// The machine, and the key that requests are of.
pub(crate) struct World {
    pub(crate) machine: Scheduler<()>,
    pub(crate) key: KeyId,
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// So many left for so many milliseconds.
pub(crate) const fn left(left: u32, millis: u64) -> ServerWindow<'static> {
    ServerWindow {
        name: "ratelimit",
        charge: Charge::Requests,
        side: None,
        limit: None,
        left: Some(left),
        per: None,
        reset: Some(ServerReset { after: Nanos::from_millis(millis), grain: Nanos::from_millis(1) }),
    }
}

/// So many left for nobody knows how long.
pub(crate) const fn without_reset(left: u32) -> ServerWindow<'static> {
    ServerWindow { reset: None, ..self::left(left, 0) }
}

/// The same window under that name.
pub(crate) const fn of(name: &'static str, window: ServerWindow<'static>) -> ServerWindow<'static> {
    ServerWindow { name, ..window }
}

/// The same window, of so many seconds.
pub(crate) const fn so_long(secs: u64, window: ServerWindow<'static>) -> ServerWindow<'static> {
    ServerWindow { per: Some(Nanos::from_secs(secs)), ..window }
}

impl World {
    pub(crate) fn new(rules: &str) -> Self {
        let rules: Rules = rules.parse().expect("rules");
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 1);
        Self { machine, key }
    }

    pub(crate) fn start(&mut self, now: u64) -> RequestId {
        self.try_start(now).unwrap_or_else(|| panic!("no start at {now}"))
    }

    pub(crate) fn try_start(&mut self, now: u64) -> Option<RequestId> {
        match self.machine.enter(at(now), self.key, RULE, Entry::default()).expect("a place") {
            Enter::Started(id) => Some(id),
            Enter::Waiting(id) => {
                self.machine.withdraw(at(now), id);
                None
            }
        }
    }

    pub(crate) fn answer(&mut self, now: u64, id: RequestId, windows: &[ServerWindow<'_>]) {
        assert!(self.machine.observe(at(now), id, windows.iter().copied()));
        self.machine.finish(at(now), id);
    }

    /// How many would start now, one after the other, without an answer.
    pub(crate) fn free(&mut self, now: u64) -> usize {
        let started: Vec<RequestId> = std::iter::from_fn(|| self.try_start(now)).take(1_000).collect();
        started.len()
    }
}
