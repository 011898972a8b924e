//! What the courier is told.

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::draft::Stored;
use super::letter::{Delivery, End, Reply};
use super::record::{Queue, Unix};
use super::shelf::Queues;
use super::store::StoreError;

pub(super) enum Note<T, E> {
    /// Messages were put.
    Arrived(Vec<Stored>, Option<Reply<T, E>>),
    /// There are messages in these queues' store that it may not know of.
    Look(Vec<Queue>),
    /// There may be messages in the store that it does not know of.
    Search,
    /// A message enters the line then.
    Due(Unix),
    /// What was due has entered the line.
    Entered(Result<(Vec<Queue>, bool), StoreError>),
    /// When the next one does.
    NextDue(Result<Option<Unix>, StoreError>),
    /// Some names were forgotten; whether there are others.
    Forgotten(bool),
    /// Queues of a lane that may not be known.
    Found(u32, Result<Queues, StoreError>),
    /// Messages of a queue that were read.
    Loaded(Queue, Result<(Vec<Stored>, bool), StoreError>),
    /// A message waits after a failed attempt.
    Waits {
        queue: Queue,
        place: u64,
    },
    /// A message that waits left the line, or could not.
    Left {
        queue: Queue,
        place: u64,
        due: Result<Unix, StoreError>,
    },
    /// A message came to its end.
    Ended {
        queue: Queue,
        place: u64,
        end: End,
    },
    Flush(oneshot::Sender<u64>),
    /// Take everything out of the line, and leave it out until everybody who wanted that has told otherwise.
    Pause(oneshot::Sender<()>),
    Resume,
    /// Start nothing more; what runs may go on until then.
    Close(Instant, oneshot::Sender<Closed>),
    /// Nobody has the outbox any more.
    Abandoned,
}

impl<T, E> Note<T, E> {
    /// Nobody brings messages on their way any more: what was put is stored.
    pub(super) fn turn_down(self) {
        if let Self::Arrived(messages, Some(reply)) = self
            && let Some(stored) = messages.first()
        {
            let _ = reply.send(Ok(Delivery::Queued(stored.record.id)));
        }
    }
}

/// What became of attempts that ran when an outbox was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Messages whose attempts came to their end in time.
    pub done: usize,
    /// Attempts that were cut off: their messages come again, marked as maybe delivered.
    pub aborted: usize,
    /// Messages that are stored for the next start, those included.
    pub left: u64,
}
