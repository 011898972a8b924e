//! Guides: one page a task. What you write, what you get, what to look out for.
//!
//! | you have | page |
//! | --- | --- |
//! | a Telegram, Discord or VK bot with replies and broadcasts | [`bots`] |
//! | calls to a language model, limited in requests and in tokens | [`llm`] |
//! | a crawler that is polite to many hosts | [`crawlers`] |
//! | many shops or accounts, each with limits of its own, some by the day | [`marketplaces`] |
//! | several processes that share one budget | [`fleets`] |
//! | messages that must not be lost when the program ends | [`outbox`] |
//! | a program of this kind and no test for it | [`testing`] |
//! | the same with smart-request-balancer, Bottleneck, teloxide or governor | [`coming_from`] |
//!
//! The numbers of some APIs are in `examples/rules` of the repository, each with its source: Telegram, Discord, VK,
//! GitHub, OpenAI, Wildberries. Copy the file, put your own numbers in, load it with
//! [`Rules::from_file`](crate::Rules::from_file).
//!
//! These modules are empty and exist in the documentation only. Their code is compiled and run, and what it asserts is
//! what you get; where time matters it goes by tokio's paused clock, on which an hour takes a moment.

#[cfg_attr(feature = "tokio", doc = include_str!("bots.md"))]
#[cfg_attr(not(feature = "tokio"), doc = "Shown with the feature `tokio`.")]
pub mod bots {}

#[cfg_attr(feature = "tokio", doc = include_str!("llm.md"))]
#[cfg_attr(not(feature = "tokio"), doc = "Shown with the feature `tokio`.")]
pub mod llm {}

#[cfg_attr(feature = "tokio", doc = include_str!("crawlers.md"))]
#[cfg_attr(not(feature = "tokio"), doc = "Shown with the feature `tokio`.")]
pub mod crawlers {}

#[cfg_attr(all(feature = "tokio", feature = "calendar"), doc = include_str!("marketplaces.md"))]
#[cfg_attr(not(all(feature = "tokio", feature = "calendar")), doc = "Shown with the features `tokio` and `calendar`.")]
pub mod marketplaces {}

#[cfg_attr(feature = "shared", doc = include_str!("fleets.md"))]
#[cfg_attr(not(feature = "shared"), doc = "Shown with the feature `shared`.")]
pub mod fleets {}

#[cfg_attr(feature = "outbox", doc = include_str!("outbox.md"))]
#[cfg_attr(not(feature = "outbox"), doc = "Shown with the feature `outbox`.")]
pub mod outbox {}

#[cfg_attr(all(feature = "tokio", feature = "testing"), doc = include_str!("testing.md"))]
#[cfg_attr(not(all(feature = "tokio", feature = "testing")), doc = "Shown with the features `tokio` and `testing`.")]
pub mod testing {}

#[cfg_attr(feature = "tokio", doc = include_str!("coming_from.md"))]
#[cfg_attr(not(feature = "tokio"), doc = "Shown with the feature `tokio`.")]
pub mod coming_from {}
