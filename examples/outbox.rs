//! A program that sends messages and may be killed at any time: run it, kill it, run it again.
//!
//! ```text
//! cargo run --features outbox --example outbox
//! ```
//!
//! Each run puts 200 messages for ten chats in line and delivers ten in a second, those of earlier runs included. The other
//! side is a file beside the outbox, `outbox-example.log` in the folder for temporary files: a line a delivery. Kill the
//! program with Ctrl-C or `kill -9` and start it again: every message arrives, and the one that was on its way when the
//! program died comes again with a mark. The other side knows it by its idempotency key.
//!
//! Options: `--messages N` puts so many; `--per-second N` delivers so many; `--die-after N` dies by itself after so many
//! deliveries, in the middle of one; `--file PATH` keeps the outbox there.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use request_balancer::outbox::{Message, Outbox};
use request_balancer::{Balancer, Failure, Outcome, Rules};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Text {
    chat: u32,
    text: String,
}

struct Options {
    file: PathBuf,
    messages: u32,
    per_second: u32,
    die_after: Option<u64>,
}

impl Options {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let file = std::env::temp_dir().join("outbox-example.redb");
        let mut options = Self { file, messages: 200, per_second: 10, die_after: None };
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("no value for {name}"))?;
            match name.as_str() {
                "--file" => options.file = value.into(),
                "--messages" => options.messages = value.parse()?,
                "--per-second" => options.per_second = value.parse()?,
                "--die-after" => options.die_after = Some(value.parse()?),
                _ => return Err(format!("there is no option {name}").into()),
            }
        }
        Ok(options)
    }
}

/// The other side: writes a line for each delivery, whether it knows the message or not.
struct Server {
    log: PathBuf,
    deliveries: AtomicU64,
    die_after: Option<u64>,
}

impl Server {
    fn take(&self, message: &Message<Text>) -> io::Result<()> {
        let maybe = if message.maybe_delivered() { " (maybe again)" } else { "" };
        let Text { chat, text } = message.body();
        println!("to {chat}: {text}, attempt {}{maybe}", message.number());
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        // In one piece: several deliveries write at a time, and each of them may be the last thing this program does.
        let line = format!("{} {}\n", message.idempotency_key(), message.maybe_delivered());
        log.write_all(line.as_bytes())?;
        if self.die_after == Some(self.deliveries.fetch_add(1, Ordering::Relaxed) + 1) {
            // As if by `kill -9`: the server has the message, and nobody here will ever know.
            std::process::abort();
        }
        Ok(())
    }
}

async fn send(server: Arc<Server>, message: Message<Text>) -> Outcome<(), io::Error> {
    server.take(&message).map_err(Failure::transient)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Options { file, messages, per_second, die_after } = Options::read(std::env::args().skip(1))?;
    let rules = format!("overall = '{per_second}/1s smooth'\n[rules]\nsend = '1000/1s'");
    let balancer = Balancer::new(rules.parse::<Rules>()?);
    let server = Arc::new(Server { log: file.with_extension("log"), deliveries: AtomicU64::new(0), die_after });
    let log = server.log.clone();
    let outbox = Outbox::open(&file, &balancer, move |message| send(Arc::clone(&server), message)).await?;
    println!("{} messages are left from before", outbox.len());

    let texts: Vec<Text> =
        (0..messages).map(|number| Text { chat: number % 10, text: format!("news {number}") }).collect();
    outbox.put_all(texts.iter().map(|text| ("send", text.chat, text))).await?;
    outbox.flush().await;
    outbox.close(Duration::from_secs(5)).await?;
    report(&log)
}

/// What arrived in all runs.
fn report(log: &Path) -> Result<(), Box<dyn Error>> {
    let mut arrived: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for line in fs::read_to_string(log)?.lines() {
        let (key, maybe) = line.split_once(' ').ok_or("a line that no delivery wrote")?;
        arrived.entry(key.to_owned()).or_default().push(maybe == "true");
    }
    let again: usize = arrived.values().map(|times| times.len() - 1).sum();
    let unmarked = arrived.values().flat_map(|times| &times[1..]).filter(|maybe| !**maybe).count();
    println!("{} messages arrived, {again} of them twice, {unmarked} of those without a mark", arrived.len());
    Ok(())
}
