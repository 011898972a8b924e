//! The tasks that speak with a store on a balancer's behalf: one asks, one tells, one hears.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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

/// What the store said of limits, for as long as that is of use.
#[derive(Debug, Default)]
struct Memory {
    known: HashMap<Arc<str>, Remembered>,
    /// When to look whether what is known of a limit is of no use any more.
    looks: BTreeSet<(TokioInstant, Arc<str>)>,
}

#[derive(Debug)]
struct Remembered {
    known: Known,
    site: Site,
    until: TokioInstant,
    /// As of which count it was told what the balancer knows of a limit that was forgotten.
    told: u64,
}

impl Memory {
    fn note(&mut self, name: &Arc<str>, known: Known, site: Site, until: TokioInstant) {
        let told = self.known.get(name).map_or(0, |remembered| remembered.told);
        let remembered = Remembered { known, site, until, told };
        if self.known.insert(Arc::clone(name), remembered).is_none() {
            self.looks.insert((until, Arc::clone(name)));
        }
    }

    /// Whether what is known of a limit whose count began anew is yet to be told: each time once.
    fn is_untold(&mut self, name: &str, epoch: u64) -> bool {
        let Some(remembered) = self.known.get_mut(name) else { return false };
        // Caps have no count that begins: they are told how many there are, and that as often as one likes.
        std::mem::replace(&mut remembered.told, epoch) != epoch || epoch <= 1
    }

    fn forget(&mut self, now: TokioInstant) {
        while self.looks.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.looks.pop_first() else { return };
            match self.known.get(&name) {
                Some(remembered) if remembered.until > now => drop(self.looks.insert((remembered.until, name))),
                Some(_) | None => drop(self.known.remove(&name)),
            }
        }
    }
}

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
    /// What the store said of limits.
    memory: Mutex<Memory>,
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
            memory: Mutex::default(),
            asked: AtomicU64::new(0),
            caps: Mutex::default(),
        }
    }
}

#[expect(clippy::use_self, reason = "a clone of an Arc is written as one")]
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
                    self.heed(&shared, news);
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

impl Link {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a limit of which the store said something of late.
    fn site(&self, name: &str) -> Option<Site> {
        self.memory().known.get(name).map(|remembered| remembered.site)
    }

    /// Does what another process tells.
    fn heed(&self, shared: &Arc<Shared>, news: News) {
        match news {
            News::Hold { scope, rule, key, endpoint, lasts } => {
                let hold = |state: &mut State, now: Instant, target: Target| {
                    state.machine.hold_because(now, target, now.saturating_add(lasts.into()), HoldCause::Retry)
                };
                let rule = rule.and_then(|rule| shared.find(&rule).ok());
                match (scope, rule, key) {
                    (Scope::Overall, ..) => {
                        shared.with(|state, now| hold(state, now, Target::Overall));
                    }
                    (Scope::Rule, Some(rule), _) => {
                        shared.with(|state, now| hold(state, now, Target::Rule(rule)));
                    }
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
                if let Some(site) = self.site(&name) {
                    shared.with(|state, now| state.machine.reopen(now, site));
                }
            }
            News::Forgot { name, epoch } => {
                if self.memory().is_untold(&name, epoch)
                    && let Some(site) = self.site(&name)
                {
                    shared.with(|state, _| state.machine.recount(site));
                }
            }
        }
    }
}

/// What the limit at a place is called.
fn name_at(shared: &Shared, state: &State, prefix: &str, site: Site) -> Option<Arc<str>> {
    let spec = state.machine.shared_spec(site)?;
    let live = shared.live.load();
    let key = match site {
        Site::Key(key, _) | Site::Own(_, key, _) => Some(state.desk.keys.get(&key)?.to_text()),
        Site::Shared(_) | Site::Endpoint(..) => None,
    };
    Some(names::of_limit(prefix, &spec, live.unit_name(spec.charge), key.as_deref()))
}

/// The task that asks.
struct Asker {
    link: Arc<Link>,
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
        Self { link, slowest: Duration::ZERO, grace: GRACES[0], failures: 0, renewed: TokioInstant::now() }
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
        let limits: Vec<AskedLimit> = {
            let memory = self.link.memory();
            let limits = batch.lines.iter().zip(&names).map(|(line, name)| AskedLimit {
                name: Arc::clone(name),
                kind: line.kind,
                held: line.held,
                told: line.told.clone(),
                known: memory.known.get(name).map_or_else(Known::default, |remembered| remembered.known),
            });
            limits.collect()
        };
        self.link.note_caps(&batch.lines, &names, &batch.asks);
        let ask = self.link.question(lag, limits, batch.asks);
        let sent = TokioInstant::now();
        let answer = timeout(PATIENCE, self.link.store.ask(ask)).await.unwrap_or(Err(StoreError::Late(PATIENCE)));
        let Some(owner) = shared.upgrade() else { return };
        match answer {
            Ok(reply) => {
                self.failures = 0;
                let took = sent.elapsed();
                self.slowest = took.max(self.slowest - self.slowest / 16);
                self.grace = (self.grace - self.grace / 256).max(GRACES[0]);
                let lost = self.note(&batch.lines, &names, &reply);
                let forgotten: Vec<Arc<str>> = names
                    .iter()
                    .zip(&reply.limits)
                    .filter(|(_, limit)| limit.lost)
                    .map(|(name, _)| Arc::clone(name))
                    .collect();
                owner.with(|state, now| {
                    // The store counts the starts as of `lag` after it was asked, which was after that.
                    state.machine.answer(now, &answers(&batch.lines, reply, lost, since.saturating_add(lag.into())));
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

    /// Remembers what was said of limits. Returns for each whether the store is to be told what it forgot.
    fn note(&self, lines: &[Line], names: &[Arc<str>], reply: &Reply) -> Vec<bool> {
        let now = TokioInstant::now();
        let lease = self.link.shared.lease();
        let mut memory = self.link.memory();
        for ((line, name), limit) in lines.iter().zip(names).zip(&reply.limits) {
            let until = now + (Duration::from(line.period()) * 2).max(lease);
            memory.note(name, limit.known, line.site, until);
        }
        let lost = names
            .iter()
            .zip(&reply.limits)
            .map(|(name, limit)| limit.lost && memory.is_untold(name, limit.known.epoch));
        let lost = lost.collect();
        memory.forget(now);
        lost
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
fn answers(lines: &[Line], reply: Reply, lost: Vec<bool>, usable_until: Instant) -> Answers {
    let waits = lines.iter().zip(&reply.limits).map(|(line, limit)| {
        let wait = Nanos::from(limit.wait?);
        Some(if line.is_cap() { wait.min(SLOT) } else { wait })
    });
    Answers { waits: waits.collect(), lost, taken: reply.taken, usable_until }
}
