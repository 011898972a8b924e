//! What the fuzz targets in `fuzz/` do with their bytes; `tests/fuzz_smoke.rs` does the same with a few seeded ones.

#[cfg(feature = "headers")]
mod headers;
mod log;
mod machine;
mod observed;
mod rules;
mod said;
mod setup;
mod zeros;

#[cfg(feature = "headers")]
pub(crate) use headers::{headers_bytes, headers_pieces};
pub(crate) use machine::machine;
pub(crate) use observed::{observed, told};
pub(crate) use rules::{rules_text, rules_words};
