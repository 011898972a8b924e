//! The handle of a balancer.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::builder::Builder;
use super::closing::Ended;
use super::event::{Event, Events, Holding};
use super::explain::Explanation;
use super::request::Request;
use super::rule_handle::RuleHandle;
use super::run::{Plain, Run, Told, Unclassified};
use super::shared::{Shared, State};
use super::snapshot::{KeySnapshot, Snapshot};
use super::target::{Aim, Target};
use crate::engine::{self, Health, Instant, KeyId, Turned};
use crate::error::{Classify, NextStart, Outcome, Refused};
use crate::key::Key;
use crate::rules::{Findings, Quota, Rules};

/// Starts each request at the earliest moment that breaks no limit.
///
/// A handle: cloning it is cheap, and all clones share one state. Nothing of the balancer outlives its last handle. It
/// may be made outside a tokio runtime and used on several; a request that has to wait needs a runtime with timers.
#[derive(Clone, Debug)]
pub struct Balancer {
    pub(super) shared: Arc<Shared>,
}

impl Balancer {
    /// A balancer that goes by these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self::builder(rules).build()
    }

    /// A balancer in the making, for what [`new`](Self::new) leaves at its default.
    pub fn builder(rules: Rules) -> Builder {
        Builder { rules, seed: None, coded: false, afar: None }
    }

    /// Runs `f` as a request of a rule and a key, in the caller's task, as soon as no limit is in its way.
    ///
    /// `f` is called once for each attempt. It may borrow; nothing is boxed or spawned. What it returns says what
    /// follows: a value, a final error (`?`), or a [`Failure`](crate::Failure) after which the request is tried again.
    /// The request takes its place in line when the future is first polled.
    ///
    /// The future resolves to [`Error`](crate::Error) if an attempt fails for good, if the balancer gives up, or if `f`
    /// panics. [`Run`] says what dropping it does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let greeting = String::from("hello");
    /// let length = balancer
    ///     .run("send", 42, async |_| Ok::<_, request_balancer::Failure<std::io::Error>>(greeting.len()))
    ///     .await?;
    /// assert_eq!(length, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F, Fut, T, E>(&self, rule: &str, key: impl Into<Key>, f: F) -> Run<'_, F, Fut, E, Told<Unclassified>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Outcome<T, E>>,
    {
        self.request(rule, key).run(f)
    }

    /// The same as [`run`](Self::run) for an `f` that returns a plain result, whose error says itself what it means.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Classify, Rules, Verdict};
    ///
    /// #[derive(Debug)]
    /// struct Busy;
    ///
    /// impl Classify for Busy {
    ///     fn classify(&self) -> Verdict {
    ///         Verdict::Retry { after: Some(Duration::from_secs(3)), scope: None }
    ///     }
    /// }
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let begin = tokio::time::Instant::now();
    /// let send = async |number| if number == 1 { Err(Busy) } else { Ok(number) };
    /// let answer = balancer.call("send", 42, |attempt| send(attempt.number())).await;
    /// assert_eq!(answer.unwrap(), 2);
    /// assert_eq!(begin.elapsed(), Duration::from_secs(3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn call<F, Fut, T, E>(&self, rule: &str, key: impl Into<Key>, f: F) -> Run<'_, F, Fut, E, Plain<Unclassified>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Classify,
    {
        self.request(rule, key).call(f)
    }

    /// A request in the making, for what [`run`](Self::run) and [`call`](Self::call) leave at its default.
    ///
    /// A name that is no rule's stands for the rules' [`default_rule`](crate::RulesBuilder::default_rule); if they have
    /// none, it shows as [`Refused::UnknownRule`] when the request enters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Error, Failure, NextStart, Refused, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/10s'".parse::<Rules>()?);
    /// let send = || balancer.request("send", 42).max_wait(Duration::from_secs(4));
    /// assert_eq!(send().run(async |_| Ok::<_, Failure<()>>("sent")).await, Ok("sent"));
    /// // The next could start after 10 s.
    /// let reason = Refused::MaxWait {
    ///     waited: Duration::from_secs(4),
    ///     next_start: NextStart::After(Duration::from_secs(6)),
    /// };
    /// let answer = send().run(async |_| Ok::<_, Failure<()>>("sent")).await;
    /// assert_eq!(answer, Err(Error::GaveUp { reason, attempts: 0, last: None }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn request(&self, rule: &str, key: impl Into<Key>) -> Request<'_> {
        Request::new(&self.shared, self.shared.find_or_default(rule), key.into())
    }

    /// A handle of one rule, so that a wrong name shows at start-up and no request looks a name up.
    ///
    /// ```
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nbroadcast = '1/1s'".parse::<Rules>()?);
    /// assert_eq!(&*balancer.rule("broadcast")?.name(), "broadcast");
    /// let typo = balancer.rule("brodcast").unwrap_err();
    /// assert_eq!(typo.to_string(), "there is no rule `brodcast`; did you mean `broadcast`?");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name, unless the rules have a
    /// [`default_rule`](crate::RulesBuilder::default_rule): then the handle is that one's.
    pub fn rule(&self, name: &str) -> Result<RuleHandle, Refused> {
        let rule = self.shared.find_or_default(name)?;
        Ok(RuleHandle { shared: Arc::clone(&self.shared), rule })
    }

    /// Starts nothing of the target before `span` is over. What runs goes on.
    ///
    /// Holds on one target combine by maximum: a shorter one changes nothing. None is longer than `max_hold` (one hour).
    ///
    /// ```
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, NextStart, Rules, Target};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// balancer.hold(Target::key(42), Duration::from_secs(5))?;
    /// assert_eq!(balancer.next_start("send", 42)?, NextStart::After(Duration::from_secs(5)));
    /// assert_eq!(balancer.next_start("send", 43)?, NextStart::Now);
    /// balancer.release(Target::key(42))?;
    /// assert_eq!(balancer.next_start("send", 42)?, NextStart::Now);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    pub fn hold(&self, target: Target, span: Duration) -> Result<(), Refused> {
        let (scope, rule, key) = target.parts();
        let news = Cell::new(None);
        self.aim(&target, |state, now, target| {
            let holding = Holding::new(state, now, target, span.into());
            let known = state.machine.hold(now, target, now.saturating_add(span.into()));
            news.set(holding.done(state, now));
            known
        })?;
        match &target.0 {
            Aim::Endpoint(name) => self.shared.tell_endpoint_hold(news.take(), name.as_str().into()),
            Aim::Overall | Aim::Rule(_) | Aim::Key(_) | Aim::Queue(..) => {
                self.shared.tell_hold(news.take(), scope, || (rule, key));
            }
        }
        Ok(())
    }

    /// Takes in what the server says of its counters by other ways than the response to a request, such as a call that
    /// asks for them: as of now, for the limits of the target. A refusal with a wait holds the target.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use request_balancer::headers::{self, Dialect};
    /// use request_balancer::{Balancer, NextStart, Rules, Target};
    ///
    /// let balancer = Balancer::new("overall = '5000/1h'".parse::<Rules>()?);
    /// let fields = [("X-RateLimit-Limit", "5000"), ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "900")];
    /// let observation = headers::read(200, fields, None, SystemTime::now(), Dialect::auto());
    /// balancer.observe(Target::overall(), &observation)?;
    /// assert!(matches!(balancer.next_start("default", 1)?, NextStart::After(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    #[cfg(feature = "headers")]
    pub fn observe(&self, target: Target, observation: &crate::headers::Observation) -> Result<(), Refused> {
        let (scope, rule, key) = target.parts();
        let news = Cell::new(None);
        let live = self.shared.live.load_full();
        self.aim(&target, |state, now, target| {
            let (known, held) = super::observe::observe_target(state, now, &live, target, observation);
            news.set(held);
            known
        })?;
        self.shared.tell_hold(news.take(), scope, || (rule, key));
        Ok(())
    }

    /// Ends the target's hold.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    pub fn release(&self, target: Target) -> Result<(), Refused> {
        let was_on = Cell::new(false);
        self.aim(&target, |state, now, target| {
            was_on.set(state.machine.held(now, target).is_some());
            state.machine.release(now, target)
        })?;
        if was_on.get() {
            let (scope, rule, key) = target.parts();
            self.shared.tell(match &target.0 {
                Aim::Endpoint(name) => Event::EndpointReleased { endpoint: name.as_str().into() },
                Aim::Overall | Aim::Rule(_) | Aim::Key(_) | Aim::Queue(..) => Event::HoldReleased { scope, rule, key },
            });
        }
        Ok(())
    }

    /// Starts nothing of a rule until it is [resumed](Self::resume). What runs goes on.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name. The rules' default rule does not step in: it is many names' rule.
    pub fn pause(&self, rule: &str) -> Result<(), Refused> {
        self.named(rule).map(|rule| rule.pause())
    }

    /// Ends a rule's pause.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    pub fn resume(&self, rule: &str) -> Result<(), Refused> {
        self.named(rule).map(|rule| rule.resume())
    }

    /// Starts nothing at all until [`resume_all`](Self::resume_all). What runs goes on, and requests may enter.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, NextStart, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'\nread = { paused = true }".parse::<Rules>()?);
    /// balancer.pause_all();
    /// assert_eq!(balancer.next_start("send", 42)?, NextStart::Never);
    /// balancer.resume_all();
    /// assert_eq!(balancer.next_start("send", 42)?, NextStart::Now);
    /// // It was paused by itself.
    /// assert_eq!(balancer.next_start("read", 42)?, NextStart::Never);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause_all(&self) {
        self.shared.with(|state, now| state.machine.pause_all(now));
    }

    /// Ends the pause of everything. Rules that are paused by themselves stay so.
    pub fn resume_all(&self) {
        self.shared.with(|state, now| state.machine.resume_all(now));
    }

    /// When a new request could start at the earliest.
    ///
    /// A lower bound, from limits, holds and the requests ahead in the same queue; other keys are not considered.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    pub fn next_start(&self, rule: &str, key: impl Into<Key>) -> Result<NextStart, Refused> {
        self.rule(rule).map(|rule| rule.next_start(key))
    }

    /// The state of the balancer in numbers.
    ///
    /// ```
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let permit = balancer.request("send", 42).try_acquire()?;
    /// let snapshot = balancer.snapshot();
    /// assert_eq!((snapshot.waiting, snapshot.in_flight, snapshot.keys), (0, 1, 1));
    /// drop(permit);
    /// assert_eq!(balancer.snapshot().in_flight, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        // What is due comes first: where nobody ever waited, no driver has seen to it.
        self.shared.with(|_, _| ());
        self.shared.with(|state, now| {
            Snapshot::new(state.machine.plan(), now, state.machine.outside(), state.machine.snapshot(now))
        })
    }

    /// How things go: whether whoever comes may start, limits and holds make wait, or something stands still that could
    /// go on.
    ///
    /// Waits that a server asks for are no illness: requests that are held and succeed later are
    /// [`Limited`](Health::Limited), and so is what is paused or closed. [`Stalled`](Health::Stalled) means that a request waits that could start while
    /// nothing has started for more than a second: its future is not polled, or no runtime on which the balancer works
    /// is being run. Takes a look at every request if nothing has started for a second, else at none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Health, Rules, Target};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// assert_eq!(balancer.health(), Health::Ok);
    /// balancer.hold(Target::key(42), Duration::from_secs(5))?;
    /// assert_eq!(balancer.health(), Health::Limited);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.with(|state, now| state.machine.health(now))
    }

    /// What is in the way of a new request, limit by limit; shown, it says so in words.
    ///
    /// Looks at whoever is before it in line, under the lock: to be asked by people, not for each request.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownRule`] with the nearest name.
    pub fn explain(&self, rule: &str, key: impl Into<Key>) -> Result<Explanation, Refused> {
        self.rule(rule).map(|rule| rule.explain(key))
    }

    /// What the balancer tells of its own accord from now on: holds, requests given up, a ban ahead.
    ///
    /// Called inside a tokio runtime, the balancer works on that one, too, so that what comes by itself comes in time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Event, Rules, Target};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let mut events = balancer.events();
    /// balancer.hold(Target::key(42), Duration::from_secs(5))?;
    /// let Some(Event::HoldStarted { key, lasts, .. }) = events.next().await else { panic!("no hold") };
    /// assert_eq!((key, lasts), (Some(42.into()), Duration::from_secs(5)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.events()
    }

    /// One key in numbers; all zero if nothing is known of it.
    #[must_use]
    pub fn key(&self, key: impl Into<Key>) -> KeySnapshot {
        let Some(record) = self.shared.record(&key.into()) else { return KeySnapshot::default() };
        self.shared.with(|state, now| {
            KeySnapshot::new(now, state.machine.outside_of(record), &state.machine.key_snapshot(now, record))
        })
    }

    /// Goes over to other rules, at once and for all handles.
    ///
    /// Queues and futures stay. What waits under a rule that is gone is refused with [`Refused::RuleRemoved`], what can
    /// no longer fit with [`Refused::CostTooHigh`]; what runs may finish. Starts that are known count under the new
    /// limits, so that a longer period or a smaller count holds from now on; a raised one is used at once. A queue
    /// whose priority changed goes to the end of its new lane. Requests keep the `max_wait` that they were made
    /// with; what follows a failure is for the rules in force to say, unless the request brought a
    /// [policy](crate::Request::retry) of its own. Takes a look at every request and key under the lock.
    ///
    /// Removed endpoints keep their places while requests name them or starts on them count. If that leaves too few of the
    /// 65,535 places, nothing is replaced, and a warning goes to `tracing`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// drop(balancer.request("send", 42).acquire().await?);
    /// balancer.replace_rules("[rules]\nsend = '2/1s'".parse()?);
    /// assert!(balancer.request("send", 42).try_acquire().is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_rules(&self, rules: Rules) {
        self.shared.replace_rules(rules);
        self.shared.man_desk_here();
    }

    /// Gives a key its own numbers under a rule, in place of the rule's `per_key`; an empty list gives it the rule's
    /// again. They stay when the key's record goes and when rules are replaced, and go with the rule.
    ///
    /// Starts that are known count. Raising never makes a wait longer. Given to an [alias](Self::alias), they are the
    /// numbers of the key that it stands for.
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same quotas would be refused for in a rules file, an unknown rule among them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Quota, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nread = '1/1s'".parse::<Rules>()?);
    /// balancer.set_limit("read", "shop-1", &[Quota::per_second(2)])?;
    /// drop(balancer.request("read", "shop-1").acquire().await?);
    /// assert!(balancer.request("read", "shop-1").try_acquire().is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_limit(&self, rule: &str, key: impl Into<Key>, quotas: &[Quota]) -> Result<(), Findings> {
        self.shared.set_limit(rule, &key.into(), quotas)
    }

    /// From now on `old` is another name of `new`: a chat that became another, an account found to be the same.
    ///
    /// One budget (the starts of both count), one queue per rule (what waits under `old` is before what waits under
    /// `new`), and what runs under either counts for both. Takes a look at every request under the lock.
    ///
    /// If `old` is another name already, it takes along the key that it stands for: after `alias("a", "b")` and
    /// `alias("a", "c")` all three are `c`.
    ///
    /// # Errors
    ///
    /// [`Refused::AliasCycle`] if `new` is `old` or another name of it. To say again that `old` is a name of `new`, directly
    /// or by way of others, is no error and changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\ngroup = '1/1s'".parse::<Rules>()?);
    /// drop(balancer.request("group", "old chat").acquire().await?);
    /// balancer.alias("old chat", "new chat")?;
    /// assert!(balancer.request("group", "new chat").try_acquire().is_err());
    /// assert!(balancer.alias("new chat", "old chat").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn alias(&self, old: impl Into<Key>, new: impl Into<Key>) -> Result<(), Refused> {
        self.shared.alias(&old.into(), &new.into())
    }

    /// Makes `old` a key of its own again, with nothing known of it: what was its stays with the other. Returns false if
    /// it was no alias.
    pub fn unalias(&self, old: impl Into<Key>) -> bool {
        self.shared.unalias(&old.into())
    }

    /// Closes the balancer, for all its handles and for good: what stands in line and whatever comes is refused with
    /// [`Refused::Closed`]; what runs may finish until `deadline` is over and is then cut off.
    ///
    /// Resolves as soon as nothing runs any more, with what became of everything. Called again, it counts from the
    /// first call. Outside a tokio runtime, and on one without timers, it can't wait and cuts off at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = { key_concurrency = 1 }".parse::<Rules>()?);
    /// let submit = || {
    ///     balancer.request("send", 42).submit(async |_| {
    ///         tokio::time::sleep(Duration::from_secs(2)).await;
    ///         Ok::<_, Failure<()>>(())
    ///     })
    /// };
    /// let (runs, waits) = (submit()?, submit()?);
    /// tokio::task::yield_now().await;
    /// let ended = balancer.close(Duration::from_secs(10)).await;
    /// assert_eq!((ended.done, ended.refused, ended.aborted, ended.open), (1, 1, 0, 0));
    /// assert!(runs.await.is_ok() && waits.await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Once polled, the balancer stays closed; dropped before the deadline, it lets what runs go on.
    pub async fn close(&self, deadline: Duration) -> Ended {
        self.shared.close(deadline).await
    }

    /// Closes the balancer and cuts off what runs, as [`close`](Self::close) does at its deadline, without waiting for
    /// that: the attempts' futures are dropped when they are polled next, and their requests end with
    /// [`Refused::Aborted`]. Permits go on until they are dropped. Called again, it changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Refused, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let runs = balancer.request("send", 42).submit(async |_| std::future::pending::<Result<(), Failure<()>>>().await)?;
    /// tokio::task::yield_now().await;
    /// balancer.abort();
    /// assert_eq!(runs.await.unwrap_err().refused(), Some(&Refused::Aborted));
    /// assert_eq!(balancer.request("send", 42).acquire().await.unwrap_err(), Refused::Closed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort(&self) {
        self.shared.abort();
    }

    #[cfg(feature = "serde")]
    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The rule that has this very name.
    fn named(&self, name: &str) -> Result<RuleHandle, Refused> {
        Ok(RuleHandle { shared: Arc::clone(&self.shared), rule: self.shared.find(name)? })
    }

    fn aim(&self, target: &Target, act: impl Fn(&mut State, Instant, engine::Target) -> bool) -> Result<(), Refused> {
        let on_key = |key: &Key, aim: &dyn Fn(KeyId) -> engine::Target| {
            self.shared.with_record(
                key,
                |state, now, record| {
                    if act(state, now, aim(record)) { Ok(()) } else { Err(Turned::StaleKey) }
                },
            )
        };
        let on_all = |aim| {
            self.shared.with(|state, now| act(state, now, aim));
        };
        match &target.0 {
            Aim::Overall => on_all(engine::Target::Overall),
            Aim::Rule(name) => on_all(engine::Target::Rule(self.shared.find(name)?)),
            Aim::Endpoint(name) => self.shared.with(|state, now| {
                // Under the lock: its place may be another's the next time.
                let endpoint = self.shared.live.load().find_endpoint(name)?;
                act(state, now, engine::Target::Endpoint(endpoint));
                Ok::<(), Refused>(())
            })?,
            Aim::Key(key) => on_key(key, &engine::Target::Key)?,
            Aim::Queue(name, key) => {
                let rule = self.shared.find(name)?;
                on_key(key, &|record| engine::Target::Queue(rule, record))?;
            }
        }
        Ok(())
    }
}
