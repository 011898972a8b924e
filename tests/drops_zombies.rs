//! Grants that nobody takes up, and who stands behind them.
#![cfg(feature = "tokio")]

mod field;

use field::life::{SHAPES, Shape, assert_traceless, exact, life, life_started, poll_once};
use field::ms;
use request_balancer::Target;

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_not_taken_up_goes_to_the_next_in_the_same_instant() {
    for shape in SHAPES {
        let field = exact("[rules]\nr = '1/1h'");
        let hour = 3_600_000;
        field.balancer.hold(Target::key("A"), ms(hour)).unwrap();
        let victim = life(&field, shape, "A", "victim");
        let behind = field.go("r", "A", "behind");
        field.at(1_000).await;
        // Grants; nothing is polled before the drop.
        field.balancer.release(Target::key("A")).unwrap();
        drop(victim);
        field.all_ok([behind]).await;
        field.diary.assert(&[("behind", 1_000)]);
        field.assert_quiet();
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_grant_that_was_not_taken_up_goes_to_the_next_too() {
    for shape in [Shape::Run, Shape::Permit] {
        let field = exact("[rules]\nr = '1/1s'");
        let mut victim = life_started(&field, shape).await;
        let behind = field.go("r", "A", "behind");
        // Sent away at 0.3 until 1.0, polled no more, granted at 1.0.
        field.at(300).await;
        assert!(poll_once(victim.as_mut()).is_pending());
        field.at(1_200).await;
        assert_eq!((field.starts("behind"), field.balancer.key("A").waiting), (vec![], 2));
        drop(victim);
        field.all_ok([behind]).await;
        assert_eq!((field.starts("victim"), field.starts("behind")), (vec![0], vec![1_200]), "{shape:?}");
        assert_traceless(&field).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombie_of_another_key_costs_its_own_slot_and_nobody_any_time() {
    for shape in [Shape::Run, Shape::Permit] {
        let field = exact("overall = '11/1s'\n[rules]\nr = {}");
        field.all_ok(field.go_many("r", "B", "first", 11)).await;
        let zombie = life(&field, shape, "A", "zombie");
        let ten = field.go_many("r", "B", "ten", 10);
        field.all_ok(ten).await;
        assert_eq!(field.starts("ten"), vec![1_000; 10], "{shape:?}");
        // Its lease is over at 2 s, and its place with it.
        field.at(1_500).await;
        field.all_ok(field.go_many("r", "B", "eleven", 11)).await;
        assert_eq!(field.starts("eleven"), vec![2_000; 11]);
        drop(zombie);
        assert_traceless(&field).await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_zombie_at_the_head_is_dropped_the_ten_behind_it_start_at_once() {
    for shape in [Shape::Run, Shape::Permit] {
        let field = exact("[rules]\nr = '11/1s'");
        field.all_ok(field.go_many("r", "A", "first", 11)).await;
        let zombie = life(&field, shape, "A", "zombie");
        let ten = field.go_many("r", "A", "ten", 10);
        // All eleven have been granted; ten wait for the first.
        field.at(1_250).await;
        assert_eq!(field.starts("ten"), [0; 0]);
        drop(zombie);
        field.all_ok(ten).await;
        assert_eq!(field.starts("ten"), vec![1_250; 10], "{shape:?}");
        assert_traceless(&field).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombie_that_comes_to_life_in_time_keeps_its_place_and_its_start_counts_from_then() {
    let field = exact("[rules]\nr = '2/1s'");
    field.all_ok(field.go_many("r", "A", "first", 2)).await;
    let zombie = life(&field, Shape::Run, "A", "zombie");
    let three = field.go_many("r", "A", "three", 3);
    field.at(1_400).await;
    // 700 ms after its first end at 1.7 s: a hold for all until 2.4 s.
    zombie.await;
    field.all_ok(three).await;
    assert_eq!((field.starts("zombie"), field.starts("three")), (vec![1_400, 2_400], vec![1_400, 2_400, 3_400]));
    assert_traceless(&field).await;
}

#[tokio::test(start_paused = true)]
async fn a_zombie_between_its_attempts_delays_the_ten_behind_it_by_one_lease() {
    for shape in [Shape::Run, Shape::Permit] {
        let field = exact("[rules]\nr = '11/1s'");
        let mut zombie = life_started(&field, shape).await;
        field.at(300).await;
        assert!(poll_once(zombie.as_mut()).is_pending());
        let ten = field.go_many("r", "A", "ten", 10);
        // Granted when its hold is over, at 1 s; revoked at 2 s.
        field.all_ok(ten).await;
        assert_eq!(field.starts("ten"), vec![2_000; 10], "{shape:?}");
        // Polled again it is where it was.
        zombie.await;
        assert_eq!(field.starts("zombie"), [0; 0]);
        assert_eq!(field.starts("victim"), [0, 2_000], "{shape:?}");
        assert_traceless(&field).await;
    }
}
