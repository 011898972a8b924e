//! How near the balancer comes to what theory allows: measured, optimum, ratio, and whether the bound is kept.
//!
//! `scripts/bench fairness` prints the table; the exit status says whether every bound was kept. Virtual time and
//! fixed seeds: the numbers are the same on every machine.

#[path = "../tests/harness/mod.rs"]
mod harness;
#[path = "../tests/model/mod.rs"]
mod model;
mod report;

use std::process::ExitCode;

use harness::{Measure, Value, scenarios};
use model::generate::Flavour;
use model::random::Random;
use model::shares::Largest;
use report::Line;

const SCENARIOS: [fn() -> Vec<Measure>; 9] = [
    scenarios::one_key_saturated,
    scenarios::hog_and_mice,
    scenarios::lanes_in_balance,
    scenarios::lanes_overloaded,
    scenarios::newcomer_flood,
    scenarios::busy_chat,
    scenarios::earliest_starts,
    scenarios::stalled_executor,
    random_histories,
];

/// The largest values that the model of `tests/random_histories.rs` sees, each with the bound that it holds them to.
fn random_histories() -> Vec<Measure> {
    const NAME: &str = "4,000 random histories against the slow model";
    let largest = (0..4_000).fold(Largest::default(), |largest, seed| {
        let mut random = Random::new(seed);
        let flavour = Flavour::any(&mut random);
        let history = model::generate::history(&mut random, flavour);
        largest.and(model::run_or_shrink(seed, &history, model::run).books.shares.largest)
    });
    let count = |beyond: i64| Value::Count(u64::try_from(beyond).unwrap_or(0));
    let at_most = |what, value, bound| Measure::exactly(NAME, what, value, bound).within(Value::Count(0), bound);
    vec![
        at_most("thousandths of a request between two ready queues", Value::Count(largest.gap), Value::Count(1_000)),
        at_most("turns past a newcomer, beyond one of each before it", count(largest.turn), Value::Count(0)),
        // K + L: in each of the L - 1 lanes beside it another may be overdue.
        at_most("starts past a ready lane, beyond K, of three lanes", count(largest.bypass), Value::Count(2)),
    ]
}

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
