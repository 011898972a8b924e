//! Random histories under random rules, the machine against a slow model. The seed is printed on failure.
//!
//! `HISTORIES=1000000` runs that many; `SEED=17` begins with that one.

mod model;

use model::generate::{Flavour, history};
use model::history::History;
use model::random::Random;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn random_history(seed: u64) -> History {
    let mut random = Random::new(seed);
    let flavour = Flavour::any(&mut random);
    history(&mut random, flavour)
}

#[test]
fn nothing_goes_wrong_in_random_histories() {
    let first = number("SEED").unwrap_or(0);
    let mut starts = 0;
    let mut ops = 0;
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for seed in first..first + number("HISTORIES").unwrap_or(2_000) {
        let history = random_history(seed);
        ops += history.ops.len();
        match model::run(&history) {
            Ok(owner) => starts += owner.books.attempts.len(),
            Err(wrong) => {
                let smaller = model::shrink::shrink(&history, |history| model::run(history).is_err());
                let why = model::run(&smaller).err().unwrap_or_default();
                std::panic::set_hook(quiet);
                panic!("seed {seed}: {wrong}\n\nsmallest history found: {why}\n{smaller}");
            }
        }
    }
    std::panic::set_hook(quiet);
    println!("{ops} operations, {starts} starts");
    assert!(starts > 0);
}
