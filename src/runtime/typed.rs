//! Pools whose endpoints have values of the program's own.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::attempt::{Attempt, Endpoint};
use super::balancer::Balancer;
use super::builder::Builder;
use super::live::Live;
use super::permit::{Acquire, Permit};
use super::request::Request;
use super::run::{By, ClassifyPlain, ClassifyUnsaid, Plain, Run, Told, Unclassified};
use super::ticket::Ticket;
use crate::error::{Classify, Outcome, Refused, Verdict};
use crate::key::Key;
use crate::rules::{EndpointRules, Finding, FindingCode, Findings, Retry};

impl Builder {
    /// The balancer as a pool whose endpoints have these values: clients, tokens, base URLs.
    ///
    /// If the rules list endpoints, each of them needs a value; values of other names are further endpoints.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// struct Bot {
    ///     token: &'static str,
    /// }
    ///
    /// let rules: Rules = "[pool]\nconcurrency = 1".parse()?;
    /// let bots = [("bot-a", Bot { token: "1:AA" }), ("bot-b", Bot { token: "2:BB" })];
    /// let pool = Balancer::builder(rules).pool(bots)?;
    /// let token = pool
    ///     .run("default", 42, async |attempt| Ok::<_, Failure<()>>(attempt.endpoint().value().token))
    ///     .await;
    /// assert_eq!(token, Ok("1:AA"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Findings`] if a listed endpoint has no value, one has two, or a name can't be one. No value at all is none: nothing
    /// starts before one is [added](Pool::add).
    pub fn pool<N: Into<String>, T>(self, values: impl IntoIterator<Item = (N, T)>) -> Result<Pool<T>, Findings> {
        let mut rules = self.rules;
        if rules.endpoints().next().is_none() {
            // Without a value there is no endpoint, which is not the same as no pool.
            rules = rules.with_endpoints(std::iter::empty::<(String, EndpointRules)>())?;
        }
        let mut by_name: HashMap<Arc<str>, Arc<T>> = HashMap::new();
        for (name, value) in values {
            let name: String = name.into();
            let is_listed = rules.endpoints().any(|listed| listed == name);
            if !is_listed {
                rules = rules.with_endpoint(&name, EndpointRules::new())?;
            }
            if by_name.insert(name.as_str().into(), Arc::new(value)).is_some() {
                return Err(crate::rules::wording::duplicate_name(&name, "endpoint").into());
            }
        }
        if let Some(without) = rules.endpoints().find(|name| !by_name.contains_key(*name)) {
            let found = format!("the endpoint `{without}` without a value");
            return Err(Finding::new(FindingCode::Empty, found, "a value for each endpoint that the rules list").into());
        }
        let balancer = Self { rules, coded: true, ..self }.build();
        balancer.shared.make_typed();
        Ok(Pool { balancer, values: Arc::new(Values::new(by_name)) })
    }
}

/// A balancer whose endpoints have values: what runs gets the value of the endpoint that was chosen for it.
///
/// Made by [`Builder::pool`]. A handle: cloning it is cheap, and all clones share one state.
pub struct Pool<T> {
    balancer: Balancer,
    values: Arc<Values<T>>,
}

/// Values by the names of their endpoints. One that was removed stays for what still runs.
///
/// Written only under the machine's lock, so that whoever starts finds the value of its endpoint.
struct Values<T> {
    by_name: RwLock<HashMap<Arc<str>, Arc<T>>>,
}

impl<T> Values<T> {
    fn new(by_name: HashMap<Arc<str>, Arc<T>>) -> Self {
        Self { by_name: RwLock::new(by_name) }
    }

    fn get(&self, name: &str) -> Option<Arc<T>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    /// Gives an endpoint a value. Returns the one that it had.
    fn set(&self, name: &str, value: Arc<T>) -> Option<Arc<T>> {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), value)
    }

    /// Takes all out but those of these endpoints, for who may drop them.
    fn keep(&self, names: impl Iterator<Item = Arc<str>>) -> HashMap<Arc<str>, Arc<T>> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let kept = names.filter_map(|name| by_name.remove_entry(&name)).collect();
        std::mem::replace(&mut *by_name, kept)
    }

    fn with_value(&self, attempt: Attempt) -> PooledAttempt<T> {
        let endpoint = attempt.endpoint().and_then(|endpoint| {
            let value = self.get(endpoint.name())?;
            Some(Endpoint::with(endpoint.name().into(), value))
        });
        match endpoint {
            Some(endpoint) => PooledAttempt { attempt, endpoint },
            None => unreachable!("a typed pool starts nothing without an endpoint that has a value"),
        }
    }
}

impl<T> Pool<T> {
    /// The balancer below, for everything that is not about endpoints' values.
    #[must_use]
    pub const fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The value of an endpoint; that of a removed one at least until the last attempt that has it ends.
    #[must_use]
    pub fn value(&self, endpoint: &str) -> Option<Arc<T>> {
        self.values.get(endpoint)
    }

    /// Adds an endpoint, or gives one another value and other numbers.
    ///
    /// With another value it is another endpoint behind the same name, such as a token that was renewed: it is enabled, not
    /// held, its breaker is closed, what the server said of the old one is forgotten, and however attempts end that began
    /// with that, nothing follows for it. Starts that are known stay counted. Takes a look at every request and key under the
    /// lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, EndpointRules, Failure, Rules};
    ///
    /// let pool = Balancer::builder(Rules::builder().build()?).pool([("bot-a", "1:AA")])?;
    /// let send = || pool.run("default", 42, async |attempt| match *attempt.endpoint().value() {
    ///     "1:AA" => Err(Failure::permanent("401").disable_endpoint()),
    ///     token => Ok(token),
    /// });
    /// assert!(send().await.is_err());
    /// pool.add("bot-a", "1:BB", EndpointRules::new())?;
    /// assert_eq!(send().await, Ok("1:BB"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same endpoint would be refused for in a rules file. Then nothing has changed.
    pub fn add(&self, name: &str, value: T, endpoint: EndpointRules) -> Result<(), Findings> {
        // Neither this one, if it is refused, nor the one before it is dropped under the lock.
        let value = Arc::new(value);
        let next = |live: &Live| live.rules.with_endpoint(name, endpoint);
        let before = self.balancer.shared.change_endpoints(next, |state, now, live| {
            if let Ok(endpoint) = live.find_endpoint(name) {
                state.machine.renew_endpoint(now, endpoint);
            }
            self.values.set(name, Arc::clone(&value))
        })?;
        self.forget_values();
        drop(before);
        Ok(())
    }

    /// Takes an endpoint out of the pool, as [`Balancer::remove_endpoint`]. Its value is dropped with the next change of
    /// endpoints after the last attempt that has it: this one, if there is none.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn remove(&self, name: &str) -> Result<(), Refused> {
        self.balancer.remove_endpoint(name)?;
        self.forget_values();
        Ok(())
    }

    /// Drops the values of endpoints that are gone and that no attempt has.
    fn forget_values(&self) {
        let gone = self.balancer.shared.with(|state, _| self.values.keep(state.machine.endpoints_in_use()));
        // Not under the lock.
        drop(gone);
    }

    /// As [`Balancer::run`]; the attempt knows the value of its endpoint.
    pub fn run<K: Into<Key>, F, Fut, R, E>(
        &self,
        rule: &str,
        key: K,
        f: F,
    ) -> Run<'_, impl FnMut(Attempt) -> Fut + use<T, K, F, Fut, R, E>, Fut, E, Told<Unclassified>>
    where
        F: FnMut(PooledAttempt<T>) -> Fut,
        Fut: Future<Output = Outcome<R, E>>,
    {
        self.balancer.request(rule, key).run(self.typed(f))
    }

    /// As [`Balancer::call`]; the attempt knows the value of its endpoint.
    pub fn call<K: Into<Key>, F, Fut, R, E>(
        &self,
        rule: &str,
        key: K,
        f: F,
    ) -> Run<'_, impl FnMut(Attempt) -> Fut + use<T, K, F, Fut, R, E>, Fut, E, Plain<Unclassified>>
    where
        F: FnMut(PooledAttempt<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        E: Classify,
    {
        self.balancer.request(rule, key).call(self.typed(f))
    }

    /// As [`Balancer::request`].
    pub fn request(&self, rule: &str, key: impl Into<Key>) -> PooledRequest<'_, T> {
        PooledRequest { request: self.balancer.request(rule, key), values: &self.values }
    }

    fn typed<F, Fut>(&self, f: F) -> impl FnMut(Attempt) -> Fut + use<T, F, Fut>
    where
        F: FnMut(PooledAttempt<T>) -> Fut,
    {
        typed(&self.values, f)
    }
}

fn typed<T, F, Fut>(values: &Arc<Values<T>>, mut f: F) -> impl FnMut(Attempt) -> Fut + use<T, F, Fut>
where
    F: FnMut(PooledAttempt<T>) -> Fut,
{
    let values = Arc::clone(values);
    move |attempt| f(values.with_value(attempt))
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { balancer: self.balancer.clone(), values: Arc::clone(&self.values) }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("balancer", &self.balancer).finish_non_exhaustive()
    }
}

/// An [`Attempt`] that knows the value of its endpoint.
pub struct PooledAttempt<T> {
    attempt: Attempt,
    endpoint: Endpoint<T>,
}

impl<T> PooledAttempt<T> {
    /// The endpoint that the attempt is to use.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint<T> {
        &self.endpoint
    }
}

impl<T> Deref for PooledAttempt<T> {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        &self.attempt
    }
}

impl<T> fmt::Debug for PooledAttempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledAttempt").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// A [`Request`] of a [`Pool`]: its closure gets the value of the endpoint.
#[must_use = "a request does nothing before it is run, called, submitted or acquired"]
pub struct PooledRequest<'a, T, C = Unclassified> {
    request: Request<'a, C>,
    values: &'a Arc<Values<T>>,
}

impl<'a, T> PooledRequest<'a, T> {
    /// As [`Request::classify`].
    pub fn classify<E, C: Fn(&E) -> Verdict>(self, classifier: C) -> PooledRequest<'a, T, By<C>> {
        PooledRequest { request: self.request.classify(classifier), values: self.values }
    }
}

impl<'a, T, C> PooledRequest<'a, T, C> {
    /// The request with what [`Request`] has beside this.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let pool = Balancer::builder(Rules::builder().build()?).pool([("a", 1), ("b", 2)])?;
    /// let twice = pool
    ///     .request("default", 42)
    ///     .with(|request| request.on("b").idempotent())
    ///     .run(async |attempt| Ok::<_, Failure<()>>(2 * attempt.endpoint().value()));
    /// assert_eq!(twice.await, Ok(4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with(self, change: impl FnOnce(Request<'a, C>) -> Request<'a, C>) -> Self {
        Self { request: change(self.request), values: self.values }
    }

    /// As [`Request::on`].
    pub fn on(self, endpoint: &str) -> Self {
        self.with(|request| request.on(endpoint))
    }

    /// As [`Request::among`].
    pub fn among<'n>(self, endpoints: impl IntoIterator<Item = &'n str>) -> Self {
        self.with(|request| request.among(endpoints))
    }

    /// As [`Request::cost`].
    pub fn cost(self, cost: u32) -> Self {
        self.with(|request| request.cost(cost))
    }

    /// As [`Request::cost_of`].
    pub fn cost_of(self, unit: &str, cost: u32) -> Self {
        self.with(|request| request.cost_of(unit, cost))
    }

    /// As [`Request::max_wait`].
    pub fn max_wait(self, span: Duration) -> Self {
        self.with(|request| request.max_wait(span))
    }

    /// As [`Request::retry`].
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|request| request.retry(retry))
    }

    /// As [`Request::run`]; the attempt knows the value of its endpoint.
    pub fn run<F, Fut, R, E>(
        self,
        f: F,
    ) -> Run<'a, impl FnMut(Attempt) -> Fut + use<T, C, F, Fut, R, E>, Fut, E, Told<C>>
    where
        F: FnMut(PooledAttempt<T>) -> Fut,
        Fut: Future<Output = Outcome<R, E>>,
        C: ClassifyUnsaid<E>,
    {
        let f = typed(self.values, f);
        self.request.run(f)
    }

    /// As [`Request::call`]; the attempt knows the value of its endpoint.
    pub fn call<F, Fut, R, E>(
        self,
        f: F,
    ) -> Run<'a, impl FnMut(Attempt) -> Fut + use<T, C, F, Fut, R, E>, Fut, E, Plain<C>>
    where
        F: FnMut(PooledAttempt<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        C: ClassifyPlain<E>,
    {
        let f = typed(self.values, f);
        self.request.call(f)
    }

    /// As [`Request::submit`]; the attempt knows the value of its endpoint.
    ///
    /// # Errors
    ///
    /// As [`Request::submit`].
    pub fn submit<F, Fut, R, E>(self, f: F) -> Result<Ticket<R, E>, Refused>
    where
        F: FnMut(PooledAttempt<T>) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<R, E>> + Send + 'static,
        C: ClassifyUnsaid<E> + Send + 'static,
        T: Send + Sync + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        let f = typed(self.values, f);
        self.request.submit(f)
    }

    /// As [`Request::acquire`]. The permit's [`endpoint`](Permit::endpoint) has a name, and [`Pool::value`] its value.
    pub fn acquire(self) -> Acquire {
        self.request.acquire()
    }

    /// As [`Request::try_acquire`].
    ///
    /// # Errors
    ///
    /// As [`Request::try_acquire`].
    pub fn try_acquire(self) -> Result<Permit, Refused> {
        self.request.try_acquire()
    }
}

impl<T, C> fmt::Debug for PooledRequest<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledRequest").field("request", &self.request).finish_non_exhaustive()
    }
}
