//! Rules: text in, findings or a checked [`Rules`] out.
//!
//! ```text
//! text --toml--> builder --check--> findings | model --compile--> plan
//! code ------------^                              --write--> text
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod builder;
mod check;
mod compile;
mod dialect;
mod duration;
mod finding;
mod guard;
mod lanes;
mod levels;
mod model;
mod observe;
mod own;
mod pool;
mod quota;
mod retry;
mod shared;
mod toml;
mod unit;
pub(crate) mod wording;
mod write;

#[cfg(feature = "sim")]
pub(crate) use builder::At;
pub use builder::{Lane, NamedLimit, Rule, RulesBuilder};
#[cfg(feature = "sim")]
pub(crate) use finding::Place;
pub use finding::{Finding, FindingCode, Findings, Severity};
pub(crate) use levels::{Level, Whose};
pub use model::{CheckedLane, CheckedRule, Rules};
pub use observe::Observe;
pub use pool::{BreakerRules, EndpointLimits, EndpointRules, PoolRules};
pub use quota::{CountFrom, Quota, QuotaKind};
pub use retry::Retry;
pub use shared::{CheckedShared, OnOutage, SharedRules};
#[cfg(feature = "sim")]
pub(crate) use toml::{Reader, join};
