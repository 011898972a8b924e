//! An API on a port of the loopback that counts by fixed windows and says so.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What the API allows, and what it counted.
#[derive(Debug)]
pub(crate) struct Api {
    count: u32,
    per: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    used: u32,
    tally: Tally,
}

/// What reached the API.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u32,
    pub(crate) refused: u32,
}

impl Api {
    /// Listens on a free port of the loopback until the program ends.
    pub(crate) async fn start(count: u32, per: Duration) -> io::Result<(SocketAddr, Arc<Self>)> {
        let state = State { began: Instant::now(), used: 0, tally: Tally::default() };
        let api = Arc::new(Self { count, per, state: Mutex::new(state) });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(accept(listener, Arc::clone(&api)));
        Ok((address, api))
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tally
    }

    /// Somebody else takes some of the same budget.
    pub(crate) fn take(&self, count: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.turn(self.per);
        state.used = (state.used + count).min(self.count);
    }

    fn answer(&self) -> Response<Full<Bytes>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.turn(self.per);
        let reset = (state.began + self.per).saturating_duration_since(Instant::now()).as_secs_f64();
        let accepted = state.used < self.count;
        state.used += u32::from(accepted);
        state.tally.answered += u32::from(accepted);
        state.tally.refused += u32::from(!accepted);
        let response = Response::builder()
            .status(if accepted { 200 } else { 429 })
            .header("X-RateLimit-Limit", self.count)
            .header("X-RateLimit-Remaining", self.count - state.used)
            .header("X-RateLimit-Reset-After", format!("{reset:.3}"));
        let response = if accepted { response } else { response.header("Retry-After", reset.ceil().to_string()) };
        response.body(Full::default()).unwrap_or_default()
    }
}

impl State {
    fn turn(&mut self, per: Duration) {
        while self.began.elapsed() >= per {
            self.began += per;
            self.used = 0;
        }
    }
}

async fn accept(listener: TcpListener, api: Arc<Api>) {
    while let Ok((stream, _)) = listener.accept().await {
        let api = Arc::clone(&api);
        tokio::spawn(async move {
            let answer = service_fn(async |_: Request<hyper::body::Incoming>| Ok::<_, Infallible>(api.answer()));
            // A client that goes away is no error of the server's.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
