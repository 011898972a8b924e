//! A plain Bot API client, as a bot would have it without any limiter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Bot {
    http: reqwest::Client,
    send_message: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("too many requests: retry after {retry_after:?}")]
    TooManyRequests { retry_after: Duration },
    #[error("the server refused the message: {description} ({code})")]
    Refused { code: u16, description: String },
    #[error(transparent)]
    Http(#[from] reqwest::Error),
}

#[derive(Serialize)]
struct SendMessage<'a> {
    chat_id: i64,
    text: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    result: Option<Message>,
    #[serde(default)]
    error_code: u16,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize)]
struct Message {
    message_id: i64,
}

#[derive(Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl Bot {
    pub(crate) fn new(server: &str, token: &str) -> reqwest::Result<Self> {
        // A proxy of the environment must not come between the client and the loopback.
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { http, send_message: format!("{server}/bot{token}/sendMessage") })
    }

    /// The id of the message that was sent.
    pub(crate) async fn send(&self, chat_id: i64, text: &str) -> Result<i64, ApiError> {
        let request = self.http.post(&self.send_message).json(&SendMessage { chat_id, text });
        let answer: Answer = request.send().await?.json().await?;
        match (answer.result, answer.parameters.retry_after) {
            (Some(message), _) => Ok(message.message_id),
            (None, Some(seconds)) => Err(ApiError::TooManyRequests { retry_after: Duration::from_secs(seconds) }),
            (None, None) => Err(ApiError::Refused { code: answer.error_code, description: answer.description }),
        }
    }
}
