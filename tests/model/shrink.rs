//! Makes a history that goes wrong as small as it gets: fewer operations, plainer ones, fewer limits.

use super::history::{Attempt, History, Op, Then};
use super::spec::{Caps, Cost, Lane, Quota, Rule, Shape, Spec};

/// Histories tried before it is small enough.
const TRIES: usize = 20_000;

/// The smallest history found for which `is_wrong` still says so.
pub(crate) fn shrink(history: &History, is_wrong: impl Fn(&History) -> bool) -> History {
    let mut best = history.clone();
    let mut tries = 0;
    loop {
        let found = candidates(&best).find(|candidate| {
            tries += 1;
            tries <= TRIES && is_wrong(candidate)
        });
        match found {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

fn candidates(history: &History) -> impl Iterator<Item = History> {
    let fewer = fewer_ops(history);
    let plainer = plainer_ops(history);
    let rules = specs(&history.spec).into_iter().map(|spec| History { spec, ops: history.ops.clone() });
    fewer.chain(rules).chain(plainer)
}

/// Without a run of operations: long runs first.
fn fewer_ops(history: &History) -> impl Iterator<Item = History> {
    let len = history.ops.len();
    let sizes = std::iter::successors(Some(len / 2), |size| (*size > 1).then_some(size / 2)).filter(|size| *size > 0);
    sizes.flat_map(move |size| {
        (0..len).step_by(size).map(move |begin| {
            let mut ops = history.ops.clone();
            ops.drain(begin..(begin + size).min(len));
            History { spec: history.spec.clone(), ops }
        })
    })
}

/// One operation made plainer.
fn plainer_ops(history: &History) -> impl Iterator<Item = History> {
    history.ops.iter().enumerate().flat_map(move |(position, op)| {
        plainer(op).into_iter().filter(move |plain| plain != op).map(move |plain| {
            let mut ops = history.ops.clone();
            ops[position] = plain;
            History { spec: history.spec.clone(), ops }
        })
    })
}

fn plainer(op: &Op) -> Vec<Op> {
    let Op::Enter(entry) = op else { return Vec::new() };
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut super::history::Entry)| {
        let mut entry = entry.clone();
        change(&mut entry);
        all.push(Op::Enter(entry));
    };
    with(&|entry| entry.attempts = vec![Attempt { lasts: 0, then: Then::Finish }]);
    with(&|entry| entry.attempts.truncate(1));
    with(&|entry| entry.claims_after = Some(0));
    with(&|entry| entry.not_before = None);
    with(&|entry| entry.deadline = None);
    with(&|entry| entry.cost = Cost::ONE);
    with(&|entry| {
        for attempt in &mut entry.attempts {
            attempt.lasts = 0;
        }
    });
    all
}

/// The rules with one thing less.
fn specs(spec: &Spec) -> Vec<Spec> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Spec)| {
        let mut smaller = spec.clone();
        change(&mut smaller);
        if smaller != *spec {
            all.push(smaller);
        }
    };
    with(&|spec| spec.margin = 0);
    with(&|spec| spec.response = false);
    with(&|spec| spec.fair_by_tokens = false);
    for number in 0..spec.own.len() {
        with(&|spec| drop(spec.own.remove(number)));
    }
    with(&|spec| {
        spec.limits.clear();
        spec.rules.iter_mut().for_each(|rule| rule.under.clear());
    });
    for change in CAPS {
        with(&|spec| change(&mut spec.caps));
        for number in 0..spec.rules.len() {
            with(&|spec| change(&mut spec.rules[number].caps));
        }
        for number in 0..spec.limits.len() {
            with(&|spec| {
                change(&mut spec.limits[number]);
                if spec.limits[number].is_empty() {
                    spec.limits[number].concurrency = Some(1_000);
                }
            });
        }
    }
    for number in 0..spec.rules.len() {
        with(&|spec| {
            let Rule { caps, lane, .. } = spec.rules[number].clone();
            spec.rules[number] = Rule { caps, lane, under: spec.rules[number].under.clone(), ..Rule::default() };
        });
        for change in RULE {
            with(&|spec| change(&mut spec.rules[number]));
        }
    }
    for position in 0..spec.lanes.len() {
        with(&|spec| {
            spec.lanes[position] =
                Lane { share: spec.lanes[position].share, pace: spec.lanes[position].pace, ..Lane::default() }
        });
        with(&|spec| spec.lanes[position].pace = Some(super::spec::Pace::Off));
    }
    if spec.lanes.len() > 1 {
        with(&|spec| {
            spec.lanes.truncate(1);
            spec.lanes[0].share = 20;
            spec.rules.iter_mut().for_each(|rule| rule.lane = 0);
        });
    }
    all
}

type Change<T> = fn(&mut T);

const CAPS: [Change<Caps>; 8] = [
    |caps| caps.overall.clear(),
    |caps| caps.per_key.clear(),
    |caps| caps.concurrency = None,
    |caps| caps.key_concurrency = None,
    |caps| caps.overall.truncate(1),
    |caps| caps.per_key.truncate(1),
    |caps| plain(&mut caps.overall),
    |caps| plain(&mut caps.per_key),
];

const RULE: [Change<Rule>; 6] = [
    |rule| rule.weight = 1,
    |rule| rule.ordered = false,
    |rule| rule.queue = None,
    |rule| rule.paused = false,
    |rule| rule.drop_oldest = false,
    |rule| (rule.under_overall, rule.under_per_key) = (true, true),
];

fn plain(quotas: &mut [Quota]) {
    for quota in quotas {
        (quota.margin, quota.response) = (None, None);
        if !matches!(quota.shape, Shape::Day(_)) {
            quota.shape = Shape::Window;
        }
    }
}
