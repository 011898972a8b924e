//! The bot at work: every message is handed over when it is due, however that is then sent.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use crate::load::{Message, Rule};

/// The attempt that the server accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) started: Instant,
    pub(crate) message_id: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) rule: Rule,
    /// From the moment the message was due to the start of the attempt that was accepted.
    pub(crate) waited: Duration,
    pub(crate) sent: Sent,
}

/// Sends every message from the moment it is due, at most `width` of them at a time.
pub(crate) fn when_due<'a, I, F, Fut>(
    messages: I,
    epoch: Instant,
    width: usize,
    send: F,
) -> impl Stream<Item = anyhow::Result<Delivered>> + 'a
where
    I: IntoIterator<Item = &'a Message>,
    I::IntoIter: 'a,
    F: Fn(&'a Message) -> Fut + Copy + 'a,
    Fut: Future<Output = anyhow::Result<Sent>> + 'a,
{
    let one = move |message: &'a Message| async move {
        let due = epoch + message.at;
        sleep_until(due).await;
        let sent = send(message).await?;
        Ok(Delivered { rule: message.rule, waited: sent.started.saturating_duration_since(due), sent })
    };
    stream::iter(messages).map(one).buffer_unordered(width.max(1))
}
