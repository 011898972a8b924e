//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.

pub mod engine;
#[cfg(feature = "tokio")]
mod error;
mod key;
mod rules;
#[cfg(feature = "tokio")]
mod runtime;

pub use engine::{Health, HoldCause, Nanos, RetryPolicy, Scope, WaitOrder};
#[cfg(feature = "tokio")]
pub use error::{Classify, Error, Failure, NextStart, Outcome, Refused, Verdict};
pub use key::Key;
pub use rules::{
    CheckedRule, CountFrom, Finding, FindingCode, Findings, Lane, NamedLimit, Quota, QuotaKind, Retry, Rule, Rules,
    RulesBuilder, Severity,
};
#[cfg(feature = "tokio")]
pub use runtime::{
    Acquire, Attempt, Balancer, Builder, Ended, Event, Events, Explanation, KeySnapshot, LaneSnapshot, LimitReport,
    Permit, Reason, Request, RuleHandle, RuleSnapshot, Run, Snapshot, Standing, Target, Ticket,
};
