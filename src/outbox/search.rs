//! Queues that have messages in the store and no record in memory: the store is walked for them, pass by pass.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::courier::Courier;
use super::letter::{PATIENCE, REST};
use super::line::{Line, Pause};
use super::note::Note;
use super::record::Queue;
use super::shelf::{self, PAGE};
use super::store::StoreError;
use super::stuck::is_held;

/// How many queues of a lane have a record in memory at most, of which a page may just be coming in.
pub(super) const KNOWN: usize = 16_384;

/// So many of them may be made by messages that arrive: the rest is for those that are found.
const ARRIVED: usize = KNOWN / 4 * 3;

/// With more of them than that, and others waiting to be found, a queue that had its turn goes.
const ENOUGH: usize = KNOWN / 2;

/// How many of them may pause, where nothing of them is in line.
const PAUSED: usize = KNOWN / 2;

/// So many queues may still have to have their turn when others are looked for.
const QUEUES: usize = 1_024;

/// How long is waited after a pass that brought nothing, for each queue that it found.
const REST_EACH: Duration = Duration::from_micros(20);

/// How much is known of which queues have messages.
#[derive(Debug)]
pub(super) struct Search {
    /// How far the pass is that is under way, if one is.
    pass: Option<Found>,
    /// It passes over queues whose messages were put after it began: it could be after them for ever.
    bound: u64,
    reading: Reading,
    /// Not everything is found by that pass: when another one begins.
    again: Option<Again>,
    /// How many passes came to their end.
    pub(super) passed: u64,
    /// How many queues have their turn before those that the pass finds next.
    pub(super) ahead: usize,
    /// How many queues this pass has found, or the last one.
    size: u32,
    /// How many messages had come to their ends when it began.
    done: usize,
    /// Without anything having come to its end, no pass begins before.
    not_before: Instant,
}

/// The queue up to which all that have messages were found.
#[derive(Debug)]
enum Found {
    None,
    UpTo(Queue),
}

/// Whether a page of queues is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    No,
    Now,
    /// What it finds is of no use: it begins anew.
    InVain,
    /// The store failed: not before then.
    After(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Again {
    at: Instant,
    /// A flush waits for some of what it finds.
    awaited: bool,
}

impl Search {
    pub(super) fn new(is_empty: bool, next: u64) -> Self {
        Self {
            pass: (!is_empty).then_some(Found::None),
            bound: next,
            reading: Reading::No,
            again: None,
            passed: 0,
            ahead: 0,
            size: 0,
            done: 0,
            not_before: Instant::now(),
        }
    }

    /// Whether a queue without a record has no message in the store.
    pub(super) fn covers(&self, queue: &Queue) -> bool {
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

    /// How many passes are to have ended for everything to be known that a flush waits for.
    pub(super) fn needed(&self) -> u64 {
        let again = self.again.is_some_and(|again| again.awaited);
        self.passed + u64::from(self.pass.is_some()) + u64::from(again)
    }

    /// A queue is to be found by a pass that begins then. Returns how many are to have ended for that.
    fn look_again(&mut self, at: Instant, awaited: bool) -> u64 {
        let before = self.again.unwrap_or(Again { at, awaited });
        self.again = Some(Again { at: at.min(before.at), awaited: awaited || before.awaited });
        self.passed + 1 + u64::from(self.pass.is_some())
    }

    /// Whether the pass that is under way comes by a queue.
    fn will_find(&self, queue: &Queue) -> bool {
        match &self.pass {
            None => false,
            Some(Found::None) => true,
            Some(Found::UpTo(last)) => queue > last,
        }
    }

    /// The longer a pass takes, the more seldom one is made for nothing.
    fn rest(&self) -> Duration {
        REST.max(REST_EACH * self.size).min(PATIENCE)
    }

    fn begins_at(&self, done: usize) -> Option<Instant> {
        let again = self.again.filter(|_| self.pass.is_none())?;
        Some(if done == self.done { again.at.max(self.not_before) } else { again.at })
    }

    /// When there is something to do.
    pub(super) fn wakes_at(&self, done: usize) -> Option<Instant> {
        match self.reading {
            Reading::After(at) => Some(at),
            Reading::No => self.begins_at(done),
            Reading::Now | Reading::InVain => None,
        }
    }

    fn begin(&mut self, done: usize, next: u64) {
        (self.pass, self.again) = (Some(Found::None), None);
        self.bound = next;
        (self.size, self.done) = (0, done);
    }

    fn end(&mut self) {
        self.pass = None;
        self.passed += 1;
        self.not_before = Instant::now() + self.rest();
    }
}

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    /// A queue has a message in the store that stands there or behind, and that nobody has read.
    pub(super) fn notice(&mut self, queue: Queue, place: u64) {
        if !self.lines.contains_key(&queue) {
            if !self.may_know(&queue) {
                self.miss(&queue, place);
                return;
            }
            if !self.search.covers(&queue) {
                self.line(&queue).has_from(0);
            }
        }
        self.line(&queue).has_from(place);
        self.take_turn(queue);
    }

    /// Whether there is a record for the queue, or may be one.
    pub(super) fn may_know(&self, queue: &Queue) -> bool {
        self.lines.contains_key(queue) || self.lanes.known(self.lane_of(queue)) < ARRIVED
    }

    /// There is no record of the queue, and none is made: it is looked for.
    fn miss(&mut self, queue: &Queue, place: u64) {
        if !self.search.will_find(queue) {
            let pass = self.search.look_again(Instant::now(), true);
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(pass, place));
        }
    }

    /// A queue had its turn: its record goes if others wait to be found. Returns whether it is gone.
    pub(super) fn gives_way(&mut self, queue: &Queue) -> bool {
        if !self.search.goes_on() {
            return false;
        }
        let Some(line) = self.lines.get(queue).filter(|line| line.is_idle() && line.more) else { return false };
        let least = line.least;
        if self.lanes.known(line.lane) <= ENOUGH {
            return false;
        }
        self.remove(queue);
        self.miss(queue, least);
        true
    }

    /// Nothing of the queue starts for so long. Where too many wait like that its record goes; returns whether it did.
    pub(super) fn goes_aside(&mut self, queue: &Queue, span: Duration, why: Pause) -> bool {
        if self.pauses.len() < PAUSED || !self.lines.get(queue).is_some_and(Line::is_idle) {
            return false;
        }
        let Some(line) = self.remove(queue) else { return false };
        let awaited = why == Pause::Limits && !is_held(&self.office.balancer, queue);
        let at = Instant::now() + span.clamp(self.search.rest(), PATIENCE);
        let pass = self.search.look_again(at, awaited);
        if awaited {
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(pass, line.least));
        }
        true
    }

    /// Looks for queues that have no record, once those that were found have had their turn.
    pub(super) fn search(&mut self) {
        let now = Instant::now();
        let is_time = match self.search.reading {
            Reading::No => true,
            Reading::Now | Reading::InVain => false,
            Reading::After(at) => at <= now,
        };
        if !is_time || !self.starts() {
            return;
        }
        self.search.reading = Reading::No;
        if self.search.begins_at(self.done).is_some_and(|at| at <= now) {
            self.search.begin(self.done, self.office.counts().next);
        }
        self.search.ahead = self.search.ahead.min(self.lanes.turns());
        if self.search.ahead >= QUEUES || self.lanes.most_known() + PAGE > KNOWN {
            return;
        }
        let after = match &self.search.pass {
            None => return,
            Some(Found::None) => None,
            Some(Found::UpTo(last)) => Some(last.clone()),
        };
        self.search.reading = Reading::Now;
        let office = Arc::clone(&self.office);
        self.office.desk.look(
            move |store| shelf::queues(store, after.as_ref(), PAGE),
            move |found| drop(office.inbox.send(Note::Found(found))),
        );
    }

    pub(super) fn found(&mut self, found: Result<Vec<(Queue, u64)>, StoreError>) {
        let in_vain = self.search.reading == Reading::InVain;
        self.search.reading = Reading::No;
        match found {
            Ok(_) if in_vain => self.search_again(),
            Ok(queues) => {
                match queues.last() {
                    Some((last, _)) => self.search.pass = Some(Found::UpTo(last.clone())),
                    None => self.search.end(),
                }
                self.search.size = self.search.size.saturating_add(u32::try_from(queues.len()).unwrap_or(u32::MAX));
                let turns = self.lanes.turns();
                for (queue, first) in queues {
                    if first >= self.search.bound {
                        self.pass_over(&queue, first);
                        continue;
                    }
                    self.flushes.iter_mut().for_each(|flush| flush.add(&queue, first));
                    self.line(&queue).has_from(first);
                    self.take_turn(queue);
                }
                if self.lanes.turns() > turns {
                    self.search.ahead = self.lanes.turns();
                }
            }
            Err(error) => {
                self.failed(error);
                self.search.reading = Reading::After(Instant::now() + REST);
                if in_vain {
                    self.search.pass = Some(Found::None);
                }
            }
        }
    }

    /// A queue is for the next pass to find.
    fn pass_over(&mut self, queue: &Queue, first: u64) {
        if !self.lines.contains_key(queue) {
            let pass = self.search.look_again(Instant::now(), true);
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(pass, first));
        }
    }

    /// Nobody knows what a transaction changed: once the store works, all queues are looked for.
    pub(super) fn search_again(&mut self) {
        self.search.pass = Some(Found::None);
        self.search.bound = self.office.counts().next;
        self.search.reading = match self.search.reading {
            Reading::Now | Reading::InVain => Reading::InVain,
            Reading::No | Reading::After(_) => Reading::After(Instant::now() + REST),
        };
        let pass = self.search.passed + 1;
        self.flushes.iter_mut().for_each(|flush| flush.wait_for(pass, 0));
    }
}
