//! How far each lane's search for queues has come that have messages in the store and no record in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::lane::{NO_RULE, priority};
use super::letter::{PATIENCE, REST};
use super::record::Queue;
use crate::runtime::{Balancer, Priorities};

/// How long is waited after a pass that brought nothing, for each queue that it found.
const REST_EACH: Duration = Duration::from_micros(20);

/// The searches of all lanes: each walks through the store by itself, pass by pass, past the queues of the others.
#[derive(Debug)]
pub(super) struct Searches {
    /// Who is in which lane, as of when the searches began.
    pub(super) priorities: Priorities,
    lanes: BTreeMap<u32, Search>,
}

/// How much is known of which queues of a lane have messages.
#[derive(Debug)]
pub(super) struct Search {
    /// How far the pass is that is under way, if one is.
    pub(super) pass: Option<Found>,
    /// It passes over queues whose messages were put after it began: it could be after them for ever.
    pub(super) bound: u64,
    pub(super) reading: Reading,
    /// Not everything is found by that pass: when another one begins.
    again: Option<Again>,
    /// How many passes came to their end.
    passed: u64,
    /// How many queues this pass has found, or the last one.
    size: u32,
    /// Whether messages have come to their ends since it began.
    moved: bool,
    /// Without that no pass begins before.
    not_before: Instant,
}

/// The queue up to which all that have messages were found.
#[derive(Clone, Debug)]
pub(super) enum Found {
    None,
    UpTo(Queue),
}

/// Whether a page of queues is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    No,
    Now,
    /// What it finds is of no use: it begins anew, not before then.
    InVain(Instant),
    /// Not before then.
    After(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Again {
    at: Instant,
    /// A flush waits for some of what it finds.
    awaited: bool,
}

impl Searches {
    /// Those of an outbox that opens, and whose next message has that place.
    pub(super) fn new(balancer: &Balancer, is_empty: bool, next: u64) -> Self {
        let mut searches = Self { priorities: Priorities::of(balancer), lanes: BTreeMap::new() };
        searches.begin_anew(next, Instant::now());
        if is_empty {
            searches.lanes.values_mut().for_each(|search| search.pass = None);
        }
        searches
    }

    /// Goes over to the rules in force. Returns whether all searches are to begin anew, as queues are in other lanes now.
    pub(super) fn follow(&mut self, balancer: &Balancer) -> bool {
        self.priorities.renew(balancer)
    }

    /// Everything is to be found again, not before then. What was put before `next` is.
    pub(super) fn begin_anew(&mut self, next: u64, at: Instant) {
        // Lanes that there are no more are those of no queue, and their passes end at once.
        for priority in self.priorities.all().chain([NO_RULE]) {
            self.lanes.entry(priority).or_insert_with(Search::new);
        }
        self.lanes.values_mut().for_each(|search| search.begin_anew(next, at));
    }

    pub(super) fn priority(&self, queue: &Queue) -> u32 {
        priority(&self.priorities, queue)
    }

    pub(super) fn get(&mut self, priority: u32) -> &mut Search {
        self.lanes.entry(priority).or_insert_with(Search::new)
    }

    /// Whether a queue without a record has no message in the store.
    pub(super) fn cover(&self, queue: &Queue) -> bool {
        self.lanes.get(&self.priority(queue)).is_some_and(|search| search.covers(queue))
    }

    pub(super) fn lanes(&self) -> Vec<u32> {
        self.lanes.keys().copied().collect()
    }

    /// Of each lane, how many passes are to have ended for everything to be known that a flush waits for.
    pub(super) fn needed(&self) -> BTreeMap<u32, u64> {
        self.lanes.iter().map(|(priority, search)| (*priority, search.needed())).collect()
    }

    /// Whether so many of them have ended.
    pub(super) fn have_passed(&self, needed: &BTreeMap<u32, u64>) -> bool {
        needed.iter().all(|(priority, passes)| {
            self.lanes.get(priority).is_none_or(|search| !search.goes_on() || search.passed >= *passes)
        })
    }

    /// When there is something to do.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.lanes.values().filter_map(Search::wakes_at).min()
    }
}

impl Search {
    fn new() -> Self {
        Self {
            pass: None,
            bound: 0,
            reading: Reading::No,
            again: None,
            passed: 0,
            size: 0,
            moved: false,
            not_before: Instant::now(),
        }
    }

    fn covers(&self, queue: &Queue) -> bool {
        self.again.is_none()
            && match &self.pass {
                None => true,
                Some(Found::None) => false,
                Some(Found::UpTo(last)) => queue <= last,
            }
    }

    /// Whether there may be queues that nobody knows of.
    pub(super) const fn goes_on(&self) -> bool {
        self.pass.is_some() || self.again.is_some()
    }

    fn needed(&self) -> u64 {
        let again = self.again.is_some_and(|again| again.awaited);
        self.passed + u64::from(self.pass.is_some()) + u64::from(again)
    }

    /// A queue is to be found by a pass that begins then. Returns how many are to have ended for that.
    pub(super) fn look_again(&mut self, at: Instant, awaited: bool) -> u64 {
        let before = self.again.unwrap_or(Again { at, awaited });
        self.again = Some(Again { at: at.min(before.at), awaited: awaited || before.awaited });
        self.passed + 1 + u64::from(self.pass.is_some())
    }

    /// If the pass that is under way comes by a queue, how many are to have ended for it to be found.
    pub(super) fn will_find(&self, queue: &Queue) -> Option<u64> {
        let comes_by = match &self.pass {
            None => false,
            Some(Found::None) => true,
            Some(Found::UpTo(last)) => queue > last,
        };
        comes_by.then_some(self.passed + 1)
    }

    /// The longer a pass takes, the more seldom one is made for nothing.
    pub(super) fn rest(&self) -> Duration {
        REST.max(REST_EACH * self.size).min(PATIENCE)
    }

    /// A message came to its end: others may start.
    pub(super) const fn moves(&mut self) {
        self.moved = true;
    }

    fn begins_at(&self) -> Option<Instant> {
        let again = self.again.filter(|_| self.pass.is_none())?;
        Some(if self.moved { again.at } else { again.at.max(self.not_before) })
    }

    fn wakes_at(&self) -> Option<Instant> {
        match self.reading {
            Reading::After(at) => Some(at),
            Reading::No => self.begins_at(),
            Reading::Now | Reading::InVain(_) => None,
        }
    }

    /// Where the next page begins, if one may be read now. A pass begins if its time has come: of what was put before `next`.
    pub(super) fn next_page(&mut self, now: Instant, next: u64) -> Option<Found> {
        match self.reading {
            Reading::Now | Reading::InVain(_) => return None,
            Reading::After(at) if at > now => return None,
            Reading::No | Reading::After(_) => self.reading = Reading::No,
        }
        if self.begins_at().is_some_and(|at| at <= now) {
            (self.pass, self.again) = (Some(Found::None), None);
            (self.bound, self.size, self.moved) = (next, 0, false);
        }
        self.pass.clone()
    }

    /// A page of the pass was read: so many queues, up to that one.
    pub(super) fn comes_to(&mut self, last: Option<&Queue>, queues: usize) {
        self.size = self.size.saturating_add(u32::try_from(queues).unwrap_or(u32::MAX));
        if let Some(last) = last {
            self.pass = Some(Found::UpTo(last.clone()));
        } else {
            self.pass = None;
            self.passed += 1;
            self.not_before = Instant::now() + self.rest();
        }
    }

    fn begin_anew(&mut self, next: u64, at: Instant) {
        (self.pass, self.bound) = (Some(Found::None), next);
        self.reading = match self.reading {
            Reading::Now | Reading::InVain(_) => Reading::InVain(at),
            Reading::No | Reading::After(_) => Reading::After(at),
        };
    }
}
