//! Cases from the field: who goes first, who waits for whom, and who must not.
#![cfg(feature = "tokio")]

mod field;

use field::{End, Field, Script, every, most_in, settle};

#[tokio::test(start_paused = true)]
async fn fr_067_a_refusal_in_one_chat_changes_nothing_in_another() {
    let run = async |refused: bool| {
        let field = Field::new("overall = '30/1s'\n[rules]\nindividual = '1/1s'");
        let ends = if refused { vec![End::Retry(30_000), End::Ok] } else { vec![End::Ok] };
        let mut tasks = vec![field.play("individual", "A", "A", Script::ends(ends))];
        tasks.extend(field.go_many("individual", "A", "A", 3));
        for second in 0..40 {
            field.at(second * 1_000).await;
            tasks.push(field.go("individual", "B", "B"));
            tasks.push(field.go("individual", "C", "C"));
        }
        field.all_ok(tasks).await;
        field.assert_quiet();
        [field.starts("A"), field.starts("B"), field.starts("C")]
    };
    let [a, b, c] = run(true).await;
    let [_, undisturbed_b, undisturbed_c] = run(false).await;
    assert_eq!(a, [0, 30_000, 31_000, 32_000, 33_000]);
    assert_eq!((&b, &c), (&undisturbed_b, &undisturbed_c));
    assert_eq!((b, c), (every(0, 1_000, 40), every(0, 1_000, 40)));
}

#[tokio::test(start_paused = true)]
async fn fr_069_a_late_refusal_stops_who_was_due() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let first = field.play("r", "A", "r1", Script { takes: 900, ends: vec![End::Retry(10_000), End::Ok] });
    let second = field.go("r", "A", "r2");
    field.all_ok([first, second]).await;
    field.diary.assert(&[("r1", 0), ("r1", 10_900), ("r2", 11_900)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_096_in_a_strict_queue_nobody_passes_one_that_waits() {
    let field = Field::new("[rules]\nr = { ordered = true }");
    let first = field.play("r", "A", "r1", Script { takes: 500, ends: vec![End::Retry(5_000), End::Ok] });
    let others = ["r2", "r3"].map(|name| field.play("r", "A", name, Script::takes(500)));
    field.all_ok([first]).await;
    assert_eq!(field.now(), 6_000);
    field.all_ok(others).await;
    field.diary.assert(&[("r1", 0), ("r1", 5_500), ("r2", 6_000), ("r3", 6_500)]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_096_in_a_strict_queue_the_next_goes_when_the_first_gives_up() {
    let field = Field::new("[rules]\nr = { ordered = true }\n[retry]\nwaits = 1");
    let first = field.play("r", "A", "r1", Script::ends([End::Retry(5_000)]));
    let second = field.go("r", "A", "r2");
    assert!(first.await.unwrap().is_err());
    field.all_ok([second]).await;
    // The server said twice that it wants five seconds of rest.
    field.diary.assert(&[("r1", 0), ("r1", 5_000), ("r2", 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn fr_096_in_any_queue_the_refused_one_is_the_first_after_the_hold() {
    let field = Field::new("[rules]\nr = '1/1s'");
    let first = field.play("r", "A", "r1", Script::ends([End::Retry(5_000), End::Ok]));
    let others = [field.go("r", "A", "r2"), field.go("r", "A", "r3")];
    field.all_ok([first]).await;
    field.all_ok(others).await;
    field.diary.assert(&[("r1", 0), ("r1", 5_000), ("r2", 6_000), ("r3", 7_000)]);
}

/// Twelve urgent requests a second for ten that are allowed, one second ahead, and one request of the lower lane behind
/// the first of them.
async fn one_below_a_stream(lane: &str, seconds: u64) -> (Field, Vec<u64>) {
    let field =
        Field::new(&format!("overall = '10/1s'\n[rules]\nhigh = {{}}\nlow = {{ priority = 2 }}\n[lanes.2]\n{lane}"));
    let mut tasks = Vec::new();
    for second in 0..seconds {
        field.at(second * 1_000).await;
        let arrivals = if second == 0 { 24 } else { 12 };
        tasks.extend((0..arrivals).map(|number| field.go("high", number, "high")));
        if second == 0 {
            settle().await;
            tasks.push(field.go("low", "low", "low"));
        }
    }
    field.all_ok(tasks).await;
    field.assert_quiet();
    let low = field.starts("low");
    (field, low)
}

// The row's bound of 30 s stands for ageing; with shares it is K + L grants.
#[tokio::test(start_paused = true)]
async fn fr_101_a_lower_lane_is_served_once_in_every_twenty_starts() {
    let (field, low) = one_below_a_stream("share = '1/20'", 600).await;
    // It comes when the first ten have started, is passed by 18, and is then the first of those that are left.
    assert_eq!(low, [2_000]);
    let high = field.starts("high");
    assert_eq!((high.len(), most_in(&field.diary.times(), 1_000)), (7_212, 10));
    assert_eq!(high.iter().filter(|&&at| at <= 2_000).count(), 29);
}

#[tokio::test(start_paused = true)]
async fn fr_101_with_no_share_a_lower_lane_waits_for_the_end_of_the_stream() {
    let (field, low) = one_below_a_stream("share = 0", 600).await;
    // 7,212 at ten a second: in the last second there is room.
    assert_eq!(field.starts("high").last(), Some(&721_000));
    assert_eq!(low, [721_000]);
}

#[tokio::test(start_paused = true)]
async fn fr_103_a_steady_overload_makes_everybody_wait_in_turn() {
    let field = Field::new("[rules]\nr = '5/60s'");
    let mut tasks = Vec::new();
    for number in 0..120_u64 {
        field.at(number * 10_000).await;
        tasks.push(field.go("r", "A", &number.to_string()));
    }
    field.all_ok(tasks).await;
    let starts = field.diary.read();
    let order: Vec<u64> = starts.iter().map(|(name, _)| name.parse().unwrap()).collect();
    assert_eq!(order, (0..120).collect::<Vec<_>>());
    for (number, (_, at)) in (0_u64..).zip(&starts) {
        // The five before it, and its own arrival: nothing else may keep it.
        let earliest = number.checked_sub(5).map_or(0, |before| starts[before as usize].1 + 60_000);
        assert_eq!(*at, earliest.max(number * 10_000), "request {number}");
        let backlog = starts[..number as usize].iter().filter(|(_, start)| *start > number * 10_000).count() as u64;
        assert!(at - number * 10_000 <= (backlog / 5 + 1) * 60_000, "request {number} behind {backlog}");
    }
    assert_eq!(most_in(&field.diary.times(), 60_000), 5);
    field.assert_quiet();
}

/// A broadcast of 10,000 and one urgent request at 10.5 s. Returns its start and those of the broadcast up to then.
async fn one_above_a_broadcast(lane: &str) -> (u64, Vec<u64>) {
    let field = Field::new(&format!(
        "overall = '30/1s'\n[rules]\nurgent = {{}}\nbroadcast = {{ priority = 2 }}\n[lanes.2]\n{lane}"
    ));
    let tickets: Vec<_> = (0..10_000)
        .map(|key| {
            let request = field.balancer.request("broadcast", key);
            request.submit(field.script("broadcast", Script::takes(0))).expect("room in line")
        })
        .collect();
    field.at(10_500).await;
    field.all_ok([field.go("urgent", "chat", "urgent")]).await;
    let broadcast = field.starts("broadcast");
    drop(tickets);
    settle().await;
    field.assert_quiet();
    (field.starts("urgent")[0], broadcast)
}

#[tokio::test(start_paused = true)]
async fn fr_105_a_paced_broadcast_leaves_room_for_one_every_34_ms() {
    let (urgent, broadcast) = one_above_a_broadcast("pace = '60s'").await;
    // The broadcast's start at 9.501 leaves the window.
    assert_eq!(urgent, 10_501);
    // It goes at the full rate for all that.
    assert_eq!((most_in(&broadcast, 1_000), broadcast.len()), (30, 315));
}

#[tokio::test(start_paused = true)]
async fn fr_105_behind_a_capped_broadcast_the_urgent_one_starts_at_once() {
    let (urgent, broadcast) = one_above_a_broadcast("overall = '25/1s'").await;
    assert_eq!(urgent, 10_500);
    assert_eq!((most_in(&broadcast, 1_000), broadcast.len()), (25, 265));
}

#[tokio::test(start_paused = true)]
async fn fr_106_a_full_rule_does_not_stand_before_a_free_one() {
    let field = Field::new("[rules]\na = '10/60s'\nb = {}");
    let waiting = field.go_many("a", "key", "a", 1_000);
    settle().await;
    assert_eq!(field.balancer.snapshot().waiting, 990);
    field.all_ok([field.go("b", "key", "b")]).await;
    assert_eq!(field.starts("b"), [0]);
    for task in waiting {
        task.abort();
    }
    settle().await;
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_107_those_that_wait_for_one_host_hold_no_slots() {
    let field = Field::new("concurrency = 16\n[rules]\nhost = '1/5s'");
    let mut tasks: Vec<_> = (0..100).map(|_| field.play("host", "H", "H", Script::takes(10))).collect();
    tasks.extend((0..100).map(|host| field.play("host", host, "other", Script::takes(10))));
    field.all_ok(tasks).await;
    assert_eq!(field.starts("H"), every(0, 5_000, 100));
    // 16 at a time, one of the first 16 is of H.
    let expected: Vec<u64> = (1..=100).map(|number| number / 16 * 10).collect();
    assert_eq!(field.starts("other"), expected);
    field.assert_quiet();
}
