//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.
//!
//! Limits are [`Rules`], from a file or from code. A [`Balancer`] goes by them: it gives each call a future, lets urgent
//! ones go first and every key in its turn, and puts a call that the server refuses back in line.
//!
//! The [`guide`] has a page a task: bots, language models, crawlers, marketplaces, tests, and coming from other libraries.

pub mod engine;
#[cfg(feature = "tokio")]
mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
mod key;
mod rules;
#[cfg(feature = "tokio")]
mod runtime;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;

pub use engine::{Nanos, RetryPolicy, Scope, WaitOrder};
#[cfg(feature = "tokio")]
pub use error::{Classify, Error, Failure, NextStart, Outcome, Refused, Verdict};
pub use key::Key;
pub use rules::{
    CheckedRule, CountFrom, Finding, FindingCode, Findings, Lane, NamedLimit, Quota, QuotaKind, Retry, Rule, Rules,
    RulesBuilder, Severity,
};
#[cfg(feature = "tokio")]
pub use runtime::{
    Acquire, Attempt, Balancer, Builder, Ended, KeySnapshot, LaneSnapshot, Permit, Request, RuleHandle, RuleSnapshot,
    Run, Snapshot, Target, Ticket,
};
#[cfg(all(feature = "tokio", feature = "serde"))]
pub use runtime::{Imported, State};
pub use verify::{Breach, Start, verify, verify_arrivals};

/// The README's example is compiled and run like any other.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
