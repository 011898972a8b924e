//! What seven fixed paths, and one of a peer, cost in instructions and allocations, beside what they cost when
//! `figures.json` was written.
//!
//! `scripts/bench guard` prints the table, and what grew by over 5 %. Instructions are counted by valgrind's callgrind,
//! which has to be installed; what a path costs per request is the slope between a short and a long run, so that what
//! happens once does not count. `GUARD_WRITE=1` writes the figures down.

mod paths;
#[path = "../report/mod.rs"]
mod report;

use std::process::{Command, Stdio};

use paths::PATHS;
use report::Line;

const SHORT: usize = 2_000;
const LONG: usize = 6_000;
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/guard/figures.json");

/// Growth that is not noted.
const TOLERANCE: f64 = 1.05;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, path, requests] = arguments.as_slice()
        && let Some((_, path)) = PATHS.iter().find(|(name, _)| name == path)
    {
        return path(requests.parse().expect("a number of requests"));
    }
    let lines = measure();
    if report::wants_json() {
        report::print_json(&lines);
    } else {
        print_table(&lines);
    }
    if std::env::var_os("GUARD_WRITE").is_some() {
        let figures: serde_json::Map<_, _> = lines.iter().map(|line| (line.what.clone(), line.value.into())).collect();
        let text = serde_json::to_string_pretty(&figures).expect("numbers");
        std::fs::write(FIGURES, text + "\n").expect("the figures can be written");
    }
}

fn measure() -> Vec<Line> {
    let figures: serde_json::Value =
        std::fs::read_to_string(FIGURES).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let line = |what: String, value: f64, unit| {
        let line = Line::new(what, value, unit);
        match figures[&line.what].as_f64() {
            Some(figure) => {
                let met = line.value <= figure * TOLERANCE;
                line.bar(format!("{figure} + 5 %"), met)
            }
            None => line,
        }
    };
    let mut lines = Vec::new();
    for (name, path) in PATHS {
        let per_request =
            |short: f64, long: f64| ((long - short) / (LONG - SHORT) as f64 * 100.0).round() / 100.0 + 0.0;
        let allocations = |requests| allocation_counter::measure(|| path(requests)).count_total as f64;
        if let (Some(short), Some(long)) = (instructions(name, SHORT), instructions(name, LONG)) {
            lines.push(line(format!("{name}: instructions"), per_request(short, long).round(), "1"));
        }
        lines.push(line(format!("{name}: allocations"), per_request(allocations(SHORT), allocations(LONG)), "1"));
    }
    lines
}

/// Instructions of a run of the path, counted by callgrind; `None` if there is no such tool.
fn instructions(path: &str, requests: usize) -> Option<f64> {
    let program = std::env::current_exe().expect("the program's path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([path, &requests.to_string()])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        eprintln!("no instructions counted: valgrind can't be run");
        return None;
    };
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected :"));
    collected.and_then(|(_, count)| count.trim().parse().ok())
}

fn print_table(lines: &[Line]) {
    println!("| what | per request | written down | |");
    println!("| --- | ---: | --- | --- |");
    for Line { what, value, bar, .. } in lines {
        let (bar, met) = match bar {
            Some((bar, met)) => (bar.as_str(), if *met { "" } else { "GREW" }),
            None => ("", "new"),
        };
        println!("| {what} | {value} | {bar} | {met} |");
    }
}
