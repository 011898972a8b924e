//! The engine on virtual time, and what it is measured by: shared by the golden tests and the fairness benchmark.
//!
//! Integers only, seeds fixed, nothing in hash order: a run gives the same numbers on every machine.

mod measure;
mod rng;
mod run;
pub(crate) mod scenarios;

pub(crate) use measure::{Measure, Value, overshoot};
pub(crate) use rng::Rng;
pub(crate) use run::{Call, Log, Setup, call, plan, prompt, rule, run};
