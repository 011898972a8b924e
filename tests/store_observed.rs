//! What servers say of limits that a store keeps, in the engine alone: what the store is told of it, and when.

use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::{
    Answers, Batch, Charge, Claim, Enter, Entry, Instant, KeyId, Nanos, Reach, RequestId, RuleId, Said, Scheduler,
    Serial, ServerReset, ServerWindow, Side, Site, Stand, Target, Wait,
};

const RULE: RuleId = RuleId(0);
/// When the store's count began.
const EPOCH: u64 = 7;
const OVERALL: &str = "overall = { limit = '10/60s', shared = true }";
const PER_KEY: &str = "per_key = { limit = '10/60s', shared = true }";

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// So many left of a window for so many milliseconds.
const fn left_of(name: &str, left: u32, millis: u64) -> ServerWindow<'_> {
    ServerWindow {
        name,
        charge: Charge::Requests,
        side: None,
        limit: None,
        left: Some(left),
        per: None,
        reset: Some(ServerReset { after: Nanos::from_millis(millis), grain: Nanos::from_millis(1) }),
    }
}

/// So many left for half a minute.
const fn left(left: u32) -> ServerWindow<'static> {
    left_of("ratelimit", left, 30_000)
}

const fn serial(number: u64) -> Serial {
    Serial { epoch: EPOCH, number }
}

/// So much was given, so much more would be.
fn stand(given: u64, room: u32) -> Stand {
    Stand { last: serial(given), room, windows: Vec::new() }
}

struct World {
    machine: Scheduler<()>,
    key: KeyId,
}

impl World {
    fn new(rules: &str) -> Self {
        let mut machine = Scheduler::new(rules.parse::<Rules>().unwrap().plan());
        machine.set_reach(Instant::ZERO, Reach::Asked);
        let key = machine.add_key(Instant::ZERO, 1);
        assert!(machine.collect(Instant::ZERO).is_none());
        Self { machine, key }
    }

    fn enter(&mut self, now: u64, cost: u32) -> RequestId {
        let entered = self.machine.enter(at(now), self.key, RULE, Entry { cost, ..Entry::default() });
        let Ok(Enter::Waiting(id)) = entered else { panic!("{entered:?}") };
        id
    }

    fn answer(&mut self, now: u64, taken: &[bool], stand: Stand) {
        let answers = Answers {
            taken: taken.to_vec(),
            waits: vec![taken.contains(&false).then_some(Wait { lasts: Nanos::from_secs(1), closed_to: 0 })],
            stands: vec![Some(stand)],
            usable_until: Instant::NEVER,
            ..Answers::default()
        };
        self.machine.answer(at(now), &answers);
    }

    fn claim(&mut self, now: u64, id: RequestId) {
        assert!(matches!(self.machine.claim(at(now), id), Claim::Started { .. }));
    }

    /// Starts one, after which the store stands so. Returns what it was told with that question.
    fn start(&mut self, now: u64, stand: Stand) -> (RequestId, Vec<Said>) {
        let id = self.enter(now, 1);
        let batch = self.machine.collect(at(now)).unwrap();
        assert_eq!((batch.asks.len(), batch.lines.len()), (1, 1));
        self.answer(now, &[true], stand);
        self.claim(now, id);
        (id, batch.lines[0].said.clone())
    }

    fn hear(&mut self, now: u64, id: RequestId, window: ServerWindow<'_>) {
        assert!(self.machine.observe(at(now), id, [window]));
    }

    /// What is told of the only limit with a question that asks for nothing. `None`: there is none.
    fn told_at_once(&mut self, now: u64) -> Option<Vec<Said>> {
        let batch = self.machine.wants_store().then(|| self.machine.collect(at(now)))??;
        assert!(batch.asks.is_empty(), "{batch:?}");
        Some(only(&batch))
    }
}

fn only(batch: &Batch) -> Vec<Said> {
    let [line] = &batch.lines[..] else { panic!("{batch:?}") };
    line.said.clone()
}

/// What was left, and after which start.
fn words(said: &[Said]) -> Vec<(u32, Option<Serial>)> {
    said.iter().map(|said| (said.left, said.answered)).collect()
}

#[test]
fn a_word_goes_with_the_next_question_and_names_the_start_that_was_answered() {
    let mut world = World::new(OVERALL);
    let (id, said) = world.start(0, stand(31, 9));
    assert_eq!(said, []);
    world.hear(100, id, left(6));
    assert!(!world.machine.wants_store());
    let (_, said) = world.start(400, stand(32, 8));
    assert_eq!(words(&said), [(6, Some(serial(31)))]);
    // It is over when the machine itself holds it to be.
    assert_eq!(said[0].reset, Nanos::from_millis(29_700));
    let (_, said) = world.start(500, stand(33, 7));
    assert_eq!(said, [], "once");
}

#[test]
fn starts_of_one_batch_are_numbered_in_its_order_without_what_was_refused() {
    let mut world = World::new(OVERALL);
    let first = world.enter(0, 1);
    // One of another key has to wait, and what is behind it of that key.
    let (one, other) = (world.key, world.machine.add_key(at(0), 2));
    world.key = other;
    world.enter(0, 2);
    world.enter(0, 1);
    world.key = one;
    let last = world.enter(0, 3);
    let batch = world.machine.collect(at(0)).unwrap();
    let costs: Vec<u32> = batch.asks.iter().map(|takes| takes[0].cost).collect();
    assert_eq!(costs, [1, 2, 3, 1]);
    world.answer(1, &[true, false, true, true], stand(45, 5));
    for (id, number, left_over) in [(first, 41, 4), (last, 44, 2)] {
        world.claim(1, id);
        world.hear(2, id, left(left_over));
        let untold = world.machine.collect(at(3)).unwrap();
        assert_eq!(words(&only(&untold)).last().unwrap().1, Some(serial(number)));
        world.machine.fail(at(3));
    }
}

#[test]
fn what_narrows_much_is_a_question_by_itself() {
    // Of ten that the store would give, half is not much less.
    for (given_since, left_over, is_much) in [(0, 5, false), (0, 4, true), (3, 8, false), (3, 7, true), (9, 3, true)] {
        let mut world = World::new(OVERALL);
        let (id, _) = world.start(0, stand(1, 9));
        world.enter(0, 1);
        world.machine.collect(at(0)).unwrap();
        world.answer(0, &[false], stand(1 + given_since, 10));
        world.hear(100, id, left(left_over));
        let told = world.told_at_once(100);
        assert_eq!(told.as_deref().map(words), is_much.then(|| vec![(left_over, Some(serial(1)))]), "{left_over}");
    }
}

#[test]
fn nothing_left_is_told_at_once_unless_the_store_knows() {
    let mut world = World::new(OVERALL);
    let (id, _) = world.start(0, stand(10, 0));
    let (other, _) = world.start(0, stand(11, 0));
    world.hear(100, id, left(0));
    let said = world.told_at_once(100).unwrap();
    assert_eq!(words(&said), [(0, Some(serial(10)))]);
    world.answer(101, &[], Stand { windows: vec![(said[0].window, 0)], ..stand(11, 1) });
    world.hear(102, other, left(0));
    assert_eq!(world.told_at_once(102), None);
    // Another window is not known to it.
    world.machine.observe_target(at(103), Target::Overall, [left_of("other", 0, 30_000)]);
    assert_eq!(words(&world.told_at_once(103).unwrap()), [(0, Some(serial(11))), (0, Some(serial(11)))]);
}

/// What an early answer left looks like less than it is: everything that was given since is taken off. A later one says so.
#[test]
fn much_more_than_what_the_store_goes_by_is_a_question_by_itself() {
    let mut world = World::new(OVERALL);
    let (first, _) = world.start(0, stand(1, 9));
    let (second, _) = world.start(0, stand(2, 8));
    world.hear(100, first, left(3));
    let window = world.told_at_once(100).unwrap()[0].window;
    for (known, room, left_over, is_much) in
        [(2, 9, 4, false), (2, 9, 5, true), (2, 4, 5, false), (0, 1, 1, true), (0, 0, 1, false), (2, 1, 5, false)]
    {
        let mut world = World::new(OVERALL);
        let (id, _) = world.start(0, Stand { windows: vec![(window, known)], ..stand(1, room) });
        world.hear(100, id, left(left_over));
        assert_eq!(world.told_at_once(100).is_some(), is_much, "{left_over} after {known} of {room}");
    }
    world.answer(100, &[], Stand { windows: vec![(window, 2)], ..stand(2, 8) });
    world.hear(101, second, left(7));
    assert_eq!(words(&world.told_at_once(101).unwrap()), [(7, Some(serial(2)))]);
}

#[test]
fn what_can_narrow_nothing_is_not_told() {
    let mut world = World::new(OVERALL);
    let (id, _) = world.start(0, stand(1, 9));
    world.hear(100, id, left(10));
    let (id, said) = world.start(100, Stand { windows: vec![(1, 9)], ..stand(2, 8) });
    assert_eq!(said, []);
    // Unless it ends what is known of a server's window.
    world.hear(200, id, left(10));
    let (id, said) = world.start(200, stand(3, 7));
    assert_eq!(words(&said), [(10, Some(serial(2)))]);
    // An older word is of no use after it.
    world.hear(300, id, left(4));
    world.hear(300, id, left(10));
    let (id, said) = world.start(300, stand(4, 6));
    assert_eq!(words(&said), [(4, Some(serial(3)))], "the one that leaves less of two about one start");
    // Nor what ends without a reset that anybody knows of, or has ended.
    world.hear(400, id, ServerWindow { reset: None, ..left(5) });
    world.machine.observe_target(at(400), Target::Overall, [left_of("other", 5, 100)]);
    let (_, said) = world.start(600, stand(5, 5));
    assert_eq!(said, []);
}

#[test]
fn what_is_so_as_of_now_of_a_limit_that_the_store_said_nothing_of_is_told_at_once() {
    // It would not be so any more when it is told later.
    for count in [3, 0] {
        let mut world = World::new(OVERALL);
        world.machine.observe_target(at(0), Target::Overall, [left(count)]);
        assert_eq!(words(&world.told_at_once(0).unwrap()), [(count, None)]);
    }
}

#[test]
fn the_newest_word_of_each_window_is_told() {
    let mut world = World::new(OVERALL);
    let ids = [1, 2, 3].map(|given| world.start(0, stand(given, 0)).0);
    world.hear(100, ids[1], left(6));
    world.hear(101, ids[0], left(5));
    world.hear(102, ids[2], left_of("hourly", 8, 30_000));
    let (_, said) = world.start(200, stand(4, 0));
    assert_eq!(words(&said), [(6, Some(serial(2))), (8, Some(serial(3)))]);
    assert_ne!(said[0].window, said[1].window);
    // So is what is said by other ways than a response.
    world.hear(300, ids[2], left(7));
    world.machine.observe_target(at(301), Target::Overall, [left(9)]);
    world.hear(302, ids[2], left(8));
    let (_, said) = world.start(400, stand(5, 0));
    // It knows of the last start that the store gave, and that answer of an earlier one.
    assert_eq!(words(&said), [(9, Some(serial(4)))]);
}

/// Which of many answers comes last says nothing.
#[test]
fn an_older_word_than_the_store_was_told_is_not_told() {
    let mut world = World::new(OVERALL);
    let ids = [1, 2, 3].map(|given| world.start(0, stand(given, 9)).0);
    world.hear(100, ids[1], left(8));
    let (last, said) = world.start(200, stand(4, 9));
    assert_eq!(words(&said), [(8, Some(serial(2)))]);
    world.hear(300, ids[0], left(5));
    assert_eq!(world.told_at_once(300), None);
    world.hear(301, ids[0], left_of("hourly", 7, 30_000));
    world.hear(302, ids[2], left(7));
    let (_, said) = world.start(400, stand(5, 9));
    assert_eq!(words(&said), [(7, Some(serial(1))), (7, Some(serial(3)))]);
    // Another window, and one that answers a later start.
    world.hear(500, last, left(6));
    assert_eq!(words(&world.start(600, stand(6, 9)).1), [(6, Some(serial(4)))]);
}

/// Wherever a limit stands that a store keeps.
#[test]
fn limits_of_keys_rules_and_endpoints_are_narrowed() {
    for text in [
        PER_KEY,
        "[rules]\na = { per_key = { limit = '10/60s', shared = true } }",
        "[rules]\na = { overall = { limit = '10/60s burst 9', shared = true } }",
        "[pool]\nendpoints = ['a']\noverall = { limit = '10/60s', shared = true }",
    ] {
        let mut world = World::new(text);
        let (id, _) = world.start(0, stand(1, 9));
        world.hear(100, id, left(2));
        assert_eq!(words(&world.told_at_once(100).unwrap()), [(2, Some(serial(1)))], "{text}");
    }
    // A cap on what runs is not.
    let mut world = World::new("overall = { concurrency = 10, shared = true }");
    let (id, _) = world.start(0, stand(1, 9));
    world.hear(100, id, left(2));
    assert_eq!(world.told_at_once(100), None);
}

#[test]
fn windows_of_one_name_and_different_lengths_are_told_apart() {
    let mut world = World::new(OVERALL);
    let (id, _) = world.start(0, stand(1, 1));
    for (secs, left_over) in [(1, 4), (10, 1), (60, 5), (600, 2), (3_600, 3)] {
        world.hear(1, id, ServerWindow { per: Some(Nanos::from_secs(secs)), ..left(left_over) });
    }
    let (_, said) = world.start(2, stand(2, 1));
    // Of more than four the one with the most left goes.
    assert_eq!(said.iter().map(|said| said.left).collect::<Vec<_>>(), [4, 1, 2, 3]);
    let mut windows: Vec<u64> = said.iter().map(|said| said.window).collect();
    windows.sort_unstable();
    windows.dedup();
    assert!(windows.len() == 4 && windows.iter().all(|window| *window < 1 << 52), "{windows:?}");
}

#[test]
fn what_had_no_answer_is_told_again_unless_there_is_something_newer() {
    let mut world = World::new(OVERALL);
    let ids = [1, 2].map(|given| world.start(0, stand(given, 8)).0);
    world.hear(100, ids[0], left(2));
    assert_eq!(world.told_at_once(100).map(|said| said.len()), Some(1));
    world.machine.fail(at(200));
    assert_eq!(words(&world.told_at_once(200).unwrap()), [(2, Some(serial(1)))]);
    world.hear(201, ids[1], left(1));
    world.machine.fail(at(300));
    assert_eq!(words(&world.told_at_once(300).unwrap()), [(1, Some(serial(2)))]);
    world.answer(301, &[], stand(2, 1));
    assert_eq!(world.told_at_once(301), None);
}

#[test]
fn what_started_without_the_store_tells_it_nothing() {
    let mut world = World::new(OVERALL);
    world.machine.set_reach(at(0), Reach::Open);
    let entered = world.machine.enter(at(0), world.key, RULE, Entry::default());
    let Ok(Enter::Started(id)) = entered else { panic!("{entered:?}") };
    world.machine.set_reach(at(10), Reach::Asked);
    world.hear(20, id, left(1));
    let (_, said) = world.start(30, stand(1, 9));
    assert_eq!(said, []);
}

#[test]
fn attempts_that_ended_leave_no_number_to_those_after_them() {
    let mut world = World::new(OVERALL);
    let (id, _) = world.start(0, stand(1, 9));
    world.machine.finish(at(10), id);
    world.machine.set_reach(at(10), Reach::Open);
    let entered = world.machine.enter(at(20), world.key, RULE, Entry::default());
    let Ok(Enter::Started(second)) = entered else { panic!("{entered:?}") };
    world.hear(30, second, left(1));
    world.machine.set_reach(at(40), Reach::Asked);
    assert!(only(&world.machine.collect(at(40)).unwrap()).is_empty());
}

#[test]
fn other_rules_and_other_numbers_forget() {
    let mut world = World::new(OVERALL);
    let (id, _) = world.start(0, stand(1, 9));
    let (other, _) = world.start(0, stand(2, 8));
    world.hear(100, id, left(1));
    world.machine.replace(at(200), "overall = { limit = '20/60s', shared = true }".parse::<Rules>().unwrap().plan());
    world.hear(300, other, left(1));
    assert!(world.machine.collect(at(300)).is_none_or(|batch| batch.lines.iter().all(|line| line.said.is_empty())));

    let own = "[rules]\na = { per_key = { limit = '10/60s', shared = true } }";
    let mut world = World::new(own);
    let (id, _) = world.start(0, stand(1, 9));
    let (other, _) = world.start(0, stand(2, 8));
    world.hear(100, id, left(1));
    let numbers = own.replace("10/", "20/").parse::<Rules>().unwrap().plan().rules[0].own.clone();
    world.machine.set_own(at(200), world.key, RULE, Some(Arc::from(numbers)));
    world.hear(300, other, left(1));
    assert!(world.machine.collect(at(300)).is_none_or(|batch| batch.lines.iter().all(|line| line.said.is_empty())));
}

/// Of 1,100 keys a server says something: of 1,024 the store is told when they are asked for.
#[test]
fn what_is_to_be_told_is_bounded() {
    let mut world = World::new(PER_KEY);
    let keys: Vec<KeyId> = (2..1_102).map(|tag| world.machine.add_key(at(0), tag)).collect();
    // Keys that are held are not forgotten.
    for key in &keys {
        world.machine.hold(at(0), Target::Key(*key), at(2_000));
    }
    let say = |world: &mut World, now, left| {
        for key in &keys {
            assert!(world.machine.observe_target(at(now), Target::Key(*key), [left]));
        }
    };
    say(&mut world, 0, left_of("ratelimit", 3, 1_000));
    // What is over makes room.
    say(&mut world, 1_500, left(4));
    for key in &keys {
        world.machine.enter(at(2_000), *key, RULE, Entry::default()).unwrap();
    }
    let mut said = Vec::new();
    while let Some(batch) = world.machine.collect(at(2_000)).filter(|batch| !batch.asks.is_empty()) {
        said.extend(batch.lines.iter().flat_map(|line| line.said.clone()));
        world.machine.answer(
            at(2_000),
            &Answers { taken: vec![true; batch.asks.len()], usable_until: Instant::NEVER, ..Answers::default() },
        );
    }
    assert_eq!((said.len(), said.iter().all(|said| said.left == 4)), (1_024, true));
    // What can't wait is told of 256 at a time.
    say(&mut world, 3_000, left(0));
    let mut told = Vec::new();
    while let Some(batch) = world.machine.wants_store().then(|| world.machine.collect(at(3_000))).flatten() {
        assert!(batch.lines.len() <= 256 && batch.asks.is_empty(), "{}", batch.lines.len());
        told.extend(batch.lines.iter().flat_map(|line| line.said.clone()));
        world.machine.answer(at(3_000), &Answers::default());
    }
    assert_eq!((told.len(), told.iter().all(|said| said.left == 0)), (1_024, true));
}

#[test]
fn that_nothing_is_left_is_told_though_much_else_waits_to_be_told() {
    let mut world =
        World::new("overall = { limit = '100000/60s', shared = true }\nper_key = { limit = '20/1h', shared = true }");
    for key in 0..1_100_u64 {
        let key = world.machine.add_key(at(key), key);
        let Ok(Enter::Waiting(id)) = world.machine.enter(at(1), key, RULE, Entry::default()) else {
            panic!("it waits")
        };
        let batch = world.machine.collect(at(1)).unwrap();
        let stands = batch.lines.iter().map(|_| Some(stand(1, 19))).collect();
        let answers = Answers { taken: vec![true], stands, usable_until: Instant::NEVER, ..Answers::default() };
        world.machine.answer(at(1), &answers);
        world.claim(1, id);
        let window = ServerWindow { limit: Some(20), side: Some(Side::Key), ..left_of("each", 15, 3_000_000) };
        world.hear(1, id, window);
        world.machine.finish(at(1), id);
    }
    assert!(!world.machine.wants_store());
    assert!(world.machine.observe_target(at(2), Target::Overall, [left(0)]));
    assert!(world.machine.wants_store());
    let batch = world.machine.collect(at(2)).unwrap();
    let nothing = batch.lines.iter().filter(|line| line.said.iter().any(|said| said.left == 0)).count();
    assert_eq!(nothing, 1);
}

#[test]
fn what_came_meanwhile_is_newer_than_what_had_no_answer() {
    let mut world = World::new(OVERALL);
    world.start(0, stand(1, 9));
    for (now, count) in [(100, 3), (150, 0)] {
        world.machine.observe_target(at(now), Target::Overall, [left(count)]);
        if count > 0 {
            assert_eq!(words(&world.told_at_once(now).unwrap()), [(3, Some(serial(1)))]);
        }
    }
    world.machine.fail(at(200));
    assert_eq!(words(&world.told_at_once(200).unwrap()), [(0, Some(serial(1)))]);
}

#[test]
fn room_that_is_told_of_before_the_answer_that_there_is_none_is_asked_for_soon() {
    let mut world = World::new(OVERALL);
    world.enter(0, 1);
    assert_eq!(world.machine.collect(at(0)).unwrap().asks.len(), 1);
    world.machine.reopen(at(1), Site::Shared(0));
    world.answer(2, &[false], stand(10, 0));
    assert!(world.machine.collect(at(21)).is_none());
    assert_eq!(world.machine.collect(at(22)).unwrap().asks.len(), 1);
    // Unless nothing was told it is asked for when the store said.
    world.answer(23, &[false], stand(10, 0));
    assert!(world.machine.collect(at(1_022)).is_none());
    assert_eq!(world.machine.collect(at(1_023)).unwrap().asks.len(), 1);
}
