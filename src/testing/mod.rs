//! For tests of programs that use the balancer (feature `testing`): a simulated server that limits its callers, a recorder
//! of starts, an assertion that they keep to the rules.
//!
//! Under tokio's paused clock (its feature `test-util`) an hour of traffic takes a moment, and every run is the same.
//! [`Server::arrive`] and [`assert_no_breach`] are pure and need no runtime; [`RunningServer`] and [`Recorder`] need the
//! feature `tokio`.
//!
//! A bot's way of sending, against a server that counts arrivals under network jitter and punishes whoever is too early:
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use futures::future::join_all;
//! use request_balancer::testing::{Answer, Limit, Recorder, Server, assert_no_breach};
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
//!     let (balancer, recorder) = (Balancer::new(rules.clone()), Recorder::new());
//!     let send = async |chat: i64, attempt: Attempt| match server.call(chat).await {
//!         Answer::Ok => Ok::<_, request_balancer::Failure<std::io::Error>>(()),
//!         Answer::TooManyRequests { retry_after } => Err(attempt.retry(retry_after)),
//!     };
//!     let messages = (0..300).map(|n| n % 70);
//!     let sent = messages.map(|chat| balancer.run("default", chat, recorder.wrap(move |attempt| send(chat, attempt))));
//!     assert!(join_all(sent).await.iter().all(Result::is_ok));
//!
//!     assert_no_breach(&rules, &recorder.starts());
//!     assert_eq!((server.accepted(), server.refused()), (300, 0));
//!     assert_eq!(server.limits()[0].worst, 30);
//!     Ok(())
//! }
//! ```

mod breaches;
mod limit;
#[cfg(feature = "tokio")]
mod recorder;
#[cfg(feature = "tokio")]
mod running;
mod server;

pub use breaches::assert_no_breach;
pub use limit::{Limit, LimitReport};
#[cfg(feature = "tokio")]
pub use recorder::{Recorded, Recorder, Recording};
#[cfg(feature = "tokio")]
pub use running::RunningServer;
pub use server::{Answer, Server};
