//! Goes through every list of operations that is possible in a world, up to a length.
//!
//! A list is worth looking at if each operation means something when it comes: a request is polled only while there is
//! something for it to learn, ended only while it runs, withdrawn only while it stands in line. The two keys differ in
//! nothing but their names, so the first one that is named is the first.

use std::collections::BTreeSet;
use std::sync::Arc;

use request_balancer::Rules;
use request_balancer::engine::Plan;

use super::worlds::{TICK, World};
use crate::model::books::{Books, Stage};
use crate::model::history::{Attempt, Entry, History, Op, Target, Then};
use crate::model::owner::{Owner, loaded};
use crate::model::spec::{Cost, MS};

/// An attempt that nobody ends earlier ends then: long after the last operation.
const LONG: u64 = 1_000 * MS;

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// Lists of operations, each with its end in which everything comes to rest.
    pub(crate) lists: u64,
    pub(crate) starts: u64,
    /// Lists in which somebody still stood in line after the last operation.
    pub(crate) waited: u64,
}

/// Goes through all lists of up to `longest` operations.
pub(crate) fn explore(world: &World, longest: usize) -> Count {
    let mut count = Count::default();
    let mut ops = Vec::new();
    let loaded = loaded(&world.spec).unwrap_or_else(|wrong| panic!("{}: {wrong}", world.name));
    go_on(world, &loaded, longest, &mut ops, &mut count);
    count
}

fn go_on(world: &World, loaded: &(Rules, Arc<Plan>), longest: usize, ops: &mut Vec<Op>, count: &mut Count) {
    let history = History { spec: world.spec.clone(), ops: ops.clone() };
    let (next, waits, owner) = follow(world, loaded, &history).unwrap_or_else(|wrong| {
        // Once more for a panic of the machine, and to make it smaller.
        crate::model::run_or_shrink(0, &history, crate::model::run);
        panic!("{}: {wrong}\n{history}", world.name)
    });
    count.lists += 1;
    count.starts += owner.books.attempts.len() as u64;
    count.waited += u64::from(waits);
    if ops.len() == longest {
        return;
    }
    for op in next {
        ops.push(op);
        go_on(world, loaded, longest, ops, count);
        ops.pop();
    }
}

/// Goes through one list, says what may come next, and lets everything come to its end.
fn follow(world: &World, loaded: &(Rules, Arc<Plan>), history: &History) -> Result<(Vec<Op>, bool, Owner), String> {
    let (rules, plan) = loaded;
    let mut owner = Owner::under(&history.spec, rules.clone(), Arc::clone(plan));
    for (position, op) in history.ops.iter().enumerate() {
        owner.blindly = position + 1 < history.ops.len();
        owner.apply(op)?;
    }
    let next = possible(world, &history.ops, &owner.books);
    let waits = owner.books.requests.iter().any(|request| request.stage.in_line());
    owner.end_all()?;
    owner.drain()?;
    Ok((next, waits, owner))
}

fn possible(world: &World, ops: &[Op], books: &Books) -> Vec<Op> {
    let mut all = Vec::new();
    let named: BTreeSet<u64> = ops.iter().filter_map(key_of).collect();
    let keys = || (0..2).filter(|key| *key == 0 || named.contains(&0));
    for rule in 0..world.spec.rules.len() {
        for key in keys() {
            for &cost in world.costs {
                all.push(Op::Enter(entry(world, books.requests.len() as u32, rule, key, cost)));
            }
        }
    }
    for (number, request) in books.requests.iter().enumerate() {
        let label = number as u32;
        let stage = request.stage;
        match stage {
            Stage::Granted | Stage::Asleep if world.polls_late => all.push(Op::Poll(label)),
            Stage::Refused(_) => all.push(Op::Poll(label)),
            Stage::Running(_) => all.extend(world.ends.iter().map(|&then| Op::End(label, then))),
            Stage::Granted | Stage::Asleep | Stage::Queued | Stage::Perhaps | Stage::Out(_) | Stage::Gone => {}
        }
        if stage.in_line() {
            all.push(Op::Withdraw(label));
        }
    }
    for key in keys().filter(|_| world.holds) {
        all.push(Op::Hold(Target::Key(key), 2 * TICK));
    }
    if world.holds {
        all.push(Op::Hold(Target::Overall, TICK));
    }
    // Before the first operation there is nothing to wait for.
    if !ops.is_empty() {
        all.push(Op::Advance(TICK));
    }
    // What is held again for as long, at the same instant, is held as before.
    all.retain(|op| !matches!(op, Op::Hold(..)) || ops.last() != Some(op));
    all
}

fn key_of(op: &Op) -> Option<u64> {
    match op {
        Op::Enter(entry) => Some(entry.key),
        Op::Hold(Target::Key(key), _) => Some(*key),
        _ => None,
    }
}

fn entry(world: &World, label: u32, rule: usize, key: u64, requests: u64) -> Entry {
    Entry {
        label,
        rule,
        key,
        cost: Cost { requests, tokens: 0 },
        not_before: None,
        deadline: world.max_wait,
        at_once: !world.polls_late,
        claims_after: (!world.polls_late).then_some(0),
        attempts: vec![Attempt { lasts: LONG, then: Then::Finish }],
    }
}
