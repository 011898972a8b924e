//! Grants of a pool: those that are taken up late, for which counts what happened to the endpoint meanwhile, and whose
//! turn it is behind one endpoint.

use request_balancer::Rules;
use request_balancer::engine::{
    BreakerState, Claim, EndpointId, Enter, Entry, Instant, KeyId, Nanos, Report, RequestId, RuleId, Scheduler, Target,
    Why,
};

const A: EndpointId = EndpointId(0);
const B: EndpointId = EndpointId(1);

struct World {
    machine: Scheduler<()>,
    key: KeyId,
}

impl World {
    fn new(lines: &str) -> Self {
        let rules = format!("[pool]\nendpoints = ['a', 'b']\nchoose = 'in-order'\n{lines}");
        let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}"));
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(at(0), 1);
        Self { machine, key }
    }

    /// A request that was granted and has yet to claim.
    fn granted(&mut self, now: Instant) -> RequestId {
        if !self.machine.knows(self.key) {
            self.key = self.machine.add_key(now, 1);
        }
        let id = self.machine.enqueue(now, self.key, RuleId(0), Entry::default()).expect("room in line");
        self.machine.dispatch(now);
        assert!(self.machine.endpoint_of(id).is_some());
        id
    }

    fn claims(&mut self, now: Instant, id: RequestId) -> Option<EndpointId> {
        match self.machine.claim(now, id) {
            Claim::Started { .. } => self.machine.endpoint_of(id),
            Claim::Waiting => None,
            claim => panic!("{claim:?}"),
        }
    }

    fn live(&self, now: Instant) -> Vec<u32> {
        self.machine.endpoints(now).iter().map(|endpoint| endpoint.live).collect()
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[test]
fn a_grant_on_an_endpoint_that_is_held_meanwhile_moves_on() {
    let mut world = World::new("");
    let id = world.granted(at(0));
    assert_eq!(world.machine.endpoint_of(id), Some(A));
    world.machine.hold(at(0), Target::Endpoint(A), at(5_000));
    assert_eq!(world.claims(at(100), id), Some(B));
    assert_eq!(world.live(at(100)), [0, 1]);
    world.machine.finish(at(100), id);
    // Now the other is disabled: it waits for the first.
    let id = world.granted(at(200));
    world.machine.disable_endpoint(at(200), B);
    assert_eq!(world.claims(at(300), id), None);
    assert_eq!(world.live(at(300)), [0, 0]);
    world.machine.dispatch(at(4_999));
    assert_eq!(world.claims(at(4_999), id), None);
    world.machine.dispatch(at(5_000));
    assert_eq!(world.claims(at(5_000), id), Some(A));
    world.machine.finish(at(5_000), id);
    // None is left.
    let id = world.granted(at(6_000));
    world.machine.disable_endpoint(at(6_000), A);
    assert!(matches!(world.machine.claim(at(6_100), id), Claim::Refused { why: Why::NoEndpoint, .. }));
    assert_eq!(world.live(at(6_100)), [0, 0]);
    assert_eq!(world.machine.snapshot(at(6_100)).waiting, 0);
}

#[test]
fn a_grant_that_is_not_taken_up_gives_everything_back() {
    let mut world = World::new("concurrency = 1\noverall = '1/1s'\nper_key = '1/1s'");
    let id = world.granted(at(0));
    assert_eq!(world.live(at(0)), [1, 0]);
    world.machine.withdraw(at(10), id);
    assert_eq!(world.live(at(10)), [0, 0]);
    // The lease of the next one runs out, and it goes on when its owner asks.
    let id = world.granted(at(20));
    world.machine.dispatch(at(1_020));
    assert_eq!(world.live(at(1_020)), [0, 0]);
    assert_eq!(world.claims(at(1_500), id), Some(A));
}

#[test]
fn a_probe_that_is_granted_and_not_taken_up_gives_its_place_back() {
    let mut world = World::new("breaker = { failures = 1, jitter = 0 }");
    let key = world.key;
    let Ok(Enter::Started(id)) = world.machine.enter(at(0), key, RuleId(0), Entry::default()) else {
        panic!("nothing is in its way")
    };
    world.machine.report(at(0), id, Report::Failure, 0);
    world.machine.finish(at(0), id);
    assert_eq!(world.machine.endpoints(at(0))[0].breaker, BreakerState::Open { until: at(30_000) });
    for lost in 0..3 {
        let now = at(30_000 + lost);
        let probe = world.granted(now);
        assert_eq!(world.machine.endpoint_of(probe), Some(A));
        // Nobody else probes meanwhile.
        let other = world.granted(now);
        assert_eq!(world.machine.endpoint_of(other), Some(B));
        world.machine.withdraw(now, probe);
        world.machine.withdraw(now, other);
    }
    let probe = world.granted(at(31_000));
    assert_eq!(world.claims(at(31_000), probe), Some(A));
    world.machine.report(at(31_000), probe, Report::Success, 0);
    assert_eq!(world.machine.endpoints(at(31_000))[0].breaker, BreakerState::Closed);
}

#[test]
fn a_grant_from_before_a_breaker_opened_is_no_probe() {
    let mut world = World::new("breaker = { failures = 1, reset = '100ms', jitter = 0 }");
    let ill = world.granted(at(0));
    assert_eq!(world.claims(at(0), ill), Some(A));
    let other = [A];
    let entry = Entry { endpoints: &other, ..Entry::default() };
    let [late, later] = [0, 0].map(|_| {
        let key = world.machine.add_key(at(0), 7);
        world.machine.enqueue(at(0), key, RuleId(0), entry).expect("room in line")
    });
    world.machine.dispatch(at(0));
    assert!(world.machine.is_granted(late) && world.machine.is_granted(later));
    world.machine.report(at(10), ill, Report::Failure, 0);
    world.machine.finish(at(10), ill);
    // When they come for what they were granted, the breaker is half-open: one of them probes, and the other one waits.
    world.machine.dispatch(at(110));
    assert_eq!(world.claims(at(110), late), Some(A));
    assert_eq!(world.claims(at(110), later), None);
    assert_eq!(world.live(at(110)), [1, 0]);
    world.machine.report(at(120), late, Report::Success, 0);
    world.machine.finish(at(120), late);
    world.machine.dispatch(at(120));
    assert_eq!(world.claims(at(120), later), Some(A));
}

#[test]
fn a_crowd_behind_one_busy_endpoint_goes_in_order_whatever_else_is_free() {
    // All are bound to one endpoint that takes one at a time; each end lets exactly the next one go, in order.
    let mut world = World::new("concurrency = 1");
    let bound = [B];
    let entry = Entry { endpoints: &bound, ..Entry::default() };
    let mut ids = Vec::new();
    for tag in 0..2_000_u64 {
        let key = world.machine.add_key(at(0), tag);
        ids.push(world.machine.enqueue(at(0), key, RuleId(0), entry).expect("room in line"));
    }
    // The other endpoint is free all the time: the gate is open, and each of them has to be asked.
    while world.machine.next_wake().is_some_and(|wake| wake <= at(0)) {
        world.machine.dispatch(at(0));
    }
    for (number, id) in ids.iter().enumerate() {
        let now = at(number as u64);
        let mut turns = 0;
        while !world.machine.is_granted(*id) {
            world.machine.dispatch(now);
            turns += 1;
            assert!(turns <= 80, "{turns} turns for request {number}");
        }
        assert!(matches!(world.machine.claim(now, *id), Claim::Started { .. }));
        world.machine.finish(now.saturating_add(Nanos::new(1)), *id);
    }
}

/// A crowd of the lane above, all bound to the same endpoint, was looked at before the one below ever was: that one's lane was
/// not counted as passed by, and it never started.
#[test]
fn behind_one_endpoint_a_lane_below_has_its_turn_too() {
    let rules = "[rules]\nhigh = {}\nlow = { priority = 2 }\n[pool]\nendpoints = ['a', 'b']\nconcurrency = 1";
    let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    let entry = Entry { endpoints: &[B], ..Entry::default() };
    let enter = |machine: &mut Scheduler<()>, rule: u16, tag: u64, now: Instant| {
        let key = machine.add_key(now, tag);
        machine.enqueue(now, key, RuleId(rule), entry).expect("room in line")
    };
    let mut crowd: Vec<RequestId> = (0..60).map(|tag| enter(&mut machine, 0, tag, at(0))).collect();
    let low = enter(&mut machine, 1, 60, at(0));
    let mut served = 0;
    for round in 1.. {
        let now = at(round);
        machine.dispatch(now);
        while machine.next_wake().is_some_and(|wake| wake <= now) {
            machine.dispatch(now);
        }
        if machine.is_granted(low) {
            break;
        }
        let place = crowd.iter().position(|id| machine.is_granted(*id)).expect("somebody is served");
        let id = crowd.remove(place);
        assert!(matches!(machine.claim(now, id), Claim::Started { .. }));
        machine.finish(now, id);
        served += 1;
        assert!(served <= 20, "{served} of the lane above went past it");
        crowd.push(enter(&mut machine, 0, 60 + round, now));
    }
}
