//! A layer for tower: every request of a service goes through a balancer.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::Route;
use crate::error::{Error, Failure, Refused};
use crate::headers::Observation;
use crate::runtime::Balancer;

/// Puts every request of a service under a balancer, as [the module](super) says.
///
/// The function says which rule and key a request is for. A request that is refused is sent again, so it and its body
/// must be `Clone`; the service is cloned for each request, and asked whether it is ready when the request starts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use request_balancer::middleware::{BalancerLayer, Route};
/// use request_balancer::{Balancer, Rules};
/// use tokio::time::Instant;
/// use tower::{Layer, Service, service_fn};
///
/// let balancer = Balancer::new("[rules]\nread = '1/1s'".parse::<Rules>()?);
/// let layer = BalancerLayer::new(balancer, |request: &Request<&str>| {
///     Route::new("read", request.uri().host().unwrap_or_default())
/// });
/// let server = service_fn(async |_: Request<&str>| Ok::<_, Infallible>(Response::new("answer")));
/// let mut service = layer.layer(server);
///
/// let began = Instant::now();
/// for second in 0..3 {
///     let request = Request::get("http://shop.example/goods").body("")?;
///     assert_eq!(*service.call(request).await?.body(), "answer");
///     assert_eq!(began.elapsed().as_secs(), second);
/// }
/// # Ok(())
/// # }
/// ```
///
/// For an API that says it in bodies, the service below reads them and tells:
///
/// ```
/// # #[cfg(feature = "json")]
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::convert::Infallible;
/// use std::future::ready;
/// use std::time::SystemTime;
/// use http::{Request, Response};
/// use request_balancer::headers::{self, Dialect};
/// use request_balancer::middleware::{BalancerLayer, Route};
/// use request_balancer::{Balancer, Rules};
/// use tokio::time::Instant;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// let began = Instant::now();
/// let server = service_fn(move |_: Request<&'static str>| {
///     let is_early = began.elapsed().as_secs() < 7;
///     let body = if is_early { r#"{"parameters":{"retry_after":7}}"# } else { "sent" };
///     ready(Ok::<_, Infallible>(Response::new(body)))
/// });
/// let telegram = Dialect::named("telegram").ok_or("it comes with the crate")?;
/// let reading = server.map_response(|mut response: Response<&'static str>| {
///     if response.body().starts_with('{') {
///         let body = Some(response.body().as_bytes());
///         let read = headers::read(429, response.headers(), body, SystemTime::now(), telegram);
///         response.extensions_mut().insert(read);
///     }
///     response
/// });
/// let balancer = Balancer::new("[rules]\nsend = '9/1s'".parse::<Rules>()?);
/// let mut service = BalancerLayer::new(balancer, |_: &Request<&'static str>| Route::new("send", 42)).layer(reading);
///
/// assert_eq!(*service.call(Request::new("hello")).await?.body(), "sent");
/// assert_eq!(began.elapsed().as_secs(), 7);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "json"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct BalancerLayer<F> {
    balancer: Balancer,
    route: Arc<F>,
}

impl<F> BalancerLayer<F> {
    /// Requests go where `route` says.
    pub fn new(balancer: Balancer, route: F) -> Self {
        Self { balancer, route: Arc::new(route) }
    }
}

impl<F> fmt::Debug for BalancerLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancerLayer").field("balancer", &self.balancer).finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for BalancerLayer<F> {
    type Service = BalancedService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        BalancedService { inner, balancer: self.balancer.clone(), route: Arc::clone(&self.route) }
    }
}

/// A service whose requests go through a balancer, from [`BalancerLayer`].
pub struct BalancedService<S, F> {
    inner: S,
    balancer: Balancer,
    route: Arc<F>,
}

impl<S: Clone, F> Clone for BalancedService<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), balancer: self.balancer.clone(), route: Arc::clone(&self.route) }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for BalancedService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, balancer, .. } = self;
        f.debug_struct("BalancedService").field("inner", inner).field("balancer", balancer).finish_non_exhaustive()
    }
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError<E> {
    /// The service failed.
    #[error("{0}")]
    Service(E),
    /// The balancer did not start the request, or not again.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The service panicked.
    #[error("the service panicked: {0}")]
    Panicked(String),
}

/// An attempt's end without success.
enum End<E, R> {
    Failed(E),
    Refused(R),
}

impl<S, F, B, R> Service<Request<B>> for BalancedService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    F: Fn(&Request<B>) -> Route,
    B: Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = ServiceError<S::Error>;
    type Future = ResponseFuture<Response<R>, S::Error>;

    /// Always ready: requests wait in the balancer's line.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let route = (self.route)(&request);
        let (balancer, inner) = (self.balancer.clone(), self.inner.clone());
        let future = async move {
            let answer = route.request(&balancer).run(move |attempt| {
                let (mut inner, request) = (inner.clone(), request.clone());
                async move {
                    let failed = |error| Failure::permanent(End::Failed(error));
                    poll_fn(|context| inner.poll_ready(context)).await.map_err(failed)?;
                    let response = inner.call(request).await.map_err(failed)?;
                    let checked = match response.extensions().get::<Observation>() {
                        Some(read) => attempt.check_observation(response.status().as_u16(), read),
                        None => attempt.check_response(&response),
                    };
                    match checked {
                        Ok(()) => Ok(response),
                        Err(refusal) => Err(refusal.because(End::Refused(response))),
                    }
                }
            });
            match answer.await {
                Ok(response)
                | Err(
                    Error::GaveUp { last: Some(End::Refused(response)), .. } | Error::Failed(End::Refused(response)),
                ) => Ok(response),
                Err(Error::Failed(End::Failed(error)) | Error::GaveUp { last: Some(End::Failed(error)), .. }) => {
                    Err(ServiceError::Service(error))
                }
                Err(Error::GaveUp { reason, last: None, .. }) => Err(reason.into()),
                Err(Error::Panicked(message)) => Err(ServiceError::Panicked(message)),
            }
        };
        ResponseFuture { inner: Box::pin(future) }
    }
}

/// The future of a [`BalancedService`].
///
/// # Cancel safety
///
/// Dropped, the request leaves the line, or its attempt ends; it keeps its rate slot if it was started.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<T, E> {
    inner: Pin<Box<dyn Future<Output = Result<T, ServiceError<E>>> + Send>>,
}

impl<T, E> Future for ResponseFuture<T, E> {
    type Output = Result<T, ServiceError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(context)
    }
}

impl<T, E> fmt::Debug for ResponseFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
