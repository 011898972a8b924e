//! Why a request does not start, in words.
#![cfg(feature = "tokio")]

mod field;

use std::future::ready;
use std::pin::pin;

use field::life::poll_once;
use field::{End, Field, Script, ms, settle};
use request_balancer::{Failure, Reason, Refused, Standing, Target, Ticket};

fn explained(field: &Field, rule: &str, key: i64) -> String {
    field.balancer.explain(rule, key).unwrap().to_string()
}

fn submit(field: &Field, rule: &str, key: i64) -> Ticket<(), ()> {
    field.balancer.request(rule, key).submit(|_| ready(Ok::<_, Failure<()>>(()))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_limit_speaks_for_itself() {
    let field = Field::new(
        "units = ['tokens']\noverall = ['2/1s', '1000/60s tokens']\nper_key = '1/500ms'\nconcurrency = 9\n\
         [rules.a]\nper_key = '5/10s burst 3'\noverall = '4/2s smooth'\nkey_concurrency = 1\nunder = ['overall', 'per_key', 'account']\n\
         [limits.account]\nper_key = '7/1h'\n[lanes.1]\nname = 'top'\noverall = '8/1s'",
    );
    let fresh = "rule `a`, key 1: a new request; `rules.a.per_key` burst 3, one in 2s has room; \
                 `rules.a.key_concurrency` 1 has room; `per_key` 1/500ms has room; `limits.account.per_key` 7/3600s has room; \
                 `overall` 2/1s has room; `concurrency` 9 has room; `rules.a.overall` 4/2s has room; \
                 `rules.a.overall` one in 500ms has room; `lanes.top.overall` 8/1s has room";
    assert_eq!(explained(&field, "a", 1), fresh);
    assert!(field.balancer.explain("a", 1).unwrap().is_clear());
    let permit = field.balancer.request("a", 1).acquire().await.unwrap();
    let busy = "rule `a`, key 1: a new request; `rules.a.per_key` burst 3, one in 2s has room; \
                `rules.a.key_concurrency` 1 has room when a running attempt ends; `per_key` 1/500ms has room in 500ms; \
                `limits.account.per_key` 7/3600s has room; `overall` 2/1s has room; `concurrency` 9 has room; \
                `rules.a.overall` 4/2s has room; `rules.a.overall` one in 500ms has room in 500ms; \
                `lanes.top.overall` 8/1s has room";
    assert_eq!(explained(&field, "a", 1), busy);
    assert!(!field.balancer.explain("a", 1).unwrap().is_clear());
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_new_request_learns_of_everything_in_its_way() {
    let field = Field::new("[rules]\nr = '1/1s'");
    field.all_ok([field.go("r", 1, "first")]).await;
    let waiting: Vec<_> = (0..3).map(|_| submit(&field, "r", 1)).collect();
    field.balancer.hold(Target::key(1), ms(5_000)).unwrap();
    field.balancer.hold(Target::queue("r", 1), ms(4_000)).unwrap();
    field.balancer.hold(Target::rule("r"), ms(3_000)).unwrap();
    field.balancer.hold(Target::overall(), ms(2_000)).unwrap();
    field.balancer.pause("r").unwrap();
    assert_eq!(
        explained(&field, "r", 1),
        "rule `r`, key 1: a new request; 3 ahead in its queue; the rule is paused; everything is held for 2s (asked); \
         the rule is held for 3s (asked); the key is held for 5s (asked); the queue is held for 4s (asked); \
         `rules.r.per_key` 1/1s has room in 1s"
    );
    drop(waiting);
    field.balancer.close(ms(0)).await;
    assert!(field.balancer.explain("r", 1).unwrap().reasons.contains(&Reason::Closed));
    assert!(matches!(field.balancer.explain("x", 1), Err(Refused::UnknownRule { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_is_the_cause_of_its_hold() {
    let field = Field::new("[rules]\nr = {}");
    let _sent_away = field.play("r", 42, "a", Script::ends([End::Retry(5_000), End::Ok]));
    settle().await;
    assert_eq!(
        explained(&field, "r", 42),
        "rule `r`, key 42: a new request; 1 ahead in its queue; the key is held for 5s (retry)"
    );
    // The longer one stands.
    field.balancer.hold(Target::key(42), ms(7_000)).unwrap();
    assert!(explained(&field, "r", 42).ends_with("; the key is held for 7s (asked)"));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_says_where_it_stands() {
    let field = Field::new("[rules]\nr = '1/1s'");
    field.all_ok([field.go("r", 1, "first")]).await;
    let script = Script { takes: 100, ends: vec![End::Transient, End::Ok] };
    let ticket = field.balancer.request("r", 1).submit(field.script("a", script)).unwrap();
    let behind = submit(&field, "r", 1);
    settle().await;
    assert_eq!(
        behind.why().to_string(),
        "rule `r`, key 1: waits in its queue; 1 ahead in its queue; `rules.r.per_key` 1/1s has room in 1s"
    );
    assert_eq!((ticket.why().standing, ticket.why().ahead), (Standing::Waiting, 0));
    field.at(1_050).await;
    assert_eq!(ticket.why().to_string(), "rule `r`, key 1: its attempt runs");
    field.at(1_150).await;
    let Standing::SteppedOut(left) = ticket.why().standing else { panic!("{:?}", ticket.why()) };
    assert!(!left.is_zero() && left <= ms(1_000), "{left:?}");
    let mut ticket = ticket;
    assert_eq!((&mut ticket).await, Ok(2));
    assert_eq!(ticket.why().to_string(), "rule `r`, key 1: is over");
    // A ticket that is done keeps nothing alive.
    drop(behind);
    drop(field);
    settle().await;
    assert_eq!(ticket.why().standing, Standing::Over);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_others_may_do_first_is_said() {
    let field = Field::new("overall = '1/1s'\n[rules]\nurgent = {}\nbulk = { priority = 2 }");
    field.all_ok([field.go("urgent", 0, "first")]).await;
    let waiting: Vec<_> = (1..=3).map(|key| submit(&field, "urgent", key)).collect();
    settle().await;
    assert!(explained(&field, "bulk", 9).contains("; the turns of 3 other queues come first; "));
    assert_eq!(waiting[1].why().turns, 1);
    // A paced lane has its own time.
    let bulk = submit(&field, "bulk", 9);
    let reasons = |ticket: &Ticket<(), ()>| ticket.why().reasons;
    field.at(1_000).await;
    assert_eq!(reasons(&bulk), []);
    drop(waiting);
    bulk.await.unwrap();
    assert!(matches!(field.balancer.explain("bulk", 10).unwrap().reasons[..], [Reason::Paced(_)]));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_take_up_its_grant_is_told_so() {
    let field = Field::new("[rules]\nr = '1/1s'");
    field.balancer.hold(Target::key(1), ms(1_000)).unwrap();
    let mut forgotten = pin!(field.balancer.run("r", 1, |_| ready(Ok::<_, Failure<()>>(()))));
    assert!(poll_once(forgotten.as_mut()).is_pending());
    field.at(1_500).await;
    let explanation = field.balancer.explain("r", 1).unwrap();
    assert_eq!(explanation.ahead, 1);
    assert!(explanation.to_string().ends_with("`rules.r.per_key` 1/1s has room in 1s"), "{explanation}");
}
