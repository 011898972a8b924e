//! What a request costs: unhindered beside the same three limits in governor, in line in the engine alone; and what it
//! costs to read a response.
//!
//! `scripts/bench overhead` prints the table. Times are the least of several runs in which all contestants take turns;
//! on a machine with other work trust ratios before nanoseconds. No bar makes it fail: it depends on the machine.

mod in_line;
mod observed;
mod reading;
#[path = "../report/mod.rs"]
mod report;
mod unhindered;

use report::Line;

fn main() {
    let mut lines = unhindered::measure();
    lines.extend(in_line::measure());
    lines.extend(observed::measure());
    lines.extend(reading::measure());
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
