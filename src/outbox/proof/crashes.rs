//! The power goes at every sync there is.

use super::disk::Disk;
use super::workload::{Dump, Pair, Rng, Step, dump_of, open};

const SEEDS: u64 = 3;

const TRANSACTIONS: usize = 24;

/// Works until the power goes, or the work is done: what was there before the last transaction, and after it.
fn work(pair: &mut Pair, disk: &Disk, rng: &mut Rng) -> [Dump; 2] {
    let mut before = pair.model();
    for transaction in 0..TRANSACTIONS {
        let steps: Vec<Step> = (0..=rng.below(6)).map(|_| Step::random(rng, transaction as u64)).collect();
        let (after, done) = pair.run(&steps);
        if disk.is_off() {
            assert!(done.is_err(), "acknowledged without power");
            return [before, after];
        }
        assert_eq!(done, Ok(()));
        before = after;
    }
    [before.clone(), before]
}

#[test]
fn a_loss_of_power_at_any_sync_loses_nothing_that_was_acknowledged_and_brings_nothing_back() {
    let mut losses = 0;
    for seed in 0..SEEDS {
        let disk = Disk::default();
        let mut pair = Pair::new(&disk);
        let begun = disk.syncs();
        work(&mut pair, &disk, &mut Rng::new(seed));
        let syncs = disk.syncs() - begun;
        assert!(syncs >= TRANSACTIONS / 2, "{syncs}");
        for sync in 1..=syncs {
            let disk = Disk::default();
            let mut pair = Pair::new(&disk);
            disk.lose_power_at(sync);
            let expected = work(&mut pair, &disk, &mut Rng::new(seed));
            assert!(disk.is_off());
            let mut coin = Rng::new(seed * 1_000 + sync as u64);
            let mut left = disk.after_loss(|| coin.coin());
            drop(pair);
            // It may go again while what is left is read.
            for again in 1..=2 {
                let once_more = left.after_loss(|| true);
                once_more.lose_power_at(again);
                if open(&once_more).is_err() && once_more.is_off() {
                    left = once_more.after_loss(|| coin.coin());
                    losses += 1;
                }
            }
            let mut books = open(&left).unwrap_or_else(|error| panic!("seed {seed}, sync {sync}: {error}"));
            let found = dump_of(&mut books).unwrap();
            assert!(expected.contains(&found), "seed {seed}, sync {sync}");
            losses += 1;
        }
    }
    assert!(losses > 100, "{losses}");
}

/// The harness would notice.
#[test]
fn a_disk_that_only_says_that_it_has_written_loses_something() {
    let mut lost = 0;
    for seed in 0..8 {
        let disk = Disk::default();
        let mut pair = Pair::new(&disk);
        disk.lie();
        let [_, expected] = work(&mut pair, &disk, &mut Rng::new(seed));
        let mut coin = Rng::new(seed + 100);
        let left = disk.after_loss(|| coin.coin());
        drop(pair);
        let found = open(&left).and_then(|mut books| dump_of(&mut books));
        lost += u32::from(found != Ok(expected));
    }
    assert!(lost >= 7, "{lost}");
}
