//! The Bot API's flood control, counted exactly: sliding windows of accepted messages. Pure; the caller brings the time.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// At most `count` messages in any interval of length `per`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) count: usize,
    pub(crate) per: Duration,
}

pub(crate) const OVERALL: Quota = Quota { count: 30, per: Duration::from_secs(1) };
const PER_CHAT: Quota = Quota { count: 1, per: Duration::from_secs(1) };
const PER_GROUP: Quota = Quota { count: 20, per: Duration::from_secs(60) };

/// The quotas of one chat. Groups have negative ids.
pub(crate) fn quotas_of(chat: i64) -> &'static [Quota] {
    if chat < 0 { &[PER_CHAT, PER_GROUP] } else { &[PER_CHAT] }
}

/// The windows of all chats, and of the bot as a whole.
///
/// A refused message was not delivered and takes no place in a window. That is the kindest reading of the real server's
/// rules, so the comparison with a home-made client is not tilted against it.
#[derive(Debug)]
pub(crate) struct FloodControl {
    overall: Window,
    chats: HashMap<i64, Chat>,
}

impl FloodControl {
    pub(crate) fn new() -> Self {
        Self { overall: Window::new(OVERALL), chats: HashMap::new() }
    }

    /// How long until one more message to `chat` is allowed; zero if it is allowed now.
    pub(crate) fn opens_in(&mut self, chat: i64, now: Instant) -> Duration {
        let overall = self.overall.opens_in(now);
        self.chat(chat).opens_in(now).max(overall)
    }

    /// Counts a message that was let through.
    pub(crate) fn accept(&mut self, chat: i64, now: Instant) {
        self.overall.accepted.push_back(now);
        for window in &mut self.chat(chat).windows {
            window.accepted.push_back(now);
        }
    }

    /// Refuses everything to `chat` before `until`, whatever the windows say.
    pub(crate) fn silence(&mut self, chat: i64, until: Instant) {
        self.chat(chat).silent_until = Some(until);
    }

    fn chat(&mut self, chat: i64) -> &mut Chat {
        self.chats.entry(chat).or_insert_with(|| Chat {
            windows: quotas_of(chat).iter().copied().map(Window::new).collect(),
            silent_until: None,
        })
    }
}

#[derive(Debug)]
struct Chat {
    windows: Vec<Window>,
    silent_until: Option<Instant>,
}

impl Chat {
    fn opens_in(&mut self, now: Instant) -> Duration {
        let silent = self.silent_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        self.windows.iter_mut().map(|window| window.opens_in(now)).fold(silent, Duration::max)
    }
}

#[derive(Debug)]
struct Window {
    quota: Quota,
    accepted: VecDeque<Instant>,
}

impl Window {
    fn new(quota: Quota) -> Self {
        Self { quota, accepted: VecDeque::with_capacity(quota.count) }
    }

    fn opens_in(&mut self, now: Instant) -> Duration {
        let Quota { count, per } = self.quota;
        while self.accepted.front().is_some_and(|first| *first + per <= now) {
            self.accepted.pop_front();
        }
        match self.accepted.front() {
            Some(first) if self.accepted.len() >= count => *first + per - now,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_chat_takes_one_message_a_second() {
        let (mut flood, start) = (FloodControl::new(), Instant::now());
        assert_eq!(flood.opens_in(7, start), Duration::ZERO);
        flood.accept(7, start);
        assert_eq!(flood.opens_in(7, start), seconds(1));
        assert_eq!(flood.opens_in(7, start + seconds(1) - NANOSECOND), NANOSECOND);
        assert_eq!(flood.opens_in(7, start + seconds(1)), Duration::ZERO);
        assert_eq!(flood.opens_in(8, start), Duration::ZERO, "another chat is not concerned");
    }

    #[test]
    fn a_group_takes_twenty_messages_a_minute() {
        let (mut flood, start) = (FloodControl::new(), Instant::now());
        for second in 0..20 {
            assert_eq!(flood.opens_in(-7, start + seconds(second)), Duration::ZERO);
            flood.accept(-7, start + seconds(second));
        }
        assert_eq!(flood.opens_in(-7, start + seconds(20)), seconds(40));
        assert_eq!(flood.opens_in(-7, start + seconds(60)), Duration::ZERO);
    }

    #[test]
    fn a_person_is_under_no_minute_window() {
        let (mut flood, start) = (FloodControl::new(), Instant::now());
        for second in 0..40 {
            assert_eq!(flood.opens_in(7, start + seconds(second)), Duration::ZERO);
            flood.accept(7, start + seconds(second));
        }
    }

    #[test]
    fn the_overall_window_slides() {
        let (mut flood, start) = (FloodControl::new(), Instant::now());
        let later = start + Duration::from_millis(900);
        (0..15).for_each(|chat| flood.accept(chat, start));
        (15..30).for_each(|chat| flood.accept(chat, later));
        assert_eq!(flood.opens_in(99, later), Duration::from_millis(100));

        // A fixed window would be empty again after one second; this one has room for the first fifteen only.
        let next = start + seconds(1);
        for chat in 100..115 {
            assert_eq!(flood.opens_in(chat, next), Duration::ZERO);
            flood.accept(chat, next);
        }
        assert_eq!(flood.opens_in(99, next), Duration::from_millis(900));
    }

    #[test]
    fn the_longest_wait_counts() {
        let (mut flood, start) = (FloodControl::new(), Instant::now());
        (0..30).for_each(|chat| flood.accept(chat, start));
        flood.accept(-7, start);
        flood.silence(-7, start + seconds(5));
        assert_eq!(flood.opens_in(-7, start), seconds(5));
        assert_eq!(flood.opens_in(-7, start + seconds(5)), Duration::ZERO);
    }
}
