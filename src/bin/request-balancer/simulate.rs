//! `simulate SCENARIO`: what a scenario shows, under one policy or several.

use std::path::Path;

use request_balancer::Start;
use request_balancer::sim::{Measure, Policy, Record, Scenario, Value};
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Outcome, Wrong};
use crate::check::unusable;
use crate::progress::Bar;
use crate::{Policies, chart, log};

/// Where a run goes besides.
pub(crate) struct Files<'a> {
    pub(crate) csv: Option<&'a Path>,
    pub(crate) svg: Option<&'a Path>,
}

pub(crate) fn run(
    file: &Path,
    policies: &[Policies],
    seed: Option<u32>,
    files: &Files<'_>,
    json: bool,
) -> Result<Answer, Wrong> {
    let scenario = Scenario::from_file(file).map_err(|findings| unusable(file, &findings))?;
    let scenario = match seed {
        Some(seed) => scenario.with_seeds([seed.into()]),
        None => scenario,
    };
    let mut wanted: Vec<Policy> = Vec::new();
    for policies in policies {
        let named = match policies {
            Policies::All => scenario.policies().to_vec(),
            Policies::One(policy) => vec![*policy],
        };
        // Whoever is named twice is shown once.
        wanted.extend(named.into_iter().filter(|policy| !wanted.contains(policy)).collect::<Vec<_>>());
    }
    if wanted.is_empty() {
        wanted.push(Policy::Balancer);
    }
    files.write(&scenario, wanted[0])?;
    let runs: Vec<Vec<Measure>> = wanted.iter().map(|&policy| measured(&scenario, policy)).collect();
    // What others miss is what they are shown for.
    let mut own = runs.iter().flatten().filter(|measure| measure.policy == Policy::Balancer);
    let outcome = Outcome::found_if(own.any(|measure| measure.met() == Some(false)));
    if json {
        return Ok(Answer::json(&runs.iter().flatten().map(as_json).collect(), outcome));
    }
    Ok(Answer { text: table(&wanted, &runs), outcome })
}

impl Files<'_> {
    /// Writes one run to the files that are wanted.
    fn write(&self, scenario: &Scenario, policy: Policy) -> Result<(), String> {
        if self.csv.is_none() && self.svg.is_none() {
            return Ok(());
        }
        let bar = Bar::new(policy);
        let record = scenario.record_with(policy, |progress| bar.show(progress));
        drop(bar);
        let write = |file: Option<&Path>, text: &dyn Fn() -> Result<String, String>| {
            let Some(file) = file else { return Ok(()) };
            let written = text().and_then(|text| std::fs::write(file, text).map_err(|error| error.to_string()));
            written.map_err(|error| format!("{}: {error}", file.display()))
        };
        write(self.csv, &|| csv(&record))?;
        write(self.svg, &|| chart::svg(&record).map_err(|error| error.to_string()))
    }
}

fn csv(record: &Record) -> Result<String, String> {
    let units: Vec<&str> = record.rules().units().collect();
    let starts: Vec<Start> = record.starts().iter().map(|started| started.start.clone()).collect();
    log::written(&starts, &units)
}

/// Runs it, and shows how far it is where somebody looks.
fn measured(scenario: &Scenario, policy: Policy) -> Vec<Measure> {
    let bar = Bar::new(policy);
    scenario.run_with(policy, |progress| bar.show(progress))
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
