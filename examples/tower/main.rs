//! Forty requests through a tower service to an API that allows ten in two seconds, of which others take some.
//!
//! ```text
//! cargo run --example tower --features tower
//! ```
//!
//! The service is hyper's own client of one connection a request; any other service of `http` requests will do.

#[path = "../loopback/mod.rs"]
mod loopback;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use request_balancer::middleware::{BalancerLayer, Route};
use request_balancer::{Balancer, Rules};
use tokio::net::TcpStream;
use tower::{Layer, ServiceExt, service_fn};

use loopback::Api;

async fn send(address: SocketAddr, request: Request<Empty<Bytes>>) -> anyhow::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (address, api) = Api::start(10, Duration::from_secs(2)).await?;
    let balancer = Balancer::new(Rules::from_file("examples/loopback/api.toml")?);
    let layer = BalancerLayer::new(balancer, |request: &Request<Empty<Bytes>>| {
        Route::new("read", request.uri().host().unwrap_or_default())
    });
    let service = layer.layer(service_fn(move |request| send(address, request)));

    let began = Instant::now();
    api.take(4);
    let requests = (0..40).map(|_| {
        let service = service.clone();
        async move {
            service
                .oneshot(Request::get("/").header("host", "api.example").body(Empty::new())?)
                .await
                .map_err(anyhow::Error::from)
        }
    });
    let answers = try_join_all(requests).await?;
    let answered = answers.iter().filter(|answer| answer.status().is_success()).count();
    let tally = api.tally();
    println!("{answered} of 40 answered in {:.1?}; the API refused {}", began.elapsed(), tally.refused);
    anyhow::ensure!(answered == 40 && tally.answered == 40, "{tally:?}");
    Ok(())
}
