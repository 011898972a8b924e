//! Rules before they are checked: what code says through the builder, and what a file says with its places.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check;
use super::finding::{Findings, Place};
use super::model::{Pace, Rules, Share};
use super::observe::Observe;
use super::pool::PoolRules;
use super::quota::{CountFrom, Quota};
use super::retry::Retry;
use super::shared::SharedRules;
use crate::engine::{Nanos, Overflow};
use crate::headers::Dialect;

/// A value and where the file says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Option<Place>,
}

impl<T> From<T> for At<T> {
    fn from(value: T) -> Self {
        Self { value, place: None }
    }
}

/// The four words that mean the same at every level.
#[derive(Clone, Debug, Default)]
pub(super) struct Caps {
    pub(super) per_key: Vec<At<Quota>>,
    pub(super) overall: Vec<At<Quota>>,
    pub(super) concurrency: Option<At<u32>>,
    pub(super) key_concurrency: Option<At<u32>>,
    /// Whether a store keeps `overall` and `concurrency`.
    pub(super) share_overall: Option<At<bool>>,
    /// Whether a store keeps `per_key` and `key_concurrency`.
    pub(super) share_per_key: Option<At<bool>>,
}

/// Rules in the making; [`build`](Self::build) checks them all at once.
///
/// Names and meanings are those of the rules file. A method that takes a quota adds one when it is called again: all
/// hold. Of the other methods the last call counts.
///
/// ```
/// use request_balancer::{Lane, Quota, Rule, Rules};
/// use std::time::Duration;
///
/// let rules = Rules::builder()
///     .overall(Quota::per_second(30))
///     .per_key(Quota::per_second(1))
///     .margin(Duration::from_millis(50))
///     .rule("individual", Rule::new())
///     .rule("broadcast", Rule::new().priority(2))
///     .lane(2, Lane::new().name("bulk").share(1, 20))
///     .build()?;
/// assert_eq!(rules.names().collect::<Vec<_>>(), ["individual", "broadcast"]);
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RulesBuilder {
    pub(super) caps: Caps,
    pub(super) margin: Option<At<Nanos>>,
    pub(super) count_from: Option<CountFrom>,
    pub(super) units: Vec<At<String>>,
    pub(super) fair_by: Option<At<String>>,
    pub(super) queue: Option<At<u32>>,
    pub(super) default_rule: Option<At<String>>,
    pub(super) attempt_timeout: Option<At<Nanos>>,
    pub(super) ban_guard: Option<At<Quota>>,
    pub(super) rules: Vec<(At<String>, Rule)>,
    pub(super) limits: Vec<(At<String>, NamedLimit)>,
    pub(super) lanes: Vec<(At<u32>, Lane)>,
    pub(super) keys: Vec<(At<String>, OwnQuotas)>,
    pub(super) dialects: Vec<(At<String>, OwnDialect)>,
    pub(super) pool: Option<PoolRules>,
    pub(super) shared: Option<SharedRules>,
    pub(super) retry: Retry,
    pub(super) retry_budget: Option<At<Share>>,
}

/// The quotas that a key has of its own, by rule.
pub(super) type OwnQuotas = Vec<(At<String>, Vec<At<Quota>>)>;

/// A dialect and where the file says what, by path.
#[derive(Clone, Debug)]
pub(super) struct OwnDialect {
    pub(super) dialect: Dialect,
    pub(super) places: BTreeMap<String, Place>,
}

impl RulesBuilder {
    /// Limits all starts under `overall` together. Default: none.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Limits the starts of each key. Default: none.
    pub fn per_key(mut self, quota: Quota) -> Self {
        self.caps.per_key.push(quota.into());
        self
    }

    /// Caps how many attempts run at once. Default: none.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Caps how many attempts of each key run at once. Default: none.
    pub fn key_concurrency(mut self, most: u32) -> Self {
        self.caps.key_concurrency = Some(most.into());
        self
    }

    /// A store keeps the limits of all starts and attempts together, for all processes that share it. Default: no.
    pub fn share_overall(mut self) -> Self {
        self.caps.share_overall = Some(true.into());
        self
    }

    /// A store keeps the limits of each key, for all processes that share it. Default: no.
    pub fn share_per_key(mut self) -> Self {
        self.caps.share_per_key = Some(true.into());
        self
    }

    /// By how much network delay may vary without breaking a window or a smooth quota at the server. Default: 0.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(Nanos::from(margin).into());
        self
    }

    /// From when a start's period runs, for windows. Default: the start.
    pub fn count_from(mut self, count_from: CountFrom) -> Self {
        self.count_from = Some(count_from);
        self
    }

    /// Declares what requests can cost besides requests: one small word each. Default: nothing.
    pub fn units<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.units.extend(names.into_iter().map(|name| At::from(name.into())));
        self
    }

    /// In which unit the queues of a lane get equal turns. Default: `requests`.
    pub fn fair_by(mut self, unit: impl Into<String>) -> Self {
        self.fair_by = Some(unit.into().into());
        self
    }

    /// How many requests may stand in line in all, at least 1; what becomes of one more says its rule's
    /// [`overflow`](Rule::overflow), where the oldest is the oldest of its own queue. One that can start at once needs
    /// no room in the line as a whole. Default: any number.
    pub fn queue(mut self, most: u32) -> Self {
        self.queue = Some(most.into());
        self
    }

    /// The longest that one attempt may run, for rules that say nothing else: [`Rule::attempt_timeout`]. Default: any.
    pub fn attempt_timeout(mut self, longest: Duration) -> Self {
        self.attempt_timeout = Some(Nanos::from(longest).into());
        self
    }

    /// The rule of requests whose rule has a name that is not among the rules, so that code can name a rule for each kind
    /// of call before anybody writes it down. Default: none, and such a request is refused.
    pub fn default_rule(mut self, name: impl Into<String>) -> Self {
        self.default_rule = Some(name.into().into());
        self
    }

    /// Gives one key a quota of its own under a rule; its quotas there take the place of the rule's `per_key`. The key
    /// is known by its text. Default: none.
    pub fn key(mut self, key: impl ToString, rule: impl Into<String>, quota: Quota) -> Self {
        let rules = entry(&mut self.keys, key.to_string());
        entry(rules, rule.into()).push(quota.into());
        self
    }

    /// Adds a rule. Without any there is one, named `default`.
    pub fn rule(mut self, name: impl Into<String>, rule: Rule) -> Self {
        self.rules.push((name.into().into(), rule));
        self
    }

    /// Adds a budget that the rules share which are [`under`](Rule::under) its name.
    pub fn limit(mut self, name: impl Into<String>, limit: NamedLimit) -> Self {
        self.limits.push((name.into().into(), limit));
        self
    }

    /// Says more about the lane of all rules with this priority.
    pub fn lane(mut self, priority: u32, lane: Lane) -> Self {
        self.lanes.push((priority.into(), lane));
        self
    }

    /// Adds a dialect, for responses of an API that the crate does not know. Default: none.
    ///
    /// ```
    /// use request_balancer::Rules;
    /// use request_balancer::headers::{Dialect, ServerScope};
    ///
    /// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).scope(ServerScope::Global);
    /// let rules = Rules::builder().dialect(SHOP.clone()).build()?;
    /// assert_eq!(rules.dialect("shop"), Some(&SHOP));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        let name = dialect.name().to_owned().into();
        self.dialects.push((name, OwnDialect { dialect, places: BTreeMap::new() }));
        self
    }

    /// What failures cost and how long they wait, for every rule that says nothing else.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The part of all starts, `part` of `of`, that may be retries of failures, whatever requests they are for: one
    /// beyond it is not made. 10 are allowed beside it, so that a few starts don't have to earn the first retry, and no
    /// more are saved up than 1,000 starts allow. Waits that the server gave a length for don't count. Default: any.
    pub fn retry_budget(mut self, part: u32, of: u32) -> Self {
        self.retry_budget = Some(Share::new(part, of).into());
        self
    }

    /// The store that keeps what is shared. Default: that of [`SharedRules`].
    pub fn shared(mut self, shared: SharedRules) -> Self {
        self.shared = Some(shared);
        self
    }

    /// Checks everything and compiles it.
    ///
    /// # Errors
    ///
    /// All findings at once, if one of them is an error. Findings that are only warnings are in
    /// [`Rules::warnings`].
    pub fn build(self) -> Result<Rules, Findings> {
        check::rules(&self, check::Read::default())
    }
}

/// What stands under a name in a list, made if it is not there.
fn entry<T: Default>(list: &mut Vec<(At<String>, T)>, name: String) -> &mut T {
    let position = list.iter().position(|(known, _)| known.value == name).unwrap_or_else(|| {
        list.push((name.into(), T::default()));
        list.len() - 1
    });
    &mut list[position].1
}

/// One rule in the making.
///
/// ```
/// use request_balancer::{Quota, Rule, Rules};
///
/// let group = Rule::new().per_key("20/60s".parse::<Quota>()?).priority(1);
/// let rules = Rules::builder().rule("group", group).build()?;
/// assert_eq!(rules.to_string(), "[rules]\ngroup = \"20/60s\"\n");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Rule {
    pub(super) caps: Caps,
    pub(super) priority: Option<u32>,
    pub(super) weight: Option<At<u32>>,
    pub(super) under: Option<Vec<At<String>>>,
    pub(super) ordered: Option<At<bool>>,
    pub(super) queue: Option<At<u32>>,
    pub(super) overflow: Overflow,
    pub(super) max_wait: Option<At<Nanos>>,
    pub(super) attempt_timeout: Option<At<Option<Nanos>>>,
    pub(super) paused: bool,
    pub(super) retry: Retry,
    pub(super) observe: Observe,
}

impl Rule {
    /// A rule that adds nothing to the limits of all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the starts of each key under this rule. Default: none.
    pub fn per_key(mut self, quota: Quota) -> Self {
        self.caps.per_key.push(quota.into());
        self
    }

    /// Limits all keys of this rule together. Default: none.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Caps how many of the rule's attempts run at once. Default: none.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Caps how many attempts of each key under this rule run at once. Default: none.
    pub fn key_concurrency(mut self, most: u32) -> Self {
        self.caps.key_concurrency = Some(most.into());
        self
    }

    /// A store keeps the limits of all starts and attempts together, for all processes that share it. Default: no.
    pub fn share_overall(mut self) -> Self {
        self.caps.share_overall = Some(true.into());
        self
    }

    /// A store keeps the limits of each key, for all processes that share it. Default: no.
    pub fn share_per_key(mut self) -> Self {
        self.caps.share_per_key = Some(true.into());
        self
    }

    /// The lane: a lower number is more urgent. Default: 1.
    pub fn priority(mut self, priority: u32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Share of each of its queues inside the lane, at least 1: so many requests in a row where another one has one.
    /// Default: 1.
    ///
    /// It means nothing where a limit of the key lets a queue start less than that in a row: under `per_key = "1/1s"` queues
    /// of weights 1 and 8 have one request each in every round that both are ready for.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight.into());
        self
    }

    /// Which outer limits bind it: `overall`, `per_key` and names of [`NamedLimit`]s. Default: `overall` and `per_key`.
    pub fn under<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.under = Some(names.into_iter().map(|name| name.into().into()).collect());
        self
    }

    /// Whether completions of a queue are in order, one attempt at a time. Default: no.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = Some(ordered.into());
        self
    }

    /// How many requests may wait in one queue, at least 1. Default: any number.
    pub fn queue(mut self, most: u32) -> Self {
        self.queue = Some(most.into());
        self
    }

    /// What becomes of a request that finds its queue full. Default: it is refused.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Longest time in line over all attempts of a request. Default: any.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(Nanos::from(max_wait).into());
        self
    }

    /// The longest that one attempt may run; longer than zero. Then its future is dropped, and as it may have had its
    /// effect, it is followed by another only if the request is marked idempotent. `None`: any. Default: that of all
    /// rules.
    pub fn attempt_timeout(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.attempt_timeout = Some(longest.into().map(Nanos::from).into());
        self
    }

    /// Whether it starts nothing until it is resumed. Default: no.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// What differs from the retry policy of all rules, field by field.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}

/// A named budget in the making.
///
/// ```
/// use request_balancer::{NamedLimit, Quota, Rule, Rules};
///
/// let rules = Rules::builder()
///     .limit("account", NamedLimit::new().per_key(Quota::per_hour(5_000)))
///     .rule("read", Rule::new().under(["overall", "account"]))
///     .rule("write", Rule::new().under(["overall", "account"]))
///     .build()?;
/// assert!(rules.rule("read").unwrap().is_under("account"));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct NamedLimit {
    pub(super) caps: Caps,
}

impl NamedLimit {
    /// A budget that limits nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the starts of each key under the rules that share the budget. Default: none.
    pub fn per_key(mut self, quota: Quota) -> Self {
        self.caps.per_key.push(quota.into());
        self
    }

    /// Limits all starts under the rules that share the budget together. Default: none.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Caps how many attempts run at once. Default: none.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Caps how many attempts of each key run at once. Default: none.
    pub fn key_concurrency(mut self, most: u32) -> Self {
        self.caps.key_concurrency = Some(most.into());
        self
    }

    /// A store keeps the limits of all starts and attempts together, for all processes that share it. Default: no.
    pub fn share_overall(mut self) -> Self {
        self.caps.share_overall = Some(true.into());
        self
    }

    /// A store keeps the limits of each key, for all processes that share it. Default: no.
    pub fn share_per_key(mut self) -> Self {
        self.caps.share_per_key = Some(true.into());
        self
    }
}

/// A lane in the making: what all queues of one priority have in common.
///
/// ```
/// use request_balancer::{Lane, Quota, Rule, Rules};
///
/// let rules = Rules::builder()
///     .rule("chat", Rule::new())
///     .rule("news", Rule::new().priority(2))
///     .lane(2, Lane::new().name("bulk").overall(Quota::per_second(25)))
///     .build()?;
/// assert_eq!(&*rules.plan().lanes[1].name, "bulk");
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Lane {
    /// Only `overall` and `concurrency` can be set.
    pub(super) caps: Caps,
    pub(super) name: Option<At<String>>,
    pub(super) share: Option<At<Share>>,
    pub(super) pace: Option<At<Pace>>,
}

impl Lane {
    /// A lane as it is if nobody says anything about it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its name in metrics and messages. Default: the priority.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// The part of the grants, `part` of `of`, that it gets at least while it is ready; `part` 0 is strict priority.
    /// Default: 1 of 20.
    ///
    /// With `L` lanes and a share of 1/n it is served once n - L grants went to others, so that what it takes of a full
    /// line is up to 1/(n - L + 1). Rules in which the lanes below the first take more than half of it are refused.
    pub fn share(mut self, part: u32, of: u32) -> Self {
        self.share = Some(Share::new(part, of).into());
        self
    }

    /// Limits the starts of the whole lane: what is left is reserved for the others. Default: none.
    pub fn overall(mut self, quota: Quota) -> Self {
        self.caps.overall.push(quota.into());
        self
    }

    /// Caps how many attempts of the lane run at once. Default: none.
    pub fn concurrency(mut self, most: u32) -> Self {
        self.caps.concurrency = Some(most.into());
        self
    }

    /// Spreads its starts evenly over the windows up to this long that it shares with more urgent lanes. Default: 60 s.
    pub fn pace(mut self, horizon: Duration) -> Self {
        self.pace = Some(Pace::UpTo(horizon.into()).into());
        self
    }

    /// Lets it start as fast as its limits allow, without leaving room for more urgent lanes.
    pub fn no_pace(mut self) -> Self {
        self.pace = Some(Pace::Off.into());
        self
    }
}
