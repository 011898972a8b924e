//! What follows a failure, in plain words.

use std::time::Duration;

use request_balancer::{Nanos, RetryPolicy, Scope, WaitOrder};

/// A retry policy in a few words.
pub(crate) fn in_words(policy: &RetryPolicy) -> String {
    let RetryPolicy { attempts, jitter, waits, ceiling, total_wait, hold, order, .. } = policy;
    let [backoff, max_delay] = [policy.backoff, policy.max_delay].map(Duration::from);
    let [min_wait, bare_wait] = [policy.min_wait, policy.bare_wait].map(Duration::from);
    let mut said = vec![match attempts {
        1 => "it is final".to_owned(),
        attempts => format!(
            "up to {attempts} starts, {backoff:?} between them, doubling up to {max_delay:?}, {:.0} % of it at random",
            jitter * 100.0
        ),
    }];
    let most =
        |most: &Option<Nanos>| most.map_or_else(|| "any time".to_owned(), |most| format!("{:?}", Duration::from(most)));
    said.push(format!(
        "sent away by the server up to {waits} times, for {min_wait:?} to {} each, {} in sum, {bare_wait:?} where it names \
         no time",
        most(ceiling),
        most(total_wait)
    ));
    said.push(match order {
        WaitOrder::Max => "the longer of its wait and the own delay counts".to_owned(),
        WaitOrder::Server => "its wait counts, whatever the own delay".to_owned(),
        WaitOrder::Policy => "the own delay counts, whatever its wait".to_owned(),
    });
    said.push(format!("meanwhile {} waits", held(*hold)));
    said.join("; ")
}

const fn held(scope: Scope) -> &'static str {
    match scope {
        Scope::Request => "the call alone",
        Scope::Queue => "the key under this rule",
        Scope::Key => "the key",
        Scope::Rule => "the rule",
        Scope::Overall => "everything",
        Scope::Endpoint => "the endpoint, or without a pool the key",
    }
}
