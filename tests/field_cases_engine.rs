//! Cases from the field that the machine shows by itself: every event is seen, and time is what the test says it is.

#[allow(dead_code, reason = "each test file uses its part")]
#[path = "harness/rng.rs"]
mod rng;

use request_balancer::Rules;
use request_balancer::engine::{
    Claim, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, Target, Turned,
};
use rng::Rng;

fn machine(rules: &str) -> Scheduler<usize> {
    Scheduler::new(rules.parse::<Rules>().expect("the test's rules are right").plan())
}

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A machine whose owner wakes and claims in the same instant, and what waits and runs in it.
struct Owner {
    machine: Scheduler<usize>,
    keys: Vec<KeyId>,
    waiting: Vec<RequestId>,
    running: Vec<RequestId>,
    /// The requests by the number that is their waker.
    ids: Vec<RequestId>,
    starts: usize,
    overdue: usize,
}

impl Owner {
    fn new(rules: &str, keys: u64) -> Self {
        let mut machine = machine(rules);
        let keys = (0..keys).map(|key| machine.add_key(Instant::ZERO, key)).collect();
        Self { machine, keys, waiting: Vec::new(), running: Vec::new(), ids: Vec::new(), starts: 0, overdue: 0 }
    }

    fn enter(&mut self, now: Instant, key: usize, rule: RuleId) -> Result<(), Turned> {
        let entered = loop {
            match self.machine.enter(now, self.keys[key], rule, Entry::default()) {
                Err(Turned::StaleKey) => self.keys[key] = self.machine.add_key(now, key as u64),
                entered => break entered?,
            }
        };
        match entered {
            Enter::Started(id) => {
                self.ids.push(id);
                self.started(self.ids.len() - 1);
            }
            Enter::Waiting(id) => {
                self.ids.push(id);
                let _none = self.machine.set_waker(id, self.ids.len() - 1);
                self.waiting.push(id);
            }
        }
        self.wake(now);
        Ok(())
    }

    /// An attempt begins that may run for 15 s.
    fn started(&mut self, number: usize) {
        let id = self.ids[number];
        self.machine.limit_attempt(id, Nanos::from_secs(15));
        let _none = self.machine.set_waker(id, number);
        self.running.push(id);
        self.starts += 1;
    }

    /// The attempt ended, in whatever way.
    fn end(&mut self, now: Instant, place: usize) {
        let id = self.running.swap_remove(place);
        self.machine.finish(now, id);
        self.wake(now);
    }

    fn drop_waiting(&mut self, now: Instant, place: usize) {
        let id = self.waiting.swap_remove(place);
        self.machine.withdraw(now, id);
        self.wake(now);
    }

    fn wake(&mut self, now: Instant) {
        loop {
            let woken = std::mem::take(self.machine.take_wakes());
            if woken.is_empty() {
                return;
            }
            for number in woken {
                let id = self.ids[number];
                if self.machine.is_overdue(id) {
                    self.running.swap_remove(self.running.iter().position(|&other| other == id).expect("it runs"));
                    self.machine.finish(now, id);
                    self.overdue += 1;
                    continue;
                }
                let claim = self.machine.claim(now, id);
                assert!(matches!(claim, Claim::Started { .. }), "woken for nothing: {claim:?}");
                self.waiting.swap_remove(self.waiting.iter().position(|&other| other == id).expect("it waits"));
                self.started(number);
            }
        }
    }
}

#[test]
fn fr_005_no_slot_is_idle_while_somebody_waits_in_a_million_requests() {
    let rules = "concurrency = 2\n[rules]\na = { queue = 32 }\nb = { queue = 32, priority = 2 }\nc = { queue = 32, \
                 priority = 3 }\nd = { queue = 32, priority = 4 }";
    let mut owner = Owner::new(rules, 7);
    let mut random = Rng::new(5);
    let (mut now, mut asked, mut refused) = (Instant::ZERO, 0_u32, 0);
    while asked < 1_000_000 {
        now = now.saturating_add(Nanos::from_secs(random.below(3)));
        // Those that took too long end first.
        if owner.machine.next_wake().is_some_and(|wake| wake <= now) {
            owner.machine.dispatch(now);
            owner.wake(now);
        }
        // Requests come in crowds; attempts end, are dropped, panic: it is all one to the machine.
        match random.below(8) {
            0..5 => {
                for _ in 0..random.below(6) {
                    asked += 1;
                    let (key, rule) = (random.below(7) as usize, RuleId(random.below(4) as u16));
                    match owner.enter(now, key, rule) {
                        Ok(()) => {}
                        Err(Turned::QueueFull { waiting: 32 }) => refused += 1,
                        Err(turned) => panic!("{turned:?}"),
                    }
                }
            }
            5 if !owner.waiting.is_empty() => {
                let place = random.below(owner.waiting.len() as u64) as usize;
                owner.drop_waiting(now, place);
            }
            _ if !owner.running.is_empty() => {
                let place = random.below(owner.running.len() as u64) as usize;
                owner.end(now, place);
            }
            _ => {}
        }
        assert!(owner.running.len() <= 2);
        assert!(owner.waiting.is_empty() || owner.running.len() == 2, "an idle slot at {now:?}");
        // Whatever else is due, such as forgetting keys, starts nobody.
        let starts = owner.starts;
        if owner.machine.next_wake().is_some_and(|wake| wake <= now) {
            owner.machine.dispatch(now);
            owner.wake(now);
        }
        assert_eq!(owner.starts, starts, "a start was left to the next turn");
    }
    while !owner.running.is_empty() {
        owner.end(now, 0);
    }
    let snapshot = owner.machine.snapshot(now);
    assert_eq!((snapshot.waiting, snapshot.in_flight, owner.waiting.len()), (0, 0, 0));
    let Owner { starts, overdue, .. } = owner;
    assert!(
        refused > 0 && starts > 100_000 && overdue > 1_000,
        "{refused} refused, {starts} starts, {overdue} overdue"
    );
}

// That traffic is enough to forget them is in field_cases_keys.
#[test]
fn fr_027_no_single_call_forgets_all_keys() {
    let mut machine = machine("[rules]\nindividual = '1/1s'");
    for key in 0..10_000 {
        let id = machine.add_key(Instant::ZERO, key);
        let started = machine.enter(Instant::ZERO, id, RuleId(0), Entry::default());
        let Ok(Enter::Started(request)) = started else { panic!("{started:?}") };
        machine.finish(Instant::ZERO, request);
    }
    let mut now = ms(5_000);
    let mut left = machine.snapshot(now).keys;
    assert_eq!(left, 10_000);
    let key = machine.add_key(now, 10_000);
    let mut turns = 0;
    while left > 1 {
        // Traffic of one key takes a few with it, a turn of the driver some more.
        if turns % 2 == 0 {
            let Ok(Enter::Started(request)) = machine.enter(now, key, RuleId(0), Entry::default()) else {
                panic!("nothing is in the way of one a second");
            };
            machine.finish(now, request);
            now = now.saturating_add(Nanos::from_secs(1));
        } else {
            machine.dispatch(now);
        }
        turns += 1;
        let keys = machine.snapshot(now).keys;
        assert!(left - keys <= 64, "{} keys in one call", left - keys);
        assert!(keys < left, "call {turns} forgot nobody");
        left = keys;
    }
    assert!(turns <= 1_000, "{turns} calls");
}

#[test]
fn fr_078_nothing_is_in_flight_between_two_attempts() {
    let mut machine = machine("concurrency = 1\n[rules]\nr = {}\nhigh = {}\n");
    let key = machine.add_key(Instant::ZERO, 0);
    let Ok(Enter::Started(low)) = machine.enter(Instant::ZERO, key, RuleId(0), Entry::default()) else {
        panic!("the slot is free");
    };
    let flight = |machine: &Scheduler<usize>| {
        let snapshot = machine.snapshot(ms(1));
        (snapshot.in_flight, snapshot.waiting)
    };
    assert_eq!(flight(&machine), (1, 0));
    assert!(machine.retry(ms(1), low, Target::Key(key), ms(1), None));
    assert_eq!(flight(&machine), (0, 1));
    assert!(matches!(machine.claim(ms(1), low), Claim::Started { .. }));
    assert_eq!(flight(&machine), (1, 0));
    machine.finish(ms(1), low);
    assert_eq!(flight(&machine), (0, 0));
}

#[test]
fn fr_133_a_clock_that_steps_back_two_milliseconds_does_no_harm() {
    let mut owner = Owner::new("[rules]\nr = '5/1s'", 1);
    let mut random = Rng::new(133);
    // Eight callers ask again as soon as they are served; each reads the clock up to 2 ms late.
    let (mut starts, mut asked) = (Vec::new(), 0);
    for micros in (0..60_000_000_u64).step_by(100) {
        let now = Instant::from_nanos(micros.saturating_sub(random.below(2_001)) * 1_000);
        let before = owner.starts;
        if owner.waiting.len() < 8 && micros % 700 == 0 {
            owner.enter(now, 0, RuleId(0)).expect("a place in line");
            asked += 1;
        } else if owner.machine.next_wake().is_some_and(|wake| wake <= now) {
            owner.machine.dispatch(now);
            owner.wake(now);
        }
        while !owner.running.is_empty() {
            owner.end(now, 0);
        }
        starts.extend((before..owner.starts).map(|_| micros));
    }
    // Five a second, the first at 0: nobody is stuck, nobody is early.
    assert_eq!((starts.len(), asked - starts.len()), (300, 8));
    for (number, &at) in (0_u64..).zip(&starts) {
        let due = number / 5 * 1_000_000;
        assert!((due..=due + (number / 5 + 1) * 2_100).contains(&at) || number < 5, "start {number} at {at} us");
    }
    for pair in starts.windows(6) {
        assert!(pair[5] - pair[0] >= 1_000_000 - 2_000, "six starts in less than a second: {pair:?}");
    }
}
