//! What a request costs: unhindered beside other limiters, in line in the engine alone, many at once; and what it costs
//! to read a response.
//!
//! `scripts/bench overhead` prints the table. Times are the least of several runs in which all contestants take turns;
//! on a machine with other work trust ratios before nanoseconds. No bar makes it fail: it depends on the machine.

mod crowd;
mod in_line;
mod observed;
mod peers;
mod reading;
#[path = "../report/mod.rs"]
mod report;
mod unhindered;

use report::Line;

/// A name that may be given as an argument, and what is measured then.
type Section = (&'static str, fn() -> Vec<Line>);

const SECTIONS: [Section; 9] = [
    ("one-key", || unhindered::measure(&[1])),
    ("some-keys", || unhindered::measure(&[1_000])),
    ("many-keys", || unhindered::measure(&[100_000])),
    ("peers", peers::measure),
    ("in-line", in_line::measure),
    ("withdrawn", in_line::withdrawn),
    ("crowd", crowd::measure),
    ("observed", observed::measure),
    ("reading", reading::measure),
];

fn main() {
    let mut lines = Vec::new();
    for (name, measure) in SECTIONS {
        let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        if chosen.is_empty() || chosen.iter().any(|word| word == name) {
            lines.extend(measure());
        }
    }
    if report::wants_json() {
        report::print_json(&lines);
    } else {
        print_table(&lines);
    }
}

fn print_table(lines: &[Line]) {
    println!("| what | value | unit | bar | met |");
    println!("| --- | ---: | --- | --- | --- |");
    for Line { what, value, unit, bar } in lines {
        let value = if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") };
        let (bar, met) = match bar {
            Some((bar, met)) => (bar.as_str(), if *met { "yes" } else { "NO" }),
            None => ("", ""),
        };
        println!("| {what} | {value} | {unit} | {bar} | {met} |");
    }
}
