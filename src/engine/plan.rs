//! Rules compiled to ids: what the scheduler reads on every request. Immutable.

use std::sync::Arc;

use super::limit;
use super::pool::PoolPlan;
use super::retry::RetryPolicy;
use super::retry_budget::RetryBudget;
use super::time::Nanos;
use super::zone::Zone;

/// Everything the scheduler needs to know of a rules file, with names replaced by positions.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rules, in the order of the file. [`RuleId`] is a position in this list.
    pub rules: Box<[RulePlan]>,
    /// The lanes, most urgent first.
    pub lanes: Box<[LanePlan]>,
    /// Limits with one state in each key's record, shared by the key's rules.
    pub key_limits: Box<[LimitSpec]>,
    /// Limits with one state in all.
    pub shared_limits: Box<[LimitSpec]>,
    /// The time zones of calendar limits.
    pub zones: Box<[Zone]>,
    /// How many pace clocks each key's record has.
    pub key_clocks: usize,
    /// How many pace clocks there are beside the shared limits.
    pub shared_clocks: usize,
    /// How long a granted request may leave its grant unclaimed.
    pub lease: Nanos,
    /// The longest hold; a longer one is cut to this.
    pub max_hold: Nanos,
    /// What turns are measured in: queues of a lane get the same number of requests, or of a unit.
    pub fair_by: Charge,
    /// How many may stand in line in all.
    pub queue: u32,
    /// How many retries everybody together may have. `None`: any number.
    pub retry_budget: Option<RetryBudget>,
    /// When nothing more starts because too many attempts were invalid.
    pub ban_guard: Option<BanGuard>,
    /// The endpoints, of which every start uses one. `None`: there is only one way to send.
    pub pool: Option<Box<PoolPlan>>,
}

/// Nothing starts while `level` attempts of the last `period` were invalid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanGuard {
    /// How many of them are too many; at least 1.
    pub level: u32,
    /// How long each of them counts.
    pub period: Nanos,
}

impl Plan {
    /// The limits in a key's record that two rules draw on together, so that one may use up the other's room.
    pub(super) fn common_key_limits(&self, rule: u16, other: u16) -> impl Iterator<Item = usize> {
        let bounds = |rule: u16| self.rules[usize::from(rule)].key.iter().map(|bound| bound.limit);
        bounds(rule).filter(move |limit| bounds(other).any(|also| also == *limit))
    }
}

impl Plan {
    /// Whether any of its limits counts from the end of an attempt, as concurrency caps do.
    #[must_use]
    pub fn counts_any_end(&self) -> bool {
        let own = self.rules.iter().flat_map(|rule| &rule.own);
        let endpoints = self.pool.iter().flat_map(|pool| &pool.endpoints);
        let endpoints = endpoints.flat_map(|endpoint| endpoint.limits.iter().chain(&endpoint.key_limits));
        let mut all = own.chain(&self.key_limits).chain(&self.shared_limits).chain(endpoints);
        all.any(|spec| limit::counts_from_end(spec.kind))
    }

    /// Whether a store keeps count of any of its limits.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let own = self.rules.iter().flat_map(|rule| &rule.own);
        let endpoints = self.pool.iter().flat_map(|pool| &pool.endpoints).flat_map(|endpoint| &endpoint.limits);
        own.chain(&self.key_limits).chain(&self.shared_limits).chain(endpoints).any(LimitSpec::is_shared)
    }

    /// Whether all limits beside the keys' are windows.
    pub(super) fn shares_only_windows(&self) -> bool {
        self.shared_limits.iter().all(|spec| matches!(spec.kind, LimitKind::Window { .. }))
    }
}

/// The position of a rule in its [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u16);

/// One rule.
#[derive(Clone, Debug)]
pub struct RulePlan {
    /// Its name in the rules file.
    pub name: Arc<str>,
    /// Position of its lane in [`Plan::lanes`].
    pub lane: usize,
    /// Share of each of its queues inside the lane; at least 1.
    pub weight: u32,
    /// Limits with one state in each of the rule's queues: its own `per_key` and `key_concurrency`.
    pub own: Box<[LimitSpec]>,
    /// Which of [`Plan::key_limits`] bind it.
    pub key: Box<[LimitRef]>,
    /// Which of [`Plan::shared_limits`] bind it: overall, named, lane's and its own `overall` and `concurrency`.
    pub shared: Box<[LimitRef]>,
    /// Pace clocks of the key's record that it goes by.
    pub key_pace: Box<[PaceRef]>,
    /// Pace clocks beside the shared limits that it goes by.
    pub shared_pace: Box<[PaceRef]>,
    /// Completions of a queue are in order: one attempt of a queue at a time, and a backoff holds the queue.
    ///
    /// The compiled `own` limits contain the concurrency of one that this needs.
    pub ordered: bool,
    /// How many may wait in one queue.
    pub queue: u32,
    /// What happens to one more.
    pub overflow: Overflow,
    /// The longest time in line, over all attempts of a request.
    pub max_wait: Option<Nanos>,
    /// The longest that one attempt may run.
    pub attempt_timeout: Option<Nanos>,
    /// Starts nothing until it is resumed.
    pub paused: bool,
    /// Gone from the rules: only keeps its place in the list.
    pub removed: bool,
    /// What a failure costs and how long it waits.
    pub retry: RetryPolicy,
    /// Which limits the server's windows narrow. Those that are not listed narrow what is most like them.
    pub observe: Box<[ObserveRef]>,
    /// Whether its own limits go by the server's numbers, and up to which.
    pub learn: Option<Learn>,
}

/// Which limit one of the server's windows narrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveRef {
    /// The window's name, in whatever case.
    pub window: Arc<str>,
    /// The limit.
    pub narrows: Narrows,
}

/// The limits among which a server's window narrows the one that is most like it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Narrows {
    /// None: the window is ignored.
    Nothing,
    /// Those of a key: the rule's own `per_key`, and the file's that it is under.
    PerKey,
    /// Those of all keys together: the rule's own `overall`, its lane's, and the file's that it is under.
    Overall,
    /// Those of a named limit that the rule is under.
    Named(Arc<str>),
}

/// The most that a rule takes over from the server: `count` in `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learn {
    /// At most so many.
    pub count: u32,
    /// In so long.
    pub period: Nanos,
    /// What a window is stretched by.
    pub margin: Nanos,
}

/// One lane: all queues of one priority.
#[derive(Clone, Debug)]
pub struct LanePlan {
    /// The number in the rules file; lower is more urgent.
    pub priority: u32,
    /// `[lanes.N] name`, or the number as text.
    pub name: Arc<str>,
    /// How many grants may go past this lane while it is ready before it is overdue: 1/share − number of lanes.
    /// `None`: any number (strict priority).
    pub bypass: Option<u32>,
}

/// A quota at work somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSpec {
    /// Where the rules file says so.
    pub origin: Origin,
    /// What it enforces.
    pub kind: LimitKind,
    /// What it counts.
    pub charge: Charge,
    /// Who keeps count.
    pub kept: Kept,
}

/// Who keeps count of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kept {
    /// The machine.
    #[default]
    Here,
    /// A store that many machines ask, once this one was [told of it](super::Scheduler::set_reach); until then the machine.
    InStore {
        /// What this machine keeps to while nobody can reach the store: its part. `None`: it gets nothing.
        alone: Option<LimitKind>,
    },
}

impl LimitSpec {
    /// Whether a store keeps count of it.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        match self.kept {
            Kept::Here => false,
            Kept::InStore { .. } => true,
        }
    }
}

/// What a limit counts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// One, whatever the request costs: concurrency caps count attempts.
    Attempt,
    /// Its cost in the default unit, requests.
    Requests,
    /// Its cost in a declared unit, by position in the file's `units`.
    Unit(usize),
}

/// The kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// At most `count` in any half-open interval of length `period`, which contains the margin already.
    ///
    /// A period of zero is a concurrency cap and goes with [`Anchor::End`].
    Window {
        /// Sum of costs that fit.
        count: u32,
        /// Length of the window.
        period: Nanos,
        /// From when a start is counted.
        anchor: Anchor,
        /// Starts are written down at the next multiple of this, so that a large count needs little memory: never
        /// over, and late by this much at most. Zero: exact.
        grain: Nanos,
    },
    /// Each start waits until the one before is paid for: one `interval` per unit of cost.
    ///
    /// A `smooth` quota is this beside its window.
    Spaced {
        /// The period, margin included, divided by the count and rounded up.
        interval: Nanos,
        /// The largest cost that fits.
        largest: u32,
    },
    /// A token bucket: full at first, one token back per `interval`.
    Bucket {
        /// The period divided by the count and rounded up.
        interval: Nanos,
        /// Tokens it holds at most.
        burst: u32,
    },
    /// At most `count` from one midnight of a zone to the next.
    Calendar {
        /// Sum of costs that fit.
        count: u32,
        /// Position in [`Plan::zones`].
        zone: usize,
    },
}

/// The event from which a start's period runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The claim: the moment the attempt begins.
    Start,
    /// The end of the attempt; until then it is outstanding.
    End,
}

/// Whose words a limit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file's `overall`.
    Overall,
    /// The file's `per_key`.
    PerKey,
    /// The rule's own `overall`.
    RuleOverall(Arc<str>),
    /// The rule's own `per_key`.
    RulePerKey(Arc<str>),
    /// `[limits.NAME] overall`.
    NamedOverall(Arc<str>),
    /// `[limits.NAME] per_key`.
    NamedPerKey(Arc<str>),
    /// `[lanes.N] overall`.
    Lane(Arc<str>),
    /// The `overall` of an endpoint of `[pool]`.
    EndpointOverall(Arc<str>),
    /// The `per_key` of an endpoint of `[pool]`.
    EndpointPerKey(Arc<str>),
}

impl Origin {
    /// Whether it is a limit of this endpoint.
    pub(super) fn is_of_endpoint(&self, name: &str) -> bool {
        match self {
            Self::EndpointOverall(of) | Self::EndpointPerKey(of) => **of == *name,
            Self::Overall
            | Self::PerKey
            | Self::RuleOverall(_)
            | Self::RulePerKey(_)
            | Self::NamedOverall(_)
            | Self::NamedPerKey(_)
            | Self::Lane(_) => false,
        }
    }

    /// How wide the circle is that draws on a limit: a rule, a lane, or whoever is under it.
    pub(super) const fn breadth(&self) -> u8 {
        match self {
            Self::RuleOverall(_) | Self::RulePerKey(_) => 0,
            Self::Lane(_) => 1,
            Self::Overall
            | Self::PerKey
            | Self::NamedOverall(_)
            | Self::NamedPerKey(_)
            | Self::EndpointOverall(_)
            | Self::EndpointPerKey(_) => 2,
        }
    }
}

/// A limit that binds a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRef {
    /// Position in [`Plan::key_limits`] or [`Plan::shared_limits`].
    pub limit: usize,
    /// What this rule leaves free for more urgent lanes; 0 for the most urgent one.
    pub reserve: u32,
}

/// A pace clock that a rule goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceRef {
    /// Position among the key's or the shared clocks.
    pub clock: usize,
    /// Time between two paced starts of cost 1.
    pub interval: Nanos,
    /// In what the cost is measured.
    pub charge: Charge,
}

/// What happens to a request that finds its queue, or the line as a whole, full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// It is refused.
    #[default]
    Reject,
    /// The oldest request of the queue that never started is displaced.
    DropOldest,
}
