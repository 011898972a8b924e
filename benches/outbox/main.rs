//! What an outbox costs on a real disk: puts beside bare syncs and beside a JSON file that is rewritten, a million messages
//! opened after a clean end and after a crash, what that takes of the heap and of the disk.
//!
//! `scripts/bench outbox` prints the table; it needs 4 GB in the folder of the build. Times are of this machine's disk: trust
//! the ratios. No bar makes it fail. `OUTBOX_MESSAGES` in the environment is the number that stands for the million.

mod memory;
mod million;
mod puts;
#[path = "../report/mod.rs"]
mod report;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use peak_alloc::PeakAlloc;
use report::Line;
use request_balancer::outbox::Message;
use request_balancer::{Balancer, Failure, Outcome, Rules};

/// Counts what is allocated, on all threads.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What is put: about 300 bytes as JSON.
type Text = String;

fn text() -> Text {
    "x".repeat(298)
}

/// A folder of its own that goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("outbox-bench-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder to write to");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Limits that nothing meets.
fn balancer() -> Balancer {
    Balancer::new("[rules]\nsend = '1000000000/1s'".parse::<Rules>().expect("sound rules"))
}

async fn send(message: Message<Text>) -> Outcome<usize, String> {
    Ok::<_, Failure<String>>(message.body().len())
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut lines = runtime.block_on(puts::measure());
    let million = env::var("OUTBOX_MESSAGES").ok().and_then(|number| number.parse().ok()).unwrap_or(1_000_000);
    lines.extend(runtime.block_on(million::measure(million)));
    lines.extend(runtime.block_on(memory::measure(million)));
    if report::wants_json() {
        report::print_json(&lines);
        return;
    }
    println!("| what | value | unit | bar | met |");
    println!("| --- | ---: | --- | --- | --- |");
    for Line { what, value, unit, bar } in &lines {
        let value = if *value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        let (bar, met) = match bar {
            Some((bar, met)) => (bar.as_str(), if *met { "yes" } else { "NO" }),
            None => ("", ""),
        };
        println!("| {what} | {value} | {unit} | {bar} | {met} |");
    }
}
