//! How a state is written: what the machine tells, with wall time instead of instants and names instead of positions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::{Anchor, Charge, LimitMemory, Memory, Nanos, Origin, Past, SlowRow};
use crate::key::Key;
use crate::runtime::live::Live;
use crate::runtime::wall::{Unix, Wall};

/// The default unit, as the rules call it.
const REQUESTS: &str = "requests";

/// A state by its version, so that another one is not misread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Versions {
    #[serde(rename = "v1")]
    V1(Body),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Body {
    pub(super) overall: Kept,
    pub(super) keys: Vec<(Key, Kept)>,
}

/// What is kept of everything, or of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    held_until: Option<Unix>,
    rules_held_until: Vec<(String, Unix)>,
    limits: Vec<KeptLimit>,
    #[serde(default)]
    row: Option<KeptRow>,
    #[serde(default)]
    rule_rows: Vec<(String, KeptRow)>,
    #[serde(default)]
    invalid: Vec<(Unix, u32)>,
}

/// A row of "slow down" without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptRow {
    length: u32,
    latest: Unix,
    until: Option<Unix>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptLimit {
    of: Place,
    unit: String,
    past: KeptPast,
}

/// Where the rules say that there is such a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    Overall,
    PerKey,
    RuleOverall(String),
    RulePerKey(String),
    LimitOverall(String),
    LimitPerKey(String),
    Lane(String),
    EndpointOverall(String),
    EndpointPerKey(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptPast {
    Starts {
        per: u64,
        count_from: From,
        starts: Vec<(Unix, u32)>,
    },
    Today {
        zone: String,
        latest: Unix,
        cost: u32,
    },
    Owed {
        until: Unix,
    },
    /// As it was written when windows were known by their names alone.
    Told {
        per: u64,
        window: String,
        left: u32,
        until: Unix,
    },
    ToldOf {
        per: u64,
        window: String,
        lasts: Option<u64>,
        left: u32,
        until: Unix,
        /// Whether the server told until when. Files that do not say so are older than the question.
        #[serde(default = "yes")]
        resets: bool,
    },
}

const fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum From {
    Start,
    Response,
}

/// A state in the making.
pub(super) struct Memories<'a> {
    wall: Wall,
    live: &'a Live,
    body: Body,
}

impl<'a> Memories<'a> {
    pub(super) fn new(wall: Wall, live: &'a Live, overall: &Memory) -> Self {
        Self { wall, live, body: Body { overall: Kept::new(wall, live, overall), keys: Vec::new() } }
    }

    pub(super) fn push(&mut self, key: &Key, memory: &Memory) {
        self.body.keys.push((key.clone(), Kept::new(self.wall, self.live, memory)));
    }

    pub(super) fn done(self) -> Body {
        self.body
    }
}

impl Kept {
    fn new(wall: Wall, live: &Live, memory: &Memory) -> Self {
        Self {
            held_until: memory.held.map(|until| wall.of(until)),
            rules_held_until: memory.rules.iter().map(|(name, until)| (name.to_string(), wall.of(*until))).collect(),
            limits: memory.limits.iter().filter_map(|limit| KeptLimit::new(wall, live, limit)).collect(),
            row: memory.row.map(|row| KeptRow::new(wall, row)),
            rule_rows: memory
                .rule_rows
                .iter()
                .map(|(name, row)| (name.to_string(), KeptRow::new(wall, *row)))
                .collect(),
            invalid: memory.invalid.iter().map(|&(at, count)| (wall.of(at), count)).collect(),
        }
    }

    /// What the machine is told, and how many limits it can't be told of.
    pub(super) fn memory(&self, wall: Wall, live: &Live) -> (Memory, usize) {
        let rules = self.rules_held_until.iter();
        let limits: Vec<LimitMemory> = self.limits.iter().filter_map(|limit| limit.memory(wall, live)).collect();
        let unreadable = self.limits.len() - limits.len();
        let memory = Memory {
            held: self.held_until.map(|until| wall.instant(until)),
            rules: rules.map(|(name, until)| (name.as_str().into(), wall.instant(*until))).collect(),
            limits,
            row: self.row.map(|row| row.row(wall)),
            rule_rows: self.rule_rows.iter().map(|(name, row)| (name.as_str().into(), row.row(wall))).collect(),
            invalid: self.invalid.iter().map(|&(at, count)| (wall.instant(at), count)).collect(),
        };
        (memory, unreadable)
    }
}

impl KeptRow {
    fn new(wall: Wall, row: SlowRow) -> Self {
        let SlowRow { length, latest, until } = row;
        Self { length, latest: wall.of(latest), until: until.map(|until| wall.of(until)) }
    }

    fn row(self, wall: Wall) -> SlowRow {
        let Self { length, latest, until } = self;
        SlowRow { length, latest: wall.instant(latest), until: until.map(|until| wall.instant(until)) }
    }
}

impl KeptLimit {
    fn new(wall: Wall, live: &Live, limit: &LimitMemory) -> Option<Self> {
        let unit = match limit.charge {
            Charge::Requests => REQUESTS,
            charge @ Charge::Unit(_) => live.unit_name(charge)?,
            // Caps of what runs know nothing of the past.
            Charge::Attempt => return None,
        };
        let past = match &limit.past {
            Past::Starts { period, anchor, starts } => KeptPast::Starts {
                per: period.get(),
                count_from: match anchor {
                    Anchor::Start => From::Start,
                    Anchor::End => From::Response,
                },
                starts: starts.iter().map(|&(at, cost)| (wall.of(at), cost)).collect(),
            },
            Past::Today { zone, latest, cost } => {
                KeptPast::Today { zone: zone.to_string(), latest: wall.of(*latest), cost: *cost }
            }
            Past::Owed { until } => KeptPast::Owed { until: wall.of(*until) },
            Past::Told { period, window, lasts, left, until, resets } => KeptPast::ToldOf {
                per: period.get(),
                window: window.to_string(),
                lasts: lasts.map(Nanos::get),
                left: *left,
                until: wall.of(*until),
                resets: *resets,
            },
        };
        Some(Self { of: Place::of(&limit.origin), unit: unit.to_owned(), past })
    }

    fn memory(&self, wall: Wall, live: &Live) -> Option<LimitMemory> {
        let past = match &self.past {
            KeptPast::Starts { per, count_from, starts } => Past::Starts {
                period: Nanos::new(*per),
                anchor: match count_from {
                    From::Start => Anchor::Start,
                    From::Response => Anchor::End,
                },
                starts: starts.iter().map(|&(at, cost)| (wall.instant(at), cost)).collect(),
            },
            KeptPast::Today { zone, latest, cost } => {
                Past::Today { zone: zone.as_str().into(), latest: wall.instant(*latest), cost: *cost }
            }
            KeptPast::Owed { until } => Past::Owed { until: wall.instant(*until) },
            KeptPast::Told { per, window, left, until } => Past::Told {
                period: Nanos::new(*per),
                window: window.as_str().into(),
                lasts: None,
                left: *left,
                until: wall.instant(*until),
                resets: true,
            },
            KeptPast::ToldOf { per, window, lasts, left, until, resets } => Past::Told {
                period: Nanos::new(*per),
                window: window.as_str().into(),
                lasts: lasts.map(Nanos::new),
                left: *left,
                until: wall.instant(*until),
                resets: *resets,
            },
        };
        Some(LimitMemory { origin: self.of.origin(), charge: live.unit(&self.unit).ok()?, past })
    }
}

impl Place {
    fn of(origin: &Origin) -> Self {
        let text = |name: &Arc<str>| name.to_string();
        match origin {
            Origin::Overall => Self::Overall,
            Origin::PerKey => Self::PerKey,
            Origin::RuleOverall(name) => Self::RuleOverall(text(name)),
            Origin::RulePerKey(name) => Self::RulePerKey(text(name)),
            Origin::NamedOverall(name) => Self::LimitOverall(text(name)),
            Origin::NamedPerKey(name) => Self::LimitPerKey(text(name)),
            Origin::Lane(name) => Self::Lane(text(name)),
            Origin::EndpointOverall(name) => Self::EndpointOverall(text(name)),
            Origin::EndpointPerKey(name) => Self::EndpointPerKey(text(name)),
        }
    }

    fn origin(&self) -> Origin {
        let name = |text: &String| Arc::from(text.as_str());
        match self {
            Self::Overall => Origin::Overall,
            Self::PerKey => Origin::PerKey,
            Self::RuleOverall(text) => Origin::RuleOverall(name(text)),
            Self::RulePerKey(text) => Origin::RulePerKey(name(text)),
            Self::LimitOverall(text) => Origin::NamedOverall(name(text)),
            Self::LimitPerKey(text) => Origin::NamedPerKey(name(text)),
            Self::Lane(text) => Origin::Lane(name(text)),
            Self::EndpointOverall(text) => Origin::EndpointOverall(name(text)),
            Self::EndpointPerKey(text) => Origin::EndpointPerKey(name(text)),
        }
    }
}
