//! The handle of an outbox.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::builder::Builder;
use super::clock::wall;
use super::draft::{Full, Redriven};
use super::error::Error;
use super::event::OutboxEvents;
use super::letter::Office;
use super::message::Message;
use super::note::{Closed, Note};
use super::put::{self, Put, PutAll};
use super::record::MessageId;
use super::shelf::{self, PAGE};
use super::store::StoreError;
use super::stored::{DeadMessage, StoredMessage};
use crate::error::Outcome;
use crate::key::Key;
use crate::runtime::Balancer;

/// Messages that outlive the process. See the [module](super).
///
/// `M` is what is put, `T` what the handler returns for it, `E` its error.
///
/// A handle: cloning it is cheap, and all clones share one outbox. It works on the runtime on which it was opened. With its
/// last handle it ends: attempts that run are cut off, and what is stored stays for the next start.
/// [`close`](Self::close) lets them come to their end.
pub struct Outbox<M, T, E> {
    owner: Arc<Owner<T, E>>,
    messages: PhantomData<fn(M)>,
}

struct Owner<T, E> {
    office: Arc<Office<T, E>>,
}

impl<M, T, E> Outbox<M, T, E>
where
    M: Serialize + DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    /// Opens the outbox in a file, or makes the file, and begins to deliver what is in it by way of `handler`.
    ///
    /// `handler` is called once for each attempt; what it returns says what follows, as for
    /// [`Balancer::run`](crate::Balancer::run). With [`builder`](Self::builder) more can be said.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the file is in use by another outbox, can't be read or made, or is none.
    pub async fn open<H, Fut>(path: impl AsRef<Path>, balancer: &Balancer, handler: H) -> Result<Self, StoreError>
    where
        H: Fn(Message<M>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<T, E>> + Send + 'static,
    {
        Builder::new(balancer).open(path, handler).await
    }

    /// Puts a message in line, under a rule and a key: [`Put`] says what more can be said of it.
    ///
    /// When it is awaited it is stored, and sent at once if nothing is before it in its queue and its limits allow;
    /// then the future resolves after its first attempt. It resolves to [`Delivery::Sent`](super::Delivery::Sent) with what
    /// the handler returned, or to [`Delivery::Queued`](super::Delivery::Queued) as soon as the message has to wait: then it
    /// is delivered without anybody waiting for it.
    ///
    /// It has to wait, too, while it is not known whether something is before it: while 12,288 other keys with messages are
    /// known in its rule's lane, and after a start with messages in the store until the lane's search has come by its key.
    ///
    /// Its errors are [`Error`]: it was not put, or it was and failed at once for good; the outbox does not have it.
    pub fn put(&self, rule: &str, key: impl Into<Key>, message: &M) -> Put<T, E> {
        let known = self.office().balancer.rule(rule).map_err(Error::Refused);
        let new = known.and_then(|_| put::new(rule, key.into(), message));
        Put { office: Arc::clone(self.office()), new }
    }

    /// Puts a message that enters the line at a time on the wall: [`put`](Self::put) with [`at`](Put::at).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, SystemTime};
    /// use request_balancer::outbox::{MemoryStore, Message, Outbox};
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let (balancer, noon) = (Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?), SystemTime::UNIX_EPOCH);
    /// let outbox = Outbox::builder(&balancer)
    ///     .wall(noon)
    ///     .open_store(MemoryStore::new(), async |_: Message<u32>| Ok::<_, Failure<String>>(()))
    ///     .await?;
    /// outbox.put_later("send", 42, &7, noon + Duration::from_secs(3_600)).await?;
    /// assert_eq!((outbox.flush().await, outbox.len()), (0, 1));
    /// tokio::time::sleep(Duration::from_secs(3_600)).await;
    /// assert_eq!((outbox.flush().await, outbox.len()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_later(&self, rule: &str, key: impl Into<Key>, message: &M, wall: SystemTime) -> Put<T, E> {
        self.put(rule, key, message).at(wall)
    }

    /// Puts many messages in line, all or none, in one transaction. Resolves to their ids when they are stored; nobody waits
    /// for their delivery.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use request_balancer::outbox::{MemoryStore, Message, Outbox};
    /// # use request_balancer::{Balancer, Failure, Rules};
    /// # let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// # let builder = Outbox::builder(&balancer);
    /// # let handler = async |message: Message<u32>| Ok::<_, Failure<String>>(message.into_body());
    /// # let outbox = builder.open_store(MemoryStore::new(), handler).await?;
    /// let ids = outbox.put_all([("send", 42, &7), ("send", 43, &8)]).await?;
    /// assert_eq!(ids, [1.into(), 2.into()]);
    /// outbox.flush().await;
    /// assert_eq!((outbox.len(), outbox.oldest().await?), (0, None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Its errors are those of [`put`](Self::put) that say that it was not put.
    pub fn put_all<'m, K: Into<Key>>(&self, messages: impl IntoIterator<Item = (&'m str, K, &'m M)>) -> PutAll<T, E> {
        let new = messages.into_iter().map(|(rule, key, message)| {
            self.office().balancer.rule(rule).map_err(Error::Refused)?;
            put::new(rule, key.into(), message)
        });
        PutAll { office: Arc::clone(self.office()), new: new.collect() }
    }

    /// Waits until everything that is due now has had its turn, and returns how many messages were sent.
    ///
    /// Not waited for is what was put meanwhile, what enters the line later, and what is told to wait: by a failed attempt, a
    /// hold, a pause, or breakers that are all open. Limits are waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it changes nothing: delivery goes on with it and without it.
    pub async fn flush(&self) -> u64 {
        let (reply, sent) = oneshot::channel();
        let _ = self.office().inbox.send(Note::Flush(reply));
        // Closed: nothing is sent any more.
        sent.await.unwrap_or(0)
    }

    /// Removes all messages that are neither sent nor dead, and returns them: those in line queue by queue, then those that
    /// were to enter it later. Waits for attempts that run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use request_balancer::outbox::{MemoryStore, Message, Outbox};
    /// # use request_balancer::{Balancer, Failure, Rules};
    /// # let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// # let builder = Outbox::builder(&balancer);
    /// # let handler = async |message: Message<u32>| Ok::<_, Failure<String>>(message.into_body());
    /// # let outbox = builder.open_store(MemoryStore::new(), handler).await?;
    /// balancer.pause("send")?;
    /// outbox.put_all([("send", 42, &7), ("send", 43, &8)]).await?;
    /// let bodies: Result<Vec<u32>, _> = outbox.drain().await?.iter().map(|message| message.body()).collect();
    /// assert_eq!((bodies?, outbox.is_empty()), (vec![7, 8], true));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing is removed. Where the store fails later on, what was removed until then is returned, and the rest
    /// is still stored.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, some messages may be removed and not returned.
    pub async fn drain(&self) -> Result<Vec<StoredMessage>, StoreError> {
        let office = self.office();
        let (reply, empty) = oneshot::channel();
        let _ = office.inbox.send(Note::Pause(reply));
        let resume = Resume(office);
        // Closed: then nothing is in line.
        let _ = empty.await;
        let mut drained = Vec::new();
        loop {
            match office.desk.write(|draft| draft.take(PAGE)).await {
                Ok(page) if page.is_empty() => break,
                Ok(page) => {
                    drained
                        .extend(page.iter().map(|taken| StoredMessage::new(&taken.record, &taken.progress, taken.due)));
                }
                Err(error) if drained.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        drop(resume);
        Ok(drained)
    }

    /// Starts nothing more, waits until attempts that run have come to their end, but no longer than `deadline`, cuts off the
    /// rest, and lets go of the file. What is stored stays for the next start.
    ///
    /// An attempt that fails meanwhile and need not wait is not followed by another, but the start of that one may be counted
    /// already.
    ///
    /// From then on everything resolves to [`StoreError::Closed`], save for closing it again. The balancer stays open. Of
    /// several deadlines the first one counts.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use request_balancer::outbox::{MemoryStore, Message, Outbox};
    /// # use request_balancer::{Balancer, Failure, Rules};
    /// # let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// # let builder = Outbox::builder(&balancer);
    /// # let handler = async |message: Message<u32>| Ok::<_, Failure<String>>(message.into_body());
    /// # let outbox = builder.open_store(MemoryStore::new(), handler).await?;
    /// balancer.pause("send")?;
    /// outbox.put("send", 42, &7).await?;
    /// let closed = outbox.close(Duration::from_secs(10)).await?;
    /// assert_eq!((closed.done, closed.aborted, closed.left), (0, 0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store could not be closed well; what is stored is still there.
    ///
    /// # Cancel safety
    ///
    /// Once polled, nothing more is started. Dropped before it is ready, the file may stay open until the last handle is
    /// gone.
    pub async fn close(&self, deadline: Duration) -> Result<Closed, StoreError> {
        let office = self.office();
        let (reply, closed) = oneshot::channel();
        let by = tokio::time::Instant::now() + deadline.min(Duration::from_secs(365 * 86_400));
        let _ = office.inbox.send(Note::Close(by, reply));
        let closed = closed.await.unwrap_or_default();
        office.desk.close().await?;
        Ok(Closed { left: office.counts().messages, ..closed })
    }

    /// How many messages are neither sent nor dead.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.office().counts().messages
    }

    /// Whether all messages are sent or dead.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the message was put that is in line for the longest time; `None` if there is none.
    ///
    /// Looks at the first message of each queue.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it can't be read.
    pub async fn oldest(&self) -> Result<Option<SystemTime>, StoreError> {
        let (mut oldest, mut after) = (None, None);
        // Page by page, so that others may write meanwhile.
        while let Some((at, last)) = self.office().desk.read(move |store| shelf::oldest(store, after.as_ref())).await? {
            oldest = Some(oldest.map_or(at, |oldest: u64| oldest.min(at)));
            after = Some(last);
        }
        Ok(oldest.map(wall))
    }

    /// The messages that are tried no more, oldest first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::outbox::{Error, MemoryStore, Message, Outbox, OutboxEvent};
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// let refuse = async |_: Message<u32>| Err::<(), _>(Failure::permanent("no such chat"));
    /// let outbox = Outbox::builder(&balancer).open_store(MemoryStore::new(), refuse).await?;
    /// let mut events = outbox.events();
    /// // The first one's caller is told, and the outbox does not have it; nobody waits for the others.
    /// assert_eq!(outbox.put("send", 42, &7).await, Err(Error::Failed("no such chat")));
    /// outbox.put_all([("send", 42, &8), ("send", 42, &9)]).await?;
    /// outbox.flush().await;
    /// let ids: Vec<_> = outbox.dead().await?.into_iter().map(|dead| (dead.id, dead.reason)).collect();
    /// assert_eq!(ids, [(2.into(), "no such chat".to_owned()), (3.into(), "no such chat".to_owned())]);
    /// assert!(matches!(events.next().await, Some(OutboxEvent::Died { .. })));
    /// // One is to be tried again, the other is to be forgotten.
    /// assert!(outbox.redrive(2.into()).await? && outbox.purge(3.into()).await?);
    /// assert_eq!((outbox.len(), outbox.dead().await?.len()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if they can't be read.
    pub async fn dead(&self) -> Result<Vec<DeadMessage>, StoreError> {
        let mut all: Vec<DeadMessage> = Vec::new();
        loop {
            let after = all.last().map(|dead| dead.id);
            let page = self.office().desk.read(move |store| shelf::dead(store, after, PAGE)).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.iter().map(DeadMessage::new));
        }
    }

    /// Puts a dead message back in line, last in its queue. Its id stays, the numbers of its attempts go on, and its retry
    /// policy begins anew. Returns false if there is no such dead message.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`]: it is still among the dead. [`Error::Store`]: it is, or it is in line and delivered.
    ///
    /// # Cancel safety
    ///
    /// Once polled it is done, whoever waits for it; dropped, nobody is told what came of it.
    pub async fn redrive(&self, id: MessageId) -> Result<bool, Error<E>> {
        let (office, (reply, answer)) = (self.office(), oneshot::channel());
        let told = Arc::clone(office);
        office.desk.post(
            move |draft| draft.redrive(id),
            move |redriven| {
                // Told from where it became durable: whoever asked may have gone away.
                match &redriven {
                    Ok(Redriven::Done(queue)) => drop(told.inbox.send(Note::Look(vec![queue.clone()]))),
                    Ok(Redriven::Unknown | Redriven::Full(_)) => {}
                    Err(_) => drop(told.inbox.send(Note::Search)),
                }
                let _ = reply.send(redriven);
            },
        );
        match answer.await.unwrap_or(Err(StoreError::Closed))? {
            Redriven::Done(_) => Ok(true),
            Redriven::Unknown => Ok(false),
            Redriven::Full(Full { messages, bytes }) => Err(Error::QueueFull { messages, bytes }),
        }
    }

    /// Forgets a dead message. Returns false if there is none such.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; it may still be among the dead.
    pub async fn purge(&self, id: MessageId) -> Result<bool, StoreError> {
        self.office().desk.write(move |draft| draft.purge(id)).await
    }

    /// What the outbox tells of its own accord from now on: messages that died or were lost, a store that failed.
    #[must_use]
    pub fn events(&self) -> OutboxEvents {
        self.office().events.subscribe()
    }
}

impl<M, T, E> Outbox<M, T, E> {
    pub(super) fn new(office: Arc<Office<T, E>>) -> Self {
        Self { owner: Arc::new(Owner { office }), messages: PhantomData }
    }

    fn office(&self) -> &Arc<Office<T, E>> {
        &self.owner.office
    }
}

impl Outbox<(), (), std::convert::Infallible> {
    /// An outbox in the making, for what [`open`](Self::open) leaves at its default.
    pub fn builder(balancer: &Balancer) -> Builder {
        Builder::new(balancer)
    }
}

/// Lets messages into line again, whatever becomes of who kept them out.
struct Resume<'a, T, E>(&'a Office<T, E>);

impl<T, E> Drop for Resume<'_, T, E> {
    fn drop(&mut self) {
        let _ = self.0.inbox.send(Note::Resume);
    }
}

impl<T, E> Drop for Owner<T, E> {
    fn drop(&mut self) {
        let _ = self.office.inbox.send(Note::Abandoned);
    }
}

impl<M, T, E> Clone for Outbox<M, T, E> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), messages: PhantomData }
    }
}

impl<M, T, E> fmt::Debug for Outbox<M, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("messages", &self.office().counts().messages).finish_non_exhaustive()
    }
}
