//! A run as a picture: four panels, as SVG that is readable on light and on dark pages.

mod panel;
mod series;
mod theme;

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use request_balancer::sim::Record;

use self::panel::Panel;
use self::theme::{FONT, INK, MUTED, PAPER, SERIES};

/// A place to draw on.
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Drawn = Result<(), Box<dyn Error>>;

const SIZE: (u32, u32) = (1_080, 800);

/// Draws a run.
pub(crate) fn svg(record: &Record) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    draw(record, &mut text)?;
    Ok(theme::with_dark(&text, &record.scenario))
}

fn draw(record: &Record, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&PAPER)?;
    let (head, body) = root.split_vertically(50);
    head.draw(&Text::new(record.scenario.clone(), (20, 14), (FONT, 20).into_font().color(&INK)))?;
    let many = |number: usize, one: &str| {
        let number = series::grouped(number as u64);
        if number == "1" { format!("1 {one}") } else { format!("{number} {one}s") }
    };
    let (starts_of_all, keys) = (many(record.starts().len(), "start"), many(series::keys(record), "key"));
    let said = format!("{starts_of_all} of {keys} in {:?} by {}", record.end, record.policy);
    head.draw(&Text::new(said, (20, 38), (FONT, 13).into_font().color(&MUTED)))?;
    let panels = body.margin(0, 8, 0, 0).split_evenly((2, 2));
    starts(&panels[0], record)?;
    waits(&panels[1], record)?;
    services(&panels[2], record)?;
    fills(&panels[3], record)?;
    root.present()?;
    Ok(())
}

fn starts(area: &Canvas<'_>, record: &Record) -> Drawn {
    let lines = series::starts(record);
    let most = lines.iter().flat_map(|line| &line.points).map(|&(_, rate)| rate).fold(0.0, f64::max);
    let time = series::Time::of(record);
    let panel = Panel {
        title: "Starts of each lane",
        x: (0.0, time.end(), time.describe()),
        y: (0.0, above(most), "starts per second".to_owned()),
        x_marks: None,
        x_label: &|at| shown(*at),
        y_label: &|rate| shown(*rate),
    };
    panel.draw(area, &lines)
}

fn waits(area: &Canvas<'_>, record: &Record) -> Drawn {
    let lines = series::waits(record);
    let longest = lines.iter().flat_map(|line| &line.points).map(|&(wait, _)| wait).fold(1.0, f64::max).ceil();
    let panel = Panel {
        title: "How long calls of each lane wait for their first start",
        x: (0.0, longest, "wait, up to".to_owned()),
        y: (0.0, 100.0, "% of the calls that started".to_owned()),
        x_marks: Some((0..=longest as i32).map(f64::from).collect()),
        x_label: &|power| series::power_of_ten(*power),
        y_label: &|share| format!("{share:.0}"),
    };
    panel.draw(area, &lines)
}

fn services(area: &Canvas<'_>, record: &Record) -> Drawn {
    let (lines, shown_keys) = series::services(record);
    let most = lines.iter().flat_map(|line| &line.points).map(|&(_, served)| served).fold(0.0, f64::max);
    let time = series::Time::of(record);
    let title = match shown_keys {
        series::ShownKeys::All => "What each key got",
        series::ShownKeys::ByRank => "What keys got, from the most served (1.) to the least",
    };
    let panel = Panel {
        title,
        x: (0.0, time.end(), time.describe()),
        y: (0.0, above(most), "started so far, in requests".to_owned()),
        x_marks: None,
        x_label: &|at| shown(*at),
        y_label: &|served| shown(*served),
    };
    panel.draw(area, &lines)
}

/// One strip for each limit: several lines at 100 % would hide each other.
fn fills(area: &Canvas<'_>, record: &Record) -> Drawn {
    const MOST: usize = 5;
    let time = series::Time::of(record);
    let all = series::fills(record);
    let (fills, left_out) = all.split_at(all.len().min(MOST));
    let title = match left_out.len() {
        0 => "How full windows and caps are, in %".to_owned(),
        more => format!("How full windows and caps are, in % ({more} more are not shown)"),
    };
    let below = panel::heading(area, &title)?;
    if fills.is_empty() {
        below.draw(&Text::new(
            "The rules have no window and no cap.",
            (62, 30),
            (FONT, 12).into_font().color(&MUTED),
        ))?;
        return Ok(());
    }
    // The axis of time is below the last strip.
    const AXIS: u32 = 46;
    let (_, height) = below.dim_in_pixel();
    let (strips, axis) = below.split_vertically(height.saturating_sub(AXIS));
    for (number, (fill, strip)) in fills.iter().zip(strips.split_evenly((fills.len(), 1))).enumerate() {
        let colour = SERIES[number % SERIES.len()];
        let fullest = fill.points.iter().map(|&(_, full)| full).fold(100.0, f64::max);
        panel::strip(&strip, (0.0, time.end()), fullest, fill, colour)?;
    }
    panel::time_axis(&axis, time.end(), &time.describe())
}

/// A little above the highest number, so that its line is not at the edge.
fn above(most: f64) -> f64 {
    if most > 0.0 { most * 1.08 } else { 1.0 }
}

/// A number as short as it can be.
fn shown(number: f64) -> String {
    let rounded = (number * 100.0).round() / 100.0;
    if rounded >= 1_000.0 { series::grouped(rounded as u64) } else { format!("{rounded}") }
}
