//! Endpoints over a long time: attempts that take longer than a breaker rests, tokens that are renewed, names that come and
//! go.
#![cfg(feature = "tokio")]

mod field;

use std::sync::{Arc, Weak};

use field::{Diary, assert_quiet, balancer, ms, settle};
use futures::future::join_all;
use request_balancer::{
    Attempt, Balancer, BreakerSnapshot, EndpointRules, Error, Event, Failure, NextStart, Pool, Refused, Rules, Target,
};

fn name(attempt: &Attempt) -> String {
    attempt.endpoint().expect("there is a pool").name().to_owned()
}

/// So many requests that take so long, all at once.
async fn all(balancer: &Balancer, count: u32, takes: u64) -> Vec<u64> {
    let diary = Diary::new();
    let calls = (0..count).map(|key| {
        let diary = &diary;
        balancer.run("default", key, move |_| async move {
            diary.note("start");
            tokio::time::sleep(ms(takes)).await;
            Ok::<_, Failure<()>>(())
        })
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    diary.times()
}

/// Each probe was replaced by the next one before it could tell that it worked: an endpoint that was well again had one start
/// every 30 s, for ever.
#[tokio::test(start_paused = true)]
async fn calls_that_take_longer_than_the_rest_close_the_breaker() {
    let balancer = balancer("[pool]\nendpoints = ['a']\nbreaker = { failures = 1, reset = '30s', jitter = 0 }");
    let failed: Result<(), _> =
        balancer.request("default", 1).no_retry().run(async |_| Err(Failure::transient(()))).await;
    assert!(failed.is_err());
    tokio::time::sleep(ms(30_000)).await;
    assert_eq!(all(&balancer, 8, 70_000).await, [0, 30_000, 60_000, 70_000, 70_000, 70_000, 70_000, 70_000]);
    assert_eq!(balancer.snapshot().endpoints[0].breaker, BreakerSnapshot::Closed);
    assert_quiet(&balancer);
}

/// Told to rest for no time it admitted probes without end.
#[tokio::test(start_paused = true)]
async fn one_that_is_to_be_tried_at_once_is_tried_by_one() {
    let balancer = balancer("[pool]\nendpoints = ['a']\nbreaker = { reset = '30s', jitter = 0 }");
    balancer.open_breaker("a", ms(0)).unwrap();
    assert_eq!(balancer.snapshot().endpoints[0].breaker, BreakerSnapshot::HalfOpen);
    assert_eq!(all(&balancer, 4, 1_000).await, [0, 1_000, 1_000, 1_000]);
}

/// A token, to see whether it is still there.
#[derive(Debug)]
struct Token {
    text: String,
    balancer: Weak<Balancer>,
}

/// Dropping what belongs to a program may call the balancer: never under its lock.
impl Drop for Token {
    fn drop(&mut self) {
        if let Some(balancer) = self.balancer.upgrade() {
            assert!(balancer.snapshot().endpoints.len() <= 2);
        }
    }
}

fn tokens(rules: &str, first: &str) -> (Pool<Token>, Arc<Balancer>, impl Fn(&str) -> Token + use<>) {
    let rules: Rules = rules.parse().unwrap_or_else(|findings| panic!("{findings}"));
    let pool =
        Balancer::builder(rules).pool([("bot", Token { text: first.to_owned(), balancer: Weak::new() })]).unwrap();
    let balancer = Arc::new(pool.balancer().clone());
    let weak = Arc::downgrade(&balancer);
    (pool, balancer, move |text| Token { text: text.to_owned(), balancer: weak.clone() })
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_renewed_is_used_at_once_and_the_old_one_says_nothing_about_it() {
    let (pool, balancer, token) = tokens("[pool]\nbreaker = { failures = 1, jitter = 0 }", "old");
    let mut events = balancer.events();
    let diary = Diary::new();
    // The server knows no old token: whoever has one is told so after a second, in one way or another.
    let send = |key: u32| {
        let diary = diary.clone();
        pool.run("default", key, move |attempt| {
            let diary = diary.clone();
            async move {
                let token = attempt.endpoint().shared();
                diary.note(format!("{key} {}", token.text));
                tokio::time::sleep(ms(1_000)).await;
                match (&*token.text, key) {
                    ("old", 1) => Err(Failure::permanent("401").disable_endpoint()),
                    ("old", 2) => Err(attempt.retry(ms(600_000))),
                    ("old", 3) => Err(Failure::permanent("quota").exhaust_endpoint()),
                    ("old", _) => Err(Failure::transient("503")),
                    _ => Ok(()),
                }
            }
        })
    };
    let renew = async {
        tokio::time::sleep(ms(500)).await;
        pool.add("bot", token("new"), EndpointRules::new()).unwrap();
    };
    let answers = tokio::join!(send(1), send(2), send(3), renew);
    assert_eq!((answers.0, answers.1, answers.2), (Ok(()), Ok(()), Ok(())));
    let mut starts = diary.read();
    starts.sort_unstable();
    let expected = [("1 new", 1_000), ("1 old", 0), ("2 new", 1_000), ("2 old", 0), ("3 new", 1_000), ("3 old", 0)];
    assert_eq!(starts, expected.map(|(what, at)| (what.to_owned(), at)));
    let told: Vec<Event> = std::iter::from_fn(|| events.try_next()).collect();
    let is_of_endpoint = |event: &Event| {
        matches!(event, Event::EndpointHeld { .. } | Event::EndpointDisabled { .. } | Event::BreakerOpened { .. })
    };
    assert!(!told.iter().any(is_of_endpoint), "{told:?}");
    // The old one is no more.
    assert_eq!(pool.value("bot").unwrap().text, "new");
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn what_was_disabled_held_or_open_is_not_once_it_is_another() {
    let (pool, balancer, token) = tokens("[pool]\noverall = '1/1m'", "0");
    let send = || pool.balancer().request("default", 1).try_acquire().map(drop);
    send().unwrap();
    for (round, is_added) in [(1_u64, true), (2, false)] {
        balancer.disable_endpoint("bot").unwrap();
        balancer.open_breaker("bot", ms(600_000)).unwrap();
        balancer.hold(Target::endpoint("bot"), ms(600_000)).unwrap();
        if is_added {
            pool.add("bot", token("next"), EndpointRules::new()).unwrap();
        } else {
            pool.remove("bot").unwrap();
            pool.add("bot", token("next"), EndpointRules::new()).unwrap();
        }
        let endpoint = &balancer.snapshot().endpoints[0];
        assert_eq!((endpoint.disabled, endpoint.held, endpoint.breaker), (false, None, BreakerSnapshot::Closed));
        assert_eq!(endpoint.starts, 0);
        // What it started before still counts.
        let full = Refused::NotNow { next_start: NextStart::After(ms(60_000)) };
        assert_eq!(send(), Err(full), "round {round}");
        tokio::time::sleep(ms(60_000)).await;
        send().unwrap();
    }
}

/// A token each hour for a year were 8,760 endpoints and as many values that nobody needed.
#[tokio::test(start_paused = true)]
async fn tokens_that_come_and_go_leave_nothing_behind() {
    let (pool, balancer, token) = tokens("[pool]\noverall = '20/1m'\nper_key = '1/1s'", "0");
    let mut values = vec![Arc::downgrade(&pool.value("bot").unwrap())];
    let mut before = "bot".to_owned();
    for hour in 1..=200 {
        let name = format!("bot-{hour}");
        pool.add(&name, token(&name), EndpointRules::new()).unwrap();
        pool.remove(&before).unwrap();
        let used = pool.run("default", "chat", async |attempt| Ok::<_, Failure<()>>(attempt.endpoint().shared()));
        let value = used.await.unwrap();
        assert_eq!(value.text, name);
        values.push(Arc::downgrade(&value));
        before = name;
        tokio::time::sleep(ms(3_600_000)).await;
    }
    let left = values.iter().filter(|value| value.upgrade().is_some()).count();
    assert_eq!(left, 1);
    assert_eq!(pool.value("bot-7").map(|value| value.text.clone()), None);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn who_runs_has_its_value_and_who_is_bound_to_a_name_gets_no_other() {
    let (pool, balancer, token) = tokens("[pool]\noverall = '1/1s'", "0");
    let permit = pool.request("default", 1).acquire().await.unwrap();
    // Made for a name, and entered when that is another's place.
    let bound = balancer.request("default", 2).on("bot");
    pool.add("other", token("1"), EndpointRules::new()).unwrap();
    pool.remove("bot").unwrap();
    assert_eq!(pool.value(permit.endpoint().unwrap().name()).map(|value| value.text.clone()), Some("0".to_owned()));
    drop(permit);
    tokio::time::sleep(ms(2_000)).await;
    pool.add("third", token("2"), EndpointRules::new()).unwrap();
    assert!(pool.value("bot").is_none());
    let unknown = Refused::UnknownEndpoint { name: "bot".into(), nearest: None };
    assert_eq!(bound.acquire().await.map(drop), Err(unknown));
    let on_third = pool
        .request("default", 3)
        .on("third")
        .run(async |attempt| Ok::<_, Failure<()>>((name(&attempt), attempt.endpoint().value().text.clone())));
    assert_eq!(on_third.await, Ok(("third".to_owned(), "2".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn what_is_found_wrong_with_an_endpoint_changes_nothing() {
    // Whoever is dropped asks the balancer.
    let (pool, balancer, token) = tokens("[pool]\noverall = '20/1m'", "0");
    let heavy = || EndpointRules::new().weight(2_000_000);
    for name in ["bot", "new"] {
        let found = pool.add(name, token("1"), heavy()).unwrap_err();
        assert!(found.to_string().contains("2000000"), "{found}");
    }
    assert_eq!(pool.value("bot").map(|value| value.text.clone()), Some("0".to_owned()));
    assert!(pool.value("new").is_none());
    assert_eq!(Arc::strong_count(&balancer), 1);
    settle().await;
}

/// It started without an endpoint and without the pool's limits, and then panicked for want of a value.
#[tokio::test(start_paused = true)]
async fn a_pool_without_a_value_has_no_endpoint() {
    let none: [(&str, u32); 0] = [];
    let pool = Balancer::builder(rules("[pool]\nconcurrency = 1")).pool(none).unwrap();
    let run = || pool.run("default", 1, async |attempt| Ok::<_, Failure<()>>(*attempt.endpoint().value()));
    let reason = Refused::NoEndpoint { next_start: NextStart::Never };
    assert_eq!(pool.request("default", 1).acquire().await.map(drop), Err(reason.clone()));
    assert_eq!(run().await, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    pool.add("bot", 7, EndpointRules::new()).unwrap();
    assert_eq!(run().await, Ok(7));
    let permit = pool.request("default", 1).acquire().await.unwrap();
    assert_eq!(permit.endpoint().map(|endpoint| endpoint.name().to_owned()), Some("bot".to_owned()));
    assert!(pool.request("default", 2).try_acquire().is_err(), "one at a time");
}

fn rules(text: &str) -> Rules {
    text.parse().unwrap_or_else(|findings| panic!("{findings}"))
}

fn wide() -> EndpointRules {
    EndpointRules::new().overall("2/1h".parse().expect("a quota"))
}

/// Whoever waits is told at once by whatever lets it go, with nobody else to stir the balancer.
#[tokio::test(start_paused = true)]
async fn whatever_frees_an_endpoint_wakes_who_waits_for_it() {
    type Act = fn(&Balancer);
    let hold: Act = |balancer| balancer.hold(Target::endpoint("a"), ms(600_000)).unwrap();
    let fill: Act = |balancer| drop(balancer.request("default", 1).on("a").try_acquire().unwrap());
    let probe: Act = |balancer| {
        balancer.add_endpoint("a", wide()).unwrap();
        balancer.open_breaker("a", ms(0)).unwrap();
        let permit = balancer.request("default", 1).on("a").try_acquire().unwrap();
        // Nobody hears of it.
        std::mem::forget(permit);
    };
    let cases: [(&str, Act, Act); 6] = [
        ("release", hold, |balancer| balancer.release(Target::endpoint("a")).unwrap()),
        ("close", probe, |balancer| balancer.close_breaker("a").unwrap()),
        ("widen", fill, |balancer| balancer.add_endpoint("a", wide()).unwrap()),
        ("add", fill, |balancer| balancer.add_endpoint("b", EndpointRules::new()).unwrap()),
        ("replace", fill, |balancer| balancer.replace_rules(rules("[pool]\nendpoints = ['a', 'c']"))),
        ("reload", hold, |balancer| balancer.replace_rules(rules("[pool]\nendpoints = ['b']"))),
    ];
    for (how, block, free) in cases {
        let balancer = balancer("[pool]\nendpoints = ['a']\noverall = '1/1h'\nbreaker = { reset = '2h', jitter = 0 }");
        block(&balancer);
        let begin = tokio::time::Instant::now();
        let waits = balancer.request("default", 2).submit(async |_| Ok::<_, Failure<()>>(tokio::time::Instant::now()));
        tokio::time::sleep(ms(1_000)).await;
        free(&balancer);
        let started =
            tokio::time::timeout(ms(10_000), waits.unwrap()).await.unwrap_or_else(|_| panic!("{how}: it waits"));
        assert_eq!(started.map(|at| at - begin), Ok(ms(1_000)), "{how}");
    }
}

/// Who was refused took the value out again that it had put in, even if that was another's by then.
#[test]
fn who_adds_what_is_wrong_takes_nothing_from_who_adds_what_is_right() {
    const ROUNDS: usize = 100;
    let pool = Balancer::builder(rules("[pool]\nconcurrency = 1")).pool([("bot", 0)]).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..ROUNDS {
                pool.add("new", 1, EndpointRules::new().weight(2_000_000)).unwrap_err();
            }
        });
        for _ in 0..ROUNDS {
            pool.add("new", 2, EndpointRules::new()).unwrap();
            assert_eq!(pool.value("new").as_deref(), Some(&2));
            pool.remove("new").unwrap();
        }
    });
}
