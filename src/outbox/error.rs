//! Why a message was not put, or not sent.

use std::fmt;

use super::record::MessageId;
use super::store::StoreError;
use crate::error::Refused;

/// Why a message was not put, or could not be sent at once and never will be.
///
/// After any of these the outbox does not have the message; unless it was put under a name a second time meanwhile, and
/// that caller was told that it is stored: then it is among the dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error<E> {
    /// Its first attempt failed for good, with your own error.
    Failed(E),
    /// Its first attempt failed, and no other is to follow.
    GaveUp {
        /// Why.
        reason: Refused,
        /// The error of the attempt, if it brought one.
        last: Option<E>,
    },
    /// It was not put: what the balancer says of its rule.
    Refused(Refused),
    /// It was not put: the outbox has as many messages, or as many bytes of them, as it may.
    QueueFull {
        /// How many it has.
        messages: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// It was not put: a message of the same name is among the dead.
    Dead {
        /// That one.
        id: MessageId,
    },
    /// It was not put: it, or what was remembered of one with the same name, can't be written or read as JSON.
    Json(String),
    /// It was not put: the store failed.
    Store(StoreError),
}

impl<E> Error<E> {
    /// Your own error, if there is one.
    #[must_use]
    pub const fn last(&self) -> Option<&E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::GaveUp { last, .. } => last.as_ref(),
            Self::Refused(_) | Self::QueueFull { .. } | Self::Dead { .. } | Self::Json(_) | Self::Store(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::GaveUp { reason, last: None } => write!(f, "gave up: {reason}"),
            Self::GaveUp { reason, last: Some(error) } => write!(f, "gave up: {reason}; last error: {error}"),
            Self::Refused(reason) => write!(f, "not put: {reason}"),
            Self::QueueFull { messages, bytes } => {
                write!(f, "no room in the outbox, which has {messages} messages of {bytes} bytes")
            }
            Self::Dead { id } => write!(f, "message {id} of the same name is among the dead: redrive or purge it"),
            Self::Json(error) => write!(f, "not put: no JSON can be made of it: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}

impl<E> From<StoreError> for Error<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
