//! A service of tower under a balancer, on the paused clock.

#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use request_balancer::headers::{self, Dialect};
use request_balancer::middleware::{BalancerLayer, Route, ServiceError};
use request_balancer::{Balancer, Refused, Rules};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

type Script = &'static [(u16, &'static [(&'static str, &'static str)])];
type Starts = Arc<Mutex<Vec<u64>>>;

/// A service that notes its calls in milliseconds and answers by a script, whose last line goes for all further calls.
fn service(
    starts: &Starts,
    script: Script,
) -> impl Service<Request<&'static str>, Response = Response<&'static str>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let (starts, begin) = (Arc::clone(starts), Instant::now());
    service_fn(move |request: Request<&'static str>| {
        let mut starts = starts.lock().expect("no panic");
        let (status, fields) = script[starts.len().min(script.len() - 1)];
        starts.push(u64::try_from(begin.elapsed().as_millis()).expect("short"));
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        std::future::ready(Ok(response.body(request.into_body()).expect("valid")))
    })
}

fn layer(balancer: &Balancer) -> BalancerLayer<impl Fn(&Request<&'static str>) -> Route> {
    BalancerLayer::new(balancer.clone(), |request: &Request<&'static str>| {
        Route::new(request.method().as_str(), request.uri().host().unwrap_or_default()).cost(1)
    })
}

fn get() -> Request<&'static str> {
    Request::get("http://shop.example/goods").body("body").expect("valid")
}

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("rules"))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn requests_wait_for_their_turn_and_answers_narrow_it() {
    let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = '2/1s'"));
    const SCRIPT: Script = &[(200, &[("RateLimit-Remaining", "1"), ("RateLimit-Reset", "9")]), (200, &[])];
    let mut service = layer(&balancer).layer(service(&starts, SCRIPT));
    for _ in 0..3 {
        assert_eq!(*service.call(get()).await.expect("answered").body(), "body");
    }
    assert_eq!(*starts.lock().expect("no panic"), [0, 0, 9_000]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_refused_request_is_sent_again_when_the_server_says() {
    let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = '9/1s'"));
    const SCRIPT: Script = &[(429, &[("Retry-After", "7")]), (200, &[])];
    let mut service = layer(&balancer).layer(service(&starts, SCRIPT));
    assert_eq!(service.call(get()).await.expect("answered").status(), 200);
    assert_eq!(*starts.lock().expect("no panic"), [0, 7_000]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_last_refusal_is_handed_over() {
    let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = { retry = { waits = 1 } }"));
    const SCRIPT: Script = &[(429, &[("Retry-After", "2")])];
    let mut service = layer(&balancer).layer(service(&starts, SCRIPT));
    assert_eq!(service.call(get()).await.expect("answered").status(), 429);
    assert_eq!(*starts.lock().expect("no panic"), [0, 2_000]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_the_balancer_refuses_and_what_the_service_fails_with_are_told_apart() {
    let balancer = balancer("[rules]\nGET = '1/1h'\n[rules.POST]\nmax_wait = '1s'\nper_key = '1/1h'");
    let failing = service_fn(|_: Request<&'static str>| std::future::ready(Err::<Response<()>, _>("broken")));
    let mut failing = layer(&balancer).layer(failing);
    assert_eq!(failing.call(get()).await.expect_err("fails"), ServiceError::Service("broken"));
    let starts = Starts::default();
    let mut service = layer(&balancer).layer(service(&starts, &[(200, &[])]));
    let post = || Request::post("http://shop.example/").body("").expect("valid");
    assert!(service.call(post()).await.is_ok());
    let refused = service.call(post()).await.expect_err("refused");
    assert!(matches!(refused, ServiceError::Refused(Refused::MaxWait { .. })), "{refused:?}");
    let unknown = Request::put("http://shop.example/").body("").expect("valid");
    let unknown = service.call(unknown).await.expect_err("refused");
    assert!(matches!(unknown, ServiceError::Refused(Refused::UnknownRule { .. })), "{unknown:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_the_service_has_read_counts_instead_of_the_head() {
    let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = '9/1s'"));
    // The head alone would say: not yet.
    const SCRIPT: Script = &[(429, &[("Retry-After", "7")]), (200, &[])];
    let reads = service(&starts, SCRIPT).map_response(|mut response| {
        let fields = [("RateLimit-Remaining", "0"), ("RateLimit-Reset", "3")];
        let said = headers::read(200, fields, None, SystemTime::UNIX_EPOCH, Dialect::auto());
        response.extensions_mut().insert(said);
        response
    });
    let mut service = layer(&balancer).layer(reads);
    assert_eq!(service.call(get()).await.expect("answered").status(), 429);
    assert_eq!(service.call(get()).await.expect("answered").status(), 200);
    assert_eq!(*starts.lock().expect("no panic"), [0, 3_000]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_route_tells_what_a_request_costs() {
    let balancer = balancer("units = ['tokens']\n[rules]\nchat = ['4/1s', '100/1s tokens']");
    let starts = Starts::default();
    let layer = BalancerLayer::new(balancer, |_: &Request<&'static str>| {
        Route::new("chat", 1).cost(2).cost_of("tokens", 60).idempotent()
    });
    let mut service = layer.layer(service(&starts, &[(200, &[])]));
    for _ in 0..3 {
        service.call(get()).await.expect("answered");
    }
    assert_eq!(*starts.lock().expect("no panic"), [0, 1_000, 2_000]);
    let unknown =
        BalancerLayer::new(self::balancer("default_rule = 'a'\n[rules]\na = '1/1s'"), |_: &Request<&'static str>| {
            Route::new("a", 1).cost_of("tokens", 1)
        });
    let refused = unknown.layer(self::service(&starts, &[(200, &[])])).call(get()).await.expect_err("no such unit");
    assert!(matches!(refused, ServiceError::Refused(Refused::UnknownUnit { .. })), "{refused:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_dropped_future_leaves_the_line() {
    let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = '1/1s'"));
    let mut service = layer(&balancer).layer(service(&starts, &[(200, &[])]));
    assert!(service.call(get()).await.is_ok());
    let waits = tokio::time::timeout(Duration::from_millis(500), service.call(get())).await;
    assert!(waits.is_err());
    assert_eq!(balancer.snapshot().waiting, 0);
    assert_eq!(starts.lock().expect("no panic").len(), 1);
}
