//! Nothing is refused where a server tells all.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unused_imports, reason = "each target uses one body")]
#[path = "../../tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

fuzz_target!(|bytes: &[u8]| fuzz_bodies::told(bytes));
