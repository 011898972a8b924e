//! `outbox FILE …`: what is stored there, and what is dead; lets the dead go back in line, or forgets them.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use request_balancer::outbox::{DeadMessage, MessageId, OutboxFile, StoreError, StoredMessage};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Wrong, complain};

/// What is to be done with the file.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Show the messages that are neither sent nor dead.
    List {
        /// Show so many at most.
        #[arg(long, default_value_t = 100)]
        most: u64,
    },
    /// Show the messages that are tried no more. Exit status 1 if there are any.
    Dead,
    /// Put dead messages back in line, for the next start of the program.
    Redrive {
        #[command(flatten)]
        which: Which,
    },
    /// Forget dead messages.
    Purge {
        #[command(flatten)]
        which: Which,
    },
    /// Write everything as JSON, one message a line.
    Export {
        /// Where to: a file that is not there yet. Default: the standard output.
        #[arg(long)]
        to: Option<PathBuf>,
    },
}

/// Which of the dead.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// These, by id.
    ids: Vec<u64>,
    /// All of them.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(path: &Path, action: &Action, json: bool) -> Result<Answer, Wrong> {
    let mut text = Vec::new();
    let outcome = act(path, action, json, &mut text).map_err(|error| error.to_string())?;
    Ok(Answer { text: String::from_utf8_lossy(&text).into_owned(), outcome })
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("can't write: {0}")]
    Io(#[from] io::Error),
}

fn act(path: &Path, action: &Action, json: bool, out: &mut dyn Write) -> Result<Outcome, Failed> {
    let mut file = OutboxFile::open(path)?;
    match action {
        Action::List { most } => list(&mut file, *most, json, out),
        Action::Dead => dead(&mut file, json, out),
        Action::Redrive { which } => each(&mut file, which, ("back in line", out), OutboxFile::redrive),
        Action::Purge { which } => each(&mut file, which, ("forgotten", out), OutboxFile::purge),
        Action::Export { to: Some(to) } => export(&mut file, &mut io::BufWriter::new(std::fs::File::create_new(to)?)),
        // As it comes, since there may be much of it.
        Action::Export { to: None } => match export(&mut file, &mut io::stdout().lock()) {
            // Whoever reads has read enough.
            Err(Failed::Io(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Outcome::Fine),
            exported => exported,
        },
    }
}

fn list(file: &mut OutboxFile, most: u64, json: bool, out: &mut dyn Write) -> Result<Outcome, Failed> {
    let all = file.len();
    let mut shown = Vec::new();
    file.list(|message| {
        if (shown.len() as u64) < most {
            shown.push(message);
        }
        (shown.len() as u64) < most
    })?;
    if json {
        let messages: Vec<Value> = shown.iter().map(stored).collect();
        writeln!(out, "{:#}", json!({ "messages": all, "dead": file.dead_len(), "shown": messages }))?;
        return Ok(Outcome::Fine);
    }
    for message in &shown {
        let StoredMessage { id, rule, key, attempts, json, .. } = message;
        let maybe = if message.maybe_delivered { ", maybe delivered" } else { "" };
        let due = message.due.map_or_else(String::new, |due| format!(", from {}", moment(due)));
        writeln!(out, "{id} {rule} {key}: {}{due}{maybe}; {}", tries(*attempts), brief(json))?;
    }
    writeln!(out, "{all} {}, {} dead", plural(all, "message", "messages"), file.dead_len())?;
    Ok(Outcome::Fine)
}

fn dead(file: &mut OutboxFile, json: bool, out: &mut dyn Write) -> Result<Outcome, Failed> {
    let dead = file.dead()?;
    if json {
        writeln!(out, "{:#}", Value::from_iter(dead.iter().map(buried)))?;
    } else {
        for DeadMessage { id, rule, key, attempts, reason, json, died_at, .. } in &dead {
            writeln!(
                out,
                "{id} {rule} {key}: {} until {}: {reason}; {}",
                tries(*attempts),
                moment(*died_at),
                brief(json)
            )?;
        }
        let count = dead.len() as u64;
        writeln!(out, "{count} dead {}", plural(count, "message", "messages"))?;
    }
    Ok(if dead.is_empty() { Outcome::Fine } else { Outcome::Found })
}

fn each(
    file: &mut OutboxFile,
    which: &Which,
    (done, out): (&str, &mut dyn Write),
    act: impl Fn(&mut OutboxFile, MessageId) -> Result<bool, StoreError>,
) -> Result<Outcome, Failed> {
    let ids: Vec<MessageId> = if which.all {
        file.dead()?.into_iter().map(|dead| dead.id).collect()
    } else {
        which.ids.iter().copied().map(MessageId::from).collect()
    };
    let (mut count, mut outcome) = (0_u64, Outcome::Fine);
    for id in ids {
        if act(file, id)? {
            count += 1;
        } else {
            complain(&format!("there is no dead message {id}\n"));
            outcome = Outcome::Found;
        }
    }
    writeln!(out, "{count} {} {done}", plural(count, "message", "messages"))?;
    Ok(outcome)
}

fn export(file: &mut OutboxFile, out: &mut dyn Write) -> Result<Outcome, Failed> {
    let mut failed = None;
    file.list(|message| match writeln!(out, "{}", stored(&message)) {
        Ok(()) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    for dead in file.dead()? {
        writeln!(out, "{}", buried(&dead))?;
    }
    out.flush()?;
    Ok(Outcome::Fine)
}

fn stored(message: &StoredMessage) -> Value {
    let StoredMessage { id, name, rule, key, put_at, due, attempts, maybe_delivered, json, .. } = message;
    json!({
        "id": id.get(),
        "name": name,
        "rule": &**rule,
        "key": key,
        "put_at": seconds(*put_at),
        "due": due.map(seconds),
        "attempts": attempts,
        "maybe_delivered": maybe_delivered,
        "message": body(json),
    })
}

fn buried(message: &DeadMessage) -> Value {
    let DeadMessage { id, name, rule, key, put_at, died_at, attempts, maybe_delivered, reason, json, .. } = message;
    json!({
        "id": id.get(),
        "name": name,
        "rule": &**rule,
        "key": key,
        "put_at": seconds(*put_at),
        "died_at": seconds(*died_at),
        "attempts": attempts,
        "maybe_delivered": maybe_delivered,
        "reason": reason,
        "message": body(json),
    })
}

/// What was put; as text where it is no JSON.
fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// For people: how long ago, or ahead.
fn moment(at: SystemTime) -> String {
    let whole = |span: std::time::Duration| humantime::format_duration(std::time::Duration::from_secs(span.as_secs()));
    match SystemTime::now().duration_since(at) {
        Ok(ago) => format!("{} ago", whole(ago)),
        Err(ahead) => format!("{} from now", whole(ahead.duration())),
    }
}

fn tries(attempts: u32) -> String {
    format!("{attempts} {}", plural(u64::from(attempts), "attempt", "attempts"))
}

const fn plural(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// As much of a message as fits a line.
fn brief(json: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = json.chars().take(LONGEST).collect();
    if short.len() < json.len() {
        short.push('…');
    }
    short
}
