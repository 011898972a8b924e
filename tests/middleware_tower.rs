//! A service of tower under a balancer, on the paused clock.

#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use request_balancer::headers::{self, Dialect};
use request_balancer::middleware::{BalancerLayer, Route, ServiceError};
use request_balancer::{Balancer, NextStart, Refused, Rules};
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

/// A refused payment was sent again, and that attempt hung: whether it was done is not known, so the refusal of the first one,
/// which says that it was not, must not be handed over.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn an_earlier_refusal_is_not_handed_over_for_an_attempt_without_an_answer() {
    let hangs = |count: Arc<Mutex<u32>>| {
        service_fn(move |_: Request<&'static str>| {
            let mut count = count.lock().expect("no panic");
            *count += 1;
            let is_first = *count == 1;
            async move {
                if !is_first {
                    std::future::pending::<()>().await;
                }
                let refusal = Response::builder().status(429).header("Retry-After", "1");
                Ok::<_, Infallible>(refusal.body("").expect("valid"))
            }
        })
    };
    let timed_out = balancer("[rules]\nGET = { attempt_timeout = '1s' }");
    let count = Arc::default();
    let answer = layer(&timed_out).layer(hangs(Arc::clone(&count))).call(get()).await;
    assert_eq!(answer.expect_err("nobody knows"), ServiceError::Refused(Refused::TimedOut));
    assert_eq!(*count.lock().expect("no panic"), 2);

    for (after, status) in [(500, Some(429)), (1_500, None)] {
        let aborted = balancer("[rules]\nGET = {}");
        let answer = layer(&aborted).layer(hangs(Arc::default())).call(get());
        let abort = async {
            tokio::time::sleep(Duration::from_millis(after)).await;
            aborted.abort();
        };
        match (tokio::join!(answer, abort).0, status) {
            // It stood in line again: the refusal is the last that happened.
            (Ok(answer), Some(status)) => assert_eq!(answer.status(), status),
            (answer, None) => assert_eq!(answer.expect_err("nobody knows"), ServiceError::Refused(Refused::Aborted)),
            (answer, Some(_)) => panic!("{answer:?}"),
        }
    }
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

type Boxed = UnsyncBoxBody<Bytes, Infallible>;

/// A request whose body nobody can copy.
fn boxed() -> Request<Boxed> {
    Request::get("http://shop.example/goods").body(Full::from("goods").boxed_unsync()).expect("valid")
}

/// A service of such requests that notes their bodies, and refuses the first.
fn unrepeatable(
    seen: &Arc<Mutex<Vec<Bytes>>>,
) -> impl Service<Request<Boxed>, Response = Response<()>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    let seen = Arc::clone(seen);
    service_fn(move |request: Request<Boxed>| {
        let seen = Arc::clone(&seen);
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            let mut seen = seen.lock().expect("no panic");
            seen.push(body);
            let response = Response::builder().status(if seen.len() == 1 { 429 } else { 200 });
            Ok(response.header("Retry-After", "7").body(()).expect("valid"))
        }
    })
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_body_that_nobody_can_copy_is_sent_once_and_the_refusal_holds_all_the_same() {
    let (seen, balancer) = (Arc::default(), balancer("[rules]\nGET = '9/1s'"));
    let layer = BalancerLayer::new(balancer.clone(), |_: &Request<Boxed>| Route::new("GET", 1)).sent_once();
    let mut service = layer.layer(unrepeatable(&seen));
    let began = Instant::now();
    assert_eq!(service.call(boxed()).await.expect("answered").status(), 429);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(balancer.next_start("GET", 1).expect("a rule"), NextStart::After(Duration::from_secs(7)));
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
    assert_eq!(service.call(boxed()).await.expect("answered").status(), 200);
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_body_that_somebody_can_make_again_is_sent_again() {
    let (seen, balancer) = (Arc::default(), balancer("[rules]\nGET = '9/1s'"));
    let layer = BalancerLayer::new(balancer, |_: &Request<Boxed>| Route::new("GET", 1));
    let mut service = layer.copied_by(|_: &Request<Boxed>| Some(boxed())).layer(unrepeatable(&seen));
    let began = Instant::now();
    assert_eq!(service.call(boxed()).await.expect("answered").status(), 200);
    assert_eq!(began.elapsed(), Duration::from_secs(7));
    assert_eq!(*seen.lock().expect("no panic"), ["goods", "goods"]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn only_a_success_ends_a_row_of_slow_downs() {
    const SCRIPTS: [Script; 2] =
        [&[(429, &[]), (204, &[]), (429, &[]), (200, &[])], &[(429, &[]), (500, &[]), (429, &[]), (200, &[])]];
    for (script, second) in SCRIPTS.into_iter().zip([5, 10]) {
        let (starts, balancer) = (Starts::default(), balancer("[rules]\nGET = { retry = { jitter = 0 } }"));
        let mut service = layer(&balancer).layer(service(&starts, script));
        for expected in [script[1].0, 200] {
            assert_eq!(service.call(get()).await.expect("answered").status(), expected);
        }
        assert_eq!(*starts.lock().expect("no panic"), [0, 5_000, 5_000, 5_000 + 1_000 * second]);
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn over_services_with_boxed_errors_the_error_is_still_one() {
    let failing = |_: Request<&'static str>| std::future::ready(Err::<Response<()>, tower::BoxError>("broken".into()));
    let balancer = balancer("[rules]\nGET = '9/1s'");
    let error = layer(&balancer).layer(service_fn(failing)).call(get()).await.expect_err("fails");
    assert_eq!(tower::BoxError::from(error).to_string(), "broken");
}
