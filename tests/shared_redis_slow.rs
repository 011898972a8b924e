//! Redis servers that take their time until a connection is of use, and the calls that are given up meanwhile.
#![cfg(feature = "redis")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod fleet;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleet::redis_server::RedisServer;
use fleet::{MILLI, until};
use request_balancer::shared::{Ask, Redis, Store};
use request_balancer::{Balancer, Failure, Rules};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// How many calls are given up before the server does what it takes its time for: much sooner than a connection is.
const GIVEN_UP: usize = 5;

/// What a server takes its time for.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Until it takes connections.
    ToAccept,
    /// Until it says anything on each of them.
    ToAnswer,
    /// The first connection it takes never says a word.
    AtFirst,
}

/// A way to the server that is slow.
struct Way {
    url: String,
    accepted: Arc<AtomicUsize>,
    given_up: Arc<AtomicUsize>,
}

impl Way {
    async fn to(server: &RedisServer, slow: Slow) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (accepted, given_up) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (way, port) = (Self { url, accepted: Arc::clone(&accepted), given_up: Arc::clone(&given_up) }, server.port);
        tokio::spawn(async move {
            if matches!(slow, Slow::ToAccept) {
                enough(&given_up).await;
            }
            while let Ok((mut near, _)) = listener.accept().await {
                let number = accepted.fetch_add(1, Ordering::Relaxed);
                let given_up = Arc::clone(&given_up);
                tokio::spawn(async move {
                    match slow {
                        Slow::AtFirst if number == 0 => pending().await,
                        Slow::ToAnswer => enough(&given_up).await,
                        Slow::ToAccept | Slow::AtFirst => {}
                    }
                    let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        way
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn rules(&self) -> Rules {
        let text = "overall = { limit = '100/1s', shared = true }";
        format!("{text}\n[shared]\nurl = '{}'\non_outage = 'closed'", self.url).parse().unwrap()
    }

    /// Asks until there is an answer, giving up each time soon.
    async fn ask(&self) {
        let store = Redis::connect(self.rules().shared()).unwrap();
        let (limits, requests) = (Vec::new(), Vec::new());
        let ask = Ask { process: 1, number: 1, lag: MILLI, lease: 400 * MILLI, limits, requests };
        until("an answer", async || {
            let is_answered = matches!(timeout(50 * MILLI, store.ask(ask.clone())).await, Ok(Ok(_)));
            self.given_up.fetch_add(usize::from(!is_answered), Ordering::Relaxed);
            is_answered
        })
        .await;
    }
}

/// Waits until so many calls were given up.
async fn enough(given_up: &AtomicUsize) {
    while given_up.load(Ordering::Relaxed) < GIVEN_UP {
        sleep(MILLI).await;
    }
}

/// Who begins anew after a few calls that were given up would do so for ever.
#[tokio::test]
async fn real_clock_a_connection_that_comes_about_slowly_is_waited_for() {
    let server = RedisServer::start();
    for slow in [Slow::ToAccept, Slow::ToAnswer] {
        let way = Way::to(&server, slow).await;
        way.ask().await;
        assert_eq!(way.accepted(), 1, "{slow:?}");
    }
}

#[tokio::test]
async fn real_clock_a_connection_that_never_comes_about_is_made_anew() {
    let server = RedisServer::start();
    let way = Way::to(&server, Slow::AtFirst).await;
    way.ask().await;
    assert!(way.accepted() >= 2);
}

/// Nothing starts without the store, so each start shows that it is asked.
#[tokio::test]
async fn real_clock_what_waits_starts_once_the_connection_has_come_about() {
    let server = RedisServer::start();
    for slow in [Slow::ToAccept, Slow::ToAnswer, Slow::AtFirst] {
        let way = Way::to(&server, slow).await;
        let rules = way.rules();
        let store = Redis::connect(rules.shared()).unwrap();
        let balancer = Balancer::builder(rules).shared(store).build();
        let given_up = Arc::clone(&way.given_up);
        tokio::spawn(async move {
            sleep(400 * MILLI).await;
            given_up.store(GIVEN_UP, Ordering::Relaxed);
        });
        let start = balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(()));
        timeout(Duration::from_secs(10), start).await.unwrap_or_else(|_| panic!("{slow:?}: it never starts")).unwrap();
    }
}
