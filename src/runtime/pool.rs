//! Pools: endpoints that come, go and rest.

use std::task::Waker;
use std::time::Duration;

use super::balancer::Balancer;
use super::builder::Builder;
use super::live::Live;
use super::shared::{Shared, State};
use crate::engine::{EndpointId, Instant, Scheduler};
use crate::error::Refused;
use crate::rules::{EndpointRules, Finding, FindingCode, Findings, Rules};

impl Builder {
    /// The endpoints of the pool, in place of those that the rules list. What else their `[pool]` says goes for these, too.
    ///
    /// ```
    /// use request_balancer::{Balancer, EndpointRules, Rules};
    ///
    /// let rules: Rules = "[pool]\nconcurrency = 1".parse()?;
    /// let tokens = ["bot-a", "bot-b"].map(|name| (name, EndpointRules::new()));
    /// let balancer = Balancer::builder(rules).endpoints(tokens)?.build();
    /// assert_eq!(balancer.snapshot().endpoints.len(), 2);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same endpoints would be refused for in a rules file.
    pub fn endpoints<N: Into<String>>(
        self,
        endpoints: impl IntoIterator<Item = (N, EndpointRules)>,
    ) -> Result<Self, Findings> {
        let rules = self.rules.with_endpoints(endpoints)?;
        Ok(Self { rules, coded: true, ..self })
    }
}

impl Balancer {
    /// Adds an endpoint to the pool, or gives one other numbers. It is used at once; requests and starts that are known
    /// stay as they are. Takes a look at every request and key under the lock.
    ///
    /// ```
    /// use request_balancer::{Balancer, EndpointRules, Rules};
    ///
    /// let balancer = Balancer::new("[pool]\nendpoints = ['bot-a']\nconcurrency = 1".parse::<Rules>()?);
    /// let _first = balancer.request("default", 1).try_acquire()?;
    /// assert!(balancer.request("default", 2).try_acquire().is_err());
    /// balancer.add_endpoint("bot-b", EndpointRules::new())?;
    /// let second = balancer.request("default", 2).try_acquire()?;
    /// assert_eq!(second.endpoint().expect("there is a pool").name(), "bot-b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Findings`] that say what the same endpoint would be refused for in a rules file; and where endpoints have values,
    /// that it needs one: [`Pool::add`](crate::Pool::add).
    pub fn add_endpoint(&self, name: &str, endpoint: EndpointRules) -> Result<(), Findings> {
        let is_typed = self.shared.is_typed();
        let next = |live: &Live| {
            if is_typed && !live.rules.endpoints().any(|known| known == name) {
                let found = format!("the endpoint `{name}` without a value");
                return Err(Finding::new(FindingCode::Empty, found, "`Pool::add`, which takes one").into());
            }
            live.rules.with_endpoint(name, endpoint)
        };
        self.shared.change_endpoints(next, |_, _, _| ())
    }

    /// Takes an endpoint out of the pool. What runs on it may finish; whoever waits for it alone is refused with
    /// [`Refused::NoEndpoint`].
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn remove_endpoint(&self, name: &str) -> Result<(), Refused> {
        self.shared.live.load().find_endpoint(name)?;
        // Nothing can be wrong with what is left.
        let _ = self.shared.change_endpoints(|live| Ok(live.rules.without_endpoint(name)), |_, _, _| ());
        Ok(())
    }

    /// Starts nothing on an endpoint until it is [enabled](Self::enable_endpoint) or the rules are replaced. What runs on it
    /// goes on; if none is left, what waits is refused with [`Refused::NoEndpoint`].
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn disable_endpoint(&self, name: &str) -> Result<(), Refused> {
        self.on_endpoint(name, |machine, now, endpoint| {
            machine.disable_endpoint(now, endpoint);
        })
    }

    /// Uses an endpoint again.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn enable_endpoint(&self, name: &str) -> Result<(), Refused> {
        self.on_endpoint(name, |machine, now, endpoint| {
            machine.enable_endpoint(now, endpoint);
        })
    }

    /// Opens the breaker of an endpoint: nothing starts on it for `rest`, then a few attempts probe it.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn open_breaker(&self, name: &str, rest: Duration) -> Result<(), Refused> {
        self.on_endpoint(name, |machine, now, endpoint| {
            machine.open_breaker(now, endpoint, rest.into());
        })
    }

    /// Closes the breaker of an endpoint, whatever its attempts brought.
    ///
    /// # Errors
    ///
    /// [`Refused::UnknownEndpoint`] with the nearest name.
    pub fn close_breaker(&self, name: &str) -> Result<(), Refused> {
        self.on_endpoint(name, |machine, now, endpoint| {
            machine.close_breaker(now, endpoint);
        })
    }

    fn on_endpoint(
        &self,
        name: &str,
        act: impl FnOnce(&mut Scheduler<Waker>, Instant, EndpointId),
    ) -> Result<(), Refused> {
        self.shared.with(|state, now| {
            // Under the lock: its place may be another's the next time.
            let endpoint = self.shared.live.load().find_endpoint(name)?;
            act(&mut state.machine, now, endpoint);
            Ok(())
        })
    }
}

impl Shared {
    /// Goes over to other endpoints, those of code from now on. What comes of it is under the same lock.
    pub(super) fn change_endpoints<R>(
        &self,
        change: impl FnOnce(&Live) -> Result<Rules, Findings>,
        then: impl FnOnce(&mut State, Instant, &Live) -> R,
    ) -> Result<R, Findings> {
        self.go_over(change, |state, now, live| {
            self.note_coded();
            then(state, now, live)
        })
    }
}
