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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::{api::Conditions, server::Server};

    async fn send(conditions: Conditions, token: &str, text: &str) -> Result<i64, ApiError> {
        let server = Server::start("1:a", conditions).await.unwrap();
        let sent = Bot::new(&server.url(), token).unwrap().send(7, text).await;
        server.stop().await;
        sent
    }

    fn refusing(unprovoked: f64) -> Conditions {
        Conditions { unprovoked, ..Conditions::usual(1) }
    }

    #[tokio::test]
    async fn real_clock_every_answer_of_the_server_is_understood() {
        assert_eq!(send(refusing(0.0), "1:a", "hello").await.unwrap(), 1);
        let refused = send(refusing(1.0), "1:a", "hello").await.unwrap_err();
        assert!(matches!(refused, ApiError::TooManyRequests { retry_after } if retry_after == Duration::from_secs(1)));
        let refused = send(refusing(0.0), "1:b", "hello").await.unwrap_err();
        assert_eq!(refused.to_string(), "the server refused the message: Unauthorized (401)");
        let refused = send(refusing(0.0), "1:a", "").await.unwrap_err();
        assert_eq!(refused.to_string(), "the server refused the message: Bad Request: message text is empty (400)");
    }

    #[tokio::test]
    async fn a_failed_connection_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let failed = Bot::new(&url, "1:a").unwrap().send(7, "hello").await;
        assert!(matches!(failed, Err(ApiError::Http(error)) if error.is_connect()));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_json_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let proxy = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops").await.unwrap();
            stream
        };
        let bot = Bot::new(&url, "1:a").unwrap();
        let (_open, failed) = tokio::join!(proxy, bot.send(7, "hello"));
        assert!(matches!(failed, Err(ApiError::Http(error)) if error.is_decode()));
    }
}
