//! The stories of `tests/fixtures/header-sequences.jsonl`, at all levels, through the balancer on the paused clock.
//!
//! What could start at an instant is only seen by starting it, so each check goes through its story anew.

#![cfg(all(feature = "tokio", feature = "json"))]

mod responses;

use std::collections::BTreeMap;
use std::time::Duration;

use request_balancer::headers::Dialect;
use request_balancer::{Balancer, NextStart, Outcome, Rules};
use responses::{Response, lines};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, sleep_until};

const STORIES: &str = include_str!("fixtures/header-sequences.jsonl");

/// What was read of a response, with its status.
type Answer = (u16, request_balancer::headers::Observation);

struct Sent {
    answer: oneshot::Sender<Answer>,
    outcome: oneshot::Receiver<&'static str>,
    task: AbortHandle,
}

struct World {
    balancer: Balancer,
    begin: Instant,
    base: f64,
    jumped: f64,
    dialect: String,
    sent: BTreeMap<String, Sent>,
    last: Option<&'static str>,
}

fn span(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1e3).round() as u64)
}

impl World {
    fn new(story: &Value) -> Self {
        let (limit, per) = (&story["rule"]["limit"], &story["rule"]["per_s"]);
        let rules: Rules = format!("[rules]\nread = '{limit}/{per}s'").parse().expect("rules");
        Self {
            balancer: Balancer::new(rules),
            begin: Instant::now(),
            base: story["base_unix"].as_f64().expect("a time"),
            jumped: 0.0,
            dialect: story["dialect"].as_str().expect("a name").to_owned(),
            sent: BTreeMap::new(),
            last: None,
        }
    }

    async fn settle() {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    async fn send(&mut self, name: &str, key: &str) {
        let (answer, answered) = oneshot::channel::<Answer>();
        let (tell, outcome) = oneshot::channel();
        let (balancer, key) = (self.balancer.clone(), key.to_owned());
        let (mut answered, mut tell) = (Some(answered), Some(tell));
        let task = tokio::spawn(async move {
            let request = balancer.request("read", key);
            let run = request.run(move |attempt| {
                let (answered, tell) = (answered.take(), tell.take());
                async move {
                    let Some(answered) = answered else { return Outcome::<(), ()>::Ok(()) };
                    let Ok((status, observation)) = answered.await else { return Ok(()) };
                    let checked = attempt.check_observation(status, &observation);
                    let outcome = if checked.is_ok() { "ok" } else { "429" };
                    tell.map(|tell| tell.send(outcome));
                    checked
                }
            });
            let _answer = run.await;
        });
        Self::settle().await;
        self.sent.insert(name.to_owned(), Sent { answer, outcome, task: task.abort_handle() });
    }

    async fn play(&mut self, event: &Value) {
        let at = event["t"].as_f64().expect("a time");
        sleep_until(self.begin + span(at)).await;
        Self::settle().await;
        self.jumped += event["wall_jump_s"].as_f64().unwrap_or(0.0);
        if let Some(names) = event["send"].as_array() {
            for name in names {
                self.send(name.as_str().expect("a name"), event["key"].as_str().expect("a key")).await;
            }
        }
        if let Some(lost) = event["lost"].as_str() {
            self.sent.remove(lost).expect("sent").task.abort();
            Self::settle().await;
        }
        if let Some(name) = event["recv"].as_str() {
            let response: Response = serde_json::from_value(event.clone()).expect("a response");
            assert!(Dialect::named(&self.dialect).is_some());
            let observation = response.read(self.base + self.jumped + at, &self.dialect);
            let sent = self.sent.remove(name).expect("sent");
            sent.answer.send((response.status, observation)).expect("awaited");
            Self::settle().await;
            self.last = Some(sent.outcome.await.expect("checked"));
            // Whoever was refused gives up, so that nothing but the story's requests starts.
            sent.task.abort();
            Self::settle().await;
        }
    }

    /// What is wrong with the state of a key.
    fn wrong(&self, key: &str, check: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let differences = self.balancer.snapshot().differences;
        let wait = match self.balancer.next_start("read", key).expect("a rule") {
            NextStart::Now => 0.0,
            NextStart::After(span) => span.as_secs_f64(),
            _ => f64::INFINITY,
        };
        let permits = std::iter::from_fn(|| self.balancer.request("read", key).try_acquire().ok());
        let permits: Vec<_> = permits.take(1_000).collect();
        let tokens = permits.len() as f64;
        let number = |name: &str| check[name].as_f64();
        for (name, found, holds) in [
            ("tokens", tokens, number("tokens").is_none_or(|right| tokens == right)),
            ("tokens_max", tokens, number("tokens_max").is_none_or(|most| tokens <= most)),
            ("tokens_min", tokens, number("tokens_min").is_none_or(|least| tokens >= least)),
            ("wait_s", wait, number("wait_s").is_none_or(|right| (wait - right).abs() < 1e-6)),
            ("wait_max_s", wait, number("wait_max_s").is_none_or(|most| wait <= most + 1e-6)),
            ("wait_min_s", wait, number("wait_min_s").is_none_or(|least| wait >= least - 1e-6)),
        ] {
            if !holds {
                wrong.push(format!("{name} is {found}, not {}", check[name]));
            }
        }
        if let Some(right) = check["request"].as_str()
            && self.last != Some(right)
        {
            wrong.push(format!("the request is {:?}, not {right}", self.last));
        }
        if let Some(report) = check.get("report_limit") {
            let told: Vec<_> = differences.iter().map(|known| (known.reported, known.configured)).collect();
            let count = |name: &str| u32::try_from(check[name].as_u64().unwrap_or(0)).expect("a count");
            let right = if report.is_null() { vec![] } else { vec![(count("report_limit"), count("configured"))] };
            if told != right {
                wrong.push(format!("reported {told:?}, not {right:?}"));
            }
        }
        wrong
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn every_check_of_every_story_holds() {
    let (mut wrong, mut checks) = (Vec::new(), 0);
    for story in lines(STORIES) {
        let events = story["events"].as_array().expect("events");
        for (position, check) in events.iter().enumerate().filter(|(_, event)| event.get("check").is_some()) {
            let mut world = World::new(&story);
            for event in &events[..=position] {
                world.play(event).await;
            }
            checks += 1;
            let found = world.wrong(check["key"].as_str().expect("a key"), &check["check"]);
            wrong.extend(found.into_iter().map(|found| format!("{} at {}: {found}", story["id"], check["t"])));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(checks, 47);
}
