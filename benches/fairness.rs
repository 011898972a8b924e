//! How near the balancer comes to what theory allows: measured, optimum, ratio, and whether the bound is kept.
//!
//! `scripts/bench fairness` prints the table; the exit status says whether every bound was kept. Virtual time and
//! fixed seeds: the numbers are the same on every machine.

#[path = "../tests/harness/mod.rs"]
mod harness;
mod report;

use std::process::ExitCode;

use harness::{Measure, Value, scenarios};
use report::Line;

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
    let missed = measures.iter().filter(|measure| !measure.met()).count();
    if report::wants_json() {
        report::print_json(&measures.iter().map(line).collect::<Vec<_>>());
    } else {
        println!("| scenario | what | measured | optimum | optimum / measured | bound | met |");
        println!("| --- | --- | ---: | ---: | ---: | --- | --- |");
        for measure in &measures {
            println!("{measure}");
        }
        println!("\n{} of {} bounds kept", measures.len() - missed, measures.len());
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(measure: &Measure) -> Line {
    let (value, unit) = match measure.measured {
        Value::Time(span) => (span.get() as f64 / 1e9, "s"),
        Value::Count(count) => (count as f64, "1"),
        Value::Share(millionths) => (millionths as f64 / 1e4, "%"),
    };
    Line::new(format!("{}: {}", measure.scenario, measure.what), value, unit).bar(measure.bound(), measure.met())
}
