//! Limits that a store keeps for many machines.
//!
//! A request that such a limit binds is not granted at its turn: it is asked for. What is asked for has its place in all
//! limits of this machine already, so that nobody else takes that meanwhile; the machine's own count of a limit that the
//! store keeps can only be lower than the store's, and saves asking for what cannot be had. One batch is asked for at a
//! time, of everything that is ready, in the order of lanes and turns. What the store refuses goes back to the front of
//! its ring as if its turn had not been: who was first is first again.

mod ask;
mod caps;
mod change;
mod observed;
mod reach;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{KeyId, RequestId};
use super::limit::{self, Alone};
use super::plan::{LimitKind, LimitSpec, Plan, RuleId, RulePlan};
use super::pool::EndpointId;
use super::queue::Credit;
use super::time::{Instant, Nanos};

use self::observed::Servers;
#[cfg(feature = "shared")]
pub(crate) use self::observed::{ALL, WINDOWS, is_narrowed};
pub use self::observed::{Said, Serial, Stand};
pub use self::words::Word;

/// Where a limit that a store keeps stands in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// A position in [`Plan::shared_limits`].
    Shared(usize),
    /// A position in [`Plan::key_limits`], of a key.
    Key(KeyId, usize),
    /// A position in [`RulePlan::own`](super::RulePlan::own), of a key.
    Own(RuleId, KeyId, usize),
    /// A position in [`EndpointPlan::limits`](super::EndpointPlan::limits).
    Endpoint(EndpointId, usize),
}

/// What is asked of the store in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The limits that it is about, each once.
    pub lines: Vec<Line>,
    /// What is asked for, in the order in which it is to be given. All that a request takes, or nothing.
    pub asks: Vec<Vec<Take>>,
}

/// One limit of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it stands.
    pub site: Site,
    /// Its numbers.
    pub kind: LimitKind,
    /// Of a concurrency cap: how many of this machine's attempts run, without what is asked for.
    pub held: u32,
    /// What the store is to count besides.
    pub told: Told,
    /// What servers said of it.
    pub said: Vec<Said>,
}

impl Line {
    /// Whether it is a cap on what runs.
    #[must_use]
    pub fn is_cap(&self) -> bool {
        is_cap(self.kind)
    }

    /// How long it takes to use the most that fits at once and have it all again.
    #[must_use]
    pub fn period(&self) -> Nanos {
        limit::period(self.kind)
    }
}

/// What a machine knows of a limit, and the store may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// Starts: how long ago, and what they cost.
    Starts(Vec<(Nanos, u32)>),
    /// In how long all starts are paid for.
    Owed(Nanos),
}

impl Told {
    /// How many numbers it takes.
    const fn numbers(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Starts(starts) => starts.len(),
            Self::Owed(_) => 1,
        }
    }

    /// Whether there is nothing in it that a store does not know.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Starts(starts) => starts.is_empty(),
            Self::Owed(owed) => owed.is_zero(),
        }
    }
}

/// What a request takes from one limit of a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// The position in [`Batch::lines`].
    pub line: usize,
    /// How much.
    pub cost: u32,
    /// How much it leaves to more urgent lanes.
    pub reserve: u32,
}

/// What the store said to a [`Batch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// For each request whether it has what it asked for; what is missing here was refused.
    pub taken: Vec<bool>,
    /// For each limit that refused something how long it has nothing more, and for whom. What is missing here has room.
    pub waits: Vec<Option<Wait>>,
    /// For each limit whether the store knows nothing of what this machine took before.
    pub lost: Vec<bool>,
    /// For each limit how the store's count of it stands after the batch; `None` for those that servers don't narrow.
    pub stands: Vec<Option<Stand>>,
    /// What has not started by then may not start with what it was given.
    pub usable_until: Instant,
}

/// That a limit has nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For how long.
    pub lasts: Nanos,
    /// For those that leave at least so much of it to more urgent lanes; zero: for all.
    pub closed_to: u32,
}

/// How the machine stands with the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// There is none: this machine keeps all limits.
    #[default]
    Nowhere,
    /// It is asked.
    Asked,
    /// It is asked, and others may have been without it until this instant: of each limit the machine keeps to its part for
    /// 2 s. [`Instant::NEVER`]: they may be still.
    Back(Instant),
    /// It cannot be reached: the machine keeps to its part.
    Alone,
    /// It cannot be reached: the machine keeps the limits as if it were alone in the world.
    Open,
    /// It cannot be reached: nothing starts that needs it.
    Closed,
}

/// What the machine knows of the store.
#[derive(Debug)]
pub(super) struct Store {
    /// Whether a rule is bound by any limit that the store keeps.
    rules: Box<[bool]>,
    reach: Reach,
    /// There is something to ask, or to tell.
    wanted: bool,
    /// What is ready is being collected for a batch.
    collecting: bool,
    /// A batch was taken and is not answered.
    busy: bool,
    asked: Vec<Asked>,
    lines: Vec<Line>,
    places: BTreeMap<Site, usize>,
    /// Limits that have nothing until an instant, as the store said, for those that leave so much to others.
    closed: BTreeMap<Site, (Instant, u32)>,
    ends: BTreeSet<(Instant, Site)>,
    /// Limits that were told to have room while a batch is on its way, whose answer may be older.
    freed: BTreeSet<Site>,
    /// What the store gave to requests that are granted or run.
    given: BTreeMap<u32, Given>,
    /// How many of the store's slots are in use.
    held: BTreeMap<Site, u32>,
    /// Caps of which the store is to be told how many those are.
    changed: BTreeSet<Site>,
    /// Caps of which the store may count slots of this machine.
    counted: BTreeSet<Site>,
    /// What the store is to be told of: everything since an instant.
    untold: BTreeMap<Site, Instant>,
    /// What it is being told of with the batch that is on its way.
    telling: BTreeMap<Site, Instant>,
    /// Requests that could not use what they were given, as they were too late.
    late: u32,
    /// Since when starts are not known to the store.
    alone_since: Option<Instant>,
    /// What the other machines are to be told.
    words: Vec<Word>,
    /// What the store knows of servers' windows, and what it is to be told of them.
    servers: Servers,
}

/// A request that is being asked for, and what is to be as before if the answer is no.
#[derive(Debug)]
struct Asked {
    id: RequestId,
    takes: Vec<Take>,
    credit: Credit,
    bypassed: u32,
    passed_by: Vec<usize>,
}

/// What may become of a request that everything else has room for.
pub(super) enum Lets {
    /// It is granted, or its turn has come to be asked for.
    Grant,
    /// It is to be asked for, with the next batch.
    Ask,
    /// It waits until the store is there again.
    Nothing,
}

#[derive(Debug, Default)]
struct Given {
    /// `None`: it started.
    usable_until: Option<Instant>,
    caps: Vec<Site>,
    /// Which of the starts that the store gave it is, of each limit that servers narrow.
    serials: Vec<(Site, Serial)>,
}

/// A window that counts more than this is counted in parts of its length, under another name than one that lists its starts.
pub(crate) const LISTED: u32 = 1_000;
/// Requests of one batch: the store is to do nothing else meanwhile.
const MOST: usize = 256;

impl Store {
    fn new(plan: &Plan) -> Self {
        Self {
            rules: plan.rules.iter().map(|rule| plan.is_shared_by(rule)).collect(),
            reach: Reach::Nowhere,
            wanted: false,
            collecting: false,
            busy: false,
            asked: Vec::new(),
            lines: Vec::new(),
            places: BTreeMap::new(),
            closed: BTreeMap::new(),
            ends: BTreeSet::new(),
            freed: BTreeSet::new(),
            given: BTreeMap::new(),
            held: BTreeMap::new(),
            changed: BTreeSet::new(),
            counted: BTreeSet::new(),
            untold: BTreeMap::new(),
            telling: BTreeMap::new(),
            late: 0,
            alone_since: None,
            words: Vec::new(),
            servers: Servers::default(),
        }
    }

    /// Whether requests of a rule are asked for.
    pub(super) fn asks_for(&self, rule: usize) -> bool {
        self.is_asked() && self.rules[rule]
    }

    fn is_asked(&self) -> bool {
        match self.reach {
            Reach::Asked | Reach::Back(_) => true,
            Reach::Nowhere | Reach::Alone | Reach::Open | Reach::Closed => false,
        }
    }

    /// What may become of a request of a rule that everything else has room for.
    pub(super) fn lets(&mut self, rule: usize) -> Lets {
        if !self.rules[rule] {
            return Lets::Grant;
        }
        match self.reach {
            Reach::Nowhere | Reach::Alone | Reach::Open => Lets::Grant,
            Reach::Closed => Lets::Nothing,
            Reach::Asked | Reach::Back(_) if self.collecting && self.asked.len() < MOST => Lets::Grant,
            Reach::Asked | Reach::Back(_) => {
                self.wanted = true;
                Lets::Ask
            }
        }
    }

    /// Until when a limit has nothing for those that leave so much of it to others, as far as the store said.
    pub(super) fn closed_until(&self, site: Site, reserve: u32) -> Instant {
        let closed = self.closed.get(&site).filter(|(_, to)| reserve >= *to && self.is_asked());
        closed.map_or(Instant::ZERO, |(until, _)| *until)
    }

    /// Whether any limit is known to have nothing.
    pub(super) fn closes_any(&self) -> bool {
        !self.closed.is_empty() && self.is_asked()
    }

    fn close(&mut self, site: Site, until: Instant, reserve: u32) {
        self.reopen(site);
        self.closed.insert(site, (until, reserve));
        self.ends.insert((until, site));
    }

    fn reopen(&mut self, site: Site) -> bool {
        let was = self.closed.remove(&site);
        if let Some((until, _)) = was {
            self.ends.remove(&(until, site));
        }
        was.is_some()
    }

    /// Forgets what has room again.
    fn forget(&mut self, now: Instant) {
        while let Some(&(until, site)) = self.ends.first().filter(|(until, _)| *until <= now) {
            self.ends.remove(&(until, site));
            self.closed.remove(&site);
        }
    }

    fn alone(&self) -> Alone {
        match self.reach {
            Reach::Nowhere | Reach::Asked | Reach::Open | Reach::Closed => Alone::No,
            Reach::Alone => Alone::Since(self.alone_since.unwrap_or(Instant::ZERO)),
            Reach::Back(since) => Alone::Until(since),
        }
    }
}

impl Plan {
    /// Whether a store keeps count of any limit that binds a rule.
    pub(crate) fn is_shared_by(&self, rule: &RulePlan) -> bool {
        let endpoints = self.pool.iter().flat_map(|pool| &pool.endpoints).flat_map(|endpoint| &endpoint.limits);
        rule.own.iter().chain(endpoints).any(LimitSpec::is_shared)
            || rule.key.iter().any(|bound| self.key_limits[bound.limit].is_shared())
            || rule.shared.iter().any(|bound| self.shared_limits[bound.limit].is_shared())
    }
}

/// Whether a kind of limit is a cap on what runs.
pub(super) fn is_cap(kind: LimitKind) -> bool {
    match kind {
        LimitKind::Window { period, .. } => period.is_zero(),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => false,
    }
}
