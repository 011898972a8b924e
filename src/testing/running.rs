//! A simulated server on tokio's clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::limit::LimitReport;
use super::server::{Answer, Server};
use crate::key::Key;

/// A [`Server`] on tokio's clock; under a paused clock its time is virtual. Clones are the same server.
#[derive(Clone, Debug)]
pub struct RunningServer {
    server: Arc<Mutex<Server>>,
    begin: Instant,
}

impl Server {
    /// Puts the server on tokio's clock. Its time begins now: fixed windows are counted from here.
    #[must_use]
    pub fn start(self) -> RunningServer {
        RunningServer { server: Arc::new(Mutex::new(self)), begin: Instant::now() }
    }
}

impl RunningServer {
    /// Calls the server and waits for its answer, which takes both ways' time.
    ///
    /// # Cancel safety
    ///
    /// Dropped on the way to the server, the call never arrives; dropped later, it counts.
    pub async fn call(&self, key: impl Into<Key>) -> Answer {
        let key = key.into();
        self.travel().await;
        let answer = self.lock().arrive(self.begin.elapsed(), key);
        self.travel().await;
        answer
    }

    /// Calls that were let through.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.lock().accepted()
    }

    /// Calls that were refused: how often its callers provoked it.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.lock().refused()
    }

    /// What each limit saw, in the order in which they were added.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitReport> {
        self.lock().limits()
    }

    /// One way. Takes no turn of the runtime if it takes no time.
    async fn travel(&self) {
        let way: Duration = self.lock().next_way();
        if !way.is_zero() {
            sleep(way).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
