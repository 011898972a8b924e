//! Responses of real APIs and what they say: the cases of `tests/fixtures`, one response each.

#![cfg(feature = "json")]

mod responses;

use std::collections::BTreeMap;
use std::time::Duration;

use request_balancer::headers::{Dialect, Observation, ServerScope};
use responses::{Response, lines};
use serde_json::{Value, json};

const CASES: &str = include_str!("fixtures/headers.jsonl");

/// How far a time may be from what a case says, for times that JSON has as binary fractions.
const NEAR: Duration = Duration::from_millis(1);

#[test]
fn every_response_says_what_it_says() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in lines(CASES) {
        count += 1;
        let response: Response = serde_json::from_value(case.clone()).expect("a response");
        let (now, dialect) = (case["now_unix"].as_f64().expect("a time"), case["dialect"].as_str().expect("a name"));
        let observation = response.read(now, dialect);
        let (said, expected) = (said(&observation), &case["expect"]);
        if !same(&said, expected) || json!(observation.throttled()) != case["throttled"] {
            let throttled = observation.throttled();
            wrong.push(format!(
                "{}: read {said}, throttled {throttled}\n    of {case}\n    {observation:?}",
                case["id"]
            ));
        }
    }
    assert_eq!(count, 185);
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_dialect_of_the_cases_comes_with_the_crate() {
    let names: Vec<_> = lines(CASES).map(|case| case["dialect"].as_str().expect("a name").to_owned()).collect();
    let missing: Vec<_> = names.iter().filter(|name| Dialect::named(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn names_mean_the_same_in_any_case_and_order() {
    for case in lines(CASES) {
        let response: Response = serde_json::from_value(case.clone()).expect("a response");
        let (now, dialect) = (case["now_unix"].as_f64().expect("a time"), case["dialect"].as_str().expect("a name"));
        let as_it_is = response.read(now, dialect);
        let headers: BTreeMap<String, String> =
            response.headers.iter().map(|(name, value)| (name.to_uppercase(), value.clone())).collect();
        let shouted = Response { headers, ..response };
        assert_eq!(as_it_is.binding(), shouted.read(now, dialect).binding(), "{}", case["id"]);
        let dialect = Dialect::named(dialect).expect("a dialect");
        let backwards = request_balancer::headers::read(
            shouted.status,
            shouted.headers.iter().rev(),
            shouted.body.as_deref().map(str::as_bytes),
            responses::at(now),
            dialect,
        );
        assert_eq!(as_it_is.binding(), backwards.binding(), "{}", case["id"]);
        assert_eq!(
            (as_it_is.wait(), as_it_is.scope(), as_it_is.throttled()),
            (backwards.wait(), backwards.scope(), backwards.throttled()),
            "{}",
            case["id"]
        );
    }
}

/// What was read, in the words of the cases.
fn said(observation: &Observation) -> Value {
    let mut said = json!({});
    if let Some(window) = observation.binding() {
        if let Some(limit) = window.limit {
            said["limit"] = json!(limit);
        }
        if let Some(remaining) = window.remaining {
            said["remaining"] = json!(remaining);
        }
        if let Some(reset) = window.reset_after() {
            said["reset_after_s"] = json!(reset.as_secs_f64());
        }
    }
    if let Some(wait) = observation.wait() {
        said["retry_after_s"] = json!(wait.as_secs_f64());
    }
    if let Some(scope) = observation.scope() {
        said["scope"] = json!(match scope {
            ServerScope::Key => "key",
            ServerScope::Route => "route",
            ServerScope::Global => "global",
        });
    }
    said
}

fn same(said: &Value, expected: &Value) -> bool {
    let (said, expected) = (said.as_object().expect("a table"), expected.as_object().expect("a table"));
    said.len() == expected.len()
        && said.iter().all(|(name, value)| {
            let Some(expected) = expected.get(name) else { return false };
            match (value.as_f64(), expected.as_f64()) {
                (Some(value), Some(expected)) => (value - expected).abs() <= NEAR.as_secs_f64(),
                _ => value == expected,
            }
        })
}
