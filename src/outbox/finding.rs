//! Queues that have messages in the store and no record in memory: each lane's search brings them in, page by page.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::courier::Courier;
use super::lane::priority;
use super::letter::{PATIENCE, REST};
use super::line::Pause;
use super::note::Note;
use super::record::Queue;
use super::search::{Found, Reading, Search};
use super::shelf::{self, PAGE, Queues};
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

/// So many queues of a lane that were found may have to have their turn when others are looked for.
const AHEAD: usize = 1_024;

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    /// A queue has a message in the store that stands there or behind, and that nobody has read. `None`: one that is in line
    /// since now, wherever it stands, for which no flush waits that began before.
    pub(super) fn notice(&mut self, queue: Queue, place: Option<u64>) {
        if !self.lines.contains_key(&queue) {
            if !self.may_know(&queue) {
                self.miss(&queue, place.unwrap_or(u64::MAX));
                return;
            }
            if !self.searches.cover(&queue) {
                self.line(&queue).has_from(0);
            }
        }
        self.line(&queue).has_from(place.unwrap_or(0));
        self.take_turn(queue);
    }

    /// Whether there is a record for the queue, or may be one.
    pub(super) fn may_know(&self, queue: &Queue) -> bool {
        self.lines.contains_key(queue) || self.lanes.known(self.searches.priority(queue)) < ARRIVED
    }

    /// There is no record of the queue, and none is made: it is looked for.
    fn miss(&mut self, queue: &Queue, place: u64) {
        let lane = self.searches.priority(queue);
        if let Some(pass) = self.searches.get(lane).will_find(queue) {
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(lane, pass, place));
        } else {
            self.look_again(queue, Instant::now(), Some(place));
        }
    }

    /// A queue without a record is for a pass to find that begins then. `awaited`: where its first message stands, if that is
    /// nothing that was told to wait: flushes wait for it.
    fn look_again(&mut self, queue: &Queue, at: Instant, awaited: Option<u64>) {
        let lane = self.searches.priority(queue);
        let pass = self.searches.get(lane).look_again(at, awaited.is_some());
        if let Some(place) = awaited {
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(lane, pass, place));
        }
    }

    /// A queue had its turn: its record goes if others wait to be found. Returns whether it is gone.
    pub(super) fn gives_way(&mut self, queue: &Queue) -> bool {
        let Some(line) = self.lines.get(queue).filter(|line| line.is_idle() && line.more) else { return false };
        let (lane, least) = (line.lane, line.least);
        if self.lanes.known(lane) <= ENOUGH || !self.searches.get(lane).goes_on() {
            return false;
        }
        self.remove(queue);
        self.miss(queue, least);
        true
    }

    /// Nothing of the queue starts for so long. Where too many wait like that its record goes; returns whether it did.
    pub(super) fn goes_aside(&mut self, queue: &Queue, span: Duration, why: Pause) -> bool {
        let Some(line) = self.lines.get(queue).filter(|line| line.is_idle()) else { return false };
        if self.lanes.get(line.lane).pauses < PAUSED {
            return false;
        }
        let Some(line) = self.remove(queue) else { return false };
        let awaited = why == Pause::Limits && !is_held(&self.office.balancer, queue);
        let at = Instant::now() + span.clamp(self.search_for(queue).rest(), PATIENCE);
        self.look_again(queue, at, awaited.then_some(line.least));
        true
    }

    /// Looks for queues that have no record, once nearly all that were found have had their turn.
    pub(super) fn search(&mut self) {
        if self.starts() {
            let next = self.office.counts().next;
            self.searches.lanes().into_iter().for_each(|lane| self.search_lane(lane, next));
        }
    }

    fn search_lane(&mut self, lane: u32, next: u64) {
        let Some(found) = self.searches.get(lane).next_page(Instant::now(), next) else { return };
        if self.lanes.found_turns(lane) >= AHEAD || self.lanes.known(lane) + PAGE > KNOWN {
            return;
        }
        let after = match found {
            Found::None => None,
            Found::UpTo(last) => Some(last),
        };
        self.searches.get(lane).reading = Reading::Now;
        let (priorities, office) = (self.searches.priorities.clone(), Arc::clone(&self.office));
        self.office.desk.look(
            move |store| shelf::queues(store, after.as_ref(), PAGE, |queue| priority(&priorities, queue) == lane),
            move |found| drop(office.inbox.send(Note::Found(lane, found))),
        );
    }

    pub(super) fn found(&mut self, lane: u32, found: Result<Queues, StoreError>) {
        let search = self.searches.get(lane);
        let reading = std::mem::replace(&mut search.reading, Reading::No);
        if let Reading::InVain(at) = reading {
            search.reading = Reading::After(at);
        }
        match found {
            Ok(_) if matches!(reading, Reading::InVain(_)) => {}
            Ok(Queues { found, last }) => {
                let bound = search.bound;
                search.comes_to(last.as_ref(), found.len());
                for (queue, first) in found {
                    let is_known = self.lines.contains_key(&queue);
                    if first >= bound && !is_known {
                        // For the next pass to find.
                        self.look_again(&queue, Instant::now(), Some(first));
                        continue;
                    }
                    // Those that are known may have come to be while a flush waited for this pass to find them.
                    self.flushes.iter_mut().for_each(|flush| flush.add(&queue, first));
                    if first >= bound {
                        continue;
                    }
                    self.line(&queue).has_from(first);
                    self.take_found_turn(queue);
                }
            }
            Err(error) => {
                search.reading = Reading::After(Instant::now() + REST);
                self.failed(error);
            }
        }
    }

    /// Nobody knows what a transaction changed, or who is in which lane: all queues are looked for, not before then.
    pub(super) fn search_again(&mut self, at: Instant) {
        self.searches.begin_anew(self.office.counts().next, at);
        for (lane, passes) in self.searches.needed() {
            self.flushes.iter_mut().for_each(|flush| flush.wait_for(lane, passes, 0));
        }
    }

    /// Where rules were replaced, queues go over to the lanes that are theirs now, each to the end of the turns there. Should
    /// more be known there than may be, none is found before they are fewer.
    pub(super) fn follow_rules(&mut self) {
        if !self.searches.follow(&self.office.balancer) {
            return;
        }
        self.search_again(Instant::now());
        let (mut in_turn, mut left) = (Vec::new(), BTreeSet::new());
        for (queue, line) in &mut self.lines {
            let lane = self.searches.priority(queue);
            if lane == line.lane {
                continue;
            }
            self.lanes.get(line.lane).subtract(line.load());
            self.lanes.get(lane).add(line.load());
            left.insert(line.lane);
            line.lane = lane;
            if std::mem::take(&mut line.in_turn) {
                in_turn.push(queue.clone());
            }
        }
        let lines = &self.lines;
        for priority in left {
            let stays = |queue: &Queue| lines.get(queue).is_some_and(|line| line.in_turn && line.lane == priority);
            self.lanes.get(priority).retain_turns(stays);
        }
        in_turn.into_iter().for_each(|queue| self.take_turn(queue));
    }

    /// The search that finds the queue.
    fn search_for(&mut self, queue: &Queue) -> &mut Search {
        let lane = self.searches.priority(queue);
        self.searches.get(lane)
    }
}
