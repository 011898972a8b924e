//! For tests of programs that use the balancer (feature `testing`): a simulated server that limits its callers.
//!
//! Under tokio's paused clock (its feature `test-util`) an hour of traffic takes a moment, and every run is the same.
//! [`Server`] is pure and needs no runtime; [`RunningServer`] needs the feature `tokio`.
//!
//! A bot's way of sending, against a server that counts arrivals under network jitter and punishes whoever is too early:
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use futures::future::join_all;
//! use request_balancer::testing::{Answer, Limit, Server};
//! use request_balancer::{Attempt, Balancer, Rules};
//! use std::time::Duration;
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let (second, jitter) = (Duration::from_secs(1), Duration::from_millis(50));
//!     let each_chat = Limit::flood_wait(1, second, second * 30).per_key();
//!     let server = Server::sliding(30, second).also(each_chat).jitter(jitter).start();
//!
//!     let rules: Rules = "overall = '30/1s'\nper_key = '1/1s'\nmargin = '50ms'".parse()?;
//!     let balancer = Balancer::new(rules);
//!     let send = async |chat: i64, attempt: Attempt| match server.call(chat).await {
//!         Answer::Ok => Ok::<_, request_balancer::Failure<std::io::Error>>(()),
//!         Answer::TooManyRequests { retry_after } => Err(attempt.retry(retry_after)),
//!     };
//!     let messages = (0..300).map(|n| n % 70);
//!     let sent = messages.map(|chat| balancer.run("default", chat, move |attempt| send(chat, attempt)));
//!     assert!(join_all(sent).await.iter().all(Result::is_ok));
//!
//!     assert_eq!((server.accepted(), server.refused()), (300, 0));
//!     assert_eq!(server.limits()[0].worst, 30);
//!     Ok(())
//! }
//! ```

mod limit;
#[cfg(feature = "tokio")]
mod running;
mod server;

pub use limit::{Limit, LimitReport};
#[cfg(feature = "tokio")]
pub use running::RunningServer;
pub use server::{Answer, Server};
