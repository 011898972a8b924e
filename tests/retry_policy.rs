//! Retry policies by themselves, without a balancer: presets, and what is said in a file and in code.

use std::time::Duration;

use request_balancer::{
    Decision, FailureKind, GiveUp, Nanos, Retry, RetryPolicy, Rule, Rules, Scope, Spent, WaitOrder,
};

const SECOND: Duration = Duration::from_secs(1);

fn of_rule(text: &str) -> RetryPolicy {
    text.parse::<Rules>().expect("the test's rules are right").rule("r").expect("a rule").retry().clone()
}

#[test]
fn presets_are_the_same_in_a_file_for_a_rule_and_in_code() {
    let presets = [
        ("none", Retry::none(), (1, 1_000, 30_000)),
        ("aggressive", Retry::aggressive(), (5, 250, 5_000)),
        ("patient", Retry::patient(), (4, 3_000, 60_000)),
    ];
    for (name, preset, (attempts, backoff, max_delay)) in presets {
        let policy = preset.policy();
        let expected = RetryPolicy {
            attempts,
            backoff: Nanos::from_millis(backoff),
            max_delay: Nanos::from_millis(max_delay),
            ..RetryPolicy::default()
        };
        assert_eq!(policy, expected, "{name}");
        assert_eq!(of_rule(&format!("retry = '{name}'\n[rules]\nr = {{}}")), policy, "{name}");
        assert_eq!(of_rule(&format!("[rules]\nr = {{ retry = '{name}' }}")), policy, "{name}");
        let built = Rules::builder().rule("r", Rule::new().retry(preset)).build().unwrap();
        assert_eq!(*built.rule("r").unwrap().retry(), policy, "{name}");
    }
}

#[test]
fn a_rule_says_what_differs_from_the_file() {
    let policy = of_rule(
        "[rules]\nr = { retry = { order = 'server', ceiling = false } }\n[retry]\nattempts = 7\nhold = 'rule'\norder = \
         'policy'\nceiling = '9s'\nbudget = 0.2",
    );
    let expected = RetryPolicy {
        attempts: 7,
        hold: Scope::Rule,
        order: WaitOrder::Server,
        ceiling: None,
        ..RetryPolicy::default()
    };
    assert_eq!(policy, expected);
}

/// The waits that follow these failures, in seconds; an end is the reason for it.
fn story(policy: &RetryPolicy, failures: &[FailureKind], idempotent: bool) -> Vec<Result<u64, GiveUp>> {
    let mut spent = Spent::default();
    failures
        .iter()
        .map(|failure| match policy.decide(&mut spent, *failure, idempotent, 7) {
            Decision::BackOff(wait) | Decision::Retry { wait } => Ok(Duration::from(wait).as_secs()),
            Decision::GiveUp { reason, .. } => Err(reason),
        })
        .collect()
}

#[test]
fn a_timeout_is_repeated_like_any_other_failure_where_that_does_no_harm() {
    let policy = Retry::new().jitter(0.0).policy();
    assert_eq!(story(&policy, &[FailureKind::TimedOut], false), [Err(GiveUp::TimedOut)]);
    let failures = [FailureKind::TimedOut, FailureKind::Transient, FailureKind::TimedOut];
    assert_eq!(story(&policy, &failures, true), [Ok(1), Ok(2), Err(GiveUp::TimedOut)]);
    // The last one gives the reason.
    let failures = [FailureKind::TimedOut, FailureKind::TimedOut, FailureKind::Ambiguous];
    assert_eq!(story(&policy, &failures, true), [Ok(1), Ok(2), Err(GiveUp::Attempts)]);
}

#[test]
fn waits_without_a_number_stop_growing_at_the_longest_delay() {
    let policy = Retry::new().bare_wait(SECOND).max_delay(10 * SECOND).attempts(9).policy();
    let bare = FailureKind::Retry { after: None };
    assert_eq!(story(&policy, &[bare; 6], false), [1, 2, 4, 8, 10, 10].map(Ok));
    // What others of the scope were told counts, if the owner says so.
    let mut spent = Spent { bare: 3, ..Spent::default() };
    assert_eq!(policy.decide(&mut spent, bare, false, 7), Decision::Retry { wait: Nanos::from_secs(8) });
    assert_eq!((spent.bare, spent.failures), (4, 1));
}
