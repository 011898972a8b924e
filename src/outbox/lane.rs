//! The places that messages of one priority have in the balancer's line, and whose turn it is to get one.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::record::Queue;
use super::stuck::FAR;
use crate::runtime::Priorities;

/// Messages in the balancer's line, of all queues of a lane together. Each lane has as many.
const MESSAGES: usize = 4_096;

/// Their bytes: so many for each lane, too.
const BYTES: u64 = 64 << 20;

/// How many of these bytes are read for one queue at a time, unless a single message has more.
pub(super) const READ: u64 = 256 << 10;

/// The lanes by their priority, the most urgent first.
#[derive(Debug, Default)]
pub(super) struct Lanes(BTreeMap<u32, Lane>);

/// One lane. None takes places from another: who is urgent finds some, however many others wait.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Queues that wait for their turn to be filled: those that were known before, and those that a search found.
    pub(super) known_turns: VecDeque<Queue>,
    pub(super) found_turns: VecDeque<Queue>,
    /// Whether the last turn was one of those that were found.
    was_found: bool,
    /// How many queues have a record.
    pub(super) known: usize,
    pub(super) messages: usize,
    pub(super) bytes: u64,
    /// How many more are being read, and for how many queues.
    pub(super) reading: usize,
    pub(super) readers: usize,
    /// How many pauses there are that queues made here.
    pub(super) pauses: usize,
    /// When it was last looked for messages that stand in others' way.
    pub(super) cleared: Option<Instant>,
}

/// What a queue takes of its lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) messages: usize,
    pub(super) bytes: u64,
    /// So many more are being read.
    pub(super) reading: Option<usize>,
}

/// The priority of a queue's rule.
pub(super) fn priority(priorities: &Priorities, queue: &Queue) -> u32 {
    queue.rule().and_then(|rule| priorities.get(rule)).unwrap_or(NO_RULE)
}

/// The priority of what no rule is for any more.
pub(super) const NO_RULE: u32 = u32::MAX;

impl Lanes {
    pub(super) fn get(&mut self, priority: u32) -> &mut Lane {
        self.0.entry(priority).or_default()
    }

    pub(super) fn known(&self, priority: u32) -> usize {
        self.0.get(&priority).map_or(0, |lane| lane.known)
    }

    /// How many queues of a lane wait for their turn that a search found.
    pub(super) fn found_turns(&self, priority: u32) -> usize {
        self.0.get(&priority).map_or(0, |lane| lane.found_turns.len())
    }

    /// Whether no message is in line.
    pub(super) fn are_empty(&self) -> bool {
        self.0.values().all(|lane| lane.messages == 0)
    }

    pub(super) fn priorities(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// Forgets lanes of which nothing is known: rules change.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, lane| lane.known > 0 || lane.has_turns() || lane.pauses > 0);
    }

    /// When it is looked for room again, if somebody waits for it.
    pub(super) fn clear_again(&self) -> Option<Instant> {
        let waiting = self.0.values().filter(|lane| lane.has_turns() && !lane.has_room());
        waiting.filter_map(|lane| lane.cleared).map(|at| at + FAR).min()
    }
}

impl Lane {
    /// Whether queues wait for their turn.
    pub(super) fn has_turns(&self) -> bool {
        !self.known_turns.is_empty() || !self.found_turns.is_empty()
    }

    /// Whose turn it is. Every second one is of a queue that was found, so that those who come keep nobody from being found.
    pub(super) fn next_turn(&mut self) -> Option<Queue> {
        self.was_found = !self.was_found && !self.found_turns.is_empty() || self.known_turns.is_empty();
        if self.was_found { self.found_turns.pop_front() } else { self.known_turns.pop_front() }
    }

    /// Others went over to another lane.
    pub(super) fn retain_turns(&mut self, stays: impl Fn(&Queue) -> bool) {
        self.known_turns.retain(&stays);
        self.found_turns.retain(&stays);
    }

    pub(super) fn has_room(&self) -> bool {
        self.messages + self.reading < MESSAGES && self.bytes + self.readers as u64 * READ < BYTES
    }

    /// Whether somebody might soon be in others' way.
    pub(super) fn is_crowded(&self) -> bool {
        self.messages + self.reading > MESSAGES / 2 || self.bytes > BYTES / 2
    }

    /// A queue comes from another lane, with what it has in line.
    pub(super) const fn add(&mut self, Load { messages, bytes, reading }: Load) {
        self.known += 1;
        self.messages += messages;
        self.bytes += bytes;
        if let Some(most) = reading {
            self.reading += most;
            self.readers += 1;
        }
    }

    /// A queue goes over to another lane.
    pub(super) const fn subtract(&mut self, Load { messages, bytes, reading }: Load) {
        self.known -= 1;
        self.messages -= messages;
        self.bytes -= bytes;
        if let Some(most) = reading {
            self.reading -= most;
            self.readers -= 1;
        }
    }

    /// So many messages are in line no more.
    pub(super) fn leave(&mut self, (messages, bytes): (usize, u64)) {
        self.messages -= messages;
        self.bytes -= bytes;
    }
}
