//! Windows and caps: each attempt counts for a stretch of time, and all stretches are gone through in order.

use std::time::Duration;

use super::limit::Counted;
use super::start::Start;

/// An instant at which more counts than may, and how much.
pub(super) type Excess = (Duration, u64);

/// How long an attempt counts, and as how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from: Duration,
    /// The first instant at which it no longer counts. `None`: it still ran when the log ended.
    pub(super) until: Option<Duration>,
    pub(super) weight: u64,
}

impl Stretch {
    /// That of a start under a window or a cap; none under anything else.
    pub(super) fn of(start: &Start, counted: Counted<'_>, took: u64) -> Option<Self> {
        // A clock that went back during an attempt makes it no shorter than nothing.
        let end = start.end.map(|end| end.max(start.at));
        let (until, weight) = match counted {
            Counted::FromStart(period) => (Some(start.at.saturating_add(period)), took),
            Counted::FromEnd(period) => (end.map(|end| end.saturating_add(period)), took),
            Counted::WhileRunning => (end, 1),
            Counted::Spaced(_) | Counted::Bucket { .. } | Counted::Calendar(_) => return None,
        };
        Some(Self { from: start.at, until, weight })
    }
}

/// What happens at one instant: what no longer counts goes before what begins to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Less(u64),
    More(u64),
}

/// The stretches of time in which more than `allowed` counts, each by its worst instant and what counts then.
pub(super) fn excesses(stretches: impl Iterator<Item = Stretch>, allowed: u64) -> Vec<Excess> {
    let mut changes = Vec::new();
    for Stretch { from, until, weight } in stretches {
        match until {
            // It takes no time, so it is never there together with another.
            Some(until) if until <= from => {}
            Some(until) => changes.extend([(from, Change::More(weight)), (until, Change::Less(weight))]),
            None => changes.push((from, Change::More(weight))),
        }
    }
    changes.sort_unstable();
    let mut count = 0;
    let mut worst: Option<Excess> = None;
    let mut found = Vec::new();
    for (at, change) in changes {
        match change {
            Change::More(weight) => count += weight,
            Change::Less(weight) => count -= weight,
        }
        if count <= allowed {
            found.extend(worst.take());
        } else if worst.is_none_or(|(_, before)| count > before) {
            worst = Some((at, count));
        }
    }
    found.extend(worst);
    found
}
