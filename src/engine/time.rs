//! Time as the engine knows it: whole nanoseconds, handed in by the owner.

use std::fmt;
use std::time::Duration;

/// A moment: nanoseconds since an epoch that the engine's owner chose.
///
/// All arithmetic saturates: an instant too far away becomes [`Instant::NEVER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A length of time in whole nanoseconds, at most 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Instant {
    /// The owner's epoch.
    pub const ZERO: Self = Self(0);
    /// The instant that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant moved later by `span`, at most [`Instant::NEVER`].
    #[must_use]
    pub const fn saturating_add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This instant moved earlier by `span`, at least the epoch.
    #[must_use]
    pub const fn saturating_sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The time from `earlier` to this instant, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span there is.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` nanoseconds.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether the span is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of the span without `other`, at least nothing.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `times` such spans, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// This span cut into `parts` equal ones, rounded up so that `parts` of them are never shorter than the whole.
    ///
    /// Zero parts count as one.
    #[must_use]
    pub const fn div_ceil(self, parts: u64) -> Self {
        Self(self.0.div_ceil(if parts == 0 { 1 } else { parts }))
    }
}

impl From<Duration> for Nanos {
    /// Spans longer than 584 years become [`Nanos::MAX`].
    #[inline]
    fn from(span: Duration) -> Self {
        Self(span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos().into()))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(nanos) => write!(f, "@{:?}", Duration::from_nanos(nanos)),
        }
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from_nanos(self.0).fmt(f)
    }
}
