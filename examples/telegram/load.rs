//! What the bot has to send: the same for the same seed, on every machine.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    api::ANSWER_TIME,
    flood::{OVERALL, Quota, quotas_of},
};

/// The margin of the rules file: by this much its windows are longer than the server's.
pub(crate) const MARGIN: Duration = Duration::from_millis(50);

/// A line of the rules file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Rule {
    Individual,
    Group,
    Broadcast,
}

impl Rule {
    pub(crate) const ALL: [Self; 3] = [Self::Individual, Self::Group, Self::Broadcast];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Individual => "individual",
            Self::Group => "group",
            Self::Broadcast => "broadcast",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// When the bot wants it sent, from the beginning of the run.
    pub(crate) at: Duration,
    pub(crate) rule: Rule,
    pub(crate) chat: i64,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Everybody who subscribed to the broadcast; it is due at once, to all of them.
    subscribers: i64,
    /// Everybody the bot knows, subscribed or not: each of them may press a button.
    people: i64,
    /// Groups with a message now and then.
    quiet_groups: i64,
    /// Groups that get `burst` messages in the same moment.
    busy_groups: i64,
    /// Less than the twenty of a minute, as an attempt refused for no reason takes its place too; the twenty-first would
    /// be due a minute later.
    burst: usize,
    /// Over this time people press buttons and groups get messages.
    span: Duration,
    /// Button presses, the mean of a Poisson process.
    presses_per_second: f64,
}

impl Size {
    /// Half a minute at the 30 messages a second that a bot may send.
    pub(crate) const FULL: Self = Self {
        subscribers: 600,
        people: 5000,
        quiet_groups: 12,
        busy_groups: 4,
        burst: 16,
        span: Duration::from_secs(24),
        presses_per_second: 4.0,
    };

    pub(crate) const QUICK: Self = Self {
        subscribers: 100,
        people: 5000,
        quiet_groups: 6,
        busy_groups: 1,
        burst: 4,
        span: Duration::from_secs(4),
        presses_per_second: 4.0,
    };
}

/// All messages in the order in which they become due.
pub(crate) fn messages(seed: u64, size: Size) -> Vec<Message> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut messages = Vec::new();
    let mut add = |at, rule, chat, text| messages.push(Message { at, rule, chat, text });

    for chat in 1..=size.subscribers {
        add(Duration::ZERO, Rule::Broadcast, chat, "Our autumn sale has begun".to_owned());
    }
    for group in 1..=size.quiet_groups {
        for n in 1..=rng.usize(1..=3) {
            add(size.span.mul_f64(rng.f64()), Rule::Group, -group, format!("Order {n} is on its way"));
        }
    }
    for group in size.quiet_groups + 1..=size.quiet_groups + size.busy_groups {
        // Early enough for the burst, one message a second, to end with the rest.
        let at = size.span.mul_f64(rng.f64() / 10.0);
        for n in 1..=size.burst {
            add(at, Rule::Group, -group, format!("Photo {n} of {}", size.burst));
        }
    }
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / size.presses_per_second);
        if at >= size.span {
            break;
        }
        add(at, Rule::Individual, rng.i64(1..=size.people), "You pressed the button".to_owned());
    }
    messages.sort_by_key(|message| message.at);
    messages
}

/// A time that no sender can beat who keeps the limits with the margin.
///
/// Take any one limit alone. Its k-th start is neither before the k-th arrival nor, for a window of N in T, before start
/// k−N plus T plus the margin; so these maxima, taken one after the other, give the earliest possible last start. The
/// run lasts at least as long as the worst limit says, and the last call then takes its shortest time. Limits are not
/// combined, and attempts that the server refuses for no reason are not foreseen: the true optimum may be a little later.
pub(crate) fn optimum(messages: &[Message]) -> Duration {
    let mut chats: BTreeMap<i64, Vec<Duration>> = BTreeMap::new();
    for message in messages {
        chats.entry(message.chat).or_default().push(message.at);
    }
    let overall = last_start(messages.iter().map(|message| message.at), &[OVERALL]);
    let of_chats = chats.into_iter().map(|(chat, arrivals)| last_start(arrivals, quotas_of(chat)));
    of_chats.fold(overall, Duration::max) + ANSWER_TIME
}

fn last_start(arrivals: impl IntoIterator<Item = Duration>, quotas: &[Quota]) -> Duration {
    let mut starts: Vec<Duration> = Vec::new();
    for arrival in arrivals {
        let opens = quotas.iter().filter_map(|quota| {
            let first = starts.len().checked_sub(quota.count)?;
            Some(starts[first] + quota.per + MARGIN)
        });
        starts.push(opens.fold(arrival, Duration::max));
    }
    starts.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at: u64, chat: i64) -> Message {
        Message { at: Duration::from_millis(at), rule: Rule::Individual, chat, text: String::new() }
    }

    #[test]
    fn a_seed_gives_one_load() {
        let shape = |seed| -> Vec<_> {
            let messages = messages(seed, Size::QUICK);
            messages.into_iter().map(|message| (message.at, message.chat, message.text)).collect()
        };
        assert_eq!(shape(5), shape(5));
        assert_ne!(shape(5), shape(6));
    }

    #[test]
    fn messages_come_in_the_order_they_are_due() {
        for seed in 0..20 {
            let messages = messages(seed, Size::FULL);
            assert!(messages.is_sorted_by_key(|message| message.at));
            assert!(messages.iter().all(|message| (message.chat < 0) == (message.rule == Rule::Group)));
        }
    }

    #[test]
    fn the_overall_window_bounds_a_broadcast() {
        let broadcast: Vec<_> = (1..=61).map(|chat| due(0, chat)).collect();
        assert_eq!(optimum(&broadcast), 2 * Duration::from_millis(1050) + ANSWER_TIME);
    }

    #[test]
    fn one_chat_bounds_a_burst() {
        let person: Vec<_> = (0..3).map(|_| due(500, 7)).collect();
        assert_eq!(optimum(&person), Duration::from_millis(500 + 2 * 1050) + ANSWER_TIME);
        let group: Vec<_> = (0..21).map(|_| due(0, -7)).collect();
        assert_eq!(optimum(&group), Duration::from_millis(60_050) + ANSWER_TIME);
    }

    #[test]
    fn late_arrivals_bound_an_idle_bot() {
        assert_eq!(optimum(&[due(0, 1), due(9000, 2)]), Duration::from_secs(9) + ANSWER_TIME);
        assert_eq!(optimum(&[]), ANSWER_TIME);
    }
}
