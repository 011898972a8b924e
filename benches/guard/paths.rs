//! The paths whose costs are watched. Each does the same for every one of its requests.

use std::convert::Infallible;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use governor::clock::MonotonicClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use request_balancer::engine::{Claim, Entry, Instant, RequestId, RuleId, Scheduler};
use request_balancer::headers::{self, Dialect};
use request_balancer::{Balancer, Failure, RuleHandle, Rules};
use tokio::runtime::Runtime;

/// A name, and what is called with a number of requests.
pub(crate) type Path = (&'static str, fn(usize));

pub(crate) const PATHS: [Path; 8] = [
    ("run, nothing in its way", run),
    ("run under a cap of its key, nothing in its way", capped),
    ("run with an observation, nothing in its way", observed),
    ("acquire, nothing in its way", acquire),
    ("submit, in line", submit),
    ("engine, in line", in_line),
    ("engine, withdrawn", withdrawn),
    ("beside `run`: three governor checks", governor_checks),
];

/// Too short to bind under a tool that makes everything slower.
const FREE: &str = "per_key = '1/1ns'\noverall = '30/500ns'\n[rules]\nsend = '20/500ns'";
const CAPPED: &str =
    "per_key = '1/1ns'\noverall = '30/500ns'\n[rules]\nsend = { per_key = '20/500ns', key_concurrency = 9 }";
const BUSY: &str = "per_key = '1/1s'\noverall = '100/1s'";
const PER_KEY: usize = 5;

fn run(requests: usize) {
    run_under(FREE, requests);
}

/// It matters when each attempt ends.
fn capped(requests: usize) {
    run_under(CAPPED, requests);
}

fn run_under(rules: &str, requests: usize) {
    let handle = handle(rules, "send");
    runtime(false).block_on(async {
        for number in 0..requests as u64 {
            let done = handle.run(7, async |_| Ok::<_, Failure<Infallible>>(black_box(number))).await;
            black_box(done).expect("nothing in its way");
        }
    });
}

/// The response to each request says what is left.
fn observed(requests: usize) {
    let handle = handle(FREE, "send");
    let fields = [("X-RateLimit-Limit", "5000"), ("X-RateLimit-Remaining", "4999"), ("X-RateLimit-Reset", "3600")];
    let said = headers::read(200, fields, None, SystemTime::now(), Dialect::auto());
    runtime(false).block_on(async {
        for number in 0..requests as u64 {
            let done = handle.run(7, async |attempt| {
                attempt.observe(black_box(&said));
                Ok::<_, Failure<Infallible>>(black_box(number))
            });
            black_box(done.await).expect("nothing in its way");
        }
    });
}

type Steady = NoOpMiddleware<std::time::Instant>;
type Keyed = RateLimiter<u64, DefaultKeyedStateStore<u64>, MonotonicClock, Steady>;
type Direct = RateLimiter<NotKeyed, InMemoryState, MonotonicClock, Steady>;

/// The same three limits as those of `run`.
fn governor_checks(requests: usize) {
    let quota = |count: u32, nanos: u64| {
        let count = NonZeroU32::new(count).expect("not zero");
        Quota::with_period(Duration::from_nanos(nanos) / count.get()).expect("not zero").allow_burst(count)
    };
    // The clock that `run` reads, too: that of the default is calibrated first, for another number of instructions each time.
    let keyed = |quota| Keyed::new(quota, DefaultKeyedStateStore::default(), MonotonicClock);
    let (per_key, rule) = (keyed(quota(1, 1)), keyed(quota(20, 500)));
    let overall = Direct::direct_with_clock(quota(30, 500), MonotonicClock);
    for number in 0..requests as u64 {
        per_key.check_key(&7_u64).expect("nothing in its way");
        rule.check_key(&7_u64).expect("nothing in its way");
        overall.check().expect("nothing in its way");
        black_box(number);
    }
}

fn acquire(requests: usize) {
    let handle = handle(FREE, "send");
    runtime(false).block_on(async {
        for _ in 0..requests {
            drop(black_box(handle.request(7).acquire().await.expect("nothing in its way")));
        }
    });
}

fn submit(requests: usize) {
    let handle = handle(BUSY, "default");
    runtime(true).block_on(async {
        let tickets: Vec<_> = (0..requests)
            .map(|number| {
                let request = handle.request((number / PER_KEY) as u64);
                request.submit(async |_| Ok::<_, Failure<Infallible>>(())).expect("room in line")
            })
            .collect();
        for ticket in tickets {
            ticket.await.expect("an answer");
        }
    });
}

fn in_line(requests: usize) {
    let (mut scheduler, ids) = crowd(requests);
    let mut now = Instant::ZERO;
    let mut left = ids.len();
    let mut woken = Vec::new();
    while left > 0 {
        scheduler.dispatch(now);
        while !scheduler.take_wakes().is_empty() {
            std::mem::swap(scheduler.take_wakes(), &mut woken);
            for place in woken.drain(..) {
                if let Claim::Started { .. } = scheduler.claim(now, ids[place]) {
                    scheduler.finish(now, ids[place]);
                    left -= 1;
                }
            }
        }
        now = now.max(scheduler.next_wake().unwrap_or(now));
    }
}

fn withdrawn(requests: usize) {
    let (mut scheduler, ids) = crowd(requests);
    scheduler.dispatch(Instant::ZERO);
    // Most of those who leave were granted nothing yet, and those who came last least of all.
    for id in ids.into_iter().rev() {
        scheduler.withdraw(Instant::ZERO, id);
    }
}

fn crowd(requests: usize) -> (Scheduler<usize>, Vec<RequestId>) {
    let rules: Rules = BUSY.parse().expect("sound rules");
    let mut scheduler = Scheduler::new(rules.plan());
    let keys: Vec<_> =
        (0..requests.div_ceil(PER_KEY)).map(|tag| scheduler.add_key(Instant::ZERO, tag as u64)).collect();
    let enter = |place: usize| {
        let key = keys[place % keys.len()];
        let id = scheduler.enqueue(Instant::ZERO, key, RuleId(0), Entry::default()).expect("room in line");
        scheduler.set_waker(id, place);
        id
    };
    let ids = (0..requests).map(enter).collect();
    (scheduler, ids)
}

fn handle(rules: &str, rule: &str) -> RuleHandle {
    Balancer::new(rules.parse::<Rules>().expect("sound rules")).rule(rule).expect("a rule")
}

fn runtime(paused: bool) -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(paused).build().expect("a runtime")
}
