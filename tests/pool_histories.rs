//! Random histories of pools on the engine's own time, against a slow model that knows nothing but lists: who may be
//! used, that whoever could start has started, that load adds up, who is refused. Requests come, come late, leave and are
//! killed in the middle of anything; attempts end in all ways; endpoints come, go, rest, are held, get other numbers and are
//! renewed.

mod pools;

use pools::{Tally, World};

fn history(seed: u64) -> Tally {
    let mut world = World::new(seed);
    for _ in 0..150 {
        world.act();
    }
    world.drain();
    world.tally
}

#[test]
fn random_histories_keep_to_the_slow_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let (first, runs) = (number("FIRST").unwrap_or(0), number("RUNS").unwrap_or(300));
    let mut tally = Tally::default();
    for seed in first..first + runs {
        let result = std::panic::catch_unwind(|| history(seed));
        let Ok(more) = result else { panic!("history {seed} breaks a promise") };
        tally = tally.and(more);
    }
    let Tally { starts, refusals, too_late, probes, lost_leases, killed_grants, handed_on, foretold } = tally;
    let seen = [starts, refusals, too_late, probes, lost_leases, killed_grants, handed_on, foretold];
    assert!(runs < 50 || seen.iter().all(|seen| *seen > 0), "{tally:?} shows nothing");
}
