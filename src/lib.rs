//! Starts each call to a rate-limited API at the earliest moment that breaks no limit.

pub mod engine;
mod rules;

pub use rules::Rules;
