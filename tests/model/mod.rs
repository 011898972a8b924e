//! A slow, obvious model of the machine, and what compares the two over random histories.
//!
//! The model shares nothing with the machine but the types it is asked with. It keeps lists of all requests and all
//! attempts and answers every question by going through them.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub(crate) mod books;
pub(crate) mod callers;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod limits;
pub(crate) mod owner;
pub(crate) mod random;
pub(crate) mod server;
pub(crate) mod shares;
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

/// Goes through a history; if it goes wrong, panics with the smallest one found that does.
pub(crate) fn run_or_shrink<T>(seed: u64, history: &History, run: impl Fn(&History) -> Result<T, Wrong>) -> T {
    let wrong = match run(history) {
        Ok(owner) => return owner,
        Err(wrong) => wrong,
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let smaller = shrink::shrink(history, |history| run(history).is_err());
    let why = run(&smaller).err().unwrap_or_default();
    std::panic::set_hook(hook);
    panic!("seed {seed}: {wrong}\n\nsmallest history found: {why}\n{smaller}")
}
