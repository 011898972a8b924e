//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.
//!
//! Limits are [`Rules`], from a file or from code. A `Balancer` goes by them: it gives each call a future, lets urgent
//! ones go first and every key in its turn, and puts a call that the server refuses back in line.
//!
//! The [`guide`] has a page a task: bots, language models, crawlers, marketplaces, tests, and coming from other libraries.
//!
//! # Seeing what it does
//!
//! `Balancer::snapshot`, `key`, `health`, `explain` and `Ticket::why` say how things stand; `Balancer::events` says what
//! happens. Besides, it tells [`tracing`](https://docs.rs/tracing), under the target `request_balancer`. Nothing is
//! looked up, formatted or allocated for that unless a subscriber wants it.
//!
//! | span or event | level | fields |
//! | --- | --- | --- |
//! | span `attempt`, entered while the closure and its future run and what came of it is judged; a permit's is open until it ends | debug | `rule`, `key`, `lane`, `attempt`, `waited`, `cause`: `first`, `retry`, `transient`, `ambiguous`, `timed-out` |
//! | `waiting`: took its place in line | trace | `rule`, `key`, `lane`, `attempt` |
//! | `started` | trace | the same, `waited` |
//! | `ended`: no other attempt follows | trace | the same, `outcome`: `done`, `failed`, `panicked`, `cut off` |
//! | `put back`: failed, stands in line again | debug | the same, `cause`, `wait` |
//! | `refused` | debug | the same, `cause`: a `Refused::cause`, `reason` |
//! | `withdrawn`: dropped while it stood in line | trace | the same |
//! | `hold started` | debug | `scope`, `rule`, `key`, `cause`: `asked`, `retry`, `lasts` |
//! | `hold released` | debug | `scope`, `rule`, `key` |
//! | `hold cut`: it should have been longer than may be | warn | `scope`, `rule`, `key`, `wanted`, `allowed` |
//! | `ban ahead`: `ban_guard` lets nothing start | warn | `level`, `period` |
//! | `ban over` | warn | |
//! | `store lost`: the store of shared limits does not answer | warn | `why` |
//! | `store back` | warn | |
//! | `store forgot`: a shared limit began anew | warn | `limit` |
//! | `rules not replaced`: there is no place for so many endpoints | warn | `findings` |
//!
//! `attempt` is the number of attempts that were started. Spans of time are in seconds with fractions; `waited` is the
//! time in line since the request entered or was put back.
//!
//! With the feature `metrics` it counts through the [`metrics`](https://docs.rs/metrics) facade. Install the recorder
//! first: what there is of the rules is registered with the first request under them.
//!
//! | metric | kind | labels |
//! | --- | --- | --- |
//! | `request_balancer_waiting`: requests in line | gauge | `rule`, `lane` |
//! | `request_balancer_outside`: requests of `submit_wait` that wait for room in line | gauge | `rule`, `lane` |
//! | `request_balancer_in_flight`: attempts that run | gauge | `rule`, `lane` |
//! | `request_balancer_starts_total`: attempts that began | counter | `rule`, `lane` |
//! | `request_balancer_wait_seconds`: time in line before a start, since the request entered or was put back | histogram | `rule`, `lane` |
//! | `request_balancer_retries_total`: requests put back | counter | `rule`, `lane`, `cause` as of the span, never `first` |
//! | `request_balancer_refused_total`: requests that were not started, or not again | counter | `rule`, `lane`, `cause`: a `Refused::cause` |
//! | `request_balancer_holds_total`: holds that began or became longer | counter | `rule`, empty if there is none; `scope`; `cause` |
//! | `request_balancer_bans_ahead_total`: how often the level of `ban_guard` was reached | counter | |

pub mod engine;
#[cfg(feature = "tokio")]
mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod headers;
mod key;
#[cfg(any(feature = "reqwest", feature = "tower"))]
pub mod middleware;
#[cfg(feature = "outbox")]
pub mod outbox;
mod rules;
#[cfg(feature = "tokio")]
mod runtime;
#[cfg(feature = "shared")]
pub mod shared;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;

pub use engine::{
    Choose, Decision, Failover, FailureKind, GiveUp, Health, HoldCause, Nanos, RetryPolicy, Scope, Spent, WaitOrder,
};
#[cfg(feature = "tokio")]
pub use error::{Classify, Error, Failure, NextStart, Outcome, Refused, Verdict};
pub use key::Key;
pub use rules::{
    BreakerRules, CheckedLane, CheckedRule, CheckedShared, CountFrom, EndpointLimits, EndpointRules, Finding,
    FindingCode, Findings, Lane, NamedLimit, Observe, OnOutage, PoolRules, Quota, QuotaKind, Retry, Rule, Rules,
    RulesBuilder, Severity, SharedRules,
};
#[cfg(feature = "tokio")]
pub use runtime::{
    Acquire, Attempt, Balancer, BreakerSnapshot, Builder, Ended, Endpoint, EndpointReport, EndpointSnapshot,
    EndpointStanding, Event, Events, Explanation, KeySnapshot, LaneSnapshot, LimitDifference, LimitReport, Permit,
    Pool, PooledAttempt, PooledRequest, Reason, Request, RuleHandle, RuleSnapshot, Run, Snapshot, Standing, Target,
    Ticket,
};
#[cfg(all(feature = "tokio", feature = "serde"))]
pub use runtime::{Imported, State};
#[cfg(feature = "sim")]
pub use verify::Fill;
pub use verify::{
    Breach, EndpointOutlook, Headroom, LogHold, Opens, Outlook, Start, explain_log, verify, verify_arrivals,
};

/// The README's example is compiled and run like any other.
#[cfg(all(doctest, feature = "tokio", feature = "headers"))]
#[doc = include_str!("../README.md")]
struct Readme;
