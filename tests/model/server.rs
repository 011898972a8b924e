//! What a server said, the slow way: a list of all it ever said, gone through for every question.

use super::books::{Books, Stage};
use super::limits::{Attempt, Kind, Limit};
use super::spec::MS;

/// The server's windows begin anew at multiples of this.
pub(crate) const GRID: u64 = 40 * MS;

/// What a response said of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// Position of the limit.
    pub(crate) limit: usize,
    /// Whose limit it is, where each key has its own.
    pub(crate) key: u64,
    pub(crate) left: u64,
    /// The most that it is known by this word to allow.
    pub(crate) most: u64,
    /// When the attempt began that it answers.
    pub(crate) sent: u64,
    pub(crate) reset: u64,
    /// How many attempts had ended or been answered before.
    pub(crate) order: u64,
}

/// How an attempt came to be no longer awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) at: u64,
    pub(crate) order: u64,
    /// The limit that its response told of.
    pub(crate) told: Option<usize>,
}

impl Books {
    /// The limit that is narrowed by what names the count and the period of this one: of several with the same, the one
    /// that binds fewest.
    pub(crate) fn narrowed(&self, limit: usize, rule: usize, key: u64) -> usize {
        let period = |limit: &Limit| match limit.kind {
            Kind::Starts(period, _) | Kind::Responses(period, _) => Some(period),
            Kind::Running | Kind::Day(_) | Kind::Spaced(_) | Kind::Bucket(_) => None,
        };
        let meant = &self.limits[limit];
        let is_alike = |other: &Limit| match (period(meant), period(other)) {
            (Some(one), Some(other_period)) => {
                other.binds(rule, key)
                    && other.count == meant.count
                    && one.max(other_period) * 10 <= one.min(other_period) * 11
            }
            (Some(_) | None, _) => false,
        };
        let breadth = |other: &Limit| match (other.each_key, other.private) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
        let alike = (0..self.limits.len()).filter(|&other| is_alike(&self.limits[other]));
        alike.min_by_key(|&other| (breadth(&self.limits[other]), other)).unwrap_or(limit)
    }

    /// What the server leaves of a limit beside what it may not have counted yet, and until when. `None`: it said
    /// nothing that still counts.
    pub(crate) fn left_by_server(&self, position: usize, key: u64, perhaps: bool) -> Option<(i64, u64)> {
        let limit = &self.limits[position];
        let is_same = |word: &&Word| word.limit == position && (!limit.each_key || word.key == key);
        let words = || self.words_said.iter().filter(is_same);
        let first = words().map(|word| word.order).min()?;
        // A later window replaces what was said of those before it.
        let reset = words().map(|word| word.reset).max().filter(|&reset| reset > self.now)?;
        let concerned = |attempt: &&Attempt| limit.concerns(Some(key), attempt.rule, attempt.key);
        let silent = |after: u64| -> u64 {
            let done = self.attempts.iter().filter(concerned).filter(|attempt| {
                attempt.done.is_some_and(|done| done.at >= after && done.order > first && done.told != Some(position))
            });
            done.map(|attempt| limit.takes(attempt.cost)).sum()
        };
        let awaited: u64 = self
            .attempts
            .iter()
            .filter(concerned)
            .filter(|attempt| attempt.done.is_none())
            .map(|attempt| limit.takes(attempt.cost))
            .sum();
        let taken = awaited + self.outstanding(limit, key, perhaps);
        let this = words().filter(|word| word.reset == reset);
        let sent = this.clone().map(|word| word.sent).max()?;
        let left = (this.map(|word| word.left).min()? as i64 - silent(sent) as i64).max(0);
        Some((left - taken as i64, reset))
    }

    /// Whether the machine may hold the window of a limit that binds a queue to give back one at a time, past its reset.
    ///
    /// It does from a word on that told of less than half of the window after nothing had been left of it, until such a
    /// word tells of more. Which of several words comes first there depends on more than is written down here.
    pub(crate) fn may_trickle(&self, rule: usize, key: u64) -> bool {
        let bound = (0..self.limits.len()).filter(|&position| self.limits[position].binds(rule, key));
        bound.into_iter().any(|position| self.window_may_trickle(position, key))
    }

    fn window_may_trickle(&self, position: usize, key: u64) -> bool {
        let limit = &self.limits[position];
        let lasts = match limit.kind {
            Kind::Starts(period, _) | Kind::Responses(period, _) => period,
            Kind::Running | Kind::Day(_) | Kind::Spaced(_) | Kind::Bucket(_) => limit.period,
        };
        let words = || {
            let is_same = |word: &&Word| word.limit == position && (!limit.each_key || word.key == key);
            self.words_said.iter().filter(is_same)
        };
        let gave_back_little = |word: &Word| {
            let most = words().filter(|known| known.order <= word.order).map(|known| known.most).max().unwrap_or(0);
            let emptied = |known: &Word| known.order < word.order && known.left == 0 && known.reset <= word.sent;
            word.left < most / 2 && words().any(emptied)
        };
        words()
            .filter(|word| word.reset <= self.now && self.now < word.reset + lasts)
            .any(|word| words().any(|known| known.order <= word.order && gave_back_little(known)))
    }

    /// The response to a running attempt told this of a limit.
    pub(crate) fn told(&mut self, number: usize, position: usize, (left, of): (u64, u64), reset: u64) {
        let request = &self.requests[number];
        let Stage::Running(attempt) = request.stage else { return };
        let (key, sent) = (request.entry.key, self.attempts[attempt].start);
        self.order += 1;
        let most = of.max(left + 1);
        self.words_said.push(Word { limit: position, key, left, most, sent, reset, order: self.order });
        self.order += 1;
        self.attempts[attempt].done = Some(Done { at: self.now, order: self.order, told: Some(position) });
        self.loosened += 1;
    }

    /// Until when a key's record is needed for what the server said.
    pub(crate) fn told_until(&self, key: u64) -> u64 {
        let of_key = self.words_said.iter().filter(|word| self.limits[word.limit].each_key && word.key == key);
        of_key.map(|word| word.reset).max().unwrap_or(0)
    }
}
