//! The rules of a scenario: a file beside it, or text inside it.

use super::{Document, Field};
use crate::rules::{Place, Rules};

/// The text of the rules and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    text: String,
    path: &'static str,
    /// The file, if it is one, or the line of the scenario before the first of the text.
    within: Within,
}

#[derive(Clone, Debug)]
enum Within {
    File(String),
    Scenario { lines_before: u32 },
}

/// A line before the rules that a variant adds, and where it says so.
pub(super) struct Added {
    pub(super) line: String,
    pub(super) path: String,
    pub(super) place: Option<Place>,
}

impl Document<'_, '_> {
    pub(super) fn inline_rules(&mut self, value: Field<'_, '_>, path: &str) -> Option<Source> {
        let text = self.reader.text(value, path, "a rules file as text, between `'''` and `'''`")?;
        let begins = text.place.map_or(1, |place| place.line);
        // A newline right after the opening quotes is not part of the text.
        let raw = self.text.get(value.span()).unwrap_or_default();
        let cut = ["'''\n", "\"\"\"\n", "'''\r\n", "\"\"\"\r\n"].iter().any(|opening| raw.starts_with(opening));
        let lines_before = if cut { begins } else { begins.saturating_sub(1) };
        Some(Source { text: text.value, path: "rules", within: Within::Scenario { lines_before } })
    }

    pub(super) fn rules_file(&mut self, value: Field<'_, '_>, path: &str) -> Option<Source> {
        let name = self.reader.text(value, path, "the name of a rules file in quotes")?.value;
        match std::fs::read_to_string(self.folder.join(&name)) {
            Ok(text) => Some(Source { text, path: "rules_file", within: Within::File(name) }),
            Err(error) => {
                self.unreadable(format!("`{name}`: {error}"), "a readable rules file", path, value);
                None
            }
        }
    }

    /// Reads the rules, with lines before them that a variant adds.
    pub(super) fn rules(&mut self, source: &Source, head: &[Added]) -> Option<Rules> {
        let added = head.len() as u32;
        let lines: String = head.iter().map(|added| &*added.line).collect();
        let findings = match format!("{lines}{}", source.text).parse::<Rules>() {
            Ok(rules) => return Some(rules),
            Err(findings) => findings,
        };
        for finding in findings.into_list() {
            let of_variant = finding.line().and_then(|line| head.get((line as usize).checked_sub(1)?));
            if let Some(Added { path, place, .. }) = of_variant {
                self.reader.findings.push(finding.at(path, *place));
                continue;
            }
            let (path, lines_before) = match &source.within {
                Within::File(name) => (format!("{} {name}", source.path), 0),
                Within::Scenario { lines_before } => (source.path.to_owned(), *lines_before),
            };
            let moved = |place: Place| Place { line: place.line.saturating_sub(added) + lines_before, ..place };
            self.reader.findings.push(finding.inside(&path, moved));
        }
        None
    }
}
