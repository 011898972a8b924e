//! Random histories under random rules, the machine against a slow model. The seed is printed on failure.
//!
//! `HISTORIES=1000000` goes through that many, `SEED=17` begins with that one.

mod model;

use model::generate::{Flavour, history};
use model::history::History;
use model::random::Random;
use model::shares::Largest;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn random_history(seed: u64) -> History {
    let mut random = Random::new(seed);
    let mut flavour = Flavour::any(&mut random);
    // Every fourth has a server that says what it has left; the others are what they were without.
    if seed % 4 == 3 {
        flavour = flavour.answered();
    }
    if seed % 8 == 5 {
        flavour = flavour.settled();
    }
    history(&mut random, flavour)
}

#[test]
fn nothing_goes_wrong_in_random_histories() {
    let first = number("SEED").unwrap_or(0);
    let (mut ops, mut starts, mut turns) = (0, 0, 0);
    let mut largest = Largest::default();
    for seed in first..first + number("HISTORIES").unwrap_or(2_000) {
        let history = random_history(seed);
        let owner = model::run_or_shrink(seed, &history, model::run);
        ops += history.ops.len();
        starts += owner.books.attempts.len();
        turns += owner.turns;
        largest = largest.and(owner.books.shares.largest);
        if seed % 16 == 0 {
            let again = model::run_or_shrink(seed, &history, model::run);
            assert_eq!(
                again.books.log(),
                owner.books.log(),
                "seed {seed}: the same history went another way\n{history}"
            );
        }
    }
    println!("{ops} operations, {turns} turns, {starts} starts; largest values seen: {largest:#?}");
    // A single history may well have nothing of the kind.
    let many = number("HISTORIES").is_none_or(|histories| histories >= 1_000);
    assert!(
        !many || starts > 0 && largest.pairs > 0 && largest.turns > 0 && largest.bypasses > 0 && largest.siblings > 0
    );
}
