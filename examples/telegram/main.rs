//! A bot with a broadcast to hundreds of people, bursts in groups and people who press buttons meanwhile, against a
//! server that refuses as the Telegram Bot API does.
//!
//! ```text
//! cargo run --release --example telegram                  # through the balancer
//! cargo run --release --example telegram -- --without     # the same, the common home-made way
//! ```
//!
//! `balanced.rs` holds all that the crate asks of a bot; `home_made.rs` is what it replaces.

mod api;
mod balanced;
mod bot;
mod delivery;
mod flood;
mod home_made;
mod load;
mod report;
mod server;

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, timeout_at};

use crate::{
    api::Conditions,
    bot::Bot,
    load::Size,
    report::{Report, Sender},
    server::Server,
};

const TOKEN: &str = "123456:example";

/// A run that is not done by then is cut.
const LONGEST_RUN: Duration = Duration::from_secs(60);

/// A bot on a simulated Telegram: a broadcast, groups and people, all under the limits of the Bot API.
#[derive(Parser)]
#[command(name = "telegram")]
struct Args {
    /// Send without the balancer: `buffer_unordered`, and after a refusal sleep and try again
    #[arg(long)]
    without: bool,

    /// A smaller load, done in less than 10 s
    #[arg(long)]
    quick: bool,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Which load to send: the same number, the same load
    #[arg(long, value_name = "N", default_value_t = 8)]
    seed: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let complaint = match run(&args).await {
        Ok(report) => report.complaint(),
        Err(error) => Some(format!("{error:#}")),
    };
    let Some(complaint) = complaint else { return ExitCode::SUCCESS };
    // Nobody may be reading, which is no reason to panic.
    let _ = writeln!(io::stderr(), "error: {complaint}");
    ExitCode::FAILURE
}

async fn run(args: &Args) -> anyhow::Result<Report> {
    let messages = load::messages(args.seed, if args.quick { Size::QUICK } else { Size::FULL });
    let sender = if args.without { Sender::HomeMade } else { Sender::Balancer };
    let server = Server::start(TOKEN, Conditions::usual(args.seed)).await?;
    let bot = Bot::new(&server.url(), TOKEN)?;
    let balancer = balanced::balancer()?;
    let progress = progress(messages.len(), args.json);

    let epoch = Instant::now();
    let mut answers = match sender {
        Sender::Balancer => balanced::deliver(&balancer, &bot, &messages, epoch).boxed_local(),
        Sender::HomeMade => home_made::deliver(&bot, &messages, epoch).boxed_local(),
    };
    let (mut delivered, mut failures) = (Vec::new(), Vec::new());
    let cut = loop {
        match timeout_at(epoch + LONGEST_RUN, answers.next()).await {
            Ok(Some(Ok(message))) => delivered.push(message),
            Ok(Some(Err(error))) => failures.push(error),
            Ok(None) => break false,
            Err(_) => break true,
        }
        progress.inc(1);
        progress.set_message(server.provoked().to_string());
    };
    let took = epoch.elapsed();
    drop(answers);
    progress.finish_and_clear();

    let (optimum, tally) = (load::optimum(&messages), server.stop().await);
    let seed = args.seed;
    let report = Report { sender, seed, messages, delivered, failures, cut, took, optimum, tally };
    let mut out = io::stdout().lock();
    let written = if args.json { report.write_json(&mut out) } else { report.write_table(&mut out) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(report),
    }
}

/// Drawn on the terminal only.
fn progress(len: usize, hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} sent, {msg} refusals provoked, {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len as u64), target).with_style(style).with_message("0")
}
