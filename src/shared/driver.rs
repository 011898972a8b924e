//! The tasks that speak with a store on a balancer's behalf: one asks, one tells, one hears.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant as TokioInstant, sleep, timeout};

use super::names;
use super::store::{Ask, AskedLimit, Known, News, Reply, Store, StoreError};
use crate::engine::{
    Answers, Batch, HoldCause, Instant, LimitKind, Line, Nanos, Reach, Scope, Site, Take, Target, Told, Turned,
};
use crate::rules::{CheckedShared, OnOutage};
use crate::runtime::afar::Afar;
use crate::runtime::{Event, Locked as State, Shared};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// So many calls without an answer, and the store counts as lost.
const FAILURES: u32 = 3;
/// Time between two tries while it is.
const PROBE: Duration = Duration::from_millis(200);
/// Time between two tries before.
const AGAIN: Duration = Duration::from_millis(20);
/// What somebody waits for at most who waits for a slot: news that one is free may be lost.
const SLOT: Nanos = Nanos::from_secs(1);
/// News that wait to be told; older ones are let go.
const UNTOLD: usize = 1_024;

/// A balancer's connection with a store.
#[derive(Debug)]
pub(crate) struct Link {
    store: Arc<dyn Store>,
    shared: CheckedShared,
    process: u64,
    /// There is something to ask.
    bell: Arc<Notify>,
    /// There is something to tell.
    told: Arc<Notify>,
    /// The balancer is gone.
    over: Arc<Notify>,
    news: Mutex<Vec<News>>,
    /// How many questions were asked.
    asked: AtomicU64,
    /// The caps of which slots are in use, as far as the store was told.
    caps: Mutex<BTreeMap<Arc<str>, LimitKind>>,
}

impl Link {
    pub(crate) fn new(store: Arc<dyn Store>, shared: CheckedShared, process: u64) -> Self {
        let notify = || Arc::new(Notify::new());
        Self {
            store,
            shared,
            process,
            bell: notify(),
            told: notify(),
            over: notify(),
            news: Mutex::default(),
            asked: AtomicU64::new(0),
            caps: Mutex::default(),
        }
    }
}

impl Afar for Arc<Link> {
    fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    fn start(&self, shared: &Arc<Shared>, runtime: &Handle) {
        let was_manned = shared.with(|state, _| std::mem::replace(&mut state.desk.manned, true));
        if was_manned {
            return;
        }
        let (link, shared) = (Arc::clone(self), Arc::downgrade(shared));
        drop(runtime.spawn(async move {
            let post = Post(Weak::clone(&shared));
            let asker = Asker::new(Arc::clone(&link));
            let serve = async { tokio::join!(asker.serve(&shared), link.tell_all(&shared), link.hear_all(&shared)) };
            let over = link.over.notified();
            tokio::select! {
                () = over => {}
                _ = serve => {}
            }
            drop(post);
            link.leave().await;
        }));
    }

    fn tell(&self, shared: &Shared, event: &Event) {
        let is_shared = |rule: &Option<Arc<str>>| {
            let live = shared.live.load();
            match rule.as_ref().and_then(|rule| live.find(rule).ok()) {
                Some(rule) => live.plan.is_shared_by(live.rule(rule)),
                None => live.plan.is_shared(),
            }
        };
        let news = match event {
            Event::HoldStarted { scope, rule, key, lasts, .. } if is_shared(rule) => {
                let rule = rule.clone().filter(|_| matches!(scope, Scope::Rule | Scope::Queue));
                let key = key.clone().filter(|_| matches!(scope, Scope::Key | Scope::Queue));
                match scope {
                    Scope::Request => return,
                    Scope::Queue | Scope::Key | Scope::Rule | Scope::Overall | Scope::Endpoint => {}
                }
                News::Hold { scope: *scope, rule, key, endpoint: None, lasts: *lasts }
            }
            Event::EndpointHeld { endpoint, lasts, .. } if is_shared(&None) => {
                let endpoint = Some(Arc::clone(endpoint));
                News::Hold { scope: Scope::Endpoint, rule: None, key: None, endpoint, lasts: *lasts }
            }
            _ => return,
        };
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < UNTOLD {
            all.push(news);
        }
        drop(all);
        self.told.notify_one();
    }

    fn end(&self) {
        self.over.notify_waiters();
        self.over.notify_one();
    }
}

/// Tells a balancer that nobody asks the store for it any more.
struct Post(Weak<Shared>);

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.desk_left();
        }
    }
}

impl Link {
    /// Tells the others what is to be told, each thing once.
    async fn tell_all(&self, shared: &Weak<Shared>) {
        while shared.strong_count() > 0 {
            let news = std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
            if news.is_empty() {
                self.told.notified().await;
            }
            for news in news {
                for _ in 0..FAILURES {
                    if let Ok(Ok(())) = timeout(PATIENCE, self.store.tell(self.process, news.clone())).await {
                        break;
                    }
                    sleep(PROBE).await;
                }
            }
        }
    }

    /// Hears what others tell.
    async fn hear_all(&self, shared: &Weak<Shared>) {
        while shared.strong_count() > 0 {
            if let Ok(Ok(mut ears)) = timeout(PATIENCE * 5, self.store.hear(self.process)).await {
                while let Some(news) = ears.recv().await {
                    let Some(shared) = shared.upgrade() else { return };
                    heed(&shared, &self.shared, news);
                }
            }
            sleep(PROBE).await;
        }
    }

    /// Gives the slots back that the balancer had: nobody is to wait for the end of the lease.
    async fn leave(&self) {
        let caps = std::mem::take(&mut *self.caps.lock().unwrap_or_else(PoisonError::into_inner));
        if caps.is_empty() {
            return;
        }
        let free = |(name, kind)| AskedLimit { name, kind, held: 0, told: Told::Nothing, known: Known::default() };
        let ask = self.question(Duration::ZERO, caps.into_iter().map(free).collect(), Vec::new());
        // If that fails, the lease sees to it.
        drop(timeout(PATIENCE, self.store.ask(ask)).await);
    }

    fn question(&self, lag: Duration, limits: Vec<AskedLimit>, requests: Vec<Vec<Take>>) -> Ask {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        Ask { process: self.process, number, lag, lease: self.shared.lease(), limits, requests }
    }

    /// Remembers which caps the store counts slots of.
    fn note_caps(&self, lines: &[Line], names: &[Arc<str>], requests: &[Vec<Take>]) {
        let taken: BTreeSet<usize> = requests.iter().flatten().map(|take| take.line).collect();
        let mut caps = self.caps.lock().unwrap_or_else(PoisonError::into_inner);
        for (position, (line, name)) in lines.iter().zip(names).enumerate().filter(|(_, (line, _))| line.is_cap()) {
            if line.held > 0 || taken.contains(&position) {
                caps.insert(Arc::clone(name), line.kind);
            } else {
                caps.remove(name);
            }
        }
    }
}

/// Does what another process tells.
fn heed(shared: &Arc<Shared>, rules: &CheckedShared, news: News) {
    match news {
        News::Hold { scope, rule, key, endpoint, lasts } => {
            let hold = |state: &mut State, now: Instant, target: Target| {
                state.machine.hold_because(now, target, now.saturating_add(lasts.into()), HoldCause::Retry)
            };
            let rule = rule.and_then(|rule| shared.find(&rule).ok());
            match (scope, rule, key) {
                (Scope::Overall, ..) => drop(shared.with(|state, now| hold(state, now, Target::Overall))),
                (Scope::Rule, Some(rule), _) => drop(shared.with(|state, now| hold(state, now, Target::Rule(rule)))),
                (Scope::Endpoint, ..) => {
                    let live = shared.live.load();
                    if let Some(Ok(id)) = endpoint.map(|name| live.find_endpoint(&name)) {
                        shared.with(|state, now| hold(state, now, Target::Endpoint(id)));
                    }
                }
                (Scope::Key, _, Some(key)) => {
                    let _: Result<(), Turned> = shared.with_record(&key, |state, now, record| {
                        if hold(state, now, Target::Key(record)) { Ok(()) } else { Err(Turned::StaleKey) }
                    });
                }
                (Scope::Queue, Some(rule), Some(key)) => {
                    let _: Result<(), Turned> = shared.with_record(&key, |state, now, record| {
                        if hold(state, now, Target::Queue(rule, record)) { Ok(()) } else { Err(Turned::StaleKey) }
                    });
                }
                (Scope::Rule | Scope::Key | Scope::Queue | Scope::Request, ..) => {}
            }
        }
        News::Freed { name } => {
            shared.with(|state, now| {
                for site in state.machine.closed_sites() {
                    if name_at(shared, state, rules.prefix(), site).is_some_and(|known| known == name) {
                        state.machine.reopen(now, site);
                    }
                }
            });
        }
    }
}

/// What the limit at a place is called.
fn name_at(shared: &Shared, state: &State, prefix: &str, site: Site) -> Option<Arc<str>> {
    let spec = state.machine.shared_spec(site)?;
    let live = shared.live.load();
    let key = match site {
        Site::Key(key, _) | Site::Own(_, key, _) => Some(state.desk.keys.get(&key)?.written()),
        Site::Shared(_) | Site::Endpoint(..) => None,
    };
    Some(names::of_limit(prefix, &spec, live.unit_name(spec.charge), key.as_deref()))
}

/// The task that asks.
struct Asker {
    link: Arc<Link>,
    /// What the store said of limits: the last thing first forgotten is what it says nothing of any more.
    known: HashMap<Arc<str>, Known>,
    /// When what is known of a limit is worth nothing any more.
    stale: BTreeMap<(TokioInstant, Arc<str>), ()>,
    /// The slowest answer of late.
    slowest: Duration,
    /// How long starts wait for the executor.
    grace: Duration,
    failures: u32,
    renewed: TokioInstant,
}

/// What there is to do.
enum Errand {
    Ask(Batch, Vec<Arc<str>>, Instant),
    /// Nothing, while slots are held, or not.
    Nothing {
        holds: bool,
    },
    /// The store is lost.
    Probe,
}

/// How long starts are expected to wait for the executor at least and at most.
const GRACES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];

impl Asker {
    fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            known: HashMap::new(),
            stale: BTreeMap::new(),
            slowest: Duration::ZERO,
            grace: GRACES[0],
            failures: 0,
            renewed: TokioInstant::now(),
        }
    }

    async fn serve(mut self, shared: &Weak<Shared>) {
        let third = self.link.shared.lease() / 3;
        loop {
            let Some(owner) = shared.upgrade() else { return };
            let errand = self.look(&owner, third);
            drop(owner);
            match errand {
                Errand::Ask(batch, names, now) => self.ask(shared, batch, names, now).await,
                Errand::Probe => self.probe(shared).await,
                Errand::Nothing { holds } => {
                    let due = self.renewed + third;
                    let bell = self.link.bell.notified();
                    if holds {
                        // Whether it was rung or not: the next look shows what there is.
                        drop(tokio::time::timeout_at(due, bell).await);
                    } else {
                        bell.await;
                    }
                }
            }
        }
    }

    /// Sees what there is to ask.
    fn look(&mut self, shared: &Shared, third: Duration) -> Errand {
        shared.with(|state, now| {
            state.answer_bell();
            match state.machine.reach() {
                Reach::Alone | Reach::Open | Reach::Closed => return Errand::Probe,
                Reach::Back(since) if now.since(since) >= state.machine.longest_shared() => {
                    state.machine.set_reach(now, Reach::Asked);
                }
                Reach::Nowhere | Reach::Asked | Reach::Back(_) => {}
            }
            if self.renewed.elapsed() >= third {
                self.renewed = TokioInstant::now();
                state.machine.renew_leases();
            }
            for _ in 0..state.machine.take_late() {
                self.grace = (self.grace * 2).min(GRACES[1]);
            }
            match state.machine.collect(now) {
                Some(batch) => {
                    let prefix = self.link.shared.prefix();
                    let name = |site| name_at(shared, state, prefix, site);
                    let names = batch.lines.iter().map(|line| name(line.site).unwrap_or_else(|| "".into())).collect();
                    Errand::Ask(batch, names, now)
                }
                None => Errand::Nothing { holds: state.machine.holds_slots() },
            }
        })
    }

    async fn ask(&mut self, shared: &Weak<Shared>, batch: Batch, names: Vec<Arc<str>>, since: Instant) {
        let lag = self.slowest * 2 + self.grace;
        let limits = batch.lines.iter().zip(&names).map(|(line, name)| AskedLimit {
            name: Arc::clone(name),
            kind: line.kind,
            held: line.held,
            told: line.told.clone(),
            known: self.known.get(name).copied().unwrap_or_default(),
        });
        self.link.note_caps(&batch.lines, &names, &batch.asks);
        let ask = self.link.question(lag, limits.collect(), batch.asks);
        let sent = TokioInstant::now();
        let answer = timeout(PATIENCE, self.link.store.ask(ask)).await.unwrap_or(Err(StoreError::Late(PATIENCE)));
        let Some(owner) = shared.upgrade() else { return };
        match answer {
            Ok(reply) => {
                self.failures = 0;
                let took = sent.elapsed();
                self.slowest = took.max(self.slowest - self.slowest / 16);
                self.grace = (self.grace - self.grace / 256).max(GRACES[0]);
                self.note(&batch.lines, &names, &reply);
                let forgotten: Vec<Arc<str>> = names
                    .iter()
                    .zip(&reply.limits)
                    .filter(|(_, limit)| limit.lost)
                    .map(|(name, _)| Arc::clone(name))
                    .collect();
                owner.with(|state, now| {
                    // The store counts the starts as of `lag` after it was asked, which was after that.
                    state.machine.answer(now, &answers(&batch.lines, reply, since.saturating_add(lag.into())));
                });
                for limit in forgotten {
                    owner.tell(Event::StoreForgot { limit });
                }
            }
            Err(error) => {
                self.failures += 1;
                let is_lost = self.failures >= FAILURES;
                let reach = self.link.reach_without();
                owner.with(|state, now| {
                    state.machine.fail(now);
                    if is_lost {
                        state.machine.set_reach(now, reach);
                    }
                });
                if is_lost {
                    owner.tell(Event::StoreLost { why: error.to_string().into() });
                }
                drop(owner);
                sleep(AGAIN).await;
            }
        }
    }

    /// Remembers what was said of limits for as long as it is of use.
    fn note(&mut self, lines: &[Line], names: &[Arc<str>], reply: &Reply) {
        let now = TokioInstant::now();
        for ((line, name), limit) in lines.iter().zip(names).zip(&reply.limits) {
            if limit.known.epoch != 0 {
                self.known.insert(Arc::clone(name), limit.known);
                let span = Duration::from(line.period()) * 2;
                self.stale.insert((now + span, Arc::clone(name)), ());
            }
        }
        while let Some(((at, _), ())) = self.stale.first_key_value() {
            if *at > now {
                break;
            }
            let Some(((_, name), ())) = self.stale.pop_first() else { break };
            // Unless it was said again since.
            let again = self.stale.range((now, Arc::clone(&name))..).any(|((_, other), ())| *other == name);
            if !again {
                self.known.remove(&name);
            }
        }
    }

    /// Sees whether the store is back.
    async fn probe(&mut self, shared: &Weak<Shared>) {
        sleep(PROBE).await;
        let ask = self.link.question(Duration::ZERO, Vec::new(), Vec::new());
        let Ok(Ok(_)) = timeout(PATIENCE, self.link.store.ask(ask)).await else { return };
        let Some(owner) = shared.upgrade() else { return };
        self.failures = 0;
        owner.with(|state, now| {
            let reach = match state.machine.reach() {
                Reach::Alone => Reach::Back(now),
                Reach::Nowhere | Reach::Asked | Reach::Back(_) | Reach::Open | Reach::Closed => Reach::Asked,
            };
            state.machine.set_reach(now, reach);
            state.machine.renew_leases();
        });
        owner.tell(Event::StoreBack);
    }
}

impl Link {
    fn reach_without(&self) -> Reach {
        match self.shared.on_outage() {
            OnOutage::LocalShare => Reach::Alone,
            OnOutage::Closed => Reach::Closed,
            OnOutage::Open => Reach::Open,
        }
    }
}

/// The reply in the engine's words.
fn answers(lines: &[Line], reply: Reply, usable_until: Instant) -> Answers {
    let waits = lines.iter().zip(&reply.limits).map(|(line, limit)| {
        let wait = Nanos::from(limit.wait?);
        Some(if line.is_cap() { wait.min(SLOT) } else { wait })
    });
    Answers {
        waits: waits.collect(),
        lost: reply.limits.iter().map(|limit| limit.lost).collect(),
        taken: reply.taken,
        usable_until,
    }
}
