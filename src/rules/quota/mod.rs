//! The numbers: how many starts in how long, and how they are spread.

mod text;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::finding::Findings;
use super::{check, toml};
use crate::engine::{Anchor, Nanos};

pub(super) use text::parse;

/// A number of starts in a length of time, such as `20/60s`: never more than 20 in any 60 seconds.
///
/// Its text form is `N/T`, where `T` is a length of time (`60s`, `500ms`, `1h 30m`) or one alone (`s`, `min`, `h`,
/// `day`). Words may follow: how the starts are spread, and what is counted if it is not requests.
///
/// | text | meaning |
/// | --- | --- |
/// | `20/60s` | a window: 20 may go at once, never more than 20 in any 60 seconds |
/// | `20/60s smooth` | besides, one every 3 seconds; idle time earns nothing |
/// | `5/300s burst 20` | a token bucket: 20 may go at once, and one comes back every 60 seconds |
/// | `100/day Europe/Berlin` | 100 from one midnight to the next; `UTC` is a zone too (feature `calendar`) |
/// | `90000/min tokens` | a window that counts tokens, declared in `units` of the rules |
///
/// The long form is `{ count = 20, per = "60s", kind = "window", burst = 20, unit = "tokens", zone = "UTC", margin =
/// "50ms", count_from = "response" }`, of which `count` and `per` must be there; `kind` is `window`, `smooth` or
/// `bucket`, a `burst` alone makes a bucket, a `zone` alone a calendar day. A bucket and a calendar day have no margin
/// and count from the start, whatever the rules say for all quotas; so does a smooth quota as to the latter.
///
/// A quota that can let nothing start is found where it is read or built into [`Rules`](crate::Rules), not here.
///
/// ```
/// use request_balancer::Quota;
/// use std::time::Duration;
///
/// let quota: Quota = "20/60s".parse()?;
/// assert_eq!(quota, Quota::new(20, Duration::from_secs(60)));
/// assert_eq!(quota.to_string(), "20/60s");
/// assert_eq!(quota.smooth().unit("tokens").to_string(), "20/60s smooth tokens");
///
/// let wrong = "20/1M".parse::<Quota>().unwrap_err();
/// assert_eq!(wrong.iter().next().unwrap().nearest(), Some("m"));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    count: u32,
    period: Nanos,
    kind: QuotaKind,
    /// `None`: requests.
    unit: Option<Arc<str>>,
    margin: Option<Nanos>,
    count_from: Option<CountFrom>,
}

/// How a quota spreads its starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QuotaKind {
    /// All of them may go at once, never more than the count in any period.
    #[default]
    Window,
    /// Evenly spaced, and never more than the count in any period. Idle time earns nothing.
    Smooth,
    /// A token bucket, full at first and refilled evenly with the count in each period.
    Bucket {
        /// What it holds at most: so many may go at once.
        burst: u32,
    },
    /// The count from one midnight of a time zone to the next.
    Calendar {
        /// The zone's name in the IANA database.
        zone: Arc<str>,
    },
}

/// The unit that every request has.
pub(super) const REQUESTS: &str = "requests";

pub(super) const DAY: Nanos = Nanos::from_secs(86_400);

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
        Self::window(count, DAY)
    }

    /// `count` starts from one midnight of a time zone to the next. Rules with it load only with the feature `calendar`.
    #[must_use]
    pub fn per_calendar_day(count: u32, zone: impl Into<Arc<str>>) -> Self {
        Self::per_day(count).of_kind(QuotaKind::Calendar { zone: zone.into() })
    }

    /// Spaces the starts evenly.
    #[must_use]
    pub fn smooth(self) -> Self {
        self.of_kind(QuotaKind::Smooth)
    }

    /// Makes it a token bucket that holds `burst`, at least 1.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        self.of_kind(QuotaKind::Bucket { burst })
    }

    /// Counts a declared unit; default: `requests`.
    #[must_use]
    pub fn unit(self, unit: impl Into<Arc<str>>) -> Self {
        Self { unit: Some(unit.into()).filter(|unit| **unit != *REQUESTS), ..self }
    }

    /// By how much network delay may vary without breaking the quota at the server; default: what the rules say for
    /// all quotas, which is 0 unless set.
    #[must_use]
    pub fn margin(self, margin: Duration) -> Self {
        Self { margin: Some(margin.into()), ..self }
    }

    /// From when a start's period runs; default: what the rules say for all quotas, which is the start unless set.
    #[must_use]
    pub fn count_from(self, count_from: CountFrom) -> Self {
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
    pub const fn kind(&self) -> &QuotaKind {
        &self.kind
    }

    /// What it counts. `None`: requests.
    #[must_use]
    pub fn own_unit(&self) -> Option<&str> {
        self.unit.as_deref()
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
        Self { count, period, kind: QuotaKind::Window, unit: None, margin: None, count_from: None }
    }

    pub(super) fn of_kind(self, kind: QuotaKind) -> Self {
        Self { kind, ..self }
    }

    pub(super) fn with(self, margin: Option<Nanos>, count_from: Option<CountFrom>) -> Self {
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

impl FromStr for Quota {
    type Err = Findings;

    /// Reads the short or the long form. Whether its unit is declared, only rules know.
    fn from_str(text: &str) -> Result<Self, Findings> {
        let quota = if text.trim_start().starts_with('{') { toml::read_quota(text)? } else { parse(text)? };
        let mut findings = Vec::new();
        check::quota(&quota, Nanos::ZERO, &mut |finding| findings.push(finding));
        if findings.is_empty() { Ok(quota) } else { Err(Findings::new(findings)) }
    }
}
