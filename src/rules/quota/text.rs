//! The short form of a quota: `N/T`, then words.

use std::fmt;

use super::{DAY, Quota, QuotaKind};
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::wording::{self, quote};
use crate::rules::{check, duration, unit};

const ALLOWED: &str = "`N/T` such as `20/60s`, `30/s`, `20/60s smooth`, `5/300s burst 20`, `90000/min tokens`";

/// Spellings of the length of time that a calendar day has.
const DAYS: [&str; 6] = ["day", "1day", "1 day", "d", "1d", "1 d"];

/// Reads the short form. A zero stays in for the check to find, as it does in quotas made in code.
pub(in crate::rules) fn parse(text: &str) -> Result<Quota, Finding> {
    let invalid = || Finding::new(FindingCode::InvalidQuota, quote(text), ALLOWED);
    let (count, rest) = text.split_once('/').ok_or_else(invalid)?;
    let count = whole_number(count.trim()).ok_or_else(invalid)?;
    let count = count.ok_or_else(|| wording::out_of_range(text, check::COUNTS))?;
    let (period, words) = split_period(rest);
    if period.is_empty() {
        return Err(invalid());
    }
    // `30/s` means `30/1s`.
    let one = if period.starts_with(|c: char| c.is_alphabetic()) { "1" } else { "" };
    let span = duration::parse(&format!("{one}{period}")).map_err(|finding| reword(finding, text))?;
    let mut said = Said { is_day: DAYS.contains(&&*period), ..Said::default() };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        said.word(word, &mut words).unwrap_or_else(|| Err(invalid()))?;
    }
    let quota = Quota::window(count, span).of_kind(said.kind.map(|(kind, _)| kind).unwrap_or_default());
    Ok(said.unit.into_iter().fold(quota, |quota, unit| quota.unit(unit)))
}

/// What the words after the length of time have said so far.
#[derive(Default)]
struct Said<'t> {
    is_day: bool,
    /// And in which words.
    kind: Option<(QuotaKind, String)>,
    unit: Option<&'t str>,
}

impl<'t> Said<'t> {
    /// Takes in a word and what belongs to it. `None`: it is none that can stand here.
    fn word(&mut self, word: &'t str, more: &mut impl Iterator<Item = &'t str>) -> Option<Result<(), Finding>> {
        let is_zone = (word.contains('/') || word.starts_with(char::is_uppercase))
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_/+-".contains(c));
        // `Tokens` is a unit that was never declared, `UTC` is not.
        let is_no_unit = is_zone && (word.contains('/') || !word.contains(char::is_lowercase));
        match word {
            "smooth" => Some(self.kind(QuotaKind::Smooth, word.to_owned())),
            "burst" => {
                let number = more.next()?;
                let words = format!("burst {number}");
                let Some(burst) = whole_number(number)? else {
                    return Some(Err(wording::out_of_range(&words, "a burst from 1 to 4294967295")));
                };
                Some(self.kind(QuotaKind::Bucket { burst }, words))
            }
            _ if is_zone && self.is_day => Some(self.kind(QuotaKind::Calendar { zone: word.into() }, word.to_owned())),
            _ if is_no_unit => {
                let found = format!("the time zone {} beside a length of time", quote(word));
                let allowed = "a time zone after `/day`, such as `100/day UTC`, which counts from midnight to midnight";
                Some(Err(Finding::new(FindingCode::InvalidQuota, found, allowed)))
            }
            _ if unit::is_word(word) => Some(match self.unit.replace(word) {
                Some(before) => Err(wording::two_meanings(&quote(before), &quote(word))),
                None => Ok(()),
            }),
            _ => None,
        }
    }

    fn kind(&mut self, kind: QuotaKind, words: String) -> Result<(), Finding> {
        if let Some((_, before)) = &self.kind {
            return Err(wording::two_meanings(&quote(before), &quote(&words)));
        }
        self.kind = Some((kind, words));
        Ok(())
    }
}

/// A number in digits alone: `None` if it is none, `Some(None)` if it is too large.
fn whole_number(text: &str) -> Option<Option<u32>> {
    (!text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())
}

/// Cuts `1h 30m tokens` where the length of time ends and further words begin.
fn split_period(text: &str) -> (String, Vec<&str>) {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mut end = 0;
    let mut number_alone = true;
    for word in &words {
        let number_first = word.starts_with(|c: char| c.is_ascii_digit());
        if !number_alone && !number_first {
            break;
        }
        number_alone = number_first && !word.contains(char::is_alphabetic);
        end += 1;
    }
    let further = words.split_off(end);
    (words.join(" "), further)
}

/// What is wrong with the length of time is wrong with the quota; a hint stays.
fn reword(finding: Finding, text: &str) -> Finding {
    if finding.code() == FindingCode::InvalidDuration && finding.nearest() != Some("m") {
        return Finding::new(FindingCode::InvalidQuota, quote(text), ALLOWED).did_you_mean(finding.nearest());
    }
    finding
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.margin.is_some() || self.count_from.is_some() {
            return self.long(f);
        }
        let period = match self.kind {
            QuotaKind::Calendar { .. } if self.period == DAY => "day".to_owned(),
            QuotaKind::Window | QuotaKind::Smooth | QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => {
                duration::format(self.period)
            }
        };
        write!(f, "{}/{period}", self.count)?;
        match &self.kind {
            QuotaKind::Window => {}
            QuotaKind::Smooth => f.write_str(" smooth")?,
            QuotaKind::Bucket { burst } => write!(f, " burst {burst}")?,
            QuotaKind::Calendar { zone } => write!(f, " {zone}")?,
        }
        self.unit.as_ref().map_or(Ok(()), |unit| write!(f, " {unit}"))
    }
}

impl Quota {
    fn long(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ count = {}, per = \"{}\"", self.count, duration::format(self.period))?;
        match &self.kind {
            QuotaKind::Window => {}
            QuotaKind::Smooth => f.write_str(", kind = \"smooth\"")?,
            QuotaKind::Bucket { burst } => write!(f, ", kind = \"bucket\", burst = {burst}")?,
            QuotaKind::Calendar { zone } => write!(f, ", zone = \"{zone}\"")?,
        }
        if let Some(unit) = &self.unit {
            write!(f, ", unit = \"{unit}\"")?;
        }
        if let Some(margin) = self.margin {
            write!(f, ", margin = \"{}\"", duration::format(margin))?;
        }
        if let Some(count_from) = self.count_from {
            write!(f, ", count_from = \"{count_from}\"")?;
        }
        f.write_str(" }")
    }
}
