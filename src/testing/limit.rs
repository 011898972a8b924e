//! What a simulated server counts, and when it refuses.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;

type Filter = Arc<dyn Fn(&Key) -> bool + Send + Sync>;

/// One limit of a [`Server`](super::Server): how it counts, and whom.
///
/// It is on all calls together until [`per_key`](Self::per_key) or [`only_for`](Self::only_for) say otherwise. A count of
/// zero refuses everything; periods of zero count as a nanosecond.
#[derive(Clone)]
#[must_use = "a limit does nothing until a server has it"]
pub struct Limit {
    name: String,
    kind: Kind,
    count: u32,
    period: Duration,
    per_key: bool,
    only_for: Option<Filter>,
    count_refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sliding,
    Fixed,
    Bucket { burst: u32 },
    FloodWait { penalty: Duration },
}

impl Limit {
    /// At most `count` calls in any half-open interval of length `period`.
    pub fn sliding(count: u32, period: Duration) -> Self {
        Self::new(Kind::Sliding, count, period, format!("sliding {count}/{period:?}"))
    }

    /// At most `count` calls from one multiple of `period` to the next, counted from the server's beginning: twice as many
    /// get through around a multiple.
    pub fn fixed(count: u32, period: Duration) -> Self {
        Self::new(Kind::Fixed, count, period, format!("fixed {count}/{period:?}"))
    }

    /// A token bucket: full with `burst` at first, `count` come back per `period`.
    pub fn bucket(count: u32, period: Duration, burst: u32) -> Self {
        Self::new(Kind::Bucket { burst }, count, period, format!("bucket {count}/{period:?} burst {burst}"))
    }

    /// A [`sliding`](Self::sliding) window that punishes: the call too many is refused for `penalty`, and whoever calls
    /// before that is over is refused for the whole `penalty` again.
    pub fn flood_wait(count: u32, period: Duration, penalty: Duration) -> Self {
        let name = format!("flood wait {count}/{period:?}, {penalty:?}");
        Self::new(Kind::FloodWait { penalty }, count, period, name)
    }

    /// Counts each key by itself.
    pub fn per_key(self) -> Self {
        Self { per_key: true, ..self }
    }

    /// Counts only calls of these keys.
    ///
    /// ```
    /// use request_balancer::Key;
    /// use request_balancer::testing::Limit;
    /// use std::time::Duration;
    ///
    /// // Groups have negative ids.
    /// let group = Limit::sliding(20, Duration::from_secs(60)).per_key().only_for(|key| *key < Key::from(0));
    /// assert_eq!(group.name(), "sliding 20/60s");
    /// ```
    pub fn only_for(self, is_meant: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
        Self { only_for: Some(Arc::new(is_meant)), ..self }
    }

    /// Counts calls that are refused as well. Default: only those that get through.
    pub fn count_refused(self) -> Self {
        Self { count_refused: true, ..self }
    }

    /// Gives it a name in reports. Default: its numbers.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    const fn new(kind: Kind, count: u32, period: Duration, name: String) -> Self {
        let period = if period.is_zero() { Duration::from_nanos(1) } else { period };
        Self { name, kind, count, period, per_key: false, only_for: None, count_refused: false }
    }

    fn is_on(&self, key: &Key) -> bool {
        self.only_for.as_ref().is_none_or(|is_meant| is_meant(key))
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("per_key", &self.per_key)
            .field("only_for_some", &self.only_for.is_some())
            .field("count_refused", &self.count_refused)
            .finish_non_exhaustive()
    }
}

/// What one limit of a server saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitReport {
    /// The limit's name.
    pub name: String,
    /// How many may be in a window. A bucket lets its burst through besides.
    pub allowed: u32,
    /// The most calls that arrived in one of its windows, those that it refused included.
    pub worst: u32,
    /// Whose they were, where each key is counted by itself.
    pub worst_key: Option<Key>,
    /// Calls that this limit refused.
    pub refused: u32,
}

impl fmt::Display for LimitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, allowed, worst, worst_key, refused } = self;
        write!(f, "{name}: {worst} in the worst window")?;
        if let Some(key) = worst_key {
            write!(f, ", of key {key}")?;
        }
        write!(f, ", {allowed} allowed, {refused} refused")
    }
}

/// A limit at work.
#[derive(Clone, Debug)]
pub(super) struct Book {
    limit: Limit,
    counters: BTreeMap<Key, Counter>,
    refused: u32,
    worst: u32,
    worst_key: Option<Key>,
}

/// What a limit knows of one key, or of all together.
#[derive(Clone, Debug, Default)]
struct Counter {
    /// Calls in the window that ends now, whatever became of them.
    arrived: VecDeque<Duration>,
    /// Those of them that count.
    counted: VecDeque<Duration>,
    punished_until: Duration,
    /// What a bucket lacks, in token-nanoseconds, and when that was so.
    lack: u128,
    lack_at: Duration,
}

impl Book {
    pub(super) const fn new(limit: Limit) -> Self {
        Self { limit, counters: BTreeMap::new(), refused: 0, worst: 0, worst_key: None }
    }

    pub(super) fn report(&self) -> LimitReport {
        LimitReport {
            name: self.limit.name.clone(),
            allowed: self.limit.count,
            worst: self.worst,
            worst_key: self.worst_key.clone(),
            refused: self.refused,
        }
    }

    /// A call arrives. Returns how long until it would be let through; zero: now.
    pub(super) fn arrive(&mut self, at: Duration, key: &Key) -> Duration {
        if !self.limit.is_on(key) {
            return Duration::ZERO;
        }
        let Self { limit, counters, .. } = self;
        let counter = counters.entry(limit.owner(key)).or_default();
        limit.forget(&mut counter.arrived, at);
        counter.arrived.push_back(at);
        let arrived = u32::try_from(counter.arrived.len()).unwrap_or(u32::MAX);
        let wait = limit.ask(counter, at);
        if arrived > self.worst {
            self.worst = arrived;
            self.worst_key = self.limit.per_key.then(|| key.clone());
        }
        self.refused += u32::from(!wait.is_zero());
        wait
    }

    /// The call that arrived was let through, or not.
    pub(super) fn settle(&mut self, at: Duration, key: &Key, let_through: bool) {
        let Self { limit, counters, .. } = self;
        if limit.is_on(key) && (let_through || limit.count_refused) {
            limit.take(counters.entry(limit.owner(key)).or_default(), at);
        }
    }
}

impl Limit {
    /// Under which key it counts.
    fn owner(&self, key: &Key) -> Key {
        if self.per_key { key.clone() } else { ().into() }
    }

    /// Drops the calls that are in no window with `at`.
    fn forget(&self, calls: &mut VecDeque<Duration>, at: Duration) {
        let gone = |call: Duration| match self.kind {
            Kind::Fixed => call < self.window(at),
            Kind::Sliding | Kind::Bucket { .. } | Kind::FloodWait { .. } => call.saturating_add(self.period) <= at,
        };
        while calls.front().is_some_and(|&call| gone(call)) {
            calls.pop_front();
        }
    }

    /// The beginning of the fixed window around `at`.
    fn window(&self, at: Duration) -> Duration {
        nanos(at.as_nanos() / self.period.as_nanos() * self.period.as_nanos())
    }

    fn ask(&self, counter: &mut Counter, at: Duration) -> Duration {
        match self.kind {
            Kind::Sliding | Kind::Fixed => self.until_room(counter, at),
            Kind::Bucket { burst } => {
                self.refill(counter, at);
                let most = u128::from(burst).saturating_sub(1) * self.period.as_nanos();
                match counter.lack.saturating_sub(most) {
                    _ if burst == 0 || self.count == 0 => Duration::MAX,
                    over => nanos(over.div_ceil(self.count.into())),
                }
            }
            Kind::FloodWait { penalty } => {
                if counter.punished_until <= at && self.until_room(counter, at).is_zero() {
                    return Duration::ZERO;
                }
                counter.punished_until = at.saturating_add(penalty);
                penalty.max(Duration::from_nanos(1))
            }
        }
    }

    /// How long until fewer than its count are counted in a window.
    fn until_room(&self, counter: &mut Counter, at: Duration) -> Duration {
        self.forget(&mut counter.counted, at);
        let Some(over) = counter.counted.len().checked_sub(self.count as usize) else { return Duration::ZERO };
        match (counter.counted.get(over), self.kind) {
            (None, _) => Duration::MAX,
            (Some(_), Kind::Fixed) => self.window(at).saturating_add(self.period).saturating_sub(at),
            (Some(&leaves), Kind::Sliding | Kind::Bucket { .. } | Kind::FloodWait { .. }) => {
                leaves.saturating_add(self.period).saturating_sub(at)
            }
        }
    }

    fn take(&self, counter: &mut Counter, at: Duration) {
        match self.kind {
            Kind::Sliding | Kind::Fixed | Kind::FloodWait { .. } => counter.counted.push_back(at),
            Kind::Bucket { burst } => {
                self.refill(counter, at);
                let full = u128::from(burst) * self.period.as_nanos();
                counter.lack = (counter.lack + self.period.as_nanos()).min(full);
            }
        }
    }

    fn refill(&self, counter: &mut Counter, at: Duration) {
        let came = (at - counter.lack_at).as_nanos().saturating_mul(self.count.into());
        counter.lack = counter.lack.saturating_sub(came);
        counter.lack_at = at;
    }
}

fn nanos(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}
