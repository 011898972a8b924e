//! Futures that are dropped: at every instant and every poll of their life, in every shape in which a request comes.
#![cfg(feature = "tokio")]

mod field;

use std::future::pending;
use std::pin::{Pin, pin};

use field::life::{SHAPES, Shape, assert_traceless, exact, life, poll_once};
use field::{End, Field, Rng, Script, every, most_in, ms, settle};
use futures::FutureExt;
use request_balancer::{Error, Failure, Refused};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn whenever_it_is_dropped_nobody_behind_it_waits_longer() {
    for shape in SHAPES {
        for at in every(0, 50, 50) {
            let field = exact("overall = '30/1s'\n[rules]\nr = { per_key = '1/1s', key_concurrency = 1 }");
            let before = field.play("r", "A", "before", Script::takes(400));
            settle().await;
            let victim = life(&field, shape, "A", "victim");
            let after = [field.go("r", "A", "after"), field.go("r", "A", "last")];
            let other = field.play("r", "B", "other", Script::takes(50));
            settle().await;
            // Even if it ends by itself, at 2.3 s.
            let _ = timeout(ms(at), victim).await;
            // A ticket's task is gone when the runtime has seen to it.
            settle().await;
            let (starts, key) = (field.starts("victim").len(), field.balancer.key("A"));
            let others = field.starts("after").len() + field.starts("last").len();
            assert_eq!((key.waiting + others, key.in_flight), (2, usize::from(at < 400)), "{shape:?} at {at}");
            field.all_ok([before, other]).await;
            field.all_ok(after).await;
            // Each start of the victim costs the others a window, and nothing else does.
            let next = 1_000 * (starts as u64 + 1);
            let told = format!("{shape:?} dropped at {at} after {starts} starts: {:?}", field.diary.read());
            assert_eq!(field.starts("victim"), every(1_000, 1_000, starts), "{told}");
            assert_eq!((field.starts("after"), field.starts("last")), (vec![next], vec![next + 1_000]), "{told}");
            assert_eq!(field.starts("other"), [0], "{told}");
            let expected = match at {
                0..1_000 => 0..=0,
                1_000 => 0..=1,
                1_001..2_000 => 1..=1,
                2_000 => 1..=2,
                _ => 2..=2,
            };
            assert!(expected.contains(&starts), "{told}");
            assert_traceless(&field).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_poll_was_the_last_its_slot_is_free() {
    for shape in SHAPES {
        for polls in 0..12 {
            let field = exact("[rules]\nr = { key_concurrency = 1 }");
            let attempt = |field: Field| async move {
                field.diary.note("victim");
                for _ in 0..8 {
                    yield_now().await;
                }
            };
            let request = field.balancer.request("r", "A");
            let mut victim: Pin<Box<dyn Future<Output = ()>>> = match shape {
                Shape::Run => Box::pin({
                    let field = field.clone();
                    let run = request.run(move |_| attempt(field.clone()).map(Ok::<_, Failure<()>>));
                    run.map(|answer| assert_eq!(answer, Ok(())))
                }),
                Shape::Ticket => Box::pin({
                    let field = field.clone();
                    let run = request.submit(move |_| attempt(field.clone()).map(Ok::<_, Failure<()>>));
                    run.expect("a place in line").map(|answer| assert_eq!(answer, Ok(())))
                }),
                Shape::Permit => Box::pin(async {
                    let _permit = request.acquire().await.expect("it starts");
                    attempt(field.clone()).await;
                }),
            };
            for _ in 0..polls {
                if poll_once(victim.as_mut()).is_ready() {
                    break;
                }
                yield_now().await;
            }
            let behind = field.go("r", "A", "behind");
            yield_now().await;
            drop(victim);
            field.all_ok([behind]).await;
            assert_eq!(field.starts("behind"), [0], "{shape:?} after {polls} polls");
            settle().await;
            assert_traceless(&field).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_that_are_dropped_at_random_leave_every_window_exact_and_nothing_behind() {
    for seed in 0..20 {
        let field = exact(
            "overall = { limit = '12/1s', concurrency = 9 }\n[rules]\nr = ['1/150ms', '4/1s']\n[rules.low]\nper_key = \
             '3/1s'\npriority = 2\n",
        );
        let mut random = Rng::new(seed);
        let mut tasks: Vec<(JoinHandle<bool>, bool)> = Vec::new();
        for _ in 0..200 {
            sleep(ms(random.below(60))).await;
            let shape = SHAPES[random.below(3) as usize];
            let (key, stays) = (["A", "B", "C", "D"][random.below(4) as usize], random.below(3) == 0);
            let rule = if random.below(3) == 0 { "low" } else { "r" };
            let patience = if stays { u64::MAX >> 21 } else { random.below(4_000) };
            let end = if random.below(5) == 0 { End::Retry(1_000) } else { End::Ok };
            let script = Script { takes: random.below(300), ends: vec![end, End::Ok] };
            let field = field.clone();
            tasks.push((
                tokio::spawn(async move {
                    let request = field.balancer.request(rule, key);
                    let name = format!("{rule} {key}");
                    match shape {
                        Shape::Run => {
                            let run = request.run(field.script(&name, script));
                            timeout(ms(patience), run).await.is_ok_and(|answer| answer.is_ok())
                        }
                        Shape::Ticket => {
                            let ticket = request.submit(field.script(&name, script)).expect("a place in line");
                            timeout(ms(patience), ticket).await.is_ok_and(|answer| answer.is_ok())
                        }
                        Shape::Permit => {
                            let acquire = async {
                                let permit = request.acquire().await.expect("it starts");
                                field.diary.note(name.as_str());
                                sleep(ms(script.takes)).await;
                                drop(permit);
                            };
                            timeout(ms(patience), acquire).await.is_ok()
                        }
                    }
                }),
                stays,
            ));
        }
        for (task, stays) in tasks {
            let done = task.await.expect("the task ends by itself");
            assert!(done || !stays, "with seed {seed}");
        }
        settle().await;
        assert_traceless(&field).await;
        assert!(most_in(&field.diary.times(), 1_000) <= 12, "with seed {seed}");
        for key in ["A", "B", "C", "D"] {
            let starts = field.starts(&format!("r {key}"));
            assert!(most_in(&starts, 1_000) <= 4 && most_in(&starts, 150) <= 1, "with seed {seed}: {starts:?}");
            assert!(most_in(&field.starts(&format!("low {key}")), 1_000) <= 3, "with seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_permit_that_waits_again_gives_back_what_it_never_used() {
    let field = exact("[rules]\nr = { per_key = '2/1s', key_concurrency = 1 }");
    let permit = field.balancer.request("r", "A").acquire().await.unwrap();
    // Never polled: as if the permit were dropped, with no hold.
    drop(permit.retry(ms(60_000)));
    field.assert_quiet();
    assert_eq!(field.balancer.key("A").held, None);
    let permit = field.balancer.request("r", "A").acquire().await.unwrap();
    {
        let mut again = pin!(permit.retry(ms(1_500)));
        assert!(poll_once(again.as_mut()).is_pending());
        assert_eq!((field.balancer.key("A").waiting, field.balancer.key("A").in_flight), (1, 0));
    }
    field.assert_quiet();
    assert_eq!(field.balancer.key("A").held, Some(ms(1_500)));
    field.all_ok(field.go_many("r", "A", "next", 2)).await;
    assert_eq!(field.starts("next"), [1_500, 1_500]);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_was_refused_can_be_dropped_and_asked() {
    let field = exact("[rules]\nr = { key_concurrency = 1 }");
    let running = field.play("r", "A", "running", Script::takes(5_000));
    settle().await;
    let submit = || {
        let request = field.balancer.request("r", "A").max_wait(ms(1_000));
        request.submit(field.script("never", Script::takes(0))).expect("a place in line")
    };
    let (asked, dropped) = (submit(), submit());
    field.at(2_000).await;
    assert_eq!(field.balancer.key("A").waiting, 0);
    drop(dropped);
    let answer = asked.await;
    assert!(matches!(answer, Err(Error::GaveUp { reason: Refused::MaxWait { .. }, attempts: 0, .. })), "{answer:?}");
    field.all_ok([running]).await;
    assert_traceless(&field).await;
}

// Threads that drop while others grant: what is exact is only that nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn real_clock_drops_on_many_threads_leave_nothing() {
    let balancer = field::balancer("overall = { limit = '50/5ms', concurrency = 20 }\n[rules]\nr = '2/1ms'");
    let mut random = Rng::new(4);
    let tasks: Vec<_> = (0..3_000_u64)
        .map(|number| {
            let (balancer, patience) = (balancer.clone(), random.below(60));
            let never_ends = random.below(4) == 0;
            tokio::spawn(async move {
                let attempt = move |_| async move {
                    if never_ends {
                        pending::<()>().await;
                    }
                    yield_now().await;
                    Ok::<_, Failure<()>>(())
                };
                let request = balancer.request("r", number % 37);
                if number % 2 == 0 {
                    let _ = timeout(ms(patience), request.run(attempt)).await;
                } else {
                    let ticket = request.submit(attempt).expect("a place in line");
                    let _ = timeout(ms(patience), ticket).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends by itself");
    }
    // Aborted tasks of tickets are dropped by whichever thread comes to it.
    let traceless = async {
        let busy = || {
            let snapshot = balancer.snapshot();
            (snapshot.waiting, snapshot.in_flight) != (0, 0)
        };
        while busy() {
            yield_now().await;
        }
        let last = (0..37).map(|key| balancer.run("r", key, async |_| Ok::<_, Failure<()>>(())));
        assert!(futures::future::join_all(last).await.iter().all(Result::is_ok));
        while balancer.snapshot().keys > 0 {
            sleep(ms(50)).await;
        }
    };
    timeout(ms(30_000), traceless).await.expect("it comes to an end");
}
