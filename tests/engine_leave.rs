//! Who leaves the line: the short way against the long one.

use request_balancer::Rules;
use request_balancer::engine::{Claim, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler};

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
    /// A request that is over.
    gone: RequestId,
    ids: Vec<RequestId>,
    takes_short_way: bool,
    short: usize,
}

impl Side {
    fn new(rules: &str, takes_short_way: bool) -> Self {
        let rules: Rules = rules.parse().expect("sound rules");
        let mut machine = Scheduler::new(rules.plan());
        let key = machine.add_key(Instant::ZERO, 99);
        let gone = machine.enqueue(Instant::ZERO, key, RuleId(0), Entry::default()).expect("room in line");
        machine.withdraw(Instant::ZERO, gone);
        Self { machine, gone, ids: Vec::new(), takes_short_way, short: 0 }
    }

    fn withdraw(&mut self, now: Instant, place: usize) {
        let id = self.ids[place];
        if !self.takes_short_way {
            // As any event does, so that a turn is to follow.
            assert_eq!(self.machine.claim(now, self.gone), Claim::Unknown);
        }
        self.machine.calm();
        self.machine.withdraw(now, id);
        self.short += usize::from(!self.machine.is_stirred());
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
