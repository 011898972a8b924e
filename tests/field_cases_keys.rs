//! Cases from the field: keys that were never forgotten, or too early.
#![cfg(feature = "tokio")]

mod field;

use field::{Field, Script, assert_quiet, balancer, every, ms};
use futures::future::join_all;
use request_balancer::{Failure, Key};

/// The longest that a key outlives its last window and hold.
const SWEEP: u64 = 2_000;

// How much memory comes back is in field_cases_heap.
#[tokio::test(start_paused = true)]
async fn fr_026_a_hundred_thousand_keys_are_forgotten_and_none_too_early() {
    let field = Field::new("[rules]\nindividual = '1/1s'");
    for key in 0..100_000_u64 {
        field.balancer.run("individual", key, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    }
    assert_eq!((field.now(), field.balancer.snapshot().keys), (0, 100_000));
    field.at(999).await;
    field.all_ok([field.go("individual", 5_u64, "again")]).await;
    assert_eq!(field.starts("again"), [1_000]);
    // Its window is over at 2 s.
    field.at(2_000 + SWEEP).await;
    let snapshot = field.balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_026_where_nobody_ever_waited_a_look_finds_them_forgotten() {
    let field = Field::new("[rules]\nindividual = '1/1s'");
    for key in 0..1_000_u64 {
        field.balancer.run("individual", key, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    }
    field.at(999).await;
    assert_eq!(field.balancer.snapshot().keys, 1_000);
    field.at(1_000 + SWEEP).await;
    let snapshot = field.balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
}

#[tokio::test(start_paused = true)]
async fn fr_027_traffic_of_one_key_is_enough_to_forget_the_others() {
    let field = Field::new("[rules]\nindividual = '1/1s'");
    let go = |key: Key| field.balancer.run("individual", key, async |_| Ok::<_, Failure<()>>(()));
    for key in 0..10_000_u64 {
        go(key.into()).await.unwrap();
    }
    // It never waits, so nobody ever slept on its behalf.
    for second in 1..=(2_000 + SWEEP) / 1_000 {
        field.at(second * 1_000).await;
        go("X".into()).await.unwrap();
    }
    let keys = field.balancer.snapshot().keys;
    assert!(keys <= 2, "{keys} keys are left");
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_028_a_crawl_of_fifty_thousand_hosts_leaves_nothing() {
    let balancer = balancer("[rules]\nhost = '1/500ms'");
    let begin = tokio::time::Instant::now();
    let pages = (0..150_000_u64).map(|page| {
        let host = page % 50_000;
        balancer.run("host", host, async |_| Ok::<_, Failure<()>>(begin.elapsed().as_millis() as u64))
    });
    let starts: Vec<u64> = join_all(pages).await.into_iter().map(|start| start.expect("it is done")).collect();
    for (page, start) in (0_u64..).zip(starts) {
        assert_eq!(start, page / 50_000 * 500, "page {page}");
    }
    assert_quiet(&balancer);
    tokio::time::sleep(ms(500 + SWEEP)).await;
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake), (0, None));
}

#[tokio::test(start_paused = true)]
async fn fr_030_no_sweep_forgets_a_window_that_is_not_over() {
    let field = Field::new("[rules]\ndaily = '1/24h'");
    field.all_ok([field.go("daily", "A", "A")]).await;
    for minute in 1..10 {
        field.at(minute * 60_000).await;
        // Others come and go.
        field.all_ok([field.go("daily", minute, "other")]).await;
    }
    field.at(600_000).await;
    let second = field.go("daily", "A", "A");
    field.at(24 * 3_600_000 - 1).await;
    assert_eq!(field.balancer.snapshot().waiting, 1);
    field.all_ok([second]).await;
    assert_eq!(field.starts("A"), every(0, 24 * 3_600_000, 2));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_030_a_key_without_a_waiter_is_remembered_for_the_whole_window() {
    let field = Field::new("[rules]\ndaily = '1/24h'");
    field.all_ok([field.go("daily", "A", "A")]).await;
    // Somebody waits elsewhere, so that the sweep has every chance.
    let other = field.play("daily", "B", "B", Script::takes(0));
    let waits = field.go("daily", "B", "B");
    field.at(24 * 3_600_000 - 1).await;
    field.all_ok([field.go("daily", "A", "A"), other, waits]).await;
    assert_eq!(field.starts("A"), every(0, 24 * 3_600_000, 2));
    field.at(48 * 3_600_000 + SWEEP).await;
    assert_eq!(field.balancer.snapshot().keys, 0);
}

/// What kind of chat a key is may turn out late: both rules draw on one budget of the key.
#[tokio::test(start_paused = true)]
async fn fr_179_what_was_sent_under_one_rule_counts_under_the_next() {
    let field = Field::new(
        "limits.chat.per_key = '20/60s'\n\
         [rules]\nchannel = { per_key = '10/60s', under = ['chat'] }\ngroup = { under = ['chat'] }",
    );
    let rule_for = |hint: &str| if hint == "a group" { "group" } else { "channel" };
    field.all_ok(field.go_many(rule_for("nothing known"), "X", "as a channel", 10)).await;
    field.all_ok(field.go_many(rule_for("a group"), "X", "as a group", 12)).await;
    assert_eq!(field.starts("as a channel"), [0; 10]);
    assert_eq!(field.starts("as a group"), [[0; 10].as_slice(), &[60_000; 2]].concat());
    field.assert_quiet();
}
