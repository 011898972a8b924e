//! How long it takes until everything is uploaded, in virtual time, in three ways:
//!
//! - one queue for all, whose first part waits for the next bot of a round robin;
//! - a queue for each bot, where a part goes to the shortest when it comes;
//! - the pool, which gives a part its bot when it starts.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use futures::stream::FuturesUnordered;
use request_balancer::{Balancer, Rules};
use tokio::time::{Instant, sleep};

use crate::{Part, RULES, TOKENS};

/// How long the server needs to refuse.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// What there is to upload, and when the server refuses whom.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) parts: Vec<Part>,
    pub(crate) refusals: Vec<Refusals>,
}

/// When a token is refused: begin and end, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Refusals(Vec<(Duration, Duration)>);

impl Refusals {
    /// How long the token is refused from now on, if it is.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let (_, end) = self.0.iter().find(|(begin, end)| (*begin..*end).contains(&now))?;
        Some(*end - now)
    }
}

impl Work {
    /// Files in parts of 2 to 8 seconds; every 60 to 180 seconds a token is refused for 30 to 60.
    pub(crate) fn new(seed: u64, tokens: usize, files: u64, parts: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let between = |random: &mut Rng, low: u64, high: u64| Duration::from_millis(random.u64(low..=high));
        let all = (0..files).flat_map(|file| (0..parts).map(move |_| file));
        let parts = all.map(|file| Part { file, takes: between(&mut random, 2_000, 8_000) }).collect();
        let refusals = (0..tokens).map(|_| {
            let mut list = Vec::new();
            let mut at = between(&mut random, 0, 180_000);
            while at < Duration::from_secs(3_600) {
                let end = at + between(&mut random, 30_000, 60_000);
                list.push((at, end));
                at = end + between(&mut random, 60_000, 180_000);
            }
            Refusals(list)
        });
        let refusals = refusals.collect();
        Self { parts, refusals }
    }

    /// The same in another time.
    pub(crate) fn scaled(mut self, factor: f64) -> Self {
        self.parts.iter_mut().for_each(|part| part.takes = part.takes.mul_f64(factor));
        for (begin, end) in self.refusals.iter_mut().flat_map(|refusals| &mut refusals.0) {
            (*begin, *end) = (begin.mul_f64(factor), end.mul_f64(factor));
        }
        self
    }

    /// What no schedule can beat: the longest part, and until the tokens had time enough for all of them. While a token is
    /// refused it can do no more than finish what it began before.
    pub(crate) fn lower_bound(&self) -> Duration {
        let longest = self.parts.iter().map(|part| part.takes).max().unwrap_or_default();
        let all: Duration = self.parts.iter().map(|part| part.takes).sum();
        let time_until = |end: Duration| -> Duration {
            let of_one = |refusals: &Refusals| {
                let lost =
                    refusals.0.iter().map(|(from, to)| (*to).min(end).saturating_sub(*from).saturating_sub(longest));
                end - lost.sum::<Duration>()
            };
            self.refusals.iter().map(of_one).sum()
        };
        let (mut low, mut high) = (Duration::ZERO, Duration::from_secs(36_000));
        while high - low > Duration::from_micros(100) {
            let middle = (low + high) / 2;
            if time_until(middle) < all { low = middle } else { high = middle }
        }
        low.max(longest)
    }
}

/// The server in virtual time.
struct Simulated<'w> {
    work: &'w Work,
    began: Instant,
}

impl Simulated<'_> {
    async fn upload(&self, token: usize, part: Part) -> Result<(), Duration> {
        if let Some(left) = self.work.refusals[token].left(self.began.elapsed()) {
            sleep(ROUND_TRIP).await;
            return Err(left.saturating_sub(ROUND_TRIP));
        }
        sleep(part.takes).await;
        Ok(())
    }

    async fn until_done(&self, token: usize, part: Part) {
        while let Err(retry_after) = self.upload(token, part).await {
            sleep(retry_after).await;
        }
    }
}

async fn round_robin(server: &Simulated<'_>) {
    let free: Vec<_> = (0..TOKENS).map(|_| tokio::sync::Mutex::new(())).collect();
    let mut pending = FuturesUnordered::new();
    for (number, part) in server.work.parts.iter().enumerate() {
        let token = number % TOKENS;
        // The first of the queue waits for its turn's bot, and everybody else waits behind it.
        let mut turn = Box::pin(free[token].lock());
        let guard = loop {
            tokio::select! {
                guard = &mut turn => break guard,
                Some(()) = pending.next() => {}
            }
        };
        pending.push(async move {
            server.until_done(token, *part).await;
            drop(guard);
        });
    }
    pending.collect::<()>().await;
}

async fn shortest_queue(server: &Simulated<'_>) {
    let mut queues = vec![VecDeque::new(); TOKENS];
    for part in &server.work.parts {
        if let Some(shortest) = queues.iter_mut().min_by_key(|queue: &&mut VecDeque<Part>| queue.len()) {
            shortest.push_back(*part);
        }
    }
    let bots = queues.into_iter().enumerate().map(|(token, queue)| async move {
        for part in queue {
            server.until_done(token, part).await;
        }
    });
    join_all(bots).await;
}

async fn pooled(server: &Simulated<'_>) {
    let rules: Rules = RULES.parse().expect("the rules are right");
    let bots = (0..TOKENS).map(|token| (format!("bot-{token}"), token));
    let pool = Balancer::builder(rules).seed(1).pool(bots).expect("the names are right");
    let uploads = server.work.parts.iter().map(|part| {
        pool.run("upload", part.file, move |attempt| async move {
            let token = *attempt.endpoint().value();
            server.upload(token, *part).await.map_err(|retry_after| attempt.retry::<()>(retry_after))
        })
    });
    try_join_all(uploads).await.expect("all are uploaded");
}

/// How long everything takes in one of the ways.
pub(crate) fn makespan(work: &Work, way: Way) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(async {
        let server = Simulated { work, began: Instant::now() };
        match way {
            Way::RoundRobin => round_robin(&server).await,
            Way::ShortestQueue => shortest_queue(&server).await,
            Way::Pool => pooled(&server).await,
        }
        server.began.elapsed()
    })
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    RoundRobin,
    ShortestQueue,
    Pool,
}

/// Makespans of one way, beside what no schedule can beat.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) mean: f64,
    pub(crate) p95: f64,
    pub(crate) worst_ratio: f64,
}

pub(crate) fn row(seeds: u64, way: Way) -> Row {
    let runs = (0..seeds).map(|seed| {
        let work = Work::new(seed, TOKENS, 40, 10);
        let makespan = makespan(&work, way).as_secs_f64();
        (makespan, makespan / work.lower_bound().as_secs_f64())
    });
    let (mut makespans, ratios): (Vec<f64>, Vec<f64>) = runs.unzip();
    makespans.sort_by(f64::total_cmp);
    let at = (makespans.len() * 95).div_ceil(100).saturating_sub(1);
    Row {
        mean: makespans.iter().sum::<f64>() / makespans.len() as f64,
        p95: makespans[at],
        worst_ratio: ratios.into_iter().fold(0.0, f64::max),
    }
}

/// Prints the table. Returns whether the pool kept the bound of list schedules.
pub(crate) fn print(seeds: u64) -> bool {
    // A runtime of its own for each run, on a thread where there is none.
    let rows = std::thread::spawn(move || {
        let ways = [
            ("one queue, round robin", Way::RoundRobin),
            ("a queue for each bot, the shortest", Way::ShortestQueue),
            ("a pool, chosen at the start", Way::Pool),
        ];
        ways.map(|(name, way)| (name, row(seeds, way)))
    });
    println!("400 parts, {TOKENS} tokens, {seeds} seeds, in seconds of virtual time");
    println!("{:<36} {:>8} {:>8} {:>24}", "", "mean", "p95", "worst beside the bound");
    let rows = rows.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    for (name, Row { mean, p95, worst_ratio }) in &rows {
        println!("{name:<36} {mean:>8.1} {p95:>8.1} {worst_ratio:>24.3}");
    }
    let most = 2.0 - 1.0 / TOKENS as f64;
    println!("never over {most:.3}: that of any list schedule, which starts whatever can start");
    rows[2].1.worst_ratio <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_near_the_bound_and_before_the_others() {
        let pool = row(10, Way::Pool);
        assert!(pool.worst_ratio <= 2.0 - 1.0 / TOKENS as f64, "{pool:?}");
        for way in [Way::RoundRobin, Way::ShortestQueue] {
            let other = row(10, way);
            assert!(pool.mean < other.mean && pool.p95 < other.p95, "{pool:?} {way:?} {other:?}");
        }
    }
}
