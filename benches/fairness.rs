//! How near the balancer comes to what theory allows, beside other policies: every scenario of `examples/scenarios`.
//!
//! `scripts/bench fairness` prints the table; the exit status says whether the balancer kept every bound. Virtual time,
//! whole numbers and fixed seeds: the table is the same on every machine. A part of a scenario's file name runs only that.

#[path = "../tests/model/mod.rs"]
mod model;
#[path = "report/mod.rs"]
#[allow(dead_code, reason = "its lines are for other benchmarks")]
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use model::generate::Flavour;
use model::random::Random;
use model::shares::Largest;
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
    let is_wanted = wanted.is_empty() || wanted.iter().any(|part| "random-histories".contains(part.as_str()));
    let seen = if is_wanted { random_histories().to_vec() } else { Vec::new() };
    let own = rows.iter().filter_map(|row| row[0].as_ref()?.met()).chain(seen.iter().map(Seen::is_kept));
    let (kept, missed): (Vec<bool>, Vec<bool>) = own.partition(|&met| met);
    if report::wants_json() {
        let list: Value = rows.iter().flatten().flatten().map(as_json).chain(seen.iter().map(Seen::as_json)).collect();
        println!("{list:#}");
    } else {
        println!("| scenario | what | optimum | bound | {} |", Policy::ALL.map(Policy::as_str).join(" | "));
        println!("| --- | --- | ---: | --- | {} |", Policy::ALL.map(|_| "---:").join(" | "));
        rows.iter().for_each(|row| println!("{}", line(row)));
        seen.iter().for_each(|seen| println!("{}", seen.line()));
        println!("\n{} of {} bounds kept by {}", kept.len(), kept.len() + missed.len(), Policy::Balancer);
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const HISTORIES: &str = "4,000 random histories against the slow model";

/// The largest value that the model of `tests/random_histories.rs` saw of something, and the most that it allows.
#[derive(Clone, Copy)]
struct Seen {
    what: &'static str,
    largest: u64,
    most: u64,
}

impl Seen {
    const fn is_kept(&self) -> bool {
        self.largest <= self.most
    }

    fn line(&self) -> String {
        let Self { what, largest, most } = self;
        let bound = if *most == 0 { "exact".to_owned() } else { format!("at most {most}") };
        let number = if self.is_kept() { format!("**{largest}**") } else { largest.to_string() };
        let others = " - |".repeat(Policy::ALL.len() - 1);
        format!("| {HISTORIES} | {what} | - | {bound} | {number} |{others}")
    }

    fn as_json(&self) -> Value {
        json!({
            "scenario": HISTORIES,
            "policy": Policy::Balancer.as_str(),
            "metric": self.what,
            "measured": self.largest,
            "unit": "1",
            "optimum": null,
            "ratio": null,
            "bound": format!("at most {}", self.most),
            "met": self.is_kept(),
        })
    }
}

fn random_histories() -> [Seen; 3] {
    let largest = (0..4_000).fold(Largest::default(), |largest, seed| {
        let mut random = Random::new(seed);
        let flavour = Flavour::any(&mut random);
        let history = model::generate::history(&mut random, flavour);
        largest.and(model::run_or_shrink(seed, &history, model::run).books.shares.largest)
    });
    let beyond = |count: i64| u64::try_from(count).unwrap_or(0);
    [
        Seen { what: "thousandths of a request between two ready queues", largest: largest.gap, most: 1_000 },
        Seen { what: "turns past a newcomer, beyond one of each before it", largest: beyond(largest.turn), most: 0 },
        // K + L: in each of the L - 1 lanes beside it another may be overdue.
        Seen { what: "starts past a ready lane, beyond K, of three lanes", largest: beyond(largest.bypass), most: 2 },
    ]
}

/// All scenarios that the table shows, in the order of their names' numbers.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios");
    ORDER.iter().map(|name| folder.join(name).with_extension("toml")).collect()
}

const ORDER: [&str; 20] = [
    "one-key",
    "hog-and-mice",
    "zipf",
    "lanes",
    "lanes-overload",
    "sparse",
    "flood-wait",
    "six-tokens",
    "one-floods",
    "jitter",
    "rounds",
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
