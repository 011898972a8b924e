//! An outbox in the making.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::books::{Books, Bounds, Overflow};
use super::clock::Clock;
use super::courier::Courier;
use super::event::Announcer;
use super::handle::Outbox;
use super::hold;
use super::letter::{Office, Sending, Undelivered};
use super::message::{Envelope, Message};
use super::shelf;
use super::store::{RedbStore, Store, StoreError};
use super::writer::Desk;
use crate::error::{Failure, Outcome};
use crate::rules::Retry;
use crate::runtime::Balancer;

/// An outbox in the making: [`Outbox::builder`] begins one.
#[must_use = "a builder does nothing before it opens"]
#[derive(Clone, Debug)]
pub struct Builder {
    balancer: Balancer,
    bounds: Bounds,
    window: usize,
    retention: Duration,
    retry: Retry,
    wall: Option<SystemTime>,
}

impl Builder {
    pub(super) fn new(balancer: &Balancer) -> Self {
        let bounds = Bounds {
            messages: 1_000_000,
            bytes: 1 << 30,
            dead: 1_000,
            dead_bytes: 10 << 20,
            names: 1_000_000,
            overflow: Overflow::default(),
        };
        Self {
            balancer: balancer.clone(),
            bounds,
            window: 16,
            retention: Duration::from_secs(86_400),
            retry: Retry::new(),
            wall: None,
        }
    }

    /// How many messages there may be that are neither sent nor dead; one more is
    /// [refused](super::Error::QueueFull). Default: 1,000,000.
    pub const fn max_messages(mut self, most: u64) -> Self {
        self.bounds.messages = most;
        self
    }

    /// How many bytes they may have as they are stored, without what the file needs besides. Default: 1 GiB.
    pub const fn max_bytes(mut self, most: u64) -> Self {
        self.bounds.bytes = most;
        self
    }

    /// How many messages may be among the dead. Default: 1,000.
    pub const fn max_dead(mut self, most: u64) -> Self {
        self.bounds.dead = most;
        self
    }

    /// How many bytes they may have. Default: 10 MiB.
    pub const fn max_dead_bytes(mut self, most: u64) -> Self {
        self.bounds.dead_bytes = most;
        self
    }

    /// What happens where there is no room among the dead. Default: the oldest are lost.
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.bounds.overflow = overflow;
        self
    }

    /// How many messages of one queue are in the balancer's line at a time; zero counts as one. Default: 16.
    ///
    /// A queue can't have more attempts running than that.
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// For how long a [name](super::Put::dedupe) is remembered once its message was sent. Default: one day.
    ///
    /// Those whose time is over are forgotten within minutes; of more than [`max_names`](Self::max_names) the oldest are
    /// forgotten before their time.
    pub const fn retention(mut self, span: Duration) -> Self {
        self.retention = span;
        self
    }

    /// How many names are remembered at most whose messages were sent: of more of them the oldest are forgotten, and what is
    /// put under those again is sent again. Default: 1,000,000.
    ///
    /// Each takes room in the file, which no other bound counts: for the name twice, and for what the handler returned.
    pub const fn max_names(mut self, most: u64) -> Self {
        self.bounds.names = most;
        self
    }

    /// What differs from the rules' retry policies, for messages. Default: nothing.
    ///
    /// Waits that a server asks for are never too many or too long for a message, whatever the policy says.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// What the clock on the wall shows now, where a better one than the machine's is known.
    ///
    /// It is read when the outbox is opened; from then on tokio's time counts.
    pub const fn wall(mut self, now: SystemTime) -> Self {
        self.wall = Some(now);
        self
    }

    /// Opens the outbox in a file, or makes the file, and begins to deliver what is in it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the file is in use by another outbox, can't be read or made, or is none.
    pub async fn open<M, H, Fut, T, E>(self, path: impl AsRef<Path>, handler: H) -> Result<Outbox<M, T, E>, StoreError>
    where
        M: Serialize + DeserializeOwned + Send + 'static,
        H: Fn(Message<M>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let path = path.as_ref().to_owned();
        self.open_with(move || Ok(Box::new(RedbStore::open(path)?) as Box<dyn Store>), handler).await
    }

    /// The same with a store of the caller's choice.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::outbox::{Delivery, MemoryStore, Message, Outbox};
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let outbox = Outbox::builder(&balancer)
    ///     .open_store(MemoryStore::new(), async |message: Message<u32>| Ok::<_, Failure<String>>(message.into_body() + 1))
    ///     .await?;
    /// assert_eq!(outbox.put("send", 42, &6).await?, Delivery::Sent(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the store.
    pub async fn open_store<M, H, Fut, T, E>(self, store: impl Store, handler: H) -> Result<Outbox<M, T, E>, StoreError>
    where
        M: Serialize + DeserializeOwned + Send + 'static,
        H: Fn(Message<M>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        self.open_with(move || Ok(Box::new(store) as Box<dyn Store>), handler).await
    }

    async fn open_with<M, H, Fut, T, E>(
        self,
        open: impl FnOnce() -> Result<Box<dyn Store>, StoreError> + Send + 'static,
        handler: H,
    ) -> Result<Outbox<M, T, E>, StoreError>
    where
        M: Serialize + DeserializeOwned + Send + 'static,
        H: Fn(Message<M>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let Self { balancer, bounds, window, retention, retry, wall } = self;
        let runtime = Handle::try_current().map_err(|_| StoreError::NoRuntime)?;
        let opened = runtime.spawn_blocking(move || Books::open(open()?, bounds)).await;
        // It does not panic; the runtime may go away meanwhile.
        let books = opened.unwrap_or(Err(StoreError::Closed))?;
        let clock = Clock::starting_at(wall.unwrap_or_else(crate::runtime::wall_clock));
        let counts = books.shown();
        let desk = Desk::open(books, &runtime);
        let (inbox, notes) = mpsc::unbounded_channel();
        let events = Announcer::new();
        let (send, keep) = (sender(handler), keep::<T> as fn(&T) -> Vec<u8>);
        let halted = AtomicBool::new(false);
        let office =
            Arc::new(Office { desk, inbox, balancer, clock, events, send, keep, retry, retention, counts, halted });
        renew_holds(&office).await?;
        Courier::start(Arc::clone(&office), notes, window);
        Ok(Outbox::new(office))
    }
}

/// What was held when the program ended is held again, for as long as is left of it; what is over is forgotten.
async fn renew_holds<T, E>(office: &Office<T, E>) -> Result<(), StoreError> {
    let now = office.clock.now();
    let mut over = Vec::new();
    for (target, until) in office.desk.read(shelf::holds).await? {
        if until <= now {
            over.push(target);
        } else if let Ok(held) = hold::read(&target) {
            // A rule or endpoint that there is no more needs no hold.
            let _ = office.balancer.hold(held, office.clock.until(until));
        }
    }
    let released = office.desk.write(move |draft| {
        over.into_iter().for_each(|target| draft.release(target));
        draft.forget_some(now).map(|_| ())
    });
    released.await
}

/// The handler, for whoever does not know what messages are.
fn sender<M, H, Fut, T, E>(handler: H) -> Box<dyn Fn(Envelope) -> Sending<T, E> + Send + Sync>
where
    M: DeserializeOwned + 'static,
    H: Fn(Message<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    Box::new(move |envelope| match serde_json::from_slice(&envelope.record.body) {
        Ok(body) => {
            let sending = handler(Message { body, envelope });
            Box::pin(async move { sending.await.map_err(|failure| failure.map(Undelivered::Own)) })
        }
        Err(error) => {
            let error = Undelivered::Unreadable(error.to_string());
            Box::pin(async move { Err(Failure::permanent(error)) })
        }
    })
}

/// What a name is remembered with; null if it can't be written. A panic of what writes it must not keep the message.
fn keep<T: Serialize>(value: &T) -> Vec<u8> {
    let written = catch_unwind(AssertUnwindSafe(|| serde_json::to_vec(value).ok()));
    written.ok().flatten().unwrap_or_else(|| b"null".to_vec())
}
