//! What a turn does, counted: how much under one lock, and how often the machine asks for one.

mod world;

use request_balancer::engine::{Entry, Nanos};
use world::{Manner, World, ms};

/// Grants and demotions of one turn.
const PER_TURN: usize = 64;

/// Turns until the machine wants no other one now, and how many requests each of them woke.
fn turns(world: &mut World) -> Vec<usize> {
    let mut turns = Vec::new();
    loop {
        world.scheduler.dispatch(world.now);
        turns.push(std::mem::take(world.scheduler.take_wakes()).len());
        if world.scheduler.next_wake().is_none_or(|wake| wake > world.now) {
            return turns;
        }
    }
}

/// So many that the last turn has a rest to do.
const KEYS: u64 = 1_000;
const LAST: usize = KEYS as usize % PER_TURN;

fn full_turns_and_a_rest() -> Vec<usize> {
    let mut turns = vec![PER_TURN; KEYS as usize / PER_TURN];
    turns.push(LAST);
    turns
}

#[test]
fn no_turn_grants_more_than_its_share() {
    let mut world = World::new("per_key = '1/1s'");
    for key in 0..KEYS {
        world.enqueue_as("default", key, Manner::Zombie, Entry::default());
    }
    assert_eq!(turns(&mut world), full_turns_and_a_rest());
}

#[test]
fn no_turn_grants_more_than_its_share_of_one_queue() {
    let mut world = World::new("per_key = '1000/1s'");
    for _ in 0..KEYS {
        world.enqueue_as("default", 1, Manner::Zombie, Entry::default());
    }
    // Only the first of a queue's grants is told to claim; the others' wakers are used as well.
    assert_eq!(turns(&mut world).iter().sum::<usize>(), KEYS as usize);
    assert!(turns(&mut world).iter().all(|&woken| woken <= PER_TURN));
}

#[test]
fn no_turn_demotes_more_than_its_share() {
    let mut world = World::new("per_key = '1/1s'\n[rules]\none = {}\nother = {}");
    for key in 0..KEYS {
        world.enter("one", key);
    }
    // Each stands in the ring with a key that just had its start: none may go, and that is found out one by one.
    for key in 0..KEYS {
        world.enqueue_as("other", key, Manner::Zombie, Entry::default());
    }
    let found = turns(&mut world);
    assert_eq!(found.len(), full_turns_and_a_rest().len());
    assert_eq!(found.iter().sum::<usize>(), 0);
    assert_eq!(world.scheduler.next_wake(), Some(ms(1_000)));
}

#[test]
fn a_turn_moves_at_most_64_queues() {
    // Every key's urgent queue has a sibling that was just served: all of them are refused at their turn.
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}\nb = {}");
    for key in 0..10_000 {
        world.enter("a", key);
    }
    for key in 0..10_000 {
        world.enqueue("b", key);
    }
    world.turn();
    let mut turns = 1;
    while world.scheduler.next_wake() == Some(world.now) {
        world.turn();
        turns += 1;
    }
    assert_eq!(turns, 10_000_usize.div_ceil(64) + usize::from(10_000 % 64 == 0));
    world.run_until(30_000);
    assert!((0..10_000).all(|key| world.starts("b", key) == [10_000]));
}

#[test]
fn no_turn_refuses_more_than_its_share() {
    let mut world = World::new("overall = '1/1h'");
    world.enter("default", 0);
    let entry = Entry { deadline: Some(ms(5)), ..Entry::default() };
    for key in 0..KEYS {
        world.enqueue_as("default", key, Manner::Zombie, entry);
    }
    assert_eq!(turns(&mut world), [0]);
    world.now = ms(5);
    assert_eq!(turns(&mut world), full_turns_and_a_rest());
}

/// Lets all start, one turn for each wake-up. Returns how many turns there were, and at how many instants something
/// started.
fn run(world: &mut World, millis: u64) -> (usize, usize) {
    let mut instants: Vec<u64> = Vec::new();
    let (mut turns, mut started) = (0, 0);
    world.turn();
    if !world.order.is_empty() {
        (turns, started) = (1, world.order.len());
        instants.push(world.now.as_nanos());
    }
    while let Some(wake) = world.scheduler.next_wake().filter(|&wake| wake <= ms(millis)) {
        world.now = world.now.max(wake);
        world.turn();
        turns += 1;
        if world.order.len() > started {
            started = world.order.len();
            instants.push(world.now.as_nanos());
        }
    }
    instants.dedup();
    (turns, instants.len())
}

#[test]
fn every_wake_up_of_a_queue_has_a_start_to_make() {
    for (rules, count) in [("per_key = '1/1s'", 40), ("per_key = '5/1s'", 200), ("per_key = ['1/1s', '30/1m']", 90)] {
        let mut world = World::new(rules);
        world.enqueue_many("default", 1, count);
        // Well before the key is looked at for the last time, which is an expiry.
        let (turns, instants) = run(&mut world, 240_999);
        assert_eq!(world.order.len(), count, "{rules}");
        let sweeps = 1;
        assert!(turns <= instants + sweeps, "{rules}: {turns} turns for {instants} instants with starts");
    }
}

#[test]
fn every_wake_up_of_many_queues_has_starts_to_make() {
    let mut world = World::new("per_key = '1/1s'\noverall = '10/1s'");
    for key in 0..50 {
        world.enqueue_many("default", key, 3);
    }
    let (turns, instants) = run(&mut world, 14_999);
    assert_eq!((world.order.len(), instants), (150, 15));
    // One for each second's starts, and one that sweeps the keys once most are done.
    assert!(turns <= instants + 5, "{turns} turns");
}

#[test]
fn what_was_withdrawn_wakes_nobody() {
    let mut world = World::new("per_key = '1/1s'");
    world.enter("default", 1);
    let entry = Entry { deadline: Some(ms(500)), not_before: Some(ms(300)), ..Entry::default() };
    let asked: Vec<usize> = (0..100).map(|_| world.enqueue_as("default", 1, Manner::Zombie, entry)).collect();
    assert_eq!(world.scheduler.next_wake(), Some(ms(300)));
    for number in asked {
        world.withdraw(number);
    }
    // The key's sweep.
    assert_eq!(world.scheduler.next_wake(), Some(ms(1_000)));
}

#[test]
fn what_comes_while_all_is_full_asks_for_no_turn_of_its_own() {
    let mut world = World::new("overall = '1/10s'");
    world.enter("default", 0);
    for key in 1..100 {
        world.enqueue("default", key);
        world.now = world.now.saturating_add(Nanos::from_millis(1));
        world.turn();
        // Sweeps of idle keys aside, nothing is to be done before there is room.
        let wake = world.scheduler.next_wake().expect("somebody waits");
        assert!(wake == ms(10_000) || wake.as_nanos().is_multiple_of(1_000_000_000), "{wake:?}");
    }
}
