//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.

pub mod engine;
#[cfg(feature = "tokio")]
mod error;
mod key;
mod rules;
#[cfg(feature = "tokio")]
mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
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
