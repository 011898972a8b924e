//! A request that nothing stands in the way of: two limits of its key and one of all keys, none of which binds.

use std::convert::Infallible;
use std::hash::Hash;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock, MonotonicClock, ReasonablyRealtime};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use request_balancer::{Balancer, Failure, Key, RuleHandle, Rules};
use tokio::runtime::Runtime;

use crate::report::Line;

/// Too short to bind, and long enough for a window to remember several starts of a busy key.
const RULES: &str = "per_key = '1/1ns'\noverall = '30/500ns'\n[rules]\nsend = '20/500ns'";

pub(crate) const ROUNDS: usize = 15;
const REQUESTS: usize = 100_000;

/// What `run` may take of the time of three `check`s and of three `until_ready`s.
struct Bars {
    checks: f64,
    untils: f64,
}

const FEW_KEYS: Bars = Bars { checks: 1.6, untils: 1.3 };
const MANY_KEYS: Bars = Bars { checks: 1.7, untils: 1.2 };

pub(crate) fn measure(counts: &[i64]) -> Vec<Line> {
    let mut lines = Vec::new();
    for &count in counts {
        let bars = if count < 100_000 { FEW_KEYS } else { MANY_KEYS };
        let numbers: Vec<i64> = (0..count).map(|number| 1_000_000 + number).collect();
        let texts: Vec<String> = numbers.iter().map(|number| format!("c{number}")).collect();
        let numbers: Vec<_> = numbers.iter().collect();
        lines.extend(compare("integer", &numbers, &bars, |&&number| Key::from(number)));
        lines.extend(compare("text", &texts, &bars, |text| Key::from(text.as_str())));
    }
    lines.extend(sizes());
    lines
}

/// Lets all contestants take turns on the same keys in the same order.
fn compare<K>(kind: &str, keys: &[K], bars: &Bars, key: impl Fn(&K) -> Key + Copy) -> Vec<Line>
where
    K: Clone + Hash + Eq,
{
    let runtime = runtime();
    let handle = handle();
    let governor = Stack::new(&DefaultClock::default());
    let by_system = Stack::new(&MonotonicClock);
    let visits = visits(keys.len());
    let handle = &handle;
    let mut run = Contestant::new("run");
    let mut acquire = Contestant::new("acquire");
    let mut checks = Contestant::new("three governor checks");
    let mut untils = Contestant::new("three governor until_ready");
    let mut checks_by_system = Contestant::new("three governor checks by the system's clock");
    let mut untils_by_system = Contestant::new("three governor until_ready by the system's clock");
    for _ in 0..ROUNDS {
        run.take_turn(&runtime, &visits, async |place| {
            let done = handle.run(key(&keys[place]), async |_| Ok::<_, Failure<Infallible>>(black_box(place))).await;
            black_box(done).expect("nothing in its way");
        });
        checks.take_turn(&runtime, &visits, async |place| governor.check(&keys[place]));
        acquire.take_turn(&runtime, &visits, async |place| {
            drop(black_box(handle.request(key(&keys[place])).acquire().await.expect("nothing in its way")));
        });
        untils.take_turn(&runtime, &visits, async |place| governor.until_ready(&keys[place]).await);
        checks_by_system.take_turn(&runtime, &visits, async |place| by_system.check(&keys[place]));
        untils_by_system.take_turn(&runtime, &visits, async |place| by_system.until_ready(&keys[place]).await);
    }
    let place = match keys.len() {
        1 => format!("1 {kind} key"),
        count => format!("{count} {kind} keys"),
    };
    let ratio = |ours: &Contestant, theirs: &Contestant, bar: Option<f64>| {
        let ratio = ours.nanos / theirs.nanos;
        let line = Line::new(format!("{place}: {} / {}", ours.name, theirs.name), ratio, "ratio");
        match bar {
            Some(bar) => line.bar(format!("at most {bar}"), ratio <= bar),
            None => line,
        }
    };
    let contestants = [&run, &acquire, &checks, &untils, &checks_by_system, &untils_by_system];
    let mut lines: Vec<_> =
        contestants.map(|contestant| Line::new(format!("{place}: {}", contestant.name), contestant.nanos, "ns")).into();
    lines.push(ratio(&run, &checks, Some(bars.checks)));
    lines.push(ratio(&run, &untils, Some(bars.untils)));
    lines.push(ratio(&run, &checks_by_system, None));
    lines.push(ratio(&run, &untils_by_system, None));
    lines.push(ratio(&acquire, &checks, None));
    lines.push(ratio(&acquire, &untils, None));
    for contestant in [&run, &acquire] {
        let what = format!("{place}: {}, allocations per request", contestant.name);
        lines.push(Line::new(what, contestant.allocations, "1").bar("0", contestant.allocations == 0.0));
    }
    lines
}

/// What one way costs per request: the least of all turns.
pub(crate) struct Contestant {
    name: &'static str,
    pub(crate) nanos: f64,
    allocations: f64,
}

impl Contestant {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, nanos: f64::INFINITY, allocations: f64::INFINITY }
    }

    pub(crate) fn take_turn(&mut self, runtime: &Runtime, visits: &[usize], mut request: impl AsyncFnMut(usize)) {
        let mut visit_all = || {
            runtime.block_on(async {
                let began = Instant::now();
                for &place in visits {
                    request(place).await;
                }
                began.elapsed()
            })
        };
        // So that each key was met before.
        visit_all();
        let mut elapsed = Duration::MAX;
        let allocated = allocation_counter::measure(|| elapsed = visit_all());
        let per_request = |total: f64| total / visits.len() as f64;
        self.nanos = self.nanos.min(per_request(elapsed.as_nanos() as f64));
        self.allocations = self.allocations.min(per_request(allocated.count_total as f64));
    }
}

/// The same three limits in governor, by a clock of its own or by the system's.
struct Stack<K: Clone + Hash + Eq, C: Clock> {
    per_key: Keyed<K, C>,
    rule: Keyed<K, C>,
    overall: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
}

type Keyed<K, C> = RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<<C as Clock>::Instant>>;

impl<K: Clone + Hash + Eq, C: Clock + Clone> Stack<K, C> {
    fn new(clock: &C) -> Self {
        let quota = |count: u32, period: Duration| {
            let count = NonZeroU32::new(count).expect("not zero");
            Quota::with_period(period / count.get()).expect("not zero").allow_burst(count)
        };
        Self {
            per_key: RateLimiter::dashmap_with_clock(quota(1, Duration::from_nanos(1)), clock.clone()),
            rule: RateLimiter::dashmap_with_clock(quota(20, Duration::from_nanos(500)), clock.clone()),
            overall: RateLimiter::direct_with_clock(quota(30, Duration::from_nanos(500)), clock.clone()),
        }
    }

    fn check(&self, key: &K) {
        assert!(black_box(self.per_key.check_key(key)).is_ok(), "nothing in its way");
        assert!(black_box(self.rule.check_key(key)).is_ok(), "nothing in its way");
        assert!(black_box(self.overall.check()).is_ok(), "nothing in its way");
    }
}

impl<K: Clone + Hash + Eq, C: ReasonablyRealtime + Clone> Stack<K, C> {
    async fn until_ready(&self, key: &K) {
        self.per_key.until_key_ready(key).await;
        self.rule.until_key_ready(key).await;
        self.overall.until_ready().await;
    }
}

fn sizes() -> Vec<Line> {
    let handle = handle();
    let run = handle.run(1, async |_| Ok::<_, Failure<Infallible>>(()));
    let acquire = handle.request(1).acquire();
    let governor = Stack::new(&DefaultClock::default());
    let untils = governor.until_ready(&1);
    vec![
        Line::new("future of run", size_of_val(&run) as f64, "bytes"),
        Line::new("future of acquire", size_of_val(&acquire) as f64, "bytes"),
        Line::new("future of three governor until_ready", size_of_val(&untils) as f64, "bytes"),
    ]
}

pub(crate) fn handle() -> RuleHandle {
    let balancer = Balancer::new(RULES.parse::<Rules>().expect("sound rules"));
    balancer.rule("send").expect("a rule")
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// Places of keys in an order that no cache foresees; each is visited, and equally often.
pub(crate) fn visits(count: usize) -> Vec<usize> {
    // Steps of a size that has no divisor in common with the count, a power of ten.
    let step = (count * 61 / 100) | 1;
    let step = if step.is_multiple_of(5) { step + 2 } else { step };
    (0..REQUESTS.max(count)).map(|visit| visit * step % count).collect()
}
