//! Limiters against adversaries.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::{join_all, select};
use request_balancer::engine::{Instant, Nanos};
use request_balancer::{Balancer, Rules};
use tokio::time;

use crate::callers::Adversary;
use crate::harness::{Call, Rng, plan, rule, run};
use crate::peers::{Governor, Leaky, Peer, Ratelimit, Tower};
use crate::{JITTER, PERIOD, TARGET, WATCHED, fullest};

/// What became of all adversaries with one limiter.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) promise: Option<Promise>,
    /// Most starts in any window, per adversary.
    pub(crate) most: Vec<usize>,
    /// Most arrivals at the server in any window.
    pub(crate) at_server: usize,
    /// What the greedy caller started while it was watched.
    pub(crate) in_watch: usize,
}

/// Where no window may be overfull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    Starts,
    Server,
}

impl Row {
    pub(crate) fn keeps_its_promise(&self) -> bool {
        let count = crate::COUNT as usize;
        self.promise.is_none_or(|promise| {
            self.most.iter().all(|&most| most <= count) && (promise == Promise::Starts || self.at_server <= count)
        })
    }

    fn of(name: &'static str, promise: Option<Promise>, runs: &[Run]) -> Self {
        let watched = Instant::ZERO.saturating_add(WATCHED.into());
        Self {
            name,
            promise,
            most: runs.iter().map(|run| fullest(&run.starts, PERIOD)).collect(),
            at_server: runs.iter().map(|run| run.at_server).max().unwrap_or_default(),
            in_watch: runs[0].starts.iter().filter(|&&at| at < watched).count(),
        }
    }
}

/// How long an executor works between two stalls.
const WORKS: Duration = Duration::from_secs(7);

/// What became of one adversary.
struct Run {
    starts: Vec<Instant>,
    at_server: usize,
}

impl Run {
    /// Two calls reach the server less than a period apart under some delays that differ by at most the jitter if and
    /// only if they start less than a period and the jitter apart: the worst network needs no search.
    fn before_the_worst_network(starts: Vec<Instant>) -> Self {
        let at_server = fullest(&starts, PERIOD + JITTER);
        Self { starts, at_server }
    }
}

pub(crate) fn all(adversaries: &[Adversary]) -> Vec<Row> {
    let engine = |name, promise, rules: &str| {
        let runs = adversaries.iter().map(|adversary| Run::before_the_worst_network(in_engine(adversary, rules)));
        Row::of(name, Some(promise), &runs.collect::<Vec<_>>())
    };
    vec![
        engine("request-balancer", Promise::Starts, "per_key = '20/60s'"),
        engine("request-balancer, `margin = \"50ms\"`", Promise::Server, "per_key = '20/60s'\nmargin = '50ms'"),
        Row::of(
            "request-balancer, `count_from = \"response\"`, delays of up to 30 s",
            Some(Promise::Server),
            &adversaries.iter().map(behind_any_network).collect::<Vec<_>>(),
        ),
        awaited("request-balancer on tokio", Some(Promise::Starts), adversaries, || {
            Balancer::new("per_key = '20/60s'".parse::<Rules>().expect("sound rules"))
        }),
        awaited("governor, burst 20", None, adversaries, Governor::new),
        awaited("tower `RateLimit`", None, adversaries, Tower::new),
        awaited("leaky-bucket, max 20", None, adversaries, || Leaky::new(Some(20))),
        awaited("leaky-bucket, default max", None, adversaries, || Leaky::new(None)),
        awaited("ratelimit, max 20", None, adversaries, Ratelimit::new),
    ]
}

impl Peer for Balancer {
    async fn admit(&self) {
        drop(self.request("default", ()).acquire().await.expect("room in line"));
    }
}

/// The engine alone. Each poll of a woken request comes as late as the executor stalls.
fn in_engine(adversary: &Adversary, rules: &str) -> Vec<Instant> {
    let calls = calls(adversary, rules, |_| Nanos::ZERO);
    run_calls(adversary, rules, calls).0
}

/// The engine before a server that each call reaches, and whose answer comes back, after any delay of up to 30 s.
fn behind_any_network(adversary: &Adversary) -> Run {
    const RULES: &str = "per_key = '20/60s'\ncount_from = 'response'";
    let mut rng = Rng::new(30);
    let mut delay = || match rng.below(3) {
        0 => Nanos::ZERO,
        1 => Nanos::from_millis(rng.below(30_000)),
        _ => Nanos::from_secs(30),
    };
    let delays: Vec<_> = adversary.arrivals.iter().map(|_| (delay(), delay())).collect();
    let (out, back): (Vec<_>, Vec<_>) = delays.into_iter().unzip();
    let calls = calls(adversary, RULES, |index| out[index].saturating_add(back[index]));
    let (starts, started) = run_calls(adversary, RULES, calls);
    let mut arrivals: Vec<_> =
        started.iter().zip(&out).filter_map(|(started, &out)| Some((*started)?.saturating_add(out))).collect();
    arrivals.sort_unstable();
    Run { starts, at_server: fullest(&arrivals, PERIOD) }
}

fn calls(adversary: &Adversary, rules: &str, handling: impl Fn(usize) -> Nanos) -> Vec<Call> {
    let rule = rule(&plan(rules), "default");
    let call = |(index, &at): (usize, &u64)| Call {
        at: Instant::from_millis(at),
        rule,
        key: 7,
        cost: 1,
        handling: handling(index),
    };
    adversary.arrivals.iter().enumerate().map(call).collect()
}

/// All starts in order, and when each call started.
fn run_calls(adversary: &Adversary, rules: &str, calls: Vec<Call>) -> (Vec<Instant>, Vec<Option<Instant>>) {
    let mut draw = TARGET.stalls();
    let stall = || Nanos::from_millis(if adversary.stalls { draw() } else { 0 });
    let log = run(&plan(rules), calls, Instant::from_millis(TARGET.end()), stall);
    (log.starts().map(|(_, at)| at).collect(), log.started)
}

/// A limiter whose callers wait on tokio's paused clock. While the executor stalls nobody is polled.
fn awaited<P: Peer>(
    name: &'static str,
    promise: Option<Promise>,
    adversaries: &[Adversary],
    limiter: impl Fn() -> P,
) -> Row {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let run =
        |adversary| Run::before_the_worst_network(runtime.block_on(async { attack(adversary, &limiter()).await }));
    Row::of(name, promise, &adversaries.iter().map(run).collect::<Vec<_>>())
}

async fn attack(adversary: &Adversary, limiter: &impl Peer) -> Vec<Instant> {
    let began = time::Instant::now();
    let starts = RefCell::new(Vec::new());
    let caller = async |&at: &u64| {
        time::sleep_until(began + Duration::from_millis(at)).await;
        limiter.admit().await;
        starts.borrow_mut().push(Instant::ZERO.saturating_add(began.elapsed().into()));
    };
    let stalling = async {
        if !adversary.stalls {
            std::future::pending::<()>().await;
        }
        let mut draw = TARGET.stalls();
        loop {
            time::sleep(WORKS).await;
            time::advance(Duration::from_millis(draw())).await;
        }
    };
    let callers = join_all(adversary.arrivals.iter().map(caller));
    drop(time::timeout(Duration::from_millis(TARGET.end()), select(Box::pin(callers), Box::pin(stalling))).await);
    starts.take()
}
