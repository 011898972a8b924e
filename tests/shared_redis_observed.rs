//! What an API's own server says of a shared limit, between balancers on one real server.
#![cfg(all(feature = "redis", feature = "headers"))]

#[allow(dead_code, reason = "some of it is for other tests")]
mod fleet;

use std::time::{Instant, SystemTime};

use fleet::redis_server::RedisServer;
use fleet::{SEC, call, rules, until};
use request_balancer::headers::{self, Dialect};
use request_balancer::shared::Redis;
use request_balancer::{Attempt, Balancer, Failure};

fn process(server: &RedisServer, text: &str) -> Balancer {
    let rules = rules(&server.url(), text);
    let store = Redis::connect(rules.shared()).unwrap();
    Balancer::builder(rules).shared(store).build()
}

/// Nothing is left for three seconds.
async fn hear_of_the_end(balancer: &Balancer) {
    let spent = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "3")];
    let spent = headers::read(200, spent, None, SystemTime::now(), Dialect::auto());
    let call = |attempt: Attempt| {
        attempt.observe(&spent);
        async { Ok::<_, Failure<()>>(()) }
    };
    balancer.run("default", 1, call).await.unwrap();
}

/// Two balancers under a limit, of which the server tells so what it keeps.
async fn one_stops_the_other(quota: &str, name: &str, words: &[&str]) {
    let server = RedisServer::start();
    let text = format!("overall = {{ limit = '{quota}', shared = true }}");
    let [one, other] = [process(&server, &text), process(&server, &text)];
    other.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    let begin = Instant::now();
    hear_of_the_end(&one).await;
    until("a word in the store", async || call::<String>(&server, words).await.contains(':')).await;
    // By its own count the store keeps no start for so long.
    let left: i64 = call(&server, &["PTTL", name]).await;
    assert!((1..=3_002).contains(&left), "{left} ms");
    other.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
    assert!(begin.elapsed() >= 3 * SEC, "{:?}", begin.elapsed());
    until("an empty server", async || call::<Vec<String>>(&server, &["KEYS", "*"]).await.is_empty()).await;
}

#[tokio::test]
async fn real_clock_what_one_hears_stops_the_other_until_the_reset() {
    let [list, cells, bucket] = ["w700000", "t700000", "b70000"].map(|kind| format!("{{rb}}:v1:overall:{kind}"));
    let words = [&["LINDEX", &list, "0"][..], &["HGET", &cells, "g"], &["GET", &bucket]];
    tokio::join!(
        one_stops_the_other("100/700ms", &list, words[0]),
        one_stops_the_other("2000/700ms", &cells, words[1]),
        one_stops_the_other("10/700ms burst 9", &bucket, words[2]),
    );
}
