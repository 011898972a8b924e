//! Other limiters, all on tokio's paused clock.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use ratelimit::{Ratelimiter, TryWaitError};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tower::limit::RateLimit;
use tower::limit::rate::Rate;
use tower::{Service, ServiceExt};

use crate::{COUNT, PERIOD};

/// Lets callers through, each as soon as it may start.
pub(crate) trait Peer {
    fn admit(&self) -> impl Future<Output = ()>;
}

/// governor with a burst of 20 that comes back at 20 in 60 s.
pub(crate) struct Governor {
    limiter: governor::RateLimiter<NotKeyed, InMemoryState, PausedClock, NoOpMiddleware<Duration>>,
    clock: PausedClock,
}

impl Governor {
    pub(crate) fn new() -> Self {
        let count = NonZeroU32::new(COUNT).expect("not zero");
        let quota = governor::Quota::with_period(PERIOD / COUNT).expect("not zero").allow_burst(count);
        let clock = PausedClock::new();
        Self { limiter: governor::RateLimiter::direct_with_clock(quota, clock.clone()), clock }
    }
}

impl Peer for Governor {
    async fn admit(&self) {
        while let Err(refused) = self.limiter.check() {
            sleep(refused.wait_time_from(self.clock.now())).await;
        }
    }
}

/// tower's rate limit, one caller after another.
pub(crate) struct Tower {
    service: Mutex<RateLimit<Nothing>>,
}

impl Tower {
    pub(crate) fn new() -> Self {
        Self { service: Mutex::new(RateLimit::new(Nothing, Rate::new(COUNT.into(), PERIOD))) }
    }
}

impl Peer for Tower {
    async fn admit(&self) {
        let mut service = self.service.lock().await;
        let Ok(ready) = service.ready().await;
        let Ok(()) = ready.call(()).await;
    }
}

/// leaky-bucket, refilled with 20 every 60 s.
pub(crate) struct Leaky(leaky_bucket::RateLimiter);

impl Leaky {
    /// `max`: how many it keeps for later; else its default.
    pub(crate) fn new(max: Option<usize>) -> Self {
        let mut builder = leaky_bucket::RateLimiter::builder();
        builder.refill(COUNT as usize).interval(PERIOD).initial(COUNT as usize);
        if let Some(max) = max {
            builder.max(max);
        }
        Self(builder.build())
    }
}

impl Peer for Leaky {
    async fn admit(&self) {
        self.0.acquire_one().await;
    }
}

/// ratelimit, full at first.
pub(crate) struct Ratelimit(Ratelimiter<PausedClock>);

impl Ratelimit {
    pub(crate) fn new() -> Self {
        let builder = ratelimit::Builder::with_clock(COUNT.into(), PausedClock::new());
        let full = builder.period(PERIOD).max_tokens(COUNT.into()).initial_available(COUNT.into());
        Self(full.build().expect("sound numbers"))
    }
}

impl Peer for Ratelimit {
    async fn admit(&self) {
        while let Err(refused) = self.0.try_wait() {
            match refused {
                TryWaitError::Insufficient(wait) => sleep(wait).await,
                refused => unreachable!("{refused}"),
            }
        }
    }
}

/// tokio's paused clock, for limiters that bring their own.
#[derive(Clone, Debug)]
struct PausedClock(Instant);

impl PausedClock {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for PausedClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl ratelimit::Clock for PausedClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
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
