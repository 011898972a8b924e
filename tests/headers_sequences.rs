//! The answers in the stories of `tests/fixtures/header-sequences.jsonl`, each read by itself.
//!
//! What a story checks between its answers, such as how many may start, is for what keeps state; here is what it has to
//! go by.

#![cfg(feature = "json")]

mod responses;

use std::fmt::Write as _;

use request_balancer::headers::{Observation, Reset, ServerScope};
use responses::{Response, lines};

const STORIES: &str = include_str!("fixtures/header-sequences.jsonl");

/// Each story, and what its answers say one after the other.
const READ: &[(&str, &[&str])] = &[
    ("seq-narrow", &["4/10 for 30s, +1s"]),
    ("seq-never-widen", &["99/100 for 60s, +1s"]),
    ("seq-out-of-order", &["3/10 for 50s, +1s", "4/10 for 50s, +1s"]),
    (
        "seq-in-flight",
        &[
            "5/20 for 40s, +1s",
            "4/20 for 40s, +1s",
            "3/20 for 40s, +1s",
            "2/20 for 40s, +1s",
            "1/20 for 40s, +1s",
            "0/20 for 40s, +1s",
        ],
    ),
    ("seq-penalty-kept", &["refused wait 30s", "9/10 for 5s, +1s"]),
    ("seq-penalty-second-longer", &["refused wait 5s", "refused wait 30s"]),
    ("seq-penalty-zero-after-long", &["refused wait 30s", "refused wait 0ns"]),
    ("seq-retry-after-vs-reset", &["0/10 for 60s, +1s refused wait 5s"]),
    ("seq-discord-reset-jitter", &["0/5 for 2s, +1ms", "0/5 for 1.88s, +1ms"]),
    ("seq-late-old-window", &["0/5 until now"]),
    ("seq-reset-early", &["3/5000 for 39.9s, +1s", "58/5000 for 38.9s, +1s"]),
    ("seq-limit-mismatch-up", &["98/100 for 60s, +1s"]),
    ("seq-garbage", &[""]),
    ("seq-scope-route", &["0/5 for 5s, +1ms refused wait 4.57s of the route"]),
    ("seq-scope-global", &["refused wait 4.57s of all"]),
    ("seq-wall-back", &["0/10 for 30s, +1s"]),
    ("seq-skew-date", &["0/10 for 30s, +1s"]),
    ("seq-429-bare", &["refused"]),
    ("seq-429-remaining-positive", &["5/10 for 30s, +1s refused"]),
    ("seq-sentinel", &[""]),
    ("seq-wildberries-429", &["?/10 for 29s, +1s refused wait 2s (full)"]),
    ("seq-reset-zero", &["0/10 for 0ns, +1s"]),
    ("seq-headers-stop", &["4/10 for 50s, +1s", ""]),
    ("seq-lost-request", &["2/10 for 50s, +1s"]),
    ("seq-two-windows-expiry", &["3/60 for 10s, +1s, 7/1000 for 3600s, +1s"]),
    ("seq-502", &["4/10 for 50s, +1s", ""]),
    ("seq-202-polling", &[""]),
    ("seq-huge", &["refused wait 79892s"]),
    ("seq-slow-200-after-penalty", &["refused wait 3s", "8/10 for 55s, +1s"]),
];

#[test]
fn every_answer_says_what_its_story_goes_by() {
    let mut wrong = Vec::new();
    let mut told = READ.iter();
    for story in lines(STORIES) {
        let mut read = Vec::new();
        let base = story["base_unix"].as_f64().expect("a time");
        let mut jumped = 0.0;
        for event in story["events"].as_array().expect("events") {
            jumped += event["wall_jump_s"].as_f64().unwrap_or(0.0);
            if event["recv"].is_null() {
                continue;
            }
            let response: Response = serde_json::from_value(event.clone()).expect("a response");
            let now = base + jumped + event["t"].as_f64().expect("a time");
            read.push(in_words(&response.read(now, story["dialect"].as_str().expect("a name"))));
        }
        let id = story["id"].as_str().expect("an id");
        if told.next().is_none_or(|(name, answers)| *name != id || *answers != read) {
            wrong.push(format!("(\"{id}\", &{read:?}),"));
        }
    }
    assert!(wrong.is_empty() && told.next().is_none(), "read:\n{}", wrong.join("\n"));
}

/// `remaining/limit until the reset`, window by window, then what else was said.
fn in_words(observation: &Observation) -> String {
    let mut words = String::new();
    let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    for window in observation.windows() {
        let gap = if words.is_empty() { "" } else { ", " };
        write!(words, "{gap}{}/{}", number(window.remaining), number(window.limit)).expect("writing to a string");
        match window.reset {
            Some(Reset::In { after, grain }) => write!(words, " for {after:?}, +{grain:?}"),
            Some(Reset::Over) => write!(words, " until now"),
            None => Ok(()),
        }
        .expect("writing to a string");
    }
    if observation.throttled() {
        words.push_str(" refused");
    }
    if let Some(wait) = observation.wait() {
        write!(words, " wait {wait:?}").expect("writing to a string");
    }
    match observation.scope() {
        Some(ServerScope::Key) => words.push_str(" of the key"),
        Some(ServerScope::Route) => words.push_str(" of the route"),
        Some(ServerScope::Global) => words.push_str(" of all"),
        None => {}
    }
    if observation.resets_are_full_refills() {
        words.push_str(" (full)");
    }
    words.trim_start().to_owned()
}
