//! From the line to the start: who is granted, and does not come, leaves, or has waited for too long.

mod world;

use request_balancer::engine::{Claim, Entry, Nanos, Why};
use world::{Manner, World, ms};

#[test]
fn a_newcomer_does_not_take_the_slot_of_one_whose_timer_is_late() {
    let mut world = World::new("overall = '1/1s'");
    world.enter("default", 1);
    let due = world.enter("default", 2);
    world.now = ms(1_001);
    let newcomer = world.enter("default", 3);
    assert_eq!(world.starts_of(due), [1_001]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(newcomer), [2_001]);
}

#[test]
fn a_newcomer_does_not_pass_a_granted_request_of_its_queue() {
    let mut world = World::new("per_key = '2/1s'");
    let first = world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
    world.turn();
    let second = world.enter("default", 1);
    assert_eq!(world.starts_of(second), [] as [u64; 0]);
    assert!(matches!(world.claim(first), Claim::Started { .. }));
    assert_eq!(world.order, [first, second]);
}

#[test]
fn a_zombie_holds_nobody_up_for_longer_than_its_lease() {
    let mut world = World::new("per_key = '1/1s'");
    let zombie = world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
    let others = world.enqueue_many("default", 1, 10);
    world.turn();
    world.run_until(30_000);
    for (position, number) in others.iter().enumerate() {
        assert_eq!(world.starts_of(*number), [1_000 * (position as u64 + 1)]);
    }
    // It kept its number: polled again, it goes before whoever waits.
    let late = world.enqueue_many("default", 1, 2);
    world.asked[zombie].manner = Manner::Prompt;
    world.claim(zombie);
    world.turn();
    world.run_until(60_000);
    assert_eq!(world.starts_of(zombie), [30_000]);
    assert_eq!(world.starts_of(late[0]), [31_000]);
}

#[test]
fn many_zombies_cost_one_lease_in_all_where_there_is_room_for_them() {
    let mut world = World::new("overall = '10/1s'");
    for key in 0..10 {
        world.enqueue_as("default", key, Manner::Zombie, Entry::default());
    }
    let live = world.enqueue("default", 99);
    world.turn();
    world.run_until(10_000);
    assert_eq!(world.starts_of(live), [1_000]);
    assert_eq!(world.scheduler.snapshot(world.now).waiting, 10);
}

#[test]
fn only_the_first_of_a_queues_grants_may_claim() {
    let mut world = World::new("per_key = '3/1s'");
    let numbers: Vec<_> = (0..3).map(|_| world.enqueue_as("default", 1, Manner::Zombie, Entry::default())).collect();
    world.turn();
    assert_eq!(world.claim(numbers[1]), Claim::Waiting);
    assert_eq!(world.claim(numbers[2]), Claim::Waiting);
    world.asked[numbers[1]].manner = Manner::Prompt;
    world.asked[numbers[2]].manner = Manner::Prompt;
    // Its claim wakes the next, and that one's the last.
    world.claim(numbers[0]);
    assert_eq!(world.order, numbers);
}

#[test]
fn a_claim_however_late_is_what_counts() {
    let mut world = World::new("per_key = '1/1s'");
    let late = world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
    let next = world.enqueue("default", 1);
    world.turn();
    world.run_until(900);
    world.claim(late);
    world.run_until(5_000);
    assert_eq!(world.starts_of(late), [900]);
    assert_eq!(world.starts_of(next), [1_900]);
}

#[test]
fn an_unclaimed_grant_of_a_paced_quota_wakes_nobody_again_and_again() {
    for rules in ["overall = '3/10ms smooth'", "per_key = '3/10ms smooth'", "overall = '3/10ms burst 1'"] {
        let mut world = World::new(rules);
        world.enter("default", 1);
        world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
        let next = world.enqueue("default", 1);
        world.turn();
        world.run_until(500);
        assert!(world.turns < 10, "{rules}: {} turns", world.turns);
        // The lease ends a second after the grant at 3.33 ms.
        world.run_until(1_500);
        assert_eq!(world.starts_of(next), [1_003], "{rules}");
    }
}

#[test]
fn a_cancelled_request_had_cost_nothing() {
    let mut world = World::new("per_key = '1/1s'");
    let numbers: Vec<_> = (0..11).map(|_| world.enter("default", 1)).collect();
    world.run_until(100);
    for &number in &numbers[1..10] {
        world.withdraw(number);
    }
    assert_eq!(world.scheduler.snapshot(world.now).waiting, 1);
    world.run_until(5_000);
    assert_eq!(world.starts_of(numbers[10]), [1_000]);
}

#[test]
fn a_granted_request_that_leaves_gives_its_room_back_in_the_same_instant() {
    let mut world = World::new("overall = '1/1s'");
    let zombie = world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
    let next = world.enqueue("default", 2);
    world.turn();
    world.run_until(300);
    world.withdraw(zombie);
    assert_eq!(world.starts_of(next), [300]);
}

#[test]
fn who_waited_long_enough_is_refused_and_whoever_is_due_then_starts() {
    let mut world = World::new("per_key = '1/1s'");
    world.enter("default", 1);
    let entry = |millis| Entry { deadline: Some(ms(millis)), ..Entry::default() };
    let just = world.enter_as("default", 1, Manner::Prompt, entry(1_000));
    let not = world.enter_as("default", 1, Manner::Zombie, entry(1_500));
    world.run_until(10_000);
    assert_eq!(world.starts_of(just), [1_000]);
    assert!(matches!(
        world.claim(not),
        Claim::Refused { waited, .. } if waited == Nanos::from_millis(1_500)
    ));
    assert_eq!(world.claim(not), Claim::Unknown);
}

#[test]
fn a_deadline_that_passes_during_a_grant_is_not_forgotten_when_the_grant_is_revoked() {
    let mut world = World::new("per_key = '1/1s'");
    let entry = Entry { deadline: Some(ms(500)), ..Entry::default() };
    let zombie = world.enqueue_as("default", 1, Manner::Zombie, entry);
    world.turn();
    world.run_until(999);
    assert_eq!(world.scheduler.snapshot(world.now).waiting, 1);
    world.run_until(1_000);
    assert_eq!(world.scheduler.snapshot(world.now).waiting, 0);
    assert!(matches!(
        world.claim(zombie),
        Claim::Refused { why: Why::MaxWait, waited } if waited == Nanos::from_millis(1_000)
    ));
}
