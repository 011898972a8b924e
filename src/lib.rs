//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.

pub mod engine;
mod rules;

pub use rules::{
    CheckedRule, CountFrom, Finding, FindingCode, Findings, Lane, NamedLimit, Quota, QuotaKind, Retry, Rule, Rules,
    RulesBuilder, Severity,
};
