//! Windows of which nothing was left, until the reset that was told.

use request_balancer::engine::{Instant, NextStart, ServerWindow};

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
    /// The window may have ended then.
    earliest: Instant,
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
        if let (Some(0), Some(reset)) = (window.left, window.reset) {
            // What is over, by its whole units, is over with the next one.
            let lasts = if reset.after.is_zero() { reset.grain } else { reset.after };
            let earliest = (sent.saturating_add(reset.after)).saturating_sub(reset.grain);
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

impl Hold {
    /// Whether the word is of the same window, and was asked for later or when the window may have ended.
    fn is_ended_by(&self, other: &Word) -> bool {
        let Word { window, sent, read } = self.word;
        let is_same = window.name == other.window.name
            && (window.per == other.window.per || window.per.is_none() || other.window.per.is_none());
        is_same && (other.sent > sent || other.sent >= read || other.read >= self.earliest)
    }
}
