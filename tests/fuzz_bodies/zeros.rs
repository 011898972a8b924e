//! Windows of which nothing was left, until the reset that was told, or for as long as the window is.

use request_balancer::engine::{Instant, Nanos, NextStart, ServerWindow};

/// No limit that a window may narrow is shorter.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// What was said, as far as it can end a hold or be one.
#[derive(Default)]
pub(crate) struct Zeros {
    words: Vec<Word>,
    holds: Vec<Hold>,
}

#[derive(Clone, Copy)]
struct Word {
    window: ServerWindow<'static>,
    sent: Instant,
    read: Instant,
}

struct Hold {
    word: Word,
    /// The window may have ended then, if its end was told.
    earliest: Option<Instant>,
    until: Instant,
}

impl Zeros {
    /// A window was told of in the answer to what was sent then.
    pub(crate) fn say(&mut self, window: ServerWindow<'static>, sent: Instant, read: Instant) {
        if window.left.is_none() {
            return;
        }
        let word = Word { window, sent, read };
        self.holds.retain(|hold| !hold.is_ended_by(&word));
        if window.left == Some(0) {
            let lasts = match window.reset {
                // What is over, by its whole units, is over with the next one.
                Some(reset) if reset.after.is_zero() => reset.grain,
                Some(reset) => reset.after,
                None => window.per.unwrap_or(SHORTEST),
            };
            let earliest = word.earliest();
            let hold = Hold { word, earliest, until: read.saturating_add(lasts) };
            if !self.words.iter().any(|known| hold.is_ended_by(known)) {
                self.holds.push(hold);
            }
        }
        self.words.push(word);
    }

    /// Nothing starts before the reset.
    pub(crate) fn judge(&mut self, now: Instant, next: NextStart) {
        self.holds.retain(|hold| hold.until > now);
        for Hold { word, until, .. } in &self.holds {
            let holds = match next {
                NextStart::Now => false,
                NextStart::At(at) => at >= *until,
                NextStart::WhenOneEnds | NextStart::Never => true,
            };
            assert!(holds, "{next:?} at {now:?}, though until {until:?} nothing is left: {:?}", word.window);
        }
    }
}

impl Word {
    /// When its window may have ended, if its end was told.
    fn earliest(&self) -> Option<Instant> {
        let reset = self.window.reset?;
        Some(self.sent.saturating_add(reset.after).saturating_sub(reset.grain))
    }
}

impl Hold {
    /// Whether the word is of the same window, and was asked for later or arrived when the window may have ended. Where no
    /// end was told, a word that tells one stands for it, unless that may have been before the hold.
    fn is_ended_by(&self, other: &Word) -> bool {
        let Word { window, sent, read } = self.word;
        let is_same = window.name == other.window.name
            && (window.per == other.window.per || window.per.is_none() || other.window.per.is_none());
        let is_over = match (self.earliest, other.earliest()) {
            (Some(earliest), _) => other.read >= earliest,
            (None, Some(of_other)) => read < of_other,
            (None, None) => false,
        };
        is_same && (other.sent > sent || other.sent >= read || is_over)
    }
}
