//! The engine on virtual time, with executors that poll as late as a test wants: for random histories and the exactness
//! benchmark.
//!
//! Integers only, seeds fixed, nothing in hash order: a run gives the same numbers on every machine.

mod rng;
mod run;

pub(crate) use rng::Rng;
pub(crate) use run::{Call, Log, Setup, call, plan, prompt, rule, run};
