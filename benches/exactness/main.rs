//! Eight adversaries against `20/60s`: the most starts in any half-open 60 s, here and with other limiters.
//!
//! `scripts/bench exactness` prints the table. Virtual time and fixed seeds: the numbers are the same on every machine.
//! The exit status says whether the balancer kept its windows.

#[path = "../../tests/adversaries/callers.rs"]
mod callers;
#[allow(dead_code, unused_imports, reason = "the tests and the other benchmark use the rest of it")]
#[path = "../../tests/harness/mod.rs"]
mod harness;
mod peers;
#[path = "../report/mod.rs"]
mod report;
mod rows;

use std::process::ExitCode;
use std::time::Duration;

use callers::{Adversary, Target};
use report::Line;
use request_balancer::engine::{Instant, Nanos};
use rows::Row;

/// The quota, `20/60s`.
const COUNT: u32 = 20;
const PERIOD: Duration = Duration::from_secs(60);

/// What the callers are up against, for an hour.
const TARGET: Target = Target { count: COUNT as u64, period: 60_000, periods: 60 };

/// By how much the delay on the way to the server varies.
const JITTER: Duration = Duration::from_millis(50);

/// How long the greedy caller is watched for what it gets.
const WATCHED: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let adversaries = TARGET.adversaries();
    let rows = rows::all(&adversaries);
    if report::wants_json() {
        report::print_json(&rows.iter().flat_map(|row| lines(row, &adversaries)).collect::<Vec<_>>());
    } else {
        print_table(&rows, &adversaries);
    }
    if rows.iter().all(Row::keeps_its_promise) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_table(rows: &[Row], adversaries: &[Adversary]) {
    let names: Vec<_> = adversaries.iter().map(|adversary| adversary.name).collect();
    println!("| `20/60s` | {} | at the server | greedy, 600 s |", names.join(" | "));
    println!("| --- |{} ---: | ---: |", " ---: |".repeat(names.len()));
    for row in rows {
        let most: Vec<_> = row.most.iter().map(usize::to_string).collect();
        println!("| {} | {} | {} | {} |", row.name, most.join(" | "), row.at_server, row.in_watch);
    }
}

fn lines(row: &Row, adversaries: &[Adversary]) -> Vec<Line> {
    let line = |what: &str, most: usize, is_promised: bool| {
        let line = Line::new(format!("{}, {what}", row.name), most as f64, "1");
        if is_promised { line.bar(format!("at most {COUNT}"), most <= COUNT as usize) } else { line }
    };
    let starts = adversaries.iter().zip(&row.most).map(|(adversary, &most)| {
        line(&format!("{}: most starts in any 60 s", adversary.name), most, row.promise.is_some())
    });
    let at_server = row.promise == Some(rows::Promise::Server);
    starts
        .chain([
            line("all: most arrivals at the server in any 60 s", row.at_server, at_server),
            line("greedy: started in 600 s", row.in_watch, false),
        ])
        .collect()
}

/// The most of `instants` in any half-open interval of length `period`.
fn fullest(instants: &[Instant], period: Duration) -> usize {
    let period = Nanos::from(period);
    let mut first = 0;
    let mut most = 0;
    for (last, &at) in instants.iter().enumerate() {
        while instants[first].saturating_add(period) <= at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}
