//! Keys that stay with one endpoint.
#![cfg(feature = "tokio")]

mod field;

use std::collections::BTreeMap;

use field::{Diary, balancer, ms};
use request_balancer::{
    Attempt, Balancer, BreakerSnapshot, EndpointStanding, Error, Failure, NextStart, Refused, Rules, Target,
};

fn name(attempt: &Attempt) -> String {
    attempt.endpoint().expect("there is a pool").name().to_owned()
}

/// A pool of so many endpoints, `e0` and so on, with more lines of its table.
fn pool(endpoints: usize, lines: &str) -> Balancer {
    let names: Vec<String> = (0..endpoints).map(|number| format!("'e{number}'")).collect();
    balancer(&format!("[retry]\njitter = 0\n[pool]\nendpoints = [{}]\nsticky = true\n{lines}", names.join(", ")))
}

async fn home(balancer: &Balancer, key: u32) -> String {
    balancer
        .run("default", key, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt)))
        .await
        .expect("it starts")
}

async fn homes(balancer: &Balancer, keys: std::ops::Range<u32>) -> Vec<String> {
    let mut homes = Vec::new();
    for key in keys {
        homes.push(home(balancer, key).await);
    }
    homes
}

/// The order among endpoints hung on a seed that each process drew anew, and on their places in the list.
#[tokio::test(start_paused = true)]
async fn a_key_has_the_same_home_in_every_run_and_however_the_endpoints_are_listed() {
    let first = homes(&balancer("[pool]\nendpoints = ['a', 'b', 'c', 'd']\nsticky = true"), 0..50).await;
    let again = homes(&balancer("[pool]\nendpoints = ['d', 'b', 'a', 'c']\nsticky = true"), 0..50).await;
    assert_eq!(first, again);
    // One of them less: only its own keys move.
    let without = homes(&balancer("[pool]\nendpoints = ['d', 'b', 'c']\nsticky = true"), 0..50).await;
    assert!(first.iter().zip(&without).all(|(before, now)| before == now || before == "a"), "{first:?} {without:?}");
    // Rules that make keys stay go for those that are known already.
    let live = balancer("[pool]\nendpoints = ['c', 'a', 'd', 'b']\nper_key = '100/1h'");
    homes(&live, 0..50).await;
    live.replace_rules("[pool]\nendpoints = ['c', 'a', 'd', 'b']\nsticky = true".parse::<Rules>().unwrap());
    assert_eq!(homes(&live, 0..50).await, first);
}

/// A hash divided by the weight gave one of weight 1 beside one of weight 3 a sixth of the keys.
#[tokio::test(start_paused = true)]
async fn keys_are_shared_by_weight() {
    let balancer = balancer("[pool]\nsticky = true\n[pool.endpoints]\na = {}\nb = { weight = 3 }");
    let homes = homes(&balancer, 0..2_000).await;
    let light = homes.iter().filter(|home| *home == "a").count();
    assert!((450..=550).contains(&light), "{light} of 2000");
}

#[tokio::test(start_paused = true)]
async fn a_key_stays_where_it_is_while_that_is_healthy() {
    let balancer = pool(3, "per_key = '1/1s'");
    let run = |key: u32| {
        let run = balancer.run("default", key, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt)));
        async move { run.await.unwrap() }
    };
    let mut homes = BTreeMap::<String, usize>::new();
    for key in 0..90 {
        let home = run(key).await;
        for _ in 0..3 {
            assert_eq!(run(key).await, home);
        }
        *homes.entry(home).or_default() += 1;
    }
    assert_eq!(homes.values().sum::<usize>(), 90);
    assert_eq!(homes.len(), 3);
    // Nothing is known of the key any more, and it goes home all the same.
    tokio::time::sleep(ms(10_000)).await;
    let home = run(1).await;
    balancer.hold(Target::endpoint(home.as_str()), ms(5_000)).unwrap();
    let away = run(1).await;
    assert_ne!(away, home);
    assert_eq!(run(1).await, away);
    tokio::time::sleep(ms(5_000)).await;
    assert_eq!(run(1).await, home);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stays_is_tried_once_more_where_it_is() {
    let balancer = balancer(
        "[pool]\nendpoints = ['e0', 'e1', 'e2']\nsticky = true\nfailover = 'same-first'\nbreaker = false\n\
         [retry]\nattempts = 4\njitter = 0",
    );
    for key in 0..20 {
        let diary = Diary::new();
        let answer: Result<(), _> = balancer
            .run("default", key, async |attempt: Attempt| {
                diary.note(name(&attempt));
                Err(Failure::transient(503))
            })
            .await;
        assert!(answer.is_err());
        let at: Vec<String> = diary.read().into_iter().map(|(name, _)| name).collect();
        assert!(at[0] == at[1] && at[1] != at[2] && at[2] == at[3], "key {key}: {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_stayed_goes_at_once_where_the_key_belongs_now() {
    // What waits for its endpoint goes elsewhere when that is held, and back when it is there again.
    let balancer = pool(2, "overall = '1/1m'");
    let home = balancer.run("default", 1, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt))).await.unwrap();
    let begin = tokio::time::Instant::now();
    let waits = balancer.run("default", 1, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt)));
    let hold = async {
        tokio::time::sleep(ms(100)).await;
        balancer.hold(Target::endpoint(home.as_str()), ms(90_000)).unwrap();
    };
    let (other, ()) = tokio::join!(waits, hold);
    assert_ne!(other.as_ref(), Ok(&home));
    assert_eq!(begin.elapsed(), ms(100));
    // Now the other one is full until 60.1 s, and the first is back at 90.1 s.
    tokio::time::sleep(ms(60_000)).await;
    let third = balancer.run("default", 1, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt))).await;
    assert_eq!((third, begin.elapsed()), (other, ms(60_100)));
    let fourth = balancer.run("default", 1, async |attempt: Attempt| Ok::<_, Failure<()>>(name(&attempt))).await;
    assert_eq!((fourth, begin.elapsed()), (Ok(home), ms(90_100)));
}

/// Whoever waited at an endpoint that is tried again, for room of its key there, was not told that another key had become
/// the one that tries, and that its own belonged elsewhere meanwhile.
#[tokio::test(start_paused = true)]
async fn whoever_waits_to_try_an_endpoint_goes_elsewhere_once_another_one_tries() {
    let known = homes(&pool(2, ""), 0..20).await;
    let mut of_first = (0..20).filter(|&key| known[key as usize] == "e0");
    let (key, other) = (of_first.next().unwrap(), of_first.next().unwrap());
    let balancer = pool(2, "per_key = '1/1m'\nbreaker = { failures = 1, reset = '10s', jitter = 0, probes = 1 }");
    let begin = tokio::time::Instant::now();
    let fails = async |_: Attempt| Err::<(), _>(Failure::transient(()));
    assert!(balancer.request("default", key).no_retry().run(fails).await.is_err());
    tokio::time::sleep(ms(10_000)).await;
    let waits = async {
        let at = home(&balancer, key).await;
        (at, begin.elapsed())
    };
    let tries = async {
        tokio::time::sleep(ms(1_000)).await;
        let long = async |attempt: Attempt| {
            tokio::time::sleep(ms(5_000)).await;
            Ok::<_, Failure<()>>(name(&attempt))
        };
        balancer.run("default", other, long).await.unwrap()
    };
    let (elsewhere, tried) = tokio::join!(waits, tries);
    assert_eq!((elsewhere, tried.as_str()), (("e1".to_owned(), ms(11_000)), "e0"));
}

/// Others would go on elsewhere for ever, and nobody would find out that it works again.
#[tokio::test(start_paused = true)]
async fn those_who_belong_to_an_endpoint_are_who_tries_it_again() {
    let balancer = pool(2, "breaker = { failures = 1, reset = '10s', jitter = 0, probes = 1 }");
    let at = |fails: bool| {
        let run = balancer.request("default", 1).no_retry().run(move |attempt: Attempt| async move {
            if fails { Err(Failure::transient(name(&attempt))) } else { Ok(name(&attempt)) }
        });
        async move {
            match run.await {
                Ok(name) | Err(Error::Failed(name) | Error::GaveUp { last: Some(name), .. }) => name,
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let home = at(true).await;
    assert_ne!(at(false).await, home);
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!([at(false).await, at(false).await], [home.clone(), home]);
    assert!(balancer.snapshot().endpoints.iter().all(|endpoint| endpoint.breaker == BreakerSnapshot::Closed));
}

/// Nobody told them that it is to be tried again, and they stayed away for as long as they had to wait there.
#[tokio::test(start_paused = true)]
async fn whoever_waits_elsewhere_goes_home_when_that_may_be_tried_again() {
    let balancer = pool(2, "per_key = '2/1m'\nbreaker = { failures = 1, reset = '10s', jitter = 0, probes = 1 }");
    let begin = tokio::time::Instant::now();
    let fails = balancer
        .request("default", 1)
        .no_retry()
        .run(async |attempt: Attempt| Err::<(), _>(Failure::transient(name(&attempt))));
    let home = match fails.await {
        Err(Error::Failed(name) | Error::GaveUp { last: Some(name), .. }) => name,
        answer => panic!("{answer:?}"),
    };
    // All that it may start on the other one.
    for _ in 0..2 {
        let permit = balancer.request("default", 1).try_acquire().unwrap();
        assert_ne!(permit.endpoint().unwrap().name(), home);
    }
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(balancer.next_start("default", 1), Ok(NextStart::After(ms(9_000))));
    let waits = balancer.request("default", 1).acquire().await.unwrap();
    assert_eq!((waits.endpoint().unwrap().name(), begin.elapsed()), (&*home, ms(10_000)));
}

/// The same, if it is tried by somebody who then leaves without a word.
#[tokio::test(start_paused = true)]
async fn whoever_waits_elsewhere_goes_home_when_who_tried_it_leaves() {
    let balancer = pool(2, "per_key = '1/1m'\nbreaker = { failures = 1, reset = '10m', jitter = 0, probes = 1 }");
    let home = home(&balancer, 1).await;
    tokio::time::sleep(ms(60_000)).await;
    let away = if home == "e0" { "e1" } else { "e0" };
    balancer.open_breaker(&home, ms(0)).unwrap();
    let probe = balancer.request("default", 2).on(&home).try_acquire().unwrap();
    // Of all that it may use the other one is its home for now, and it has been there.
    drop(balancer.request("default", 1).try_acquire().unwrap());
    let begin = tokio::time::Instant::now();
    let waits = balancer
        .request("default", 1)
        .submit(async |attempt: Attempt| Ok::<_, Failure<()>>((name(&attempt), tokio::time::Instant::now())));
    tokio::time::sleep(ms(5_000)).await;
    drop(probe);
    let (at, started) = waits.unwrap().await.unwrap();
    assert_eq!((&*at, started - begin), (&*home, ms(5_000)), "and not at {away}");
}

/// It was told of all endpoints, and that one is free at which it never starts.
#[tokio::test(start_paused = true)]
async fn who_was_never_here_is_told_of_its_home_alone() {
    let balancer = pool(2, "overall = '1/1m'");
    let full = home(&balancer, 1).await;
    for key in 100..110 {
        let explained = balancer.explain("default", key).unwrap();
        let start = balancer.next_start("default", key).unwrap();
        assert_eq!(explained.endpoints.len(), 1, "{key}");
        assert_eq!(*explained.endpoints[0].name == *full, start == NextStart::After(ms(60_000)), "{key}");
        assert_eq!(explained.is_clear(), start == NextStart::Now, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_home_is_told_so_whatever_else_is_free() {
    let balancer = pool(2, "overall = '1/1m'");
    let home = home(&balancer, 1).await;
    assert_eq!(balancer.next_start("default", 1), Ok(NextStart::After(ms(60_000))));
    let told = balancer.explain("default", 1).unwrap().endpoints;
    let told: Vec<(&str, EndpointStanding)> =
        told.iter().map(|endpoint| (&*endpoint.name, endpoint.standing)).collect();
    assert_eq!(told, [(&*home, EndpointStanding::Limited(NextStart::After(ms(60_000))))]);
    // So is whoever never was here: of ten keys some belong where there is no room, and the others have some.
    let mut starts = Vec::new();
    for key in 100..110 {
        starts.push(balancer.next_start("default", key).unwrap());
    }
    assert!(starts.contains(&NextStart::Now) && starts.contains(&NextStart::After(ms(60_000))), "{starts:?}");
    for (key, start) in (100..110).zip(starts) {
        let refused = balancer.request("default", key).try_acquire().map(std::mem::forget);
        match start {
            NextStart::Now => {
                assert_eq!(refused, Ok(()));
                break;
            }
            next_start => assert_eq!(refused, Err(Refused::NotNow { next_start })),
        }
    }
}
