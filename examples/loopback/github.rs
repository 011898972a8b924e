//! A client of reqwest against an API like GitHub's: two resources with a quota an hour, of which others take a part, and
//! a secondary limit that only the body of a refusal tells of.
//!
//! ```text
//! cargo run --example github --features json,reqwest
//! ```
//!
//! An hour has four seconds. One request runs into the secondary limit: everything waits, and it is sent again.

mod count;
mod server;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::try_join_all;
use hyper::Request;
use hyper::body::Incoming;
use request_balancer::middleware::{BalancerMiddleware, Route};
use request_balancer::{Balancer, Rules};

use count::{FixedWindow, ceil};
use server::{Answer, Api, Server, Verdict};

const HOUR: Duration = Duration::from_secs(4);
const SECOND: Duration = Duration::from_secs(1);
const CORE: u32 = 16;
const SEARCH: u32 = 8;
/// Of 12 and of 6 an hour.
const LEFT_OF_CORE: u32 = 8;
const LEFT_OF_SEARCH: u32 = 4;

struct Github {
    core: FixedWindow,
    search: FixedWindow,
    seen: u32,
}

impl Api for Github {
    fn answer(&mut self, request: &Request<Incoming>, now: Instant) -> Answer {
        let (resource, window) = match request.uri().path() {
            "/search" => ("search", &mut self.search),
            _ => ("core", &mut self.core),
        };
        self.seen += 1;
        let is_secondary = self.seen == 6;
        let fits = !is_secondary && window.take(now, 1);
        let reset = SystemTime::now() + window.resets_in(now);
        let reset = ceil(reset.duration_since(UNIX_EPOCH).unwrap_or_default(), SECOND);
        let mut fields = vec![
            ("x-ratelimit-limit", window.count.to_string()),
            ("x-ratelimit-remaining", window.left().to_string()),
            ("x-ratelimit-used", (window.count - window.left()).to_string()),
            ("x-ratelimit-reset", reset.to_string()),
            ("x-ratelimit-resource", resource.to_owned()),
        ];
        if is_secondary {
            fields.push(("retry-after", "1".to_owned()));
            let body = r#"{"message":"You have exceeded a secondary rate limit."}"#;
            return Answer { verdict: Verdict::Surprise, status: 403, fields, body };
        }
        match fits {
            true => Answer { verdict: Verdict::Answered, status: 200, fields, body: "{}" },
            false => {
                let body = r#"{"message":"API rate limit exceeded."}"#;
                Answer { verdict: Verdict::Provoked, status: 403, fields, body }
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Hours begin with whole seconds, and so do resets.
    let into_second = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let began = Instant::now();
    let ends = began + HOUR - Duration::from_nanos(into_second.into());
    let core = FixedWindow::new(12, HOUR, 12 - LEFT_OF_CORE, ends);
    let search = FixedWindow::new(6, HOUR, 6 - LEFT_OF_SEARCH, ends);
    let server = Server::start(Github { core, search, seen: 0 }).await?;

    let balancer = Balancer::new(Rules::from_file("examples/loopback/github.toml")?);
    let route = |request: &reqwest::Request| {
        Route::new(if request.url().path() == "/search" { "search" } else { "core" }, "token-of-octocat").idempotent()
    };
    let middleware = BalancerMiddleware::new(balancer, route).read_bodies(64 << 10);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let client = reqwest_middleware::ClientBuilder::new(client).with(middleware).build();

    let paths = (0..CORE).map(|_| "repos").chain((0..SEARCH).map(|_| "search"));
    let address = server.address;
    try_join_all(paths.map(|path| client.get(format!("http://{address}/{path}")).send())).await?;
    let hours = CORE.div_ceil(LEFT_OF_CORE).max(SEARCH.div_ceil(LEFT_OF_SEARCH));
    let bound = (ends - began) + HOUR * (hours - 2);
    server.report("GitHub", CORE + SEARCH, began.elapsed(), bound)
}
