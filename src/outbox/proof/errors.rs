//! Every call to the disk fails once, or for a while.

use std::io::ErrorKind;

use super::disk::Disk;
use super::workload::{Dump, Pair, Rng, Step, dump_of};

const TRANSACTIONS: usize = 8;

/// Steps that are all taken back where nobody knows, none of them, or some.
fn steps(rng: &mut Rng, transaction: usize) -> Vec<Step> {
    let undone = [None, Some(true), None, Some(false), None, None][transaction % 6];
    let mut steps = Vec::new();
    while steps.len() < if undone.is_some() { 4 } else { 10 } {
        let step = Step::random(rng, transaction as u64);
        if undone.is_none_or(|undone| step.is_undone() == undone) {
            steps.push(step);
        }
    }
    steps
}

/// What is there after a transaction that was refused: before it, after it, or what is not taken back of it.
fn check_refused(steps: &[Step], before: &Dump, after: &Dump, found: &Dump, context: &str) {
    let plain = |dump: &Dump| dump.clone().whatever_comes_next();
    let undone = steps.iter().filter(|step| step.is_undone()).count();
    let is_before = plain(found) == plain(before);
    if undone == steps.len() {
        assert!(is_before, "{context}");
    } else if undone == 0 {
        assert!(is_before || plain(found) == plain(after), "{context}");
    } else {
        let (ids, were) = (found.ids(), before.ids());
        assert!(ids.iter().all(|id| *id < before.next()), "{context}: what was refused is there");
        if !steps.iter().any(Step::ends_some) {
            assert!(were.is_subset(&ids), "{context}: what was there is not");
        }
    }
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
        found.check(&context);
        match done {
            Ok(()) => assert_eq!(found, after, "{context}"),
            Err(error) => {
                assert!(disk.has_failed(), "{context}: {error}");
                check_refused(&steps, &before, &after, &found, &context);
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
