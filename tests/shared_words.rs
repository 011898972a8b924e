//! What machines that share limits tell each other of their endpoints, in the engine alone.

use request_balancer::Rules;
use request_balancer::engine::{
    Answers, BreakerState, Claim, EndpointId, Enter, Entry, Instant, Nanos, Notice, Opening, Reach, Report, RuleId,
    Scheduler, Word,
};

const A: EndpointId = EndpointId(0);

fn machine(rules: &str) -> Scheduler<()> {
    let rules: Rules = rules.parse().unwrap();
    let mut machine = Scheduler::new(rules.plan());
    machine.set_reach(Instant::ZERO, Reach::Asked);
    machine
}

fn pool() -> Scheduler<()> {
    machine(
        "overall = { limit = '9/1s', shared = true }\n[pool]\nendpoints = ['a', 'b']\nbreaker = { failures = 1, reset = '30s', jitter = 0.0 }",
    )
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn breaker(machine: &Scheduler<()>, now: Instant) -> BreakerState {
    machine.endpoints(now)[0].breaker
}

fn opened(secs: u64) -> Word {
    let span = Nanos::from_secs(secs);
    Word::Opened { endpoint: "a".into(), opening: Opening { lasts: span, rest: span, alone: false } }
}

fn closed() -> Word {
    Word::Closed { endpoint: "a".into() }
}

#[test]
fn what_is_taken_over_is_not_told_again() {
    let (mut one, mut other) = (pool(), pool());
    one.open_breaker(at(0), A, Nanos::from_secs(30));
    assert_eq!(one.take_words(), [opened(30)]);
    assert!(one.take_words().is_empty());
    assert!(other.heed(at(0), &opened(30)));
    assert_eq!(breaker(&other, at(0)), BreakerState::Open { until: at(30_000) });
    other.close_breaker(at(1), A);
    assert_eq!(other.take_words(), [closed()]);
    // What is closed already is no news.
    other.close_breaker(at(1), A);
    assert!(other.take_words().is_empty());
    assert!(one.heed(at(1), &closed()));
    assert_eq!(breaker(&one, at(1)), BreakerState::Closed);
    assert!(one.take_words().is_empty());
    let notices = std::mem::take(one.take_notices());
    assert!(matches!(notices[..], [Notice::BreakerOpened { .. }, Notice::BreakerClosed { .. }]), "{notices:?}");
}

#[test]
fn a_spent_quota_is_probed_by_one_attempt_and_rests_as_long_again() {
    let (mut one, mut other) = (pool(), pool());
    one.exhaust_endpoint(at(0), A);
    let words = one.take_words();
    let [Word::Opened { opening, .. }] = words[..] else { panic!("{words:?}") };
    assert!(opening.alone);
    // It is heard by somebody who comes a second before it is over, and fails there.
    let left = Opening { lasts: Nanos::from_secs(1), ..opening };
    other.heed(at(0), &Word::Opened { endpoint: "a".into(), opening: left });
    assert_eq!(breaker(&other, at(0)), BreakerState::Open { until: at(1_000) });
    let id = start_on_a(&mut other, at(1_000));
    other.report(at(1_000), id, Report::Failure, 0);
    let until = at(1_000).saturating_add(opening.rest);
    assert_eq!(breaker(&other, at(1_000)), BreakerState::Open { until });
    let again = Opening { lasts: opening.rest, ..opening };
    assert_eq!(other.take_words(), [Word::Opened { endpoint: "a".into(), opening: again }]);
}

/// Each process probes; the first success closes the breaker everywhere, and a probe that fails after it says nothing.
#[test]
fn the_first_probe_that_succeeds_closes_it_everywhere() {
    let (mut one, mut other) = (pool(), pool());
    one.open_breaker(at(0), A, Nanos::from_secs(30));
    let [word] = &one.take_words()[..] else { panic!() };
    other.heed(at(0), word);
    let probes = [start_on_a(&mut one, at(30_000)), start_on_a(&mut other, at(30_000))];
    one.report(at(30_100), probes[0], Report::Success, 0);
    assert_eq!(one.take_words(), [closed()]);
    other.heed(at(30_101), &closed());
    other.report(at(30_102), probes[1], Report::Failure, 0);
    assert_eq!(breaker(&other, at(30_102)), BreakerState::Closed);
    assert!(other.take_words().is_empty());
}

#[test]
fn nobody_is_told_where_nothing_is_shared() {
    let mut alone = machine("[pool]\nendpoints = ['a']");
    alone.open_breaker(at(0), A, Nanos::from_secs(30));
    assert!(alone.take_words().is_empty());
    assert!(!alone.heed(at(0), &closed()));
    assert!(!pool().heed(at(0), &Word::Closed { endpoint: "c".into() }));
    let rules: Rules = "overall = { limit = '9/1s', shared = true }\n[pool]\nendpoints = ['a']".parse().unwrap();
    let mut without_store = Scheduler::<()>::new(rules.plan());
    without_store.open_breaker(at(0), A, Nanos::from_secs(30));
    assert!(without_store.take_words().is_empty());
}

/// Starts a request on the first endpoint: the store gives whatever is asked for.
fn start_on_a(machine: &mut Scheduler<()>, now: Instant) -> request_balancer::engine::RequestId {
    let key = machine.add_key(now, 0);
    machine.disable_endpoint(now, EndpointId(1));
    let entered = machine.enter(now, key, RuleId(0), Entry::default());
    let Ok(Enter::Waiting(id)) = entered else { panic!("{entered:?}") };
    let batch = machine.collect(now).unwrap();
    let taken = vec![true; batch.asks.len()];
    machine.answer(now, &Answers { taken, usable_until: Instant::NEVER, ..Answers::default() });
    assert_eq!(machine.claim(now, id), Claim::Started { waited: Nanos::ZERO });
    assert_eq!(machine.endpoint_of(id), Some(A));
    id
}
