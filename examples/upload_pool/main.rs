//! Parts of many files to a file server that takes one upload at a time for each token, and now and then refuses a token
//! for 30 to 60 seconds.
//!
//! ```text
//! cargo run --release --example upload_pool              # to a server on the loopback, a hundred times as fast
//! cargo run --release --example upload_pool -- --study   # 100 seeds in virtual time, beside two common ways
//! ```
//!
//! What the crate asks of a program is in `upload_all` below; `study.rs` has the other ways.

mod server;
mod study;

use std::process::ExitCode;
use std::time::Duration;

use futures::future::try_join_all;
use request_balancer::{Balancer, Error, Failure, Pool, Rules};

use server::{Answer, Server};

const TOKENS: usize = 6;

const RULES: &str = "
    [rules.upload]
    # The server knows how long it refuses a token, and says so.
    retry = { waits = 1000, total_wait = false, ceiling = false, jitter = 0, min_wait = '0s', order = 'server' }

    [pool]
    concurrency = 1             # one upload at a time for each token
";

/// A bot that may upload.
struct Bot {
    token: String,
    server: Server,
}

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--study") {
        return if study::print(100) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match upload_to_loopback().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn upload_to_loopback() -> anyhow::Result<()> {
    let work = study::Work::new(7, TOKENS, 12, 10).scaled(0.01);
    let server = Server::start(&work).await?;
    let bots =
        (0..TOKENS).map(|number| (format!("bot-{number}"), Bot { token: number.to_string(), server: server.clone() }));
    let pool = Balancer::builder(RULES.parse::<Rules>()?).pool(bots)?;
    let began = tokio::time::Instant::now();
    upload_all(&pool, &work).await?;
    let tally = server.tally();
    println!(
        "{} parts in {:.2?}, at least {:.2?}; {} times a token was refused, {} times it was used twice at once",
        work.parts.len(),
        began.elapsed(),
        work.lower_bound(),
        tally.refused,
        tally.collisions,
    );
    for endpoint in pool.balancer().snapshot().endpoints {
        println!("{}: {} uploads", endpoint.name, endpoint.starts);
    }
    anyhow::ensure!(tally.stored == work.parts.len() && tally.collisions == 0, "{tally:?}");
    Ok(())
}

/// All parts of all files, each with whatever bot is free.
async fn upload_all(pool: &Pool<Bot>, work: &study::Work) -> Result<(), Error<anyhow::Error>> {
    let uploads = work.parts.iter().map(|part| {
        pool.run("upload", part.file, move |attempt| async move {
            let bot = attempt.endpoint().value();
            match bot.server.upload(&bot.token, part.takes).await? {
                Answer::Stored => Ok(()),
                Answer::TooManyRequests { retry_after } => Err(attempt.retry(retry_after)),
                Answer::Unauthorized => Err(Failure::permanent(anyhow::anyhow!("401")).disable_endpoint()),
            }
        })
    });
    try_join_all(uploads).await.map(drop)
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Part {
    file: u64,
    takes: Duration,
}
