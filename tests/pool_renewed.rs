//! What servers say of their counters to tokens that are renewed then: the machine by itself.

use request_balancer::engine::{
    Answers, Charge, Claim, EndpointId, Enter, Entry, Instant, KeyId, Nanos, Reach, RequestId, RuleId, Scheduler,
    ServerReset, ServerWindow, Side,
};
use request_balancer::{EndpointRules, Rules};

const BOT: EndpointId = EndpointId(0);

struct World {
    machine: Scheduler<()>,
    rules: Rules,
    key: KeyId,
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Nothing is left for an hour.
const fn nothing_left(side: Side) -> ServerWindow<'static> {
    ServerWindow {
        name: "ratelimit",
        charge: Charge::Requests,
        side: Some(side),
        limit: None,
        left: Some(0),
        per: None,
        reset: Some(ServerReset { after: Nanos::from_secs(3_600), grain: Nanos::from_secs(1) }),
    }
}

impl World {
    fn new() -> Self {
        let text = "overall = '50/60s'\n[pool]\nendpoints = ['bot']\noverall = '10/60s'\nper_key = '10/60s'";
        let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(at(0), 1);
        Self { machine, rules, key }
    }

    fn try_start(&mut self, now: u64) -> Option<RequestId> {
        match self.machine.enter(at(now), self.key, RuleId(0), Entry::default()).expect("a place") {
            Enter::Started(id) => Some(id),
            Enter::Waiting(id) => {
                self.machine.withdraw(at(now), id);
                None
            }
        }
    }

    fn start(&mut self, now: u64) -> RequestId {
        self.try_start(now).unwrap_or_else(|| panic!("no start at {now}"))
    }

    /// How many start now, one after the other.
    fn free(&mut self, now: u64) -> usize {
        std::iter::from_fn(|| self.try_start(now)).take(100).count()
    }

    fn replace(&mut self, rules: Rules) {
        let plan = self.machine.succeeding(at(100), (*rules.plan()).clone());
        self.machine.replace(at(100), plan.into());
        self.rules = rules;
    }

    /// Another token comes behind the name: at once, or after the old one was removed.
    fn renew(&mut self, is_removed: bool) {
        if is_removed {
            self.replace(self.rules.without_endpoint("bot"));
            self.replace(self.rules.with_endpoint("bot", EndpointRules::new()).expect("a good name"));
        } else {
            assert!(self.machine.renew_endpoint(at(100), BOT));
        }
        assert_eq!(self.machine.endpoints(at(100)).len(), 1);
    }
}

/// Without it nothing would be shown below.
#[test]
fn what_the_server_says_narrows_the_endpoint() {
    for side in [Side::All, Side::Key] {
        let mut world = World::new();
        let first = world.start(0);
        assert!(world.machine.observe(at(50), first, [nothing_left(side)]));
        assert_eq!(world.free(100), 0, "{side:?}");
    }
}

/// A token is renewed because the server lets it do nothing, and the new one did nothing either for as long.
#[test]
fn what_the_server_said_before_is_not_about_the_new_token() {
    for side in [Side::All, Side::Key] {
        for is_removed in [false, true] {
            let mut world = World::new();
            let first = world.start(0);
            assert!(world.machine.observe(at(50), first, [nothing_left(side)]));
            world.machine.finish(at(50), first);
            world.renew(is_removed);
            assert_eq!(world.free(100), 9, "{side:?} {is_removed}: the start before it counts");
        }
    }
}

/// An answer to the old one came after the new one was there.
#[test]
fn what_the_server_says_to_the_old_token_is_not_about_the_new_one() {
    for side in [Side::All, Side::Key] {
        for is_removed in [false, true] {
            let mut world = World::new();
            let first = world.start(0);
            world.renew(is_removed);
            assert!(world.machine.observe(at(150), first, [nothing_left(side)]));
            world.machine.finish(at(150), first);
            assert_eq!(world.free(200), 9, "{side:?} {is_removed}");
            // Nor is it about what all endpoints have in common.
            assert_eq!(world.free(60_200), 10, "{side:?} {is_removed}");
        }
    }
}

/// All windows of the old one's server are over in a store that keeps the limit. Whoever never used the old one knows of none.
#[test]
fn a_store_hears_that_another_token_is_there_from_who_used_the_old_one() {
    for (is_used, is_removed) in [(true, false), (true, true), (false, false), (false, true)] {
        let text = "[pool]\nendpoints = ['bot']\noverall = { limit = '10/60s', shared = true }";
        let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}"));
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(at(0), 1);
        machine.set_reach(at(0), Reach::Asked);
        let mut world = World { machine, rules, key };
        if is_used {
            let entered = world.machine.enter(at(0), key, RuleId(0), Entry::default());
            let Ok(Enter::Waiting(id)) = entered else { panic!("{entered:?}") };
            assert_eq!(world.machine.collect(at(0)).expect("a question").asks.len(), 1);
            let answers = Answers { taken: vec![true], usable_until: Instant::NEVER, ..Answers::default() };
            world.machine.answer(at(0), &answers);
            assert!(matches!(world.machine.claim(at(0), id), Claim::Started { .. }));
            world.machine.finish(at(50), id);
        }
        if is_removed {
            world.renew(true);
        }
        assert!(world.machine.renew_endpoint(at(100), BOT));
        let said = world.machine.collect(at(100)).into_iter().flat_map(|batch| batch.lines).flat_map(|line| line.said);
        assert_eq!(said.filter(|said| said.window == 0).count(), usize::from(is_used), "{is_used} {is_removed}");
    }
}
