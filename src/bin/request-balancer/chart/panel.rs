//! One panel: a title, what each line is, and the lines.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::series::Line;
use super::theme::{FONT, GRID, INK, MUTED, SERIES};
use super::{Canvas, Drawn};

/// What is drawn beside the lines.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    /// From, to, and what it is.
    pub(super) x: (f64, f64, String),
    pub(super) y: (f64, f64, String),
    /// Where the marks of the axis are. `None`: where there is room.
    pub(super) x_marks: Option<Vec<f64>>,
    pub(super) x_label: &'a dyn Fn(&f64) -> String,
    pub(super) y_label: &'a dyn Fn(&f64) -> String,
}

/// From the left edge of a panel to its plot.
const LEFT: u32 = 66;
/// How much of that stays empty.
const EDGE: u32 = 10;
/// From the plot to the right edge.
const RIGHT: u32 = 30;
/// From the plot to the lower edge.
const BELOW: u32 = 46;
/// How wide a letter of the legend is, about: no letters are measured here.
const LETTER: i32 = 6;

impl Panel<'_> {
    pub(super) fn draw(&self, area: &Canvas<'_>, lines: &[Line]) -> Drawn {
        let below = heading(area, self.title)?;
        let plot = legend(&below, lines)?;
        let (left, right, _) = self.x;
        let marks = self.x_marks.clone().unwrap_or_else(|| marks(left, right));
        let (low, high, _) = self.y;
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(RIGHT)
            .margin_top(4)
            .margin_left(EDGE)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT - EDGE)
            .build_cartesian_2d(
                Axis { range: left..right, marks },
                Axis { range: low..high, marks: self::marks(low, high) },
            )?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(MUTED)
            .label_style((FONT, 12).into_font().color(&MUTED))
            .axis_desc_style((FONT, 12).into_font().color(&MUTED))
            .x_desc(&self.x.2)
            .y_desc(&self.y.2)
            .x_label_formatter(self.x_label)
            .y_label_formatter(self.y_label)
            .draw()?;
        for (line, colour) in lines.iter().zip(SERIES.iter().cycle()) {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        }
        Ok(())
    }
}

/// Numbers from one to another, with marks where we want them.
struct Axis {
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Draws a title and returns what is below it.
pub(super) fn heading<'a>(area: &Canvas<'a>, title: &str) -> Result<Canvas<'a>, Box<dyn std::error::Error>> {
    let (head, below) = area.split_vertically(30);
    head.draw(&Text::new(title.to_owned(), (20, 10), (FONT, 15).into_font().color(&INK)))?;
    Ok(below)
}

/// Draws what each line is, in as many rows as that takes, and returns what is below.
fn legend<'a>(area: &Canvas<'a>, lines: &[Line]) -> Result<Canvas<'a>, Box<dyn std::error::Error>> {
    const ROW: i32 = 18;
    let (width, _) = area.dim_in_pixel();
    let (left, right) = (LEFT as i32, width as i32 - RIGHT as i32);
    let (mut x, mut y) = (left, 2);
    let style = (FONT, 12).into_font().color(&INK);
    for (line, colour) in lines.iter().zip(SERIES.iter().cycle()) {
        let name = fitted(&line.name, (right - left - 38) / LETTER);
        let wide = 26 + name.chars().count() as i32 * LETTER + 12;
        if x > left && x + wide > right {
            (x, y) = (left, y + ROW);
        }
        area.draw(&Rectangle::new([(x, y + 5), (x + 18, y + 8)], colour.filled()))?;
        area.draw(&Text::new(name, (x + 26, y), style.clone()))?;
        x += wide;
    }
    let (_, below) = area.split_vertically(u32::try_from(y + ROW + 4).unwrap_or_default());
    Ok(below)
}

/// A name of not more letters than there is room for.
fn fitted(name: &str, most: i32) -> String {
    let most = usize::try_from(most).unwrap_or_default();
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// One limit over time: its name above, and from nothing to full below that.
pub(super) fn strip(area: &Canvas<'_>, (left, right): (f64, f64), top: f64, line: &Line, colour: RGBColor) -> Drawn {
    let (head, plot) = area.split_vertically(18);
    head.draw(&Text::new(line.name.clone(), (LEFT as i32, 3), (FONT, 12).into_font().color(&INK)))?;
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(RIGHT)
        .margin_top(3)
        .margin_bottom(3)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(
            Axis { range: left..right, marks: Vec::new() },
            Axis { range: 0.0..top * 1.02, marks: vec![0.0, 50.0, 100.0] },
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style((FONT, 11).into_font().color(&MUTED))
        .y_label_formatter(&|full| format!("{full:.0}"))
        .draw()?;
    let points = line.points.iter().copied();
    chart.draw_series(AreaSeries::new(points, 0.0, colour.mix(0.25)).border_style(colour.stroke_width(1)))?;
    Ok(())
}

/// The axis of time for what is above.
pub(super) fn time_axis(area: &Canvas<'_>, end: f64, description: &str) -> Drawn {
    let (width, _) = area.dim_in_pixel();
    let (left, right) = (LEFT as i32, width as i32 - RIGHT as i32);
    let style = (FONT, 12).into_font().color(&MUTED).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&PathElement::new([(left, 0), (right, 0)], MUTED))?;
    for mark in marks(0.0, end) {
        let x = left + (f64::from(right - left) * mark / end).round() as i32;
        area.draw(&PathElement::new([(x, 0), (x, 4)], MUTED))?;
        area.draw(&Text::new(super::shown(mark), (x, 8), style.clone()))?;
    }
    area.draw(&Text::new(description.to_owned(), ((left + right) / 2, 28), style))?;
    Ok(())
}

/// Round numbers between two others, some six of them.
fn marks(from: f64, to: f64) -> Vec<f64> {
    let span = to - from;
    let rough = span / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::{fitted, marks};

    #[test]
    fn a_name_too_long_is_cut() {
        assert_eq!([fitted("lane", 4), fitted("lanes", 4), fitted("lanes", -1)], ["lane", "lan…", "…"]);
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(marks(0.0, 120.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(marks(0.0, 36.0), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(marks(0.0, 0.9), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]);
    }
}
