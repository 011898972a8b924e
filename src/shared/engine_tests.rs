//! The arithmetic of a store against the engine's own: the same random histories start at the same instants, whoever counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::driver::answers;
use super::store::{Ask, AskedLimit, Known, News, Reply};
use super::tally::{CELLS, Tally};
use crate::engine::LISTED;
use crate::engine::{
    Charge, Claim, Entry, Instant, KeyId, LimitKind, LimitSpec, Nanos, Plan, Reach, RequestId, RuleId, Scheduler, Site,
    Take, Turned,
};
use crate::rules::Rules;

/// What is asked at an instant of the store's time, in microseconds, and what comes of it.
pub(super) type Store<'a> = &'a mut dyn FnMut(u64, &Ask) -> (Reply, Vec<News>);

/// The store's time when a history begins.
const BEGIN: u64 = 1_000_000_000_000;
/// Nobody dies here.
const LEASE: Duration = Duration::from_secs(3_600);

/// One call that somebody makes.
#[derive(Clone, Copy, Debug)]
struct Call {
    at: Instant,
    rule: RuleId,
    key: u64,
    cost: u32,
    handling: Nanos,
}

/// What the limits of a history are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Window,
    Windows,
    Cells,
    Smooth,
    Bucket,
    Cap,
    All,
}

/// All of them; windows of which a store counts no single starts come last.
pub(super) const KINDS: [Kind; 7] =
    [Kind::Window, Kind::Windows, Kind::Smooth, Kind::Bucket, Kind::Cap, Kind::All, Kind::Cells];

/// The limits of one level.
struct Level {
    text: String,
    largest: u32,
}

/// Limits whose lengths are whole microseconds, however they are divided.
fn level(kind: Kind, random: &mut Rng) -> Level {
    let mut largest = u32::MAX;
    let mut quotas = String::new();
    let mut quota = |count: u32, each: u64, more: &str, most: u32| {
        largest = largest.min(most);
        write!(quotas, "'{count}/{}us{more}', ", each * u64::from(count)).unwrap();
    };
    let (count, each) = (random.u32(1..12), random.u64(1_000..60_000));
    match kind {
        Kind::Window => quota(count, each, "", count),
        Kind::Windows => (0..3).for_each(|_| {
            let count = random.u32(1..12);
            quota(count, random.u64(1_000..60_000), "", count);
        }),
        Kind::Cells => {
            let count = LISTED + random.u32(1..50);
            quota(count, random.u64(10..200), "", count);
        }
        Kind::Smooth => quota(count, each, " smooth", count),
        Kind::Bucket => {
            let burst = random.u32(1..12);
            quota(count, each, &format!(" burst {burst}"), burst);
        }
        Kind::Cap => quota(900, 1_000, "", 900),
        Kind::All => {
            let burst = random.u32(2..12);
            quota(count + 1, each, "", count + 1);
            quota(count + 1, each / 2 + 1, &format!(" burst {burst}"), burst);
        }
    }
    let cap = match kind {
        Kind::Cap | Kind::All => format!("concurrency = {}, ", random.u32(1..4)),
        Kind::Window | Kind::Windows | Kind::Cells | Kind::Smooth | Kind::Bucket => String::new(),
    };
    Level { text: format!("{{ limit = [{quotas}], {cap}shared = true }}"), largest }
}

fn calls(kind: Kind, random: &mut Rng, largest: u32, rules: u16, keys: u64) -> Vec<Call> {
    let mut at = 0;
    let (pause, costly) = (random.u64(1..90_000), random.u8(0..3));
    let number = if kind == Kind::Cells { 120 } else { 60 };
    let largest = if kind == Kind::Cells { largest / 10 } else { largest };
    let call = |_| {
        at += if random.u8(0..3) == 0 { random.u64(0..pause) } else { 0 };
        Call {
            at: Instant::from_nanos(at * 1_000),
            rule: RuleId(random.u16(0..rules)),
            key: random.u64(0..keys),
            cost: if random.u8(0..3) < costly || kind == Kind::Cells { random.u32(1..=largest) } else { 1 },
            handling: Nanos::new(random.u64(0..40_000) * 1_000 * u64::from(random.bool())),
        }
    };
    (0..number).map(call).collect()
}

/// A machine on virtual time whose executor is never late.
struct Driver<'a> {
    machine: Scheduler<usize>,
    store: Option<Store<'a>>,
    calls: &'a [Call],
    keys: BTreeMap<u64, KeyId>,
    ids: Vec<Option<RequestId>>,
    ends: BTreeSet<(Instant, usize)>,
    starts: Vec<Option<Instant>>,
    known: HashMap<Arc<str>, Known>,
    asked: u64,
}

/// When each call starts: counted by the machine itself, or by a store.
fn run<'a>(plan: Arc<Plan>, calls: &'a [Call], store: Option<Store<'a>>) -> Vec<Instant> {
    let mut machine = Scheduler::new(plan);
    if store.is_some() {
        machine.set_reach(Instant::ZERO, Reach::Asked);
    }
    let mut driver = Driver {
        machine,
        store,
        calls,
        keys: BTreeMap::new(),
        ids: vec![None; calls.len()],
        ends: BTreeSet::new(),
        starts: vec![None; calls.len()],
        known: HashMap::new(),
        asked: 0,
    };
    driver.run();
    driver.starts.into_iter().map(|start| start.expect("every call starts")).collect()
}

impl Driver<'_> {
    fn run(&mut self) {
        let (mut arrived, mut rounds) = (0, 0);
        loop {
            let arrival = self.calls.get(arrived).map(|call| call.at);
            let end = self.ends.first().map(|(at, _)| *at);
            let Some(now) = [arrival, end, self.machine.next_wake()].into_iter().flatten().min() else { return };
            rounds += 1;
            assert!(rounds < 100_000, "it goes round in circles at {now:?}");
            while let Some((at, call)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
                self.ends.remove(&(at, call));
                self.machine.finish(now, self.ids[call].expect("it started"));
            }
            while self.calls.get(arrived).is_some_and(|call| call.at <= now) {
                self.arrive(now, arrived);
                arrived += 1;
            }
            self.settle(now);
        }
    }

    fn arrive(&mut self, now: Instant, index: usize) {
        let Call { rule, key, cost, .. } = self.calls[index];
        let id = loop {
            let record = *self.keys.entry(key).or_insert_with(|| self.machine.add_key(now, key));
            match self.machine.enqueue(now, record, rule, Entry { cost, ..Entry::default() }) {
                Ok(id) => break id,
                Err(Turned::StaleKey) => drop(self.keys.remove(&key)),
                Err(turned) => panic!("call {index} is turned away: {turned:?}"),
            }
        };
        self.ids[index] = Some(id);
        self.machine.set_waker(id, index);
    }

    /// Until nothing more happens at this instant.
    fn settle(&mut self, now: Instant) {
        loop {
            self.machine.dispatch(now);
            let wakes = std::mem::take(self.machine.take_wakes());
            let is_still = wakes.is_empty();
            for index in wakes {
                match self.machine.claim(now, self.ids[index].expect("it is in line")) {
                    Claim::Started { .. } => {
                        self.starts[index] = Some(now);
                        self.ends.insert((now.saturating_add(self.calls[index].handling), index));
                    }
                    Claim::Waiting => drop(self.machine.set_waker(self.ids[index].expect("it is in line"), index)),
                    answer @ (Claim::Running | Claim::Refused { .. } | Claim::Unknown) => panic!("{index}: {answer:?}"),
                }
            }
            for evicted in self.machine.take_evicted().drain(..) {
                if self.keys.get(&evicted.tag) == Some(&evicted.id) {
                    self.keys.remove(&evicted.tag);
                }
            }
            if is_still && !self.ask(now) && self.machine.next_wake().is_none_or(|wake| wake > now) {
                return;
            }
        }
    }

    /// Whether there was anything to ask.
    fn ask(&mut self, now: Instant) -> bool {
        let Some(store) = self.store.as_mut().filter(|_| self.machine.wants_store()) else { return false };
        let Some(batch) = self.machine.collect(now) else { return false };
        let names: Vec<Arc<str>> = batch.lines.iter().map(|line| name(line.site, &self.keys)).collect();
        let limits = batch.lines.iter().zip(&names);
        let limits = limits.map(|(line, name)| AskedLimit::of(line, name, self.known.get(name).copied())).collect();
        self.asked += 1;
        let ask =
            Ask { process: 1, number: self.asked, lag: Duration::ZERO, lease: LEASE, limits, requests: batch.asks };
        let (reply, news) = store(time(now), &ask);
        for (name, limit) in names.iter().zip(&reply.limits) {
            assert!(!limit.lost, "{name} is lost");
            self.known.insert(Arc::clone(name), limit.known);
        }
        self.machine.answer(now, &answers(&batch.lines, reply, Vec::new(), now));
        for news in news {
            let News::Freed { name: freed } = news else { panic!("{news:?}") };
            let site = batch.lines.iter().map(|line| line.site).zip(&names).find(|(_, name)| **name == freed);
            self.machine.reopen(now, site.expect("a limit that was asked for").0);
        }
        true
    }
}

fn name(site: Site, keys: &BTreeMap<u64, KeyId>) -> Arc<str> {
    let number =
        |key| keys.iter().find(|(_, known)| **known == key).map(|(number, _)| *number).expect("a key of a call");
    let name = match site {
        Site::Shared(limit) => format!("overall:{limit}"),
        Site::Key(key, limit) => format!("key:{}:{limit}", number(key)),
        Site::Own(rule, key, limit) => format!("own:{}:{}:{limit}", rule.0, number(key)),
        Site::Endpoint(..) => panic!("there is no pool"),
    };
    format!("{{rb}}:v1:{name}").into()
}

fn time(now: Instant) -> u64 {
    BEGIN + now.as_nanos().div_ceil(1_000)
}

/// One call after the other, each of a process of its own that knows nothing of the others: only the store counts.
fn one_by_one(specs: &[LimitSpec], calls: &[Call], store: Store<'_>) -> Vec<Instant> {
    let mut ends: BTreeSet<(Instant, u64)> = BTreeSet::new();
    let line = |(at, spec): (usize, &LimitSpec)| AskedLimit::new(name(Site::Shared(at), &BTreeMap::new()), spec.kind);
    let question = |process, number, requests| {
        let limits = specs.iter().enumerate().map(line).collect();
        Ask { process, number, lag: Duration::ZERO, lease: LEASE, limits, requests }
    };
    let mut now = Instant::ZERO;
    let mut starts = Vec::new();
    for (process, call) in (1..).zip(calls) {
        now = now.max(call.at);
        let takes: Vec<Take> =
            (0..specs.len()).map(|line| Take { line, cost: cost(&specs[line], call), reserve: 0 }).collect();
        loop {
            while let Some((end, other)) = ends.first().copied().filter(|(end, _)| *end <= now) {
                ends.remove(&(end, other));
                store(time(end), &question(other, 1_000_000, Vec::new()));
            }
            let (reply, _) = store(time(now), &question(process, starts.len() as u64 + 1, vec![takes.clone()]));
            if reply.taken == [true] {
                break;
            }
            let wait =
                reply.limits.iter().filter_map(|limit| limit.wait).max().expect("whoever refuses says for how long");
            let free = now.saturating_add(wait.into());
            now = ends.first().map_or(free, |(end, _)| free.min(*end));
        }
        starts.push(now);
        ends.insert((now.saturating_add(call.handling), process));
    }
    starts
}

fn cost(spec: &LimitSpec, call: &Call) -> u32 {
    match spec.charge {
        Charge::Attempt => 1,
        Charge::Requests | Charge::Unit(_) => call.cost,
    }
}

/// All windows that are counted in cells, longer by a cell.
fn longer(specs: &str, plan: &Plan) -> String {
    let mut text = specs.to_owned();
    for spec in &plan.shared_limits {
        if let LimitKind::Window { period, .. } = spec.kind {
            let micros = period.get() / 1_000;
            text = text.replace(&format!("/{micros}us"), &format!("/{}us", micros + micros.div_ceil(CELLS)));
        }
    }
    text
}

/// Whoever asks the store for one call after the other, without a machine, starts when the engine would have it.
pub(super) fn same_alone(kind: Kind, seed: u64, store: Store<'_>) {
    let mut random = Rng::with_seed(seed);
    let Level { text, largest } = level(kind, &mut random);
    let text = format!("overall = {text}");
    let calls = calls(kind, &mut random, largest, 1, 1);
    let plan = |text: &str| text.parse::<Rules>().unwrap_or_else(|error| panic!("{error}\n{text}")).plan();
    let ours = run(plan(&text), &calls, None);
    let theirs = one_by_one(&plan(&text).shared_limits, &calls, store);
    if kind == Kind::Cells {
        let latest = run(plan(&longer(&text, &plan(&text))), &calls, None);
        for ((ours, theirs), latest) in ours.iter().zip(&theirs).zip(&latest) {
            assert!(ours <= theirs && theirs <= latest, "seed {seed}: {ours:?}, {theirs:?}, {latest:?} in {text}");
        }
    } else {
        assert_eq!(theirs, ours, "{kind:?}, seed {seed}: {text}\n{calls:?}");
    }
}

/// A machine whose limits all live in the store starts the same calls at the same instants as one that counts for itself.
pub(super) fn same_in_a_machine(kind: Kind, seed: u64, store: Store<'_>) {
    let mut random = Rng::with_seed(seed);
    let (overall, per_key) = (level(kind, &mut random), level(kind, &mut random));
    let rules = match kind {
        // Which of two lanes has the next slot of a cap differs now and then from one machine.
        Kind::Cap | Kind::All => "b = {}",
        Kind::Window | Kind::Windows | Kind::Cells | Kind::Smooth | Kind::Bucket => {
            "b = { priority = 2 }\n[lanes.2]\npace = false"
        }
    };
    let text = format!("overall = {}\nper_key = {}\n[rules]\na = {{}}\n{rules}", overall.text, per_key.text);
    let mut calls = calls(kind, &mut random, overall.largest.min(per_key.largest), 2, 3);
    // What rules of one key do to each other is noted when the store has given: a turn later than in one machine.
    calls.iter_mut().for_each(|call| call.key = call.key * 2 + u64::from(call.rule.0));
    let plan = text.parse::<Rules>().unwrap_or_else(|error| panic!("{error}\n{text}")).plan();
    let ours = run(Arc::clone(&plan), &calls, None);
    let theirs = run(plan, &calls, Some(store));
    assert_eq!(theirs, ours, "{kind:?}, seed {seed}: {text}\n{calls:?}");
}

fn each(kinds: &[Kind], histories: u64, same: fn(Kind, u64, Store<'_>)) {
    for &kind in kinds {
        for seed in 0..histories {
            let mut tally = Tally::default();
            same(kind, seed, &mut |now, ask| tally.answer(now, ask));
        }
    }
}

#[test]
fn a_store_lets_calls_go_when_the_engine_does() {
    each(&KINDS, 40, same_alone);
}

#[test]
fn a_machine_on_a_store_starts_what_one_without_does() {
    each(&KINDS[..6], 40, same_in_a_machine);
}
