//! A service of tower against an API like that of Wildberries: a token bucket for each group of methods, of which answers
//! tell what is left, and refusals when the next token is there and when the bucket is full.
//!
//! ```text
//! cargo run --example wildberries --features tower
//! ```
//!
//! Somebody else has used half of one bucket. One request is refused without warning, and only its group waits: for the
//! next token, not for a full bucket.

mod client;
mod count;
mod server;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http_body_util::Empty;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use request_balancer::middleware::{BalancerLayer, Route};
use request_balancer::{Balancer, Rules};
use tower::{Layer, ServiceExt, service_fn};

use count::{Bucket, ceil};
use server::{Answer, Api, Server, Verdict};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(100);
const BURST: u32 = 8;
const CALLS: u32 = 25;
const TAKEN: u32 = 4;

struct Wildberries {
    orders: Bucket,
    prices: Bucket,
    seen: u32,
}

impl Api for Wildberries {
    fn answer(&mut self, request: &Request<Incoming>, now: Instant) -> Answer {
        let bucket = if request.uri().path() == "/orders" { &mut self.orders } else { &mut self.prices };
        self.seen += 1;
        let verdict = match self.seen {
            20 => Verdict::Surprise,
            _ if bucket.take(now) => Verdict::Answered,
            _ => Verdict::Provoked,
        };
        if verdict == Verdict::Answered {
            let fields = vec![("X-Ratelimit-Remaining", bucket.left(now).to_string())];
            return Answer { verdict, status: 200, fields, body: "{}" };
        }
        let seconds = |time| ceil(time, SECOND).to_string();
        let fields = vec![
            ("X-Ratelimit-Limit", bucket.burst.to_string()),
            ("X-Ratelimit-Retry", seconds(bucket.next_in(now).max(INTERVAL))),
            ("X-Ratelimit-Reset", seconds(bucket.fills_in(now) + SECOND * 9)),
        ];
        Answer { verdict, status: 429, fields, body: r#"{"title":"too many requests"}"# }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let began = Instant::now();
    let mut orders = Bucket::new(BURST, INTERVAL, began);
    let prices = Bucket::new(BURST, INTERVAL, began);
    for _ in 0..TAKEN {
        orders.take(began);
    }
    let server = Server::start(Wildberries { orders, prices, seen: 0 }).await?;

    let balancer = Balancer::new(Rules::from_file("examples/loopback/wildberries.toml")?);
    let layer = BalancerLayer::new(balancer, |request: &Request<Empty<Bytes>>| {
        Route::new(request.uri().path().trim_start_matches('/'), "seller-1")
    });
    let address = server.address;
    let service = layer.layer(service_fn(move |request| client::send(address, request)));

    let send = |path| {
        let request = Request::get(path).header("host", "market.example").body(Empty::new());
        let service = service.clone();
        async move { service.oneshot(request?).await.map_err(anyhow::Error::from) }
    };
    try_join_all((0..CALLS).flat_map(|_| ["/orders", "/prices"]).map(send)).await?;
    let bound = INTERVAL * (CALLS - (BURST - TAKEN));
    server.report("Wildberries", 2 * CALLS, began.elapsed(), bound)
}
