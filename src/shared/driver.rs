//! The tasks that speak with a store on a balancer's behalf: one asks, one tells, one hears.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant as TokioInstant, sleep, timeout_at};

use super::guarded::call;
use super::ledger::Ledger;
use super::names;
use super::store::{Ask, AskedLimit, Known, News, Reply, Store, StoreError};
use crate::engine::{Answers, Batch, Instant, LimitKind, Line, Nanos, Opening, Reach, Site, Take, Wait, Word};
use crate::rules::{CheckedShared, OnOutage};
use crate::runtime::afar::Afar;
use crate::runtime::{Event, Locked as State, Shared};

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// So many calls without an answer, and the store counts as lost.
const FAILURES: u32 = 3;
/// Time between two tries while it is.
pub(super) const PROBE: Duration = Duration::from_millis(200);
/// Time between two tries before.
const AGAIN: Duration = Duration::from_millis(20);
/// What somebody waits for at most who waits for a slot: news that one is free may be lost.
const SLOT: Nanos = Nanos::from_secs(1);

/// What the store said of limits, for as long as that is of use.
#[derive(Debug, Default)]
pub(super) struct Memory {
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

    /// A limit is asked about of which nothing may be known: news of it may come before the answer.
    fn expect(&mut self, name: &Arc<str>, site: Site, until: TokioInstant) {
        if !self.known.contains_key(name) {
            self.note(name, Known::default(), site, until);
        }
    }

    /// Whether what is known of a limit whose count began anew is yet to be told: each time once.
    fn is_untold(&mut self, name: &str, epoch: u64) -> bool {
        let Some(remembered) = self.known.get_mut(name) else { return false };
        // Caps have no count that begins: they are told how many there are, and that as often as one likes.
        std::mem::replace(&mut remembered.told, epoch) != epoch || epoch <= 1
    }

    /// The same where another process found out. What this one took of the new count is known there.
    pub(super) fn is_untold_to_all(&mut self, name: &str, epoch: u64) -> bool {
        let is_known = self.known.get(name).is_some_and(|remembered| remembered.known.epoch == epoch);
        (!is_known || epoch <= 1) && self.is_untold(name, epoch)
    }

    /// Where a limit stands of which the store said something of late.
    pub(super) fn site(&self, name: &str) -> Option<Site> {
        self.known.get(name).map(|remembered| remembered.site)
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
    pub(super) store: Arc<dyn Store>,
    pub(super) shared: CheckedShared,
    pub(super) process: u64,
    /// There is something to tell.
    pub(super) told: watch::Sender<()>,
    /// Other rules are in force, here or elsewhere.
    pub(super) ruled: watch::Sender<()>,
    /// Somebody goes over to rules that the store keeps.
    pub(super) taking: Mutex<()>,
    /// The balancer is gone.
    over: watch::Sender<bool>,
    /// What is told and heard.
    pub(super) ledger: Mutex<Ledger>,
    /// What the store said of limits.
    memory: Mutex<Memory>,
    /// How many questions were asked.
    asked: AtomicU64,
    /// On how many runtimes news are heard.
    pub(super) hearing: AtomicUsize,
    /// The caps of which slots are in use, as far as the store was told.
    caps: Mutex<BTreeMap<Arc<str>, LimitKind>>,
}

impl Link {
    pub(crate) fn new(store: Arc<dyn Store>, shared: CheckedShared, process: u64) -> Self {
        Self {
            store,
            shared,
            process,
            told: watch::Sender::new(()),
            ruled: watch::Sender::new(()),
            taking: Mutex::default(),
            over: watch::Sender::new(false),
            ledger: Mutex::default(),
            memory: Mutex::default(),
            asked: AtomicU64::new(0),
            hearing: AtomicUsize::new(0),
            caps: Mutex::default(),
        }
    }
}

#[expect(clippy::use_self, reason = "a clone of an Arc is written as one")]
impl Afar for Arc<Link> {
    fn start(&self, shared: &Arc<Shared>, runtime: &Handle, bell: Arc<Notify>) {
        let (link, shared, runtime_id) = (Arc::clone(self), Arc::downgrade(shared), runtime.id());
        // It reports the end even of a task that never begins.
        let post = Post { shared: Weak::clone(&shared), runtime: runtime_id };
        drop(runtime.spawn(async move {
            let asker = Asker::new(Arc::clone(&link), runtime_id, bell);
            let mut over = link.over.subscribe();
            let serve = async {
                let (tell, hear) = (link.tell_all(&shared), link.hear_all(&shared));
                tokio::join!(asker.serve(&shared), tell, hear, link.keep_rules(&shared))
            };
            tokio::select! {
                _ = over.wait_for(|over| *over) => {}
                _ = serve => {}
            }
            drop(post);
            link.tell_the_rest().await;
            link.leave().await;
        }));
    }

    fn tell(&self, shared: &Shared, event: &Event) {
        self.note_news(shared, event);
    }

    fn pass_on(&self, word: Word) {
        self.note(match word {
            Word::Opened { endpoint, opening: Opening { lasts, rest, alone } } => {
                News::BreakerOpened { endpoint, lasts: lasts.into(), rest: rest.into(), alone }
            }
            Word::Closed { endpoint } => News::BreakerClosed { endpoint },
        });
    }

    fn rules_changed(&self) {
        self.ruled.send_replace(());
    }

    fn end(&self) {
        self.over.send_replace(true);
    }
}

/// Tells a balancer that nobody on a runtime asks the store for it any more.
struct Post {
    shared: Weak<Shared>,
    runtime: Id,
}

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.desk_left(self.runtime);
        }
    }
}

impl Link {
    /// Gives the slots back that the balancer had: nobody is to wait for the end of the lease.
    async fn leave(&self) {
        let caps = std::mem::take(&mut *self.caps.lock().unwrap_or_else(PoisonError::into_inner));
        if caps.is_empty() {
            return;
        }
        let free = caps.into_iter().map(|(name, kind)| AskedLimit::new(name, kind)).collect();
        let ask = self.question(Duration::ZERO, free, Vec::new());
        // If that fails, the lease sees to it.
        drop(call(PATIENCE, || self.store.ask(ask)).await);
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
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
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
    runtime: Id,
    /// There is something to ask.
    bell: Arc<Notify>,
    /// The slowest answer of late. `None`: there was none yet.
    slowest: Option<Duration>,
    /// How long starts wait for the executor.
    grace: Duration,
    /// The last answer came in time: who is late was kept waiting by the executor. Once for each answer.
    was_in_time: bool,
    failures: u32,
    renewed: TokioInstant,
}

/// What there is to do.
enum Errand {
    Ask(Batch, Vec<Arc<str>>, Instant, u64),
    /// To see how long an answer takes.
    Greet,
    /// Nothing, until the bell rings, or an instant if there is one.
    Nothing(Option<TokioInstant>),
    /// The store is lost.
    Probe,
}

/// How long starts are expected to wait for the executor at least and at most.
const GRACES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];

impl Asker {
    fn new(link: Arc<Link>, runtime: Id, bell: Arc<Notify>) -> Self {
        let renewed = TokioInstant::now();
        Self { link, runtime, bell, slowest: None, grace: GRACES[0], was_in_time: false, failures: 0, renewed }
    }

    async fn serve(mut self, shared: &Weak<Shared>) {
        let third = self.link.shared.lease() / 3;
        loop {
            let Some(owner) = shared.upgrade() else { return };
            let errand = self.look(&owner, third);
            drop(owner);
            match errand {
                Errand::Ask(batch, names, now, number) => self.ask(shared, batch, names, (now, number)).await,
                Errand::Greet => self.greet(shared).await,
                Errand::Probe => self.probe(shared).await,
                // Whether it was rung or not: the next look shows what there is.
                Errand::Nothing(Some(due)) => drop(timeout_at(due, self.bell.notified()).await),
                Errand::Nothing(None) => self.bell.notified().await,
            }
        }
    }

    /// Sees what there is to ask.
    fn look(&mut self, shared: &Shared, third: Duration) -> Errand {
        shared.with(|state, now| {
            state.answer_bell();
            let from_now = |at: Instant| TokioInstant::now() + Duration::from(at.since(now));
            if let Some(until) = state.desk.out_until() {
                if until > now {
                    return Errand::Nothing(Some(from_now(until)));
                }
                // The runtime that it went out from stands still.
                state.desk.give_up();
                state.machine.fail(now);
            }
            match state.machine.reach() {
                Reach::Alone | Reach::Open | Reach::Closed => return Errand::Probe,
                Reach::Nowhere | Reach::Asked | Reach::Back(_) => {}
            }
            let mut due = None;
            if let Some(until) = state.machine.part_until() {
                if until <= now {
                    state.machine.set_reach(now, Reach::Asked);
                } else {
                    due = (until != Instant::NEVER).then(|| from_now(until));
                }
            }
            if self.slowest.is_none() && state.machine.plan().is_shared() {
                return Errand::Greet;
            }
            if self.renewed.elapsed() >= third {
                self.renewed = TokioInstant::now();
                state.machine.renew_leases();
            }
            if state.machine.take_late() > 0 && std::mem::take(&mut self.was_in_time) {
                self.grace = (self.grace * 2).min(GRACES[1]);
            }
            match state.machine.collect(now) {
                Some(batch) => {
                    let prefix = self.link.shared.prefix();
                    let name = |site| name_at(shared, state, prefix, site);
                    let names = batch.lines.iter().map(|line| name(line.site).unwrap_or_else(|| "".into())).collect();
                    let until = now.saturating_add((PATIENCE + AGAIN).into());
                    Errand::Ask(batch, names, now, state.desk.send(self.runtime, until))
                }
                None => {
                    let renewal = state.machine.holds_slots().then(|| self.renewed + third);
                    Errand::Nothing(due.into_iter().chain(renewal).min())
                }
            }
        })
    }

    /// Sees how long an answer takes, with a question that takes nothing.
    async fn greet(&mut self, shared: &Weak<Shared>) {
        let ask = self.link.question(Duration::ZERO, Vec::new(), Vec::new());
        let sent = TokioInstant::now();
        let answer = call(PATIENCE, || self.link.store.ask(ask)).await;
        let Some(owner) = shared.upgrade() else { return };
        match answer {
            Ok(_) => {
                self.failures = 0;
                self.slowest = Some(sent.elapsed());
            }
            Err(error) => {
                self.note_failure(&owner, &error, None);
                drop(owner);
                sleep(AGAIN).await;
            }
        }
    }

    /// There was no answer, to the question of this number.
    fn note_failure(&mut self, owner: &Shared, error: &StoreError, number: Option<u64>) {
        self.failures += 1;
        let is_lost = self.failures >= FAILURES;
        let reach = Link::reach_without(owner);
        let is_lost = owner.with(|state, now| {
            if number.is_some_and(|number| state.desk.takes_back(number)) {
                state.machine.fail(now);
            }
            let is_news = is_lost && matches!(state.machine.reach(), Reach::Asked | Reach::Back(_));
            if is_news {
                state.machine.set_reach(now, reach);
            }
            is_news
        });
        if is_lost {
            owner.tell(Event::StoreLost { why: error.to_string().into() });
        }
    }

    async fn ask(
        &mut self,
        shared: &Weak<Shared>,
        batch: Batch,
        names: Vec<Arc<str>>,
        (since, number): (Instant, u64),
    ) {
        let slowest = self.slowest.unwrap_or(PATIENCE);
        let lag = slowest * 2 + self.grace;
        let limits: Vec<AskedLimit> = {
            let mut memory = self.link.memory();
            let until = TokioInstant::now() + PATIENCE * 2;
            batch.lines.iter().zip(&names).for_each(|(line, name)| memory.expect(name, line.site, until));
            let limits = batch.lines.iter().zip(&names);
            let known = |name| memory.known.get(name).map(|remembered| remembered.known);
            limits.map(|(line, name)| AskedLimit::of(line, name, known(name))).collect()
        };
        self.link.note_caps(&batch.lines, &names, &batch.asks);
        let ask = self.link.question(lag, limits, batch.asks);
        let sent = TokioInstant::now();
        let answer = call(PATIENCE, || self.link.store.ask(ask)).await;
        let Some(owner) = shared.upgrade() else { return };
        match answer {
            Ok(reply) => {
                self.failures = 0;
                let took = sent.elapsed();
                self.slowest = Some(took.max(slowest - slowest / 16));
                if !owner.with(|state, _| state.desk.takes_back(number)) {
                    return;
                }
                self.was_in_time = took <= lag;
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
                self.note_failure(&owner, &error, Some(number));
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
            // News that there is room again is of use for as long as it has none.
            let until = now + (Duration::from(line.period()) * 2).max(lease).max(limit.wait.unwrap_or_default());
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
        let Ok(_) = call(PATIENCE, || self.link.store.ask(ask)).await else { return };
        let Some(owner) = shared.upgrade() else { return };
        self.failures = 0;
        let is_news = owner.with(|state, now| {
            let reach = match state.machine.reach() {
                Reach::Alone => Reach::Back(now),
                Reach::Open | Reach::Closed => Reach::Asked,
                Reach::Nowhere | Reach::Asked | Reach::Back(_) => return false,
            };
            state.machine.set_reach(now, reach);
            state.machine.renew_leases();
            true
        });
        if is_news {
            owner.tell(Event::StoreBack);
        }
    }
}

impl Link {
    /// What a balancer does without the store, as its present rules say.
    pub(super) fn reach_without(shared: &Shared) -> Reach {
        match shared.live.load().rules.shared().on_outage() {
            OnOutage::LocalShare => Reach::Alone,
            OnOutage::Closed => Reach::Closed,
            OnOutage::Open => Reach::Open,
        }
    }
}

/// The reply in the engine's words.
pub(super) fn answers(lines: &[Line], reply: Reply, lost: Vec<bool>, usable_until: Instant) -> Answers {
    let waits = lines.iter().zip(&reply.limits).map(|(line, limit)| {
        let lasts = Nanos::from(limit.wait?);
        let lasts = if line.is_cap() { lasts.min(SLOT) } else { lasts };
        Some(Wait { lasts, closed_to: limit.closed_to })
    });
    let waits = waits.collect();
    let stands = reply.limits.into_iter().map(|limit| limit.stand).collect();
    Answers { waits, lost, stands, taken: reply.taken, usable_until }
}
