//! A line of a log.

use std::fmt;
use std::time::Duration;

/// One start in a log: an attempt of a request that began.
///
/// ```
/// use request_balancer::Start;
/// use std::time::Duration;
///
/// let start = Start::new(Duration::from_millis(1_500), "group", "chat 42")
///     .cost(3)
///     .units("tokens", 900)
///     .end(Duration::from_millis(1_720));
/// assert_eq!(start.to_string(), "1.5s group, key chat 42, cost 3, 900 tokens, until 1.72s");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Start {
    /// When it began, since any epoch that all starts of the log share, to the nanosecond. For quotas of calendar days
    /// that epoch is 1970 in UTC.
    pub at: Duration,
    /// The rule's name in the file.
    pub rule: String,
    /// Its key as text: equal keys, equal text.
    pub key: String,
    /// What it took from limits that count requests. Zero counts as 1.
    pub cost: u32,
    /// What it took from limits that count declared units, by name.
    pub units: Vec<(String, u32)>,
    /// The endpoint that it used, where the rules have a pool. `None`: not known, and not checked.
    pub endpoint: Option<String>,
    /// When the attempt ended, since the same epoch. `None`: it still ran when the log ended.
    pub end: Option<Duration>,
    /// Where the server refused it: the instant from which it wants to hear of the caller again.
    pub again: Option<Duration>,
}

impl Start {
    /// A start of cost 1 whose attempt still ran when the log ended.
    pub fn new(at: Duration, rule: impl Into<String>, key: impl ToString) -> Self {
        let (key, units) = (key.to_string(), Vec::new());
        Self { at, rule: rule.into(), key, cost: 1, units, endpoint: None, end: None, again: None }
    }

    /// What it took of limits that count requests, in the end. Default: 1; nothing if it was settled at 0.
    pub fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// What it took of a declared unit. Called again for the same unit it adds up. Default: nothing of any.
    pub fn units(mut self, unit: impl Into<String>, cost: u32) -> Self {
        self.units.push((unit.into(), cost));
        self
    }

    /// The endpoint that it used. Default: not known, and not checked.
    pub fn on(self, endpoint: impl Into<String>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..self }
    }

    /// When the attempt ended. Default: it still ran when the log ended.
    ///
    /// Where nothing is known of ends, `end(at)` says that attempts take no time: concurrency caps are kept then, whatever
    /// happened.
    pub fn end(self, end: Duration) -> Self {
        Self { end: Some(end), ..self }
    }

    /// The server refused it, and wants to hear of the caller again from this instant on. Default: it did not.
    ///
    /// Only [`explain_log`](super::explain_log) looks at it.
    pub fn refused(self, again: Duration) -> Self {
        Self { again: Some(again), ..self }
    }

    /// What it took of a unit; `None` is requests.
    pub(super) fn took(&self, unit: Option<&str>) -> u64 {
        match unit {
            None => self.cost.into(),
            Some(unit) => self.units.iter().filter(|(name, _)| name == unit).map(|&(_, cost)| u64::from(cost)).sum(),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}, key {}", self.at, self.rule, self.key)?;
        if self.cost > 1 {
            write!(f, ", cost {}", self.cost)?;
        }
        for (unit, cost) in &self.units {
            write!(f, ", {cost} {unit}")?;
        }
        if let Some(endpoint) = &self.endpoint {
            write!(f, ", on {endpoint}")?;
        }
        self.end.map_or(Ok(()), |end| write!(f, ", until {end:?}"))?;
        self.again.map_or(Ok(()), |again| write!(f, ", refused until {again:?}"))
    }
}
