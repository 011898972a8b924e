//! Messages that outlive the process: written to a file before they are sent, erased from it afterwards (feature `outbox`).
//!
//! A message is a value that serde can write, with a rule and a key, and not a closure: what is to be done with it is said
//! once, by the handler with which the [`Outbox`] is opened. What is accepted is delivered or accounted for, through
//! crashes, restarts, and outages of hours.
//!
//! - **Durable first.** [`put`](Outbox::put) resolves when the message is on the disk, and never before; there are as many
//!   messages in one sync of the disk as were put during the last one. If nothing is in its way the message is sent at once.
//! - **Through the balancer.** The same limits, lanes, turns, holds, pools and retry policies as for any request. Of each
//!   queue a window of messages is in the balancer's line, the rest in the file: millions of them take no more memory, nor do
//!   those of millions of keys. Each lane has places of its own in line and is searched by itself, so that a broadcast keeps
//!   no urgent message out; and no key is kept from its turn by others that keep coming.
//! - **Order per key.** Messages of one rule and key start in the order in which they were put. One that fails steps out for
//!   its backoff and lets others pass, unless the rule is `ordered`.
//! - **At least once.** A message whose attempt ran when the program was killed comes again, with the same id, the next
//!   attempt's number, and [`maybe_delivered`](Message::maybe_delivered). No other message comes twice.
//! - **Failures survive restarts**: attempts, backoffs and holds go on from where they were, by the clock on the wall. A
//!   hold that [`Balancer::release`](crate::Balancer::release) ended is over for good once an attempt began under it.
//! - **Outages cost nothing.** Waiting for a hold, an open breaker, or a server that [can't be
//!   reached](crate::Failure::unreachable) costs no attempt, and a server may ask for any wait.
//! - **Bounded.** So many messages and bytes, then [`Error::QueueFull`]. What can't be delivered goes to the dead, of whom
//!   there are so many at most; each that is lost is an [event](OutboxEvent::Lost). Of remembered
//!   names, too, there are [so many](Builder::max_names) at most. In memory there are for each lane, and so for each priority
//!   that rules have, at most 4,096 messages, of some 64 MiB, and 16,384 keys.
//!
//! What it does not: put a message under two keys, deliver from several processes at once (the second one gets
//! [`StoreError::InUse`]), promise exactly once. Between the start that the limits count and the call is one write to the
//! disk: for limits that a server counts, what that varies by is part of `margin`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use request_balancer::outbox::{Delivery, Message, Outbox};
//! use request_balancer::{Balancer, Outcome, Rules};
//!
//! # let folder = std::env::temp_dir().join(format!("outbox-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("outbox.redb");
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Text { chat: i64, text: String }
//!
//! async fn send(message: Message<Text>) -> Outcome<usize, std::io::Error> {
//!     // … your library's call, with `message.body()` …
//!     Ok(message.body().text.len())
//! }
//!
//! let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
//! let outbox = Outbox::open(&path, &balancer, send).await?;
//! let text = |text: &str| Text { chat: 42, text: text.into() };
//! assert_eq!(outbox.put("send", 42, &text("hello")).await?, Delivery::Sent(5));
//! // The second one has to wait: it is stored, and sent from there.
//! assert!(matches!(outbox.put("send", 42, &text("again")).await?, Delivery::Queued(_)));
//! assert_eq!(outbox.flush().await, 1);
//! assert!(outbox.is_empty());
//! # outbox.close(std::time::Duration::ZERO).await?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```

mod books;
mod builder;
mod bytes;
mod clock;
mod courier;
mod draft;
mod ending;
mod error;
mod event;
mod file;
mod filling;
mod finding;
mod flush;
mod halt;
mod handle;
mod hold;
mod lane;
mod letter;
mod line;
mod message;
mod names;
mod note;
mod put;
mod record;
mod search;
mod shelf;
mod store;
mod stored;
mod stuck;
mod view;
mod writer;

pub use self::books::Overflow;
pub use self::builder::Builder;
pub use self::error::Error;
pub use self::event::{OutboxEvent, OutboxEvents};
pub use self::file::OutboxFile;
pub use self::handle::Outbox;
pub use self::letter::Delivery;
pub use self::message::Message;
pub use self::note::Closed;
pub use self::put::{Put, PutAll};
pub use self::record::MessageId;
pub use self::store::{Change, MemoryStore, RedbStore, Store, StoreError, Table};
pub use self::stored::{DeadMessage, StoredMessage};

#[cfg(test)]
mod proof;
