//! Cases from the field about what a restart must not lose, on tokio's paused clock and a clock on the wall that goes with
//! it.
#![cfg(all(feature = "tokio", feature = "serde"))]

mod field;

use std::time::{Duration, SystemTime};

use field::{Field, Script, every, ms};
use request_balancer::{Balancer, NextStart, State, Target};
use tokio::time::Instant;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A clock on the wall that goes with tokio's.
#[derive(Clone, Copy)]
struct Wall(Instant);

impl Wall {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn now(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + self.0.elapsed()
    }

    /// What is on disk after the program ended.
    fn store(self, balancer: &Balancer) -> String {
        serde_json::to_string(&balancer.export_state_at(self.now())).expect("a state can be written")
    }

    /// The program started again; its clock begins anew.
    fn restart(self, rules: &str, stored: &str) -> Field {
        let field = Field::new(rules);
        let state: State = serde_json::from_str(stored).expect("a state can be read");
        let imported = field.balancer.import_state_at(&state, self.now());
        assert_eq!(imported.ignored, 0);
        field
    }
}

#[tokio::test(start_paused = true)]
async fn fr_168_a_daily_quota_goes_on_after_a_restart() {
    for rules in ["overall = '500/24h'", "per_key = '500/24h'", "[rules.default]\nper_key = '500/24h'"] {
        let wall = Wall::new();
        let before = Field::new(rules);
        // One a second from t = 0 on: the oldest leaves the window at 24 h.
        for second in 0..400 {
            before.at(second * SECOND).await;
            before.all_ok([before.go("default", "a", "before")]).await;
        }
        assert_eq!(before.starts("before"), every(0, SECOND, 400));
        before.at(HOUR).await;
        let stored = wall.store(&before.balancer);
        drop(before);

        tokio::time::sleep(ms(HOUR)).await;
        let after = wall.restart(rules, &stored);
        let tasks = after.go_many("default", "a", "after", 103);
        after.all_ok(tasks).await;
        // Two hours after the first start: exactly 100 at once, then one for each that leaves.
        let mut expected = vec![0; 100];
        expected.extend(every(DAY - 2 * HOUR, SECOND, 3));
        assert_eq!(after.starts("after"), expected, "{rules}");
        after.assert_quiet();
    }
}

#[tokio::test(start_paused = true)]
async fn fr_030_a_day_is_not_forgotten_while_the_program_is_down() {
    let wall = Wall::new();
    let rules = "[rules]\ndaily = '1/24h'";
    let before = Field::new(rules);
    before.all_ok([before.go("daily", "a", "first")]).await;
    before.at(5 * MINUTE).await;
    let stored = wall.store(&before.balancer);
    drop(before);

    tokio::time::sleep(ms(5 * MINUTE)).await;
    let after = wall.restart(rules, &stored);
    let second = after.go("daily", "a", "second");
    let other = after.go("daily", "b", "other");
    after.all_ok([second, other]).await;
    assert_eq!(after.starts("second"), [DAY - 10 * MINUTE]);
    assert_eq!(after.starts("other"), [0]);
}

#[tokio::test(start_paused = true)]
async fn fr_168_a_hold_goes_on_after_a_restart() {
    let wall = Wall::new();
    let rules = "[rules]\nsend = '10/1s'\nread = '10/1s'";
    let before = Field::new(rules);
    let held = before.play("send", "a", "held", Script::ends([field::End::Retry(30 * SECOND), field::End::Ok]));
    before.balancer.hold(Target::rule("read"), ms(20 * SECOND)).expect("a rule of the test");
    before.balancer.hold(Target::queue("send", "b"), ms(25 * SECOND)).expect("a rule of the test");
    before.at(10 * SECOND).await;
    let stored = wall.store(&before.balancer);
    held.abort();
    drop(before);

    tokio::time::sleep(ms(5 * SECOND)).await;
    let after = wall.restart(rules, &stored);
    let tasks = [
        after.go("send", "a", "a"),
        after.go("send", "b", "b"),
        after.go("send", "c", "c"),
        after.go("read", "c", "read"),
    ];
    after.all_ok(tasks).await;
    let starts = ["a", "b", "c", "read"].map(|name| after.starts(name));
    assert_eq!(starts, [vec![15 * SECOND], vec![10 * SECOND], vec![0], vec![5 * SECOND]]);
}

#[tokio::test(start_paused = true)]
async fn fr_168_a_bucket_is_as_empty_as_it_was() {
    let wall = Wall::new();
    let rules = "per_key = '60/1h burst 20'";
    let before = Field::new(rules);
    before.all_ok(before.go_many("default", "a", "before", 20)).await;
    let stored = wall.store(&before.balancer);
    drop(before);

    tokio::time::sleep(ms(5 * MINUTE)).await;
    let after = wall.restart(rules, &stored);
    after.all_ok(after.go_many("default", "a", "after", 7)).await;
    assert_eq!(after.starts("after"), [0, 0, 0, 0, 0, MINUTE, 2 * MINUTE]);
}

#[tokio::test(start_paused = true)]
async fn fr_168_what_the_server_gets_is_in_the_window_over_all_restarts() {
    let wall = Wall::new();
    let rules = "overall = '7/10m'\nper_key = '3/2m'";
    let mut stored: Option<String> = None;
    let mut starts: Vec<u64> = Vec::new();
    // Killed every 3 minutes and 7 seconds, with more to do than the limits allow.
    for _ in 0..12 {
        let field = match &stored {
            None => Field::new(rules),
            Some(stored) => wall.restart(rules, stored),
        };
        let begin = u64::try_from(wall.0.elapsed().as_millis()).expect("tests are short");
        let tasks: Vec<_> = (0..9).flat_map(|_| ["a", "b", "c"].map(|key| field.go("default", key, "x"))).collect();
        field.at(187 * SECOND).await;
        stored = Some(wall.store(&field.balancer));
        starts.extend(field.starts("x").iter().map(|at| begin + at));
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
    assert_eq!(field::most_in(&starts, 10 * MINUTE), 7);
    // Nothing was lost to the restarts either: seven in every ten minutes of the 37.4.
    assert_eq!(starts.len(), 28, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_window_of_a_minute_is_not_kept() {
    let wall = Wall::new();
    let rules = "per_key = '1/1m'";
    let before = Field::new(rules);
    before.all_ok([before.go("default", "a", "before")]).await;
    let stored = wall.store(&before.balancer);
    let after = wall.restart(rules, &stored);
    assert_eq!(after.balancer.next_start("default", "a").expect("a rule of the test"), NextStart::Now);
}

#[tokio::test(start_paused = true)]
async fn fr_130_a_wall_clock_that_jumps_moves_no_start() {
    let mut runs = Vec::new();
    for jump in [Duration::ZERO, Duration::from_secs(11)] {
        let wall = Wall::new();
        let field = Field::new("per_key = '3/1s'");
        let nothing = field.balancer.export_state_at(wall.now());
        let tasks = field.go_many("default", "a", "a", 180);
        // Put back, put right, put back, … every three seconds.
        for (step, back) in (1..=20).zip([true, false].into_iter().cycle()) {
            field.at(step * 3 * SECOND).await;
            let told = if back { wall.now() - jump } else { wall.now() };
            field.balancer.import_state_at(&nothing, told);
        }
        field.all_ok(tasks).await;
        runs.push(field.starts("a"));
    }
    assert_eq!(runs[0], (0..180).map(|n| n / 3 * SECOND).collect::<Vec<_>>());
    assert_eq!(runs[1], runs[0]);
}
