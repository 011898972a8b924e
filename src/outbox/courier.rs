//! Who brings stored messages on their way: a window of each queue is in the balancer's line, the rest in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::draft::Stored;
use super::event::OutboxEvent;
use super::flush::Flush;
use super::halt::Halt;
use super::lane::Lanes;
use super::letter::{End, Letter, Office, PATIENCE, Phase, REST, Reply};
use super::line::{Line, Pause};
use super::note::Note;
use super::record::{Queue, Unix};
use super::search::Searches;
use super::shelf::{self, PAGE};
use super::store::StoreError;

pub(super) struct Courier<T, E> {
    pub(super) office: Arc<Office<T, E>>,
    notes: mpsc::UnboundedReceiver<Note<T, E>>,
    pub(super) lines: BTreeMap<Queue, Line<T, E>>,
    pub(super) lanes: Lanes,
    /// Queues that pause, by when they are woken and by who was sent from longest ago; and whose lane counts them.
    pub(super) pauses: BTreeSet<(Instant, u64, Queue, u32)>,
    /// How often a queue was the last one to be sent from.
    pub(super) round: u64,
    /// Those that have no line here, though they have messages.
    pub(super) searches: Searches,
    pub(super) due: Option<Unix>,
    /// When it is looked for names whose time is over; `None`: that is being done.
    forgets: Option<Instant>,
    entering: bool,
    pub(super) window: usize,
    pub(super) flushes: Vec<Flush>,
    /// Who wants the line to be empty, and how many of them keep it empty.
    pub(super) emptied: Vec<oneshot::Sender<()>>,
    pub(super) pausers: usize,
    pub(super) halt: Halt,
    pub(super) done: usize,
}

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Courier<T, E> {
    pub(super) fn start(
        office: Arc<Office<T, E>>,
        notes: mpsc::UnboundedReceiver<Note<T, E>>,
        window: usize,
    ) -> JoinHandle<()> {
        let counts = office.counts();
        let searches = Searches::new(&office.balancer, counts.messages == 0, counts.next);
        let courier = Self {
            office,
            notes,
            lines: BTreeMap::new(),
            lanes: Lanes::default(),
            pauses: BTreeSet::new(),
            round: 0,
            searches,
            due: None,
            forgets: Some(Instant::now()),
            entering: false,
            window,
            flushes: Vec::new(),
            emptied: Vec::new(),
            pausers: 0,
            halt: Halt::No,
            done: 0,
        };
        tokio::spawn(courier.run())
    }

    async fn run(mut self) {
        self.ask_when();
        loop {
            self.fill();
            self.check_flushes();
            if self.is_over() {
                break;
            }
            let note = match self.next_wake() {
                Some(wake) => timeout_at(wake, self.notes.recv()).await,
                None => Ok(self.notes.recv().await),
            };
            match note {
                Ok(Some(Note::Abandoned) | None) => break,
                Ok(Some(note)) => self.take_in(note),
                Err(_) => {}
            }
            self.wake(Instant::now());
        }
        self.withdraw_all();
        for line in self.lines.values_mut() {
            line.abort_all();
        }
        self.notes.close();
        while let Ok(note) = self.notes.try_recv() {
            note.turn_down();
        }
    }

    fn take_in(&mut self, note: Note<T, E>) {
        match note {
            Note::Arrived(messages, reply) => self.arrived(messages, reply),
            Note::Look(queues) => queues.into_iter().for_each(|queue| self.notice(queue, None)),
            Note::Search => self.search_again(Instant::now() + REST),
            Note::Due(due) => self.due = Some(self.due.map_or(due, |first| first.min(due))),
            Note::Entered(entered) => self.entered(entered),
            Note::NextDue(Ok(due)) => self.due = [self.due, due].into_iter().flatten().min(),
            Note::NextDue(Err(error)) => {
                self.failed(error);
                self.due = Some(self.office.clock.after(REST));
            }
            Note::Forgotten(others) => {
                let rest = if others { Duration::ZERO } else { PATIENCE };
                self.forgets = Some(Instant::now() + rest);
            }
            Note::Found(lane, found) => self.found(lane, found),
            Note::Loaded(queue, loaded) => self.loaded(queue, loaded),
            Note::Waits { queue, place } => self.waits(&queue, place),
            Note::Left { queue, place, due } => self.left(queue, place, due),
            Note::Ended { queue, place, end } => self.ended(queue, place, end),
            Note::Flush(reply) => {
                self.flushes.push(Flush::new(reply));
                self.due = Some(self.office.clock.now());
            }
            Note::Pause(reply) => self.suspend(reply),
            Note::Resume => self.resume(),
            Note::Close(by, reply) => self.begin_to_close(by, reply),
            Note::Abandoned => {}
        }
    }

    /// Messages were put: if nothing is before it a single one goes into line at once.
    fn arrived(&mut self, messages: Vec<Stored>, reply: Option<Reply<T, E>>) {
        let mut reply = reply;
        for stored in messages {
            let queue = stored.record.queue();
            // Where room is made, those before it may be taken out of the line.
            if self.starts() && self.is_next(&queue) && self.has_room_for(&queue) && self.is_next(&queue) {
                self.send(queue, stored, reply.take());
                continue;
            }
            if let Some(reply) = reply.take() {
                let _ = reply.send(Ok(super::letter::Delivery::Queued(stored.record.id)));
            }
            self.notice(queue, Some(stored.place));
        }
    }

    /// Whether what is put in a queue now has nothing before it but what is in line.
    fn is_next(&self, queue: &Queue) -> bool {
        self.lines.get(queue).map_or_else(
            || self.searches.cover(queue) && self.may_know(queue),
            |line| !line.more && line.filling.is_none() && line.paused.is_none() && line.active() < self.window,
        )
    }

    /// The queue's line, which is made if there is none.
    pub(super) fn line(&mut self, queue: &Queue) -> &mut Line<T, E> {
        let Self { lines, lanes, round, searches, .. } = self;
        lines.entry(queue.clone()).or_insert_with(|| {
            *round += 1;
            let lane = searches.priority(queue);
            lanes.get(lane).known += 1;
            Line::new(*round, lane)
        })
    }

    /// The queue's line goes.
    pub(super) fn remove(&mut self, queue: &Queue) -> Option<Line<T, E>> {
        let line = self.lines.remove(queue)?;
        self.lanes.get(line.lane).known -= 1;
        Some(line)
    }

    /// The lane whose places the queue's messages take.
    pub(super) fn lane_of(&self, queue: &Queue) -> u32 {
        self.lines.get(queue).map_or_else(|| self.searches.priority(queue), |line| line.lane)
    }

    fn entered(&mut self, entered: Result<(Vec<Queue>, bool), StoreError>) {
        self.entering = false;
        match entered {
            Ok((queues, again)) => {
                queues.into_iter().for_each(|queue| self.notice(queue, None));
                if again {
                    self.due = Some(self.office.clock.now());
                } else {
                    self.begin_flushes();
                    self.ask_when();
                }
            }
            Err(error) => {
                self.failed(error);
                // They may have entered it all the same.
                self.search_again(Instant::now() + REST);
                self.due = Some(self.office.clock.after(REST));
            }
        }
    }

    fn loaded(&mut self, queue: Queue, loaded: Result<(Vec<Stored>, bool), StoreError>) {
        let starts = self.starts();
        let Some(line) = self.lines.get_mut(&queue) else { return };
        if let Some(most) = line.filling.take() {
            let lane = self.lanes.get(line.lane);
            lane.reading -= most;
            lane.readers -= 1;
        }
        match loaded {
            Ok((messages, more)) => {
                // What came while it was read may stand before what was read.
                let least = if line.more { line.least } else { u64::MAX };
                line.more |= more;
                let is_stale = std::mem::take(&mut line.stale);
                if is_stale || !starts {
                    line.more = true;
                    self.take_turn(queue);
                    return;
                }
                for stored in messages {
                    let Some(line) = self.lines.get_mut(&queue) else { break };
                    // What comes after one that was turned away, or taken out to make room, waits behind it.
                    if line.paused.is_some() {
                        line.more = true;
                        break;
                    }
                    if !line.holds(stored.place) {
                        self.send(queue.clone(), stored, None);
                    }
                }
                if let Some(line) = self.lines.get_mut(&queue) {
                    line.least = line.least.min(least);
                }
                self.take_turn(queue.clone());
                self.forget(&queue);
            }
            Err(error) => {
                (line.more, line.stale) = (true, false);
                self.failed(error);
                self.pause(queue, REST, Pause::Told);
            }
        }
    }

    /// Brings a message into the balancer's line, if it is let in.
    fn send(&mut self, queue: Queue, stored: Stored, reply: Option<Reply<T, E>>) {
        let (place, bytes, doomed) = (stored.place, stored.size(), stored.progress.doomed);
        let turn = self.line(&queue).turn();
        let letter = Letter::new(Arc::clone(&self.office), queue.clone(), stored, turn, reply);
        let (office, back) = (Arc::clone(&self.office), queue.clone());
        let tell = Telling(Some(move |end| drop(office.inbox.send(Note::Ended { queue: back, place, end }))));
        let task = if doomed {
            let burying = Arc::clone(&letter).bury_again();
            tokio::spawn(async move { tell.tell(burying.await) }).abort_handle()
        } else {
            // Its place in the balancer's line is taken here, in the order of the queue.
            match letter.enter() {
                Ok(travelling) => tokio::spawn(async move { tell.tell(travelling.await) }).abort_handle(),
                Err(end) => {
                    self.comes_again(&queue, place, end);
                    return;
                }
            }
        };
        let waits = letter.phase() == Phase::Waiting;
        let line = self.line(&queue);
        line.insert(letter, task, bytes);
        let lane = line.lane;
        let lane = self.lanes.get(lane);
        lane.messages += 1;
        lane.bytes += bytes;
        if waits {
            self.waits(&queue, place);
        }
    }

    /// A message waits after a failed attempt. Others of its queue may go on, unless too many wait to be kept in line.
    fn waits(&mut self, queue: &Queue, place: u64) {
        let (window, starts) = (self.window, self.starts());
        let Some(line) = self.lines.get_mut(queue) else { return };
        if !starts || line.has_halted(place) {
            // It ran when all else was taken out of the line, and is not to go on; or not before those that may be again.
            self.lanes.get(line.lane).leave(line.withdraw_all());
            self.take_turn(queue.clone());
            return;
        }
        if line.waiting() <= window || !self.park(queue, place) {
            self.take_turn(queue.clone());
        }
    }

    /// Lets a message wait in the store. Returns whether it is on its way there.
    pub(super) fn park(&mut self, queue: &Queue, place: u64) -> bool {
        let Some(letter) = self.lines.get_mut(queue).and_then(|line| line.withdraw(place)) else { return false };
        let (stored, office, queue) = (letter.stored.clone(), Arc::clone(&self.office), queue.clone());
        let due = letter.due();
        self.office.desk.post(
            move |draft| {
                draft.park(&stored, due);
                Ok(due)
            },
            move |due| drop(office.inbox.send(Note::Left { queue, place, due })),
        );
        true
    }

    fn left(&mut self, queue: Queue, place: u64, due: Result<Unix, StoreError>) {
        self.leave(&queue, place);
        match due {
            Ok(due) => self.take_in(Note::Due(due)),
            Err(error) => {
                // In line or not, as far as the store goes.
                self.failed(error);
                self.line(&queue).has_from(place);
                self.due = Some(self.office.clock.after(REST));
            }
        }
        self.take_turn(queue.clone());
        self.forget(&queue);
    }

    fn ended(&mut self, queue: Queue, place: u64, end: End) {
        if !self.leave(&queue, place) {
            return;
        }
        self.flushes.iter_mut().for_each(|flush| flush.count(place, end));
        if end != End::Stopped {
            self.done += 1;
            self.searches.get(self.lane_of(&queue)).moves();
        }
        match end {
            End::Sent | End::Dead | End::Parked => {
                if let Some(line) = self.lines.get_mut(&queue) {
                    self.round += 1;
                    line.round = self.round;
                }
            }
            End::Again { in_order, .. } => {
                if in_order && let Some(line) = self.lines.get_mut(&queue) {
                    self.lanes.get(line.lane).leave(line.withdraw_behind(place));
                }
                self.comes_again(&queue, place, end);
            }
            End::Stopped => self.comes_again(&queue, place, end),
        }
        if !self.gives_way(&queue) {
            self.take_turn(queue.clone());
            self.forget(&queue);
        }
    }

    /// A message is still in the store, and out of the line.
    fn comes_again(&mut self, queue: &Queue, place: u64, end: End) {
        self.line(queue).has_from(place);
        match end {
            End::Again { pause, span, .. } if !span.is_zero() => self.pause(queue.clone(), span, pause),
            End::Stopped => self.stop(),
            End::Again { .. } | End::Sent | End::Dead | End::Parked => {}
        }
    }

    /// Takes a message out of its window. Returns whether it was there.
    fn leave(&mut self, queue: &Queue, place: u64) -> bool {
        let Some(line) = self.lines.get_mut(queue) else { return false };
        let Some(bytes) = line.remove(place) else { return false };
        self.lanes.get(line.lane).leave((1, bytes));
        true
    }

    pub(super) fn forget(&mut self, queue: &Queue) {
        if self.lines.get(queue).is_some_and(|line| line.is_over() && !line.in_turn) {
            self.remove(queue);
        }
    }

    /// Does what is due.
    fn wake(&mut self, now: Instant) {
        self.end_pauses(now);
        if self.due.is_some_and(|due| due <= self.office.clock.now()) && !self.entering && !self.has_stopped() {
            self.entering = true;
            self.due = None;
            let (now, office) = (self.office.clock.now(), Arc::clone(&self.office));
            self.office.desk.post(
                move |draft| draft.enter_due(now, PAGE),
                move |entered| drop(office.inbox.send(Note::Entered(entered))),
            );
        }
        if self.forgets_at().is_some_and(|at| at <= now) {
            self.forgets = None;
            let (now, office) = (self.office.clock.now(), Arc::clone(&self.office));
            self.office.desk.post(
                move |draft| draft.forget_some(now),
                // What could not be forgotten is forgotten later.
                move |others| drop(office.inbox.send(Note::Forgotten(others.unwrap_or_default()))),
            );
        }
        if let Halt::Closing(by, _) = self.halt
            && by <= now
        {
            self.close();
        }
    }

    /// When names are to be forgotten, if there are any.
    fn forgets_at(&self) -> Option<Instant> {
        self.forgets.filter(|_| !self.has_stopped() && self.office.counts().names > 0)
    }

    fn ask_when(&self) {
        let office = Arc::clone(&self.office);
        self.office.desk.look(shelf::next_due, move |due| drop(office.inbox.send(Note::NextDue(due))));
    }

    fn next_wake(&self) -> Option<Instant> {
        let pause = self.pauses.first().map(|(until, ..)| *until);
        let due = self.due.filter(|_| !self.entering && !self.has_stopped()).map(|due| self.office.clock.instant(due));
        let closing = match self.halt {
            Halt::Closing(by, _) => Some(by),
            Halt::No | Halt::Stopped | Halt::Over => None,
        };
        let search = self.searches.wake_at().filter(|_| self.starts());
        let look = self.flushes.iter().any(Flush::has_begun).then(|| Instant::now() + LOOK);
        [pause, due, closing, search, look, self.clears_again(), self.forgets_at()].into_iter().flatten().min()
    }

    pub(super) fn failed(&mut self, error: StoreError) {
        if error == StoreError::Closed {
            // Nobody writes any more: nothing can be sent.
            self.stop();
        }
        if error != StoreError::Closed || matches!(self.halt, Halt::Stopped) {
            self.office.events.tell(OutboxEvent::StoreFailed { error });
        }
    }
}

/// How often is looked whether a flush is over where nothing says so.
const LOOK: Duration = Duration::from_secs(1);

/// Tells of the end of a message, even of one that nobody thought of: a panic on its way.
struct Telling<F: FnOnce(End)>(Option<F>);

impl<F: FnOnce(End)> Telling<F> {
    fn tell(mut self, end: End) {
        if let Some(tell) = self.0.take() {
            tell(end);
        }
    }
}

impl<F: FnOnce(End)> Drop for Telling<F> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(tell) = self.0.take()
        {
            tell(End::again(Pause::Told, PATIENCE));
        }
    }
}
