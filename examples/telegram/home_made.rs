//! The common home-made way, for comparison: so many calls at a time, and after a refusal sleep and try again.

use futures::{Stream, stream};
use tokio::time::{Instant, sleep};

use crate::{
    bot::{ApiError, Bot},
    delivery::{Delivered, Sent, when_due},
    load::{Message, Rule},
};

/// As many broadcast messages are on the way at a time as the server takes in a second.
const BROADCAST_WIDTH: usize = 30;

/// The broadcast goes through `buffer_unordered`; every other message is sent by its handler in the moment it is due.
pub(crate) fn deliver<'a>(
    bot: &'a Bot,
    messages: &'a [Message],
    epoch: Instant,
) -> impl Stream<Item = anyhow::Result<Delivered>> + 'a {
    let (broadcast, others): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.rule == Rule::Broadcast);
    let at_once = others.len();
    stream::select(
        when_due(others, epoch, at_once, move |message| send(bot, message)),
        when_due(broadcast, epoch, BROADCAST_WIDTH, move |message| send(bot, message)),
    )
}

async fn send(bot: &Bot, message: &Message) -> anyhow::Result<Sent> {
    loop {
        let started = Instant::now();
        match bot.send(message.chat, &message.text).await {
            Err(ApiError::TooManyRequests { retry_after }) => sleep(retry_after).await,
            other => return Ok(Sent { started, message_id: other? }),
        }
    }
}
