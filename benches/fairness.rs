//! How near the balancer comes to what theory allows: measured, optimum, ratio, and whether the bound is kept.
//!
//! `cargo bench --bench fairness` prints the table; the exit status says whether every bound was kept. Virtual time and
//! fixed seeds: the numbers are the same on every machine.

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::process::ExitCode;

use harness::{Measure, scenarios};

const SCENARIOS: [fn() -> Vec<Measure>; 8] = [
    scenarios::one_key_saturated,
    scenarios::hog_and_mice,
    scenarios::lanes_in_balance,
    scenarios::lanes_overloaded,
    scenarios::newcomer_flood,
    scenarios::busy_chat,
    scenarios::earliest_starts,
    scenarios::stalled_executor,
];

fn main() -> ExitCode {
    let measures: Vec<_> = SCENARIOS.iter().flat_map(|scenario| scenario()).collect();
    println!("| scenario | what | measured | optimum | optimum / measured | bound | met |");
    println!("| --- | --- | ---: | ---: | ---: | --- | --- |");
    for measure in &measures {
        println!("{measure}");
    }
    let missed = measures.iter().filter(|measure| !measure.met()).count();
    println!("\n{} of {} bounds kept", measures.len() - missed, measures.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
