//! Plain facts of pools, with exact instants.
#![cfg(feature = "tokio")]

mod field;

use std::sync::Mutex;

use field::{Diary, assert_quiet, balancer, ms, settle};
use futures::future::join_all;
use request_balancer::{
    Attempt, Balancer, BreakerRules, BreakerSnapshot, Choose, EndpointRules, Error, Event, Failover, Failure,
    NextStart, PoolRules, Quota, Refused, Rules,
};

fn name(attempt: &Attempt) -> String {
    attempt.endpoint().expect("there is a pool").name().to_owned()
}

fn words(list: &str) -> Vec<String> {
    list.split(", ").map(str::to_owned).collect()
}

/// What runs on each endpoint, and the most that ever did.
#[derive(Default)]
struct Load {
    running: Mutex<std::collections::BTreeMap<String, (u32, u32)>>,
}

impl Load {
    fn begin(&self, endpoint: &str) {
        let mut running = self.running.lock().unwrap();
        let (now, most) = running.entry(endpoint.to_owned()).or_default();
        *now += 1;
        *most = (*most).max(*now);
    }

    fn end(&self, endpoint: &str) {
        self.running.lock().unwrap().get_mut(endpoint).expect("it began").0 -= 1;
    }

    fn most(&self) -> Vec<u32> {
        self.running.lock().unwrap().values().map(|(_, most)| *most).collect()
    }
}

/// A pool of so many endpoints, `e0` and so on, with more lines of its table.
fn pool(endpoints: usize, lines: &str) -> Balancer {
    let names: Vec<String> = (0..endpoints).map(|number| format!("'e{number}'")).collect();
    balancer(&format!("[retry]\njitter = 0\n[pool]\nendpoints = [{}]\n{lines}", names.join(", ")))
}

#[tokio::test(start_paused = true)]
async fn six_endpoints_with_one_call_each_make_six_calls_and_never_two_on_one() {
    let balancer = pool(6, "concurrency = 1");
    let load = Load::default();
    let diary = Diary::new();
    let calls = (0..24).map(|key| {
        let (load, diary) = (&load, &diary);
        balancer.run("default", key, move |attempt: Attempt| async move {
            let name = name(&attempt);
            load.begin(&name);
            diary.note("start");
            tokio::time::sleep(ms(100)).await;
            load.end(&name);
            Ok::<_, Failure<()>>(())
        })
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(load.most(), [1; 6]);
    let times = [0_u64, 100, 200, 300].map(|at| [at; 6]).concat();
    assert_eq!(diary.times(), times);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn who_is_slowed_down_on_one_slows_nobody_on_the_others() {
    let balancer = pool(6, "overall = '1/1s'");
    let diary = Diary::new();
    let calls = (0..60).map(|key| {
        let diary = &diary;
        balancer.run("default", key, move |attempt: Attempt| async move {
            let name = name(&attempt);
            diary.note(name.as_str());
            if name == "e0" { Err(attempt.retry::<()>(ms(60_000))) } else { Ok(()) }
        })
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    for endpoint in 1..6 {
        let own: Vec<u64> =
            diary.read().into_iter().filter(|(name, _)| *name == format!("e{endpoint}")).map(|(_, at)| at).collect();
        // One each second, as if the first were not there.
        assert_eq!(own, (0..own.len() as u64).map(|second| second * 1_000).collect::<Vec<_>>());
        assert_eq!(own.len(), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_held_and_the_request_waits_and_succeeds() {
    let balancer = pool(3, "");
    let diary = Diary::new();
    let answer = balancer
        .run("default", "A", async |attempt: Attempt| {
            let name = name(&attempt);
            diary.note(name.as_str());
            match attempt.number() {
                1 => Err(attempt.retry::<()>(ms(20_000))),
                2 => Err(attempt.retry::<()>(ms(10_000))),
                3 => Err(attempt.retry::<()>(ms(30_000))),
                _ => Ok(name),
            }
        })
        .await;
    assert_eq!(answer.as_deref(), Ok("e1"));
    diary.assert(&[("e0", 0), ("e1", 0), ("e2", 0), ("e1", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn three_endpoints_and_five_attempts_are_five_starts() {
    let balancer = balancer("[pool]\nendpoints = ['a', 'b', 'c']\n[retry]\nattempts = 5\njitter = 0\nbackoff = '1s'");
    let diary = Diary::new();
    let answer: Result<(), _> = balancer
        .run("default", "A", async |attempt: Attempt| {
            diary.note(name(&attempt));
            Err(Failure::transient(503))
        })
        .await;
    assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 5, last: Some(503) }));
    // Everywhere at once, then after the third delay, of which the next would be the fourth.
    diary.assert(&[("a", 0), ("b", 0), ("c", 0), ("a", 4_000), ("b", 4_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_same_first_means_once_more() {
    let balancer = balancer(
        "[pool]\nendpoints = ['a', 'b']\nfailover = 'same-first'\n[retry]\nattempts = 6\njitter = 0\nbackoff = '1s'",
    );
    let diary = Diary::new();
    let answer: Result<(), _> = balancer
        .run("default", "A", async |attempt: Attempt| {
            diary.note(name(&attempt));
            Err(Failure::transient(503))
        })
        .await;
    assert!(answer.is_err());
    diary.assert(&[("a", 0), ("a", 0), ("b", 0), ("b", 0), ("a", 8_000), ("a", 8_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_is_chosen_when_a_request_starts_and_not_when_it_comes() {
    // The first is slow: who waits goes where it is free, whenever it came.
    let balancer = pool(2, "concurrency = 1\nchoose = 'in-order'");
    let diary = Diary::new();
    let calls = (0..4_u64).map(|key| {
        let diary = &diary;
        balancer.run("default", key, move |attempt: Attempt| async move {
            let name = name(&attempt);
            diary.note(name.as_str());
            tokio::time::sleep(if name == "e0" { ms(1_000) } else { ms(100) }).await;
            Ok::<_, Failure<()>>(())
        })
    });
    join_all(calls).await;
    diary.assert(&[("e0", 0), ("e1", 0), ("e1", 100), ("e1", 200)]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_each_endpoint_and_of_all_go_together() {
    let balancer = balancer("overall = '3/1s'\n[pool]\nendpoints = ['a', 'b']\noverall = '2/1s'\nper_key = '1/1s'");
    let diary = Diary::new();
    let calls = ["x", "x", "x", "y", "y", "y"].map(|key| {
        let diary = &diary;
        balancer.run("default", key, move |attempt: Attempt| async move {
            diary.note(format!("{key} {}", name(&attempt)));
            Ok::<_, Failure<()>>(())
        })
    });
    join_all(calls).await;
    // Each key once on each; three in all.
    let at = |second: u64| {
        let mut started: Vec<_> = diary.read().into_iter().filter(|(_, at)| *at == second * 1_000).collect();
        started.sort_unstable();
        started.into_iter().map(|(what, _)| what).collect::<Vec<_>>()
    };
    assert_eq!((at(0), at(1)), (words("x a, x b, y a"), words("x a, y a, y b")));
}

#[tokio::test(start_paused = true)]
async fn requests_may_be_bound_to_endpoints() {
    let balancer = pool(3, "concurrency = 1");
    let diary = Diary::new();
    let run = |key: u32, endpoints: &'static [&'static str]| {
        let diary = &diary;
        balancer.request("default", key).among(endpoints.iter().copied()).run(move |attempt: Attempt| async move {
            diary.note(format!("{key} {}", name(&attempt)));
            tokio::time::sleep(ms(100)).await;
            Ok::<_, Failure<()>>(())
        })
    };
    let answers =
        tokio::join!(run(1, &["e2"]), run(2, &["e2"]), run(3, &["e2", "e1"]), run(4, &["e0"]), run(5, &["e2"]));
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok() && answers.3.is_ok() && answers.4.is_ok());
    diary.assert(&[("1 e2", 0), ("3 e1", 0), ("4 e0", 0), ("2 e2", 100), ("5 e2", 200)]);
    let unknown = balancer.request("default", 1).on("e22").acquire().await.unwrap_err();
    assert_eq!(unknown, Refused::UnknownEndpoint { name: "e22".into(), nearest: Some("e2".into()) });
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn shares_go_by_weight() {
    let balancer =
        balancer("[pool]\nchoose = 'weighted'\n[pool.endpoints]\na = {}\nb = { weight = 2 }\nc = { weight = 5 }");
    for key in 0..800 {
        drop(balancer.request("default", key).try_acquire().unwrap());
    }
    let starts: Vec<u64> = balancer.snapshot().endpoints.iter().map(|endpoint| endpoint.starts).collect();
    assert_eq!(starts, [100, 200, 500]);
}

#[tokio::test(start_paused = true)]
async fn the_fastest_is_used_most_and_a_fast_failure_attracts_nobody() {
    let balancer = pool(3, "choose = 'fastest'\nbreaker = false");
    for key in 0..200 {
        let answer = balancer
            .run("default", key, async |attempt: Attempt| match &*name(&attempt) {
                "e0" => Err(Failure::transient(())),
                "e1" => {
                    tokio::time::sleep(ms(20)).await;
                    Ok(())
                }
                _ => {
                    tokio::time::sleep(ms(200)).await;
                    Ok(())
                }
            })
            .await;
        assert_eq!(answer, Ok(()));
    }
    let starts: Vec<u64> = balancer.snapshot().endpoints.iter().map(|endpoint| endpoint.starts).collect();
    assert!(starts[0] <= 3 && starts[2] <= 3 && starts[1] >= 195, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn who_was_slow_is_tried_again_once_in_a_while() {
    let balancer = pool(2, "choose = 'fastest'");
    let diary = Diary::new();
    for key in 0..1_200_u32 {
        let answer = balancer.run("default", key, async |attempt: Attempt| {
            let name = name(&attempt);
            diary.note(name.as_str());
            tokio::time::sleep(if name == "e0" { ms(160) } else { ms(20) }).await;
            Ok::<_, Failure<()>>(())
        });
        assert_eq!(answer.await, Ok(()));
        tokio::time::sleep(ms(100)).await;
    }
    // 160 ms are worth less than 20 ms after 30 s. Then a fifth of 160 ms is taken in, which makes them 48 ms: half of that
    // is what 10 s leave, and a little later they are fewer than 20 again.
    let slow: Vec<u64> = diary.read().into_iter().filter(|(name, _)| name == "e0").map(|(_, at)| at).collect();
    assert_eq!(slow, [0, 30_740, 44_560, 58_380, 72_200, 86_020, 99_840, 113_660, 127_480, 141_300]);
}

#[tokio::test(start_paused = true)]
async fn all_breakers_are_open_and_who_comes_or_waits_is_refused_at_once() {
    let rules = Rules::builder()
        .pool(
            PoolRules::new()
                .endpoint("a", EndpointRules::new())
                .endpoint("b", EndpointRules::new())
                .concurrency(1)
                .choose(Choose::InOrder)
                .failover(Failover::Next)
                .breaker(BreakerRules::new().failures(1).jitter(0.0)),
        )
        .build()
        .unwrap();
    let balancer = Balancer::new(rules);
    let mut events = balancer.events();
    let begin = tokio::time::Instant::now();
    // Different requests: each failure is charged to its endpoint.
    let failing = |key: u32, takes: u64| {
        balancer.request("default", key).no_retry().run(move |_| async move {
            tokio::time::sleep(ms(takes)).await;
            Err::<(), _>(Failure::transient(()))
        })
    };
    let waiting = async {
        settle().await;
        let answer = balancer.run("default", 3, async |_| Ok::<_, Failure<()>>(())).await;
        (answer, begin.elapsed())
    };
    let (_, _, waiting) = tokio::join!(failing(1, 100), failing(2, 250), waiting);
    // It was to wait for the second, as the first is open.
    let reason = Refused::NoEndpoint { next_start: NextStart::After(ms(29_850)) };
    assert_eq!(waiting, (Err(Error::GaveUp { reason, attempts: 0, last: None }), ms(250)));
    let opened: Vec<String> = std::iter::from_fn(|| events.try_next())
        .filter_map(|event| match event {
            Event::BreakerOpened { endpoint, .. } => Some(endpoint.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(opened, ["a", "b"]);
    assert_eq!(
        balancer.explain("default", 9).unwrap().to_string(),
        "rule `default`, key 9: a new request; endpoint `a` failed and rests for 29.85s; \
         endpoint `b` failed and rests for 30s"
    );
    balancer.close_breaker("b").unwrap();
    assert_eq!(balancer.run("default", 3, async |_| Ok::<_, Failure<()>>(())).await, Ok(()));
    balancer.open_breaker("b", ms(1_000)).unwrap();
    assert_eq!(balancer.snapshot().endpoints[1].breaker, BreakerSnapshot::Open(ms(1_000)));
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn endpoints_come_and_go_while_requests_wait() {
    let balancer = balancer("[pool]\nconcurrency = 1\nendpoints = ['a']");
    let diary = Diary::new();
    let run = |key: u32| {
        let diary = &diary;
        balancer.run("default", key, move |attempt: Attempt| async move {
            diary.note(format!("{key} {}", name(&attempt)));
            tokio::time::sleep(ms(1_000)).await;
            Ok::<_, Failure<()>>(())
        })
    };
    let change = async {
        tokio::time::sleep(ms(100)).await;
        balancer.add_endpoint("b", EndpointRules::new().concurrency(2)).unwrap();
        tokio::time::sleep(ms(400)).await;
        balancer.remove_endpoint("a").unwrap();
        tokio::time::sleep(ms(100)).await;
        balancer.disable_endpoint("b").unwrap();
    };
    let answers = tokio::join!(run(1), run(2), run(3), run(4), change);
    let mut starts = diary.read();
    starts.sort_unstable();
    assert_eq!(starts, [("1 a", 0), ("2 b", 100), ("3 b", 100)].map(|(what, at)| (what.to_owned(), at)));
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok());
    let reason = Refused::NoEndpoint { next_start: NextStart::Never };
    assert_eq!(answers.3, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    assert_eq!(balancer.remove_endpoint("a").unwrap_err().cause(), "unknown-endpoint");
    balancer.enable_endpoint("b").unwrap();
    assert_eq!(run(5).await, Ok(()));
    assert_eq!(balancer.snapshot().endpoints.len(), 1);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn a_ceiling_is_for_the_waiting_and_not_for_what_is_held() {
    let balancer = pool(2, "");
    let send = async |wait: u64| {
        balancer
            .run("default", "A", async |attempt: Attempt| match attempt.number() {
                1 => Err(attempt.retry::<()>(ms(wait))),
                _ => Ok(name(&attempt)),
            })
            .await
    };
    // Ten minutes are more than five, but another one is free.
    assert_eq!(send(600_000).await.as_deref(), Ok("e1"));
    // Now none is before the first comes back, in ten minutes.
    let reason = Refused::WaitTooLong { wait: ms(600_000), ceiling: ms(300_000) };
    assert_eq!(send(900_000).await, Err(Error::GaveUp { reason, attempts: 1, last: None }));
    assert_eq!(balancer.snapshot().endpoints[1].held, Some(ms(900_000)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_for_its_own_endpoint_is_told() {
    let balancer = pool(2, "concurrency = 1");
    let other = balancer.request("default", 1).on("e1").acquire().await.unwrap();
    let answer = balancer
        .run("default", 2, async |_| {
            drop(balancer.request("default", 3).max_wait(ms(10)).acquire().await);
            Ok::<_, Failure<()>>(())
        })
        .await;
    assert_eq!(answer, Ok(()));
    drop(other);
    let nested = pool(1, "concurrency = 1");
    let answer = nested
        .run("default", 1, async |_| Ok::<_, Failure<()>>(nested.request("default", 2).acquire().await.unwrap_err()))
        .await;
    assert_eq!(answer, Ok(Refused::WouldDeadlock));
    // It may use only the one that is full, or its key may have no second attempt anywhere.
    let answer = balancer
        .request("default", 1)
        .on("e0")
        .run(async |_| {
            let bound = balancer.request("default", 2).on("e0").acquire().await.unwrap_err();
            drop(balancer.request("default", 2).on("e1").acquire().await.unwrap());
            Ok::<_, Failure<()>>(bound)
        })
        .await;
    assert_eq!(answer, Ok(Refused::WouldDeadlock));
    let keyed = pool(1, "key_concurrency = 1");
    let answer = keyed
        .run("default", 1, async |_| {
            drop(keyed.request("default", 2).acquire().await.unwrap());
            Ok::<_, Failure<()>>(keyed.request("default", 1).acquire().await.unwrap_err())
        })
        .await;
    assert_eq!(answer, Ok(Refused::WouldDeadlock));
}

#[tokio::test(start_paused = true)]
async fn a_typed_pool_hands_over_the_value_of_the_endpoint() {
    let rules: Rules = "[pool]\nconcurrency = 1\nendpoints = ['a', 'b']".parse().unwrap();
    let missing = Balancer::builder(rules.clone()).pool([("a", 1)]).unwrap_err();
    assert!(missing.to_string().contains("the endpoint `b` without a value"), "{missing}");
    let twice = Balancer::builder(rules.clone()).pool([("a", 1), ("b", 2), ("a", 3)]).unwrap_err();
    assert!(twice.to_string().contains("`a` twice"), "{twice}");
    let pool = Balancer::builder(rules).pool([("a", 10), ("b", 20), ("c", 30)]).unwrap();
    let mut values = Vec::new();
    for key in 0..3 {
        values.push(pool.run("default", key, async |attempt| Ok::<_, Failure<()>>(*attempt.endpoint().value())).await);
    }
    assert_eq!(values, [Ok(10), Ok(20), Ok(30)]);
    assert!(pool.balancer().add_endpoint("d", EndpointRules::new()).is_err());
    pool.add("d", 40, EndpointRules::new().overall(Quota::per_second(5))).unwrap();
    let on_d =
        pool.request("default", 4).on("d").submit(async |attempt| Ok::<_, Failure<()>>(*attempt.endpoint().value()));
    assert_eq!(on_d.unwrap().await, Ok(40));
    pool.remove("d").unwrap();
    assert_eq!(pool.value("d"), None);
    // A file that lists others, too, leaves those that have values.
    pool.balancer().replace_rules("[pool]\nendpoints = ['b', 'new']".parse().unwrap());
    let names: Vec<String> = pool.balancer().snapshot().endpoints.into_iter().map(|endpoint| endpoint.name).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn lower_lanes_leave_room_on_the_endpoints_together() {
    let balancer =
        balancer("[rules]\nchat = {}\nnews = { priority = 2 }\n[pool]\nendpoints = ['a', 'b', 'c']\noverall = '10/1s'");
    let diary = Diary::new();
    let news: Vec<_> =
        (0..90).map(|key| balancer.request("news", key).submit(diary.done::<()>("news")).unwrap()).collect();
    tokio::time::sleep(ms(500)).await;
    let begin = tokio::time::Instant::now();
    balancer.run("chat", "urgent", async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    assert!(begin.elapsed() <= ms(34), "{:?}", begin.elapsed());
    join_all(news).await;
    // As fast as without the lane above: 30 a second.
    let last = *diary.times().last().unwrap();
    assert!((2_900..=3_100).contains(&last), "{last}");
}

#[cfg(feature = "headers")]
#[tokio::test(start_paused = true)]
async fn what_a_server_says_is_about_the_endpoint_that_was_asked() {
    let balancer = pool(2, "overall = '10/60s'\nchoose = 'in-order'");
    let diary = Diary::new();
    let send = async |remaining: &'static str| {
        let run = balancer.run("default", 1, async |attempt: Attempt| {
            diary.note(name(&attempt));
            let fields = [("RateLimit-Remaining", remaining), ("RateLimit-Reset", "30")];
            attempt.check::<_, _, ()>(200, fields, None)
        });
        assert_eq!(run.await, Ok(()));
    };
    send("2").await;
    send("1").await;
    send("0").await;
    // Somebody else uses the first token, too; the second has all that the rules give it.
    send("9").await;
    send("8").await;
    diary.assert(&[("e0", 0), ("e0", 0), ("e0", 0), ("e1", 0), ("e1", 0)]);
    tokio::time::sleep(ms(30_000)).await;
    send("5").await;
    assert_eq!(diary.read().last().unwrap(), &("e0".to_owned(), 30_000));
    // A refusal of all that a token may do stops that token.
    let refused = balancer.run("default", 1, async |attempt: Attempt| {
        let fields = [("X-RateLimit-Global", "true"), ("Retry-After", "20")];
        match name(&attempt).as_str() {
            "e0" => attempt.check::<_, _, ()>(429, fields, None),
            _ => Ok(()),
        }
    });
    assert_eq!(refused.await, Ok(()));
    assert_eq!(diary.times().len(), 6);
    assert_eq!((balancer.snapshot().held, balancer.snapshot().endpoints[0].held), (None, Some(ms(20_000))));
}

/// Their counts are those of the attempts that run, whatever the key knew of the endpoint when they began.
#[tokio::test(start_paused = true)]
async fn a_cap_for_each_key_that_comes_later_counts_what_runs() {
    let rules = |cap: &str| format!("[pool]\nendpoints = ['a']\n{cap}\n[rules]\nr = {{}}").parse::<Rules>().unwrap();
    let balancer = Balancer::new(rules(""));
    let first = balancer.request("r", 1).acquire().await.unwrap();
    balancer.replace_rules(rules("key_concurrency = 2"));
    let second = balancer.request("r", 1).acquire().await.unwrap();
    let full = Refused::NotNow { next_start: NextStart::WhenOneEnds };
    assert_eq!(balancer.request("r", 1).try_acquire().map(drop), Err(full.clone()));
    drop(first);
    let third = balancer.request("r", 1).try_acquire().unwrap();
    drop((second, third));
    let again = [1, 1].map(|key| balancer.request("r", key).try_acquire().unwrap());
    assert_eq!(balancer.request("r", 1).try_acquire().map(drop), Err(full));
    drop(again);
    assert_quiet(&balancer);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_a_start_goes_by_the_endpoints_that_it_may_use() {
    let balancer = pool(2, "overall = '1/1m'\nbreaker = { failures = 1, reset = '30s', jitter = 0 }");
    balancer.open_breaker("e0", ms(30_000)).unwrap();
    let away = NextStart::After(ms(30_000));
    let refused = balancer.request("default", 1).on("e0").acquire().await.map(drop);
    assert_eq!(refused, Err(Refused::NoEndpoint { next_start: away }));
    // The other one is full.
    drop(balancer.request("default", 1).on("e1").acquire().await.unwrap());
    let refused = balancer.request("default", 1).on("e1").try_acquire().map(drop);
    let full = NextStart::After(ms(60_000));
    assert_eq!(refused, Err(Refused::NotNow { next_start: full }));
    // Whoever waits for no longer than that is told so at once.
    let eager = || balancer.request("default", 1).on("e1").eager();
    let refused = eager().max_wait(ms(59_999)).acquire().await.map(drop);
    assert_eq!(refused, Err(Refused::MaxWait { waited: ms(0), next_start: full }));
    // What may use either waits for the one that rests.
    assert_eq!(balancer.next_start("default", 1), Ok(away));
    let begin = tokio::time::Instant::now();
    drop(balancer.request("default", 1).max_wait(ms(30_000)).eager().acquire().await.unwrap());
    assert_eq!(begin.elapsed(), ms(30_000));
    let none: [&str; 0] = [];
    let refused = balancer.request("default", 1).among(none).acquire().await.map(drop);
    assert_eq!(refused, Err(Refused::NoEndpoint { next_start: NextStart::Never }));
}

/// Each of two endpoints takes one each second, and those ahead use them evenly at best.
#[tokio::test(start_paused = true)]
async fn what_is_said_of_a_start_counts_those_ahead() {
    let balancer = pool(2, "overall = '1/1s'");
    let line: Vec<_> =
        (0..7).map(|_| balancer.request("default", 1).submit(async |_| Ok::<_, Failure<()>>(()))).collect();
    settle().await;
    // Two have started, and five wait: two after one second, two after two, and one with this one after three.
    assert_eq!(balancer.next_start("default", 1), Ok(NextStart::After(ms(3_000))));
    let begin = tokio::time::Instant::now();
    drop(balancer.request("default", 1).acquire().await.unwrap());
    assert_eq!(begin.elapsed(), ms(3_000));
    for ticket in line {
        assert_eq!(ticket.unwrap().await, Ok(()));
    }
}
