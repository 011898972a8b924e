//! What a response said: a small, fixed amount of plain values.

use std::fmt;
use std::time::Duration;

use arrayvec::ArrayVec;

use super::dialect::{REQUESTS, ServerScope};
use super::name::Name;

/// More windows than anybody tells in one response.
pub(super) const WINDOWS: usize = 8;
const NOTES: usize = 4;

/// What a response said about the server's own counters, as [`read`](super::read) understood it.
///
/// Nothing was said by the [default](Self::default).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Observation {
    pub(super) windows: ArrayVec<Window, WINDOWS>,
    pub(super) wait: Option<Duration>,
    pub(super) throttled: bool,
    pub(super) is_final: bool,
    pub(super) scope: Option<ServerScope>,
    pub(super) full_refill: bool,
    pub(super) notes: ArrayVec<Note, NOTES>,
}

impl Observation {
    /// Every window that was told, up to eight.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The window that stands most in the way of the next request: of those with nothing left, whatever their unit, the
    /// one that begins anew last; else, of those that count requests, the one with the least left.
    #[must_use]
    pub fn binding(&self) -> Option<&Window> {
        let exhausted = self.windows.iter().filter(|window| window.is_exhausted());
        let requests = || self.windows.iter().filter(|window| *window.unit == *REQUESTS);
        exhausted
            .max_by_key(|window| (window.reset_after(), window.per))
            .or_else(|| requests().min_by(|a, b| a.room().cmp(&b.room()).then(b.end().cmp(&a.end()))))
    }

    /// How long the server says to wait before the next request. At most 366 days. `None`: it does not say, which is
    /// not the same as zero.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Whether the request was refused because there were too many.
    #[must_use]
    pub fn throttled(&self) -> bool {
        self.throttled
    }

    /// Whether the server says that no wait will help, such as when an account is out of credit.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// Whom the refusal is about, or, if there was none, for whom the [binding](Self::binding) window counts. `None`:
    /// not told; the key of the request is the safe guess.
    #[must_use]
    pub fn scope(&self) -> Option<ServerScope> {
        self.scope
    }

    /// Whether resets are the moments at which whole quotas are there again, so that [`wait`](Self::wait) counts in
    /// their place where it is told.
    #[must_use]
    pub fn resets_are_full_refills(&self) -> bool {
        self.full_refill
    }

    /// What was not understood or not believed, up to four: the response was read as if it were not there.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether anything was told that a limit could be narrowed by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.wait.is_none() && !self.throttled
    }

    /// Adds a window; if there is no room, the one that binds least goes.
    pub(super) fn push(&mut self, window: Window) {
        if let Err(full) = self.windows.try_push(window) {
            let window = full.element();
            self.note("windows", NoteKind::TooMany);
            let slack = |window: &Window| (window.remaining.unwrap_or(u64::MAX), window.reset_after());
            if let Some(loosest) = self.windows.iter_mut().max_by_key(|known| slack(known))
                && slack(loosest) > slack(&window)
            {
                *loosest = window;
            }
        }
    }

    pub(super) fn note(&mut self, field: impl AsRef<[u8]>, kind: NoteKind) {
        // Four of them say enough.
        let _ = self.notes.try_push(Note { field: Name::beginning(field.as_ref()), kind });
    }
}

/// One window of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// The name that the server or the dialect gives it, else the beginning of its fields' names.
    pub name: Name,
    /// What it counts: `requests`, `tokens`, …
    pub unit: Name,
    /// How many it allows.
    pub limit: Option<u64>,
    /// How many are left; never above `limit`. `None`: not told, which is not zero.
    pub remaining: Option<u64>,
    /// When it begins anew.
    pub reset: Option<Reset>,
    /// How long it is.
    pub per: Option<Duration>,
    /// For whom it counts.
    pub scope: Option<ServerScope>,
}

impl Window {
    /// Whether nothing is left of it.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Time from the response to its reset, zero if that is over. At most 366 days.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.reset.map(Reset::after)
    }

    /// What is left, where nothing told is room without end.
    fn room(&self) -> u64 {
        self.remaining.unwrap_or(u64::MAX)
    }

    fn end(&self) -> (Option<Duration>, Option<Duration>) {
        (self.reset_after(), self.per)
    }
}

/// When a window begins anew, seen from the moment at which the response was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// After this time. The server may have rounded it, up or down, by up to the grain: a second where it writes whole
    /// seconds. Nobody waits for the grain: what was rounded down is asked for too early by as much, and then refused.
    In {
        /// Time from the response.
        after: Duration,
        /// How much later it may be.
        grain: Duration,
    },
    /// It did already: what was told is about a window that is gone.
    Over,
}

impl Reset {
    /// The time until then, zero if it is over.
    #[must_use]
    pub fn after(self) -> Duration {
        match self {
            Self::In { after, .. } => after,
            Self::Over => Duration::ZERO,
        }
    }
}

/// Something in a response that was left out, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    field: Name,
    kind: NoteKind,
}

impl Note {
    /// The header field, or what else it is about.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Why it was left out.
    #[must_use]
    pub fn kind(&self) -> NoteKind {
        self.kind
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            NoteKind::Unreadable => "not understood",
            NoteKind::TooFar => "more than 366 days ahead",
            NoteKind::NotApplicable => "a negative limit, which means none",
            NoteKind::Cached => "of a cached response",
            NoteKind::TooMany => "too many",
        };
        write!(f, "{}: {why}", self.field)
    }
}

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteKind {
    /// Its value has no form that is known.
    Unreadable,
    /// It is further ahead than anybody waits.
    TooFar,
    /// A limit below zero says that there is none.
    NotApplicable,
    /// The response came from a cache: its numbers are old.
    Cached,
    /// There is no room for all.
    TooMany,
}
