//! `simulate SCENARIO`: what a scenario shows, under one policy or several.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use request_balancer::Start;
use request_balancer::sim::{Measure, Policy, Progress, Scenario, Value};
use serde_json::{Value as Json, json};

use crate::check::print_all;
use crate::{Outcome, Policies};

pub(crate) fn run(file: &Path, policies: &[Policies], csv: Option<&Path>, json: bool) -> Outcome {
    let scenario = match Scenario::from_file(file) {
        Ok(scenario) => scenario,
        Err(findings) => {
            print_all(file, &findings, json);
            return Outcome::Found;
        }
    };
    let mut wanted: Vec<Policy> = Vec::new();
    for policies in policies {
        match policies {
            Policies::All => wanted.extend(scenario.policies()),
            Policies::One(policy) => wanted.push(*policy),
        }
    }
    if wanted.is_empty() {
        wanted.push(Policy::Balancer);
    }
    if let Some(csv) = csv
        && let Err(error) = std::fs::write(csv, log(&scenario.starts(wanted[0])))
    {
        eprintln!("{}: {error}", csv.display());
        return Outcome::Found;
    }
    let runs: Vec<Vec<Measure>> = wanted.iter().map(|&policy| measured(&scenario, policy)).collect();
    if json {
        println!("{:#}", runs.iter().flatten().map(as_json).collect::<Json>());
    } else {
        print!("{}", table(&wanted, &runs));
    }
    // What others miss is what they are shown for.
    let own = runs.iter().flatten().filter(|measure| measure.policy == Policy::Balancer);
    if own.into_iter().all(|measure| measure.met() != Some(false)) { Outcome::Fine } else { Outcome::Found }
}

/// A line for each start.
fn log(starts: &[Start]) -> String {
    let seconds = |at: Duration| format!("{}.{:09}", at.as_secs(), at.subsec_nanos());
    let lines = starts.iter().map(|start| {
        let Start { at, rule, key, cost, end, .. } = start;
        format!("{},{rule},{key},{cost},{}\n", seconds(*at), end.map(seconds).unwrap_or_default())
    });
    std::iter::once("at,rule,key,cost,end\n".to_owned()).chain(lines).collect()
}

/// Runs it, and shows how far it is where somebody looks.
fn measured(scenario: &Scenario, policy: Policy) -> Vec<Measure> {
    if !std::io::stderr().is_terminal() {
        return scenario.run(policy);
    }
    let show = |progress: Progress| {
        let Progress { now, started, calls, .. } = progress;
        let secs = now.as_nanos() / 1_000_000_000;
        eprint!("\r{policy}: {started} of {calls} calls started, {secs} s of virtual time ");
        // Whoever does not see it misses nothing.
        let _ = std::io::stderr().flush();
    };
    let measures = scenario.run_with(policy, show);
    eprint!("\r\x1b[K");
    measures
}

/// A line for each number, a column for each policy.
fn table(policies: &[Policy], runs: &[Vec<Measure>]) -> String {
    let mut head = vec!["".to_owned()];
    head.extend(policies.iter().map(ToString::to_string));
    head.extend(["optimum".to_owned(), "bound".to_owned()]);
    let mut lines = vec![head];
    let mut titles = vec![None];
    let shown = |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for row in 0..runs.first().map_or(0, Vec::len) {
        let first = &runs[0][row];
        let mut line = vec![first.metric.clone()];
        for run in runs {
            let kept = if run[row].met() == Some(false) { " (!)" } else { "" };
            line.push(format!("{}{kept}", shown(run[row].measured)));
        }
        line.push(shown(first.optimum));
        line.push(first.bound.map_or_else(|| "-".to_owned(), |bound| bound.to_string()));
        lines.push(line);
        let is_new = row == 0 || runs[0][row - 1].scenario != first.scenario;
        titles.push(is_new.then(|| first.scenario.clone()));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for (line, title) in lines.iter().zip(titles) {
        if let Some(title) = title {
            text.push_str(&title);
            text.push('\n');
        }
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("  {cell:width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    if runs.iter().flatten().any(|measure| measure.met() == Some(false)) {
        text.push_str("(!) the bound is not kept\n");
    }
    text
}

pub(crate) fn as_json(measure: &Measure) -> Json {
    json!({
        "scenario": measure.scenario,
        "policy": measure.policy.as_str(),
        "metric": measure.metric,
        "measured": measure.measured.map(Value::as_f64),
        "unit": measure.measured.or(measure.optimum).map(Value::unit),
        "optimum": measure.optimum.map(Value::as_f64),
        "ratio": measure.ratio().map(|ratio| ratio as f64 / 1e3),
        "bound": measure.bound.map(|bound| bound.to_string()),
        "met": measure.met(),
    })
}
