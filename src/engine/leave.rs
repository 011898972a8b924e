//! The short way out of the line: of a plain request that others of its queue stand beside, so that hardly anything is
//! different without it.
//!
//! Many may leave at once, each from a place in memory that nobody looked at for long. What takes a few hundred instructions
//! lets the processor fetch the records of the next one meanwhile. Whatever else there is goes the long way, which comes
//! to the same.

use super::answer::RequestId;
use super::queue::Links;
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

impl<W> Scheduler<W> {
    /// Drops a request out of the line as [`withdraw`](Self::withdraw) does, if nothing hangs on it but itself: nobody
    /// starts, waits for less long or is looked at because of it. Else it changes nothing and returns false.
    pub(super) fn leave_quickly(&mut self, now: Instant, id: RequestId) -> bool {
        let now = self.tick_quietly(now);
        if !self.settled || self.pool.is_some() || !self.door.is_empty() || self.is_to_wake(now) {
            return false;
        }
        let Self { plan, requests, queues, rules, lanes, .. } = self;
        let Some(request) = requests.get(id.index, id.generation) else { return false };
        if !matches!(request.stage(), Stage::Queued { .. }) || !request.is_plain() {
            return false;
        }
        // The record itself decides, where it can: the others are far away, and are only written to.
        let Links { prev, next } = request.links;
        if prev == NIL && (next == NIL || !request.waits_like(&requests[next])) {
            return false;
        }
        let queue = &mut queues[request.queue];
        let position = usize::from(queue.rule);
        let Some(line) = queue.line_mut() else { return false };
        line.unqueue(requests, id.index);
        line.in_line -= 1;
        queue.requests -= 1;
        rules[position].in_line -= 1;
        lanes[plan.rules[position].lane].left();
        requests.discard(id.index);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;
    use crate::engine::answer::{Claim, Entry, KeyId};
    use crate::engine::plan::RuleId;
    use crate::engine::time::Nanos;

    const RULES: &str = "per_key = '1/100ms'\noverall = '5/100ms'
        [rules]
        urgent = { priority = 0, per_key = '2/300ms' }
        send = { priority = 1 }";

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// A machine whose requests leave the short way where they may, or never.
    struct Side {
        machine: Scheduler<usize>,
        ids: Vec<RequestId>,
        takes_short_way: bool,
        short: usize,
    }

    impl Side {
        fn new(rules: &str, takes_short_way: bool) -> Self {
            let rules: Rules = rules.parse().expect("sound rules");
            Self { machine: Scheduler::new(rules.plan()), ids: Vec::new(), takes_short_way, short: 0 }
        }

        fn withdraw(&mut self, now: Instant, place: usize) {
            let id = self.ids[place];
            if !self.takes_short_way {
                self.machine.settled = false;
                self.machine.withdraw(now, id);
            } else if self.machine.leave_quickly(now, id) {
                self.short += 1;
            } else {
                self.machine.withdraw(now, id);
            }
        }
    }

    /// One history; what it shows of the machine after each step, and how many left the short way.
    fn history(seed: u64, takes_short_way: bool) -> (Vec<String>, usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut side = Side::new(RULES, takes_short_way);
        let keys: Vec<KeyId> = (0..4).map(|tag| side.machine.add_key(Instant::ZERO, tag)).collect();
        let mut now = Instant::ZERO;
        let mut seen = Vec::new();
        for _ in 0..400 {
            match random.u32(0..10) {
                0..=3 => {
                    let soon = |span: u64| now.saturating_add(Nanos::from_millis(span));
                    let entry = Entry {
                        cost: if random.u8(0..8) == 0 { 2 } else { 1 },
                        not_before: (random.u8(0..6) == 0).then(|| soon(random.u64(0..300))),
                        deadline: (random.u8(0..6) == 0).then(|| soon(random.u64(100..900))),
                        ..Entry::default()
                    };
                    let (key, rule) = (keys[random.usize(0..4)], RuleId(random.u16(0..2)));
                    if let Ok(id) = side.machine.enqueue(now, key, rule, entry) {
                        side.machine.set_waker(id, side.ids.len());
                        side.ids.push(id);
                        side.machine.dispatch(now);
                    }
                }
                4..=7 if !side.ids.is_empty() => {
                    let place = random.usize(side.ids.len().saturating_sub(30)..side.ids.len());
                    side.withdraw(now, place);
                }
                _ => {
                    now = now.saturating_add(Nanos::from_millis(random.u64(0..60)));
                    side.machine.dispatch(now);
                }
            }
            let woken = std::mem::take(side.machine.take_wakes());
            let of_woken = |place: &usize| match side.machine.claim(now, side.ids[*place]) {
                Claim::Started { waited } => format!("{place} after {waited:?}"),
                other => format!("{place}: {other:?}"),
            };
            let claims: Vec<String> = woken.iter().map(of_woken).collect();
            let (wake, counts) = (side.machine.next_wake(), side.machine.snapshot(now));
            seen.push(format!("{now:?}: woke {claims:?}, next {wake:?}, {counts:?}"));
        }
        (seen, side.short)
    }

    #[test]
    fn the_short_way_out_comes_to_the_same_as_the_long_one() {
        let mut short = 0;
        for seed in 0..500 {
            let (quick, left) = history(seed, true);
            let (slow, none) = history(seed, false);
            assert_eq!(none, 0);
            short += left;
            if let Some(step) = (0..quick.len()).find(|&step| quick[step] != slow[step]) {
                panic!("seed {seed}, step {step}:\nshort: {}\nlong:  {}", quick[step], slow[step]);
            }
        }
        assert!(short > 1_000, "only {short} left the short way");
    }

    #[test]
    fn a_parked_queue_stays_where_it_stands_when_its_first_leaves() {
        let mut side = Side::new("per_key = '1/100ms'", true);
        let key = side.machine.add_key(Instant::ZERO, 1);
        for _ in 0..4 {
            side.ids.push(side.machine.enqueue(Instant::ZERO, key, RuleId(0), Entry::default()).expect("room in line"));
        }
        side.machine.dispatch(Instant::ZERO);
        assert!(side.machine.is_granted(side.ids[0]));
        assert!(matches!(side.machine.claim(Instant::ZERO, side.ids[0]), Claim::Started { .. }));
        assert_eq!(side.machine.next_wake(), Some(at(100)));
        side.withdraw(at(10), 1);
        side.withdraw(at(20), 2);
        assert_eq!((side.short, side.machine.next_wake()), (2, Some(at(100))));
        side.machine.dispatch(at(100));
        assert!(side.machine.is_granted(side.ids[3]));
    }
}
