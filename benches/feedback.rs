//! What feedback is worth against a random server: refusals a run and slots used, beside a reader that takes
//! `min(local, remaining)` literally and beside a client that does not listen.
//!
//! `scripts/bench feedback` prints the table. Virtual time and fixed seeds: the numbers are the same on every machine.

#[path = "../tests/feedback/mod.rs"]
mod feedback;
mod report;

use feedback::{Fault, Kind, Policy, Setting, study};
use report::Line;

/// Runs of each setting, 30 windows each.
const RUNS: u64 = 200;

fn main() {
    let mut lines = Vec::new();
    let json = report::wants_json();
    if !json {
        println!(
            "| server | others take | without fields | local rule | refused a run: deaf | literal | overlay | slots used: deaf | literal | overlay |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    }
    for setting in settings() {
        let Setting { kind, others, missing, wide, faults } = setting;
        let [deaf, literal, overlay] =
            [Policy::Deaf, Policy::Literal, Policy::Overlay].map(|policy| study(setting, policy, 0..RUNS));
        let faulty = match faults {
            [] => String::new(),
            [fault] => format!(", {}", fault.words()),
            _ => ", all of these".to_owned(),
        };
        let what = format!("{kind:?}{faulty}, others {others} %, without fields {missing} %, local {wide} times");
        if !json {
            println!(
                "| {kind:?}{faulty} | {others} % | {missing} % | {wide} × | {:.1} | {:.1} | {:.1} | {:.1} % | {:.1} % | {:.1} % |",
                deaf.refused_a_run(),
                literal.refused_a_run(),
                overlay.refused_a_run(),
                deaf.share(),
                literal.share(),
                overlay.share(),
            );
        }
        let refused = Line::new(format!("{what}: refused a run"), overlay.refused_a_run(), "1");
        let refused = match (faults, kind) {
            ([], Kind::Fixed) => refused.bar("none inside a window that was told", overlay.foreseeable == 0),
            ([], Kind::Sliding) => {
                let less = 3.0 * overlay.refused_a_run() < literal.refused_a_run();
                refused.bar("none before a reset that was told, and a third of the literal reader's", {
                    less && overlay.foreseeable == 0
                })
            }
            _ => refused.bar("none before a reset that was told", overlay.foreseeable == 0),
        };
        let used = Line::new(format!("{what}: slots used"), overlay.share(), "%");
        let used = if faults.is_empty() { used.bar("at least 97 %", overlay.share() >= 97.0) } else { used };
        lines.extend([refused, used]);
    }
    if json {
        report::print_json(&lines);
    }
}

/// Servers that say what they say rightly, and some that do not.
fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for kind in [Kind::Fixed, Kind::Sliding] {
        for others in [0, 20] {
            for missing in [0, 10] {
                all.extend([1, 3].map(|wide| Setting { kind, others, missing, wide, faults: &[] }));
            }
        }
        let faults = Fault::ALL.chunks(1).chain([Fault::ALL]);
        all.extend(faults.map(|faults| Setting { kind, others: 20, missing: 10, wide: 3, faults }));
    }
    all
}
