//! A number of a run beside the best there can be.

use std::fmt;

use super::policy::Policy;
use crate::engine::Nanos;

/// A number with its unit, whole as all numbers of a simulation.
///
/// ```
/// use request_balancer::Nanos;
/// use request_balancer::sim::Value;
///
/// assert_eq!(Value::Time(Nanos::from_millis(2_940_000)).to_string(), "2940.000 s");
/// assert_eq!(Value::Time(Nanos::from_millis(20)).to_string(), "20.000 ms");
/// assert_eq!(Value::Share(33_333).to_string(), "3.333 %");
/// assert_eq!(Value::Ratio(998_400).to_string(), "0.998");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Value {
    /// A length of time.
    Time(Nanos),
    /// How many.
    Count(u64),
    /// A part of a whole, in millionths; shown in per cent.
    Share(u64),
    /// How often one number goes into another, in millionths; shown with three decimals.
    Ratio(u64),
}

/// Millionths in a whole.
pub(crate) const WHOLE: u64 = 1_000_000;

impl Value {
    /// The number without its unit: nanoseconds, pieces, millionths.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Time(span) => span.get(),
            Self::Count(number) | Self::Share(number) | Self::Ratio(number) => number,
        }
    }

    /// The number in seconds, pieces, or parts of 1: for charts and programs, which have no use for millionths.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Time(span) => span.get() as f64 / 1e9,
            Self::Count(count) => count as f64,
            Self::Share(millionths) | Self::Ratio(millionths) => millionths as f64 / WHOLE as f64,
        }
    }

    /// The unit of [`as_f64`](Self::as_f64): `s`, or `1` for everything that has none.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time(_) => "s",
            Self::Count(_) | Self::Share(_) | Self::Ratio(_) => "1",
        }
    }

    pub(crate) const fn with_number(self, number: u64) -> Self {
        match self {
            Self::Time(_) => Self::Time(Nanos::new(number)),
            Self::Count(_) => Self::Count(number),
            Self::Share(_) => Self::Share(number),
            Self::Ratio(_) => Self::Ratio(number),
        }
    }

    /// `part / whole`; the whole of nothing is 1.
    pub(crate) fn ratio(part: u64, whole: u64) -> Self {
        Self::Ratio(millionths(part, whole))
    }

    /// `part / whole` in per cent.
    pub(crate) fn share(part: u64, whole: u64) -> Self {
        Self::Share(millionths(part, whole))
    }
}

fn millionths(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return WHOLE;
    }
    u64::try_from(u128::from(part) * u128::from(WHOLE) / u128::from(whole)).unwrap_or(u64::MAX)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(span) if span.get() < 1_000_000_000 => write!(f, "{} ms", Thousandths(span.get() / 1_000)),
            Self::Time(span) => write!(f, "{} s", Thousandths(span.get() / 1_000_000)),
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(millionths) => write!(f, "{} %", Thousandths(millionths / 10)),
            Self::Ratio(millionths) => write!(f, "{}", Thousandths(millionths / 1_000)),
        }
    }
}

struct Thousandths(u64);

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// What a measured number has to keep, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// No less than this.
    pub low: Value,
    /// No more than this. `None`: any number.
    pub high: Option<Value>,
}

impl Bound {
    /// Whether a number keeps it.
    #[must_use]
    pub fn holds(&self, value: Value) -> bool {
        let number = value.number();
        number >= self.low.number() && self.high.is_none_or(|high| number <= high.number())
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high } = self;
        match high {
            Some(high) if low == high => f.write_str("exact"),
            Some(high) if low.number() == 0 => write!(f, "at most {high}"),
            Some(high) => write!(f, "{low} to {high}"),
            None => write!(f, "at least {low}"),
        }
    }
}

/// Where a number should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aim {
    /// The less the better: a wait.
    Least,
    /// The more the better: an index of fairness.
    Most,
    /// Neither more nor less than is due: a share.
    Exactly,
}

/// One line of a report: what was measured of a policy in a scenario, the best there can be, and what has to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measure {
    /// The scenario's title, with that of its variant.
    pub scenario: String,
    /// Who balanced.
    pub policy: Policy,
    /// What was measured, in the scenario's words.
    pub metric: String,
    /// The number. `None` where there is nothing to measure: nothing started, nobody was ready all the time.
    pub measured: Option<Value>,
    /// The best there can be, as far as it is known.
    pub optimum: Option<Value>,
    /// Which numbers are better.
    pub aim: Aim,
    /// What has to be kept, if anything.
    pub bound: Option<Bound>,
}

impl Measure {
    /// How near it comes to the optimum, in thousandths: 1,000 is best, and more than that is better than was thought
    /// possible. Where less is better that is the optimum divided by what was measured, where more is better what was
    /// measured divided by the optimum, and of two numbers that should be the same the smaller divided by the larger.
    /// `None` where one of them is missing or zero and the other is not.
    ///
    /// ```
    /// use request_balancer::sim::{Policy, Scenario};
    ///
    /// let scenario = Scenario::from_file("examples/scenarios/head-start.toml")?;
    /// // Jain's index: the more the better, and 0.09 is far from 1.
    /// assert_eq!(scenario.run(Policy::Fifo)[0].ratio(), Some(90));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn ratio(&self) -> Option<u64> {
        let (optimum, measured) = (self.optimum?.number(), self.measured?.number());
        let (part, of) = match self.aim {
            Aim::Least => (optimum, measured),
            Aim::Most => (measured, optimum),
            Aim::Exactly => (optimum.min(measured), optimum.max(measured)),
        };
        match (part, of) {
            (0, 0) => Some(1_000),
            (_, 0) | (0, _) => None,
            (part, of) => u64::try_from(u128::from(part) * 1_000 / u128::from(of)).ok(),
        }
    }

    /// Whether the bound is kept; `None` without one.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        self.bound.map(|bound| self.measured.is_some_and(|measured| bound.holds(measured)))
    }
}
