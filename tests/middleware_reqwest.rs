//! A client of reqwest under a balancer. The clock is paused: while bytes are on their way, no timer is due.

#![cfg(feature = "reqwest")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use request_balancer::middleware::{BalancerMiddleware, BodyNotRepeatable, Route};
use request_balancer::{Balancer, NextStart, Rules};
use reqwest_middleware::ClientWithMiddleware;
use tokio::net::TcpListener;
use tokio::time::Instant;

type Seen = Arc<Mutex<Vec<(u64, String)>>>;

/// Status, fields and body of answers; the last line goes for all further requests.
type Script = &'static [(u16, &'static [(&'static str, &'static str)], &'static str)];

/// Answers by a script. Notes when each request arrived, in seconds, and its body.
async fn serve(script: Script) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (seen, begin) = (Seen::default(), Instant::now());
    let server = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = Arc::clone(&server);
            tokio::spawn(async move {
                let answer = service_fn(async |request: Request<Incoming>| {
                    let body = request.into_body().collect().await.expect("a body").to_bytes();
                    let mut seen = seen.lock().expect("no panic");
                    let (status, fields, told) = script[seen.len().min(script.len() - 1)];
                    seen.push((begin.elapsed().as_secs(), String::from_utf8_lossy(&body).into_owned()));
                    let mut response = Response::builder().status(status);
                    for (name, value) in fields {
                        response = response.header(*name, *value);
                    }
                    Ok::<_, Infallible>(response.body(Full::new(Bytes::from_static(told.as_bytes()))).expect("valid"))
                });
                let _gone = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (address, seen)
}

fn client(balancer: &Balancer) -> ClientWithMiddleware {
    let route = |request: &reqwest::Request| Route::new("call", request.url().host_str().unwrap_or_default());
    let middleware = BalancerMiddleware::new(balancer.clone(), route);
    reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(middleware).build()
}

#[cfg(feature = "json")]
fn client_that_reads(balancer: &Balancer, longest: usize) -> ClientWithMiddleware {
    let middleware = BalancerMiddleware::new(balancer.clone(), |_: &reqwest::Request| Route::new("call", 1));
    let middleware = middleware.read_bodies(longest);
    reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(middleware).build()
}

fn balancer(rules: &str) -> Balancer {
    Balancer::new(rules.parse::<Rules>().expect("rules"))
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_refused_request_is_sent_again_with_its_body() {
    let (address, seen) = serve(&[(429, &[("Retry-After", "7")], ""), (200, &[], "")]).await;
    let balancer = balancer("[rules]\ncall = '9/1s'");
    let response = client(&balancer).post(format!("http://{address}/")).body("goods").send().await.expect("answered");
    assert_eq!(response.status(), 200);
    assert_eq!(*seen.lock().expect("no panic"), [(0, "goods".to_owned()), (7, "goods".to_owned())]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_is_left_is_obeyed() {
    let (address, seen) =
        serve(&[(200, &[("RateLimit-Remaining", "0"), ("RateLimit-Reset", "30")], ""), (200, &[], "")]).await;
    let balancer = balancer("[rules]\ncall = '9/1s'");
    let client = client(&balancer);
    for _ in 0..2 {
        assert!(client.get(format!("http://{address}/")).send().await.is_ok());
    }
    assert_eq!(seen.lock().expect("no panic").iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 30]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_body_that_can_not_be_made_again_is_sent_once_and_the_refusal_holds_all_the_same() {
    let (address, seen) = serve(&[(429, &[("Retry-After", "7")], ""), (200, &[], "")]).await;
    let balancer = balancer("[rules]\ncall = '9/1s'");
    let body = reqwest::Body::wrap(Full::new(Bytes::from("once")));
    let sent = client(&balancer).post(format!("http://{address}/")).body(body).send().await;
    let Err(reqwest_middleware::Error::Middleware(error)) = sent else { panic!("{sent:?}") };
    let refusal = error.downcast::<BodyNotRepeatable>().expect("it says so");
    assert_eq!(refusal.to_string(), "refused with status 429, and the body can't be made again: send bytes or text");
    assert_eq!(refusal.response.headers()["Retry-After"], "7");
    assert_eq!(*seen.lock().expect("no panic"), [(0, "once".to_owned())]);
    let NextStart::After(wait) = balancer.next_start("call", "127.0.0.1").expect("a rule") else { panic!("no hold") };
    assert_eq!(wait.as_secs_f64().ceil(), 7.0);
    let snapshot = balancer.snapshot();
    assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
}

/// A refusal after which nothing is sent again has nothing to do with the body: it is handed over, as with bytes.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_refusal_that_the_policy_leaves_at_that_is_handed_over_whatever_the_body() {
    for rules in ["{ retry = { attempts = 1, waits = 0 } }", "{ retry = { ceiling = '5s' } }"] {
        for is_stream in [false, true] {
            let (address, seen) = serve(&[(429, &[("Retry-After", "7")], "")]).await;
            let balancer = balancer(&format!("[rules]\ncall = {rules}"));
            let bytes = Bytes::from("once");
            let body = if is_stream { reqwest::Body::wrap(Full::new(bytes)) } else { bytes.into() };
            let sent = client(&balancer).post(format!("http://{address}/")).body(body).send().await;
            assert_eq!(sent.expect("answered").status(), 429, "{rules}");
            assert_eq!(seen.lock().expect("no panic").len(), 1, "{rules}");
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_the_balancer_refuses_is_an_error_of_the_middleware() {
    let (address, seen) = serve(&[(200, &[], "")]).await;
    let balancer = balancer("[rules]\nother = '9/1s'");
    let refused = client(&balancer).get(format!("http://{address}/")).send().await.expect_err("no such rule");
    assert!(refused.to_string().contains("call"), "{refused}");
    assert!(seen.lock().expect("no panic").is_empty());
}

#[cfg(feature = "json")]
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_only_a_body_says_is_obeyed_if_bodies_are_read() {
    const REFUSAL: &str = r#"{"ok":false,"error_code":429,"parameters":{"retry_after":7}}"#;
    let (address, seen) = serve(&[(429, &[], REFUSAL), (200, &[], "sent")]).await;
    let balancer = balancer("[rules.call]\nper_key = '9/1s'\nobserve = { dialect = 'telegram' }");
    let response = client_that_reads(&balancer, 1_024).get(format!("http://{address}/")).send().await.expect("sent");
    assert_eq!(response.text().await.expect("whole"), "sent");
    assert_eq!(seen.lock().expect("no panic").iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 7]);
}

#[cfg(feature = "json")]
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_body_that_was_read_is_handed_over_whole() {
    const REFUSAL: &str = r#"{"error":{"error_code":6,"error_msg":"Too many requests per second"}}"#;
    const SCRIPT: Script = &[(200, &[("x-request-id", "17")], REFUSAL)];
    for (longest, attempts) in [(REFUSAL.len(), 2), (REFUSAL.len() - 1, 1), (0, 1)] {
        let (address, seen) = serve(SCRIPT).await;
        let rules = "[rules.call]\nretry = { attempts = 2 }\nper_key = '9/1s'\nobserve = { dialect = 'vk' }";
        let url = format!("http://{address}/method");
        let response = client_that_reads(&balancer(rules), longest).get(&url).send().await.expect("answered");
        assert_eq!((response.status().as_u16(), response.url().as_str()), (200, &*url));
        assert_eq!(response.headers()["x-request-id"], "17");
        assert_eq!(response.content_length(), Some(REFUSAL.len() as u64));
        assert_eq!(response.text().await.expect("whole"), REFUSAL);
        assert_eq!(seen.lock().expect("no panic").len(), attempts, "{longest}");
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn only_a_success_ends_a_row_of_slow_downs() {
    for (status, second) in [(200, 5), (404, 10), (500, 10)] {
        let scripts: [Script; 3] = [
            &[(429, &[], ""), (200, &[], ""), (429, &[], ""), (200, &[], "")],
            &[(429, &[], ""), (404, &[], ""), (429, &[], ""), (200, &[], "")],
            &[(429, &[], ""), (500, &[], ""), (429, &[], ""), (200, &[], "")],
        ];
        let script = scripts.into_iter().find(|script| script[1].0 == status).expect("one of them");
        let (address, seen) = serve(script).await;
        let balancer = balancer("[rules]\ncall = { per_key = '9/1s', retry = { jitter = 0 } }");
        let client = client(&balancer);
        for expected in [status, 200] {
            assert_eq!(client.get(format!("http://{address}/")).send().await.expect("answered").status(), expected);
        }
        let seen: Vec<u64> = seen.lock().expect("no panic").iter().map(|(at, _)| *at).collect();
        assert_eq!(seen, [0, 5, 5, 5 + second], "{status}");
    }
}
