//! What servers said of a limit, beside what the store counts itself: so many are left of each of their windows, less what
//! was given since.

use super::ceil;
use crate::engine::{ALL, Said, Serial, Stand, WINDOWS};

/// By so much resets of one window differ that are told in whole seconds, in microseconds.
const SECOND: u64 = 1_000_000;

/// How much a store gave of a limit, and what servers leave of it.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) last: Serial,
    windows: Vec<Window>,
}

/// A server's window.
#[derive(Clone, Copy, Debug)]
struct Window {
    name: u64,
    left: u32,
    /// The start that was answered with that.
    answered: Serial,
    until: u64,
}

impl Given {
    pub(super) const fn new(now: u64) -> Self {
        Self { last: Serial { epoch: now, number: 0 }, windows: Vec::new() }
    }

    /// Forgets windows that are over.
    pub(super) fn open(&mut self, now: u64) {
        self.windows.retain(|window| window.until > now);
    }

    /// Takes in what a server said, unless something newer is known. Returns whether more is left than was known, or sooner.
    pub(super) fn hear(&mut self, now: u64, said: &Said) -> bool {
        let Said { window: name, left, answered, is_now, reset } = *said;
        let answered = answered.unwrap_or(self.last);
        if name == ALL {
            let count = self.windows.len();
            self.windows.retain(|window| window.answered > answered);
            return self.windows.len() < count;
        }
        let given = u32::try_from(answered.until(self.last)).unwrap_or(u32::MAX);
        let heard = Window { name, left: left.saturating_sub(given), answered, until: now + ceil(reset) };
        let position = self.windows.iter().position(|window| window.name == name);
        let known = position.map(|position| self.windows[position]);
        let is_known = known.is_some_and(|known| {
            known.answered > answered || known.answered == answered && !is_now && known.left <= heard.left
        });
        if is_known || heard.until <= now {
            return false;
        }
        if let Some(position) = position {
            self.windows.remove(position);
        }
        self.windows.push(heard);
        let mut frees = known.is_some_and(|known| known.left < heard.left || known.until > heard.until + SECOND);
        if self.windows.len() > WINDOWS
            && let Some(widest) = (0..self.windows.len()).max_by_key(|position| self.windows[*position].left)
        {
            frees |= self.windows.remove(widest).name != name;
        }
        frees
    }

    /// For how long servers leave less than that.
    pub(super) fn wait(&self, now: u64, wanted: u64) -> Option<u64> {
        let short = self.windows.iter().filter(|window| u64::from(window.left) < wanted);
        short.map(|window| window.until - now).max()
    }

    pub(super) fn take(&mut self, cost: u32) {
        self.last.number += u64::from(cost);
        for window in &mut self.windows {
            window.left = window.left.saturating_sub(cost);
        }
    }

    /// Until when anything is known of servers.
    pub(super) fn until(&self) -> u64 {
        self.windows.iter().map(|window| window.until).max().unwrap_or(0)
    }

    /// How a limit stands that has so much room by itself.
    pub(super) fn stand(&self, room: u64) -> Stand {
        let windows = self.windows.iter().map(|window| (window.name, window.left)).collect();
        Stand { last: self.last, room: u32::try_from(room).unwrap_or(u32::MAX), windows }
    }
}
