//! A store in the memory of one process, for tests and for balancers that share a process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::store::{Ask, Ears, Heard, News, Pending, Reply, Store, StoreError, VersionedRules};
use super::tally::Tally;

/// How many news somebody may be behind before it has to begin anew.
const KEPT: usize = 1_024;

/// A store in memory, on tokio's clock. Clones are the same store.
///
/// What happens to a real one can be asked for: it is slow, it cannot be reached, it forgets.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    tally: Tally,
    begin: Instant,
    latency: Duration,
    is_away: bool,
    /// Those who ever asked, and those of them that nothing is heard of any more.
    processes: Vec<u64>,
    cut_off: Vec<u64>,
    asked: u64,
    told: u64,
    ears: Vec<(u64, mpsc::Sender<Heard>)>,
    said: BTreeMap<String, Said>,
    /// The rules of the highest version, and until when they are kept.
    rules: Option<(VersionedRules, Instant)>,
}

/// What was told of something last.
#[derive(Debug)]
struct Said {
    at: u64,
    until: Instant,
    process: u64,
    news: News,
}

/// What the store's time is when it is made, in microseconds: none of its times is zero.
const BEGIN: u64 = 1_000_000_000_000;

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            tally: Tally::default(),
            begin: Instant::now(),
            latency: Duration::ZERO,
            is_away: false,
            processes: Vec::new(),
            cut_off: Vec::new(),
            asked: 0,
            told: 0,
            ears: Vec::new(),
            said: BTreeMap::new(),
            rules: None,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// From now on the way there takes half of this, and the way back, too. Default: nothing.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// From now on it cannot be reached, or can be again.
    pub fn set_away(&self, is_away: bool) {
        let mut inner = self.lock();
        inner.is_away = is_away;
        if is_away {
            inner.ears.clear();
        }
    }

    /// From now on nothing is heard of the balancer that asked as the `position`th, counted from zero: as if its process were
    /// killed.
    pub fn cut_off(&self, position: usize) {
        let mut inner = self.lock();
        let process = inner.processes.get(position).copied();
        inner.cut_off.extend(process);
    }

    /// Forgets everything, as a server does that is flushed.
    pub fn flush(&self) {
        let mut inner = self.lock();
        inner.tally.forget(None);
        inner.said.clear();
        inner.rules = None;
    }

    /// Forgets one name, as a server does that has too little memory.
    pub fn evict(&self, name: &str) {
        self.lock().tally.forget(Some(name));
    }

    /// The names of which it knows something now, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        let inner = self.lock();
        let now = inner.now();
        inner.tally.names(now)
    }

    /// How often it was asked so far.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.lock().asked
    }

    /// How often it was told something so far.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.lock().told
    }

    /// Cuts the connections on which news are heard: whoever had one makes a new one after a while.
    pub fn deafen(&self) {
        self.lock().ears.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way there or back.
    async fn travel(&self) -> Result<(), StoreError> {
        let latency = self.lock().latency;
        if !latency.is_zero() {
            sleep(latency / 2).await;
        }
        if self.lock().is_away { Err(StoreError::Away("it was told so".to_owned())) } else { Ok(()) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    fn now(&self) -> u64 {
        BEGIN.saturating_add(u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn spread(&mut self, from: u64, heard: &Heard) {
        // Who is too far behind, or gone, hears no more, and begins anew.
        self.ears.retain(|(process, ears)| *process == from || ears.try_send(heard.clone()).is_ok());
    }

    /// Writes down for those that come later what is told. Returns when that was.
    fn note(&mut self, process: u64, news: &News) -> u64 {
        let (now, time) = (Instant::now(), self.now());
        self.said.retain(|_, said| said.until > now);
        let Some(subject) = news.subject() else { return time };
        let before = self.said.get(&subject);
        let at = before.map_or(time, |said| time.max(said.at + 1));
        let lasted = before.map(|said| said.until);
        let (until, is_shorter) = match news {
            News::Hold { lasts, .. } => {
                let until = now + *lasts;
                let longer = before.filter(|said| matches!(said.news, News::Hold { .. }) && said.until > until);
                (longer.map_or(until, |said| said.until), longer.is_some())
            }
            News::BreakerOpened { lasts, .. } => (now + *lasts, false),
            // For as long as somebody may come who has not heard of it and knows what it ended.
            News::Released { .. } | News::BreakerClosed { .. } => (lasted.unwrap_or(now), false),
            News::Ruled { .. } | News::Forgot { .. } | News::Freed { .. } => (now, false),
        };
        let process = if is_shorter { before.map_or(process, |said| said.process) } else { process };
        self.said.insert(subject, Said { at, until, process, news: news.clone() });
        at
    }
}

impl Store for MemoryStore {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        Box::pin(async move {
            self.travel().await?;
            let reply = {
                let mut inner = self.lock();
                if inner.cut_off.contains(&ask.process) {
                    return Err(StoreError::Away("it was told so".to_owned()));
                }
                if !inner.processes.contains(&ask.process) {
                    inner.processes.push(ask.process);
                }
                inner.asked += 1;
                let now = inner.now();
                let (reply, news) = inner.tally.answer(now, &ask);
                for news in news {
                    // Whoever freed it may wait for it, too.
                    inner.spread(u64::MAX, &Heard { at: 0, news });
                }
                reply
            };
            self.travel().await?;
            Ok(reply)
        })
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        Box::pin(async move {
            self.travel().await?;
            let at = {
                let mut inner = self.lock();
                inner.told += 1;
                let at = inner.note(process, &news);
                inner.spread(process, &Heard { at, news });
                at
            };
            self.travel().await?;
            Ok(at)
        })
    }

    fn keep_rules(&self, process: u64, rules: VersionedRules, lasts: Duration) -> Pending<'_, VersionedRules> {
        Box::pin(async move {
            self.travel().await?;
            let kept = {
                let mut inner = self.lock();
                let now = Instant::now();
                let kept = inner.rules.take().filter(|(_, until)| *until > now);
                let (kept, until) = match kept {
                    Some((kept, _)) if kept == rules => (kept, now + lasts),
                    Some((kept, until)) if kept.version >= rules.version => (kept, until),
                    Some(_) | None => {
                        inner.spread(process, &Heard { at: 0, news: News::Ruled { version: rules.version } });
                        (rules, now + lasts)
                    }
                };
                inner.rules = Some((kept.clone(), until));
                kept
            };
            self.travel().await?;
            Ok(kept)
        })
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        Box::pin(async move {
            self.travel().await?;
            let mut inner = self.lock();
            let (sender, ears) = mpsc::channel(KEPT + inner.said.len());
            let now = Instant::now();
            for said in inner.said.values().filter(|said| said.process != process && said.until > now) {
                let mut news = said.news.clone();
                if let News::Hold { lasts, .. } | News::BreakerOpened { lasts, .. } = &mut news {
                    *lasts = said.until - now;
                }
                let _ = sender.try_send(Heard { at: said.at, news });
            }
            inner.ears.push((process, sender));
            Ok(ears)
        })
    }
}
