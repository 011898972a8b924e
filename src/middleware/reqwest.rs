//! A middleware for reqwest: every request of a client goes through a balancer.

use std::fmt;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::{Route, is_success, peek};
use crate::error::Failure;
use crate::headers::Observation;
use crate::runtime::{Balancer, Permit};

/// Puts every request of a client under a balancer, as [the module](super) says.
///
/// The function says which rule and key a request is for. A request that is refused is sent again if its body can be
/// made again (bytes and text can, streams can't); else the refusal holds whom it is about, and if the rule's policy would
/// have sent it again, it is in the error that says so.
/// No `attempt_timeout` goes for it: the client has its own.
///
/// ```
/// use request_balancer::middleware::{BalancerMiddleware, Route};
/// use request_balancer::{Balancer, Rules};
///
/// let balancer = Balancer::new("[rules]\nread = '60/60s'\nwrite = '10/60s'".parse::<Rules>()?);
/// let middleware = BalancerMiddleware::new(balancer, |request: &reqwest::Request| {
///     let rule = if request.method().is_safe() { "read" } else { "write" };
///     Route::new(rule, request.url().host_str().unwrap_or_default())
/// });
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(middleware).build();
/// # let _ = client;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of the client, and as the middleware's own a [`Refused`](crate::Refused) or a [`BodyNotRepeatable`].
///
/// # Cancel safety
///
/// As with tower: dropped, the future of a request leaves the line, or its attempt ends; it keeps its rate slot if it was
/// started.
pub struct BalancerMiddleware<F> {
    balancer: Balancer,
    route: F,
    longest_body: Option<usize>,
}

impl<F> BalancerMiddleware<F> {
    /// Requests go where `route` says.
    pub const fn new(balancer: Balancer, route: F) -> Self {
        Self { balancer, route, longest_body: None }
    }

    /// Reads the bodies of those responses in which the rule's dialect [looks into
    /// them](crate::headers::Dialect::reads_body), for APIs that say there that they refuse, or why. Default: none.
    ///
    /// Up to `longest` bytes of a body are read and kept before the response is handed over, and with it the whole body
    /// all the same; of a longer one nothing is understood. An error on the way comes up where the caller reads it.
    pub const fn read_bodies(mut self, longest: usize) -> Self {
        self.longest_body = Some(longest);
        self
    }

    async fn check(&self, permit: &Permit, response: Response) -> (Response, std::result::Result<(), Failure<()>>) {
        let status = response.status().as_u16();
        if let Some(observation) = response.extensions().get::<Observation>() {
            let checked = permit.check_observation(status, observation);
            return (response, checked);
        }
        let (response, body) = match self.longest_body.filter(|_| permit.reads_body(status)) {
            Some(longest) => peek::read(response, longest).await,
            None => (response, None),
        };
        let checked = permit.check(status, response.headers(), body.as_deref());
        (response, checked)
    }
}

impl<F> fmt::Debug for BalancerMiddleware<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancerMiddleware").field("balancer", &self.balancer).finish_non_exhaustive()
    }
}

/// The server refused a request that would have been sent again, but its body can't be made again: whom the refusal is
/// about is held.
///
/// ```
/// use request_balancer::middleware::BodyNotRepeatable;
///
/// fn refusal(error: reqwest_middleware::Error) -> Option<reqwest::Response> {
///     let reqwest_middleware::Error::Middleware(error) = error else { return None };
///     error.downcast::<BodyNotRepeatable>().ok().map(|error| error.response)
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("refused with status {}, and the body can't be made again: send bytes or text", .response.status().as_u16())]
#[non_exhaustive]
pub struct BodyNotRepeatable {
    /// What the server answered.
    pub response: Response,
}

#[async_trait]
impl<F: Fn(&Request) -> Route + Send + Sync + 'static> Middleware for BalancerMiddleware<F> {
    async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let mut copy = request.try_clone();
        let asked = (self.route)(&request).request(&self.balancer);
        let asked = if copy.is_some() { asked } else { asked.no_retry() };
        let mut permit = asked.acquire().await.map_err(Error::middleware)?;
        loop {
            let response = next.clone().run(request, extensions).await?;
            let (response, checked) = self.check(&permit, response).await;
            let Err(refusal) = checked else {
                if is_success(response.status()) {
                    permit.succeed();
                }
                return Ok(response);
            };
            let is_for_the_body = copy.is_none() && permit.would_be_followed(&refusal);
            let again = permit.fail(refusal).await;
            if is_for_the_body {
                return Err(Error::middleware(BodyNotRepeatable { response }));
            }
            let Some(repeated) = copy else { return Ok(response) };
            let Ok(started) = again else { return Ok(response) };
            copy = repeated.try_clone();
            (permit, request) = (started, repeated);
        }
    }
}
