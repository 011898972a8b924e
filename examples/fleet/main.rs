//! Four processes call one API under one limit that they share on a Redis server. One of them is killed midway; the API
//! sees no window that is over, and the others go on with what it leaves.
//!
//! ```text
//! cargo run --release --features redis --example fleet
//! ```
//!
//! The API is a few lines on the loopback, the server one of the example's own: `redis-server` must be installed.

#[path = "../../tests/redis_server/mod.rs"]
mod redis_server;

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis_server::RedisServer;
use request_balancer::shared::Redis;
use request_balancer::{Balancer, Failure, Rules};

const WINDOW: Duration = Duration::from_millis(500);
const COUNT: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, store, api] = words.as_slice()
        && word == "worker"
    {
        return worker(store, api.parse()?);
    }
    let server = RedisServer::start();
    let api = Api::start()?;
    let mut workers = Vec::new();
    for _ in 0..4 {
        let api = api.address.to_string();
        workers.push(Command::new(std::env::current_exe()?).args(["worker", &server.url(), &api]).spawn()?);
    }
    std::thread::sleep(Duration::from_secs(2));
    workers[0].kill()?;
    println!("killed one of four after 2 s");
    std::thread::sleep(Duration::from_secs(2));
    workers.iter_mut().try_for_each(Child::kill)?;
    for worker in &mut workers {
        worker.wait()?;
    }
    let calls = api.calls.lock().map_err(|_| "the API broke")?;
    let most = most_in(&calls);
    println!("the API saw {} calls, at most {most} in any {WINDOW:?}; allowed are {COUNT}", calls.len());
    if most > COUNT || calls.len() < COUNT {
        return Err("more than allowed, or next to nothing".into());
    }
    Ok(())
}

/// Calls the API all the time, in many tasks.
#[tokio::main(flavor = "current_thread")]
async fn worker(store: &str, api: SocketAddr) -> Result<(), Box<dyn Error>> {
    // What the network takes may differ by 20 ms from call to call.
    let rules: Rules =
        format!("overall = {{ limit = '{COUNT}/500ms', shared = true }}\nmargin = '20ms'\n[shared]\nurl = '{store}'")
            .parse()?;
    let balancer = Balancer::builder(rules.clone()).shared(Redis::connect(rules.shared())?).build();
    let tasks = (0..20).map(|_| {
        let balancer = balancer.clone();
        tokio::spawn(async move {
            loop {
                let call = async |_| {
                    let call = TcpStream::connect(api).and_then(|mut stream| stream.write_all(b"x"));
                    call.map_err(|error| Failure::permanent(error.to_string()))
                };
                if balancer.run("default", 1, call).await.is_err() {
                    return;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await?;
    }
    Ok(())
}

/// Writes down when it is called.
struct Api {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<Instant>>>,
}

impl Api {
    fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if let (Ok(mut stream), Ok(mut calls)) = (stream, noted.lock()) {
                    calls.push(Instant::now());
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        Ok(Self { address, calls })
    }
}

fn most_in(calls: &[Instant]) -> usize {
    let inside =
        |(first, begin): (usize, &Instant)| calls[first..].iter().take_while(|at| **at - *begin < WINDOW).count();
    calls.iter().enumerate().map(inside).max().unwrap_or(0)
}
