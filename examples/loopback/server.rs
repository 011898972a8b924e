//! A server on a port of the loopback, and what it saw.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What an API answers with, before it is a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: &'static str,
}

/// Whether a request was answered, and whose fault it is if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answered,
    /// Its limits, which it tells of, had no room.
    Provoked,
    /// Something that no client could know of.
    Surprise,
}

/// What reached the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) answered: u32,
    pub(crate) provoked: u32,
    pub(crate) surprises: u32,
}

/// An API with limits, asked one request at a time.
pub(crate) trait Api: Send + 'static {
    fn answer(&mut self, request: &Request<Incoming>, now: Instant) -> Answer;
}

/// So many times what the limits alone take is too long, however busy the machine is.
const TOO_LONG: u32 = 3;

/// A handle of the server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    tally: Arc<Mutex<Tally>>,
}

impl Server {
    /// Listens on a free port of the loopback until the program ends.
    pub(crate) async fn start(api: impl Api) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let server = Self { address: listener.local_addr()?, tally: Arc::default() };
        tokio::spawn(accept(listener, Arc::new(Mutex::new(api)), Arc::clone(&server.tally)));
        Ok(server)
    }

    /// Prints what came of it, beside the time that the limits alone take; an error if the client provoked a refusal, did
    /// not get all its answers, or waited for much longer than it had to.
    pub(crate) fn report(&self, api: &str, requests: u32, took: Duration, bound: Duration) -> anyhow::Result<()> {
        let tally = *lock(&self.tally);
        let Tally { answered, provoked, surprises } = tally;
        println!(
            "{api}: {answered} of {requests} requests answered, refusals provoked {provoked}, without warning {surprises}; \
             {:.1} s, the limits alone take {:.1} s",
            took.as_secs_f64(),
            bound.as_secs_f64(),
        );
        anyhow::ensure!(answered == requests && provoked == 0, "{tally:?}");
        anyhow::ensure!(took <= TOO_LONG * bound, "{took:?}, while the limits take {bound:?}");
        Ok(())
    }
}

async fn accept<A: Api>(listener: TcpListener, api: Arc<Mutex<A>>, tally: Arc<Mutex<Tally>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (api, tally) = (Arc::clone(&api), Arc::clone(&tally));
        tokio::spawn(async move {
            let service = service_fn(async |request: Request<Incoming>| {
                let Answer { verdict, status, fields, body } = {
                    let mut api = lock(&api);
                    // Read inside the lock, so that the API's time never goes back.
                    api.answer(&request, Instant::now())
                };
                lock(&tally).count(verdict);
                let head = Response::builder().status(status).header("content-type", "application/json");
                let head = fields.into_iter().fold(head, |head, (name, value)| head.header(name, value));
                Ok::<_, Infallible>(head.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap_or_default())
            });
            // A client that goes away is no error of the server's.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Tally {
    const fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Answered => self.answered += 1,
            Verdict::Provoked => self.provoked += 1,
            Verdict::Surprise => self.surprises += 1,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
