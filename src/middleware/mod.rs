//! Clients whose every request goes through a balancer: as a layer of tower (feature `tower`), as a middleware of reqwest
//! (feature `reqwest`).
//!
//! Both do the same: a function of the request names its rule and key; the request starts when its turn comes; what the
//! response says of the server's own counters is taken in, in the rule's dialect; a response that refuses it because of
//! too many puts it back in line. A request that can't be made again is sent once: then the layer of tower hands the
//! refusal over, and the middleware of reqwest fails with a [`BodyNotRepeatable`] if the policy would have sent it again
//! (retry budgets and other endpoints of a pool are not asked). Once the retry policy allows no more attempts, the response
//! to the last one is handed over as it is; if that has none, as it was cut off, the error says why, whatever earlier ones
//! were answered. A status below 400 is a success, which ends a row of answers "slow down" without a number; another one,
//! such as a 404 that is handed over, says nothing of it.
//!
//! Bodies of responses are not touched, so what only they say is not seen, unless somebody below has read one: a response
//! that carries an [`Observation`](crate::headers::Observation) among its
//! [extensions](http::Response::extensions) is what that says, and its head is not read. With reqwest the middleware
//! [reads bodies](BalancerMiddleware::read_bodies) itself if told so.

#[cfg(feature = "reqwest")]
mod peek;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "tower")]
mod tower;

use std::sync::Arc;

use crate::key::Key;

#[cfg(feature = "reqwest")]
pub use self::reqwest::{BalancerMiddleware, BodyNotRepeatable};
#[cfg(feature = "tower")]
pub use self::tower::{BalancedService, BalancerLayer, Cloned, CopyRequest, Once, ResponseFuture, ServiceError};

/// Whose turn a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Route {
    rule: Arc<str>,
    key: Key,
    cost: u32,
    units: Vec<(Arc<str>, u32)>,
    idempotent: bool,
}

impl Route {
    /// A request of this rule and key, which costs 1.
    pub fn new(rule: impl Into<Arc<str>>, key: impl Into<Key>) -> Self {
        Self { rule: rule.into(), key: key.into(), cost: 1, units: Vec::new(), idempotent: false }
    }

    /// What it costs in requests. Default: 1.
    pub const fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// What it costs in a unit that the rules declare, as [`Request::cost_of`](crate::Request::cost_of). Default: nothing.
    pub fn cost_of(mut self, unit: impl Into<Arc<str>>, cost: u32) -> Self {
        self.units.push((unit.into(), cost));
        self
    }

    /// Sending it twice does no harm: an attempt that ran for the rule's `attempt_timeout` is followed by another. Only
    /// the layer of tower goes by that time; with reqwest the client has its own. Default: it may do harm.
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Its place in line, to be asked for.
    fn request<'a>(&self, balancer: &'a crate::Balancer) -> crate::Request<'a> {
        let request = balancer.request(&self.rule, self.key.clone()).cost(self.cost);
        let request = self.units.iter().fold(request, |request, (unit, cost)| request.cost_of(unit, *cost));
        if self.idempotent { request.idempotent() } else { request }
    }
}

/// Whether a response shows that the server does what it is asked.
fn is_success(status: http::StatusCode) -> bool {
    status.as_u16() < 400
}
