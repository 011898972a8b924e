//! What else people would put in front of a call, where nothing is in its way.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use futures::future::{Ready, ready};
use request_balancer::Failure;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower::buffer::Buffer;
use tower::limit::RateLimit;
use tower::limit::rate::Rate;
use tower::{Service, ServiceExt};

use crate::report::Line;
use crate::unhindered::{handle, runtime};

const ROUNDS: usize = 7;
const REQUESTS: usize = 20_000;
const PLENTY: usize = 1_000_000_000;

pub(crate) fn measure() -> Vec<Line> {
    let runtime = runtime();
    let runtime = &runtime;
    macro_rules! time {
        ($prepare:expr, |$it:ident| $request:expr) => {{
            let mut best = f64::INFINITY;
            for _ in 0..ROUNDS {
                let elapsed = runtime.block_on(async {
                    #[allow(unused_mut, reason = "some contestants change")]
                    let mut $it = $prepare;
                    let began = Instant::now();
                    for _ in 0..REQUESTS {
                        $request;
                    }
                    began.elapsed()
                });
                best = best.min(elapsed.as_nanos() as f64 / REQUESTS as f64);
            }
            best
        }};
    }
    let handle = handle();
    let run =
        time!(&handle, |it| black_box(it.run(7, async |_| Ok::<_, Failure<Infallible>>(())).await).expect("free"));
    let tower =
        time!(Buffer::new(RateLimit::new(Nothing, Rate::new(PLENTY as u64, Duration::from_secs(1))), 64), |it| it
            .ready()
            .await
            .expect("free")
            .call(())
            .await
            .expect("free"));
    let leaky = time!(leaky_bucket::RateLimiter::builder().initial(PLENTY).max(PLENTY).refill(PLENTY).build(), |it| it
        .acquire_one()
        .await);
    let semaphore = time!(Semaphore::new(30), |it| drop(black_box(it.acquire().await.expect("free"))));
    let actor = time!(actor(), |it| {
        let (answer, receive) = oneshot::channel();
        it.send(answer).await.expect("an actor");
        receive.await.expect("an answer");
    });
    let spawn = time!((), |it| {
        let () = it;
        tokio::spawn(ready(black_box(7))).await.expect("a task");
    });
    let mut lines: Vec<Line> = [
        ("tower RateLimit and Buffer", tower),
        ("leaky-bucket", leaky),
        ("tokio semaphore", semaphore),
        ("actor: mpsc and oneshot", actor),
        ("tokio::spawn and join", spawn),
    ]
    .into_iter()
    .map(|(what, nanos)| Line::new(format!("peer: {what}"), nanos, "ns"))
    .collect();
    let ratio = run / tower;
    lines.push(
        Line::new("1 integer key: run / tower RateLimit and Buffer", ratio, "ratio").bar("at most 0.3", ratio <= 0.3),
    );
    lines
}

/// Answers whoever asks.
fn actor() -> mpsc::Sender<oneshot::Sender<()>> {
    let (send, mut receive) = mpsc::channel::<oneshot::Sender<()>>(64);
    tokio::spawn(async move {
        while let Some(answer) = receive.recv().await {
            let _ = answer.send(());
        }
    });
    send
}

/// A service that does nothing.
struct Nothing;

impl Service<()> for Nothing {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}
