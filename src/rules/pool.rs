//! `[pool]`: interchangeable endpoints, in the making and checked.

use std::sync::Arc;
use std::time::Duration;

use super::builder::{At, Caps, RulesBuilder};
use super::check;
use super::compile;
use super::finding::Findings;
use super::model::{CheckedCaps, Model, Rules, Share};
use super::quota::Quota;
use crate::engine::{BreakerPlan, Choose, Failover, Nanos};

/// A pool in the making: interchangeable endpoints, one of which each start uses.
///
/// ```
/// use request_balancer::{Choose, EndpointRules, PoolRules, Quota, Rules};
///
/// let pool = PoolRules::new()
///     .endpoint("bot-a", EndpointRules::new())
///     .endpoint("bot-b", EndpointRules::new().weight(2))
///     .overall(Quota::per_second(30))
///     .concurrency(1)
///     .choose(Choose::Weighted);
/// let built = Rules::builder().pool(pool).build()?;
/// let read: Rules = "
///     [pool]
///     overall = '30/1s'
///     concurrency = 1
///     choose = 'weighted'
///     [pool.endpoints]
///     bot-a = {}
///     bot-b = { weight = 2 }
/// "
/// .parse()?;
/// assert_eq!(built, read);
/// assert_eq!(built.endpoints().collect::<Vec<_>>(), ["bot-a", "bot-b"]);
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PoolRules {
    pub(super) endpoints: Vec<(At<String>, EndpointRules)>,
    pub(super) caps: Caps,
    pub(super) choose: Choose,
    pub(super) failover: Failover,
    /// `Some(None)`: without any.
    pub(super) breaker: Option<Option<BreakerRules>>,
    pub(super) sticky: Option<At<bool>>,
    pub(super) exhausted: Option<At<Nanos>>,
}

impl PoolRules {
    /// A pool without endpoints: it is none before it has some.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint.
    pub fn endpoint(mut self, name: impl Into<String>, endpoint: EndpointRules) -> Self {
        self.endpoints.push((name.into().into(), endpoint));
        self
    }

    /// Limits the starts of each endpoint. Default: none.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Limits the starts of each key on each endpoint. Default: none.
    pub fn per_key(mut self, quota: Quota) -> Self {
        self.caps.per_key.push(quota.into());
        self
    }

    /// Caps how many attempts run at once on each endpoint. Default: none.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Caps how many attempts of each key run at once on each endpoint. Default: none.
    pub fn key_concurrency(mut self, most: u32) -> Self {
        self.caps.key_concurrency = Some(most.into());
        self
    }

    /// Which endpoint is used of those that have room. Default: the least loaded.
    pub fn choose(mut self, choose: Choose) -> Self {
        self.choose = choose;
        self
    }

    /// Where a request goes after a transient failure. Default: to the next endpoint.
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = failover;
        self
    }

    /// When an endpoint is given a rest because it fails. Default: after 5 failures in a row, for 30 s.
    pub fn breaker(mut self, breaker: BreakerRules) -> Self {
        self.breaker = Some(Some(breaker));
        self
    }

    /// Endpoints are used however often they fail.
    pub fn no_breaker(mut self) -> Self {
        self.breaker = Some(None);
        self
    }

    /// Whether a key stays with one endpoint for as long as that is healthy: enabled, not held, its breaker closed. Nothing
    /// is remembered for that: each key has an order of its own among the endpoints, which follows from their names and
    /// weights alone and is the same in every run, on every machine. When one comes or goes, only its own keys move. Default: no.
    pub fn sticky(mut self, sticky: bool) -> Self {
        self.sticky = Some(sticky.into());
        self
    }

    /// How long an endpoint rests that [is exhausted](crate::Failure::exhaust_endpoint) until nobody knows when. Default:
    /// 1 h.
    pub fn exhausted(mut self, rest: Duration) -> Self {
        self.exhausted = Some(Nanos::from(rest).into());
        self
    }
}

/// The limits of one endpoint: its own, and where it has none those of the pool. [`Rules::endpoint_limits`] tells them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EndpointLimits<'r> {
    /// Its name.
    pub name: &'r str,
    /// Of all starts on it.
    pub overall: &'r [Quota],
    /// Of each key's starts on it.
    pub per_key: &'r [Quota],
    /// How many attempts may run on it at once. `None`: any number.
    pub concurrency: Option<u32>,
    /// How many attempts of each key may run on it at once. `None`: any number.
    pub key_concurrency: Option<u32>,
}

/// What one endpoint has of its own: in place of what the pool says of each.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EndpointRules {
    pub(super) weight: Option<At<u32>>,
    pub(super) caps: Caps,
}

impl EndpointRules {
    /// An endpoint like the others.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its share among the others, at least 1. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight.into());
        self
    }

    /// Limits its starts. Default: as the pool says.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Limits the starts of each key on it. Default: as the pool says.
    pub fn per_key(mut self, quota: Quota) -> Self {
        self.caps.per_key.push(quota.into());
        self
    }

    /// Caps how many attempts run on it at once. Default: as the pool says.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Caps how many attempts of each key run on it at once. Default: as the pool says.
    pub fn key_concurrency(mut self, most: u32) -> Self {
        self.caps.key_concurrency = Some(most.into());
        self
    }
}

/// When an endpoint is given a rest because it fails, and for how long.
///
/// Transient failures, ambiguous ones, attempts that time out and panics count as failures; "slow down" does not unless
/// told, and final errors say nothing. Once the rest is over, a few attempts probe the endpoint.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct BreakerRules {
    pub(super) failures: Option<At<u32>>,
    pub(super) ratio: Option<At<Share>>,
    pub(super) minimum: Option<At<u32>>,
    pub(super) over: Option<At<Nanos>>,
    pub(super) reset: Option<At<Nanos>>,
    pub(super) jitter: Option<At<f64>>,
    pub(super) probes: Option<At<u32>>,
    pub(super) count_retries: bool,
}

impl BreakerRules {
    /// 5 failures in a row, a rest of 30 s, one probe.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many failures in a row are too many, at least 1. Default: 5, or any number where a [ratio](Self::ratio) is
    /// given.
    pub fn failures(mut self, most: u32) -> Self {
        self.failures = Some(most.into());
        self
    }

    /// Which part of failures is too large, `part` of `of`. Default: none is.
    pub fn ratio(mut self, part: u32, of: u32) -> Self {
        self.ratio = Some(Share::new(part, of).into());
        self
    }

    /// Below how many attempts the ratio says nothing, at least 1. Default: 10.
    pub fn minimum(mut self, attempts: u32) -> Self {
        self.minimum = Some(attempts.into());
        self
    }

    /// How long an attempt counts for the ratio. Default: 30 s.
    pub fn over(mut self, span: Duration) -> Self {
        self.over = Some(Nanos::from(span).into());
        self
    }

    /// How long the endpoint rests. Default: 30 s.
    pub fn reset(mut self, rest: Duration) -> Self {
        self.reset = Some(Nanos::from(rest).into());
        self
    }

    /// How much longer it rests at most, as a part of that from 0 to 1, drawn at random. Default: 0.1.
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = Some(fraction.into());
        self
    }

    /// How many attempts may probe it at once after its rest, and how many of them have to succeed, at least 1. Default: 1.
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = Some(probes.into());
        self
    }

    /// Whether "slow down" counts as a failure. Default: no; holds do that work.
    pub fn count_retries(mut self, count: bool) -> Self {
        self.count_retries = count;
        self
    }
}

impl RulesBuilder {
    /// Interchangeable endpoints, of which each start uses one. Default: there is one way to send.
    pub fn pool(mut self, pool: PoolRules) -> Self {
        self.pool = Some(pool);
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckedPool {
    pub(super) endpoints: Vec<CheckedEndpoint>,
    /// Whether there is a pool even without endpoints.
    pub(super) given: bool,
    pub(super) caps: CheckedCaps,
    pub(super) choose: Choose,
    pub(super) failover: Failover,
    /// `None`: none.
    pub(super) breaker: Option<BreakerPlan>,
    pub(super) sticky: bool,
    pub(super) exhausted: Nanos,
}

impl CheckedPool {
    pub(super) const EXHAUSTED: Nanos = Nanos::from_secs(3_600);

    /// One of which the rules say nothing.
    pub(super) fn unsaid() -> Self {
        Self {
            endpoints: Vec::new(),
            given: false,
            caps: CheckedCaps::default(),
            choose: Choose::default(),
            failover: Failover::default(),
            breaker: Some(BreakerPlan::default()),
            sticky: false,
            exhausted: Self::EXHAUSTED,
        }
    }
}

impl CheckedPool {
    fn limits(&self) -> impl Iterator<Item = EndpointLimits<'_>> {
        fn or<'r>(own: &'r [Quota], outer: &'r [Quota]) -> &'r [Quota] {
            if own.is_empty() { outer } else { own }
        }
        self.endpoints.iter().map(|endpoint| EndpointLimits {
            name: &endpoint.name,
            overall: or(&endpoint.caps.overall, &self.caps.overall),
            per_key: or(&endpoint.caps.per_key, &self.caps.per_key),
            concurrency: endpoint.caps.concurrency.or(self.caps.concurrency),
            key_concurrency: endpoint.caps.key_concurrency.or(self.caps.key_concurrency),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckedEndpoint {
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    /// What it has of its own.
    pub(super) caps: CheckedCaps,
}

impl CheckedEndpoint {
    /// Its limits: its own, else those of the pool.
    pub(super) fn over(&self, pool: &CheckedCaps) -> CheckedCaps {
        let or = |own: &Vec<Quota>, outer: &Vec<Quota>| if own.is_empty() { outer.clone() } else { own.clone() };
        CheckedCaps {
            per_key: or(&self.caps.per_key, &pool.per_key),
            overall: or(&self.caps.overall, &pool.overall),
            concurrency: self.caps.concurrency.or(pool.concurrency),
            key_concurrency: self.caps.key_concurrency.or(pool.key_concurrency),
            share_overall: self.caps.share_overall || pool.share_overall,
            share_per_key: false,
        }
    }
}

impl Rules {
    /// The names of the pool's endpoints, in order. Empty: there is one way to send, or endpoints come from code.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.model().pool.iter().flat_map(|pool| &pool.endpoints).map(|endpoint| &*endpoint.name)
    }

    /// Whether there is a `[pool]`, be it one whose endpoints come from code.
    #[must_use]
    pub fn has_pool(&self) -> bool {
        self.model().pool.is_some()
    }

    /// These rules with other endpoints; what else their `[pool]` says goes for those, too.
    ///
    /// ```
    /// use request_balancer::{EndpointRules, Rules};
    ///
    /// let rules: Rules = "[pool]\nconcurrency = 1".parse()?;
    /// let rules = rules.with_endpoints([("bot-a", EndpointRules::new()), ("bot-b", EndpointRules::new().weight(2))])?;
    /// assert_eq!(rules.endpoints().count(), 2);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same endpoints would be refused for in a rules file.
    pub fn with_endpoints<N: Into<String>>(
        &self,
        endpoints: impl IntoIterator<Item = (N, EndpointRules)>,
    ) -> Result<Self, Findings> {
        let list: Vec<(At<String>, EndpointRules)> =
            endpoints.into_iter().map(|(name, endpoint)| (At::from(name.into()), endpoint)).collect();
        let checked = check::endpoints(self.model(), &list, list.len())?;
        Ok(self.with_checked(checked))
    }

    /// These rules with one endpoint more, or another one in the place of that of its name.
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same endpoint would be refused for in a rules file.
    pub fn with_endpoint(&self, name: &str, endpoint: EndpointRules) -> Result<Self, Findings> {
        let mut all = self.model().pool.as_ref().map_or_else(Vec::new, |pool| pool.endpoints.clone());
        let more = usize::from(!all.iter().any(|known| *known.name == *name));
        let added = check::endpoints(self.model(), &[(At::from(name.to_owned()), endpoint)], all.len() + more)?;
        for endpoint in added {
            match all.iter_mut().find(|known| known.name == endpoint.name) {
                Some(known) => *known = endpoint,
                None => all.push(endpoint),
            }
        }
        Ok(self.with_checked(all))
    }

    /// These rules without an endpoint. Without one of this name there is nothing to do.
    ///
    /// ```
    /// use request_balancer::{EndpointRules, Rules};
    ///
    /// let rules: Rules = "[pool]\nendpoints = ['bot-a', 'bot-b']".parse()?;
    /// let rules = rules.with_endpoint("bot-c", EndpointRules::new().weight(2))?.without_endpoint("bot-a");
    /// assert_eq!(rules.endpoints().collect::<Vec<_>>(), ["bot-b", "bot-c"]);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn without_endpoint(&self, name: &str) -> Self {
        let mut all = self.model().pool.as_ref().map_or_else(Vec::new, |pool| pool.endpoints.clone());
        all.retain(|endpoint| *endpoint.name != *name);
        self.with_checked(all)
    }

    /// The limits of each endpoint, in the order of [`endpoints`](Self::endpoints).
    ///
    /// ```
    /// use request_balancer::Rules;
    ///
    /// let rules: Rules = "
    ///     [pool]
    ///     concurrency = 1
    ///     [pool.endpoints]
    ///     bot-a = {}
    ///     bot-b = { concurrency = 4 }
    /// "
    /// .parse()?;
    /// let caps: Vec<_> = rules.endpoint_limits().map(|limits| (limits.name, limits.concurrency)).collect();
    /// assert_eq!(caps, [("bot-a", Some(1)), ("bot-b", Some(4))]);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn endpoint_limits(&self) -> impl Iterator<Item = EndpointLimits<'_>> {
        self.model().pool.iter().flat_map(CheckedPool::limits)
    }

    /// These rules with endpoints that were checked.
    pub(super) fn with_checked(&self, endpoints: Vec<CheckedEndpoint>) -> Self {
        let mut model: Model = self.model().clone();
        let pool = model.pool.get_or_insert_with(CheckedPool::unsaid);
        pool.given = endpoints.is_empty();
        pool.endpoints = endpoints;
        self.with_model(model)
    }

    /// Rules that mean something else, which was checked, too.
    pub(super) fn with_model(&self, model: Model) -> Self {
        let plan = compile::plan(&model);
        Self::new(model, plan, self.warnings().to_vec())
    }
}

#[allow(dead_code, reason = "floors above this one use it")]
impl Rules {
    /// These rules with the endpoints of others, if those have a pool.
    pub(crate) fn with_endpoints_of(&self, other: &Self) -> Self {
        match &other.model().pool {
            Some(pool) => self.with_checked(pool.endpoints.clone()),
            None => self.clone(),
        }
    }

    /// These rules with only those of their endpoints.
    pub(crate) fn with_endpoints_that(&self, stay: impl Fn(&str) -> bool) -> Self {
        let mut all = self.model().pool.as_ref().map_or_else(Vec::new, |pool| pool.endpoints.clone());
        all.retain(|endpoint| stay(&endpoint.name));
        self.with_checked(all)
    }
}

pub(super) const CHOICES: &[(&str, Choose)] = &[
    ("least-loaded", Choose::LeastLoaded),
    ("fastest", Choose::Fastest),
    ("in-order", Choose::InOrder),
    ("weighted", Choose::Weighted),
];

pub(super) const FAILOVERS: &[(&str, Failover)] = &[("next", Failover::Next), ("same-first", Failover::SameFirst)];

pub(super) const fn choose_word(choose: Choose) -> &'static str {
    match choose {
        Choose::LeastLoaded => "least-loaded",
        Choose::Fastest => "fastest",
        Choose::InOrder => "in-order",
        Choose::Weighted => "weighted",
    }
}
