//! A request in the making.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::attempt::Attempt;
use super::permit::{Acquire, Permit};
#[cfg(feature = "outbox")]
use super::place::Past;
use super::place::{Patience, Place, Wishes};
use super::run::{By, ClassifyPlain, ClassifyUnsaid, Plain, Run, Steps, Told, Unclassified};
use super::shared::Shared;
use super::ticket::{self, Ticket, Unstarted};
#[cfg(feature = "outbox")]
use crate::engine::RetryPolicy;
use crate::engine::{Charge, Nanos, RuleId};
use crate::error::{NextStart, Outcome, Refused, Verdict};
use crate::key::Key;
use crate::rules::Retry;

/// A request in the making: [`Balancer::request`](crate::Balancer::request) and
/// [`RuleHandle::request`](crate::RuleHandle::request) begin one.
///
/// Ends with [`run`](Self::run), [`call`](Self::call), [`submit`](Self::submit), [`submit_wait`](Self::submit_wait),
/// [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire). Dropped before, it leaves nothing behind.
#[must_use = "a request does nothing before it is run, called, submitted or acquired"]
pub struct Request<'a, C = Unclassified> {
    shared: &'a Arc<Shared>,
    rule: Result<RuleId, Box<Refused>>,
    key: Key,
    wishes: Wishes,
    classifier: C,
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(super) fn new(shared: &'a Arc<Shared>, rule: Result<RuleId, Refused>, key: Key) -> Self {
        let rule = rule.map_err(Box::new);
        let wishes = Wishes {
            cost: 1,
            max_wait: Patience::OF_RULE,
            special: None,
            idempotent: false,
            fail_fast: false,
            eager: false,
        };
        Self { shared, rule, key, wishes, classifier: Unclassified }
    }

    /// Says what the errors mean that [`call`](Self::call) gets, and those that `?` passes on in [`run`](Self::run) and
    /// [`submit`](Self::submit).
    pub fn classify<E, C: Fn(&E) -> Verdict>(self, classifier: C) -> Request<'a, By<C>> {
        let Self { shared, rule, key, wishes, classifier: Unclassified } = self;
        Request { shared, rule, key, wishes, classifier: By(classifier) }
    }
}

impl<'a, C> Request<'a, C> {
    /// What the request takes from every limit that counts requests. Default: 1; zero counts as 1.
    ///
    /// Concurrency caps count attempts and take one place each. A cost that one of its limits never has room for is
    /// refused at once with [`Refused::CostTooHigh`]. Each attempt pays anew.
    pub fn cost(mut self, cost: u32) -> Self {
        self.wishes.cost = cost.max(1);
        self
    }

    /// What the request takes from every limit that counts a declared unit. Default: nothing.
    ///
    /// `"requests"` is the default unit, as in [`cost`](Self::cost). A unit that the rules do not declare shows as
    /// [`Refused::UnknownUnit`] when the request enters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, NextStart, Rules};
    ///
    /// let rules: Rules = "units = ['tokens']\noverall = ['60/1m', '10000/1m tokens']".parse()?;
    /// let balancer = Balancer::new(rules);
    /// let permit = balancer.request("default", "gpt").cost_of("tokens", 9_000).acquire().await?;
    /// // It turned out shorter than was feared.
    /// permit.settle("tokens", 1_200)?;
    /// let next = balancer.request("default", "gpt").cost_of("tokens", 8_800).try_acquire();
    /// assert!(next.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost_of(mut self, unit: &str, cost: u32) -> Self {
        match self.shared.live.load().unit(unit) {
            Ok(Charge::Unit(position)) => {
                let units = &mut self.wishes.special().units;
                if units.len() <= position {
                    units.resize(position + 1, 0);
                }
                units[position] = cost;
            }
            Ok(Charge::Requests | Charge::Attempt) => self.wishes.cost = cost.max(1),
            Err(reason) if self.rule.is_ok() => self.rule = Err(Box::new(reason)),
            Err(_) => {}
        }
        self
    }

    /// The longest time in line, over all attempts; after it the request is refused with [`Refused::MaxWait`].
    ///
    /// Default: the rule's `max_wait`, or as long as it takes.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.wishes.max_wait = Patience::of(span);
        self
    }

    /// Does not start before this span is over, counted from its entry into the line. Default: zero.
    pub fn not_before(mut self, span: Duration) -> Self {
        self.wishes.special().not_before = span.into();
        self
    }

    /// Uses only this endpoint of the pool. Default: any.
    ///
    /// A name that is no endpoint's shows as [`Refused::UnknownEndpoint`] when the request enters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[pool]\nendpoints = ['bot-a', 'bot-b']".parse::<Rules>()?);
    /// let permit = balancer.request("default", 42).on("bot-b").acquire().await?;
    /// assert_eq!(permit.endpoint().expect("there is a pool").name(), "bot-b");
    /// # Ok(())
    /// # }
    /// ```
    pub fn on(self, endpoint: &str) -> Self {
        self.among([endpoint])
    }

    /// Uses only these endpoints of the pool. Default: any. As [`on`](Self::on).
    ///
    /// Without any of them it is refused with [`Refused::NoEndpoint`]: a list that was filtered until nothing was left does
    /// not mean all.
    pub fn among<'n>(mut self, endpoints: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<Box<str>> = endpoints.into_iter().map(Box::from).collect();
        if names.is_empty() && self.rule.is_ok() {
            self.rule = Err(Box::new(Refused::NoEndpoint { next_start: NextStart::Never }));
        }
        self.wishes.special().endpoints = names;
        self
    }

    /// The longest that one attempt may run, of [`run`](Self::run), [`call`](Self::call) and [`submit`](Self::submit);
    /// `None`: any. Default: the rule's `attempt_timeout`.
    ///
    /// Then its task is woken, and when it polls the future next, what runs is dropped and its concurrency slots are free:
    /// at once in a task of its own, never in one that does not come to poll it. The start stays counted, as it is at
    /// the server. It may have had its effect: only an [`idempotent`](Self::idempotent) request is tried again, like after a
    /// transient failure; all others end with [`Refused::TimedOut`]. Time in line is no time of an attempt, and an
    /// attempt that is ready when it is polled in time's last moment has made it. A [`Permit`] can't be timed out. A
    /// request that can be needs a tokio runtime with timers even where it need not wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::future::pending;
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Error, Outcome, Refused, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = { key_concurrency = 1 }".parse::<Rules>()?);
    /// let begin = tokio::time::Instant::now();
    /// let send = || balancer.request("send", 42).attempt_timeout(Duration::from_secs(30));
    /// let answer = send().run(|_| pending::<Outcome<(), ()>>()).await;
    /// assert_eq!(answer, Err(Error::GaveUp { reason: Refused::TimedOut, attempts: 1, last: None }));
    /// assert_eq!(begin.elapsed(), Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub fn attempt_timeout(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.wishes.special().attempt_timeout = Some(longest.into().map_or(Nanos::MAX, Nanos::from));
        self
    }

    /// What differs from the rule's retry policy.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Error, Refused, Retry, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// // Patient, but not with a server that wants more than a minute's rest.
    /// let retry = Retry::patient().ceiling(Duration::from_secs(60));
    /// let answer = balancer
    ///     .request("send", 42)
    ///     .retry(retry)
    ///     .run(async |attempt| Err::<(), _>(attempt.retry::<()>(Duration::from_secs(90))))
    ///     .await;
    /// let reason = Refused::WaitTooLong { wait: Duration::from_secs(90), ceiling: Duration::from_secs(60) };
    /// assert_eq!(answer, Err(Error::GaveUp { reason, attempts: 1, last: None }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry(mut self, retry: Retry) -> Self {
        if let Ok(rule) = self.rule {
            let live = self.shared.live.load();
            let policy = retry.over(self.wishes.policy().unwrap_or_else(|| &live.rule(rule).retry));
            self.wishes.special().policy = Some(policy);
        }
        self
    }

    /// Goes on where an earlier run of the program left off, for as long as a server wants it to wait, whether or not it was
    /// sent before.
    #[cfg(feature = "outbox")]
    pub(crate) fn resume(mut self, past: Past, retry: &Retry) -> Self {
        if let Ok(rule) = self.rule {
            let policy = retry.over(&self.shared.live.load().rule(rule).retry);
            let policy = RetryPolicy { waits: u32::MAX, ceiling: None, total_wait: None, ..policy };
            self.wishes.special().policy = Some(policy);
        }
        self.wishes.special().resume(past);
        self.wishes.idempotent = true;
        self.wishes.max_wait = Patience::ENDLESS;
        self
    }

    /// Its own policy, if it has one, and whether its rule is `ordered`.
    #[cfg(feature = "outbox")]
    pub(crate) fn own_terms(&self) -> Option<(RetryPolicy, bool)> {
        let rule = self.rule.as_ref().ok()?;
        Some((self.wishes.policy()?.clone(), self.shared.live.load().rule(*rule).ordered))
    }

    /// One attempt, whatever comes of it. A wait that the server asks for still holds its scope for others.
    pub fn no_retry(self) -> Self {
        self.retry(Retry::none().waits(0))
    }

    /// Doing it twice does no harm: an [ambiguous](crate::Failure::ambiguous) failure may be tried again.
    pub fn idempotent(mut self) -> Self {
        self.wishes.idempotent = true;
        self
    }

    /// Starts at once or not at all: where it would stand in line it is refused with [`Refused::NotNow`].
    ///
    /// Only its first start is meant; an attempt that fails may still be followed by another.
    pub fn fail_fast(mut self) -> Self {
        self.wishes.fail_fast = true;
        self
    }

    /// Does not even enter the line if it can't start within its [`max_wait`](Self::max_wait): limits, holds and the
    /// requests ahead in the same queue say so, as in [`Balancer::next_start`](crate::Balancer::next_start).
    ///
    /// It is refused with [`Refused::MaxWait`] at once then, rather than after it has waited in vain. Where nobody knows
    /// when it can start (it waits for running attempts, or its rule is paused) it enters. Only its first start is meant.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, NextStart, Refused, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/10s'".parse::<Rules>()?);
    /// drop(balancer.request("send", 42).acquire().await?);
    /// let begin = tokio::time::Instant::now();
    /// let refused = balancer.request("send", 42).max_wait(Duration::from_secs(5)).eager().acquire().await.unwrap_err();
    /// let next_start = NextStart::After(Duration::from_secs(10));
    /// assert_eq!(refused, Refused::MaxWait { waited: Duration::ZERO, next_start });
    /// assert_eq!(begin.elapsed(), Duration::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    pub fn eager(mut self) -> Self {
        self.wishes.eager = true;
        self
    }

    /// Runs the request in place, as [`Balancer::run`](crate::Balancer::run) does.
    #[inline(always)]
    pub fn run<F, Fut, T, E>(self, f: F) -> Run<'a, F, Fut, E, Told<C>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Outcome<T, E>>,
        C: ClassifyUnsaid<E>,
    {
        let place = Place::new(self.shared, self.rule, self.key, self.wishes);
        Run { steps: Steps::new(place, f, Told(self.classifier)) }
    }

    /// Runs the request in place, as [`Balancer::call`](crate::Balancer::call) does.
    #[inline(always)]
    pub fn call<F, Fut, T, E>(self, f: F) -> Run<'a, F, Fut, E, Plain<C>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: ClassifyPlain<E>,
    {
        let place = Place::new(self.shared, self.rule, self.key, self.wishes);
        Run { steps: Steps::new(place, f, Plain(self.classifier)) }
    }

    /// Takes its place in line now. A task is spawned on the current runtime when the request starts, and not before;
    /// `f` is called inside it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let first = balancer.request("send", 42).submit(async |_| Ok::<_, Failure<()>>("first"))?;
    /// let second = balancer.request("send", 42).submit(async |_| Ok::<_, Failure<()>>("second"))?;
    /// assert_eq!(balancer.key(42).waiting, 2);
    /// assert_eq!((first.await, second.await), (Ok("first"), Ok("second")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] if the request can't enter: its rule is unknown, its queue is full, the balancer is closed, or no
    /// tokio runtime is current.
    ///
    /// # Cancel safety
    ///
    /// The [`Ticket`] says what dropping it does.
    pub fn submit<F, Fut, T, E>(self, f: F) -> Result<Ticket<T, E>, Refused>
    where
        F: FnMut(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
        C: ClassifyUnsaid<E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let place = Place::new(Arc::clone(self.shared), self.rule, self.key, self.wishes);
        ticket::submit(Unstarted { place, begin: f, judge: Told(self.classifier) })
    }

    /// As [`submit`](Self::submit), but where there is no room in line it waits for it: whoever produces requests faster
    /// than they can start is slowed down by it.
    ///
    /// Its own queue must have room, and so must the line as a whole, unless it can start at once when it comes. Who came
    /// first goes in first, as far as its queue has room; who submits without waiting finds no room before all of them,
    /// unless its rule drops the oldest to make some. It displaces nobody itself. The future resolves to the [`Ticket`] as
    /// soon as the request stands in line; time before the line is no time in it, so that `max_wait` and `not_before`
    /// begin then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("queue = 10\n[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let begin = tokio::time::Instant::now();
    /// for number in 0..15 {
    ///     let send = move |_| async move { Ok::<_, Failure<()>>(number) };
    ///     balancer.request("send", 42).submit_wait(send).await?.detach();
    /// }
    /// // One started at once and ten stand in line: four had to start before that.
    /// assert_eq!(begin.elapsed(), Duration::from_secs(4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] if the request can't enter for other reasons than room, or can no more while it waits: its rule is
    /// unknown or removed, it costs too much, the balancer is closed, no tokio runtime is current, or the attempt that
    /// calls this keeps the queue from moving.
    ///
    /// # Cancel safety
    ///
    /// It comes before the line at its first poll. Dropped before it is ready, it leaves without a trace, and `f` is
    /// dropped.
    #[must_use = "futures do nothing unless polled"]
    pub fn submit_wait<F, Fut, T, E>(
        self,
        f: F,
    ) -> impl Future<Output = Result<Ticket<T, E>, Refused>> + Send + use<F, Fut, T, E, C>
    where
        F: FnMut(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
        C: ClassifyUnsaid<E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let place = Place::new(Arc::clone(self.shared), self.rule, self.key, self.wishes);
        ticket::submit_wait(Unstarted { place, begin: f, judge: Told(self.classifier) })
    }

    /// Waits for the start and hands it over as a [`Permit`], for code that can't be a closure.
    ///
    /// The future resolves to [`Refused`] if the request is not started. Classifiers have no part in it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let permit = balancer.request("send", 42).acquire().await?;
    /// // … the call, which the server answers with "come back in 5 seconds" …
    /// let permit = permit.retry(Duration::from_secs(5)).await?;
    /// assert_eq!((permit.number(), permit.waited()), (2, Duration::from_secs(5)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(self) -> Acquire {
        let place = Place::new(Arc::clone(self.shared), self.rule, self.key, self.wishes);
        Acquire::new(place.into_permit())
    }

    /// Starts now or not at all, without waiting.
    ///
    /// ```
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, NextStart, Refused, Rules};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// assert!(balancer.request("send", 42).try_acquire().is_ok());
    /// let refused = balancer.request("send", 42).try_acquire().unwrap_err();
    /// assert_eq!(refused, Refused::NotNow { next_start: NextStart::After(Duration::from_secs(1)) });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::NotNow`] with the earliest start if it would have to wait, as always where a limit of the rule is shared;
    /// others if it can't enter.
    pub fn try_acquire(self) -> Result<Permit, Refused> {
        let acquire = self.fail_fast().acquire();
        // It never waits, so it needs nobody to wake.
        let mut context = Context::from_waker(Waker::noop());
        match pin!(acquire).poll(&mut context) {
            Poll::Ready(answer) => answer,
            // A store would have to be asked.
            Poll::Pending => Err(Refused::NotNow { next_start: NextStart::Now }),
        }
    }
}

impl<C> fmt::Debug for Request<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("rule", &self.rule)
            .field("key", &self.key)
            .field("wishes", &self.wishes)
            .finish_non_exhaustive()
    }
}
