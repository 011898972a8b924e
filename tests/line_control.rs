//! Who may stand in line: a bound over all queues, waiting before the line, refusing who comes too late, names that are
//! none. What needs no runtime is shown on the machine's own time.

mod world;

use request_balancer::engine::{Claim, Entry, KeyId, Nanos, RequestId, RuleId, Turned, Why};
use world::{Manner, World};

/// Enqueues without a turn and without a claim.
fn enqueue(world: &mut World, rule: &str, key: u64) -> Result<RequestId, Turned> {
    let (rule, key) = at(world, rule, key);
    world.scheduler.enqueue(world.now, key, rule, Entry::default())
}

fn patiently(world: &mut World, rule: &str, key: u64) -> RequestId {
    let (rule, key) = at(world, rule, key);
    let id = world.scheduler.enqueue_patiently(world.now, key, rule, Entry::default()).expect("it may wait");
    world.scheduler.dispatch(world.now);
    id
}

fn at(world: &mut World, rule: &str, key: u64) -> (RuleId, KeyId) {
    (world.rule(rule), world.key(key))
}

fn outside(world: &World, ids: &[RequestId]) -> Vec<bool> {
    ids.iter().map(|id| world.scheduler.is_outside(*id)).collect()
}

fn waiting(world: &World) -> usize {
    world.scheduler.snapshot(world.now).waiting
}

const fn full(waiting: u32) -> Turned {
    Turned::QueueFull { waiting }
}

#[test]
fn no_more_stand_in_line_than_may_in_all() {
    let mut world = World::new("queue = 3\n[rules]\na = { per_key = '1/1s', queue = 2 }\nb = '1/1s'");
    for (rule, key) in [("a", 1), ("a", 2), ("b", 1)] {
        world.enter(rule, key);
    }
    assert_eq!(enqueue(&mut world, "a", 1).err(), None);
    assert_eq!(enqueue(&mut world, "a", 1).err(), None);
    // Its own queue comes first.
    assert_eq!(enqueue(&mut world, "a", 1), Err(full(2)));
    assert_eq!(enqueue(&mut world, "a", 2).err(), None);
    assert_eq!([enqueue(&mut world, "a", 2), enqueue(&mut world, "b", 1)], [Err(full(3)), Err(full(3))]);
    let (rule, key) = at(&mut world, "b", 1);
    assert_eq!(world.scheduler.enter(world.now, key, rule, Entry::default()), Err(full(3)));
    // Who can start at once takes no room of others, even where it is in line for a moment.
    world.turn();
    assert_eq!(world.enter("b", 3), 3);
    assert!(world.starts_of(3) == [0] && enqueue(&mut world, "b", 4).is_ok());
    assert_eq!(waiting(&world), 4);
}

#[test]
fn the_oldest_of_its_own_queue_makes_room() {
    let mut world = World::new("queue = 2\n[rules]\nold = { per_key = '1/1s', overflow = 'drop-oldest' }\nr = '1/1s'");
    for (rule, key) in [("old", 1), ("old", 2), ("r", 1)] {
        world.enter(rule, key);
    }
    let oldest = enqueue(&mut world, "old", 1).unwrap();
    let other = enqueue(&mut world, "r", 1).unwrap();
    let newest = enqueue(&mut world, "old", 1).unwrap();
    let refused = Claim::Refused { why: Why::Displaced, waited: Nanos::ZERO };
    assert_eq!(world.scheduler.claim(world.now, oldest), refused);
    assert!(![other, newest].iter().any(|id| world.scheduler.is_refused(*id)));
    // Nobody of its queue waits: none of others goes.
    assert_eq!(enqueue(&mut world, "old", 2), Err(full(2)));
    assert_eq!(waiting(&world), 2);
}

#[test]
fn those_that_are_put_back_need_no_room() {
    let mut world = World::new("queue = 1\n[rules]\nr = { per_key = '1/1s', queue = 1 }");
    let first = world.enter_as("r", 1, Manner::Runs, Entry::default());
    let second = world.enqueue("r", 1);
    let outsider = patiently(&mut world, "r", 1);
    let key = world.key(1);
    world.retry(first, request_balancer::engine::Target::Key(key), 500);
    assert_eq!(waiting(&world), 2);
    world.run_until(1_000);
    // The line has room again only when both are gone.
    assert_eq!((world.starts_of(first), outside(&world, &[outsider])), (&[0, 1_000][..], vec![true]));
    world.finish(first);
    world.run_until(2_000);
    assert_eq!((world.starts_of(second), outside(&world, &[outsider])), (&[2_000][..], vec![false]));
}

#[test]
fn who_waits_before_the_line_goes_in_by_order_of_arrival_as_far_as_queues_have_room() {
    let mut world = World::new("queue = 4\n[rules]\nr = { per_key = '1/1s', queue = 2 }");
    for key in 1..=3 {
        world.enter("r", key);
    }
    for key in 1..=2 {
        world.enqueue_many("r", key, 2);
    }
    world.turn();
    // 1 and 2 are full, and so is the line.
    let order = [1, 1, 3, 2, 3].map(|key| patiently(&mut world, "r", key));
    assert_eq!((outside(&world, &order), waiting(&world)), (vec![true; 5], 4));
    // Nobody gets past them, save who needs no place.
    assert_eq!(enqueue(&mut world, "r", 3), Err(full(4)));
    world.enter("r", 4);
    // One of 1 and one of 2 start. There is no second place for 1.
    world.run_until(1_000);
    assert_eq!((outside(&world, &order), waiting(&world)), (vec![false, true, false, true, true], 4));
    world.run_until(2_000);
    assert_eq!((outside(&world, &order), waiting(&world)), (vec![false, false, false, false, true], 4));
}

#[test]
fn whoever_leaves_makes_room_for_the_next() {
    let mut world = World::new("[rules]\nr = { per_key = '1/1s', queue = 1 }");
    world.enter("r", 1);
    let in_line = enqueue(&mut world, "r", 1).unwrap();
    let [first, second, third] = [0; 3].map(|_| patiently(&mut world, "r", 1));
    // Before the line, too.
    world.scheduler.withdraw(world.now, first);
    assert_eq!(outside(&world, &[second, third]), [true, true]);
    world.scheduler.withdraw(world.now, in_line);
    assert_eq!(outside(&world, &[second, third]), [false, true]);
    world.scheduler.withdraw(world.now, second);
    world.scheduler.withdraw(world.now, third);
    assert_eq!((waiting(&world), world.scheduler.next_wake().is_some()), (0, true));
    world.run_until(60_000);
    assert_eq!(world.key_count(), 0);
}

#[test]
fn time_before_the_line_is_no_time_in_it() {
    let mut world = World::new("[rules]\nr = { per_key = '1/10s', queue = 1 }");
    world.enter("r", 1);
    world.enqueue("r", 1);
    let after = |world: &World, millis| Some(world.now.saturating_add(Nanos::from_millis(millis)));
    let (rule, key) = at(&mut world, "r", 1);
    let entry = Entry { deadline: after(&world, 5_000), not_before: after(&world, 1_000), ..Entry::default() };
    let id = world.scheduler.enqueue_patiently(world.now, key, rule, entry).unwrap();
    world.run_until(10_000);
    assert!(!world.scheduler.is_outside(id));
    world.run_until(14_999);
    assert!(!world.scheduler.is_refused(id));
    world.run_until(15_000);
    let refused = Claim::Refused { why: Why::MaxWait, waited: Nanos::from_millis(5_000) };
    assert_eq!(world.scheduler.claim(world.now, id), refused);
}

#[test]
fn who_can_no_more_come_in_is_told() {
    let rules = "[rules]\nr = { per_key = '9/1s', queue = 1 }\nt = '1/1s'";
    let reload = |world: &mut World, rules: &str| {
        let rules: request_balancer::Rules = rules.parse().unwrap();
        let plan = std::sync::Arc::unwrap_or_clone(rules.plan()).succeeding(world.scheduler.plan());
        world.scheduler.replace(world.now, plan.into());
    };
    let outsider = |world: &mut World| {
        world.enter_as("r", 1, Manner::Prompt, Entry { cost: 9, ..Entry::default() });
        enqueue(world, "r", 1).unwrap();
        let (rule, key) = at(world, "r", 1);
        let entry = Entry { cost: 9, ..Entry::default() };
        let id = world.scheduler.enqueue_patiently(world.now, key, rule, entry).unwrap();
        assert!(world.scheduler.is_outside(id));
        id
    };
    let why = |world: &mut World, id| match world.scheduler.claim(world.now, id) {
        Claim::Refused { why, .. } => Some(why),
        Claim::Started { .. } | Claim::Waiting | Claim::Running | Claim::Unknown => None,
    };
    let mut world = World::new(rules);
    let id = outsider(&mut world);
    reload(&mut world, "[rules]\nt = '1/1s'");
    assert_eq!(why(&mut world, id), Some(Why::RuleRemoved));
    let mut world = World::new(rules);
    let id = outsider(&mut world);
    reload(&mut world, "[rules]\nr = { per_key = '8/1s', queue = 1 }");
    assert_eq!(why(&mut world, id), Some(Why::CostTooHigh { cost: 9, capacity: 8 }));
    let mut world = World::new(rules);
    let id = outsider(&mut world);
    assert_eq!(world.scheduler.close(world.now), 2);
    assert_eq!(why(&mut world, id), Some(Why::Closed));
    // More room lets it in at once.
    let mut world = World::new(rules);
    let id = outsider(&mut world);
    reload(&mut world, "[rules]\nr = { per_key = '9/1s', queue = 2 }");
    assert_eq!((world.scheduler.is_outside(id), waiting(&world)), (false, 2));
}

#[test]
fn keys_that_are_one_have_one_door() {
    let mut world = World::new("[rules]\nr = { per_key = '1/1s', queue = 1 }");
    for key in 1..=2 {
        world.enter("r", key);
        world.enqueue("r", key);
    }
    let ids = [2, 1, 2, 1].map(|key| patiently(&mut world, "r", key));
    let (from, into) = (world.key(1), world.key(2));
    world.scheduler.alias(world.now, from, into);
    assert_eq!((outside(&world, &ids), waiting(&world)), (vec![true; 4], 2));
    // One a second: only the second start leaves the queue with room.
    world.run_until(1_000);
    assert_eq!(outside(&world, &ids), [true; 4]);
    world.run_until(2_000);
    assert_eq!(outside(&world, &ids), [false, true, true, true]);
}

#[cfg(feature = "tokio")]
mod shell {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use futures::future::join_all;
    use request_balancer::{
        Attempt, Balancer, Error, Failure, NextStart, Outcome, Quota, Refused, Rule, Rules, Target, Ticket,
    };
    use tokio::time::{Instant, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    fn balancer(rules: &str) -> Balancer {
        Balancer::new(rules.parse::<Rules>().expect("the test's rules are right"))
    }

    async fn ok(_: Attempt) -> Outcome<(), &'static str> {
        Ok(())
    }

    fn is_full<T, E>(submitted: Result<Ticket<T, E>, Refused>) -> Option<u32> {
        match submitted {
            Err(Refused::QueueFull { waiting }) => Some(waiting),
            Ok(_) | Err(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_as_a_whole_is_full() {
        let balancer = balancer("queue = 2\n[rules]\nr = '1/1s'");
        let submit = |key: u32| balancer.request("r", key).submit(ok);
        let mut tickets = vec![submit(1).unwrap(), submit(2).unwrap()];
        tokio::task::yield_now().await;
        tickets.extend([submit(1).unwrap(), submit(2).unwrap()]);
        assert_eq!(is_full(submit(1)), Some(2));
        let refused = Err(Error::GaveUp { reason: Refused::QueueFull { waiting: 2 }, attempts: 0, last: None });
        assert_eq!(balancer.run("r", 2, ok).await, refused);
        // In a queue of its own it can start at once.
        assert_eq!(balancer.run("r", 3, ok).await, Ok(()));
        for ticket in tickets {
            assert_eq!(ticket.await, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn producers_wait_in_turn_for_a_place() {
        let balancer = balancer("[rules]\nr = { per_key = '1/1s', queue = 2 }");
        let begin = Instant::now();
        let producers = (0..6).map(|number| {
            let balancer = balancer.clone();
            async move {
                let ticket = balancer.request("r", 1).submit_wait(move |_| ready(Ok::<_, Failure<()>>(number))).await;
                let entered = begin.elapsed().as_secs();
                let answer = ticket.unwrap().await.unwrap();
                (answer, entered, begin.elapsed().as_secs())
            }
        });
        // One starts at once, two stand in line, and each start lets one in.
        let expected = [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 3), (4, 2, 4), (5, 3, 5)];
        assert_eq!(join_all(producers).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_gets_nobodys_place() {
        let balancer = balancer("queue = 1\n[rules]\nr = '1/1s'");
        balancer.run("r", 1, ok).await.unwrap();
        balancer.request("r", 1).submit(ok).unwrap().detach();
        let waits = tokio::spawn(balancer.request("r", 1).submit_wait(ok));
        // Its clone is asked for again and again, and never before the one that waits.
        let mut refused = 0;
        while !waits.is_finished() {
            refused += usize::from(is_full(balancer.request("r", 1).submit(ok)) == Some(1));
            sleep(SECOND / 10).await;
        }
        assert!((10..=11).contains(&refused), "{refused}");
        assert_eq!(waits.await.unwrap().unwrap().await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_before_it_is_ready_it_leaves_nothing() {
        let balancer = balancer("[rules]\nr = { key_concurrency = 1, queue = 1 }");
        let running = balancer.request("r", 1).submit(|_| pending::<Outcome<(), ()>>()).unwrap();
        tokio::task::yield_now().await;
        balancer.request("r", 1).submit(ok).unwrap().detach();
        let token = std::sync::Arc::new(());
        let held = std::sync::Arc::clone(&token);
        let gone = tokio::spawn(balancer.request("r", 1).submit_wait(move |_| {
            let _ = &held;
            ready(Ok::<_, Failure<()>>(()))
        }));
        let stays = tokio::spawn(balancer.request("r", 1).submit_wait(ok));
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        assert_eq!(std::sync::Arc::strong_count(&token), 1);
        drop(running);
        assert_eq!(stays.await.unwrap().unwrap().await, Ok(()));
        assert_eq!((balancer.snapshot().waiting, balancer.snapshot().in_flight), (0, 0));
        // Never polled, it never came.
        drop(balancer.request("r", 1).submit_wait(ok));
        assert_eq!(balancer.snapshot().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_it_out_for_good_is_said() {
        let balancer = balancer("[rules]\nr = { per_key = '1/1s', queue = 1 }");
        balancer.run("r", 1, ok).await.unwrap();
        balancer.request("r", 1).submit(ok).unwrap().detach();
        let refused = |submitted: Result<Ticket<(), &str>, Refused>| submitted.unwrap_err();
        let unknown = refused(balancer.request("x", 1).submit_wait(ok).await);
        assert_eq!(unknown, Refused::UnknownRule { name: "x".into(), nearest: None });
        let costly = refused(balancer.request("r", 1).cost(2).submit_wait(ok).await);
        assert_eq!(costly, Refused::CostTooHigh { cost: 2, capacity: 1 });
        let now = refused(balancer.request("r", 1).fail_fast().submit_wait(ok).await);
        assert_eq!(now, Refused::NotNow { next_start: NextStart::After(2 * SECOND) });
        let waits = tokio::spawn(balancer.request("r", 1).submit_wait(ok));
        tokio::task::yield_now().await;
        let ended = balancer.close(SECOND).await;
        assert_eq!((ended.refused, refused(waits.await.unwrap())), (2, Refused::Closed));
        assert_eq!(refused(balancer.request("r", 1).submit_wait(ok).await), Refused::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_does_not_wait_for_a_place_that_its_own_end_makes() {
        let balancer = balancer("queue = 2\n[rules]\nr = { key_concurrency = 1, queue = 1 }\nother = '1/1s'");
        balancer.run("other", 1, ok).await.unwrap();
        let answer = balancer
            .run("r", 1, async |_| {
                balancer.request("r", 1).submit(ok).unwrap().detach();
                let stuck = balancer.request("r", 1).submit_wait(ok).await.unwrap_err();
                // Only the line as a whole keeps this one waiting, and others make room in it.
                balancer.request("other", 1).submit(ok).unwrap().detach();
                balancer.request("other", 1).submit_wait(ok).await.unwrap().detach();
                Ok::<_, Failure<()>>(stuck)
            })
            .await;
        assert_eq!(answer, Ok(Refused::WouldDeadlock));
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_paused_and_resumed_beside_single_rules() {
        let balancer = balancer("[rules]\na = '1/1s'\nb = {}");
        let begin = Instant::now();
        balancer.pause_all();
        balancer.pause("b").unwrap();
        let [a, b] = ["a", "b"].map(|rule| balancer.request(rule, 1).submit(ok).unwrap());
        // Other rules end no pause.
        balancer.replace_rules("[rules]\na = '1/1s'\nb = {}\nc = {}".parse().unwrap());
        let c = balancer.request("c", 1).submit(ok).unwrap();
        sleep(SECOND).await;
        assert_eq!((balancer.snapshot().waiting, balancer.snapshot().in_flight), (3, 0));
        balancer.resume_all();
        assert_eq!((a.await, c.await, begin.elapsed()), (Ok(()), Ok(()), SECOND));
        sleep(SECOND).await;
        assert_eq!(balancer.snapshot().waiting, 1);
        balancer.resume("b").unwrap();
        assert_eq!((b.await, begin.elapsed()), (Ok(()), 2 * SECOND));
    }

    #[test]
    fn without_a_runtime_it_cannot_wait() {
        let balancer = balancer("[rules]\nr = '1/1s'");
        let submit = pin!(balancer.request("r", 1).submit_wait(ok));
        let Poll::Ready(answer) = submit.poll(&mut Context::from_waker(Waker::noop())) else { panic!("it waits") };
        assert_eq!(answer.unwrap_err(), Refused::NoRuntime);
        assert_eq!(balancer.snapshot().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_eager_request_does_not_wait_in_vain() {
        let balancer = balancer("[rules]\nr = { per_key = '1/10s', max_wait = '20s' }\nc = { key_concurrency = 1 }");
        balancer.run("r", 1, ok).await.unwrap();
        let eager = || balancer.request("r", 1).eager();
        let after =
            |seconds| Err(Refused::MaxWait { waited: Duration::ZERO, next_start: NextStart::After(seconds * SECOND) });
        // At 10 and at 20 s there is a start: for the third the rule's time is too short.
        let tickets = [eager().submit(ok).unwrap(), eager().submit(ok).unwrap()];
        assert_eq!(eager().submit(ok).map(drop), after(30));
        assert_eq!(eager().max_wait(30 * SECOND).submit(ok).map(drop), Ok(()));
        assert_eq!(eager().max_wait(30 * SECOND - Duration::from_nanos(1)).acquire().await.map(drop), after(30));
        assert_eq!(eager().submit_wait(ok).await.map(drop), after(30));
        balancer.hold(Target::key(2), 60 * SECOND).unwrap();
        assert_eq!(balancer.request("r", 2).eager().acquire().await.map(drop), after(60));
        assert_eq!(balancer.request("r", 3).eager().not_before(21 * SECOND).acquire().await.map(drop), after(21));
        for ticket in tickets {
            assert_eq!(ticket.await, Ok(()));
        }
        // Nobody knows when a running attempt ends: it waits for as long as it may.
        let _permit = balancer.request("c", 1).acquire().await.unwrap();
        let refused = balancer.request("c", 1).max_wait(SECOND).eager().acquire().await.unwrap_err();
        assert_eq!(refused, Refused::MaxWait { waited: SECOND, next_start: NextStart::WhenOneEnds });
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_are_none_have_the_default_rule() {
        let text = "default_rule = \"other\"\n\n[rules]\nchat = {}\nother = \"1/1s\"\n";
        let rules: Rules = text.parse().unwrap();
        let built = Rules::builder()
            .default_rule("other")
            .rule("chat", Rule::new())
            .rule("other", Rule::new().per_key(Quota::per_second(1)));
        assert_eq!((rules.to_string(), &built.build().unwrap()), (text.to_owned(), &rules));
        assert_eq!(rules.default_rule(), Some("other"));
        let balancer = Balancer::new(rules);
        let rule = balancer.run("typing", 1, async |attempt| Ok::<_, Failure<()>>(attempt.rule())).await.unwrap();
        assert_eq!((&*rule, &*balancer.rule("seen").unwrap().name()), ("other", "other"));
        assert_eq!(balancer.next_start("seen", 1), Ok(NextStart::After(SECOND)));
        assert_eq!(balancer.next_start("chat", 1), Ok(NextStart::Now));
        // What would change the rule for everybody wants its name.
        let unknown = Err(Refused::UnknownRule { name: "chta".into(), nearest: Some("chat".into()) });
        assert_eq!([balancer.pause("chta"), balancer.resume("chta")], [unknown.clone(), unknown.clone()]);
        assert_eq!(balancer.hold(Target::rule("chta"), SECOND), unknown);
        assert!(balancer.set_limit("chta", 1, &[Quota::per_second(2)]).is_err());
        // Other rules may have another one, or none.
        balancer.replace_rules("default_rule = 'chat'\n[rules]\nchat = {}".parse().unwrap());
        assert_eq!(&*balancer.rule("seen").unwrap().name(), "chat");
        balancer.replace_rules("[rules]\nchat = {}".parse().unwrap());
        assert_eq!(balancer.rule("chta").map(drop), unknown);
    }
}
