//! Which queues are read next, and how much room each of them gets in the balancer's line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::courier::Courier;
use super::lane::{Lane, READ};
use super::letter::{PATIENCE, REST};
use super::line::Pause;
use super::note::Note;
use super::record::{Queue, Unix};
use super::shelf;
use super::stuck::FAR;
use crate::error::NextStart;

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    /// Messages of the queue are read when its turn comes, if it has any and room for them.
    pub(super) fn take_turn(&mut self, queue: Queue) {
        if let Some(lane) = self.take_turn_in(&queue) {
            lane.known_turns.push_back(queue);
        }
    }

    /// The same for one that a search found.
    pub(super) fn take_found_turn(&mut self, queue: Queue) {
        if let Some(lane) = self.take_turn_in(&queue) {
            lane.found_turns.push_back(queue);
        }
    }

    /// The lane in which it is to wait for its turn, unless it needs none.
    fn take_turn_in(&mut self, queue: &Queue) -> Option<&mut Lane> {
        let line = self.lines.get_mut(queue)?;
        let needs = line.more && line.filling.is_none() && line.paused.is_none() && line.active() < self.window;
        if !needs || line.in_turn {
            return None;
        }
        line.in_turn = true;
        Some(self.lanes.get(line.lane))
    }

    /// Has messages read for the queues whose turn it is, as far as there is room.
    pub(super) fn fill(&mut self) {
        self.follow_rules();
        for lane in self.lanes.priorities() {
            self.fill_lane(lane);
        }
        self.lanes.tidy();
        self.search();
    }

    fn fill_lane(&mut self, lane: u32) {
        while self.starts() && self.lanes.get(lane).has_turns() && self.has_room(lane) {
            let Some(queue) = self.lanes.get(lane).next_turn() else { break };
            let crowded = self.lanes.get(lane).is_crowded();
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
    }

    fn read(&mut self, queue: Queue, most: usize) {
        let Some(line) = self.lines.get_mut(&queue) else { return };
        line.filling = Some(most);
        line.more = false;
        let lane = self.lanes.get(line.lane);
        lane.reading += most;
        lane.readers += 1;
        let (skip, office, back) = (line.places(), Arc::clone(&self.office), queue.clone());
        self.office.desk.look(
            move |store| shelf::load(store, &queue, &skip, most, READ),
            move |loaded| drop(office.inbox.send(Note::Loaded(back, loaded))),
        );
    }

    fn has_room(&mut self, lane: u32) -> bool {
        self.lanes.get(lane).has_room() || self.make_room(lane)
    }

    /// Whether a message that was just put may go into line, where its queue allows that.
    pub(super) fn has_room_for(&mut self, queue: &Queue) -> bool {
        let priority = self.lane_of(queue);
        let lane = self.lanes.get(priority);
        if lane.is_crowded() {
            if lane.has_turns() {
                // Others wait for room, and are not to be passed by whoever comes just when there is some.
                return false;
            }
            let is_empty = self.lines.get(queue).is_none_or(|line| line.active() == 0);
            if is_empty && self.stands_aside(queue) {
                return false;
            }
        }
        self.has_room(priority)
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

    /// Takes those of a lane out of the line that are in others' way for long. Returns whether there is room now.
    fn make_room(&mut self, priority: u32) -> bool {
        let now = Instant::now();
        let lane = self.lanes.get(priority);
        if lane.cleared.is_some_and(|at| now < at + FAR) {
            return false;
        }
        lane.cleared = Some(now);
        let wall = self.office.clock.now();
        let stuck = self.lines.iter().filter(|(_, line)| line.lane == priority && line.is_stuck(wall));
        let stuck: Vec<Queue> = stuck.map(|(queue, _)| queue.clone()).collect();
        for queue in stuck {
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            self.lanes.get(priority).leave(line.withdraw_all());
            if !self.stands_aside(&queue) {
                self.pause(queue, REST, Pause::Limits);
            }
        }
        let soon = self.office.clock.after(FAR);
        let in_order = self.lines.iter().filter(|(_, line)| line.lane == priority);
        let in_order = in_order.filter_map(|(queue, line)| Some((queue, line.waits_in_order_until_after(soon)?)));
        let in_order = in_order.map(|(queue, until)| (queue.clone(), until));
        let in_order: Vec<(Queue, Unix)> = in_order.collect();
        for (queue, until) in in_order {
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            self.lanes.get(priority).leave(line.withdraw_all());
            self.pause(queue, self.office.clock.until(until).min(PATIENCE), Pause::Told);
        }
        let waiting = self.lines.iter().filter(|(_, line)| line.lane == priority && !line.ordered());
        let waiting = waiting.map(|(queue, line)| (queue, line.waiting_until_after(soon)));
        let waiting = waiting.filter(|(_, places)| !places.is_empty());
        let waiting: Vec<(Queue, Vec<u64>)> = waiting.map(|(queue, places)| (queue.clone(), places)).collect();
        for (queue, places) in waiting {
            for place in places {
                let _ = self.park(&queue, place);
            }
        }
        self.lanes.get(priority).has_room()
    }

    /// When it is looked for room again, if somebody waits for it.
    pub(super) fn clears_again(&self) -> Option<Instant> {
        self.lanes.clear_again().filter(|_| self.starts())
    }

    /// Nothing more of the queue is read for so long.
    pub(super) fn pause(&mut self, queue: Queue, span: Duration, why: Pause) {
        if self.goes_aside(&queue, span, why) {
            return;
        }
        if let Some(line) = self.lines.get_mut(&queue) {
            line.paused = Some(why);
            let until = Instant::now() + span.min(Duration::from_secs(86_400));
            let lane = line.lane;
            if self.pauses.insert((until, line.round, queue, lane)) {
                self.lanes.get(lane).pauses += 1;
            }
        }
    }

    pub(super) fn end_pauses(&mut self, now: Instant) {
        while self.pauses.first().is_some_and(|(until, ..)| *until <= now) {
            let Some((.., queue, lane)) = self.pauses.pop_first() else { break };
            self.lanes.get(lane).pauses -= 1;
            if let Some(line) = self.lines.get_mut(&queue) {
                line.paused = None;
            }
            self.take_turn(queue.clone());
            self.forget(&queue);
        }
    }
}
