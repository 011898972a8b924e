//! What a request asks for beside its rule and key.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "outbox")]
use super::Past;
use crate::engine::{EndpointId, Nanos, RetryPolicy, Spent};
use crate::error::{NextStart, Refused};
use crate::runtime::shared::Shared;

/// What a request asks for beside its rule and key.
#[derive(Debug)]
pub(crate) struct Wishes {
    /// In requests.
    pub(crate) cost: u32,
    pub(crate) max_wait: Patience,
    pub(crate) special: Option<Box<Special>>,
    pub(crate) idempotent: bool,
    pub(crate) fail_fast: bool,
    pub(crate) eager: bool,
}

/// What few requests ask for, and few have behind them.
#[derive(Debug, Default)]
pub(crate) struct Special {
    /// Costs in declared units, by position.
    pub(crate) units: Vec<u32>,
    /// `None`: the rule's.
    pub(crate) policy: Option<RetryPolicy>,
    /// `None`: the rule's. [`Nanos::MAX`]: any time.
    pub(crate) attempt_timeout: Option<Nanos>,
    /// The names of the endpoints that it may use; empty: all.
    pub(crate) endpoints: Vec<Box<str>>,
    /// How long after it came into the line it starts at the earliest.
    pub(crate) not_before: Nanos,
    /// What it has used up of its retry policy.
    pub(super) spent: Spent,
    /// What an earlier run of the program left, and who is told how its attempts fail.
    #[cfg(feature = "outbox")]
    pub(crate) past: Option<Past>,
}

impl Special {
    /// Goes on where an earlier run of the program left off.
    #[cfg(feature = "outbox")]
    pub(crate) fn resume(&mut self, past: Past) {
        self.spent = past.spent;
        self.past = Some(past);
    }
}

impl Wishes {
    pub(crate) fn special(&mut self) -> &mut Special {
        self.special.get_or_insert_default()
    }

    pub(super) fn not_before(&self) -> Nanos {
        self.special.as_ref().map_or(Nanos::ZERO, |special| special.not_before)
    }

    /// Costs in declared units, by position.
    pub(super) fn units(&self) -> &[u32] {
        self.special.as_ref().map_or(&[], |special| &special.units)
    }

    /// The endpoints that it may use; empty: all. Under the lock: their places may be others' the next time.
    pub(crate) fn endpoints(&self, shared: &Shared) -> Result<Vec<EndpointId>, Refused> {
        let names = self.special.as_ref().map_or(&[][..], |special| &special.endpoints);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let live = shared.live.load();
        names.iter().map(|name| live.find_endpoint(name)).collect()
    }

    /// Whether it may well start within the time that it may wait; `None`: for as long as it takes.
    pub(super) fn are_hopeful(&self, next_start: NextStart, max_wait: Option<Nanos>) -> Result<(), Refused> {
        let earliest = match next_start {
            NextStart::After(span) => Nanos::from(span).max(self.not_before()),
            // Nobody knows when.
            NextStart::Now | NextStart::WhenOneEnds | NextStart::Never => self.not_before(),
        };
        if max_wait.is_none_or(|max_wait| earliest <= max_wait) {
            return Ok(());
        }
        Err(Refused::MaxWait { waited: Duration::ZERO, next_start: NextStart::After(earliest.into()) })
    }

    /// How often it was started before it entered.
    #[cfg(feature = "outbox")]
    pub(super) fn starts(&self) -> u32 {
        let past = self.special.as_ref().and_then(|special| special.past.as_ref());
        past.map_or(0, |past| past.starts)
    }

    #[cfg(not(feature = "outbox"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) const fn starts(&self) -> u32 {
        0
    }

    /// What it has used up of its retry policy.
    pub(super) fn spent(&self) -> Spent {
        self.special.as_ref().map_or_else(Spent::default, |special| special.spent)
    }

    /// The request's own policy.
    pub(crate) fn policy(&self) -> Option<&RetryPolicy> {
        self.special.as_ref()?.policy.as_ref()
    }
}

/// How long a request may stand in line, in one word: every request has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience(Nanos);

impl Patience {
    /// As long as its rule says.
    pub(crate) const OF_RULE: Self = Self(Nanos::new(u64::MAX - 1));
    /// As long as it takes.
    pub(crate) const ENDLESS: Self = Self(Nanos::MAX);

    /// As long as this. What is all but endless is.
    pub(crate) fn of(span: Duration) -> Self {
        let own = Self(span.into());
        if own == Self::OF_RULE { Self::ENDLESS } else { own }
    }

    /// In time, where the rule says so much; `None`: as long as it takes.
    pub(super) fn over(self, of_rule: impl FnOnce() -> Option<Nanos>) -> Option<Nanos> {
        let longest = if self == Self::OF_RULE { of_rule() } else { Some(self.0) };
        longest.filter(|&longest| longest != Nanos::MAX)
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OF_RULE => f.write_str("OfRule"),
            Self::ENDLESS => f.write_str("Endless"),
            Self(own) => write!(f, "{own:?}"),
        }
    }
}
