use std::fmt;

use request_balancer::engine::{Instant, Nanos};

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Time(Nanos),
    Count(u64),
    /// In millionths.
    Share(u64),
}

impl Value {
    pub(crate) fn secs(secs: u64) -> Self {
        Self::Time(Nanos::from_secs(secs))
    }

    pub(crate) fn share(part: u64, whole: u64) -> Self {
        Self::Share(part * 1_000_000 / whole)
    }

    fn number(self) -> u64 {
        match self {
            Self::Time(span) => span.get(),
            Self::Count(number) | Self::Share(number) => number,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(span) if span.get() < 1_000_000_000 => write!(f, "{} ms", Thousandths(span.get() / 1_000)),
            Self::Time(span) => write!(f, "{} s", Thousandths(span.get() / 1_000_000)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(millionths) => write!(f, "{} %", Thousandths(millionths / 10)),
        }
    }
}

struct Thousandths(u64);

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// One line of the benchmark: a number, the best there can be, and the bounds it has to keep.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub scenario: &'static str,
    pub what: &'static str,
    pub measured: Value,
    pub optimum: Value,
    pub low: Value,
    pub high: Value,
}

impl Measure {
    /// The optimum and nothing else will do.
    pub(crate) fn exactly(scenario: &'static str, what: &'static str, measured: Value, optimum: Value) -> Self {
        Self { scenario, what, measured, optimum, low: optimum, high: optimum }
    }

    /// From `low` to `high`, both included.
    pub(crate) fn within(mut self, low: Value, high: Value) -> Self {
        (self.low, self.high) = (low, high);
        self
    }

    pub(crate) fn met(&self) -> bool {
        (self.low..=self.high).contains(&self.measured)
    }

    /// The bounds in words.
    pub(crate) fn bound(&self) -> String {
        let Self { low, high, .. } = self;
        match (low, high) {
            _ if low == high => "exact".to_owned(),
            _ if low.number() == 0 => format!("at most {high}"),
            _ => format!("{low} to {high}"),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, what, measured, optimum, .. } = self;
        let ratio = match (optimum.number(), measured.number()) {
            (0, 0) => Thousandths(1_000).to_string(),
            (_, 0) | (0, _) => "none".to_owned(),
            (optimum, measured) => Thousandths(optimum * 1_000 / measured).to_string(),
        };
        let bound = self.bound();
        let met = if self.met() { "yes" } else { "NO" };
        write!(f, "| {scenario} | {what} | {measured} | {optimum} | {ratio} | {bound} | {met} |")
    }
}

/// By how many starts the fullest half-open interval of length `period` exceeds `count`. Starts are in order.
pub(crate) fn overshoot(starts: &[Instant], count: usize, period: Nanos) -> Value {
    let mut first = 0;
    let mut most = 0;
    for (last, &at) in starts.iter().enumerate() {
        while starts[first].saturating_add(period) <= at {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    Value::Count(most.saturating_sub(count) as u64)
}
