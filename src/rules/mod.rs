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
mod duration;
mod finding;
mod guard;
mod levels;
mod model;
mod own;
mod quota;
mod retry;
mod toml;
mod unit;
pub(crate) mod wording;
mod write;

pub use builder::{Lane, NamedLimit, Rule, RulesBuilder};
pub use finding::{Finding, FindingCode, Findings, Severity};
pub(crate) use levels::{Level, Whose};
pub use model::{CheckedRule, Rules};
pub use quota::{CountFrom, Quota, QuotaKind};
pub use retry::Retry;
