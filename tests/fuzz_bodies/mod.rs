//! What the fuzz targets in `fuzz/` do with their bytes; `tests/fuzz_smoke.rs` does the same with a few seeded ones.

mod log;
mod machine;
mod rules;
mod setup;

pub(crate) use machine::machine;
pub(crate) use rules::{rules_text, rules_words};
