//! What a log of starts makes the next one wait for, limit by limit.

use std::fmt;
use std::time::Duration;

use super::limit::{Counted, Limit};
use super::log::Clock;
use super::rates::{self, Taken};
use super::start::Start;
use super::stretches::Stretch;
use crate::engine::Scope;
use crate::rules::Rules;

/// What makes the next start wait, as far as a log of starts tells: holds after refusals, and every limit that binds it.
///
/// [`explain_log`](super::explain_log) makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outlook {
    /// Holds that are on, in the order of the log.
    pub holds: Vec<LogHold>,
    /// Each limit that binds the start, from the widest to the narrowest, whether or not it has room.
    pub limits: Vec<Headroom>,
    /// What each endpoint says that it may use, in a pool.
    pub endpoints: Vec<EndpointOutlook>,
}

/// What makes a start wait on one endpoint, besides what makes it wait on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointOutlook {
    /// Its name.
    pub endpoint: String,
    /// Holds of the endpoint that are on, in the order of the log.
    pub holds: Vec<LogHold>,
    /// Each of its limits, whether or not it has room.
    pub limits: Vec<Headroom>,
}

/// A hold after a start that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogHold {
    /// What it stops, by the retry policy of the refused start's rule.
    pub scope: Scope,
    /// When the refused attempt started.
    pub refused: Duration,
    /// When the hold ends.
    pub until: Duration,
}

/// What one limit says to the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Headroom {
    /// Where the file says so, such as `rules.group.per_key`.
    pub limit: String,
    /// What it says there, such as `20/60s`.
    pub quota: String,
    /// Whose limit, where each key has its own.
    pub key: Option<String>,
    /// What counts now: sum of costs, or attempts; of a bucket or of spacing, what is not paid for yet.
    pub used: u64,
    /// What may count.
    pub allowed: u64,
    /// When there is room.
    pub opens: Opens,
}

/// When there is room for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opens {
    /// At once.
    Now,
    /// At an instant of the log's epoch, if nothing else starts before.
    At(Duration),
    /// Not before an attempt ends that the log knows no end of.
    WhenOneEnds,
    /// It costs more than ever fits.
    Never,
}

impl Outlook {
    pub(super) fn new(rules: &Rules, starts: &[Start], next: &Start) -> Self {
        // What starts later, nobody knows of yet.
        let known: Vec<&Start> = starts.iter().filter(|start| start.at <= next.at).collect();
        let all = Limit::all(rules, Clock::Own);
        let limits = |next: &Start, of_endpoint: bool| {
            let of = all.iter().filter(|limit| limit.is_of_endpoint() == of_endpoint);
            of.filter_map(|limit| {
                let key = limit.of(rules, next)?;
                let counts = |start: &&Start| limit.of(rules, start) == Some(key);
                let mut of_limit: Vec<&Start> = known.iter().copied().filter(counts).collect();
                of_limit.sort_by_key(|start| start.at);
                Headroom::new(limit, key, &of_limit, next)
            })
            .collect()
        };
        let holds = |next: &Start, of_endpoint: bool| {
            let holds = known.iter().filter_map(|start| LogHold::new(rules, start, next));
            holds.filter(|hold| (hold.scope == Scope::Endpoint) == of_endpoint).collect()
        };
        let asked = |name: &&str| next.endpoint.as_deref().is_none_or(|only| only == *name);
        let endpoints = rules.endpoints().filter(asked).map(|name| {
            let there = next.clone().on(name);
            EndpointOutlook { endpoint: name.to_owned(), holds: holds(&there, true), limits: limits(&there, true) }
        });
        Self { holds: holds(next, false), limits: limits(next, false), endpoints: endpoints.collect() }
    }

    /// When everything lets the start go, and in a pool an endpoint takes it.
    #[must_use]
    pub fn opens(&self) -> Opens {
        let first = self.endpoints.iter().map(EndpointOutlook::opens).min();
        opens(&self.holds, &self.limits).max(first.unwrap_or(Opens::Now))
    }
}

impl EndpointOutlook {
    /// When everything of this endpoint lets the start go.
    #[must_use]
    pub fn opens(&self) -> Opens {
        opens(&self.holds, &self.limits)
    }
}

fn opens(holds: &[LogHold], limits: &[Headroom]) -> Opens {
    let holds = holds.iter().map(|hold| Opens::At(hold.until));
    holds.chain(limits.iter().map(|limit| limit.opens)).max().unwrap_or(Opens::Now)
}

impl LogHold {
    /// The hold that a start left behind, if it was refused and stops the next one.
    fn new(rules: &Rules, start: &Start, next: &Start) -> Option<Self> {
        let again = start.again?;
        let policy = rules.rule(&start.rule)?.retry();
        let scope = match policy.hold {
            Scope::Endpoint if start.endpoint.is_none() || !rules.has_pool() => Scope::Key,
            said => said,
        };
        let same_rule = start.rule == next.rule;
        let same_key = start.key == next.key;
        let meant = match scope {
            // The request that was refused is not the next one.
            Scope::Request => false,
            Scope::Queue => same_rule && same_key,
            Scope::Key => same_key,
            Scope::Rule => same_rule,
            // Of a start on no known one: another may take it.
            Scope::Endpoint => start.endpoint.is_some() && start.endpoint == next.endpoint,
            Scope::Overall => true,
        };
        let told = start.end.unwrap_or(start.at);
        let longest = told.saturating_add(rules.plan().max_hold.into());
        let until = again.max(told.saturating_add(policy.min_wait.into())).min(longest);
        (meant && until > next.at).then_some(Self { scope, refused: start.at, until })
    }
}

impl Headroom {
    /// What a limit says; nothing if it counts nothing of the start. `starts` are those that it counts, in order.
    fn new(limit: &Limit<'_>, key: Option<&str>, starts: &[&Start], next: &Start) -> Option<Self> {
        let now = next.at;
        let cost = match limit.counted {
            Counted::WhileRunning => 1,
            Counted::FromStart(_)
            | Counted::FromEnd(_)
            | Counted::Spaced(_)
            | Counted::Bucket { .. }
            | Counted::Calendar(_) => next.took(limit.unit),
        };
        if cost == 0 {
            return None;
        }
        let taken: Vec<Taken> = starts.iter().map(|start| (start.at, start.took(limit.unit))).collect();
        let allowed = u64::from(limit.allowed);
        let (used, allowed, opens) = match limit.counted {
            Counted::FromStart(_) | Counted::FromEnd(_) | Counted::WhileRunning => {
                let stretches = std::iter::zip(starts, &taken);
                let stretches = stretches.filter_map(|(start, &(_, took))| Stretch::of(start, limit.counted, took));
                let (used, opens) = in_stretches(stretches, now, cost, allowed);
                (used, allowed, opens)
            }
            Counted::Spaced(interval) => {
                let due = rates::due(&taken, interval);
                (rates::unpaid(due, now, interval), 1, at_or_now(due, now))
            }
            Counted::Bucket { burst, period } => {
                let interval = rates::interval(period, limit.allowed);
                let (due, burst) = (rates::paid(&taken, interval), u64::from(burst));
                let spare = u32::try_from(burst.saturating_sub(cost)).unwrap_or(u32::MAX);
                let opens = at_or_now(due.saturating_sub(interval.saturating_mul(spare)), now);
                (rates::unpaid(due, now, interval), burst, if cost > burst { Opens::Never } else { opens })
            }
            Counted::Calendar(zone) => {
                let (used, midnight) = rates::today(&taken, now, zone);
                let opens = if used + cost <= allowed { Opens::Now } else { Opens::At(midnight) };
                (used, allowed, if cost > allowed { Opens::Never } else { opens })
            }
        };
        let (path, quota) = (limit.path.clone(), limit.quota.clone());
        Some(Self { limit: path, quota, key: key.map(str::to_owned), used, allowed, opens })
    }
}

const fn at_or_now(at: Duration, now: Duration) -> Opens {
    if at.as_nanos() > now.as_nanos() { Opens::At(at) } else { Opens::Now }
}

/// What counts now, and when there is room for another one.
fn in_stretches(stretches: impl Iterator<Item = Stretch>, now: Duration, cost: u64, allowed: u64) -> (u64, Opens) {
    let counts = |stretch: &Stretch| stretch.until.is_none_or(|until| until > now);
    let mut counting: Vec<Stretch> = stretches.filter(counts).collect();
    let used = counting.iter().map(|stretch| stretch.weight).sum();
    if cost > allowed {
        return (used, Opens::Never);
    }
    counting.sort_by_key(|stretch| (stretch.until.is_none(), stretch.until));
    let mut over = (used + cost).saturating_sub(allowed);
    let mut opens = Opens::Now;
    for stretch in counting {
        if over == 0 {
            break;
        }
        over = over.saturating_sub(stretch.weight);
        opens = stretch.until.map_or(Opens::WhenOneEnds, Opens::At);
    }
    (used, opens)
}

impl fmt::Display for Opens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::At(at) => write!(f, "at {at:?}"),
            Self::WhenOneEnds => f.write_str("when a running attempt ends"),
            Self::Never => f.write_str("never"),
        }
    }
}

impl fmt::Display for LogHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.scope {
            Scope::Overall => "everything",
            Scope::Endpoint => "the endpoint",
            Scope::Rule => "the rule",
            Scope::Key => "the key",
            Scope::Queue => "the queue",
            Scope::Request => "the request",
        };
        write!(f, "{what} held until {:?}: started at {:?} and was refused", self.until, self.refused)
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, quota, key, used, allowed, opens } = self;
        write!(f, "`{limit}` {quota}")?;
        key.as_ref().map_or(Ok(()), |key| write!(f, ", key {key}"))?;
        write!(f, ": {used} of {allowed} used, room {opens}")
    }
}
