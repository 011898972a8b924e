//! Guides: one page a task. What you write, what you get, what to look out for.
//!
//! | you have | page |
//! | --- | --- |
//! | a Telegram, Discord or VK bot with replies and broadcasts | [`bots`] |
//! | calls to a language model, limited in requests and in tokens | [`llm`] |
//! | a crawler that is polite to many hosts | [`crawlers`] |
//! | many shops or accounts, each with limits of its own, some by the day | [`marketplaces`] |
//! | a program of this kind and no test for it | [`testing`] |
//! | the same with smart-request-balancer, Bottleneck, teloxide or governor | [`coming_from`] |
//!
//! The numbers of some APIs are in `examples/rules` of the repository, each with its source: Telegram, Discord, VK,
//! GitHub, OpenAI, Wildberries. Copy the file, put your own numbers in, load it with
//! [`Rules::from_file`](crate::Rules::from_file).
//!
//! These modules are empty and exist in the documentation only. Their code is compiled and run, and what it asserts is
//! what you get; where time matters it goes by tokio's paused clock, on which an hour takes a moment.

#[cfg(feature = "tokio")]
#[doc = include_str!("bots.md")]
pub mod bots {}

#[cfg(feature = "tokio")]
#[doc = include_str!("llm.md")]
pub mod llm {}

#[cfg(feature = "tokio")]
#[doc = include_str!("crawlers.md")]
pub mod crawlers {}

#[cfg(all(feature = "tokio", feature = "calendar"))]
#[doc = include_str!("marketplaces.md")]
pub mod marketplaces {}

#[cfg(all(feature = "tokio", feature = "testing"))]
#[doc = include_str!("testing.md")]
pub mod testing {}

#[cfg(feature = "tokio")]
#[doc = include_str!("coming_from.md")]
pub mod coming_from {}
