//! Fairness between keys: who gets how much while several want something.

use std::collections::{BTreeMap, BTreeSet};

use super::{Length, Of, Run, Window};
use crate::engine::Instant;
use crate::sim::measure::{Value, WHOLE};

/// What each queue got in a window, of those whose work at its beginning lasted to its end: cost, and weight.
fn got(run: &Run<'_>, window: Window) -> Vec<(u64, u64)> {
    let log = run.log;
    let from = Instant::ZERO.saturating_add(window.from);
    // What each queue has in line when the window begins.
    let mut line: BTreeMap<(u16, u32), u64> = BTreeMap::new();
    let meant = |traffic: u16| window.of.is_none_or(|of| traffic == of);
    for (index, call) in (0_u32..).zip(&log.calls) {
        let waits = call.at <= from && log.first[index as usize] >= from && !log.left_unserved(index);
        if waits && meant(call.traffic) {
            *line.entry((run.rule(index), call.key)).or_default() += u64::from(run.turn(index));
        }
    }
    let plan = run.setup.rules.plan();
    let weight = |rule: u16| u64::from(plan.rules[usize::from(rule)].weight);
    let starts = match window.length {
        Length::Starts(starts) => u64::from(starts),
        Length::Rounds(rounds) => line.keys().map(|&(rule, _)| weight(rule)).sum::<u64>() * u64::from(rounds),
    };
    let mut served: BTreeMap<(u16, u32), u64> = line.keys().map(|&queue| (queue, 0)).collect();
    let in_window = run.starts_of(window.of).skip_while(|start| start.at < from);
    for start in in_window.take(usize::try_from(starts).unwrap_or(usize::MAX)) {
        let call = log.calls[start.call as usize];
        if let Some(served) = served.get_mut(&(run.rule(start.call), call.key)) {
            *served += u64::from(run.turn(start.call));
        }
    }
    let lasting = served.into_iter().filter(|(queue, served)| line.get(queue).is_some_and(|line| line > served));
    lasting.map(|((rule, _), served)| (served, weight(rule))).collect()
}

pub(super) fn served(run: &Run<'_>, window: Window) -> Vec<u64> {
    got(run, window).into_iter().map(|(served, _)| served).collect()
}

/// Jain's index: (sum x)^2 / (n sum x^2), x = what a queue got per weight.
pub(super) fn jain(run: &Run<'_>, window: Window) -> Option<Value> {
    // One weight for all in the end: x in units of 1/1000 of a request.
    let got = got(run, window);
    let shares: Vec<u128> = got.iter().map(|&(served, weight)| u128::from(served * 1_000 / weight)).collect();
    let (sum, squares) = shares.iter().fold((0, 0), |(sum, squares), x| (sum + x, squares + x * x));
    let index = (sum * sum * u128::from(WHOLE)).checked_div(shares.len() as u128 * squares)?;
    Some(Value::Ratio(u64::try_from(index).unwrap_or(u64::MAX)))
}

/// Queues that a pair gap is looked for among: it takes a look at all of them for each start.
const PAIRED: usize = 64;

/// The largest difference of what two queues get per weight over any stretch of time in which both are ready.
pub(super) fn pair_gap(run: &Run<'_>, of: Of) -> Option<Value> {
    let ready = run.ready();
    let plan = run.setup.rules.plan();
    // The first queues that ever wanted something, whether or not they got it.
    let mut seats: BTreeMap<u32, usize> = BTreeMap::new();
    for (call, &queue) in run.log.calls.iter().zip(&ready.queue) {
        let next = seats.len();
        if next < PAIRED && of.is_none_or(|of| call.traffic == of) {
            seats.entry(queue).or_insert(next);
        }
    }
    let weights: Vec<i64> = seats_in_order(&seats)
        .iter()
        .map(|&queue| i64::from(plan.rules[usize::from(ready.queues[queue as usize].0)].weight))
        .collect();
    // Stretches of readiness in a row, of each seat: since when, and up to which start.
    let mut stretches: Vec<Vec<(Instant, (Instant, u32))>> = vec![Vec::new(); seats.len()];
    let starts = (0..).zip(run.log.starts.iter().zip(&ready.since));
    let starts = starts.map(|(index, (start, &since))| (ready.queue_of(start.call), since, (start.at, index)));
    let never = ready.never.iter().map(|idle| (idle.queue, idle.from, (idle.until, u32::MAX)));
    for (queue, from, until) in starts.chain(never) {
        let Some(&seat) = seats.get(&queue) else { continue };
        match stretches[seat].last_mut() {
            Some(last) if last.1.0 >= from => last.1 = until,
            _ => stretches[seat].push((from, until)),
        }
    }
    let mut pairs = vec![Pair::default(); seats.len() * seats.len()];
    let mut now = vec![0; seats.len()];
    let mut widest = 0;
    for (index, start) in (0_u32..).zip(&run.log.starts) {
        let Some(&one) = seats.get(&ready.queue_of(start.call)) else { continue };
        let cost = i64::from(run.turn(start.call)) * WHOLE as i64 / weights[one];
        for other in (0..seats.len()).filter(|&other| other != one) {
            let since = [one, other].map(|seat| {
                let of_seat = &stretches[seat];
                now[seat] += of_seat[now[seat]..].partition_point(|&(_, until)| until < (start.at, index));
                of_seat.get(now[seat]).filter(|(from, _)| *from <= start.at).map(|&(from, _)| from)
            });
            let [Some(since_one), Some(since_other)] = since else { continue };
            let (low, high, sign) = if one < other { (one, other, 1) } else { (other, one, -1) };
            widest = widest.max(pairs[low * seats.len() + high].add(since_one.max(since_other), sign * cost));
        }
    }
    (seats.len() > 1).then_some(Value::Ratio(widest))
}

fn seats_in_order(seats: &BTreeMap<u32, usize>) -> Vec<u32> {
    let mut queues: Vec<_> = seats.iter().map(|(&queue, &seat)| (seat, queue)).collect();
    queues.sort_unstable();
    queues.into_iter().map(|(_, queue)| queue).collect()
}

/// How far one queue is ahead of another, in millionths, since both are ready.
#[derive(Clone, Debug, Default)]
struct Pair {
    since: Instant,
    ahead: i64,
    lowest: i64,
    highest: i64,
}

impl Pair {
    fn add(&mut self, since: Instant, service: i64) -> u64 {
        if self.since != since {
            *self = Self { since, ..Self::default() };
        }
        self.ahead += service;
        self.lowest = self.lowest.min(self.ahead);
        self.highest = self.highest.max(self.ahead);
        self.highest.abs_diff(self.lowest)
    }
}

/// Whose turn is to come: after how many starts it began to wait, and after how many more it is due.
type Turn = (u64, u64);

/// The most starts by which a queue's turn came later than one round: a round is as many starts as there was weight of
/// others in line when the queue had its last turn, or when it joined. Whoever waits for one at the end has it after the
/// last start.
pub(super) fn round_overrun(run: &Run<'_>, of: Of) -> Option<Value> {
    let log = run.log;
    let plan = run.setup.rules.plan();
    let queue = |call: u32| (run.rule(call), log.calls[call as usize].key);
    let weight = |(rule, _): (u16, u32)| u64::from(plan.rules[usize::from(rule)].weight);
    let meant = log.calls.iter().zip(0..).filter(|(call, _)| of.is_none_or(|of| call.traffic == of));
    let meant: BTreeSet<_> = meant.map(|(_, call)| queue(call)).collect();
    // In an instant all join before anybody starts.
    let joins = (0..).zip(&log.calls).map(|(call, joined)| (joined.at, 0, call));
    let leaves = log.left.iter().filter(|left| log.left_unserved(left.call)).map(|left| (left.at, 1, left.call));
    let first_starts = log.starts.iter().filter(|start| log.first[start.call as usize] == start.at);
    let starts = (2_u32..).zip(first_starts).map(|(order, start)| (start.at, order, start.call));
    let mut events: Vec<_> = joins.chain(leaves).chain(starts).collect();
    events.sort_unstable();
    let mut in_line: BTreeMap<(u16, u32), u32> = BTreeMap::new();
    let mut turns: BTreeMap<(u16, u32), Turn> = BTreeMap::new();
    let (mut all, mut started, mut most) = (0, 0, None);
    let overrun = |(since, due): Turn, started: u64| (started - since).saturating_sub(due);
    for at_once in events.chunk_by(|one, other| one.0 == other.0) {
        let joined = at_once.partition_point(|&(_, order, _)| order == 0);
        let mut new = Vec::new();
        for &(.., call) in &at_once[..joined] {
            let waiting = in_line.entry(queue(call)).or_default();
            *waiting += 1;
            if *waiting == 1 {
                all += weight(queue(call));
                new.push(queue(call));
            }
        }
        turns.extend(new.into_iter().filter(|queue| meant.contains(queue)).map(|of| (of, (started, all - weight(of)))));
        for &(_, order, call) in &at_once[joined..] {
            let (queue, is_start) = (queue(call), order > 1);
            let others = all - weight(queue);
            let Some(waiting) = in_line.get_mut(&queue) else { continue };
            *waiting -= 1;
            let waits_on = *waiting > 0;
            if !waits_on {
                in_line.remove(&queue);
                all = others;
            }
            if is_start || !waits_on {
                let turn = turns.remove(&queue);
                if is_start {
                    most = most.max(turn.map(|turn| overrun(turn, started)));
                    started += 1;
                    if waits_on && meant.contains(&queue) {
                        turns.insert(queue, (started, others));
                    }
                }
            }
        }
    }
    most.max(turns.into_values().map(|turn| overrun(turn, started)).max()).map(Value::Count)
}
