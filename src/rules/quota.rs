//! The numbers: how many starts in how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::duration;
use super::finding::{Finding, FindingCode, Findings};
use super::wording::{self, quote};
use super::{check, toml};
use crate::engine::{Anchor, Nanos};

/// A number of starts in a length of time, such as `20/60s`: never more than 20 in any 60 seconds.
///
/// Its text form is `N/T`, where `T` is a length of time (`60s`, `500ms`, `1h 30m`) or a unit alone (`s`, `min`, `h`,
/// `day`); the long form is `{ count = 20, per = "60s", margin = "50ms", count_from = "response" }`. A quota that can
/// let nothing start is found where it is read or built into [`Rules`](crate::Rules), not here.
///
/// ```
/// use request_balancer::Quota;
/// use std::time::Duration;
///
/// let quota: Quota = "20/60s".parse()?;
/// assert_eq!(quota, Quota::new(20, Duration::from_secs(60)));
/// assert_eq!(quota.to_string(), "20/60s");
///
/// let wrong = "20/1M".parse::<Quota>().unwrap_err();
/// assert_eq!(wrong.iter().next().unwrap().nearest(), Some("m"));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    count: u32,
    period: Nanos,
    kind: QuotaKind,
    margin: Option<Nanos>,
    count_from: Option<CountFrom>,
}

/// How a quota spreads its starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QuotaKind {
    /// All of them may go at once, never more than the count in any period.
    #[default]
    Window,
}

/// The event from which a start's period runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CountFrom {
    /// The moment the attempt begins.
    #[default]
    Start,
    /// The end of the attempt: a rate that network jitter cannot break.
    Response,
}

impl Quota {
    /// `count` starts in any `period`.
    #[must_use]
    pub fn new(count: u32, period: Duration) -> Self {
        Self::window(count, period.into())
    }

    /// `count` starts in any second.
    #[must_use]
    pub const fn per_second(count: u32) -> Self {
        Self::window(count, Nanos::from_secs(1))
    }

    /// `count` starts in any minute.
    #[must_use]
    pub const fn per_minute(count: u32) -> Self {
        Self::window(count, Nanos::from_secs(60))
    }

    /// `count` starts in any hour.
    #[must_use]
    pub const fn per_hour(count: u32) -> Self {
        Self::window(count, Nanos::from_secs(3_600))
    }

    /// `count` starts in any 24 hours, whatever the calendar says.
    #[must_use]
    pub const fn per_day(count: u32) -> Self {
        Self::window(count, Nanos::from_secs(86_400))
    }

    /// By how much network delay may vary without breaking the quota at the server; default: what the rules say for
    /// all quotas, which is 0 unless set.
    #[must_use]
    pub fn margin(self, margin: Duration) -> Self {
        Self { margin: Some(margin.into()), ..self }
    }

    /// From when a start's period runs; default: what the rules say for all quotas, which is the start unless set.
    #[must_use]
    pub const fn count_from(self, count_from: CountFrom) -> Self {
        Self { count_from: Some(count_from), ..self }
    }

    /// How many starts fit.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The length of time in which they fit, without margin.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period.into()
    }

    /// How the starts are spread.
    #[must_use]
    pub const fn kind(&self) -> QuotaKind {
        self.kind
    }

    /// Its own margin. `None`: that of the rules.
    #[must_use]
    pub fn own_margin(&self) -> Option<Duration> {
        self.margin.map(Into::into)
    }

    /// Its own event. `None`: that of the rules.
    #[must_use]
    pub const fn own_count_from(&self) -> Option<CountFrom> {
        self.count_from
    }

    pub(super) const fn window(count: u32, period: Nanos) -> Self {
        Self { count, period, kind: QuotaKind::Window, margin: None, count_from: None }
    }

    pub(super) const fn with(self, margin: Option<Nanos>, count_from: Option<CountFrom>) -> Self {
        Self { margin, count_from, ..self }
    }

    pub(super) const fn nanos(&self) -> Nanos {
        self.period
    }

    pub(super) const fn margin_nanos(&self) -> Option<Nanos> {
        self.margin
    }
}

impl CountFrom {
    pub(super) const WORDS: &[(&str, Self)] = &[("start", Self::Start), ("response", Self::Response)];

    pub(super) const fn anchor(self) -> Anchor {
        match self {
            Self::Start => Anchor::Start,
            Self::Response => Anchor::End,
        }
    }
}

impl fmt::Display for CountFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Response => "response",
        })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = duration::format(self.period);
        if self.margin.is_none() && self.count_from.is_none() {
            return write!(f, "{}/{period}", self.count);
        }
        write!(f, "{{ count = {}, per = \"{period}\"", self.count)?;
        if let Some(margin) = self.margin {
            write!(f, ", margin = \"{}\"", duration::format(margin))?;
        }
        if let Some(count_from) = self.count_from {
            write!(f, ", count_from = \"{count_from}\"")?;
        }
        f.write_str(" }")
    }
}

impl FromStr for Quota {
    type Err = Findings;

    /// Reads the short or the long form.
    fn from_str(text: &str) -> Result<Self, Findings> {
        let quota = if text.trim_start().starts_with('{') { toml::read_quota(text)? } else { parse(text)? };
        let mut findings = Vec::new();
        check::quota(&quota, &mut |finding| findings.push(finding));
        if findings.is_empty() { Ok(quota) } else { Err(Findings::new(findings)) }
    }
}

const ALLOWED: &str = "`N/T` such as `20/60s`, `30/s`, `10/1h 30m`";

/// Reads the short form. A zero stays in for the check to find, as it does in quotas made in code.
pub(super) fn parse(text: &str) -> Result<Quota, Finding> {
    let invalid = || Finding::new(FindingCode::InvalidQuota, quote(text), ALLOWED);
    let (count, rest) = text.split_once('/').ok_or_else(invalid)?;
    let count = count.trim();
    if count.is_empty() || !count.bytes().all(|c| c.is_ascii_digit()) {
        return Err(invalid());
    }
    let count = count.parse().map_err(|_| wording::out_of_range(text, check::COUNTS))?;
    let (period, words) = split_period(rest);
    if period.is_empty() {
        return Err(invalid());
    }
    // `30/s` means `30/1s`.
    let one = if period.starts_with(|c: char| c.is_alphabetic()) { "1" } else { "" };
    let period = duration::parse(&format!("{one}{period}")).map_err(|finding| reword(finding, text))?;
    if words.is_empty() {
        return Ok(Quota::window(count, period));
    }
    if words.chars().all(|c| c.is_alphanumeric() || " _/+-:".contains(c)) {
        return Err(unsupported(text));
    }
    Err(invalid())
}

pub(super) fn unsupported(found: &str) -> Finding {
    Finding::new(
        FindingCode::UnsupportedQuota,
        quote(found),
        "windows `N/T` alone; `smooth`, `burst`, calendar days and units are not in this version",
    )
}

/// Cuts `1h 30m tokens` where the length of time ends and further words begin.
fn split_period(text: &str) -> (String, String) {
    let words: Vec<&str> = text.split_whitespace().collect();
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
    let (period, further) = words.split_at(end);
    (period.join(" "), further.join(" "))
}

/// What is wrong with the length of time is wrong with the quota; a hint stays.
fn reword(finding: Finding, text: &str) -> Finding {
    if finding.code() == FindingCode::InvalidDuration && finding.nearest() != Some("m") {
        return Finding::new(FindingCode::InvalidQuota, quote(text), ALLOWED).did_you_mean(finding.nearest());
    }
    finding
}
