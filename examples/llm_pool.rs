//! Calls of a language model over deployments that count requests and tokens per minute and answer more or less quickly:
//! each start gets the least loaded one, or the fastest.
//!
//! ```text
//! cargo run --release --example llm_pool
//! ```
//!
//! Everything happens in virtual time: the deployments are simulated.

use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use request_balancer::{Balancer, Failure, Pool, Rules};
use tokio::time::{Instant, sleep};

/// A deployment: how long it takes for an answer, and for each hundred tokens of it.
struct Deployment {
    first: Duration,
    each_hundred: Duration,
    /// Every so many calls it is overloaded.
    fails_every: u64,
    calls: std::sync::atomic::AtomicU64,
}

impl Deployment {
    fn new(first: u64, each_hundred: u64, fails_every: u64) -> Self {
        let millis = Duration::from_millis;
        Self { first: millis(first), each_hundred: millis(each_hundred), fails_every, calls: 0.into() }
    }

    async fn complete(&self, tokens: u32) -> Result<(), &'static str> {
        let call = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if call.is_multiple_of(self.fails_every) {
            sleep(Duration::from_millis(20)).await;
            return Err("503");
        }
        sleep(self.first + self.each_hundred * tokens.div_ceil(100)).await;
        Ok(())
    }
}

fn rules(choose: &str) -> Rules {
    format!(
        "
        units = ['tokens']
        [pool]
        overall = ['600/1m', '200000/1m tokens']
        choose = '{choose}'
        failover = 'next'
        [pool.endpoints]
        europe = {{}}
        america = {{}}
        # A smaller one.
        asia = {{ overall = ['120/1m', '40000/1m tokens'] }}
        "
    )
    .parse()
    .unwrap_or_else(|findings| panic!("{findings}"))
}

fn pool(choose: &str) -> Pool<Deployment> {
    let deployments = [
        ("europe", Deployment::new(300, 60, 50)),
        ("america", Deployment::new(800, 180, 100)),
        ("asia", Deployment::new(400, 70, 7)),
    ];
    Balancer::builder(rules(choose)).seed(1).pool(deployments).unwrap_or_else(|findings| panic!("{findings}"))
}

/// What 600 calls at 8 a second come to.
#[derive(Debug)]
struct Report {
    /// From the call to the answer, in seconds.
    mean: f64,
    p95: f64,
    failed: usize,
    starts: Vec<(String, u64)>,
}

async fn run(choose: &str) -> Report {
    let pool = pool(choose);
    let mut random = Rng::with_seed(42);
    let calls = (0..600_u64).map(|number| {
        let (tokens, user) = (random.u32(100..=1_000), random.u32(0..40));
        let pool = pool.clone();
        async move {
            sleep(Duration::from_millis(125) * u32::try_from(number).unwrap_or(u32::MAX)).await;
            let began = Instant::now();
            let call = pool.request("default", user).cost_of("tokens", tokens).run(move |attempt| async move {
                attempt.endpoint().value().complete(tokens).await.map_err(Failure::transient)
            });
            (call.await.is_ok(), began.elapsed().as_secs_f64())
        }
    });
    let answers = join_all(calls).await;
    let mut times: Vec<f64> = answers.iter().map(|(_, took)| *took).collect();
    times.sort_by(f64::total_cmp);
    let endpoints = pool.balancer().snapshot().endpoints;
    Report {
        mean: times.iter().sum::<f64>() / times.len() as f64,
        p95: times[times.len() * 95 / 100],
        failed: answers.iter().filter(|(succeeded, _)| !succeeded).count(),
        starts: endpoints.into_iter().map(|endpoint| (endpoint.name, endpoint.starts)).collect(),
    }
}

fn simulated(choose: &'static str) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap_or_else(|error| panic!("{error}")).block_on(run(choose))
}

fn main() {
    println!("600 calls of up to 1000 tokens, 8 a second, in seconds of virtual time");
    println!("{:<14} {:>6} {:>6} {:>7}  starts", "choose", "mean", "p95", "failed");
    for choose in ["least-loaded", "fastest", "in-order", "weighted"] {
        let Report { mean, p95, failed, starts } = simulated(choose);
        let starts: Vec<String> = starts.iter().map(|(name, starts)| format!("{name} {starts}")).collect();
        println!("{choose:<14} {mean:>6.2} {p95:>6.2} {failed:>7}  {}", starts.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_faster_than_the_least_loaded_and_nothing_is_lost() {
        let (fastest, loaded) = (simulated("fastest"), simulated("least-loaded"));
        assert_eq!((fastest.failed, loaded.failed), (0, 0));
        assert!(fastest.mean < loaded.mean, "{fastest:?} {loaded:?}");
    }
}
