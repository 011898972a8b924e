//! Random rules and random histories, small enough that edges coincide.

use super::history::{Attempt, Entry, History, Op, Scope, Target, Then};
use super::random::Random;
use super::spec::{Caps, Cost, DAY, Lane, MS, Pace, Quota, Rule, Shape, Spec, Zone};

/// What a history may contain. Some promises can only be judged where something is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flavour {
    pub(crate) rules: u64,
    pub(crate) lanes: u64,
    pub(crate) keys: u64,
    pub(crate) ops: u64,
    pub(crate) costs: bool,
    /// A key has requests of one rule only.
    pub(crate) one_rule_per_key: bool,
    /// Limits that several keys share.
    pub(crate) shared: bool,
    /// Holds, pauses, withdrawals, deadlines, zombies, retries.
    pub(crate) trouble: bool,
    pub(crate) concurrency: bool,
    /// Attempts take time and claims come late.
    pub(crate) slow: bool,
    pub(crate) pace: bool,
    /// Turns come late.
    pub(crate) stalls: bool,
    pub(crate) odd_nanos: bool,
    /// Many requests at a time.
    pub(crate) bursts: bool,
    /// The server says what it has left.
    pub(crate) answers: bool,
    /// Attempts turn out to cost something else than was asked for.
    pub(crate) settles: bool,
    /// Even spacing and buckets.
    pub(crate) kinds: bool,
    /// Quotas of calendar days in this zone.
    pub(crate) days: Option<Zone>,
    /// Requests cost tokens, too.
    pub(crate) tokens: bool,
    /// Keys have numbers of their own, which change.
    pub(crate) own: bool,
}

impl Flavour {
    pub(crate) fn any(random: &mut Random) -> Self {
        let rules = 1 + random.below(4);
        Self {
            rules,
            lanes: if random.once_in(3) { 1 } else { 1 + random.below(rules.min(3)) },
            keys: 1 + random.below(5),
            ops: 8 + random.below(40),
            costs: random.once_in(3),
            one_rule_per_key: random.once_in(3),
            shared: !random.once_in(4),
            trouble: !random.once_in(3),
            concurrency: random.once_in(2),
            slow: !random.once_in(3),
            pace: random.once_in(2),
            stalls: random.once_in(4),
            odd_nanos: random.once_in(4),
            bursts: random.once_in(8),
            answers: false,
            settles: false,
            kinds: random.once_in(2),
            days: if cfg!(feature = "calendar") && random.once_in(6) {
                Some(random.pick(&[Zone::Utc, Zone::Berlin]))
            } else {
                None
            },
            tokens: random.once_in(4),
            own: random.once_in(4),
        }
    }

    /// Costs are found out late, both ways.
    pub(crate) fn settled(self) -> Self {
        Self { settles: true, costs: true, slow: true, ..self }
    }

    /// A server answers. What it says is followed in windows of requests alone.
    pub(crate) fn answered(self) -> Self {
        Self { answers: true, kinds: false, days: None, tokens: false, own: false, ..self }
    }
}

pub(crate) fn history(random: &mut Random, flavour: Flavour) -> History {
    let spec = spec(random, flavour);
    let mut labels = 0;
    let mut ops = Vec::new();
    while ops.len() < flavour.ops as usize {
        operation(random, flavour, &spec, &mut labels, &mut ops);
    }
    History { spec, ops }
}

fn spec(random: &mut Random, flavour: Flavour) -> Spec {
    let lanes = flavour.lanes;
    let mut rules: Vec<Rule> = (0..flavour.rules)
        .map(|number| Rule {
            // Every lane has a rule.
            lane: if number < lanes { number } else { random.below(lanes) } as usize,
            ..Rule::default()
        })
        .collect();
    let limits: Vec<Caps> = (0..if random.once_in(3) { 1 + random.below(2) } else { 0 })
        .map(|_| {
            let mut limit = caps(random, flavour, 2);
            if limit.is_empty() {
                limit.per_key.push(quota(random, flavour));
            }
            limit
        })
        .collect();
    for rule in &mut rules {
        rule.caps = caps(random, flavour, 4);
        rule.weight = if random.once_in(4) { 1 + random.below(3) } else { 1 };
        rule.under_overall = !random.once_in(8);
        rule.under_per_key = !random.once_in(8);
        rule.under = (0..limits.len()).filter(|_| random.once_in(2)).collect();
        rule.ordered = random.once_in(10) && rule.caps.key_concurrency.is_none_or(|cap| cap == 1);
        if flavour.trouble && random.once_in(5) {
            rule.queue = Some(1 + random.below(3));
            rule.drop_oldest = random.once_in(2);
        }
        rule.paused = flavour.trouble && random.once_in(30);
    }
    for limit in 0..limits.len() {
        if rules.iter().all(|rule| !rule.under.contains(&limit)) {
            let rule = random.below(flavour.rules) as usize;
            rules[rule].under.push(limit);
            rules[rule].under.sort_unstable();
        }
    }
    let lanes = (0..lanes).map(|_| lane(random, flavour)).collect();
    let mut own: Vec<((usize, u64), Vec<Quota>)> = Vec::new();
    for _ in 0..if flavour.own { random.below(3) } else { 0 } {
        let queue = (random.below(flavour.rules) as usize, random.below(flavour.keys));
        if own.iter().all(|(other, _)| *other != queue) {
            own.push((queue, quotas(random, flavour)));
        }
    }
    // Midnight comes soon.
    let ahead = flavour.days.map_or(0, Zone::ahead);
    let wall = 20 * DAY - ahead - random.below(300) * MS;
    Spec {
        own,
        fair_by_tokens: flavour.tokens && random.once_in(3),
        wall,
        caps: caps(random, flavour, 1),
        margin: if random.once_in(5) { odd(random, flavour, 2 * MS) } else { 0 },
        response: random.once_in(10),
        rules,
        limits,
        lanes,
        lease: random.pick(&[20, 100, 1_000]) * MS,
        max_hold: random.pick(&[3_600_000, 60]) * MS,
    }
}

fn lane(random: &mut Random, flavour: Flavour) -> Lane {
    let shares: &[u64] = match flavour.lanes {
        1 => &[20],
        2 => &[20, 6, 4, 3, 2, 0],
        _ => &[20, 8, 6, 0],
    };
    Lane {
        share: random.pick(shares),
        pace: match random.below(3) {
            _ if !flavour.pace => Some(Pace::Off),
            0 => Some(Pace::UpTo(60 * MS)),
            _ => None,
        },
        overall: if flavour.shared && random.once_in(8) { vec![quota(random, flavour)] } else { Vec::new() },
        concurrency: (flavour.shared && flavour.concurrency && random.once_in(8)).then(|| 1 + random.below(4)),
    }
}

/// The four words; each of them once in about `rare` times.
fn caps(random: &mut Random, flavour: Flavour, rare: u64) -> Caps {
    let mut caps = Caps::default();
    if flavour.shared && random.once_in(rare + 1) {
        caps.overall = quotas(random, flavour);
    }
    if random.once_in(rare + 1) {
        caps.per_key = quotas(random, flavour);
    }
    if flavour.concurrency {
        caps.concurrency = (flavour.shared && random.once_in(rare + 2)).then(|| 1 + random.below(5));
        caps.key_concurrency = random.once_in(rare + 2).then(|| 1 + random.below(3));
    }
    caps
}

fn quotas(random: &mut Random, flavour: Flavour) -> Vec<Quota> {
    let mut quotas = vec![quota(random, flavour)];
    if random.once_in(4) {
        let second = quota(random, flavour);
        if second.period != quotas[0].period {
            quotas.push(second);
        }
    }
    quotas
}

fn quota(random: &mut Random, flavour: Flavour) -> Quota {
    let count = match random.below(if flavour.bursts { 6 } else { 16 }) {
        0 => 50 + random.below(3),
        1 | 2 => 1 + random.below(12),
        _ => 1 + random.below(if flavour.costs { 6 } else { 3 }),
    };
    let period = random.pick(&[5, 10, 10, 20, 30, 50, 100, 1_000]) * MS;
    let period = odd(random, flavour, period);
    let tokens = flavour.tokens && random.once_in(2);
    let count = if tokens { count * 1_000 } else { count };
    let shape = match (flavour.days, random.below(8)) {
        (Some(zone), 0 | 1) => Shape::Day(zone),
        (_, 2 | 3) if flavour.kinds => Shape::Smooth,
        (_, 4 | 5) if flavour.kinds => {
            Shape::Bucket(if tokens { 1 + random.below(8_000) } else { 1 + random.below(8) })
        }
        _ => Shape::Window,
    };
    let is_window = shape == Shape::Window;
    Quota {
        count,
        period: if matches!(shape, Shape::Day(_)) { DAY } else { period },
        margin: (random.once_in(12) && (is_window || shape == Shape::Smooth)).then(|| odd(random, flavour, 3 * MS)),
        response: (random.once_in(12) && is_window).then(|| random.once_in(2)),
        shape,
        tokens,
    }
}

fn odd(random: &mut Random, flavour: Flavour, span: u64) -> u64 {
    span + if flavour.odd_nanos { random.below(4) } else { 0 }
}

fn span(random: &mut Random, flavour: Flavour) -> u64 {
    let span = random.pick(&[0, 1, 2, 5, 5, 10, 10, 20, 30, 50, 100, 1_000]) * MS;
    odd(random, flavour, span)
}

fn operation(random: &mut Random, flavour: Flavour, spec: &Spec, labels: &mut u32, ops: &mut Vec<Op>) {
    let label = |random: &mut Random| random.below(u64::from(*labels) + 1) as u32;
    if flavour.answers && random.once_in(5) {
        ops.push(Op::Answer {
            label: label(random),
            limit: random.below(8) as usize,
            left: random.pick(&[0, 0, 1, 1, 2, 3, 5, 60]),
        });
        return;
    }
    if flavour.settles && random.once_in(4) {
        let tokens = spec.counts_tokens() && random.once_in(2);
        let actual = if tokens { random.below(5_000) } else { random.below(7) };
        ops.push(Op::Settle { label: label(random), tokens, actual });
        return;
    }
    let op = match random.below(if flavour.trouble { 40 } else { 24 }) {
        0..=4 => Op::Advance(span(random, flavour)),
        5 if flavour.stalls => Op::Stall(span(random, flavour)),
        5..=23 => {
            let entry = entry(random, flavour, spec, *labels);
            let most = if flavour.bursts { 40 } else { 4 };
            let times = if random.once_in(3) { 1 + random.below(most) } else { 1 };
            for _ in 0..times {
                ops.push(Op::Enter(Entry { label: *labels, ..entry.clone() }));
                *labels += 1;
            }
            return;
        }
        24..=27 => Op::Withdraw(label(random)),
        28..=29 => Op::Poll(label(random)),
        30..=32 => Op::Hold(target(random, flavour), span(random, flavour)),
        33 => Op::Release(target(random, flavour)),
        _ if flavour.own && random.once_in(6) => {
            let quotas = if random.once_in(3) { Vec::new() } else { quotas(random, flavour) };
            Op::Own(random.below(flavour.rules) as usize, random.below(flavour.keys), quotas)
        }
        34..=35 => Op::Pause(random.below(flavour.rules) as usize),
        36..=38 => Op::Resume(random.below(flavour.rules) as usize),
        39 if random.once_in(10) => {
            if random.once_in(2) {
                Op::Close
            } else {
                Op::Abort
            }
        }
        _ => Op::Turn,
    };
    ops.push(op);
}

fn target(random: &mut Random, flavour: Flavour) -> Target {
    let rule = random.below(flavour.rules) as usize;
    let key = random.below(flavour.keys);
    match random.below(4) {
        0 if flavour.shared => Target::Overall,
        1 if flavour.shared => Target::Rule(rule),
        2 => Target::Queue(rule, key),
        _ => Target::Key(key),
    }
}

fn entry(random: &mut Random, flavour: Flavour, spec: &Spec, label: u32) -> Entry {
    let key = random.below(flavour.keys);
    let rule = if flavour.one_rule_per_key { key % flavour.rules } else { random.below(flavour.rules) };
    let trouble = flavour.trouble;
    let rarely = |random: &mut Random, times| trouble && random.once_in(times);
    Entry {
        label,
        rule: rule as usize,
        key,
        cost: Cost {
            requests: if flavour.costs && random.once_in(2) { 1 + random.below(5) } else { 1 },
            tokens: if flavour.tokens && random.once_in(2) { 1 + random.below(5_000) } else { 0 },
        },
        not_before: rarely(random, 8).then(|| span(random, flavour)),
        deadline: rarely(random, 5).then(|| span(random, flavour)),
        at_once: random.once_in(2),
        claims_after: match random.below(12) {
            0 if trouble => None,
            1..=3 if flavour.slow => Some(span(random, flavour)),
            _ => Some(0),
        },
        attempts: attempts(random, flavour, spec),
    }
}

fn attempts(random: &mut Random, flavour: Flavour, spec: &Spec) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    loop {
        let lasts = if flavour.slow && random.once_in(2) { span(random, flavour) } else { 0 };
        let then = match random.below(12) {
            _ if !flavour.trouble || attempts.len() > 2 => Then::Finish,
            0 | 1 => Then::Retry {
                scope: match random.below(5) {
                    0 => Scope::Request,
                    1 => Scope::Queue,
                    2 if flavour.shared && spec.rules.len() > 1 => Scope::Rule,
                    3 if flavour.shared => Scope::Overall,
                    _ => Scope::Key,
                },
                after: span(random, flavour),
                deadline: random.once_in(4).then(|| span(random, flavour)),
            },
            2 => Then::BackOff {
                after: span(random, flavour),
                deadline: random.once_in(4).then(|| span(random, flavour)),
            },
            _ => Then::Finish,
        };
        attempts.push(Attempt { lasts, then });
        if then == Then::Finish {
            return attempts;
        }
    }
}
