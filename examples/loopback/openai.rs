//! A client of reqwest against an API like OpenAI's: requests and tokens a minute, told in each answer, and others of the
//! same organization that take of the tokens.
//!
//! ```text
//! cargo run --example openai --features reqwest
//! ```
//!
//! A minute has a second and a half. What a call may cost is told to the balancer with the route of its request. One
//! request finds the model overloaded, and is sent again.

mod count;
mod server;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use hyper::Request;
use hyper::body::Incoming;
use request_balancer::middleware::{BalancerMiddleware, Route};
use request_balancer::{Balancer, Rules};

use count::{FixedWindow, ceil};
use server::{Answer, Api, Server, Verdict};

const MINUTE: Duration = Duration::from_millis(1_500);
/// What each call may cost, over and over.
const COSTS: [u32; 2] = [50, 100];
const CALLS: u32 = 40;
/// Of 1,000 a minute.
const LEFT: u32 = 800;

struct OpenAi {
    requests: FixedWindow,
    tokens: FixedWindow,
    seen: u32,
}

impl Api for OpenAi {
    fn answer(&mut self, request: &Request<Incoming>, now: Instant) -> Answer {
        self.seen += 1;
        if self.seen == 6 {
            let fields = vec![("retry-after", "1".to_owned()), ("retry-after-ms", "400".to_owned())];
            return Answer { verdict: Verdict::Surprise, status: 503, fields, body: "{}" };
        }
        let cost = tokens(request.headers());
        let fits = self.requests.take(now, 1) && self.tokens.take(now, cost);
        let reset = |window: &mut FixedWindow| format!("{}ms", ceil(window.resets_in(now), Duration::from_millis(1)));
        let fields = vec![
            ("x-ratelimit-limit-requests", self.requests.count.to_string()),
            ("x-ratelimit-remaining-requests", self.requests.left().to_string()),
            ("x-ratelimit-reset-requests", reset(&mut self.requests)),
            ("x-ratelimit-limit-tokens", self.tokens.count.to_string()),
            ("x-ratelimit-remaining-tokens", self.tokens.left().to_string()),
            ("x-ratelimit-reset-tokens", reset(&mut self.tokens)),
        ];
        match fits {
            true => Answer { verdict: Verdict::Answered, status: 200, fields, body: "{}" },
            false => Answer { verdict: Verdict::Provoked, status: 429, fields, body: "{}" },
        }
    }
}

fn tokens(fields: &http::HeaderMap) -> u32 {
    fields.get("x-max-tokens").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or_default()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let began = Instant::now();
    let ends = began + MINUTE;
    let requests = FixedWindow::new(20, MINUTE, 0, ends);
    let of_tokens = FixedWindow::new(1_000, MINUTE, 1_000 - LEFT, ends);
    let server = Server::start(OpenAi { requests, tokens: of_tokens, seen: 0 }).await?;

    let balancer = Balancer::new(Rules::from_file("examples/loopback/openai.toml")?);
    let route = |request: &reqwest::Request| Route::new("chat", "gpt").cost_of("tokens", tokens(request.headers()));
    let client = reqwest::Client::builder().no_proxy().build()?;
    let middleware = BalancerMiddleware::new(balancer, route);
    let client = reqwest_middleware::ClientBuilder::new(client).with(middleware).build();

    let costs = COSTS.iter().cycle().take(CALLS as usize);
    let total: u32 = costs.clone().sum();
    let address = server.address;
    try_join_all(
        costs.map(|cost| {
            client.post(format!("http://{address}/chat")).header("x-max-tokens", *cost).body("hello").send()
        }),
    )
    .await?;
    server.report("OpenAI", CALLS, began.elapsed(), MINUTE * (total.div_ceil(LEFT) - 1))
}
