//! How near the balancer comes to what theory allows, beside other policies: every scenario of `examples/scenarios`.
//!
//! `scripts/bench fairness` prints the table; the exit status says whether the balancer kept every bound. Virtual time,
//! whole numbers and fixed seeds: the table is the same on every machine. A part of a scenario's file name runs only that.

#[path = "report/mod.rs"]
#[allow(dead_code, reason = "its lines are for other benchmarks")]
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use request_balancer::sim::{Measure, Policy, Scenario};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let mut rows = Vec::new();
    for path in files() {
        if !wanted.is_empty() && !wanted.iter().any(|part| path.to_string_lossy().contains(part.as_str())) {
            continue;
        }
        let scenario = match Scenario::from_file(&path) {
            Ok(scenario) => scenario,
            Err(findings) => {
                eprintln!("{findings}");
                return ExitCode::FAILURE;
            }
        };
        let runs = Policy::ALL.map(|policy| {
            let meant = scenario.policies().contains(&policy);
            if meant { scenario.run(policy) } else { Vec::new() }
        });
        // Policies measure the same things in the same order.
        let most = runs.iter().map(Vec::len).max().unwrap_or(0);
        rows.extend((0..most).map(|row| runs.each_ref().map(|measures| measures.get(row).cloned())));
    }
    let own = rows.iter().filter_map(|row| row[0].as_ref()?.met());
    let (kept, missed): (Vec<bool>, Vec<bool>) = own.partition(|&met| met);
    if report::wants_json() {
        let list: Value = rows.iter().flatten().flatten().map(as_json).collect();
        println!("{list:#}");
    } else {
        println!("| scenario | what | optimum | bound | {} |", Policy::ALL.map(Policy::as_str).join(" | "));
        println!("| --- | --- | ---: | --- | {} |", Policy::ALL.map(|_| "---:").join(" | "));
        rows.iter().for_each(|row| println!("{}", line(row)));
        println!("\n{} of {} bounds kept by {}", kept.len(), kept.len() + missed.len(), Policy::Balancer);
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All scenarios that the table shows, in the order of their names' numbers.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios");
    ORDER.iter().map(|name| folder.join(name).with_extension("toml")).collect()
}

const ORDER: [&str; 17] = [
    "one-key",
    "hog-and-mice",
    "zipf",
    "lanes",
    "lanes-overload",
    "sparse",
    "flood-wait",
    "jitter",
    "weights",
    "weights-costs",
    "language-model",
    "closed-loop",
    "newcomers",
    "cancel",
    "head-start",
    "busy-chat",
    "million-keys",
];

fn line(row: &[Option<Measure>; 7]) -> String {
    let Some(any) = row.iter().flatten().next() else { return String::new() };
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let optimum = shown(any.optimum.map(|value| value.to_string()));
    let bound = shown(any.bound.map(|bound| bound.to_string()));
    let cells = row.iter().map(|measure| {
        let Some(measure) = measure else { return "-".to_owned() };
        let number = measure.measured.map_or_else(|| "none".to_owned(), |value| value.to_string());
        if measure.met() == Some(true) { format!("**{number}**") } else { number }
    });
    let cells = cells.collect::<Vec<_>>().join(" | ");
    format!("| {} | {} | {optimum} | {bound} | {cells} |", any.scenario, any.metric)
}

fn as_json(measure: &Measure) -> Value {
    let number = |value: Option<request_balancer::sim::Value>| value.map(request_balancer::sim::Value::as_f64);
    json!({
        "scenario": measure.scenario,
        "policy": measure.policy.as_str(),
        "metric": measure.metric,
        "measured": number(measure.measured),
        "unit": measure.measured.or(measure.optimum).map(|value| value.unit()),
        "optimum": number(measure.optimum),
        "ratio": measure.ratio().map(|ratio| ratio as f64 / 1e3),
        "bound": measure.bound.map(|bound| bound.to_string()),
        "met": measure.met(),
    })
}
