//! How many times in a row a server said "slow down" without a number, per scope: each further time the wait doubles,
//! whichever request the answer was for, until one of the scope succeeds.
//!
//! Attempts that ran when the last such answer came began before it: what they bring says nothing about whether the wait
//! was long enough, so they neither lengthen the row nor end it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::answer::{KeyId, RequestId, Target};
use super::plan::RuleId;
use super::pool::EndpointId;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::time::Instant;

/// The rows that are going on. Most of the time there is none.
#[derive(Debug, Default)]
pub(super) struct Streaks {
    rows: BTreeMap<Held, Row>,
}

/// What a row is of. A key comes right before its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Overall,
    Rule(RuleId),
    Endpoint(EndpointId),
    Key(KeyId, Option<RuleId>),
}

#[derive(Clone, Copy, Debug)]
struct Row {
    length: u32,
    /// When its last answer came.
    latest: Instant,
    /// Until when another run of the program would have remembered it.
    known_until: Instant,
}

/// A row of answers "slow down" without a number, as it outlives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRow {
    /// How many there were.
    pub length: u32,
    /// When the last one came.
    pub latest: Instant,
    /// Until when the row is remembered if nothing else comes. `None`: until an attempt succeeds.
    pub until: Option<Instant>,
}

impl Held {
    const fn of(target: Target) -> Option<Self> {
        match target {
            Target::Overall => Some(Self::Overall),
            Target::Rule(rule) => Some(Self::Rule(rule)),
            Target::Endpoint(endpoint) => Some(Self::Endpoint(endpoint)),
            Target::Key(key) => Some(Self::Key(key, None)),
            Target::Queue(rule, key) => Some(Self::Key(key, Some(rule))),
            Target::Request => None,
        }
    }

    /// A key and all its queues.
    const fn all_of(key: KeyId) -> RangeInclusive<Self> {
        Self::Key(key, None)..=Self::Key(key, Some(RuleId(u16::MAX)))
    }
}

impl Streaks {
    /// Counts an answer to an attempt that began at `began`. Returns how many there were in the row before.
    fn lengthen(&mut self, held: Held, now: Instant, began: Instant) -> u32 {
        let row = self.rows.entry(held).or_insert(Row { length: 0, latest: now, known_until: Instant::ZERO });
        if row.length == 0 || began > row.latest {
            *row = Row { length: row.length.saturating_add(1), latest: now, ..*row };
        }
        row.length - 1
    }

    fn end(&mut self, held: Held, began: Instant) {
        if self.rows.get(&held).is_some_and(|row| began > row.latest) {
            self.rows.remove(&held);
        }
    }

    /// Forgets an evicted key.
    pub(super) fn forget(&mut self, key: KeyId) {
        if self.rows.is_empty() {
            return;
        }
        let of_key: Vec<Held> = self.rows.range(Held::all_of(key)).map(|(held, _)| *held).collect();
        for held in of_key {
            self.rows.remove(&held);
        }
    }

    /// Another endpoint comes in the place of one.
    pub(super) fn forget_endpoint(&mut self, endpoint: EndpointId) {
        self.rows.remove(&Held::Endpoint(endpoint));
    }

    /// Two keys are one: so are their rows, of which the longer ones stand.
    pub(super) fn merge(&mut self, from: KeyId, into: KeyId) {
        let moved: Vec<_> = self.rows.range(Held::all_of(from)).map(|(held, row)| (*held, *row)).collect();
        for (held, row) in moved {
            self.rows.remove(&held);
            let Held::Key(_, rule) = held else { continue };
            self.join(Held::Key(into, rule), row);
        }
    }

    /// What is known of two rows of one target is true of both: the longer one stands.
    fn join(&mut self, held: Held, row: Row) {
        let known = self.rows.entry(held).or_insert(row);
        *known = Row {
            length: known.length.max(row.length),
            latest: known.latest.max(row.latest),
            known_until: known.known_until.max(row.known_until),
        };
    }
}

impl<W> Scheduler<W> {
    /// The server answered a running attempt with "slow down" and no number, for which `target` is to be held. Counts
    /// it, and returns how many such answers in a row there were before.
    ///
    /// The row ends when an attempt of the target [succeeds](Self::succeed), or with the record of its key, which stays
    /// for as long again as the last hold of the row was. Always 0 for [`Target::Request`], whose row is its owner's affair,
    /// for a stale key and for a request that does not run.
    pub fn slow_down(&mut self, now: Instant, id: RequestId, target: Target) -> u32 {
        let now = self.tick(now);
        match (Held::of(target), self.began(id)) {
            (Some(Held::Key(key, _)), _) if !self.knows(key) => 0,
            (Some(held), Some(began)) => self.streaks.lengthen(held, now, began),
            (None, _) | (_, None) => 0,
        }
    }

    /// A running attempt succeeded: the rows of its queue, key and rule and of everything are over. It runs until
    /// [`finish`](Self::finish).
    pub fn succeed(&mut self, id: RequestId) {
        if self.streaks.rows.is_empty() {
            return;
        }
        let (Some(began), Some(key)) = (self.began(id), self.key_of(id)) else { return };
        let rule = RuleId(self.queues[self.requests[id.index].queue].rule);
        for held in [Held::Overall, Held::Rule(rule), Held::Key(key, None), Held::Key(key, Some(rule))] {
            self.streaks.end(held, began);
        }
        if let Some(endpoint) = self.endpoint_of(id) {
            self.streaks.end(Held::Endpoint(endpoint), began);
        }
    }

    /// Whether any row goes on.
    pub(super) fn has_streaks(&self) -> bool {
        !self.streaks.rows.is_empty()
    }

    /// Until when the rows of an idle key are remembered.
    pub(super) fn rows_last(&self, key: KeyId) -> Instant {
        if self.streaks.rows.is_empty() {
            return Instant::ZERO;
        }
        let until = self.streaks.rows.range(Held::all_of(key)).map(|(held, row)| self.row_lasts(*held, *row));
        until.max().unwrap_or(Instant::ZERO)
    }

    /// Until when a key's row is remembered.
    fn row_lasts(&self, held: Held, row: Row) -> Instant {
        let hold = match held {
            Held::Key(key, None) => self.keys[key.index].extras.hold(),
            Held::Key(key, Some(rule)) => {
                self.find_queue(key.index, rule).map_or(Instant::ZERO, |queue| self.queues[queue].extras.hold())
            }
            Held::Overall | Held::Rule(_) | Held::Endpoint(_) => Instant::ZERO,
        };
        hold.saturating_add(hold.since(row.latest)).max(row.known_until)
    }

    /// The row of a target, if one is going on that should outlive the machine.
    pub(super) fn slow_row(&self, now: Instant, target: Target) -> Option<SlowRow> {
        let held = Held::of(target)?;
        let row = *self.streaks.rows.get(&held)?;
        let until = match held {
            Held::Overall | Held::Rule(_) | Held::Endpoint(_) => None,
            Held::Key(..) => Some(self.row_lasts(held, row)),
        };
        let goes_on = until.is_none_or(|until| until > now);
        goes_on.then_some(SlowRow { length: row.length, latest: row.latest, until })
    }

    /// Goes on with a row that another machine knew. It is remembered no longer than if its last hold had begun now.
    pub(super) fn recall_row(&mut self, now: Instant, target: Target, row: &SlowRow) {
        let Some(held) = Held::of(target) else { return };
        let SlowRow { length, latest, until } = *row;
        if length == 0 || until.is_some_and(|until| until <= now) {
            return;
        }
        let max_hold = self.plan.max_hold;
        let last = now.saturating_add(max_hold).saturating_add(max_hold);
        let known_until = until.map_or(Instant::ZERO, |until| until.min(last));
        self.streaks.join(held, Row { length, latest: latest.min(now), known_until });
    }

    /// When the running attempt of a request began.
    fn began(&self, id: RequestId) -> Option<Instant> {
        let request = self.requests.get(id.index, id.generation)?;
        match request.stage() {
            Stage::Running | Stage::Overdue | Stage::Aborted => Some(request.since),
            Stage::Outside { .. }
            | Stage::Queued { .. }
            | Stage::Asked
            | Stage::Granted { .. }
            | Stage::Asleep
            | Stage::Out { .. }
            | Stage::Refused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const KEY: KeyId = KeyId { index: 7, generation: NonZeroU32::MIN };
    const OTHER: KeyId = KeyId { index: 3, generation: NonZeroU32::MIN };
    const OF_KEY: Held = Held::Key(KEY, None);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn what_ran_when_the_last_answer_came_counts_for_nothing() {
        let mut streaks = Streaks::default();
        assert_eq!(streaks.lengthen(OF_KEY, at(10), at(0)), 0);
        // The rest of the same crowd.
        assert_eq!(streaks.lengthen(OF_KEY, at(12), at(5)), 0);
        assert_eq!(streaks.lengthen(OF_KEY, at(13), at(10)), 0);
        streaks.end(OF_KEY, at(9));
        // Attempts that waited and began after it.
        assert_eq!(streaks.lengthen(OF_KEY, at(1_020), at(1_010)), 1);
        assert_eq!(streaks.lengthen(OF_KEY, at(3_030), at(3_020)), 2);
        streaks.end(OF_KEY, at(7_000));
        assert_eq!(streaks.lengthen(OF_KEY, at(8_000), at(7_500)), 0);
    }

    #[test]
    fn a_key_takes_its_queues_along() {
        let mut streaks = Streaks::default();
        let queue = |key, rule| Held::Key(key, Some(RuleId(rule)));
        for held in [Held::Overall, Held::Rule(RuleId(1)), OF_KEY, queue(KEY, 0), queue(KEY, u16::MAX), queue(OTHER, 0)]
        {
            streaks.lengthen(held, at(1), at(0));
        }
        streaks.lengthen(queue(KEY, 0), at(3), at(2));
        streaks.merge(KEY, OTHER);
        assert_eq!(streaks.lengthen(queue(OTHER, 0), at(5), at(4)), 2);
        assert_eq!(streaks.lengthen(queue(OTHER, u16::MAX), at(5), at(4)), 1);
        streaks.forget(KEY);
        assert_eq!(streaks.rows.len(), 5);
        streaks.forget(OTHER);
        assert_eq!(streaks.rows.keys().copied().collect::<Vec<_>>(), [Held::Overall, Held::Rule(RuleId(1))]);
    }
}
