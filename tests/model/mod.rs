//! A slow, obvious model of the machine, and what compares the two over random histories.
//!
//! The model shares nothing with the machine but the types it is asked with. It keeps lists of all requests and all
//! attempts and answers every question by going through them.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub(crate) mod books;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod limits;
pub(crate) mod owner;
pub(crate) mod random;
pub(crate) mod shrink;
pub(crate) mod spec;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::books::Wrong;
use self::history::History;
use self::owner::Owner;

/// Goes through a history. A panic of the machine is wrong like anything else.
pub(crate) fn run(history: &History) -> Result<Owner, Wrong> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut owner = Owner::new(history)?;
        owner.run(history)?;
        Ok(owner)
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}
