//! The smallest history for each hole that a scheduler of this kind can have, and the right start times.

mod world;

use request_balancer::engine::{Charge, Claim, Entry, Health, Nanos, NextStart, Target, Why};
use world::{Manner, World, ms};

const fn secs<const N: usize>(seconds: [u64; N]) -> [u64; N] {
    let mut millis = seconds;
    let mut i = 0;
    while i < N {
        millis[i] *= 1_000;
        i += 1;
    }
    millis
}

// Two queues of one key under a shared `per_key`.

#[test]
fn two_rules_of_one_key_take_turns() {
    // Re-parking in order of the starts would let `a` go before `b` twenty times.
    let mut world = World::new("per_key = '1/1s'\n[rules]\na = {}\nb = {}");
    world.enqueue_many("a", 1, 20);
    world.enqueue_many("b", 1, 3);
    world.turn();
    world.run_until(60_000);
    assert_eq!(world.starts("b", 1), secs([1, 3, 5]));
    assert_eq!(world.starts("a", 1).len(), 20);
    assert_eq!(world.starts("a", 1)[19], 22_000);
}

#[test]
fn a_rule_that_arrives_later_waits_one_turn_of_its_sibling() {
    let mut world = World::new("per_key = '1/1s'\n[rules]\na = {}\nb = {}");
    for _ in 0..20 {
        world.enter("a", 1);
    }
    for _ in 0..3 {
        world.enter("b", 1);
    }
    world.run_until(60_000);
    assert_eq!(world.starts("b", 1), secs([2, 4, 6]));
}

const TWO_LANES: &str = "
per_key = '1/1s'
[rules]
urgent = {}
bulk = { priority = 2 }
[lanes.2]
share = '1/6'
pace = false";

#[test]
fn a_less_urgent_rule_of_a_busy_key_is_owed_its_turn() {
    // Two lanes and a share of 1/6: four urgent starts may go past the bulk one.
    let mut world = World::new(TWO_LANES);
    world.enqueue_many("urgent", 1, 40);
    world.enqueue_many("bulk", 1, 3);
    world.turn();
    world.run_until(120_000);
    assert_eq!(world.starts("bulk", 1), secs([4, 9, 14]));
}

#[test]
fn a_busy_key_is_served_its_bulk_among_sixty_others_too() {
    let rules = format!("overall = '10/1s'\n{TWO_LANES}");
    let mut world = World::new(&rules);
    world.enqueue_many("urgent", 1, 200);
    let bulk = world.enqueue("bulk", 1);
    for key in 2..62 {
        world.enqueue_many("bulk", key, 40);
    }
    world.turn();
    world.run_until(300_000);
    // Its lane's ring has 61 queues and nine starts of ten: it is refused at its turn after seven seconds at the
    // latest, with passed >= 4, and gets the key's next room but one.
    assert!(world.starts_of(bulk)[0] <= 13_000, "{:?}", world.starts_of(bulk));
}

#[test]
fn all_rules_of_a_key_take_turns_and_no_two_of_them_owe_it_to_each_other_for_ever() {
    let mut world = World::new("per_key = '1/1s'\n[rules]\na = {}\nb = {}\nc = {}\nd = {}");
    world.enter("a", 1);
    world.enqueue_many("a", 1, 9);
    world.enqueue_many("d", 1, 10);
    let once = [world.enqueue("b", 1), world.enqueue("c", 1)];
    world.turn();
    world.run_until(60_000);
    // `a` was served before the others came, and again before one of them had let it pass.
    assert_eq!(once.map(|number| world.starts_of(number)[0]), [3_000, 4_000]);
}

#[test]
fn urgent_rules_of_a_key_do_not_owe_it_to_each_other_past_a_less_urgent_one() {
    // Two lanes and a share of 1/6: four urgent starts may go past the bulk one, whichever rules they are of.
    let mut world = World::new(&TWO_LANES.replace("urgent = {}", "urgent = {}\nalso = {}\nthird = {}"));
    for rule in ["urgent", "also", "third"] {
        world.enqueue_many(rule, 1, 20);
    }
    world.enqueue_many("bulk", 1, 3);
    world.turn();
    world.run_until(120_000);
    let bulk = world.starts("bulk", 1);
    assert!(bulk[0] <= 6_000 && bulk[1] <= bulk[0] + 7_000 && bulk[2] <= bulk[1] + 7_000, "{bulk:?}");
}

#[test]
fn what_is_owed_is_given_up_when_its_owner_leaves() {
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}\nb = {}");
    world.enqueue_many("a", 1, 3);
    let b = world.enqueue("b", 1);
    world.turn();
    world.run_until(5_000);
    world.withdraw(b);
    world.run_until(60_000);
    assert_eq!(world.starts("a", 1), secs([0, 10, 20]));
}

#[test]
fn what_is_owed_to_a_paused_rule_is_used_by_its_sibling() {
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}\nb = {}");
    world.enqueue_many("a", 1, 3);
    let b = world.enqueue("b", 1);
    world.turn();
    world.run_until(5_000);
    let rule = world.rule("b");
    world.scheduler.pause(world.now, rule);
    world.run_until(35_000);
    assert_eq!(world.starts("a", 1), secs([0, 10, 20]));
    world.scheduler.resume(world.now, rule);
    world.turn();
    world.run_until(60_000);
    assert_eq!(world.starts_of(b), secs([35]));
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
fn what_is_owed_holds_nobody_up_who_does_not_draw_on_it() {
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}\nb = {}\nfree = { under = ['overall'] }");
    world.enqueue_many("a", 1, 2);
    let b = world.enqueue("b", 1);
    world.turn();
    world.run_until(5_000);
    // The key's next room is owed to `b`, which is none of the free one's business.
    let free = world.enter("free", 1);
    assert_eq!(world.starts_of(free), [5_000]);
    world.run_until(60_000);
    assert_eq!(world.starts_of(b), secs([10]));
    assert_eq!(world.starts("a", 1), secs([0, 20]));
}

#[test]
fn starts_that_use_none_of_a_queues_room_do_not_pass_it() {
    let mut world = World::new("per_key = '1/10s'\n[rules]\na = {}\nb = {}\nfree = { under = ['overall'] }");
    world.enqueue_many("free", 1, 5);
    world.enqueue_many("a", 1, 2);
    let b = world.enqueue("b", 1);
    world.turn();
    assert_eq!(world.starts("free", 1), [0; 5]);
    world.run_until(60_000);
    assert_eq!(world.starts_of(b), secs([10]));
    assert_eq!(world.starts("a", 1), secs([0, 20]));
}

#[test]
fn two_pairs_of_rules_owe_each_other_nothing() {
    let mut world = World::new(
        "[limits.reads]
        per_key = '1/10s'
        [limits.writes]
        per_key = '1/15s'
        [rules]
        a = { under = ['reads'] }
        b = { under = ['reads'] }
        c = { under = ['writes'] }
        d = { under = ['writes'] }",
    );
    for rule in ["a", "b", "c", "d"] {
        world.enqueue_many(rule, 1, 3);
    }
    world.turn();
    world.run_until(120_000);
    assert_eq!([world.starts("a", 1), world.starts("b", 1)], [secs([0, 20, 40]), secs([10, 30, 50])]);
    assert_eq!([world.starts("c", 1), world.starts("d", 1)], [secs([0, 30, 60]), secs([15, 45, 75])]);
}

#[test]
fn what_a_queue_used_up_itself_is_owed_to_it_by_nobody() {
    // `a` waits for its named budget, of which `b` takes nothing; the limit that both draw on has room.
    let mut world = World::new(
        "per_key = '50/1s'
        [limits.narrow]
        per_key = '1/10s'
        [rules]
        a = { under = ['per_key', 'narrow'] }
        b = {}",
    );
    world.enqueue_many("a", 1, 2);
    world.enqueue_many("b", 1, 3);
    world.turn();
    assert_eq!(world.starts("b", 1), [0; 3]);
    world.run_until(5_000);
    let late = world.enter("b", 1);
    assert_eq!(world.starts_of(late), [5_000]);
    world.run_until(60_000);
    assert_eq!(world.starts("a", 1), secs([0, 10]));
}

// Costs.

#[test]
fn a_costly_request_gets_its_turn_below_a_saturated_lane() {
    let mut world = World::new(
        "overall = '10/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    for step in 0..1_000 {
        world.run_until(step * 20);
        world.enter("urgent", step + 10);
        if step == 10 || step == 110 {
            world.enter_as("bulk", 1, Manner::Prompt, Entry { cost: 10, ..Entry::default() });
        }
    }
    world.run_until(120_000);
    let bulk = world.starts("bulk", 1);
    assert_eq!(bulk.len(), 2);
    // One period until ten units are free together, after at most K starts of the lane above.
    assert!(bulk[0] <= 200 + 2_000 && bulk[1] <= 2_200 + 2_000, "{bulk:?}");
    let mut starts: Vec<u64> = world.order.iter().map(|&number| world.asked[number].starts[0]).collect();
    starts.sort_unstable();
    assert_eq!(starts.len(), 1_002);
}

#[test]
fn a_costly_request_of_a_key_waits_its_turn_among_siblings() {
    let mut world = World::new("per_key = '5/1s'\n[rules]\nlarge = {}\nsmall = {}");
    world.enqueue_many("small", 1, 100);
    let large = world.enqueue_as("large", 1, Manner::Prompt, Entry { cost: 5, ..Entry::default() });
    world.turn();
    world.run_until(60_000);
    assert_eq!(world.starts_of(large), [1_000]);
}

#[test]
fn a_costly_request_that_waits_for_its_rules_own_limit_stops_no_other_rule() {
    let mut world = World::new("overall = '100/1s'\n[rules]\ntight = { overall = '4/1s' }\nfree = {}");
    world.enter("tight", 1);
    let costly = world.enter_as("tight", 1, Manner::Prompt, Entry { cost: 4, ..Entry::default() });
    let behind = world.enter("tight", 2);
    let other = world.enter("free", 3);
    assert_eq!(world.starts_of(other), [0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
    assert_eq!(world.starts_of(behind), [2_000]);
}

#[test]
fn a_costly_request_stops_only_those_of_its_lane_that_need_the_same_room() {
    let mut world =
        World::new("overall = '4/1s'\nper_key = '100/1s'\n[rules]\na = {}\nb = {}\nfree = { under = ['per_key'] }");
    world.enter("a", 1);
    let costly = world.enter_as("a", 1, Manner::Prompt, Entry { cost: 4, ..Entry::default() });
    let behind = world.enter("b", 2);
    let free = world.enter("free", 3);
    assert_eq!(world.starts_of(free), [0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
    assert_eq!(world.starts_of(behind), [2_000]);
}

#[test]
fn a_costly_request_does_not_stop_who_takes_nothing_of_what_it_waits_for() {
    let mut world = World::new("units = ['tokens']\noverall = '100/1s tokens'\n[rules]\nask = {}\nlook = {}");
    let tokens = |tokens: &'static [u32]| Entry { units: tokens, ..Entry::default() };
    world.enter_as("ask", 1, Manner::Prompt, tokens(&[60]));
    let costly = world.enter_as("ask", 2, Manner::Prompt, tokens(&[60]));
    let free = world.enter("look", 3);
    assert_eq!(world.starts_of(free), [0]);
    let cheap = world.enter_as("look", 4, Manner::Prompt, tokens(&[1]));
    world.run_until(1_000);
    assert_eq!((world.starts_of(costly), world.starts_of(cheap)), (&[1_000][..], &[1_000][..]));
}

#[test]
fn a_costly_request_that_only_the_room_left_to_others_is_too_small_for_has_an_instant() {
    // The lower lane leaves one of fifty free: 48 and 2 fit the window, but not what it leaves.
    let mut world =
        World::new("overall = '50/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\npace = '1ms'");
    for key in 0..48 {
        world.enter("urgent", key);
    }
    let costly = world.enter_as("bulk", 99, Manner::Prompt, Entry { cost: 2, ..Entry::default() });
    assert_eq!(world.starts_of(costly), [] as [u64; 0]);
    world.run_until(5_000);
    assert_eq!(world.starts_of(costly), [1_000]);
}

#[test]
fn a_request_that_comes_back_before_a_costly_one_does_not_wait_for_what_that_one_waits_for() {
    // The costly one waits for the end of an attempt; the one before it fits as soon as its backoff is over.
    let mut world = World::new("per_key = { count = 5, per = '100ms', count_from = 'response' }");
    let long = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    world.back_off(first, 30);
    let costly = world.enter_as("default", 1, Manner::Prompt, Entry { cost: 5, ..Entry::default() });
    world.run_until(40);
    assert_eq!(world.starts_of(first), [0, 30]);
    world.finish(first);
    world.run_until(500);
    world.finish(long);
    world.run_until(1_000);
    assert_eq!(world.starts_of(costly), [600]);
}

// A rule's own overall limit.

#[test]
fn a_limit_of_a_rule_that_does_not_bind_changes_nobodys_share() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nmany = { overall = '1000/1s' }\none = {}");
    for key in 0..50 {
        world.enqueue_many("many", key, 100);
    }
    world.enqueue_many("one", 99, 100);
    world.turn();
    world.run_until(4_999);
    for key in 0..50 {
        assert!((9..=10).contains(&world.starts("many", key).len()));
    }
    assert!((9..=10).contains(&world.starts("one", 99).len()));
}

#[test]
fn a_closed_rule_is_passed_over_and_uses_its_limit_in_full() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nmany = { overall = '10/1s' }\none = {}");
    for key in 0..50 {
        world.enqueue_many("many", key, 100);
    }
    world.enqueue_many("one", 99, 2_000);
    world.turn();
    world.run_until(9_999);
    let many: Vec<usize> = (0..50).map(|key| world.starts("many", key).len()).collect();
    assert_eq!(many, [2; 50]);
    assert_eq!(world.starts("one", 99).len(), 900);
}

// Pace.

#[test]
fn a_paced_broadcast_under_two_overall_windows_leaves_room_at_every_instant() {
    let mut world = World::new("overall = ['30/1s', '1000/60s']\n[rules]\nurgent = {}\nbroadcast = { priority = 2 }");
    for key in 0..6_000 {
        world.enqueue("broadcast", 1_000 + key);
    }
    world.turn();
    let mut urgent = Vec::new();
    for step in 0..800 {
        world.run_until(step * 500 + 7);
        urgent.push((step * 500 + 7, world.enter("urgent", 10_000 + step)));
    }
    world.run_until(800_000);
    for (asked, number) in urgent {
        assert_eq!(world.starts_of(number), [asked]);
    }
    let last = (0..6_000).map(|key| world.starts("broadcast", 1_000 + key)[0]).max();
    // 980 of 1,000 in each 60 s, of which the urgent calls take 120.
    assert!(last.is_some_and(|last| (394_000..=425_000).contains(&last)), "{last:?}");
}

#[test]
fn a_late_timer_is_caught_up_by_the_pace() {
    let mut world = World::new("overall = '100/1s'\n[rules]\nurgent = {}\nbroadcast = { priority = 2 }");
    for key in 0..1_000 {
        world.enqueue("broadcast", key);
    }
    world.turn();
    // The owner's timer is always 3 ms late.
    while let Some(wake) = world.scheduler.next_wake().filter(|&wake| wake < ms(20_000)) {
        world.now = world.now.max(wake.saturating_add(Nanos::from_millis(3)));
        world.turn();
    }
    let last = (0..1_000).map(|key| world.starts("broadcast", key)[0]).max().expect("a start");
    // 10 ms apart; two of a hundred are left to the urgent lane.
    assert!(last <= 10_300, "{last}");
}

#[test]
fn a_heavier_rule_of_a_key_does_not_take_every_paced_start() {
    let mut world = World::new(
        "per_key = '10/1s'\n[rules]\nurgent = {}\nheavy = { priority = 2, weight = 3 }\nlight = { priority = 2 }",
    );
    world.enqueue_many("light", 1, 3);
    world.enqueue_many("heavy", 1, 20);
    world.turn();
    world.run_until(10_000);
    assert_eq!(world.starts("light", 1), [0, 200, 400]);
    assert_eq!(world.starts("heavy", 1)[..5], [100, 300, 500, 600, 700]);
}

#[test]
fn weights_hold_in_a_lower_lane_where_the_keys_pace_is_not_what_they_wait_for() {
    let rules = "overall = '30/1s'\nper_key = '100/1s'\n[rules]\nurgent = {}\nlight = { priority = 2 }
        heavy = { priority = 2, weight = 8 }";
    for other in [1, 2] {
        let mut world = World::new(rules);
        world.enqueue_many("light", 1, 300);
        world.enqueue_many("heavy", other, 300);
        world.turn();
        world.run_until(9_999);
        let starts = (world.starts("light", 1).len(), world.starts("heavy", other).len());
        assert_eq!(starts, (34, 266), "light under key 1, heavy under key {other}");
    }
}

// Starting at once.

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

// Leases.

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

// Overdue lanes whose first request does not fit.

#[test]
fn an_overdue_lane_with_a_held_key_lets_its_next_queue_go() {
    let mut world = World::new(
        "overall = '10/1s'\nper_key = '100/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    world.enqueue_many("urgent", 1, 200);
    let held = world.enqueue("bulk", 2);
    let free = world.enqueue_many("bulk", 3, 20);
    let key = world.key(2);
    world.scheduler.hold(world.now, Target::Key(key), ms(8_000));
    world.turn();
    world.run_until(1_999);
    // K = 2: every third start is the bulk lane's, as often as it has one that may go.
    let bulk = free.iter().filter(|&&number| !world.starts_of(number).is_empty()).count();
    assert_eq!((bulk, world.starts_of(held).len()), (6, 0));
    world.run_until(60_000);
    assert_eq!(world.starts_of(held), [8_000]);
}

#[test]
fn a_lane_whose_rule_is_closed_is_neither_served_nor_counted() {
    let mut world = World::new(
        "overall = '10/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }\n[lanes.2]\nshare = '1/4'\npace = false",
    );
    world.enqueue_many("urgent", 1, 100);
    world.enqueue_many("bulk", 2, 5);
    let rule = world.rule("bulk");
    world.scheduler.hold(world.now, Target::Rule(rule), ms(3_000));
    world.turn();
    world.run_until(2_999);
    assert_eq!(world.scheduler.snapshot(world.now).lanes[1].bypassed, 0);
    assert_eq!(world.starts("urgent", 1).len(), 30);
    world.run_until(60_000);
    // Two urgent ones go past it from the moment it is open.
    let rules: Vec<_> = world.order[30..36].iter().map(|&number| world.asked[number].rule).collect();
    let (urgent, bulk) = (world.rule("urgent"), world.rule("bulk"));
    assert_eq!(rules, [urgent, urgent, bulk, urgent, urgent, bulk]);
    assert_eq!(world.starts("bulk", 2)[0], 3_000);
}

// Holds.

#[test]
fn a_held_key_stops_in_all_lanes_and_nobody_else() {
    let mut world = World::new("per_key = '1/1s'\n[rules]\na = {}\nb = { priority = 2 }");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(5_000));
    let a = world.enter("a", 1);
    let b = world.enter("b", 1);
    let other = world.enter("b", 2);
    assert_eq!(world.starts_of(other), [0]);
    world.run_until(10_000);
    assert_eq!(world.starts_of(a), [5_000]);
    assert_eq!(world.starts_of(b), [6_000]);
}

#[test]
fn a_release_lets_the_key_go_at_once() {
    let mut world = World::new("per_key = '1/1s'");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(50_000));
    let number = world.enter("default", 1);
    world.run_until(2_500);
    assert!(world.scheduler.release(world.now, Target::Key(key)));
    world.turn();
    assert_eq!(world.starts_of(number), [2_500]);
}

#[test]
fn holds_combine_by_maximum_and_none_is_longer_than_an_hour() {
    let mut world = World::new("per_key = '1/1s'");
    let key = world.key(1);
    world.scheduler.hold(world.now, Target::Key(key), ms(5_000));
    world.scheduler.hold(world.now, Target::Key(key), ms(2_000));
    assert_eq!(world.scheduler.key_snapshot(world.now, key).held_until, Some(ms(5_000)));
    world.scheduler.hold(world.now, Target::Key(key), ms(10_000_000_000));
    assert_eq!(world.scheduler.key_snapshot(world.now, key).held_until, Some(ms(3_600_000)));
}

// Retry.

#[test]
fn refused_requests_go_back_in_the_order_of_their_numbers() {
    let mut world = World::new("per_key = '2/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let second = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let third = world.enter("default", 1);
    let key = world.key(1);
    world.run_until(100);
    world.retry(first, Target::Key(key), 3_000);
    world.run_until(200);
    world.retry(second, Target::Key(key), 1_000);
    world.run_until(10_000);
    assert_eq!(world.order, [first, second, first, second, third]);
    assert_eq!(world.starts_of(first), [0, 3_100]);
    assert_eq!(world.starts_of(third), [4_100]);
}

#[test]
fn a_backoff_steps_out_of_line_and_comes_back_to_its_place() {
    let mut world = World::new("per_key = '1/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let others = world.enqueue_many("default", 1, 4);
    world.run_until(500);
    world.back_off(first, 2_000);
    world.run_until(10_000);
    assert_eq!(world.order, [first, others[0], others[1], first, others[2], others[3]]);
    assert_eq!(world.starts_of(first), [0, 3_000]);
}

#[test]
fn an_ordered_queue_waits_for_the_backoff_of_its_first() {
    let mut world = World::new("[rules]\na = { per_key = '10/1s', ordered = true }");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let second = world.enter("a", 1);
    world.run_until(500);
    world.back_off(first, 2_000);
    world.run_until(2_500);
    assert_eq!(world.starts_of(first), [0, 2_500]);
    assert_eq!(world.starts_of(second), [] as [u64; 0]);
    world.run_until(2_600);
    world.finish(first);
    assert_eq!(world.starts_of(second), [2_600]);
}

#[test]
fn an_ordered_queue_does_not_wait_for_one_that_left() {
    let mut world = World::new("[rules]\na = { per_key = '10/1s', ordered = true }");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let second = world.enter("a", 1);
    world.run_until(500);
    world.back_off(first, 20_000);
    world.run_until(700);
    world.withdraw(first);
    assert_eq!(world.starts_of(second), [700]);
}

// Concurrency.

#[test]
fn blocked_queues_are_decided_anew_when_an_attempt_ends() {
    let mut world = World::new("key_concurrency = 1\n[rules]\na = {}\nb = {}");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let of_b = world.enter("b", 1);
    let of_a = world.enter("a", 1);
    assert_eq!(world.scheduler.next_wake(), None);
    world.run_until(777);
    world.finish(first);
    assert_eq!(world.starts_of(of_b), [777]);
    assert_eq!(world.starts_of(of_a), [777]);
    assert_eq!(world.order, [first, of_b, of_a]);
}

#[test]
fn a_rule_at_its_concurrency_is_passed_over() {
    let mut world = World::new("[rules]\na = { concurrency = 1 }\nb = {}");
    let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
    let waits = world.enter("a", 2);
    let free = world.enter("b", 3);
    assert_eq!(world.starts_of(free), [0]);
    world.run_until(50);
    world.withdraw(first);
    assert_eq!(world.starts_of(waits), [50]);
}

#[test]
fn overall_concurrency_never_runs_over() {
    let mut world = World::new("concurrency = 3");
    let numbers: Vec<_> = (0..9).map(|key| world.enter_as("default", key, Manner::Runs, Entry::default())).collect();
    assert_eq!(world.order.len(), 3);
    for number in numbers {
        assert_eq!(world.scheduler.snapshot(world.now).in_flight, (9 - number).min(3));
        world.finish(number);
    }
    assert_eq!(world.order.len(), 9);
}

// Refunds.

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

// Deadlines.

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

#[test]
fn whoever_stood_behind_a_refused_request_goes_on_in_its_place() {
    // Nothing else would wake the machine: the first one's hold was all that the queue was parked for.
    let mut world = World::new("overall = '2/10ms'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    let key = world.key(1);
    world.retry_until(first, Target::Key(key), 50, Some(5));
    let costly = world.enter_as("default", 1, Manner::Prompt, Entry { cost: 2, ..Entry::default() });
    world.run_until(5);
    assert_eq!((world.claim(first), world.scheduler.snapshot(world.now).waiting), (Claim::Unknown, 1));
    world.run_until(1_000);
    assert_eq!(world.starts_of(costly), [50]);
}

// The next start.

#[test]
fn who_stepped_out_is_not_ahead_of_a_newcomer() {
    let mut world = World::new("per_key = '2/1s'");
    let first = world.enter_as("default", 1, Manner::Runs, Entry::default());
    world.back_off(first, 60_000);
    let (rule, key) = (world.rule("default"), world.key(1));
    assert_eq!(world.scheduler.next_start(world.now, rule, Some(key)), NextStart::Now);
    let newcomer = world.enter("default", 1);
    assert_eq!(world.starts_of(newcomer), [0]);
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
fn what_is_owed_to_a_queue_that_waits_for_something_else_for_long_stops_no_sibling() {
    let mut world = World::new(
        "[rules]
        post = { under = ['short', 'daily'] }
        edit = { under = ['short', 'daily'] }
        look = { under = ['short'] }
        [limits.short]
        per_key = '1/20ms'
        [limits.daily]
        per_key = '2/100s'",
    );
    for rule in ["edit", "post", "edit", "post", "edit", "look", "look", "look"] {
        world.enter(rule, 1);
    }
    world.run_until(1_000);
    let daily = [world.starts("post", 1), world.starts("edit", 1)].concat();
    assert_eq!((daily.len(), world.starts("look", 1).len()), (2, 3), "{daily:?} {:?}", world.starts("look", 1));
    assert!(world.starts("look", 1).iter().all(|&at| at <= 80), "{:?}", world.starts("look", 1));
    assert!(world.turns < 50, "{} turns", world.turns);
}

#[test]
fn what_is_owed_to_a_queue_behind_a_costly_request_that_waits_for_long_stops_no_sibling() {
    let mut world = World::new(
        "[rules]
        chat = { under = ['short'] }
        bulk = { under = ['short', 'budget'] }
        [limits.short]
        per_key = '3/20ms'
        [limits.budget]
        overall = '3/100s'",
    );
    let cost = |cost| Entry { cost, ..Entry::default() };
    world.enqueue_many("chat", 1, 30);
    world.enqueue("bulk", 1);
    world.enqueue("bulk", 2);
    world.turn();
    // One of three is taken: who costs three waits for a hundred seconds, and whoever stands behind it.
    world.enqueue_as("bulk", 3, Manner::Prompt, cost(3));
    world.enqueue("bulk", 1);
    world.run_until(1_000);
    assert_eq!(world.starts("chat", 1).len(), 30, "{:?}", world.starts("chat", 1));
}

#[test]
fn a_queue_whose_oldest_is_displaced_again_and_again_keeps_its_turn() {
    let mut world = World::new(
        "overall = '1/100ms'
        [rules]
        others = {}
        status = { queue = 1, overflow = 'drop-oldest' }",
    );
    for key in 1..=5 {
        world.enqueue_many("others", key, 20);
    }
    world.turn();
    let status = Entry::default();
    for step in 0..200 {
        world.run_until(5 + step * 10);
        world.enqueue_as("status", 9, Manner::Prompt, status);
    }
    // Five are before it, and then it is one of six.
    assert_eq!(world.starts("status", 9), [600, 1_200, 1_800]);
}

// Eviction.

#[test]
fn a_key_without_work_is_gone_within_two_seconds_of_its_last_window() {
    let mut world = World::new("per_key = '1/1s'");
    for key in 0..100_000 {
        world.enter("default", key);
    }
    assert_eq!(world.key_count(), 100_000);
    world.run_until(999);
    assert_eq!(world.key_count(), 100_000);
    world.run_until(2_000);
    assert_eq!(world.key_count(), 0);
    assert_eq!(world.scheduler.take_evicted().len(), 100_000);
    assert_eq!(world.scheduler.next_wake(), None);
}

#[test]
fn requests_evict_in_passing_where_no_timer_runs() {
    let mut world = World::new("per_key = '1/1s'");
    for key in 0..1_000 {
        world.enter("default", key);
    }
    for step in 1..=1_000 {
        world.now = ms(2_000 + step * 10);
        world.enter("default", 7_777);
    }
    assert!(world.key_count() <= 2, "{}", world.key_count());
}

#[test]
fn what_is_owed_to_queues_whose_rule_is_full_for_long_stops_none_of_their_siblings() {
    let mut world = World::new("per_key = '1/20ms'\n[rules]\nchat = {}\n[rules.daily]\noverall = '1/100s'");
    for key in 0..4 {
        world.enqueue_many("chat", key, 10);
        world.enqueue("daily", key);
    }
    world.turn();
    world.run_until(1_000);
    let daily: Vec<u64> = (0..4).flat_map(|key| world.starts("daily", key)).collect();
    assert_eq!(daily.len(), 1, "{daily:?}");
    for key in 0..4 {
        let starts = world.starts("chat", key);
        let last = 180 + if world.starts("daily", key).is_empty() { 0 } else { 20 };
        assert_eq!((starts.len(), starts.last()), (10, Some(&last)), "key {key}: {starts:?}");
    }
}

#[test]
fn an_ordered_queue_waits_for_a_request_that_waits_for_itself_alone() {
    for (is_ordered, starts_of_second) in [(true, 2_000), (false, 0)] {
        let mut world = World::new(&format!("[rules]\na = {{ ordered = {is_ordered}, key_concurrency = 1 }}"));
        let first = world.enter_as("a", 1, Manner::Runs, Entry::default());
        let second = world.enqueue("a", 1);
        world.retry(first, Target::Request, 2_000);
        world.asked[first].manner = Manner::Prompt;
        world.run_until(1_999);
        assert_eq!(world.starts_of(first), [0]);
        world.run_until(2_000);
        assert_eq!((world.starts_of(first)[1], world.starts_of(second)[0]), (2_000, starts_of_second));
    }
}

#[test]
fn costs_beyond_all_numbers_are_counted_and_nothing_more() {
    for limit in [
        "overall = { count = 10, per = '60s', count_from = 'response' }",
        "overall = '10/60s'",
        "per_key = '10/60s burst 10'",
        "[rules]\ndefault = { concurrency = 10 }",
    ] {
        let mut world = World::new(limit);
        world.judged = false;
        let mut runs = Vec::new();
        for millis in [0, 0, 1] {
            world.run_until(millis);
            runs.push(world.enter_as("default", 1, Manner::Runs, Entry::default()));
        }
        for &number in &runs {
            world.scheduler.settle(world.now, world.asked[number].id, Charge::Requests, u32::MAX);
        }
        world.scheduler.dispatch(world.now);
        runs.into_iter().for_each(|number| world.finish(number));
        let other = world.enter_as("default", 2, Manner::Runs, Entry::default());
        if !world.starts_of(other).is_empty() {
            world.scheduler.settle(world.now, world.asked[other].id, Charge::Requests, u32::MAX);
        }
        let (from, into) = (world.key(2), world.key(1));
        assert!(world.scheduler.alias(world.now, from, into));
        world.run_until(70_000);
        assert_eq!(world.starts_of(other).len(), 1, "{limit}");
    }
}

#[test]
fn those_that_come_back_in_any_order_stand_in_their_places() {
    let mut world = World::new("[rules]\na = '1/1s'");
    world.enter("a", 1);
    // Every other one comes back later: the even ones in order, the odd ones the last one first.
    let numbers: Vec<usize> = (0..200)
        .map(|number| {
            let not_before = match number % 4 {
                0 => Some(ms(100)),
                1 => Some(ms(900 - number)),
                _ => None,
            };
            world.enqueue_as("a", 1, Manner::Prompt, Entry { not_before, ..Entry::default() })
        })
        .collect();
    world.run_until(300_000);
    assert_eq!(world.order[1..], numbers);
}

#[test]
fn a_request_waits_for_as_long_as_it_was_told_though_no_hold_is_that_long() {
    const HOUR: u64 = 3_600_000;
    for is_ordered in [false, true] {
        let mut world = World::new(&format!("[rules]\na = {{ ordered = {is_ordered} }}\nb = {{}}"));
        let told = world.enter_as("a", 1, Manner::Runs, Entry::default());
        let key = world.key(1);
        world.retry(told, Target::Key(key), 2 * HOUR);
        world.asked[told].manner = Manner::Prompt;
        let (behind, other) = (world.enqueue("a", 1), world.enqueue("b", 1));
        world.turn();
        world.run_until(3 * HOUR);
        assert_eq!(world.starts_of(told), [0, 2 * HOUR]);
        assert_eq!(world.starts_of(behind), [if is_ordered { 2 * HOUR } else { HOUR }]);
        assert_eq!(world.starts_of(other), [HOUR]);
    }
}

#[test]
fn what_is_paused_or_closed_is_not_said_to_be_well() {
    let mut world = World::new("[rules]\na = '1/1s'\nb = {}");
    let (a, b) = (world.rule("a"), world.rule("b"));
    assert_eq!(world.scheduler.health(world.now), Health::Ok);
    world.scheduler.pause(world.now, a);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    assert_eq!(world.scheduler.next_start(world.now, a, None), NextStart::Never);
    world.scheduler.resume(world.now, a);
    world.scheduler.pause_all(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    world.scheduler.resume_all(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Ok);
    world.scheduler.close(world.now);
    assert_eq!(world.scheduler.health(world.now), Health::Limited);
    assert_eq!(world.scheduler.next_start(world.now, b, None), NextStart::Never);
}

#[test]
fn the_next_start_of_a_costly_request_is_when_all_it_costs_fits() {
    let mut world = World::new("overall = '20/60s'");
    world.enter("default", 1);
    let (rule, costly) = (world.rule("default"), Entry { cost: 20, ..Entry::default() });
    assert_eq!(world.scheduler.next_start(world.now, rule, None), NextStart::Now);
    assert_eq!(world.scheduler.next_start_of(world.now, rule, None, &costly), NextStart::At(ms(60_000)));
}
