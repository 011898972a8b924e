//! Cases from the field: which endpoint a request gets, and when an endpoint is given a rest.
#![cfg(feature = "tokio")]

mod field;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use field::{Diary, Rng, assert_quiet, balancer, ms, settle};
use futures::future::join_all;
use request_balancer::engine::{Admission, Breaker, BreakerPlan, BreakerState, Instant, RatioPlan, Report};
use request_balancer::{
    Attempt, Balancer, BreakerSnapshot, Error, Failure, Health, Nanos, NextStart, Outcome, Refused, Scope,
};

/// Three endpoints that rest for exactly as long as is said.
const THREE: &str =
    "[pool]\nendpoints = ['E1', 'E2', 'E3']\nbreaker = { failures = 3, jitter = 0 }\n[retry]\njitter = 0";

fn name(attempt: &Attempt) -> String {
    attempt.endpoint().expect("there is a pool").name().to_owned()
}

fn breaker(balancer: &Balancer, endpoint: usize) -> BreakerSnapshot {
    balancer.snapshot().endpoints[endpoint].breaker
}

/// One start after another.
fn starts_on(diary: &Diary, endpoint: &str) -> Vec<u64> {
    diary.read().into_iter().filter(|(name, _)| name == endpoint).map(|(_, at)| at).collect()
}

#[tokio::test(start_paused = true)]
async fn fr_071_all_handles_of_an_endpoint_know_of_its_hold() {
    let first = balancer("[pool]\nendpoints = ['E1']");
    let second = first.clone();
    let diary = Diary::new();
    let refused = first.run("default", "A", async |attempt: Attempt| match attempt.number() {
        1 => Err(attempt.retry::<()>(ms(5_000))),
        _ => {
            diary.note("first");
            Ok(())
        }
    });
    let other = async {
        settle().await;
        second.run("default", "B", diary.done::<()>("second")).await
    };
    let (one, two) = tokio::join!(refused, other);
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(diary.times(), [5_000, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_072_one_code_stops_a_recipient_and_another_one_the_number() {
    let balancer = balancer("[pool]\nendpoints = ['number']\n[retry]\nmin_wait = '0s'\nbackoff = '0s'");
    let diary = Diary::new();
    let send = |key: &'static str, first: Option<(u64, Scope)>| {
        let (balancer, diary) = (&balancer, &diary);
        async move {
            balancer
                .run("default", key, async |attempt: Attempt| match first.filter(|_| attempt.number() == 1) {
                    Some((wait, scope)) => Err(attempt.retry::<()>(ms(wait)).hold(scope)),
                    None => {
                        diary.note(key);
                        Ok(())
                    }
                })
                .await
        }
    };
    let (a, b, c, d) = tokio::join!(
        send("A", Some((6_000, Scope::Key))),
        send("B", Some((2_000, Scope::Endpoint))),
        send("C", None),
        send("A", None),
    );
    assert!([a, b, c, d].iter().all(Result::is_ok));
    // Who obeys both waits for the later.
    diary.assert(&[("B", 2_000), ("C", 2_000), ("A", 6_000), ("A", 6_000)]);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn fr_092_one_budget_over_all_endpoints_and_each_of_them_first() {
    let balancer = balancer(THREE);
    let diary = Diary::new();
    let answer: Result<(), _> = balancer
        .run("default", "A", async |attempt: Attempt| {
            diary.note(name(&attempt));
            Err(Failure::transient("503"))
        })
        .await;
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: Some("503") }));
    diary.assert(&[("E1", 0), ("E2", 0), ("E3", 0)]);
    assert_quiet(&balancer);
}

/// A balancer whose only endpoint is about to be probed, at 30 s.
async fn about_to_probe() -> Balancer {
    let balancer = balancer(
        "[pool]\nendpoints = ['E1']\nbreaker = { failures = 1, jitter = 0 }\n[rules]\nr = { attempt_timeout = '5s' }",
    );
    let failed: Result<(), _> = balancer.request("r", "A").no_retry().run(async |_| Err(Failure::transient(()))).await;
    assert!(failed.is_err());
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Open(ms(30_000)));
    tokio::time::sleep(ms(30_000)).await;
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::HalfOpen);
    balancer
}

#[tokio::test(start_paused = true)]
async fn fr_144_a_neutral_end_gives_the_probe_back() {
    let balancer = about_to_probe().await;
    let not_found: Result<(), _> = balancer.run("r", "A", async |_| Err(Failure::permanent("404"))).await;
    assert_eq!(not_found, Err(Error::Failed("404")));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::HalfOpen);
    assert_eq!(balancer.run("r", "A", async |_| Ok::<_, Failure<()>>(())).await, Ok(()));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Closed);
}

#[tokio::test(start_paused = true)]
async fn fr_144_a_dropped_probe_gives_its_place_back() {
    let balancer = about_to_probe().await;
    let probe = balancer.run("r", "A", |_| std::future::pending::<Outcome<(), ()>>());
    assert!(tokio::time::timeout(ms(1), probe).await.is_err());
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::HalfOpen);
    assert_eq!(balancer.run("r", "A", async |_| Ok::<_, Failure<()>>(())).await, Ok(()));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Closed);
}

#[tokio::test(start_paused = true)]
async fn fr_144_a_panic_counts_as_a_failure() {
    let balancer = about_to_probe().await;
    let probe: Result<(), Error<()>> = balancer.run("r", "A", async |_| panic!("boom")).await;
    assert_eq!(probe, Err(Error::Panicked("boom".into())));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Open(ms(30_000)));
}

#[tokio::test(start_paused = true)]
async fn fr_144_a_timeout_counts_as_a_failure() {
    let balancer = about_to_probe().await;
    let probe = balancer.run("r", "A", |_| std::future::pending::<Outcome<(), ()>>()).await;
    assert_eq!(probe, Err(Error::GaveUp { reason: Refused::TimedOut, attempts: 1, last: None }));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Open(ms(30_000)));
}

#[tokio::test(start_paused = true)]
async fn fr_147_slowing_down_does_not_open_a_breaker_and_503s_do() {
    for counts in [false, true] {
        let balancer = balancer(&format!(
            "[pool]\nendpoints = ['E1']\nbreaker = {{ failures = 5, jitter = 0, count_retries = {counts} }}\n\
             [retry]\nwaits = 1000\nattempts = 1"
        ));
        let answered = AtomicU32::new(0);
        let answer: Result<u32, _> = balancer
            .run("default", "A", async |attempt: Attempt| match answered.fetch_add(1, Ordering::Relaxed) {
                0..100 => Err(attempt.retry::<&str>(ms(1_000))),
                _ => Ok(attempt.number()),
            })
            .await;
        if counts {
            assert!(matches!(answer, Err(Error::GaveUp { reason: Refused::NoEndpoint { .. }, attempts: 5, .. })));
            continue;
        }
        assert_eq!(answer, Ok(101));
        assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Closed);
        for _ in 0..5 {
            let failed: Result<(), _> = balancer.run("default", "A", async |_| Err(Failure::transient("503"))).await;
            assert!(failed.is_err());
        }
        assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Open(ms(30_000)));
    }
}

#[tokio::test(start_paused = true)]
async fn fr_148_a_request_that_always_fails_opens_one_breaker_at_most() {
    let balancer = balancer(THREE);
    for _ in 0..3 {
        let bad: Result<(), _> = balancer.run("default", "X", async |_| Err(Failure::transient(500))).await;
        assert!(matches!(bad, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 3, .. })));
    }
    let open = (0..3).filter(|endpoint| breaker(&balancer, *endpoint) != BreakerSnapshot::Closed).count();
    assert!(open <= 1, "{open} are open");
    assert_eq!(balancer.run("default", "Y", async |_| Ok::<_, Failure<()>>(())).await, Ok(()));
}

#[test]
fn fr_149_few_failures_among_many_never_open_it() {
    let ratio = RatioPlan { part: 1, of: 2, minimum: 20, over: Nanos::from_secs(600) };
    let plan = BreakerPlan { failures: None, ratio: Some(ratio), jitter: 0.0, ..BreakerPlan::default() };
    let mut random = Rng::new(149);
    let mut breaker = Breaker::default();
    for call in 0..60_000 {
        let now = Instant::from_millis(call);
        let ticket = breaker.begin(&plan, now);
        let report = if random.below(100) == 0 { Report::Failure } else { Report::Success };
        assert!(!breaker.end(&plan, now, ticket, report, 0));
    }
    // Three a minute.
    let mut breaker = Breaker::default();
    for call in 1..=20 {
        let now = Instant::from_millis(call * 20_000);
        assert_eq!(breaker.admits(&plan, now), Admission::Free);
        let ticket = breaker.begin(&plan, now);
        assert_eq!(breaker.end(&plan, now, ticket, Report::Failure, 0), call == 20);
    }
    assert!(matches!(breaker.state(Instant::from_millis(400_000)), BreakerState::Open { .. }));
}

#[tokio::test(start_paused = true)]
async fn fr_151_an_open_endpoint_sees_nothing_and_costs_nobody_anything() {
    let balancer =
        balancer("[pool]\nendpoints = ['E1', 'E2']\nchoose = 'in-order'\nbreaker = { failures = 1, jitter = 0 }");
    let diary = Diary::new();
    for second in 0..35 {
        let begin = tokio::time::Instant::now();
        let answer = balancer
            .run("default", "A", async |attempt: Attempt| {
                let name = name(&attempt);
                diary.note(name.as_str());
                if name == "E1" && second == 0 {
                    return Err(Failure::transient(()));
                }
                tokio::time::sleep(ms(100)).await;
                Ok(())
            })
            .await;
        assert_eq!(answer, Ok(()));
        assert_eq!(begin.elapsed(), ms(100));
        tokio::time::sleep(ms(900)).await;
    }
    assert_eq!(starts_on(&diary, "E1"), [0, 30_000, 31_000, 32_000, 33_000, 34_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_152_who_is_told_to_slow_down_is_limited_and_not_ill() {
    let balancer = balancer("[pool]\nendpoints = ['E1', 'E2']");
    let told = AtomicU32::new(0);
    let sends = (0..50).map(|key| {
        balancer.run("default", key, async |attempt: Attempt| {
            if attempt.number() == 1 && told.fetch_add(1, Ordering::Relaxed) < 50 {
                return Err(attempt.retry::<()>(ms(2_000)));
            }
            Ok(())
        })
    });
    let seen = async {
        settle().await;
        balancer.health()
    };
    let (answers, health) = tokio::join!(join_all(sends), seen);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(health, Health::Limited);
    assert_eq!(balancer.health(), Health::Ok);
    assert!((0..2).all(|endpoint| breaker(&balancer, endpoint) == BreakerSnapshot::Closed));
}

#[tokio::test(start_paused = true)]
async fn fr_153_load_is_never_negative_ends_at_nothing_and_is_shared_evenly() {
    for seed in 0..20 {
        let balancer = balancer("[pool]\nendpoints = ['E1', 'E2', 'E3', 'E4']\nbreaker = false");
        let mut random = Rng::new(seed);
        let mut tasks = Vec::new();
        for number in 0..269_u32 {
            if number == 100 {
                tokio::time::sleep(Duration::from_secs(600)).await;
            }
            let (takes, fate) = (random.below(50), random.below(10));
            let caller = balancer.clone();
            tasks.push(tokio::spawn(async move {
                if fate == 3 {
                    // Its end is said, and it is dropped besides, in the middle of asking to go on.
                    let permit = caller.request("default", number).acquire().await.expect("there is no limit");
                    tokio::time::sleep(ms(takes)).await;
                    match takes % 2 {
                        0 => permit.succeed(),
                        _ => drop(tokio::time::timeout(ms(1), permit.retry(ms(60_000)))),
                    }
                    return;
                }
                let run = caller.run("default", number, async |_| {
                    tokio::time::sleep(ms(takes)).await;
                    match fate {
                        0 => panic!("boom"),
                        1 => Err(Failure::permanent(())),
                        _ => Ok(()),
                    }
                });
                match fate {
                    2 => drop(tokio::time::timeout(ms(takes / 2), run).await),
                    _ => drop(run.await),
                }
            }));
            tokio::time::sleep(ms(random.below(10))).await;
            let snapshot = balancer.snapshot();
            let on_all: usize = snapshot.endpoints.iter().map(|endpoint| endpoint.in_flight).sum();
            assert_eq!(on_all, snapshot.in_flight);
        }
        for task in tasks {
            task.await.expect("panics are caught");
        }
        let endpoints = balancer.snapshot().endpoints;
        for endpoint in &endpoints {
            assert_eq!(endpoint.in_flight, 0);
            assert!((53..=81).contains(&endpoint.starts), "{} of 269", endpoint.starts);
        }
        assert_eq!(endpoints.iter().map(|endpoint| endpoint.starts).sum::<u64>(), 269);
    }
}

#[tokio::test(start_paused = true)]
async fn fr_155_who_waits_for_all_gets_the_first_that_comes_back() {
    use request_balancer::Target;

    let balancer = balancer("[pool]\nendpoints = ['E1', 'E2']");
    balancer.hold(Target::endpoint("E1"), ms(30_000)).unwrap();
    balancer.hold(Target::endpoint("E2"), ms(10_000)).unwrap();
    let begin = tokio::time::Instant::now();
    let send = |max_wait| balancer.request("default", "A").max_wait(ms(max_wait));
    let run = |max_wait| send(max_wait).run(async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt)));
    let eager = send(5_000).eager().acquire().await.unwrap_err();
    let next_start = NextStart::After(ms(10_000));
    assert_eq!(eager, Refused::MaxWait { waited: Duration::ZERO, next_start });
    let impatient = async {
        let answer = run(5_000).await;
        (answer, begin.elapsed())
    };
    let patient = async {
        let answer = run(60_000).await;
        (answer, begin.elapsed())
    };
    let (impatient, patient) = tokio::join!(impatient, patient);
    let reason = Refused::MaxWait { waited: ms(5_000), next_start: NextStart::After(ms(5_000)) };
    assert_eq!(impatient, (Err(Error::GaveUp { reason, attempts: 0, last: None }), ms(5_000)));
    assert_eq!(patient, (Ok("E2".to_owned()), ms(10_000)));
}

#[tokio::test(start_paused = true)]
async fn fr_157_a_spent_quota_is_probed_once_in_a_while() {
    let balancer = balancer("[pool]\nendpoints = ['E1', 'E2']\nexhausted = '1h'\nbreaker = { jitter = 0 }");
    let diary = Diary::new();
    let hour = 3_600_000;
    // E1 is spent for the first two hours, E2 at the end.
    let send = async |spent: &[&str]| {
        balancer
            .run("default", "A", async |attempt: Attempt| {
                let name = name(&attempt);
                diary.note(name.as_str());
                let is_spent = spent.contains(&name.as_str());
                if is_spent { Err(Failure::permanent("spent").exhaust_endpoint()) } else { Ok(name) }
            })
            .await
    };
    assert_eq!(send(&["E1"]).await.as_deref(), Ok("E2"));
    for _ in 0..10 {
        assert_eq!(send(&["E1"]).await.as_deref(), Ok("E2"));
    }
    tokio::time::sleep(ms(hour)).await;
    // One real request tries, and goes on where there is some left.
    assert_eq!(send(&["E1"]).await.as_deref(), Ok("E2"));
    assert_eq!(send(&["E1"]).await.as_deref(), Ok("E2"));
    assert_eq!(starts_on(&diary, "E1"), [0, hour]);
    tokio::time::sleep(ms(hour)).await;
    assert_eq!(send(&[]).await.as_deref(), Ok("E1"));
    assert_eq!(breaker(&balancer, 0), BreakerSnapshot::Closed);
    let all_out = send(&["E1", "E2"]).await;
    let next_start = NextStart::After(ms(hour));
    let reason = Refused::NoEndpoint { next_start };
    assert_eq!(all_out, Err(Error::GaveUp { reason: reason.clone(), attempts: 2, last: Some("spent") }));
    assert_eq!(send(&[]).await, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn fr_158_one_is_disabled_one_is_held_and_the_third_serves() {
    let balancer = balancer(THREE);
    let diary = Diary::new();
    let send = async || {
        balancer
            .run("default", "A", async |attempt: Attempt| {
                let name = name(&attempt);
                diary.note(name.as_str());
                match name.as_str() {
                    "E1" => Err(Failure::permanent("401").disable_endpoint()),
                    "E2" if diary.times().last() == Some(&0) => Err(attempt.retry(ms(60_000))),
                    _ => Ok(name),
                }
            })
            .await
    };
    assert_eq!(send().await.as_deref(), Ok("E3"));
    diary.assert(&[("E1", 0), ("E2", 0), ("E3", 0)]);
    let endpoints = balancer.snapshot().endpoints;
    assert!(endpoints[0].disabled);
    assert_eq!(endpoints[1].held, Some(ms(60_000)));
    tokio::time::sleep(ms(59_999)).await;
    assert_eq!(send().await.as_deref(), Ok("E3"));
    tokio::time::sleep(ms(1)).await;
    assert_eq!(send().await.as_deref(), Ok("E2"));
    balancer.enable_endpoint("E1").unwrap();
    assert!(!balancer.snapshot().endpoints[0].disabled);
    balancer.disable_endpoint("E1").unwrap();
    balancer.replace_rules(THREE.parse().unwrap());
    assert!(!balancer.snapshot().endpoints[0].disabled);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn fr_160_who_is_sent_away_goes_to_the_next_at_once() {
    let balancer = balancer("[pool]\nendpoints = ['E1', 'E2']\nchoose = 'in-order'");
    let diary = Diary::new();
    let send = async || {
        balancer
            .run("default", "A", async |attempt: Attempt| {
                let name = name(&attempt);
                diary.note(name.as_str());
                if name == "E1" && diary.times().len() == 1 { Err(attempt.retry::<()>(ms(60_000))) } else { Ok(name) }
            })
            .await
    };
    assert_eq!(send().await.as_deref(), Ok("E2"));
    diary.assert(&[("E1", 0), ("E2", 0)]);
    for _ in 0..59 {
        tokio::time::sleep(ms(1_000)).await;
        assert_eq!(send().await.as_deref(), Ok("E2"));
    }
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(send().await.as_deref(), Ok("E1"));
    assert_eq!(starts_on(&diary, "E1"), [0, 60_000]);
}
