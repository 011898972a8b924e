//! What servers say, to the arithmetic of a store alone.

use std::sync::Arc;
use std::time::Duration;

use super::Tally;
use crate::engine::{ALL, LISTED};
use crate::engine::{Anchor, LimitKind, Nanos, Said, Serial, Stand, Take};
use crate::shared::store::{Ask, AskedLimit, LimitReply, News};

const SEC: u64 = 1_000_000;
/// Some time of the store.
const BEGIN: u64 = 1_000_000 * SEC;
/// What servers call their windows.
const MINUTE: u64 = 17;
const HOUR: u64 = 18;

/// One limit in a store.
struct Limit {
    tally: Tally,
    kind: LimitKind,
}

/// What came of a question.
struct Answer {
    taken: usize,
    reply: LimitReply,
    is_freed: bool,
}

impl Answer {
    fn stand(&self) -> Stand {
        self.reply.stand.clone().unwrap()
    }

    fn last(&self) -> Serial {
        self.stand().last
    }

    /// What the only window of a server leaves.
    fn left(&self) -> u32 {
        let [(_, left)] = self.stand().windows[..] else { panic!("{:?}", self.stand()) };
        left
    }

    fn wait(&self) -> Option<u64> {
        self.reply.wait.map(|wait| wait.as_micros() as u64)
    }

    /// How long it has nothing more, for those that leave at least so much to others.
    fn closed_to(&self) -> Option<(u64, u32)> {
        self.wait().map(|wait| (wait, self.reply.closed_to))
    }
}

impl Limit {
    fn new(kind: LimitKind) -> Self {
        Self { tally: Tally::default(), kind }
    }

    /// Starts are counted one by one, or in cells if there are too many.
    fn window(count: u32, secs: u64) -> Self {
        let period = Nanos::from_secs(secs);
        Self::new(LimitKind::Window { count, period, anchor: Anchor::Start, grain: Nanos::ZERO })
    }

    fn ask_for(&mut self, at: u64, requests: &[(u32, u32)], said: &[Said]) -> Answer {
        let name: Arc<str> = "a".into();
        let limit = AskedLimit { said: said.to_vec(), ..AskedLimit::new(Arc::clone(&name), self.kind) };
        let ask = Ask {
            process: 1,
            number: 1,
            lag: Duration::ZERO,
            lease: Duration::from_secs(1),
            limits: vec![limit],
            requests: requests.iter().map(|&(cost, reserve)| vec![Take { line: 0, cost, reserve }]).collect(),
        };
        let (mut reply, news) = self.tally.answer(BEGIN + at, &ask);
        let taken = reply.taken.iter().filter(|taken| **taken).count();
        let is_freed = match &news[..] {
            [] => false,
            [News::Freed { name: freed }] if *freed == name => true,
            news => panic!("{news:?}"),
        };
        Answer { taken, reply: reply.limits.remove(0), is_freed }
    }

    fn ask(&mut self, at: u64, requests: usize, said: &[Said]) -> Answer {
        self.ask_for(at, &vec![(1, 0); requests], said)
    }

    fn take(&mut self, at: u64, requests: usize) -> usize {
        self.ask(at, requests, &[]).taken
    }
}

fn said(window: u64, left: u32, answered: Option<Serial>, secs: u64) -> Said {
    Said { window, left, answered, is_now: answered.is_none(), reset: Nanos::from_secs(secs) }
}

const fn serial(number: u64) -> Serial {
    Serial { epoch: BEGIN, number }
}

#[test]
fn what_was_given_after_the_answered_start_is_taken_off() {
    for count in [20, LISTED + 20] {
        let mut limit = Limit::window(count, 60);
        let first = limit.ask(0, 4, &[]);
        assert_eq!((first.taken, first.stand()), (4, Stand { last: serial(4), room: count - 4, windows: vec![] }));
        let told = limit.ask(SEC, 9, &[said(MINUTE, 7, Some(serial(2)), 30)]);
        assert_eq!((told.taken, told.wait(), told.is_freed), (5, Some(30 * SEC), false));
        assert_eq!(told.stand(), Stand { last: serial(9), room: count - 9, windows: vec![(MINUTE, 0)] });
        assert_eq!(limit.take(31 * SEC - 1, 1), 0);
        let after = limit.ask(31 * SEC, 1, &[]);
        assert_eq!((after.taken, after.stand().windows), (1, vec![]));
    }
}

#[test]
fn a_bucket_is_narrowed_like_a_window_and_knows_what_it_gave() {
    let mut limit = Limit::new(LimitKind::Bucket { interval: Nanos::from_secs(1), burst: 10 });
    let first = limit.ask(0, 4, &[]);
    assert_eq!((first.taken, first.stand()), (4, Stand { last: serial(4), room: 6, windows: vec![] }));
    assert_eq!(limit.ask(SEC, 9, &[said(MINUTE, 3, Some(serial(3)), 30)]).taken, 2);
    assert_eq!(limit.ask(20 * SEC, 9, &[]).wait(), Some(11 * SEC));
    // When all is paid for only the server's word is known, and then nothing.
    assert_eq!(limit.tally.names(BEGIN + 31 * SEC - 1).len(), 1);
    assert!(limit.tally.names(BEGIN + 31 * SEC).is_empty());
    let after = limit.ask(31 * SEC, 11, &[]);
    assert_eq!((after.taken, after.last()), (10, Serial { epoch: BEGIN + 31 * SEC, number: 10 }));
}

#[test]
fn an_older_word_is_dropped_and_a_newer_one_counts() {
    let mut limit = Limit::window(20, 60);
    assert_eq!(limit.take(0, 8), 8);
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 5, Some(serial(6)), 30)]).left(), 3);
    for (number, left, expected) in [(5, 0, 3), (6, 9, 3), (6, 4, 2), (7, 8, 7)] {
        let told = limit.ask(SEC, 0, &[said(MINUTE, left, Some(serial(number)), 30)]);
        assert_eq!((told.left(), told.is_freed), (expected, expected == 7), "{left} after {number}");
    }
    // What is so as of now is as new as the last start.
    assert_eq!(limit.ask(SEC, 1, &[said(MINUTE, 9, None, 30)]).left(), 8);
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 7, Some(serial(7)), 30)]).left(), 8);
    // Of two that are equally new the one that leaves less counts.
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 2, Some(serial(8)), 30)]).left(), 1);
}

#[test]
fn who_waits_for_a_server_hears_that_it_leaves_more() {
    let mut limit = Limit::window(20, 60);
    assert_eq!(limit.take(0, 2), 2);
    let told = limit.ask(0, 1, &[said(MINUTE, 0, Some(serial(1)), 30)]);
    assert_eq!((told.taken, told.wait(), told.is_freed), (0, Some(30 * SEC), false));
    let told = limit.ask(SEC, 9, &[said(MINUTE, 3, Some(serial(2)), 40)]);
    assert_eq!((told.taken, told.wait(), told.is_freed), (3, Some(40 * SEC), true));
    let told = limit.ask(SEC, 0, &[said(MINUTE, 0, Some(serial(5)), 40)]);
    assert!(!told.is_freed);
}

#[test]
fn every_window_of_a_server_is_kept_to() {
    let mut limit = Limit::window(20, 60);
    let both = [said(MINUTE, 6, None, 10), said(HOUR, 3, None, 50)];
    assert_eq!(limit.ask(0, 2, &both).stand().windows, [(MINUTE, 4), (HOUR, 1)]);
    // Neither word touches the other window.
    let told = limit.ask(0, 0, &[said(MINUTE, 1, None, 10)]);
    assert_eq!(told.stand().windows, [(HOUR, 1), (MINUTE, 1)]);
    assert_eq!(limit.ask(0, 2, &[]).wait(), Some(50 * SEC));
    assert_eq!(limit.take(50 * SEC - 1, 1), 0);
    assert_eq!(limit.take(50 * SEC, 1), 1);
}

#[test]
fn of_five_windows_the_one_with_the_most_left_goes() {
    let mut limit = Limit::window(20, 60);
    let five = [4, 9, 2, 6, 3].map(|left| said(u64::from(left), left, None, 30));
    assert_eq!(limit.ask(0, 0, &five).stand().windows, [4, 2, 6, 3].map(|left| (u64::from(left), left)));
}

#[test]
fn of_a_count_that_began_anew_all_came_after_it() {
    let mut limit = Limit::window(20, 60);
    assert_eq!(limit.take(0, 3), 3);
    limit.tally.forget(None);
    assert_eq!(limit.take(SEC, 4), 4);
    let told = limit.ask(SEC, 0, &[said(MINUTE, 9, Some(serial(3)), 30)]);
    assert_eq!(told.stand().windows, [(MINUTE, 5)]);
    let again = Serial { epoch: BEGIN + SEC, number: 2 };
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 9, Some(again), 30)]).stand().windows, [(MINUTE, 7)]);
    // It is older than what it was told of the new count.
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 0, Some(serial(3)), 30)]).stand().windows, [(MINUTE, 7)]);
}

#[test]
fn costs_and_what_is_left_to_others_count() {
    let mut limit = Limit::window(20, 60);
    let told = limit.ask_for(0, &[(3, 2), (1, 2), (2, 1), (2, 1)], &[said(MINUTE, 6, None, 30)]);
    // A limit that refused one has none for those after it that leave as much.
    assert_eq!((told.taken, told.stand().windows, told.wait()), (2, vec![(MINUTE, 2)], Some(30 * SEC)));
    assert_eq!(limit.ask_for(0, &[(2, 0)], &[]).taken, 1);
    // No more than the limit has is left to others.
    let mut limit = Limit::window(5, 60);
    assert_eq!(limit.ask_for(0, &[(4, 9)], &[said(MINUTE, 5, None, 30)]).taken, 1);
}

#[test]
fn the_later_of_what_the_limit_and_the_server_make_wait_for_is_told() {
    let mut limit = Limit::window(3, 60);
    assert_eq!(limit.take(0, 3), 3);
    assert_eq!(limit.ask(SEC, 1, &[said(MINUTE, 0, None, 5)]).wait(), Some(59 * SEC));
    assert_eq!(limit.ask(SEC, 1, &[said(MINUTE, 0, Some(serial(9)), 90)]).wait(), Some(90 * SEC));
}

#[test]
fn spacing_and_caps_are_never_narrowed() {
    let cap = LimitKind::Window { count: 3, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO };
    for kind in [cap, LimitKind::Spaced { interval: Nanos::from_secs(1), largest: 3 }] {
        let told = Limit::new(kind).ask(0, 1, &[said(MINUTE, 0, None, 30)]);
        assert_eq!((told.taken, told.reply.stand), (1, None));
    }
}

/// Whatever is told, and in whatever order: from the newest word about a window until its reset no more is given than it
/// leaves, and nothing that is over keeps anybody.
#[test]
fn no_history_is_over() {
    let mut narrowed = 0;
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let secs = random.u64(1..4);
        let mut limit = match seed % 3 {
            0 => Limit::window(random.u32(1..20), secs),
            1 => Limit::window(LISTED + random.u32(1..9), secs),
            _ => Limit::new(LimitKind::Bucket { interval: Nanos::from_millis(300), burst: random.u32(1..20) }),
        };
        let mut now = 0;
        let mut last = Serial::default();
        // What each window leaves, and until when.
        let mut words: Vec<(u64, Serial, u64, u64)> = Vec::new();
        for _ in 0..80 {
            now += random.u64(0..secs * 300_000);
            words.retain(|(.., until)| *until > now);
            let mut all = Vec::new();
            if random.u8(0..4) == 0 {
                let answered =
                    random.bool().then(|| Serial { number: last.number.saturating_sub(random.u64(0..4)), ..last });
                let word = said(random.u64(1..4), random.u32(0..12), answered, random.u64(1..4));
                all.push(word);
            }
            let answer = limit.ask(now, random.usize(0..9), &all);
            let (stand, before) = (answer.stand(), answer.last().number - answer.taken as u64);
            let began = stand.last.epoch != last.epoch;
            for word in all {
                let answered = word.answered.unwrap_or(Serial { number: before, ..stand.last });
                let given = answered.until(Serial { number: before, ..stand.last });
                let left = u64::from(word.left).saturating_sub(given);
                let known = words.iter().position(|(window, ..)| *window == word.window);
                let is_older = known.is_some_and(|known| {
                    let (_, serial, left_then, _) = words[known];
                    serial > answered || serial == answered && !word.is_now && left_then <= left
                });
                if !is_older {
                    known.map(|known| words.remove(known));
                    words.push((word.window, answered, left, now + word.reset.get() / 1_000));
                }
            }
            for (_, _, left, _) in &mut words {
                assert!(*left >= answer.taken as u64, "seed {seed}: {} of {left}", answer.taken);
                *left -= answer.taken as u64;
            }
            let expected: Vec<_> = words.iter().map(|(window, _, left, _)| (*window, *left as u32)).collect();
            assert_eq!(stand.windows, expected, "seed {seed}, at {now}, began anew: {began}");
            narrowed += u32::from(answer.wait().is_some_and(|_| words.iter().any(|(_, _, left, _)| *left == 0)));
            last = stand.last;
        }
    }
    assert!(narrowed > 1_000, "{narrowed}");
}

#[test]
fn what_is_refused_for_what_it_leaves_closes_nothing_to_those_that_leave_less() {
    let mut limit = Limit::window(10, 60);
    limit.take(0, 8);
    // The first leaves two to others, the second none; a third that leaves two is refused like the first.
    let answer = limit.ask_for(SEC, &[(1, 2), (1, 0), (1, 2)], &[]);
    assert_eq!((answer.taken, answer.closed_to()), (1, Some((59 * SEC, 2))));
    // The same of what a server leaves.
    let mut limit = Limit::window(10, 60);
    limit.take(0, 2);
    let answer = limit.ask_for(SEC, &[(1, 2), (1, 0), (1, 2)], &[said(MINUTE, 2, Some(serial(2)), 30)]);
    assert_eq!((answer.taken, answer.closed_to()), (1, Some((30 * SEC, 2))));
}

#[test]
fn a_mixed_batch_says_who_is_to_wait_and_how_long() {
    let mut limit = Limit::window(10, 60);
    assert_eq!(limit.ask_for(0, &[(1, 2); 4], &[]).closed_to(), None);
    limit.take(SEC, 3);
    // Three are left. Of those that leave some to others one gets one; then all that leave any are to wait, for the first ones.
    let answer = limit.ask_for(2 * SEC, &[(1, 2), (1, 2), (1, 0), (1, 1), (1, 2)], &[]);
    assert_eq!((answer.taken, answer.closed_to()), (2, Some((58 * SEC, 1))));
    // The last one is had by who leaves none; who costs more waits for more, and so do all others.
    let answer = limit.ask_for(3 * SEC, &[(1, 1), (1, 0), (5, 0), (1, 2)], &[]);
    assert_eq!((answer.taken, answer.closed_to()), (1, Some((58 * SEC, 0))));
    let answer = limit.ask_for(60 * SEC, &[(1, 2)], &[]);
    assert_eq!((answer.taken, answer.closed_to()), (1, None));
}

#[test]
fn what_is_so_as_of_now_is_newer_than_the_last_answer_and_older_than_the_next() {
    let mut limit = Limit::window(100, 60);
    limit.take(0, 5);
    assert_eq!(limit.ask(SEC, 0, &[said(MINUTE, 10, Some(serial(5)), 30)]).stand().windows, [(MINUTE, 10)]);
    let now = |left, number| Said { is_now: true, ..said(MINUTE, left, Some(serial(number)), 30) };
    let raised = limit.ask(2 * SEC, 0, &[now(80, 5)]);
    assert_eq!((raised.stand().windows, raised.is_freed), (vec![(MINUTE, 80)], true));
    limit.ask(3 * SEC, 2, &[said(MINUTE, 8, Some(serial(5)), 30)]);
    let late = limit.ask(4 * SEC, 0, &[said(MINUTE, 7, Some(serial(7)), 30), now(60, 5)]);
    assert_eq!(late.stand().windows, [(MINUTE, 7)]);
}

#[test]
fn another_server_has_no_windows_yet_and_those_that_wait_hear_of_it() {
    let mut limit = Limit::window(10, 60);
    limit.take(0, 2);
    assert_eq!(limit.ask(SEC, 1, &[said(MINUTE, 0, Some(serial(2)), 3_000)]).wait(), Some(3_000 * SEC));
    let renewed = limit.ask(2 * SEC, 1, &[said(ALL, u32::MAX, Some(serial(2)), 3_000)]);
    assert_eq!((renewed.taken, renewed.is_freed, renewed.stand().windows), (1, true, vec![]));
    // What its answers say stays.
    limit.ask(3 * SEC, 0, &[said(MINUTE, 5, Some(serial(3)), 3_000), said(ALL, u32::MAX, Some(serial(2)), 3_000)]);
    assert_eq!(limit.ask(4 * SEC, 0, &[]).stand().windows, [(MINUTE, 5)]);
}

#[test]
fn a_window_that_ends_sooner_frees_those_that_wait_for_it() {
    let mut limit = Limit::window(10, 60);
    limit.take(0, 3);
    limit.ask(SEC, 1, &[said(MINUTE, 0, Some(serial(1)), 3_000)]);
    // Whole seconds are told of one instant in several ways.
    assert!(!limit.ask(3 * SEC / 2, 0, &[said(MINUTE, 0, Some(serial(2)), 2_999)]).is_freed);
    assert!(limit.ask(2 * SEC, 0, &[said(MINUTE, 0, Some(serial(3)), 10)]).is_freed);
}
