//! Rules of one key take turns at what it may, and one that was passed by is owed it.

mod world;

use request_balancer::engine::Entry;
use world::{Manner, World, secs};

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
