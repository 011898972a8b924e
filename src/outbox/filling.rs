//! Which queues are read next, and how much room each of them gets in the balancer's line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::courier::Courier;
use super::letter::{PATIENCE, REST};
use super::line::Pause;
use super::note::Note;
use super::record::Queue;
use super::shelf;
use super::stuck::FAR;
use crate::error::NextStart;

/// Messages in the balancer's line, of all queues together.
const MESSAGES: usize = 4_096;

/// Their bytes.
const BYTES: u64 = 64 << 20;

/// How many of these bytes are read for one queue at a time, unless a single message has more.
const READ: u64 = 256 << 10;

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    pub(super) fn take_turn(&mut self, queue: Queue) {
        let window = self.window;
        let Some(line) = self.lines.get_mut(&queue) else { return };
        if line.more && line.filling.is_none() && !line.in_turn && line.paused.is_none() && line.active() < window {
            line.in_turn = true;
            self.turns.push_back(queue);
        }
    }

    /// Has messages read for the queues whose turn it is, as far as there is room.
    pub(super) fn fill(&mut self) {
        while self.starts() && !self.turns.is_empty() && (self.has_room() || self.make_room()) {
            let Some(queue) = self.turns.pop_front() else { break };
            self.search.ahead = self.search.ahead.saturating_sub(1);
            let crowded = self.is_crowded();
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            line.in_turn = false;
            if line.paused.is_some() {
                // It was taken out of the line to make room: it has its turn when it is woken.
                continue;
            }
            let active = line.active();
            if crowded && active == 0 && self.stands_aside(&queue) {
                continue;
            }
            let most = if crowded { 1 } else { self.window }.min(self.window.saturating_sub(active));
            if most > 0 {
                self.read(queue, most);
            }
        }
        self.search();
    }

    fn read(&mut self, queue: Queue, most: usize) {
        let Some(line) = self.lines.get_mut(&queue) else { return };
        line.filling = Some(most);
        line.more = false;
        self.reading += most;
        self.readers += 1;
        let (skip, office, back) = (line.places(), Arc::clone(&self.office), queue.clone());
        self.office.desk.look(
            move |store| shelf::load(store, &queue, &skip, most, READ),
            move |loaded| drop(office.inbox.send(Note::Loaded(back, loaded))),
        );
    }

    fn has_room(&self) -> bool {
        self.messages + self.reading < MESSAGES && self.bytes + self.readers as u64 * READ < BYTES
    }

    /// Whether somebody might soon be in others' way.
    fn is_crowded(&self) -> bool {
        self.messages + self.reading > MESSAGES / 2 || self.bytes > BYTES / 2
    }

    /// Whether a message that was just put may go into line, where its queue allows that.
    pub(super) fn has_room_for(&mut self, queue: &Queue) -> bool {
        if self.is_crowded() {
            if !self.turns.is_empty() {
                // Others wait for room, and are not to be passed by whoever comes just when there is some.
                return false;
            }
            let is_empty = self.lines.get(queue).is_none_or(|line| line.active() == 0);
            if is_empty && self.stands_aside(queue) {
                return false;
            }
        }
        self.has_room() || self.make_room()
    }

    /// Whether the queue waits outside, as nothing of it starts for long. Nothing of it is in line.
    fn stands_aside(&mut self, queue: &Queue) -> bool {
        let next = queue.parts().ok().and_then(|(rule, key)| self.office.balancer.next_start(&rule, key).ok());
        let span = match next {
            Some(NextStart::After(span)) if span > FAR => span.min(PATIENCE),
            Some(NextStart::Never) => REST,
            Some(NextStart::After(_) | NextStart::Now | NextStart::WhenOneEnds) | None => return false,
        };
        self.pause(queue.clone(), span, Pause::Limits);
        true
    }

    /// Takes those out of the line that are in others' way for long. Returns whether there is room now.
    fn make_room(&mut self) -> bool {
        let now = Instant::now();
        if self.cleared.is_some_and(|at| now < at + FAR) {
            return false;
        }
        self.cleared = Some(now);
        let stuck = self.lines.iter().filter(|(_, line)| line.is_stuck());
        let stuck: Vec<Queue> = stuck.map(|(queue, _)| queue.clone()).collect();
        for queue in stuck {
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            let (messages, bytes) = line.withdraw_all();
            self.messages -= messages;
            self.bytes -= bytes;
            if !self.stands_aside(&queue) {
                self.pause(queue, REST, Pause::Limits);
            }
        }
        let soon = self.office.clock.after(FAR);
        let waiting = self.lines.iter().filter(|(_, line)| !line.ordered());
        let waiting: Vec<(Queue, Vec<u64>)> =
            waiting.map(|(queue, line)| (queue.clone(), line.waiting_until_after(soon))).collect();
        for (queue, places) in waiting {
            for place in places {
                let _ = self.park(&queue, place);
            }
        }
        self.has_room()
    }

    /// When it is looked for room again, if somebody waits for it.
    pub(super) fn clears_again(&self) -> Option<Instant> {
        let waits = !self.turns.is_empty() && self.starts() && !self.has_room();
        self.cleared.filter(|_| waits).map(|at| at + FAR)
    }

    /// Nothing more of the queue is read for so long.
    pub(super) fn pause(&mut self, queue: Queue, span: Duration, why: Pause) {
        if self.goes_aside(&queue, span, why) {
            return;
        }
        if let Some(line) = self.lines.get_mut(&queue) {
            line.paused = Some(why);
            let until = Instant::now() + span.min(Duration::from_secs(86_400));
            self.pauses.insert((until, line.round, queue));
        }
    }

    pub(super) fn end_pauses(&mut self, now: Instant) {
        while self.pauses.first().is_some_and(|(until, ..)| *until <= now) {
            let Some((.., queue)) = self.pauses.pop_first() else { break };
            if let Some(line) = self.lines.get_mut(&queue) {
                line.paused = None;
            }
            self.take_turn(queue.clone());
            self.forget(&queue);
        }
    }
}
