//! All that the crate asks of a bot.

use futures::Stream;
use request_balancer::{Balancer, Rules};
use tokio::time::Instant;

use crate::{
    bot::{ApiError, Bot},
    delivery::{Delivered, Sent, when_due},
    load::Message,
};

pub(crate) fn balancer() -> anyhow::Result<Balancer> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rules/telegram.toml");
    Ok(Balancer::new(Rules::from_file(file)?))
}

/// Every message is in line from the moment it is due; the balancer decides which goes when.
pub(crate) fn deliver<'a>(
    balancer: &'a Balancer,
    bot: &'a Bot,
    messages: &'a [Message],
    epoch: Instant,
) -> impl Stream<Item = anyhow::Result<Delivered>> + 'a {
    when_due(messages, epoch, messages.len(), move |message| send(balancer, bot, message))
}

async fn send(balancer: &Balancer, bot: &Bot, message: &Message) -> anyhow::Result<Sent> {
    let sent = balancer
        .run(message.rule.name(), message.chat, async |attempt| {
            let started = Instant::now();
            match bot.send(message.chat, &message.text).await {
                Err(ApiError::TooManyRequests { retry_after }) => Err(attempt.retry(retry_after)),
                other => Ok(Sent { started, message_id: other? }),
            }
        })
        .await?;
    Ok(sent)
}
