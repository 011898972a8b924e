//! What a benchmark says: lines of text, or a list that programs read.

use serde_json::{Value, json};

/// One number.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it has to keep, and whether it does.
    pub(crate) bar: Option<(String, bool)>,
}

impl Line {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, bar: None }
    }

    pub(crate) fn bar(mut self, bar: impl Into<String>, met: bool) -> Self {
        self.bar = Some((bar.into(), met));
        self
    }
}

/// Whether a list was asked for instead of a table.
pub(crate) fn wants_json() -> bool {
    std::env::args().any(|argument| argument == "--json")
}

/// `[{"what": …, "value": …, "unit": …, "bar": …, "met": …}, …]`; without a bar the last two are null.
pub(crate) fn print_json(lines: &[Line]) {
    let list: Value = lines
        .iter()
        .map(|Line { what, value, unit, bar }| {
            let (bar, met) = bar.clone().unzip();
            json!({ "what": what, "value": value, "unit": unit, "bar": bar, "met": met })
        })
        .collect();
    println!("{list:#}");
}
