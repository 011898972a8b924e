//! One queue of an outbox, as far as it is in memory: a window of its messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::lane::Load;
use super::letter::{Letter, Phase};
use super::record::Unix;
use super::stuck::Outlook;

/// A queue's window.
pub(super) struct Line<T, E> {
    window: BTreeMap<u64, Entry<T, E>>,
    /// There may be messages in the store that are not in the window.
    pub(super) more: bool,
    /// None of them stands before this place.
    pub(super) least: u64,
    /// So many of them at most are being read, if any are.
    pub(super) filling: Option<usize>,
    /// What is being read comes after messages that were taken out of the window meanwhile.
    pub(super) stale: bool,
    /// It waits for its turn to be filled.
    pub(super) in_turn: bool,
    /// Nothing is read before it is woken.
    pub(super) paused: Option<Pause>,
    /// The priority of the lane whose places its messages take.
    pub(super) lane: u32,
    /// Larger than those of queues from which something was sent longer ago.
    pub(super) round: u64,
    turn: Option<Arc<Turn>>,
}

/// Why nothing of a queue is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Its limits let nothing start, or it finds no room.
    Limits,
    /// It was told to wait.
    Told,
}

/// Whose turn it is in a queue whose messages come one after the other, however often each has to be tried.
#[derive(Debug)]
pub(super) struct Turn {
    /// The message that was tried and has not come to its end.
    begun: Mutex<Option<u64>>,
    over: Notify,
}

impl Turn {
    fn new() -> Arc<Self> {
        Arc::new(Self { begun: Mutex::new(None), over: Notify::new() })
    }

    /// Waits for those before it to come to their ends.
    pub(super) async fn begin(&self, place: u64) {
        loop {
            let over = self.over.notified();
            if self.try_begin(place) {
                return;
            }
            over.await;
        }
    }

    fn try_begin(&self, place: u64) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let is_its = begun.is_none_or(|other| place <= other);
        if is_its {
            *begun = Some(place);
        }
        is_its
    }

    /// The message came to its end.
    pub(super) fn end(&self, place: u64) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if *begun == Some(place) {
            *begun = None;
            self.over.notify_waiters();
        }
    }
}

struct Entry<T, E> {
    letter: Arc<Letter<T, E>>,
    task: AbortHandle,
    bytes: u64,
    /// On its way out of the line.
    leaving: bool,
}

impl<T: Send + 'static, E: std::fmt::Display + Send + 'static> Line<T, E> {
    pub(super) fn new(round: u64, lane: u32) -> Self {
        Self {
            window: BTreeMap::new(),
            more: false,
            least: u64::MAX,
            filling: None,
            stale: false,
            in_turn: false,
            paused: None,
            lane,
            round,
            turn: None,
        }
    }

    /// There are messages in the store that are not in the window, none before that place.
    pub(super) fn has_from(&mut self, place: u64) {
        self.least = if self.more || self.filling.is_some() { self.least.min(place) } else { place };
        self.more = true;
    }

    pub(super) fn turn(&mut self) -> Arc<Turn> {
        Arc::clone(self.turn.get_or_insert_with(Turn::new))
    }

    /// Whoever had begun may not be there any more, unless it still runs.
    pub(super) fn forget_turn(&mut self) {
        if self.window.is_empty() {
            self.turn = None;
        }
    }

    /// Whether nothing is known of it that the store does not know.
    pub(super) fn is_over(&self) -> bool {
        self.window.is_empty() && !self.more && self.filling.is_none() && self.paused.is_none()
    }

    /// Whether nothing of it is in memory or about to be.
    pub(super) fn is_idle(&self) -> bool {
        self.window.is_empty() && self.filling.is_none() && self.paused.is_none() && !self.in_turn
    }

    /// What it takes of its lane.
    pub(super) fn load(&self) -> Load {
        let bytes = self.window.values().map(|entry| entry.bytes).sum();
        Load { messages: self.window.len(), bytes, reading: self.filling }
    }

    pub(super) fn holds(&self, place: u64) -> bool {
        self.window.contains_key(&place)
    }

    pub(super) fn places(&self) -> BTreeSet<u64> {
        self.window.keys().copied().collect()
    }

    pub(super) fn insert(&mut self, letter: Arc<Letter<T, E>>, task: AbortHandle, bytes: u64) {
        // The first ones go first.
        self.least = letter.stored.place.saturating_add(1);
        self.window.insert(letter.stored.place, Entry { letter, task, bytes, leaving: false });
    }

    /// Takes a message out; its bytes.
    pub(super) fn remove(&mut self, place: u64) -> Option<u64> {
        self.window.remove(&place).map(|entry| entry.bytes)
    }

    /// How many are in line or run: they take up the window.
    pub(super) fn active(&self) -> usize {
        self.window.len() - self.waiting()
    }

    /// How many wait because an attempt failed.
    pub(super) fn waiting(&self) -> usize {
        self.window.values().filter(|entry| entry.letter.phase() == Phase::Waiting).count()
    }

    /// Takes a message out of the balancer's line, unless an attempt runs; it stays in the window. Returns it if it is out.
    pub(super) fn withdraw(&mut self, place: u64) -> Option<Arc<Letter<T, E>>> {
        let entry = self.window.get_mut(&place)?;
        if entry.leaving || !entry.letter.withdraw() {
            return None;
        }
        entry.leaving = true;
        entry.task.abort();
        entry.letter.queued();
        Some(Arc::clone(&entry.letter))
    }

    /// Whether a message is not to go on after its attempt, and nobody has taken it out yet.
    pub(super) fn has_halted(&self, place: u64) -> bool {
        self.window.get(&place).is_some_and(|entry| !entry.leaving && entry.letter.phase() == Phase::Withdrawn)
    }

    /// The same for all of them; those that are out leave the window, too. Returns how many, and their bytes.
    pub(super) fn withdraw_all(&mut self) -> (usize, u64) {
        self.withdraw_from(0)
    }

    /// The same for those behind one, which is to come again before them.
    pub(super) fn withdraw_behind(&mut self, place: u64) -> (usize, u64) {
        self.withdraw_from(place.saturating_add(1))
    }

    fn withdraw_from(&mut self, first: u64) -> (usize, u64) {
        self.stale |= self.filling.is_some();
        let places: Vec<u64> = self.window.range(first..).map(|(place, _)| *place).collect();
        let mut out = (0, 0);
        for place in places {
            if self.withdraw(place).is_some() {
                out = (out.0 + 1, out.1 + self.remove(place).unwrap_or(0));
                self.has_from(place);
            }
        }
        out
    }

    /// Cuts off what runs. Returns how many attempts that were.
    pub(super) fn abort_all(&mut self) -> usize {
        let running = self.window.values().filter(|entry| entry.letter.phase() == Phase::Running).count();
        for (_, entry) in std::mem::take(&mut self.window) {
            entry.task.abort();
            entry.letter.queued();
        }
        running
    }

    /// Whether anything that was put before `bound` is on its way and was not told to wait.
    pub(super) fn is_busy(&self, bound: u64) -> bool {
        let on_its_way = |entry: &Entry<T, E>| match entry.letter.phase() {
            Phase::InLine | Phase::Running => true,
            Phase::Waiting => false,
            // Not yet taken out, it may well go on if what was to halt it is over by then.
            Phase::Withdrawn => !entry.leaving,
        };
        self.window.range(..bound).any(|(_, entry)| on_its_way(entry))
            || self.filling.is_some()
            || (self.more && self.paused != Some(Pause::Told) && self.least < bound)
    }

    /// Whether nothing of it starts for long, whoever waits in its place.
    pub(super) fn is_stuck(&self, now: Unix) -> bool {
        let in_line = self.window.values().filter(|entry| match entry.letter.phase() {
            Phase::InLine => true,
            // Its wait may be over, and then it stands in line like any other.
            Phase::Waiting => entry.letter.due() <= now,
            Phase::Running | Phase::Withdrawn => false,
        });
        let outlooks = in_line.map(|entry| entry.letter.outlook()).find(|outlook| *outlook != Outlook::SteppedOut);
        outlooks == Some(Outlook::Stuck) && !self.runs()
    }

    /// Whether its messages come one after the other.
    pub(super) fn ordered(&self) -> bool {
        self.window.values().any(|entry| entry.letter.terms().ordered)
    }

    /// Until when all of them wait for the first one, as they come one after the other, if that is after `due`.
    pub(super) fn waits_in_order_until_after(&self, due: Unix) -> Option<Unix> {
        let first = &self.window.first_key_value()?.1.letter;
        let waits = first.phase() == Phase::Waiting && self.ordered() && !self.runs();
        waits.then(|| first.due()).filter(|until| *until > due)
    }

    /// Those that wait after a failed attempt, until after `due`.
    pub(super) fn waiting_until_after(&self, due: Unix) -> Vec<u64> {
        let waits = |entry: &Entry<T, E>| entry.letter.phase() == Phase::Waiting && entry.letter.due() > due;
        self.window.iter().filter(|(_, entry)| waits(entry)).map(|(place, _)| *place).collect()
    }

    /// Whether an attempt runs.
    pub(super) fn runs(&self) -> bool {
        self.window.values().any(|entry| entry.letter.phase() == Phase::Running)
    }
}
