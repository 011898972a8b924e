//! What is to be told, and which news of a thing is the newest while some of it is this process's own.
//!
//! The store says of each news when it was told. What is heard of something that is yet to be told from here may be older or
//! newer than that; it is put aside until the store has said when ours was told.
//!
//! Of breakers the newest news counts. Holds add up to the longest of them, and the end of one ends all before it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::store::{Heard, News};

/// News that wait to be told; what comes beyond is not told.
const UNTOLD: usize = 1_024;
/// Subjects of which it is known when they were last spoken of.
const KNOWN: usize = 4_096;
/// News that are put aside for one subject; of more the oldest go.
const ASIDE: usize = 32;

/// What goes out and what comes in.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    untold: VecDeque<Untold>,
    numbers: u64,
    /// Which of them is on its way, and until when it may be.
    out: Option<(u64, Instant)>,
    /// What was heard of what is untold.
    aside: BTreeMap<Arc<str>, Vec<Heard>>,
    known: HashMap<Arc<str>, Times>,
    order: BTreeSet<(u64, Arc<str>)>,
}

/// When the newest news of a subject were told.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Of a hold.
    held: u64,
    /// Of all else.
    other: u64,
}

impl Times {
    fn newest(self) -> u64 {
        self.held.max(self.other)
    }

    /// Whether news of then are newer than what they would undo.
    fn lets(self, news: &News, at: u64) -> bool {
        match news {
            News::Hold { .. } => at > self.other,
            News::Released { .. } | News::BreakerOpened { .. } | News::BreakerClosed { .. } => at > self.newest(),
            News::Ruled { .. } | News::Forgot { .. } | News::Freed { .. } => true,
        }
    }

    fn note(&mut self, news: &News, at: u64) {
        let time = if let News::Hold { .. } = news { &mut self.held } else { &mut self.other };
        *time = at.max(*time);
    }
}

/// News that are to be told, for as long as they are of use.
#[derive(Clone, Debug)]
pub(super) struct Untold {
    pub(super) number: u64,
    subject: Arc<str>,
    until: Option<Instant>,
    news: News,
}

impl Untold {
    /// With what is left of it.
    pub(super) fn left(&self) -> News {
        let mut news = self.news.clone();
        if let (News::Hold { lasts, .. } | News::BreakerOpened { lasts, .. }, Some(until)) = (&mut news, self.until) {
            *lasts = until - Instant::now();
        }
        news
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Ledger {
    /// Others are to be told, in place of what they were to be told of the same thing.
    pub(super) fn note(&mut self, now: Instant, news: News) {
        let Some(subject) = news.subject() else { return };
        let until = match &news {
            News::Hold { lasts, .. } | News::BreakerOpened { lasts, .. } => Some(now + *lasts),
            News::Released { .. }
            | News::BreakerClosed { .. }
            | News::Ruled { .. }
            | News::Forgot { .. }
            | News::Freed { .. } => None,
        };
        // A hold that begins after one was ended ends nothing by itself.
        let stays = |untold: &Untold| {
            matches!((&untold.news, &news), (News::Released { .. }, News::Hold { .. })) || *untold.subject != *subject
        };
        self.untold.retain(stays);
        if self.untold.len() < UNTOLD {
            self.numbers += 1;
            self.untold.push_back(Untold { number: self.numbers, subject: subject.into(), until, news });
        }
    }

    /// When what is on its way is given up by whoever tells next.
    pub(super) fn out_until(&self) -> Option<Instant> {
        self.out.map(|(_, until)| until)
    }

    /// Whatever is on its way is not waited for.
    pub(super) fn give_up(&mut self) {
        self.out = None;
    }

    /// What is to be told next, unless something is on its way, which it may be until `patience` is over. Also what was put
    /// aside for what is told no more.
    pub(super) fn next(&mut self, now: Instant, patience: Instant) -> (Option<Untold>, Vec<News>) {
        let (over, untold): (VecDeque<_>, VecDeque<_>) = self.untold.drain(..).partition(|untold| untold.is_over(now));
        self.untold = untold;
        let told_no_more =
            over.iter().filter(|over| !self.is_untold(&over.subject)).map(|over| Arc::clone(&over.subject));
        let told_no_more: Vec<_> = told_no_more.collect();
        let aside = told_no_more.iter().flat_map(|subject| self.take_aside(subject)).collect();
        if self.out.is_some_and(|(_, until)| until > now) {
            return (None, aside);
        }
        let next = self.untold.front().cloned();
        self.out = next.as_ref().map(|next| (next.number, patience));
        (next, aside)
    }

    /// It was told then, if there was an answer. Returns what was put aside and turned out to be newer.
    pub(super) fn told(&mut self, untold: &Untold, at: Option<u64>) -> Vec<News> {
        self.out.take_if(|(number, _)| *number == untold.number);
        let Some(at) = at else { return Vec::new() };
        self.untold.retain(|other| other.number != untold.number);
        self.learn(&untold.subject, &untold.news, at);
        // Unless something else is to be told of it meanwhile.
        if self.is_untold(&untold.subject) { Vec::new() } else { self.take_aside(&untold.subject) }
    }

    /// What was heard, if it is to be done now.
    pub(super) fn hear(&mut self, heard: Heard) -> Option<News> {
        let Some(subject) = heard.news.subject().map(Arc::<str>::from) else { return Some(heard.news) };
        let ours = self.untold.iter().find(|untold| untold.subject == subject);
        match (ours.map(|untold| &untold.news), &heard.news) {
            (None, _) | (Some(News::Hold { .. }), News::Hold { .. }) => {
                self.learn(&subject, &heard.news, heard.at).then_some(heard.news)
            }
            (Some(_), _) => {
                let aside = self.aside.entry(subject).or_default();
                aside.push(heard);
                if aside.len() > ASIDE {
                    aside.remove(0);
                }
                None
            }
        }
    }

    fn is_untold(&self, subject: &str) -> bool {
        self.untold.iter().any(|untold| *untold.subject == *subject)
    }

    fn take_aside(&mut self, subject: &Arc<str>) -> Vec<News> {
        let mut aside = self.aside.remove(subject).unwrap_or_default();
        aside.sort_by_key(|heard| heard.at);
        aside.retain(|heard| self.learn(subject, &heard.news, heard.at));
        aside.into_iter().map(|heard| heard.news).collect()
    }

    /// Returns whether it undoes nothing that is newer.
    fn learn(&mut self, subject: &Arc<str>, news: &News, at: u64) -> bool {
        let known = self.known.get(subject).copied();
        let mut times = known.unwrap_or_default();
        if !times.lets(news, at) {
            return false;
        }
        times.note(news, at);
        if let Some(known) = known {
            self.order.remove(&(known.newest(), Arc::clone(subject)));
        }
        self.known.insert(Arc::clone(subject), times);
        self.order.insert((times.newest(), Arc::clone(subject)));
        while self.order.len() > KNOWN
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Scope;
    use crate::shared::store::HeldPart;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(secs: u64) -> News {
        News::BreakerOpened { endpoint: "a".into(), lasts: SECOND * secs as u32, rest: SECOND, alone: false }
    }

    fn closed() -> News {
        News::BreakerClosed { endpoint: "a".into() }
    }

    fn hear(ledger: &mut Ledger, at: u64, news: News) -> Option<News> {
        ledger.hear(Heard { at, news })
    }

    #[test]
    fn older_news_never_undo_newer() {
        let mut ledger = Ledger::default();
        assert_eq!(hear(&mut ledger, 5, closed()), Some(closed()));
        assert_eq!(hear(&mut ledger, 4, opened(3)), None);
        assert_eq!(hear(&mut ledger, 5, closed()), None);
        assert_eq!(hear(&mut ledger, 6, opened(3)), Some(opened(3)));
    }

    /// This process closed it, and before the others know hears that it was opened: before or after that, only the store
    /// knows.
    #[tokio::test(start_paused = true)]
    async fn what_is_heard_meanwhile_waits_for_when_ours_was_told() {
        let now = Instant::now();
        for (told_at, done) in [(8, vec![]), (6, vec![opened(3)])] {
            let mut ledger = Ledger::default();
            ledger.note(now, closed());
            let (next, _) = ledger.next(now, now + SECOND);
            assert_eq!(hear(&mut ledger, 7, opened(3)), None);
            assert_eq!(hear(&mut ledger, 5, opened(9)), None);
            assert_eq!(ledger.told(&next.unwrap(), Some(told_at)), done);
            assert!(ledger.next(now, now).0.is_none());
            assert_eq!(hear(&mut ledger, 7, opened(3)), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn holds_add_up_and_only_a_later_release_ends_them() {
        let now = Instant::now();
        let held = HeldPart { scope: Scope::Key, rule: None, key: Some(5.into()), endpoint: None };
        let hold = |secs: u32| News::Hold { held: held.clone(), lasts: SECOND * secs };
        let released = || News::Released { held: held.clone() };
        let mut ledger = Ledger::default();
        ledger.note(now, hold(5));
        // One that is longer and was told before ours holds as well.
        assert_eq!(hear(&mut ledger, 3, hold(60)), Some(hold(60)));
        assert_eq!(hear(&mut ledger, 2, released()), None);
        let (next, _) = ledger.next(now, now + SECOND);
        assert!(ledger.told(&next.unwrap(), Some(4)).is_empty());
        assert_eq!(hear(&mut ledger, 6, released()), Some(released()));
        assert_eq!(hear(&mut ledger, 5, hold(60)), None);
        assert_eq!(hear(&mut ledger, 7, hold(1)), Some(hold(1)));
        // Ours to end it is on its way: what began before that is over, what began after it is not.
        ledger.note(now, released());
        for (at, secs) in [(8, 60), (10, 2), (11, 1)] {
            assert_eq!(hear(&mut ledger, at, hold(secs)), None);
        }
        let (next, _) = ledger.next(now, now + SECOND);
        assert_eq!(ledger.told(&next.unwrap(), Some(9)), [hold(2), hold(1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_is_told_before_the_hold_that_follows_it() {
        let now = Instant::now();
        let held = HeldPart { scope: Scope::Key, rule: None, key: Some(5.into()), endpoint: None };
        let mut ledger = Ledger::default();
        ledger.note(now, News::Released { held: held.clone() });
        ledger.note(now, News::Hold { held: held.clone(), lasts: SECOND });
        for (at, news) in [(1, News::Released { held: held.clone() }), (2, News::Hold { held, lasts: SECOND })] {
            let next = ledger.next(now, now + SECOND).0.unwrap();
            assert_eq!(next.left(), news);
            assert!(ledger.told(&next, Some(at)).is_empty());
        }
        assert!(ledger.untold.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_over_untold_leaves_what_a_release_puts_aside() {
        let now = Instant::now();
        let held = HeldPart { scope: Scope::Key, rule: None, key: Some(5.into()), endpoint: None };
        let hold = |secs: u32| News::Hold { held: held.clone(), lasts: SECOND * secs };
        let mut ledger = Ledger::default();
        ledger.note(now, News::Released { held: held.clone() });
        ledger.note(now, hold(1));
        assert_eq!(hear(&mut ledger, 8, hold(60)), None);
        let (next, aside) = ledger.next(now + SECOND * 2, now + SECOND * 3);
        assert!(aside.is_empty());
        // The release is told after it, and ends it.
        assert!(ledger.told(&next.unwrap(), Some(9)).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_is_told_and_one_at_a_time() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.note(now, opened(3));
        let (first, _) = ledger.next(now, now + SECOND);
        let first = first.unwrap();
        ledger.note(now, closed());
        assert!(ledger.next(now, now + SECOND).0.is_none());
        // No answer: it is closed by now, which is all that is told.
        ledger.told(&first, None);
        let (second, _) = ledger.next(now, now + SECOND);
        assert_eq!(second.as_ref().map(Untold::left), Some(closed()));
        // Who never comes back with an answer stops nobody for longer than that.
        assert!(ledger.next(now + SECOND, now + SECOND * 2).0.is_some());
        assert!(ledger.told(&second.unwrap(), Some(9)).is_empty());
        assert!(ledger.untold.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_told_and_stops_nothing() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.note(now, opened(3));
        assert_eq!(hear(&mut ledger, 7, closed()), None);
        let (next, aside) = ledger.next(now + SECOND * 3, now + SECOND * 4);
        assert!(next.is_none());
        assert_eq!(aside, [closed()]);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut ledger = Ledger::default();
        for at in 1..10_000 {
            let news = News::BreakerClosed { endpoint: at.to_string().into() };
            assert!(hear(&mut ledger, at, news).is_some());
        }
        assert_eq!((ledger.known.len(), ledger.order.len()), (KNOWN, KNOWN));
    }
}
