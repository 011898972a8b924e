//! An outbox that pauses, stops, or is closed; and who waits for that, or for a flush.

use std::fmt;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::courier::Courier;
use super::line::Line;
use super::note::Closed;
use super::record::Queue;
use super::stuck::is_held;

/// Whether messages are on their way.
#[derive(Debug)]
pub(super) enum Halt {
    No,
    /// For good.
    Stopped,
    /// What runs may go on until then.
    Closing(Instant, Vec<oneshot::Sender<Closed>>),
    Over,
}

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    /// Takes everything out of the line until it is told otherwise.
    pub(super) fn suspend(&mut self, reply: oneshot::Sender<()>) {
        self.pausers += 1;
        self.emptied.push(reply);
        self.withdraw_all();
    }

    /// One of those who keep the line empty does so no more.
    pub(super) fn resume(&mut self) {
        self.pausers -= 1;
        if !self.starts() {
            return;
        }
        self.office.halted.store(false, Ordering::SeqCst);
        // Whose turn it was may be gone.
        self.lines.values_mut().for_each(Line::forget_turn);
        let queues: Vec<Queue> = self.lines.keys().cloned().collect();
        queues.into_iter().for_each(|queue| self.take_turn(queue));
    }

    /// Nothing can be sent any more.
    pub(super) fn stop(&mut self) {
        if matches!(self.halt, Halt::No) {
            self.halt = Halt::Stopped;
            self.withdraw_all();
        }
    }

    /// Whoever wants it closed first decides.
    pub(super) fn begin_to_close(&mut self, by: Instant, reply: oneshot::Sender<Closed>) {
        if let Halt::Closing(first, replies) = &mut self.halt {
            *first = by.min(*first);
            replies.push(reply);
            return;
        }
        self.halt = Halt::Closing(by, vec![reply]);
        self.done = 0;
        self.withdraw_all();
    }

    /// Whether messages may go into line.
    pub(super) const fn starts(&self) -> bool {
        matches!(self.halt, Halt::No) && self.pausers == 0
    }

    pub(super) const fn has_stopped(&self) -> bool {
        !matches!(self.halt, Halt::No)
    }

    /// Takes everything out of the line. What runs may go on, but not from one attempt to the next.
    pub(super) fn withdraw_all(&mut self) {
        self.office.halted.store(true, Ordering::SeqCst);
        for line in self.lines.values_mut() {
            self.lanes.get(line.lane).leave(line.withdraw_all());
        }
    }

    /// Everything that was due when a flush was asked for is in line by now.
    pub(super) fn begin_flushes(&mut self) {
        for flush in self.flushes.iter_mut().filter(|flush| !flush.has_begun()) {
            flush.begin(self.office.counts().next, self.lines.keys(), self.searches.needed());
        }
    }

    /// Answers flushes that are over, and whoever waits for the line to be empty.
    pub(super) fn check_flushes(&mut self) {
        let stopped = self.has_stopped();
        let (lines, searches, balancer) = (&self.lines, &self.searches, &self.office.balancer);
        self.flushes.retain_mut(|flush| {
            let is_busy = |queue: &Queue, bound| {
                let Some(line) = lines.get(queue) else { return false };
                !stopped && line.is_busy(bound) && (line.runs() || !is_held(balancer, queue))
            };
            !(flush.check(is_busy, |passes| searches.have_passed(passes)) || stopped && flush.give_up())
        });
        if self.lanes.are_empty() {
            for reply in self.emptied.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    pub(super) fn is_over(&mut self) -> bool {
        if self.lanes.are_empty() {
            self.close();
        }
        matches!(self.halt, Halt::Over)
    }

    /// Cuts off what still runs, and says so to whoever wants it closed.
    pub(super) fn close(&mut self) {
        if let Halt::Closing(_, replies) = &mut self.halt {
            let aborted = self.lines.values_mut().map(Line::abort_all).sum();
            let closed = Closed { done: self.done, aborted, left: 0 };
            for reply in std::mem::take(replies) {
                let _ = reply.send(closed);
            }
            self.halt = Halt::Over;
        }
    }
}
