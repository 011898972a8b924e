//! The one house of wording: what findings say, apart from where they say it.

use super::finding::{Finding, FindingCode};
use super::toml::NONE;
use crate::headers::Dialect;

/// Found text in backticks, cut to a readable length.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.is_empty() {
        return "empty text".to_owned();
    }
    let shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    // `escape_debug` guards quotes for string literals; between backticks they need none.
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    match text.chars().nth(LONGEST) {
        Some(_) => format!("`{shown}…`"),
        None => format!("`{shown}`"),
    }
}

/// Names in backticks with commas between.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 24;
    let mut names = names.into_iter();
    let mut shown: Vec<String> = names.by_ref().take(MOST).map(quote).collect();
    if names.next().is_some() {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

/// The candidate nearest to `found`, if any is near.
pub(crate) fn nearest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.8;
    let found: String = found.chars().take(64).flat_map(char::to_lowercase).collect();
    candidates
        .into_iter()
        .map(|candidate| {
            // One slip of the finger is near even where it changes much of a short name.
            let slip = candidate.len() >= 3 && strsim::osa_distance(&found, candidate) <= 1;
            (strsim::jaro_winkler(&found, candidate).max(if slip { NEAR } else { 0.0 }), candidate)
        })
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// The same for names that are spelt with capital letters.
pub(super) fn nearest_in_any_case<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (names, small): (Vec<&str>, Vec<String>) =
        candidates.into_iter().map(|name| (name, name.to_lowercase())).unzip();
    let near = nearest(found, small.iter().map(String::as_str))?;
    small.iter().position(|name| name == near).map(|position| names[position])
}

pub(super) fn unknown_field(name: &str, allowed: &[&str]) -> Finding {
    Finding::new(FindingCode::UnknownField, quote(name), list(allowed.iter().copied()))
        .did_you_mean(nearest(name, allowed.iter().copied()))
}

pub(crate) fn unknown_value(found: &str, allowed: &[&str]) -> Finding {
    Finding::new(FindingCode::UnknownValue, quote(found), list(allowed.iter().copied()))
        .did_you_mean(nearest(found, allowed.iter().copied()))
}

pub(super) fn unknown_limit<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Finding {
    let nearest = nearest(name, known.clone());
    Finding::new(FindingCode::UnknownLimit, quote(name), list(known)).did_you_mean(nearest)
}

pub(crate) fn unknown_rule<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Finding {
    let nearest = nearest(name, known.clone());
    Finding::new(FindingCode::UnknownRule, quote(name), list(known)).did_you_mean(nearest)
}

pub(super) fn unknown_unit<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Finding {
    // Whoever misspells a kind of quota has written a unit.
    let nearest = nearest(name, known.clone().into_iter().chain(["smooth", "burst"]));
    let allowed = format!("{}, or what else `units` declares", list(known));
    Finding::new(FindingCode::UnknownUnit, quote(name), allowed).did_you_mean(nearest)
}

pub(super) fn unknown_dialect(name: &str) -> Finding {
    let known = || Dialect::all().map(Dialect::name).chain([NONE]);
    let allowed = "`auto`, another dialect that comes with the crate, or `none`";
    Finding::new(FindingCode::UnknownDialect, quote(name), allowed).did_you_mean(nearest(name, known()))
}

pub(super) fn unknown_dialect_of_rule<'a>(name: &str, own: impl Iterator<Item = &'a str>) -> Finding {
    let nearest = nearest(name, own.chain(Dialect::all().map(|dialect| dialect.name())));
    let allowed = "`auto`, another dialect that comes with the crate, or one of `dialects`";
    Finding::new(FindingCode::UnknownDialect, quote(name), allowed).did_you_mean(nearest)
}

pub(super) fn no_status(found: u32) -> Finding {
    out_of_range(&found.to_string(), "statuses from 100 to 599")
}

pub(super) fn wrong_type(found: &str, allowed: &str) -> Finding {
    Finding::new(FindingCode::WrongType, found, allowed)
}

pub(crate) fn out_of_range(found: &str, allowed: &str) -> Finding {
    Finding::new(FindingCode::OutOfRange, quote(found), allowed)
}

pub(crate) fn zero(found: impl Into<String>, allowed: &str) -> Finding {
    Finding::new(FindingCode::Zero, found, allowed)
}

pub(crate) fn empty(what: &str, allowed: &str) -> Finding {
    Finding::new(FindingCode::Empty, what, allowed)
}

pub(crate) fn two_meanings(one: &str, other: &str) -> Finding {
    Finding::new(FindingCode::TwoMeanings, format!("both {one} and {other}"), "one of them")
}

pub(super) fn too_long(found: impl Into<String>) -> Finding {
    Finding::new(FindingCode::DurationTooLong, found, "less than 584 years")
}

/// A length of time from code arrives cut to the longest there is.
pub(super) fn too_long_in_code(what: &str) -> Finding {
    too_long(format!("{what} of 584 years or more"))
}

pub(crate) fn duplicate_name(name: &str, what: &str) -> Finding {
    Finding::new(FindingCode::DuplicateName, format!("{} twice", quote(name)), format!("each {what} once"))
}
