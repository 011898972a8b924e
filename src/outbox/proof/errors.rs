//! Every call to the disk fails once, or for a while.

use std::io::ErrorKind;

use super::disk::Disk;
use super::workload::{Pair, Rng, Step, dump_of};

const TRANSACTIONS: usize = 6;

/// Steps that are all taken back where nobody knows, or none of them.
fn steps(rng: &mut Rng, transaction: usize) -> Vec<Step> {
    let undone = transaction.is_multiple_of(2);
    let mut steps = Vec::new();
    while steps.len() < 4 {
        let step = Step::random(rng, transaction as u64);
        if step.is_undone() == undone {
            steps.push(step);
        }
    }
    steps
}

/// Calls of the whole work, which begins once the store is made.
fn calls(seed: u64) -> usize {
    let disk = Disk::default();
    let mut pair = Pair::new(&disk);
    let begun = disk.calls();
    let mut rng = Rng::new(seed);
    for transaction in 0..TRANSACTIONS {
        assert_eq!(pair.run(&steps(&mut rng, transaction)).1, Ok(()));
    }
    disk.calls() - begun
}

/// Lets calls fail from one on, and goes on until the work is done.
fn work(seed: u64, call: usize, calls: usize, kind: ErrorKind) {
    let disk = Disk::default();
    let mut pair = Pair::new(&disk);
    disk.fail_at(call, calls, kind);
    let mut rng = Rng::new(seed);
    for transaction in 0..TRANSACTIONS {
        let (steps, before) = (steps(&mut rng, transaction), pair.model());
        let (after, done) = pair.run(&steps);
        let context = format!("seed {seed}, {calls} calls from {call}, transaction {transaction}: {done:?}");
        // The disk works again sooner or later: then the store does, too.
        let mut found = dump_of(&mut pair.books);
        for _ in 0..calls {
            if found.is_err() {
                found = dump_of(&mut pair.books);
            }
        }
        let found = found.unwrap_or_else(|error| panic!("{context}: {error}"));
        match done {
            Ok(()) => assert_eq!(found, after, "{context}"),
            Err(error) => {
                assert!(disk.has_failed(), "{context}: {error}");
                let undone = steps[0].is_undone();
                let plain = found.clone().whatever_comes_next();
                let is_before = plain == before.whatever_comes_next();
                let is_after = plain == after.whatever_comes_next();
                assert!(is_before || !undone && is_after, "{context}");
                // Numbers that nobody got may be skipped.
                pair.go_on_from(&found);
            }
        }
    }
}

#[test]
fn whatever_call_fails_once_the_answer_is_true_and_work_goes_on() {
    for (seed, kind) in [(1, ErrorKind::Other), (2, ErrorKind::StorageFull)] {
        for call in 1..=calls(seed) {
            work(seed, call, 1, kind);
        }
    }
}

#[test]
fn whatever_calls_fail_for_a_while_nothing_is_there_that_was_refused() {
    for call in 1..=calls(3) {
        work(3, call, 12, ErrorKind::StorageFull);
    }
}
