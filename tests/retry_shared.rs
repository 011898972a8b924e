//! What requests share when they fail: waits that grow for a scope, a budget of retries. On the paused clock.
#![cfg(feature = "tokio")]

mod field;

use field::{Answer, End, Field, Script};
use request_balancer::{Error, Failure, Refused, Retry, Rules, Scope};

const RULES: &str = "[rules]\nr = {}\ns = {}\n[retry]\nbare_wait = '1s'\nattempts = 2\njitter = 0";

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_number_grows_from_request_to_request() {
    let field = Field::new(RULES);
    for name in ["a", "b", "c"] {
        let answer = field.play("r", "K", name, Script::ends([End::Bare])).await.unwrap();
        assert_eq!(answer, Err(Error::GaveUp { reason: Refused::Attempts, attempts: 2, last: None }));
    }
    // Each ends with its second attempt, and the next waits behind the hold that this one left.
    field.diary.assert(&[("a", 0), ("a", 1_000), ("b", 3_000), ("b", 7_000), ("c", 15_000), ("c", 31_000)]);
    // No wait is longer than the longest delay, 30 s.
    field.all_ok([field.play("s", "K", "d", Script::ends([End::Bare, End::Ok]))]).await;
    assert_eq!(field.starts("d"), [61_000, 91_000]);
    // Another key knows nothing of it, and after a success this one neither.
    field.all_ok([field.play("r", "L", "e", Script::ends([End::Bare, End::Ok]))]).await;
    assert_eq!(field.starts("e"), [91_000, 92_000]);
    field.all_ok([field.play("r", "K", "f", Script::ends([End::Bare, End::Ok]))]).await;
    assert_eq!(field.starts("f"), [92_000, 93_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn each_scope_counts_for_itself() {
    let field = Field::new(RULES);
    let bare = |rule: &'static str, key: &'static str, scope: Scope, name: &'static str| {
        let field = field.clone();
        async move {
            field
                .balancer
                .run(rule, key, async |attempt| {
                    field.diary.note(name);
                    if attempt.number() == 1 {
                        Err(attempt.retry(None).hold(scope))
                    } else {
                        Err(Failure::permanent("no"))
                    }
                })
                .await
        }
    };
    let no: Answer = Err(Error::Failed("no"));
    // A row of the rule, over two keys; a failure of another kind does not end it.
    assert_eq!(bare("r", "A", Scope::Rule, "rule").await, no);
    assert_eq!(bare("r", "B", Scope::Rule, "rule").await, no);
    assert_eq!(field.starts("rule"), [0, 1_000, 1_000, 3_000]);
    // The other rule has none of it, nor the key, nor a request by itself.
    assert_eq!(bare("s", "A", Scope::Rule, "other").await, no);
    assert_eq!(bare("r", "A", Scope::Key, "key").await, no);
    assert_eq!(bare("r", "A", Scope::Request, "request").await, no);
    assert_eq!(bare("r", "A", Scope::Request, "request").await, no);
    assert_eq!((field.starts("other"), field.starts("key")), (vec![3_000, 4_000], vec![4_000, 5_000]));
    assert_eq!(field.starts("request"), [5_000, 6_000, 6_000, 7_000]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn permits_count_too() {
    let field = Field::new(RULES);
    let acquire = || field.balancer.request("r", "K").acquire();
    let permit = acquire().await.unwrap().retry(None).await.unwrap();
    assert_eq!(field.now(), 1_000);
    assert_eq!(permit.retry(None).await.unwrap_err(), Refused::Attempts);
    // Behind the hold of 2 s.
    let permit = acquire().await.unwrap();
    assert_eq!(field.now(), 3_000);
    let permit = permit.retry(None).await.unwrap();
    assert_eq!(field.now(), 7_000);
    // Success ends the row.
    permit.succeed();
    let _permit = acquire().await.unwrap().retry(None).await.unwrap();
    assert_eq!(field.now(), 8_000);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_budget_no_failure_is_followed_by_an_attempt() {
    let field = Field::new("[rules]\nr = {}\n[retry]\nattempts = 100\nbackoff = '0s'\njitter = 0\nbudget = 0.1");
    // Ten are free; eleven starts earn one more, which starts too.
    let storm = field.play("r", "A", "storm", Script::ends([End::Transient])).await.unwrap();
    let reason = Refused::RetryBudget;
    assert_eq!(storm, Err(Error::GaveUp { reason: reason.clone(), attempts: 12, last: Some("transient") }));
    assert_eq!(reason.to_string(), "retries are a larger share of all starts than the rules allow");
    // Everybody else gets one attempt now, and keeps the server's waits.
    let next = field.play("r", "B", "next", Script::ends([End::Transient])).await.unwrap();
    assert_eq!(next, Err(Error::GaveUp { reason: reason.clone(), attempts: 1, last: Some("transient") }));
    let waits = field.play("r", "C", "waits", Script::ends([End::Retry(1_000), End::Retry(1_000), End::Ok]));
    field.all_ok([waits]).await;
    assert_eq!(field.starts("waits"), [0, 1_000, 2_000]);
    // Four starts since the last retry earned, and the one that follows: six more, and the seventh failure may retry.
    field.all_ok(field.go_many("r", "D", "ok", 6)).await;
    let answer = field.play("r", "E", "again", Script::ends([End::Transient, End::Ok])).await.unwrap();
    assert_eq!(answer, Ok(2));
    let answer = field.play("r", "E", "never", Script::ends([End::Transient, End::Ok])).await.unwrap();
    assert_eq!(answer, Err(Error::GaveUp { reason, attempts: 1, last: Some("transient") }));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn a_slow_down_without_a_number_takes_of_the_budget_and_holds_all_the_same() {
    let field = Field::new(
        "[rules]\nr = {}\n[retry]\nattempts = 100\nbackoff = '0s'\nbare_wait = '1s'\nmax_delay = '1s'\nbudget = '1/1000'",
    );
    let storm = field.play("r", "A", "storm", Script::ends([End::Bare])).await.unwrap();
    assert_eq!(storm, Err(Error::GaveUp { reason: Refused::RetryBudget, attempts: 11, last: None }));
    assert_eq!(field.now(), 10_000);
    field.all_ok([field.go("r", "A", "next")]).await;
    assert_eq!(field.now(), 11_000);
}

#[tokio::test(start_paused = true)]
async fn timeouts_take_of_the_budget_and_other_rules_change_it() {
    let rules = |budget: &str| {
        format!("[rules]\nr = {{ attempt_timeout = '1s' }}\n[retry]\nattempts = 100\nbackoff = '0s'\n{budget}")
    };
    let field = Field::new(&rules("budget = '1/1000'"));
    let stuck = |most| {
        let request = field.balancer.request("r", "A").idempotent().retry(Retry::new().attempts(most));
        request.run(|_| std::future::pending::<Result<(), Failure<()>>>())
    };
    let spent = Err(Error::GaveUp { reason: Refused::RetryBudget, attempts: 11, last: None });
    assert_eq!(stuck(100).await, spent);
    let replace = |budget: &str| field.balancer.replace_rules(rules(budget).parse::<Rules>().unwrap());
    // What is left is none of ten, under another share, too.
    replace("budget = '1/2000'");
    assert_eq!(stuck(100).await, Err(Error::GaveUp { reason: Refused::RetryBudget, attempts: 1, last: None }));
    replace("");
    assert_eq!(stuck(40).await, Err(Error::GaveUp { reason: Refused::TimedOut, attempts: 40, last: None }));
    replace("budget = '1/2000'");
    assert_eq!(stuck(100).await, spent);
    assert_eq!(field.now(), 63_000);
}
