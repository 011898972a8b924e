//! What rules say of the store that keeps limits for many processes.

use std::time::Duration;

use super::builder::At;
use super::model::{Model, Rules};
use crate::engine::{LimitKind, Nanos};

/// What a process does with limits that are shared while it cannot reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnOutage {
    /// It keeps to its part of each limit: the count divided by the number of processes, rounded down.
    #[default]
    LocalShare,
    /// It starts nothing that a shared limit binds; what waits goes on waiting.
    Closed,
    /// It keeps each limit as if it were the only process.
    Open,
}

pub(super) const OUTAGES: &[(&str, OnOutage)] =
    &[("local-share", OnOutage::LocalShare), ("closed", OnOutage::Closed), ("open", OnOutage::Open)];

/// `[shared]` in the making: the store that keeps limits for many processes.
///
/// ```
/// use request_balancer::{OnOutage, Quota, Rules, SharedRules};
///
/// let rules = Rules::builder()
///     .overall(Quota::per_second(30))
///     .share_overall()
///     .shared(SharedRules::new().prefix("bot").on_outage(OnOutage::Closed))
///     .build()?;
/// assert_eq!(rules.shared().prefix(), "bot");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SharedRules {
    pub(super) url: Option<At<String>>,
    pub(super) prefix: Option<At<String>>,
    pub(super) lease: Option<At<Nanos>>,
    pub(super) on_outage: OnOutage,
    pub(super) processes: Option<At<u32>>,
    pub(super) version: Option<At<u64>>,
}

impl SharedRules {
    /// A store of which nothing is said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the store is, such as `redis://127.0.0.1:6379`. Default: code says so.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into().into());
        self
    }

    /// What processes have in common that share limits: it stands in all names in the store. Default: `rb`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into().into());
        self
    }

    /// How long the store keeps a concurrency slot of a process that it hears nothing of, at least 1 s. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(Nanos::from(lease).into());
        self
    }

    /// What a process does while it cannot reach the store. Default: it keeps to its part.
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// How many processes share the limits, at least 1: what one may do alone is its part of that. Default: 4.
    pub fn processes(mut self, processes: u32) -> Self {
        self.processes = Some(processes.into());
        self
    }

    /// Which version of the rules these are: of all versions that processes have, the highest one is in force in all of them.
    /// Default: none; each process has its own rules.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version.into());
        self
    }
}

/// What checked rules say of the store, with defaults filled in: [`Rules::shared`](crate::Rules::shared).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedShared {
    pub(super) url: Option<String>,
    pub(super) prefix: String,
    pub(super) lease: Nanos,
    pub(super) on_outage: OnOutage,
    pub(super) processes: u32,
    pub(super) version: Option<u64>,
}

impl Default for CheckedShared {
    fn default() -> Self {
        Self {
            url: None,
            prefix: "rb".to_owned(),
            lease: Nanos::from_secs(30),
            on_outage: OnOutage::LocalShare,
            processes: 4,
            version: None,
        }
    }
}

impl CheckedShared {
    /// Where the store is. `None`: the file does not say.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// What stands in all names in the store.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How long the store keeps a concurrency slot of a process that it hears nothing of.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease.into()
    }

    /// What a process does while it cannot reach the store.
    #[must_use]
    pub const fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// How many processes share the limits.
    #[must_use]
    pub const fn processes(&self) -> u32 {
        self.processes
    }

    /// Which version of the rules these are. `None`: each process has its own rules.
    #[must_use]
    pub const fn version(&self) -> Option<u64> {
        self.version
    }

    /// What is left of a limit for one process alone. `None`: nothing.
    pub(super) fn part(&self, kind: LimitKind) -> Option<LimitKind> {
        let of = |count: u32| Some(count / self.processes).filter(|&part| part > 0);
        match kind {
            LimitKind::Window { count, period, anchor, grain } => {
                Some(LimitKind::Window { count: of(count)?, period, anchor, grain })
            }
            LimitKind::Spaced { interval, largest } => {
                Some(LimitKind::Spaced { interval: interval.saturating_mul(self.processes.into()), largest })
            }
            LimitKind::Bucket { interval, burst } => {
                Some(LimitKind::Bucket { interval: interval.saturating_mul(self.processes.into()), burst: of(burst)? })
            }
            LimitKind::Calendar { .. } => None,
        }
    }
}

#[allow(dead_code, reason = "floors above this one use it")]
impl Rules {
    /// These rules with what others say of where the store is, of names in it and of leases.
    pub(crate) fn at_store(&self, other: &CheckedShared) -> Self {
        let mut model: Model = self.model().clone();
        let CheckedShared { url, prefix, lease, .. } = other.clone();
        model.shared = CheckedShared { url, prefix, lease, ..model.shared };
        self.with_model(model)
    }
}
