//! A layer for tower: every request of a service goes through a balancer.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{Route, is_success};
use crate::error::{Error, Failure, Refused};
use crate::headers::Observation;
use crate::runtime::Balancer;

/// Puts every request of a service under a balancer, as [the module](super) says.
///
/// The function says which rule and key a request is for. A request that is refused is sent again, so it and its body
/// must be `Clone`, or somebody says [how to copy](Self::copied_by) it, or it is [sent once](Self::sent_once). The service
/// is cloned for each request, and asked whether it is ready when the request starts.
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
pub struct BalancerLayer<F, C = Cloned> {
    balancer: Balancer,
    route: Arc<F>,
    copy: Arc<C>,
}

impl<F> BalancerLayer<F> {
    /// Requests go where `route` says, and are cloned to be sent again.
    pub fn new(balancer: Balancer, route: F) -> Self {
        Self { balancer, route: Arc::new(route), copy: Arc::new(Cloned) }
    }
}

impl<F, C> BalancerLayer<F, C> {
    /// No request is sent a second time, for bodies that can't be copied, such as boxed ones and those of streams: a refusal
    /// holds whom it is about, and is handed over.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use http_body_util::combinators::UnsyncBoxBody;
    /// use http_body_util::{BodyExt, Empty};
    /// use request_balancer::middleware::{BalancerLayer, Route};
    /// use request_balancer::{Balancer, NextStart, Rules};
    /// use tower::{Layer, Service, service_fn};
    ///
    /// type Body = UnsyncBoxBody<&'static [u8], Infallible>;
    ///
    /// let balancer = Balancer::new("[rules]\nread = '9/1s'".parse::<Rules>()?);
    /// let layer = BalancerLayer::new(balancer.clone(), |_: &Request<Body>| Route::new("read", 1)).sent_once();
    /// let mut service = layer.layer(service_fn(async |_: Request<Body>| {
    ///     Response::builder().status(429).header("Retry-After", "7").body("later")
    /// }));
    ///
    /// let request = Request::new(Empty::new().boxed_unsync());
    /// assert_eq!(service.call(request).await?.status(), 429);
    /// assert_eq!(balancer.next_start("read", 1)?, NextStart::After(std::time::Duration::from_secs(7)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn sent_once(self) -> BalancerLayer<F, Once> {
        self.copied_by(Once)
    }

    /// `copy` makes of each request the one that is sent if it is refused; one of which it makes none is sent once, as by
    /// [`sent_once`](Self::sent_once). Of a copy it must make another one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response};
    /// use http_body_util::combinators::UnsyncBoxBody;
    /// use http_body_util::{BodyExt, Full};
    /// use hyper::body::Bytes;
    /// use request_balancer::middleware::{BalancerLayer, Route};
    /// use request_balancer::{Balancer, Rules};
    /// use std::convert::Infallible;
    /// use tokio::time::Instant;
    /// use tower::{Layer, Service, service_fn};
    ///
    /// type Body = UnsyncBoxBody<Bytes, Infallible>;
    ///
    /// /// What the body is made of, where it can be made again.
    /// #[derive(Clone)]
    /// struct MadeOf(Bytes);
    ///
    /// fn request(made_of: MadeOf) -> Request<Body> {
    ///     let mut request = Request::new(Full::new(made_of.0.clone()).boxed_unsync());
    ///     request.extensions_mut().insert(made_of);
    ///     request
    /// }
    ///
    /// let balancer = Balancer::new("[rules]\nwrite = '9/1s'".parse::<Rules>()?);
    /// let layer = BalancerLayer::new(balancer, |_: &Request<Body>| Route::new("write", 1))
    ///     .copied_by(|sent: &Request<Body>| sent.extensions().get::<MadeOf>().cloned().map(request));
    /// let began = Instant::now();
    /// let mut service = layer.layer(service_fn(move |request: Request<Body>| async move {
    ///     let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    ///     let status = if began.elapsed().as_secs() < 7 { 429 } else { 200 };
    ///     Response::builder().status(status).header("Retry-After", "7").body(body)
    /// }));
    ///
    /// let answer = service.call(request(MadeOf("goods".into()))).await?;
    /// assert_eq!((answer.status().as_u16(), &answer.body()[..]), (200, &b"goods"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn copied_by<D>(self, copy: D) -> BalancerLayer<F, D> {
        BalancerLayer { balancer: self.balancer, route: self.route, copy: Arc::new(copy) }
    }
}

/// How a request is made again: a closure `Fn(&Request<B>) -> Option<Request<B>>`, [`Cloned`] or [`Once`].
pub trait CopyRequest<B> {
    /// The request that is sent if this one is refused. `None`: this one is sent once.
    fn copy(&self, request: &Request<B>) -> Option<Request<B>>;
}

/// Requests are cloned with their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cloned;

/// Requests are sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once;

impl<B: Clone> CopyRequest<B> for Cloned {
    fn copy(&self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

impl<B> CopyRequest<B> for Once {
    fn copy(&self, _request: &Request<B>) -> Option<Request<B>> {
        None
    }
}

impl<B, F: Fn(&Request<B>) -> Option<Request<B>>> CopyRequest<B> for F {
    fn copy(&self, request: &Request<B>) -> Option<Request<B>> {
        self(request)
    }
}

impl<F, C> Clone for BalancerLayer<F, C> {
    fn clone(&self) -> Self {
        Self { balancer: self.balancer.clone(), route: Arc::clone(&self.route), copy: Arc::clone(&self.copy) }
    }
}

impl<F, C> fmt::Debug for BalancerLayer<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BalancerLayer").field("balancer", &self.balancer).finish_non_exhaustive()
    }
}

impl<S, F, C> Layer<S> for BalancerLayer<F, C> {
    type Service = BalancedService<S, F, C>;

    fn layer(&self, inner: S) -> Self::Service {
        BalancedService { inner, layer: self.clone() }
    }
}

/// A service whose requests go through a balancer, from [`BalancerLayer`].
pub struct BalancedService<S, F, C = Cloned> {
    inner: S,
    layer: BalancerLayer<F, C>,
}

impl<S: Clone, F, C> Clone for BalancedService<S, F, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S: fmt::Debug, F, C> fmt::Debug for BalancedService<S, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inner, balancer) = (&self.inner, &self.layer.balancer);
        f.debug_struct("BalancedService").field("inner", inner).field("balancer", balancer).finish_non_exhaustive()
    }
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError<E> {
    /// The service failed. What that was caused by is asked of it: tower's boxed errors are none to the standard library, so
    /// nothing can be asked of every `E`.
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
    /// There was nothing more to send.
    Uncopied,
    Failed(E),
    /// The service answered the attempt of this number that it did not do it.
    Answered(u32, R),
}

impl<S, F, C, B, R> Service<Request<B>> for BalancedService<S, F, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    F: Fn(&Request<B>) -> Route,
    C: CopyRequest<B> + Send + Sync + 'static,
    B: Send + 'static,
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
        let route = (self.layer.route)(&request);
        let (balancer, copy, inner) = (self.layer.balancer.clone(), Arc::clone(&self.layer.copy), self.inner.clone());
        let future = async move {
            let mut again = copy.copy(&request);
            let asked = route.request(&balancer);
            let asked = if again.is_some() { asked } else { asked.no_retry() };
            let mut first = Some(request);
            let answer = asked.run(move |attempt| {
                let mut inner = inner.clone();
                let request = first.take().or_else(|| {
                    let request = again.take()?;
                    again = copy.copy(&request);
                    Some(request)
                });
                async move {
                    let Some(request) = request else { return Err(Failure::permanent(End::Uncopied)) };
                    let failed = |error| Failure::permanent(End::Failed(error));
                    poll_fn(|context| inner.poll_ready(context)).await.map_err(failed)?;
                    let response = inner.call(request).await.map_err(failed)?;
                    let checked = match response.extensions().get::<Observation>() {
                        Some(read) => attempt.check_observation(response.status().as_u16(), read),
                        None => attempt.check_response(&response),
                    };
                    match checked {
                        Err(refusal) => Err(refusal.because(End::Answered(attempt.number(), response))),
                        Ok(()) if is_success(response.status()) => Ok(response),
                        Ok(()) => Err(Failure::permanent(End::Answered(attempt.number(), response))),
                    }
                }
            });
            match answer.await {
                Ok(response) | Err(Error::Failed(End::Answered(_, response))) => Ok(response),
                // An earlier answer says nothing of a later attempt that has none.
                Err(Error::GaveUp { attempts, last: Some(End::Answered(number, response)), .. })
                    if number == attempts =>
                {
                    Ok(response)
                }
                Err(Error::Failed(End::Uncopied) | Error::GaveUp { last: Some(End::Uncopied), .. }) => {
                    Err(Refused::RetryNotAllowed.into())
                }
                Err(Error::Failed(End::Failed(error)) | Error::GaveUp { last: Some(End::Failed(error)), .. }) => {
                    Err(ServiceError::Service(error))
                }
                Err(Error::GaveUp { reason, last: None | Some(End::Answered(..)), .. }) => Err(reason.into()),
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
