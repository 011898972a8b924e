//! Who starts when, on the paused clock.

#![cfg(feature = "tokio")]

mod diary;

use std::time::Duration;

use diary::{Diary, balancer, settle};
use futures::future::join_all;
use request_balancer::{Failure, NextStart, Refused, Target};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn one_key_goes_at_its_pace_in_the_order_of_polling() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let names = ["a", "b", "c", "d"];
    let runs = names.map(|name| balancer.run("send", 7, diary.done::<()>(name)));
    join_all(runs).await;
    diary.assert(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let balancer = balancer("overall = '30/1s'\n[rules]\nsend = '1/1s'");
    let diary = Diary::new();
    let runs = (0..6).map(|n| balancer.run("send", n % 3, diary.done::<()>(&n.to_string())));
    join_all(runs).await;
    diary.assert(&[("0", 0), ("1", 0), ("2", 0), ("3", 1_000), ("4", 1_000), ("5", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn tasks_share_the_overall_limit() {
    let balancer = balancer("overall = '10/1s'\n[rules]\nsend = {}");
    let diary = Diary::new();
    let tasks: Vec<_> = (0..35)
        .map(|n| {
            let (balancer, diary) = (balancer.clone(), diary.clone());
            tokio::spawn(async move { balancer.run("send", n, diary.done::<()>("")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let expected: Vec<u64> = (0..35).map(|n| n / 10 * 1_000).collect();
    assert_eq!(diary.times(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_urgent_lane_goes_first() {
    let balancer = balancer(
        "overall = '1/1s'\n[rules]\nurgent = { priority = 1 }\nbulk = { priority = 2 }\n[lanes.2]\npace = false",
    );
    let diary = Diary::new();
    let mut runs = Vec::new();
    for n in 0..3 {
        runs.push(balancer.run("bulk", n, diary.done::<()>("bulk")));
    }
    for n in 0..3 {
        runs.push(balancer.run("urgent", n, diary.done::<()>("urgent")));
    }
    join_all(runs).await;
    diary.assert(&[
        ("bulk", 0),
        ("urgent", 1_000),
        ("urgent", 2_000),
        ("urgent", 3_000),
        ("bulk", 4_000),
        ("bulk", 5_000),
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_its_scope_and_nothing_else() {
    let balancer = balancer("overall = '30/1s'\n[rules]\nsend = {}\nread = {}");
    let diary = Diary::new();
    balancer.hold(Target::key(1), 3 * SECOND).unwrap();
    balancer.hold(Target::key(1), SECOND).unwrap();
    balancer.hold(Target::queue("send", 2), 2 * SECOND).unwrap();
    assert_eq!(balancer.next_start("send", 1), Ok(NextStart::After(3 * SECOND)));
    assert_eq!(balancer.next_start("read", 2), Ok(NextStart::Now));
    assert_eq!(balancer.key(1).held, Some(3 * SECOND));
    let run = |rule, key, name| balancer.run(rule, key, diary.done::<()>(name));
    join_all([
        run("send", 1, "s1"),
        run("read", 1, "r1"),
        run("send", 2, "s2"),
        run("read", 2, "r2"),
        run("send", 3, "s3"),
    ])
    .await;
    diary.assert(&[("r2", 0), ("s3", 0), ("s2", 2_000), ("s1", 3_000), ("r1", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_a_hold_at_once() {
    let balancer = balancer("overall = '30/1s'\n[rules]\nsend = {}");
    let diary = Diary::new();
    balancer.hold(Target::overall(), 60 * SECOND).unwrap();
    balancer.hold(Target::rule("send"), 60 * SECOND).unwrap();
    let release = async {
        tokio::time::sleep(2 * SECOND).await;
        balancer.release(Target::overall()).unwrap();
        tokio::time::sleep(SECOND).await;
        balancer.release(Target::rule("send")).unwrap();
    };
    let (answer, ()) = tokio::join!(balancer.run("send", 1, diary.done::<()>("a")), release);
    answer.unwrap();
    diary.assert(&[("a", 3_000)]);
    let typo = balancer.hold(Target::rule("sned"), SECOND);
    assert_eq!(typo, Err(Refused::UnknownRule { name: "sned".into(), nearest: Some("send".into()) }));
}

#[tokio::test(start_paused = true)]
async fn a_paused_rule_starts_nothing_until_it_is_resumed() {
    let balancer = balancer("[rules]\nsend = { paused = true }\nread = {}");
    let diary = Diary::new();
    let send = balancer.rule("send").unwrap();
    assert_eq!(send.next_start(1), NextStart::Never);
    let resume = async {
        tokio::time::sleep(5 * SECOND).await;
        send.resume();
    };
    let (sent, read, ()) =
        tokio::join!(send.run(1, diary.done::<()>("send")), balancer.run("read", 1, diary.done::<()>("read")), resume);
    assert_eq!((sent, read), (Ok(()), Ok(())));
    diary.assert(&[("read", 0), ("send", 5_000)]);
    balancer.pause("send").unwrap();
    assert!(balancer.snapshot().rules[0].paused);
    balancer.resume("send").unwrap();
    assert_eq!(send.next_start(1), NextStart::Now);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_free_is_used_in_the_same_instant() {
    let balancer = balancer("[rules]\nsend = { key_concurrency = 1 }");
    let diary = Diary::new();
    let run = |name: &'static str| {
        let diary = diary.clone();
        balancer.run("send", 1, move |_| {
            let diary = diary.clone();
            async move {
                diary.note(name);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                Ok::<_, Failure<()>>(())
            }
        })
    };
    join_all([run("a"), run("b"), run("c")]).await;
    diary.assert(&[("a", 0), ("b", 1_500), ("c", 3_000)]);
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn numbers_show_what_is_going_on() {
    let balancer = balancer("[rules]\nsend = '1/10s'");
    let task = tokio::spawn({
        let balancer = balancer.clone();
        async move {
            let hold = |_| async {
                tokio::time::sleep(SECOND).await;
                Ok::<_, Failure<()>>(())
            };
            tokio::join!(balancer.run("send", 1, hold), balancer.run("send", 1, hold))
        }
    });
    settle().await;
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight, snapshot.keys), (1, 1, 1));
    assert_eq!(snapshot.next_wake, Some(10 * SECOND));
    assert_eq!(
        (snapshot.rules[0].name.as_str(), snapshot.rules[0].waiting, snapshot.rules[0].in_flight),
        ("send", 1, 1)
    );
    assert_eq!((snapshot.lanes[0].priority, snapshot.lanes[0].waiting), (1, 1));
    let key = balancer.key(1);
    assert_eq!((key.waiting, key.in_flight, key.held), (1, 1, None));
    assert_eq!(balancer.key("unknown"), balancer.key(2));
    let (a, b) = task.await.unwrap();
    assert_eq!((a, b), (Ok(()), Ok(())));
    assert_eq!(balancer.snapshot().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_leaves_nothing_behind() {
    let balancer = balancer("[rules]\nsend = '1/1s'");
    for n in 0..1_000 {
        balancer.run("send", n, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    }
    assert_eq!(balancer.snapshot().keys, 1_000);
    tokio::time::sleep(60 * SECOND).await;
    // Whoever comes next finds the others gone.
    balancer.run("send", "last", async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    assert_eq!(balancer.snapshot().keys, 1);
    assert_eq!(balancer.next_start("send", 5), Ok(NextStart::Now));
}
