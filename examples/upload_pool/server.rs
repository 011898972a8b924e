//! A file server on a port of the loopback that knows its clients by their tokens.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::study::{Refusals, Work};

/// What an upload is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    Stored,
    TooManyRequests { retry_after: Duration },
    Unauthorized,
}

/// What reached the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) stored: usize,
    pub(crate) refused: usize,
    /// How often a token was used while an upload of it was under way.
    pub(crate) collisions: usize,
}

/// A handle of the server, and its client.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    refusals: Vec<Refusals>,
    seen: Mutex<(Tally, Vec<bool>)>,
}

impl Server {
    /// Listens on a free port of the loopback until the program ends.
    pub(crate) async fn start(work: &Work) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let seen = Mutex::new((Tally::default(), vec![false; work.refusals.len()]));
        let state = Arc::new(State { began: Instant::now(), refusals: work.refusals.clone(), seen });
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                let service = service_fn(move |request| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(state.answer(&request).await) }
                });
                // A connection that breaks is its client's business.
                tokio::spawn(async move {
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Ok(Self { address, state })
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state.seen.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Uploads something that takes so long.
    pub(crate) async fn upload(&self, token: &str, takes: Duration) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::post("/")
            .header("host", "files.example")
            .header("authorization", token)
            .header("x-takes", takes.as_micros().to_string())
            .body(Full::<Bytes>::default())?;
        let response = sender.send_request(request).await?;
        let number = |name: &str| response.headers().get(name)?.to_str().ok()?.parse().ok();
        Ok(match response.status().as_u16() {
            429 => Answer::TooManyRequests {
                retry_after: Duration::from_micros(number("retry-after-us").unwrap_or(1_000_000)),
            },
            401 => Answer::Unauthorized,
            _ => Answer::Stored,
        })
    }
}

impl State {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let header = |name: &str| request.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let token = header("authorization").and_then(|token| usize::try_from(token).ok());
        let Some(token) = token.filter(|token| *token < self.refusals.len()) else { return status(401) };
        let busy = |busy: bool| {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut seen.1[token], busy)
        };
        let count = |how: fn(&mut Tally)| how(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner).0);
        if let Some(left) = self.refusals[token].left(self.began.elapsed()) {
            count(|tally| tally.refused += 1);
            let wait = left.as_micros().to_string();
            return Response::builder()
                .status(429)
                .header("retry-after-us", wait)
                .body(Full::default())
                .unwrap_or_default();
        }
        if busy(true) {
            count(|tally| tally.collisions += 1);
        }
        sleep(Duration::from_micros(header("x-takes").unwrap_or(0))).await;
        busy(false);
        count(|tally| tally.stored += 1);
        status(200)
    }
}

fn status(status: u16) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).unwrap_or_default()
}
