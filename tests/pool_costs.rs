//! Costs in pools: a request goes where it fits, and nowhere else.

use request_balancer::Rules;
use request_balancer::engine::{
    Claim, Elsewhere, EndpointId, Enter, Entry, Instant, KeyId, RequestId, RuleId, Scheduler, Target, Turned, Why,
};

const SMALL: EndpointId = EndpointId(0);
const LARGE: EndpointId = EndpointId(1);

struct World {
    machine: Scheduler<()>,
    rules: Rules,
    key: KeyId,
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

impl World {
    /// Two endpoints, of which `field` says something, for the first one `small` and for the other one `large`.
    fn new(field: &str, small: &str, large: &str) -> Self {
        let text = format!(
            "[pool]\nchoose = 'in-order'\n[pool.endpoints]\nsmall = {{ {field} = '{small}' }}\n\
             large = {{ {field} = '{large}' }}"
        );
        let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(at(0), 1);
        Self { machine, rules, key }
    }

    fn enter(&mut self, now: Instant, cost: u32, endpoints: &[EndpointId]) -> Result<Enter, Turned> {
        if !self.machine.knows(self.key) {
            self.key = self.machine.add_key(now, 1);
        }
        self.machine.enter(now, self.key, RuleId(0), Entry { cost, endpoints, ..Entry::default() })
    }

    fn started(&mut self, now: Instant, cost: u32) -> (RequestId, EndpointId) {
        match self.enter(now, cost, &[]) {
            Ok(Enter::Started(id)) => (id, self.machine.endpoint_of(id).expect("an endpoint")),
            entered => panic!("{entered:?}"),
        }
    }

    fn waiting(&mut self, now: Instant, cost: u32) -> RequestId {
        match self.enter(now, cost, &[]) {
            Ok(Enter::Waiting(id)) => id,
            entered => panic!("{entered:?}"),
        }
    }
}

#[test]
fn what_is_too_large_for_one_endpoint_goes_to_the_other() {
    for field in ["overall", "per_key"] {
        let mut world = World::new(field, "2/1s", "5/1s");
        let (first, endpoint) = world.started(at(0), 3);
        assert_eq!(endpoint, LARGE, "{field}");
        world.machine.finish(at(0), first);
        // There is no room for a second one before the first is out of the window.
        let second = world.waiting(at(1), 3);
        world.machine.dispatch(at(999));
        assert!(matches!(world.machine.claim(at(999), second), Claim::Waiting), "{field}");
        world.machine.dispatch(at(1_000));
        assert!(matches!(world.machine.claim(at(1_000), second), Claim::Started { .. }), "{field}");
        assert_eq!(world.machine.endpoint_of(second), Some(LARGE), "{field}");
        // What fits everywhere goes to the first.
        assert_eq!(world.started(at(1_000), 2).1, SMALL, "{field}");
        let turned = world.enter(at(1_000), 6, &[]);
        assert!(matches!(turned, Err(Turned::CostTooHigh { cost: 6, capacity: 5 })), "{field}: {turned:?}");
        let turned = world.enter(at(1_000), 3, &[SMALL]);
        assert!(matches!(turned, Err(Turned::CostTooHigh { cost: 3, capacity: 2 })), "{field}: {turned:?}");
    }
}

#[test]
fn who_fits_on_one_endpoint_alone_has_no_other_to_wait_for() {
    for field in ["overall", "per_key"] {
        let mut world = World::new(field, "2/1s", "5/1s");
        let (running, _) = world.started(at(0), 3);
        // It can't go to the small one, now or ever.
        assert_eq!(world.machine.elsewhere(at(0), running), Elsewhere::Nowhere, "{field}");
        let wait = request_balancer::Nanos::from_secs(30);
        assert_eq!(world.machine.rest_elsewhere(at(0), running, wait), wait, "{field}");
        let waiting = world.waiting(at(10), 3);
        world.machine.disable_endpoint(at(20), LARGE);
        let claimed = world.machine.claim(at(20), waiting);
        assert!(matches!(claimed, Claim::Refused { why: Why::NoEndpoint, .. }), "{field}: {claimed:?}");
        // Whoever is small goes on.
        assert_eq!(world.started(at(30), 2).1, SMALL, "{field}");
        assert!(!world.machine.retry(at(30), waiting, Target::Endpoint(LARGE), at(40), None));
    }
}

#[test]
fn what_fits_nowhere_any_more_is_told_so() {
    for field in ["overall", "per_key"] {
        let mut world = World::new(field, "2/1s", "5/1s");
        let (_running, _) = world.started(at(0), 3);
        let waiting = world.waiting(at(10), 4);
        let rules = world.rules.without_endpoint("large");
        let plan = (*rules.plan()).clone().succeeding(world.machine.plan());
        world.machine.replace(at(20), plan.into());
        let claimed = world.machine.claim(at(20), waiting);
        assert!(
            matches!(claimed, Claim::Refused { why: Why::CostTooHigh { cost: 4, capacity: 2 }, .. }),
            "{field}: {claimed:?}"
        );
    }
}

/// When the costly one of two starts that comes while others, which cost 1, take all the room that there is. Ten of them come
/// each 100 ms for two endpoints that take ten a second each; the costly one comes after a second and takes all ten of one.
fn costly_start(priority: u32, bound: &[EndpointId]) -> u64 {
    let text = format!(
        "[rules]\nsmall = {{}}\nlarge = {{ priority = {priority} }}\n[pool]\nendpoints = ['a', 'b']\noverall = '10/1s'"
    );
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    let mut waiting: Vec<RequestId> = Vec::new();
    let mut costly = None;
    let mut tag = 0;
    for now in (0..20_000).step_by(10) {
        if now % 100 == 0 {
            for _ in 0..10 {
                tag += 1;
                let key = machine.add_key(at(now), tag);
                waiting.push(machine.enqueue(at(now), key, RuleId(0), Entry::default()).expect("room in line"));
            }
        }
        if now == 1_000 {
            let key = machine.add_key(at(now), 1_000_000);
            let entry = Entry { cost: 10, endpoints: bound, ..Entry::default() };
            costly = Some(machine.enqueue(at(now), key, RuleId(1), entry).expect("room in line"));
        }
        machine.dispatch(at(now));
        while machine.next_wake().is_some_and(|wake| wake <= at(now)) {
            machine.dispatch(at(now));
        }
        if costly.is_some_and(|costly| machine.is_granted(costly)) {
            return now;
        }
        waiting.retain(|id| {
            let is_granted = machine.is_granted(*id);
            if is_granted {
                assert!(matches!(machine.claim(at(now), *id), Claim::Started { .. }));
                machine.finish(at(now), *id);
            }
            !is_granted
        });
    }
    panic!("it never starts");
}

/// Whoever cost little took the room of every endpoint bit by bit, and whoever cost much never had its turn.
#[test]
fn what_costs_much_has_its_turn_among_many_that_cost_little() {
    for bound in [&[][..], &[SMALL], &[LARGE]] {
        let start = costly_start(1, bound);
        assert!((1_000..=12_000).contains(&start), "{start} for {bound:?}");
        let start = costly_start(2, bound);
        assert!((1_000..=16_000).contains(&start), "{start} for {bound:?} in the lane below");
    }
}

/// Nothing is kept for long for who has to wait longer for its own limits there.
#[test]
fn nothing_is_kept_for_who_waits_for_its_own_limits() {
    let text = "[pool]\nendpoints = ['a']\noverall = '10/1s'\nper_key = '10/1h'";
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    let enter = |machine: &mut Scheduler<()>, tag: u64, cost: u32| {
        let key = machine.add_key(at(0), tag);
        machine.enter(at(0), key, RuleId(0), Entry { cost, ..Entry::default() }).expect("room in line")
    };
    let Enter::Started(first) = enter(&mut machine, 0, 4) else { panic!("nothing is in its way") };
    let key = machine.key_of(first).expect("it runs");
    let again = machine.enter(at(0), key, RuleId(0), Entry { cost: 8, ..Entry::default() }).expect("room in line");
    assert!(matches!(again, Enter::Waiting(_)));
    machine.dispatch(at(0));
    // Six are left, for an hour.
    for tag in 1..7 {
        assert!(matches!(enter(&mut machine, tag, 1), Enter::Started(_)), "{tag}");
    }
}

#[test]
fn nothing_is_kept_for_who_has_left() {
    let text = "[pool]\nendpoints = ['a', 'b']\noverall = '10/1s'";
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    let enter = |machine: &mut Scheduler<()>, tag: u64, cost: u32, endpoint: EndpointId| {
        let key = machine.add_key(at(0), tag);
        let entered = machine.enter(at(0), key, RuleId(0), Entry { cost, endpoints: &[endpoint], ..Entry::default() });
        (key, entered.expect("room in line"))
    };
    enter(&mut machine, 0, 4, SMALL);
    enter(&mut machine, 1, 10, LARGE);
    let (key, Enter::Waiting(costly)) = enter(&mut machine, 2, 8, SMALL) else { panic!("there is no room") };
    // Behind it somebody waits for the other one, which is full.
    let behind = Entry { endpoints: &[LARGE], ..Entry::default() };
    assert!(matches!(machine.enter(at(0), key, RuleId(0), behind), Ok(Enter::Waiting(_))));
    assert!(matches!(enter(&mut machine, 3, 1, SMALL), (_, Enter::Waiting(_))), "it is kept");
    machine.withdraw(at(0), costly);
    machine.dispatch(at(0));
    for tag in 4..9 {
        assert!(matches!(enter(&mut machine, tag, 1, SMALL), (_, Enter::Started(_))), "{tag}");
    }
}

/// Two endpoints without limits in common, of which the second one is full for an hour.
fn with_one_full(per_key: &str) -> Scheduler<()> {
    let text = format!("[pool]\n{per_key}\n[pool.endpoints]\na = {{ overall = '10/1s' }}\nb = {{ overall = '1/1h' }}");
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::new(rules.plan());
    start_on(&mut machine, at(0), 1_000, (1, LARGE));
    machine
}

fn enter_on(machine: &mut Scheduler<()>, now: Instant, key: KeyId, cost: u32, endpoint: EndpointId) -> Enter {
    let entry = Entry { cost, endpoints: &[endpoint], ..Entry::default() };
    machine.enter(now, key, RuleId(0), entry).expect("room in line")
}

fn start_on(machine: &mut Scheduler<()>, now: Instant, tag: u64, (cost, endpoint): (u32, EndpointId)) -> KeyId {
    let key = machine.add_key(now, tag);
    let entered = enter_on(machine, now, key, cost, endpoint);
    assert!(matches!(entered, Enter::Started(_)), "{tag} at {now:?}: {entered:?}");
    key
}

/// Dispatches when the machine wants to be called, and at no other time.
fn pass(machine: &mut Scheduler<()>, until: Instant) {
    let mut calls = 0;
    while let Some(wake) = machine.next_wake().filter(|wake| *wake <= until) {
        machine.dispatch(wake);
        calls += 1;
        assert!(calls < 1_000, "it wants to be called for ever at {wake:?}");
    }
}

/// Whoever came next in its queue waited for the other endpoint, and all others for as long as that.
#[test]
fn an_endpoint_is_not_kept_for_who_waits_for_another_one() {
    let mut machine = with_one_full("");
    for tag in 0..9 {
        start_on(&mut machine, at(0), tag, (1, SMALL));
    }
    let key = machine.add_key(at(0), 100);
    let Enter::Waiting(costly) = enter_on(&mut machine, at(0), key, 5, SMALL) else { panic!("there is no room") };
    assert!(matches!(enter_on(&mut machine, at(0), key, 1, LARGE), Enter::Waiting(_)));
    pass(&mut machine, at(500));
    machine.withdraw(at(500), costly);
    pass(&mut machine, at(1_000));
    for tag in 200..210 {
        start_on(&mut machine, at(1_000), tag, (1, SMALL));
    }
}

/// The same, if whoever comes next costs as much and waits for limits of its own.
#[test]
fn an_endpoint_is_not_kept_for_who_comes_next_and_waits_for_its_own_limits() {
    let mut machine = with_one_full("per_key = '10/1h'");
    let key = start_on(&mut machine, at(0), 100, (4, SMALL));
    for tag in 0..3 {
        start_on(&mut machine, at(0), tag, (1, SMALL));
    }
    // Three are left there, and six for the key.
    let Enter::Waiting(costly) = enter_on(&mut machine, at(0), key, 6, SMALL) else { panic!("there is no room") };
    assert!(matches!(enter_on(&mut machine, at(0), key, 7, SMALL), Enter::Waiting(_)));
    let other = machine.add_key(at(0), 101);
    assert!(matches!(enter_on(&mut machine, at(0), other, 1, SMALL), Enter::Waiting(_)), "it is kept");
    pass(&mut machine, at(500));
    machine.withdraw(at(500), costly);
    pass(&mut machine, at(500));
    for tag in 200..202 {
        start_on(&mut machine, at(500), tag, (1, SMALL));
    }
}

/// Two for whom the same endpoint is kept do not keep it from each other.
#[test]
fn what_costs_much_waits_for_no_more_than_so_many_that_are_more_urgent_and_cost_much() {
    let text = "[rules]\ntop = { priority = 1 }\nlow = { priority = 2 }\n[pool]\nendpoints = ['a']\noverall = '10/1s'";
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    let mut enqueue = |tag: u64, rule: u16, cost: u32| {
        let key = machine.add_key(at(0), tag);
        machine.enqueue(at(0), key, RuleId(rule), Entry { cost, ..Entry::default() }).expect("room in line")
    };
    // Of each kind one has room in each second.
    let mut urgent: Vec<RequestId> = (0..60).map(|tag| enqueue(tag, 0, 6)).collect();
    let low: Vec<RequestId> = (100..102).map(|tag| enqueue(tag, 1, 8)).collect();
    let mut lows = Vec::new();
    machine.dispatch(at(0));
    for second in 0..62 {
        let now = at(second * 1_000);
        pass(&mut machine, now);
        let granted = |machine: &Scheduler<()>, id: &RequestId| machine.is_granted(*id);
        let of_low = low.iter().find(|id| granted(&machine, id)).copied();
        let of_top = urgent.iter().find(|id| granted(&machine, id)).copied();
        assert!(of_low.is_some() != of_top.is_some(), "{of_low:?} {of_top:?} at {now:?}");
        lows.extend(of_low.map(|_| second));
        urgent.retain(|id| Some(*id) != of_top);
        let id = of_low.or(of_top).expect("one of them");
        assert!(matches!(machine.claim(now, id), Claim::Started { .. }));
        machine.finish(now, id);
    }
    // The first one comes after its lane's bypass of 16, and each as many later.
    assert_eq!(lows, [18, 37]);
}

/// Before any endpoint had room for as much as the first in line costs, nobody was asked whether one has room for less.
#[test]
fn who_stands_behind_a_costly_one_uses_the_other_endpoints_at_once() {
    let text = "[pool]\nendpoints = ['a', 'b']\noverall = '2/10s'";
    let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let mut machine = Scheduler::<()>::new(rules.plan());
    for now in [0, 5_000] {
        pass(&mut machine, at(now));
        for (tag, endpoint) in [(1, SMALL), (2, LARGE)] {
            start_on(&mut machine, at(now), now + tag, (1, endpoint));
        }
    }
    let [costly, plain] = [(5, 2), (6, 1)].map(|(tag, cost)| {
        let key = machine.add_key(at(5_000), tag);
        machine.enqueue(at(5_000), key, RuleId(0), Entry { cost, ..Entry::default() }).expect("room in line")
    });
    pass(&mut machine, at(9_999));
    assert_eq!([costly, plain].map(|id| machine.is_granted(id)), [false, false]);
    pass(&mut machine, at(10_000));
    assert_eq!([costly, plain].map(|id| machine.is_granted(id)), [false, true]);
    assert!(matches!(machine.claim(at(10_000), plain), Claim::Started { .. }));
    pass(&mut machine, at(14_999));
    assert!(!machine.is_granted(costly));
    pass(&mut machine, at(15_000));
    assert!(machine.is_granted(costly));
    assert_ne!(machine.endpoint_of(costly), machine.endpoint_of(plain));
}
