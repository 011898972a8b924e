//! What feedback is worth against a random server: refusals a run and slots used, beside a reader that takes
//! `min(local, remaining)` literally and beside a client that does not listen.
//!
//! `scripts/bench feedback` prints the table. Virtual time and fixed seeds: the numbers are the same on every machine.

#[path = "../tests/feedback/mod.rs"]
mod feedback;
mod report;

use feedback::{Kind, Policy, Setting, study};
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
    for kind in [Kind::Fixed, Kind::Sliding] {
        for others in [0, 20] {
            for missing in [0, 10] {
                for wide in [1, 3] {
                    let setting = Setting { kind, others, missing, wide };
                    let [deaf, literal, overlay] =
                        [Policy::Deaf, Policy::Literal, Policy::Overlay].map(|policy| study(setting, policy, 0..RUNS));
                    let what = format!("{kind:?}, others {others} %, without fields {missing} %, local {wide} times");
                    if !json {
                        println!(
                            "| {kind:?} | {others} % | {missing} % | {wide} × | {:.1} | {:.1} | {:.1} | {:.1} % | {:.1} % | {:.1} % |",
                            deaf.refused_a_run(),
                            literal.refused_a_run(),
                            overlay.refused_a_run(),
                            deaf.share(),
                            literal.share(),
                            overlay.share(),
                        );
                    }
                    let refused = Line::new(format!("{what}: refused a run"), overlay.refused_a_run(), "1");
                    let used = Line::new(format!("{what}: slots used"), overlay.share(), "%");
                    lines.extend(match kind {
                        Kind::Fixed => {
                            let met = overlay.foreseeable == 0;
                            [
                                refused.bar("none inside a window that was told", met),
                                used.bar("at least 97 %", overlay.share() >= 97.0),
                            ]
                        }
                        Kind::Sliding => {
                            let less = 3.0 * overlay.refused_a_run() < literal.refused_a_run();
                            [
                                refused.bar("less than a third of the literal reader's", less),
                                used.bar("at least 97 %", overlay.share() >= 97.0),
                            ]
                        }
                    });
                }
            }
        }
    }
    if json {
        report::print_json(&lines);
    }
}
