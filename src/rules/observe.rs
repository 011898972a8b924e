//! What a rule makes of what the server says: `[rules.x.observe]`.

use std::sync::Arc;

use super::builder::{At, Rule};
use super::model::{CheckedRule, Model};
use super::quota::Quota;
use crate::engine::{Learn, Nanos, Narrows, ObserveRef};
use crate::headers::short;

/// What a rule makes of what the server says of its own counters, in the making.
///
/// Without it every window of the server's narrows the limit of the rule that is most like it: one that counts the same
/// unit, on the side (a key's, or everybody's) that the server names, whose period and count are nearest.
///
/// ```
/// use request_balancer::{Observe, Quota, Rule, Rules};
///
/// let observe = Observe::new().window("core", "per_key").window("search", "none").learn(Quota::per_second(30));
/// let built = Rules::builder().rule("read", Rule::new().per_key(Quota::per_second(5)).observe(observe)).build()?;
/// let read: Rules = "
///     [rules.read]
///     per_key = '5/1s'
///     [rules.read.observe]
///     windows = { core = 'per_key', search = 'none' }
///     learn = '30/1s'
/// "
/// .parse()?;
/// assert_eq!(built, read);
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Observe {
    pub(super) dialect: Option<At<String>>,
    pub(super) windows: Vec<(At<String>, At<String>)>,
    pub(super) learn: Option<At<Quota>>,
}

impl Observe {
    /// Nothing is said yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The dialect in which responses are read. Default: `auto`.
    pub fn dialect(mut self, name: impl Into<String>) -> Self {
        self.dialect = Some(name.into().into());
        self
    }

    /// Which limits the server's window of this name, in whatever case, narrows one of: `per_key`, `overall`, the name of
    /// a limit that the rule is under, or `none`. The window `*` is all that are not named, such as Discord's, whose names
    /// nobody knows before.
    pub fn window(mut self, name: impl Into<String>, narrows: impl Into<String>) -> Self {
        self.windows.push((name.into().into(), narrows.into().into()));
        self
    }

    /// The rule's own `per_key`, or what a key has of its own under it, goes by the server's number, key by key; never
    /// above this. Those as long as this do, give or take a tenth; what tells it are windows as long as the limit's, and
    /// those whose length is not told. Token buckets go by all, as rates, and keep their bursts. 24 hours after a number
    /// was last told, the next attempt to end brings the configured one back.
    ///
    /// Default: numbers that differ are reported, and the configured ones stand.
    pub fn learn(mut self, most: Quota) -> Self {
        self.learn = Some(most.into());
        self
    }
}

impl Rule {
    /// What it makes of what the server says of its own counters.
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = observe;
        self
    }
}

/// The same, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckedObserve {
    /// `None`: `auto`.
    pub(super) dialect: Option<Arc<str>>,
    pub(super) windows: Vec<(Arc<str>, Narrows)>,
    pub(super) learn: Option<Quota>,
}

impl CheckedRule {
    /// The dialect in which responses are read.
    #[must_use]
    pub fn dialect(&self) -> &str {
        self.observe.dialect.as_deref().unwrap_or("auto")
    }

    /// Up to which quota the rule's own `per_key` goes by the server's numbers. `None`: it does not.
    #[must_use]
    pub const fn learn(&self) -> Option<&Quota> {
        self.observe.learn.as_ref()
    }

    pub(super) fn observe_refs(&self) -> Box<[ObserveRef]> {
        let windows = self.observe.windows.iter();
        windows.map(|(window, narrows)| ObserveRef { window: short(window).into(), narrows: narrows.clone() }).collect()
    }

    pub(super) fn learning(&self, model: &Model) -> Option<Learn> {
        let most = self.observe.learn.as_ref()?;
        // The widest of its margins is right for all of its windows.
        let margins = self.caps.per_key.iter().map(|quota| quota.margin_nanos().unwrap_or(model.margin));
        Some(Learn { count: most.count(), period: most.nanos(), margin: margins.max().unwrap_or(Nanos::ZERO) })
    }
}

/// The word for what a window narrows.
pub(super) fn narrows_word(narrows: &Narrows) -> &str {
    match narrows {
        Narrows::Nothing => NONE,
        Narrows::PerKey => "per_key",
        Narrows::Overall => "overall",
        Narrows::Named(name) => name,
    }
}

/// What narrows nothing.
pub(super) const NONE: &str = "none";
