//! The program `request-balancer`: what a rules file says, whether a log keeps to it, and what would happen under it.
//!
//! Exit status: 0 all is well, 1 something was found, 2 it was called in a wrong way.

mod check;
mod excerpt;
mod plan;
mod simulate;
mod verify;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use request_balancer::sim::Policy;

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
        /// CSV with a first line that names its columns: `at` in seconds, `rule`, `key`, and if it is there `cost`, and
        /// `end` in seconds.
        starts: PathBuf,
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
    },
    /// Run a scenario in virtual time and print what it shows.
    Simulate {
        /// The scenario file.
        scenario: PathBuf,
        /// Who decides what starts when; may be given several times. Default: request-balancer. `all`: everybody whom the
        /// scenario is meant for.
        #[arg(long = "policy", value_parser = policies)]
        policies: Vec<Policies>,
        /// Write a log of all starts to this file, as `verify` reads it: of the first policy, variant and seed.
        #[arg(long)]
        csv: Option<PathBuf>,
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

/// What a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fine,
    Found,
}

fn main() -> ExitCode {
    let Arguments { command, json } = Arguments::parse();
    let outcome = match command {
        Command::Check { files } => check::run(&files, json),
        Command::Verify { rules, starts } => verify::run(&rules, &starts, json),
        Command::Plan { rules, rule, keys } => plan::run(&rules, &rule, keys, json),
        Command::Simulate { scenario, policies, csv } => simulate::run(&scenario, &policies, csv.as_deref(), json),
    };
    match outcome {
        Outcome::Fine => ExitCode::SUCCESS,
        Outcome::Found => ExitCode::from(1),
    }
}
