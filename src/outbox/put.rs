//! Putting messages.

use std::fmt;
use std::future::IntoFuture;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::clock::unix;
use super::draft::{self, New, Stored};
use super::error::Error;
use super::letter::{Delivery, Office, Reply};
use super::note::Note;
use super::record::{MessageId, Named};
use super::store::StoreError;
use crate::key::Key;

/// A message that is to be put: [`Outbox::put`](super::Outbox::put) begins one. It is put when it is awaited.
#[must_use = "a message is put when this is awaited"]
pub struct Put<T, E> {
    pub(super) office: Arc<Office<T, E>>,
    pub(super) new: Result<New, Error<E>>,
}

impl<T, E> Put<T, E> {
    /// Puts it under a name: put again, it is not sent again.
    ///
    /// While a message of this name is stored, putting another one changes nothing and gives the first one's id. Once it was
    /// sent, what the handler returned is remembered for the [retention time](super::Builder::retention) and given back.
    /// Rule, key and message of the second one are not looked at. A name whose message failed for good, so that its caller
    /// was told, is free again; but where it was put a second time meanwhile, the message is among the dead. An empty name is
    /// none.
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
    /// assert_eq!(outbox.put("send", 42, &6).dedupe("order 17").await?, Delivery::Sent(7));
    /// assert_eq!(outbox.put("send", 42, &6).dedupe("order 17").await?, Delivery::Sent(7));
    /// assert_eq!(outbox.put("send", 42, &1).dedupe("order 18").await?, Delivery::Queued(2.into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn dedupe(mut self, name: impl Into<String>) -> Self {
        if let Ok(new) = &mut self.new {
            new.name = name.into();
        }
        self
    }

    /// Enters the line then, by the clock on the wall, and is not tried before. Default: now.
    ///
    /// Its place in line is after what was put by then.
    pub fn at(mut self, wall: SystemTime) -> Self {
        if let Ok(new) = &mut self.new {
            new.due = Some(unix(wall));
        }
        self
    }
}

/// # Cancel safety
///
/// Dropped before it is ready, the message may be stored all the same; then it is delivered.
impl<T, E> IntoFuture for Put<T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Delivery<T>, Error<E>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { office, new } = self;
            let (new, (reply, answer)) = (new?, oneshot::channel());
            let (now, told) = (office.clock.now(), Arc::clone(&office));
            office.desk.post(
                // What is due already need not wait.
                move |page| page.put(New { due: new.due.filter(|due| *due > now), ..new }, now),
                move |put| told.take_in(put, reply),
            );
            answer.await.unwrap_or(Err(Error::Store(StoreError::Closed)))
        })
    }
}

impl<T: DeserializeOwned, E> Office<T, E> {
    /// A message was put, or not.
    fn take_in(&self, put: Result<draft::Put, StoreError>, reply: Reply<T, E>) {
        let answer = match put {
            Ok(draft::Put::InLine(stored)) => {
                // Told from where it became durable, so that messages come in the order of their places.
                if let Err(unsent) = self.inbox.send(Note::Arrived(vec![stored], Some(reply))) {
                    unsent.0.turn_down();
                }
                return;
            }
            Ok(draft::Put::Later(id, due)) => {
                let _ = self.inbox.send(Note::Due(due));
                Ok(Delivery::Queued(id))
            }
            Ok(draft::Put::Known(Named::Pending(id) | Named::Promised(id))) => Ok(Delivery::Queued(id)),
            Ok(draft::Put::Known(Named::Dead(id))) => Err(Error::Dead { id }),
            Ok(draft::Put::Known(Named::Sent(_, _, value))) => {
                remembered(&value).map(Delivery::Sent).map_err(Error::Json)
            }
            Ok(draft::Put::Full(full)) => Err(full.into()),
            Err(error) => Err(error.into()),
        };
        // Whoever put it may have gone away.
        let _ = reply.send(answer);
    }
}

/// What a handler returned. A panic of what reads it is an error: it must not end who writes.
fn remembered<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    match catch_unwind(|| serde_json::from_slice(value)) {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("what reads it panics".to_owned()),
    }
}

/// Messages that are to be put together: [`Outbox::put_all`](super::Outbox::put_all) begins them. They are put when it is
/// awaited.
#[must_use = "messages are put when this is awaited"]
pub struct PutAll<T, E> {
    pub(super) office: Arc<Office<T, E>>,
    pub(super) new: Result<Vec<New>, Error<E>>,
}

/// # Cancel safety
///
/// Dropped before it is ready, all messages may be stored all the same, or none; then they are delivered.
impl<T: Send + 'static, E: Send + 'static> IntoFuture for PutAll<T, E> {
    type Output = Result<Vec<MessageId>, Error<E>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { office, new } = self;
            let (new, (reply, answer)) = (new?, oneshot::channel());
            let (now, told) = (office.clock.now(), Arc::clone(&office));
            office.desk.post(
                move |page| {
                    let put = put_all(page, new, now);
                    // Damage or too little room: what was drafted is taken back by whoever asked for the draft.
                    match put {
                        Err(Error::Store(error)) => Err(error),
                        put @ (Ok(_)
                        | Err(
                            Error::Failed(_)
                            | Error::GaveUp { .. }
                            | Error::Refused(_)
                            | Error::QueueFull { .. }
                            | Error::Dead { .. }
                            | Error::Json(_),
                        )) => Ok(put),
                    }
                },
                move |put| {
                    let put = put.unwrap_or_else(|error| Err(error.into())).map(|stored| {
                        let ids = stored.iter().map(|stored| stored.record.id).collect();
                        // Closed meanwhile: they are stored.
                        let _ = told.inbox.send(Note::Arrived(stored, None));
                        ids
                    });
                    let _ = reply.send(put);
                },
            );
            answer.await.unwrap_or(Err(Error::Store(StoreError::Closed)))
        })
    }
}

/// All of them or none.
fn put_all<E>(page: &mut draft::Draft<'_>, new: Vec<New>, now: u64) -> Result<Vec<Stored>, Error<E>> {
    page.job(|page| {
        let stored = new.into_iter().map(|new| match page.put(new, now)? {
            draft::Put::InLine(stored) => Ok(stored),
            draft::Put::Full(full) => Err(full.into()),
            draft::Put::Later(..) | draft::Put::Known(_) => {
                Err(Error::Json("messages of many have neither a name nor a time".to_owned()))
            }
        });
        stored.collect()
    })
}

impl<E> From<draft::Full> for Error<E> {
    fn from(draft::Full { messages, bytes }: draft::Full) -> Self {
        Self::QueueFull { messages, bytes }
    }
}

impl<T, E> fmt::Debug for Put<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put").field("new", &self.new.as_ref().ok()).finish_non_exhaustive()
    }
}

impl<T, E> fmt::Debug for PutAll<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutAll").field("messages", &self.new.as_ref().ok().map(Vec::len)).finish_non_exhaustive()
    }
}

pub(super) fn new<M: Serialize, E>(rule: &str, key: Key, message: &M) -> Result<New, Error<E>> {
    let body = serde_json::to_vec(message).map_err(|error| Error::Json(error.to_string()))?;
    Ok(New { rule: rule.into(), key, name: String::new(), body, due: None })
}
