//! The one method of the Bot API, with the network on the way to it simulated. Knows nothing of sockets.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::flood::FloodControl;

/// What the server does after counting a message, before its answer is back: the shortest time any call takes.
pub(crate) const ANSWER_TIME: Duration = Duration::from_millis(20);

const BODY_LIMIT: usize = 64 * 1024;

/// Everything about the server and the way to it that the client cannot foresee.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) rng: fastrand::Rng,
    /// A message takes anything up to this to reach the server.
    pub(crate) jitter: Duration,
    /// The share of messages refused although every window has room.
    pub(crate) unprovoked: f64,
}

impl Conditions {
    /// Up to 30 ms on the way: the 50 ms margin of the rules covers that and what a busy machine adds. One message in 200
    /// is refused for no reason.
    pub(crate) fn usual(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), jitter: Duration::from_millis(30), unprovoked: 1.0 / 200.0 }
    }

    /// What one message meets. Drawn as messages come in, so a seed always refuses the same ones in the line.
    fn draw(&mut self) -> Luck {
        Luck { way_there: self.jitter.mul_f64(self.rng.f64()), refused: self.rng.f64() < self.unprovoked }
    }
}

#[derive(Clone, Copy, Debug)]
struct Luck {
    way_there: Duration,
    refused: bool,
}

/// What the server has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Refused because a window was full, or because the chat had been told to wait.
    pub(crate) provoked: usize,
    /// Refused for no reason of the client's.
    pub(crate) unprovoked: usize,
    /// When each accepted message was counted, by message id.
    pub(crate) counted: HashMap<i64, Instant>,
}

#[derive(Debug)]
pub(crate) struct Api {
    token: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flood: FloodControl,
    conditions: Conditions,
    last_message_id: i64,
    tally: Tally,
}

#[derive(Deserialize)]
struct SendMessage {
    chat_id: i64,
    text: String,
}

impl Api {
    pub(crate) fn new(token: &str, conditions: Conditions) -> Self {
        let state = State { flood: FloodControl::new(), conditions, last_message_id: 0, tally: Tally::default() };
        Self { token: token.to_owned(), state: Mutex::new(state) }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state().tally.clone()
    }

    pub(crate) fn provoked(&self) -> usize {
        self.state().tally.provoked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let answer = match self.read(request).await {
            Ok(message) => self.send_message(message).await,
            Err(refusal) => Err(refusal),
        };
        let (status, body) = match answer {
            Ok(result) => (StatusCode::OK, json!({ "ok": true, "result": result })),
            Err(refusal) => (refusal.status, refusal.into_body()),
        };
        let mut response = Response::new(Full::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    async fn read<B>(&self, request: Request<B>) -> Result<SendMessage, Refusal>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (token, method) = request
            .uri()
            .path()
            .strip_prefix("/bot")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "Not Found"))?;
        if token != self.token {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized"));
        }
        if method != "sendMessage" || request.method() != Method::POST {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "Not Found"));
        }
        let bad_request = |why: String| Refusal::new(StatusCode::BAD_REQUEST, format!("Bad Request: {why}"));
        let body =
            Limited::new(request.into_body(), BODY_LIMIT).collect().await.map_err(|e| bad_request(e.to_string()))?;
        let message: SendMessage =
            serde_json::from_slice(&body.to_bytes()).map_err(|error| bad_request(error.to_string()))?;
        if message.text.is_empty() {
            return Err(bad_request("message text is empty".to_owned()));
        }
        Ok(message)
    }

    async fn send_message(&self, SendMessage { chat_id, text }: SendMessage) -> Result<Value, Refusal> {
        let luck = self.state().conditions.draw();
        sleep(luck.way_there).await;
        let counted = self.state().count(chat_id, luck, Instant::now());
        sleep(ANSWER_TIME).await;
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let message_id = counted?;
        Ok(json!({ "message_id": message_id, "chat": { "id": chat_id }, "date": date, "text": text }))
    }
}

impl State {
    /// The id of the message if it is accepted.
    ///
    /// An unprovoked refusal takes no place in the windows, as the message was not delivered, but it is a real order:
    /// until the time it names the chat is closed, and a message that comes sooner is refused by its own fault.
    fn count(&mut self, chat: i64, luck: Luck, now: Instant) -> Result<i64, Refusal> {
        let opens_in = self.flood.opens_in(chat, now);
        if opens_in > Duration::ZERO {
            self.tally.provoked += 1;
            return Err(Refusal::too_many_requests(opens_in));
        }
        if luck.refused {
            let wait = Duration::from_secs(1);
            self.tally.unprovoked += 1;
            self.flood.silence(chat, now + wait);
            return Err(Refusal::too_many_requests(wait));
        }
        self.flood.accept(chat, now);
        self.last_message_id += 1;
        self.tally.counted.insert(self.last_message_id, now);
        Ok(self.last_message_id)
    }
}

#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    description: String,
    retry_after: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, description: impl Into<String>) -> Self {
        Self { status, description: description.into(), retry_after: None }
    }

    /// The Bot API speaks in whole seconds and rounds up.
    fn too_many_requests(wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            description: format!("Too Many Requests: retry after {seconds}"),
            retry_after: Some(seconds),
        }
    }

    fn into_body(self) -> Value {
        let mut body = json!({ "ok": false, "error_code": self.status.as_u16(), "description": self.description });
        if let Some(seconds) = self.retry_after {
            body["parameters"] = json!({ "retry_after": seconds });
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    fn api(unprovoked: f64) -> Api {
        Api::new("1:a", Conditions { unprovoked, ..Conditions::usual(1) })
    }

    async fn call(api: &Api, method: Method, path: &str, body: &str) -> (u16, Value) {
        let request =
            Request::builder().method(method).uri(path).body(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        let response = api.answer(request.unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn send(api: &Api, chat: i64) -> (u16, Value) {
        let body = json!({ "chat_id": chat, "text": "hello" }).to_string();
        call(api, Method::POST, "/bot1:a/sendMessage", &body).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_answered_as_the_bot_api_answers() {
        let (status, mut body) = send(&api(0.0), 7).await;
        assert!(body["result"]["date"].take().is_u64());
        assert_eq!(status, 200);
        let result = json!({ "message_id": 1, "chat": { "id": 7 }, "date": null, "text": "hello" });
        assert_eq!(body, json!({ "ok": true, "result": result }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_thirty_first_of_one_second_is_refused() {
        let api = api(0.0);
        let answers = join_all((0..31).map(|chat| send(&api, chat))).await;
        let refused: Vec<_> = answers.into_iter().filter(|(status, _)| *status != 200).collect();
        let body = json!({
            "ok": false,
            "error_code": 429,
            "description": "Too Many Requests: retry after 1",
            "parameters": { "retry_after": 1 },
        });
        assert_eq!(refused, [(429, body)]);
        assert_eq!(api.state().tally.provoked, 1);
        assert_eq!(api.state().tally.counted.len(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_named_is_long_enough() {
        let api = api(0.0);
        assert_eq!(send(&api, 7).await.0, 200);
        let (status, body) = send(&api, 7).await;
        assert_eq!(status, 429);
        sleep(Duration::from_secs(body["parameters"]["retry_after"].as_u64().unwrap())).await;
        assert_eq!(send(&api, 7).await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unprovoked_refusal_closes_its_chat_and_no_window() {
        let api = api(1.0);
        assert_eq!(send(&api, 7).await.0, 429);
        assert_eq!(api.state().tally.unprovoked, 1);

        api.state().conditions.unprovoked = 0.0;
        assert_eq!(send(&api, 7).await.0, 429, "the chat was told to wait");
        assert_eq!(api.state().tally.provoked, 1);
        assert_eq!(send(&api, 8).await.0, 200);

        sleep(Duration::from_secs(1)).await;
        assert_eq!(send(&api, 7).await.0, 200);
    }

    #[tokio::test]
    async fn what_it_does_not_understand_it_says() {
        let api = api(0.0);
        let message = r#"{"chat_id":7,"text":"hello"}"#;
        for (method, path, body, status, description) in [
            (Method::POST, "/", message, 404, "Not Found"),
            (Method::POST, "/bot1:a/sendSmoke", message, 404, "Not Found"),
            (Method::GET, "/bot1:a/sendMessage", message, 404, "Not Found"),
            (Method::POST, "/bot1:b/sendMessage", message, 401, "Unauthorized"),
            (
                Method::POST,
                "/bot1:a/sendMessage",
                r#"{"chat_id":7,"text":""}"#,
                400,
                "Bad Request: message text is empty",
            ),
            (
                Method::POST,
                "/bot1:a/sendMessage",
                "{",
                400,
                "Bad Request: EOF while parsing an object at line 1 column 1",
            ),
        ] {
            let expected = json!({ "ok": false, "error_code": status, "description": description });
            assert_eq!(call(&api, method, path, body).await, (status, expected));
        }
    }
}
