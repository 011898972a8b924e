//! The program `request-balancer`: what a rules file says, whether a log keeps to it or makes the next start wait, and what
//! would happen under it.
//!
//! Exit status: 0 all is well; 1 something was found, or has to wait; 2 it was called in a wrong way, or for a file that it
//! can't use.

mod answer;
mod chart;
mod check;
mod excerpt;
mod explain;
mod failures;
mod lanes;
mod log;
mod outbox;
mod plan;
mod pool;
mod probe;
mod progress;
mod simulate;
mod verify;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use request_balancer::Nanos;
use request_balancer::sim::Policy;

use crate::answer::{Answer, Wrong};

/// Looks at rules for calls to a rate-limited API before they are used, and at what was called.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print JSON for programs instead of text.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say all that is wrong or doubtful in rules files, and what they mean.
    Check {
        /// Rules files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Find every limit that a log of starts breaks.
    Verify {
        /// The rules file.
        rules: PathBuf,
        /// CSV with a first line that names its columns: `at` in seconds, `rule`, `key`, and if they are there `cost`, the
        /// `end` of the attempt in seconds, a column for each declared unit, `again`, and the `endpoint` that was used.
        starts: PathBuf,
    },
    /// Say limit by limit what makes the next start wait, and until when. Exit status 0 if it may start at once.
    Explain {
        /// The rules file.
        rules: PathBuf,
        /// The rule under which it is to start.
        #[arg(long)]
        rule: String,
        /// Its key.
        #[arg(long)]
        key: String,
        /// What started before: CSV as `verify` reads it. In the column `again` stands from when on the server wants to
        /// hear of somebody whom it refused, in seconds.
        #[arg(long)]
        history: Option<PathBuf>,
        /// When it is asked, in seconds of the history. Default: at the last start there.
        #[arg(long, value_parser = instant)]
        at: Option<Duration>,
        /// What it costs in requests.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        cost: u32,
        /// What it costs in a declared unit, such as `tokens=900`; may be given several times.
        #[arg(long = "units", value_name = "UNIT=COST", value_parser = unit)]
        units: Vec<(String, u32)>,
        /// The endpoint that it is to use. Default: the one where it may start first.
        #[arg(long)]
        on: Option<String>,
    },
    /// Say how long a broadcast takes, and what calls of more urgent rules wait meanwhile.
    Plan {
        /// The rules file.
        rules: PathBuf,
        /// The broadcast's rule.
        #[arg(long)]
        rule: String,
        /// How many keys get one call each.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        keys: u32,
        /// How long an attempt takes, such as `250ms`: without it caps on how many run at once cost nothing.
        #[arg(long, value_parser = span, default_value = "0s")]
        takes: Nanos,
        /// Of how many endpoints the pool is to be. Default: of those that the file lists.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        endpoints: Option<u16>,
        /// What each call of it costs in requests.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        cost: u32,
        /// What each call of it costs in a declared unit, such as `tokens=900`; may be given several times.
        #[arg(long = "units", value_name = "UNIT=COST", value_parser = unit)]
        units: Vec<(String, u32)>,
    },
    /// Show what an outbox's file has stored, and put it right. Not while a program has it open.
    Outbox {
        /// The outbox's file.
        file: PathBuf,
        #[command(subcommand)]
        action: outbox::Action,
    },
    /// Run a scenario in virtual time and print what it shows.
    Simulate {
        /// The scenario file.
        scenario: PathBuf,
        /// Who decides what starts when; may be given several times. Default: request-balancer. `all`: everybody whom the
        /// scenario is meant for.
        #[arg(long = "policy", value_parser = policies)]
        policies: Vec<Policies>,
        /// Run it with this seed alone, instead of with those of the scenario.
        #[arg(long)]
        seed: Option<u32>,
        /// Write a log of all starts to this file, as `verify` reads it: of the first policy, variant and seed.
        #[arg(long)]
        csv: Option<PathBuf>,
        /// Draw the same run to this file: starts of each lane, waits, keys, and how full limits are, as SVG.
        #[arg(long)]
        svg: Option<PathBuf>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Policies {
    All,
    One(Policy),
}

fn policies(name: &str) -> Result<Policies, request_balancer::sim::UnknownPolicy> {
    if name == "all" { Ok(Policies::All) } else { name.parse().map(Policies::One) }
}

fn instant(text: &str) -> Result<Duration, &'static str> {
    log::seconds(text).ok_or("seconds with up to nine decimals, such as `12.5`")
}

fn span(text: &str) -> Result<Nanos, String> {
    humantime::parse_duration(text).map(Nanos::from).map_err(|error| error.to_string())
}

fn unit(text: &str) -> Result<(String, u32), &'static str> {
    let (unit, cost) = text.split_once('=').ok_or("a unit and a whole number, such as `tokens=900`")?;
    Ok((unit.to_owned(), cost.parse().map_err(|_| "a whole number after the `=`")?))
}

impl Command {
    fn run(self, json: bool) -> Result<Answer, Wrong> {
        match self {
            Self::Check { files } => check::run(&files, json),
            Self::Verify { rules, starts } => verify::run(&rules, &starts, json),
            Self::Plan { rules, rule, keys, takes, endpoints, cost, units } => {
                let each = plan::Each { cost, units: &units, takes };
                plan::run(&rules, &plan::Broadcast { rule: &rule, keys, each, endpoints }, json)
            }
            Self::Explain { rules, rule, key, history, at, cost, units, on } => {
                let asked = explain::Asked { rule: &rule, key: &key, cost, units: &units, at, on: on.as_deref() };
                explain::run(&rules, &asked, history.as_deref(), json)
            }
            Self::Outbox { file, action } => outbox::run(&file, &action, json),
            Self::Simulate { scenario, policies, seed, csv, svg } => {
                let files = simulate::Files { csv: csv.as_deref(), svg: svg.as_deref() };
                simulate::run(&scenario, &policies, seed, &files, json)
            }
        }
    }
}

fn main() -> ExitCode {
    let Arguments { command, json } = Arguments::parse();
    answer::end(command.run(json), json)
}
