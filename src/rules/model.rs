//! The checked rules: what loads cannot fail later.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::builder::RulesBuilder;
use super::compile;
use super::finding::{Finding, FindingCode, Findings};
use super::observe::CheckedObserve;
use super::own::{KeyQuotas, OwnNumbers};
use super::pool::CheckedPool;
use super::quota::{CountFrom, Quota};
use super::shared::CheckedShared;
use super::{check, toml};
use crate::engine::{Nanos, Overflow, Plan, RetryPolicy};
use crate::headers::Dialect;

/// A checked set of rules: what loads cannot fail later.
///
/// They come from a file, from text or from a [builder](Self::builder), all with the same checks. Cloning is cheap. The
/// text form is a rules file that reads as equal rules; its comments and spelling are not those of the original.
///
/// ```
/// use request_balancer::{Quota, Rules};
///
/// let rules: Rules = "
///     overall = '30/1s'
///     per_key = '1/1s'
///     [rules]
///     individual = {}
///     group = '20/60s'
/// "
/// .parse()?;
/// assert_eq!(rules.overall(), [Quota::per_second(30)]);
/// assert_eq!(rules.rule("group").unwrap().per_key(), [Quota::per_minute(20)]);
/// assert!(rules.warnings().is_empty());
/// assert_eq!(rules.to_string().parse::<Rules>()?, rules);
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    model: Model,
    warnings: Box<[Finding]>,
    plan: Arc<Plan>,
    own: OwnNumbers,
}

/// What the rules mean, without where or how it was said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) caps: CheckedCaps,
    pub(super) margin: Nanos,
    pub(super) count_from: CountFrom,
    /// In the order in which they are declared, which is that of the engine.
    pub(super) units: Vec<Arc<str>>,
    /// The zones of all calendar quotas, in alphabetic order, which is that of the engine.
    pub(super) zones: Vec<Arc<str>>,
    /// `None`: requests.
    pub(super) fair_by: Option<Arc<str>>,
    pub(super) ban_guard: Option<Quota>,
    /// How many may stand in line in all; [`u32::MAX`]: any number.
    pub(super) queue: u32,
    pub(super) default_rule: Option<Arc<str>>,
    /// Of rules that say nothing else.
    pub(super) attempt_timeout: Option<Nanos>,
    pub(super) retry: RetryPolicy,
    pub(super) retry_budget: Option<Share>,
    pub(super) rules: Vec<CheckedRule>,
    pub(super) limits: Vec<CheckedLimit>,
    pub(super) lanes: Vec<CheckedLane>,
    pub(super) keys: KeyQuotas,
    pub(super) dialects: Vec<Dialect>,
    pub(super) pool: Option<CheckedPool>,
    pub(super) shared: CheckedShared,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckedCaps {
    pub(super) per_key: Vec<Quota>,
    pub(super) overall: Vec<Quota>,
    pub(super) concurrency: Option<u32>,
    pub(super) key_concurrency: Option<u32>,
    /// Whether a store keeps `overall` and `concurrency`.
    pub(super) share_overall: bool,
    /// Whether a store keeps `per_key` and `key_concurrency`.
    pub(super) share_per_key: bool,
}

/// One of the checked rules, with defaults filled in.
///
/// ```
/// use request_balancer::Rules;
///
/// let rules: Rules = "[rules.group]\nper_key = '20/60s'\nunder = ['overall']".parse()?;
/// let group = rules.rule("group").unwrap();
/// assert_eq!((group.priority(), group.weight(), group.queue()), (1, 1, None));
/// assert!(group.is_under("overall") && !group.is_under("per_key"));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedRule {
    pub(super) name: Arc<str>,
    pub(super) caps: CheckedCaps,
    pub(super) priority: u32,
    pub(super) weight: u32,
    pub(super) under: Under,
    pub(super) ordered: bool,
    pub(super) queue: u32,
    pub(super) overflow: Overflow,
    pub(super) max_wait: Option<Nanos>,
    pub(super) attempt_timeout: Option<Nanos>,
    pub(super) paused: bool,
    pub(super) retry: RetryPolicy,
    pub(super) observe: CheckedObserve,
}

/// The outer limits that bind a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Under {
    pub(super) overall: bool,
    pub(super) per_key: bool,
    /// In alphabetic order.
    pub(super) limits: Vec<Arc<str>>,
}

impl Default for Under {
    fn default() -> Self {
        Self { overall: true, per_key: true, limits: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckedLimit {
    pub(super) name: Arc<str>,
    pub(super) caps: CheckedCaps,
}

/// One of the lanes of checked rules: what all queues of one priority have in common.
///
/// [`Rules::lanes`] lists them.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedLane {
    pub(super) priority: u32,
    pub(super) name: Option<Arc<str>>,
    pub(super) caps: CheckedCaps,
    pub(super) share: Share,
    pub(super) pace: Pace,
}

impl CheckedLane {
    /// A lane of which the rules say nothing.
    pub(super) fn unsaid(priority: u32) -> Self {
        Self { priority, name: None, caps: CheckedCaps::default(), share: Share::default(), pace: Pace::default() }
    }

    pub(super) fn shown_name(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.priority.to_string().into())
    }
}

/// A part of the whole, in lowest terms if it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) part: u32,
    pub(super) of: u32,
}

impl Share {
    pub(super) const fn new(part: u32, of: u32) -> Self {
        let (mut a, mut b) = (part, of);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        if of == 0 {
            return Self { part, of };
        }
        Self { part: part / a, of: of / a }
    }

    /// How many grants go to others before a lane of so many is served. `None`: as many as there are.
    pub(super) fn bypass(self, lanes: usize) -> Option<u32> {
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        (self.part > 0).then(|| self.of.div_ceil(self.part).saturating_sub(lanes).max(1))
    }
}

impl Default for Share {
    fn default() -> Self {
        Self { part: 1, of: 20 }
    }
}

/// Over which windows a lane's starts are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Those up to this long.
    UpTo(Nanos),
    /// None, and nothing is left free for more urgent lanes.
    Off,
}

impl Default for Pace {
    fn default() -> Self {
        Self::UpTo(Nanos::from_secs(60))
    }
}

impl Rules {
    /// Starts rules made in code.
    pub fn builder() -> RulesBuilder {
        RulesBuilder::default()
    }

    /// Reads a rules file.
    ///
    /// # Errors
    ///
    /// All findings at once, if one of them is an error; one with the code `unreadable-file` if there is no such file
    /// or it is not UTF-8 text.
    ///
    /// ```
    /// use request_balancer::Rules;
    ///
    /// let rules = Rules::from_file("examples/rules/telegram.toml")?;
    /// assert_eq!(rules.names().collect::<Vec<_>>(), ["individual", "group", "broadcast"]);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Findings> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Finding::new(FindingCode::UnreadableFile, error.to_string(), "a readable file of UTF-8 text").into()
        });
        text.and_then(|text| text.parse()).map_err(|findings: Findings| findings.in_file(path.display().to_string()))
    }

    /// The rules' names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.iter().map(CheckedRule::name)
    }

    /// The rules, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, CheckedRule> {
        self.inner.model.rules.iter()
    }

    /// The rule of this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&CheckedRule> {
        self.iter().find(|rule| rule.name() == name)
    }

    /// The quotas of all starts together.
    #[must_use]
    pub fn overall(&self) -> &[Quota] {
        &self.inner.model.caps.overall
    }

    /// The quotas of each key, whatever the rule.
    #[must_use]
    pub fn per_key(&self) -> &[Quota] {
        &self.inner.model.caps.per_key
    }

    /// How many attempts may run at once.
    #[must_use]
    pub fn concurrency(&self) -> Option<u32> {
        self.inner.model.caps.concurrency
    }

    /// How many attempts of one key may run at once.
    #[must_use]
    pub fn key_concurrency(&self) -> Option<u32> {
        self.inner.model.caps.key_concurrency
    }

    /// The margin of every quota that has no other.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.inner.model.margin.into()
    }

    /// The event from which the period of every quota runs that says nothing else.
    #[must_use]
    pub fn count_from(&self) -> CountFrom {
        self.inner.model.count_from
    }

    /// The store that keeps what processes share.
    #[must_use]
    pub fn shared(&self) -> &CheckedShared {
        &self.inner.model.shared
    }

    /// The retry policy of every rule that says nothing else.
    #[must_use]
    pub fn retry(&self) -> &RetryPolicy {
        &self.inner.model.retry
    }

    /// The part of all starts that retries of failures may be. `None`: any.
    #[must_use]
    pub fn retry_budget(&self) -> Option<f64> {
        self.inner.model.retry_budget.map(|share| f64::from(share.part) / f64::from(share.of))
    }

    /// How many requests may stand in line in all. `None`: any number.
    #[must_use]
    pub fn queue(&self) -> Option<u32> {
        Some(self.inner.model.queue).filter(|queue| *queue != u32::MAX)
    }

    /// The longest that one attempt may run under rules that say nothing else. `None`: any.
    #[must_use]
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.inner.model.attempt_timeout.map(Into::into)
    }

    /// The rule of requests whose rule's name is none of [`names`](Self::names).
    #[must_use]
    pub fn default_rule(&self) -> Option<&str> {
        self.inner.model.default_rule.as_deref()
    }

    /// What is doubtful about the rules, though they load.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.inner.warnings
    }

    /// The rules compiled for the engine.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.inner.plan)
    }

    pub(super) fn new(model: Model, plan: Plan, warnings: Vec<Finding>) -> Self {
        let own = compile::own_numbers(&model);
        Self { inner: Arc::new(Inner { model, warnings: warnings.into(), plan: Arc::new(plan), own }) }
    }

    pub(super) fn own(&self) -> &OwnNumbers {
        &self.inner.own
    }

    pub(super) fn model(&self) -> &Model {
        &self.inner.model
    }
}

impl PartialEq for Rules {
    /// Whether both mean the same; where and how it was written does not count.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.model == other.inner.model
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a CheckedRule;
    type IntoIter = std::slice::Iter<'a, CheckedRule>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromStr for Rules {
    type Err = Findings;

    /// Reads the text of a rules file.
    fn from_str(text: &str) -> Result<Self, Findings> {
        let (builder, read) = toml::read(text)?;
        check::rules(&builder, read)
    }
}

impl CheckedRule {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its own quotas of each key.
    #[must_use]
    pub fn per_key(&self) -> &[Quota] {
        &self.caps.per_key
    }

    /// Its own quotas of all its keys together.
    #[must_use]
    pub fn overall(&self) -> &[Quota] {
        &self.caps.overall
    }

    /// How many of its attempts may run at once.
    #[must_use]
    pub fn concurrency(&self) -> Option<u32> {
        self.caps.concurrency
    }

    /// How many attempts of one of its keys may run at once.
    #[must_use]
    pub fn key_concurrency(&self) -> Option<u32> {
        self.caps.key_concurrency
    }

    /// Its lane; a lower number is more urgent.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// Share of each of its queues inside the lane.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Whether the outer limit of this name binds it: `overall`, `per_key`, or a named one.
    #[must_use]
    pub fn is_under(&self, limit: &str) -> bool {
        match limit {
            "overall" => self.under.overall,
            "per_key" => self.under.per_key,
            name => self.under.limits.iter().any(|limit| **limit == *name),
        }
    }

    /// Whether completions of a queue are in order.
    #[must_use]
    pub fn ordered(&self) -> bool {
        self.ordered
    }

    /// How many may wait in one queue. `None`: any number.
    #[must_use]
    pub fn queue(&self) -> Option<u32> {
        (self.queue != u32::MAX).then_some(self.queue)
    }

    /// What becomes of a request that finds its queue full.
    #[must_use]
    pub fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Longest time in line. `None`: any.
    #[must_use]
    pub fn max_wait(&self) -> Option<Duration> {
        self.max_wait.map(Into::into)
    }

    /// The longest that one attempt may run. `None`: any.
    #[must_use]
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.attempt_timeout.map(Into::into)
    }

    /// Whether it starts nothing until it is resumed.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// What failures cost under it and how long they wait.
    #[must_use]
    pub fn retry(&self) -> &RetryPolicy {
        &self.retry
    }
}
