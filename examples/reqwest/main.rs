//! Forty requests through a reqwest client to an API that allows ten in two seconds, of which others take some.
//!
//! ```text
//! cargo run --example reqwest --features reqwest
//! ```
//!
//! The rules say nothing of the others; the API's own counter does.

#[path = "../loopback/mod.rs"]
mod loopback;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use request_balancer::middleware::{BalancerMiddleware, Route};
use request_balancer::{Balancer, Rules};

use loopback::Api;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (address, api) = Api::start(10, Duration::from_secs(2)).await?;
    let balancer = Balancer::new(Rules::from_file("examples/loopback/api.toml")?);
    let middleware = BalancerMiddleware::new(balancer.clone(), |request: &reqwest::Request| {
        Route::new("read", request.url().host_str().unwrap_or_default())
    });
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(middleware).build();

    let began = Instant::now();
    api.take(4);
    let url = format!("http://{address}/");
    let answers = try_join_all((0..40).map(|_| client.get(&url).send())).await?;
    let answered = answers.iter().filter(|answer| answer.status().is_success()).count();
    let tally = api.tally();
    println!("{answered} of 40 answered in {:.1?}; the API refused {}", began.elapsed(), tally.refused);
    anyhow::ensure!(answered == 40 && tally.answered == 40, "{tally:?}");
    Ok(())
}
